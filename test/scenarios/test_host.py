"""The host: fdl_serve and its like, hosts that go away, and what is asked of them by whoever means no good."""

import http.client
import json
import random
import re
import socket
import threading
import time
from pathlib import Path

import pytest

import places
import wire
from story import Session, call, signal, wait_for

WRITE = places.Http.token


def test_hosts_come_and_go(repo, open_session, connect):
    session = open_session()
    one, two = (session.fdl("serve", "repo", address="127.0.0.1:0") for _ in range(2))
    assert one["url"] == f"http://{one['address']}" and one["address"] != two["address"]
    for host in (one, two):
        status, headers, body = wire.ask(host["url"] + "/refs.json")
        assert status == 200 and body == Path("repo/refs.json").read_bytes() and headers["Cache-Control"] == "no-store"
    wire.ask(one["url"] + "/HEAD")
    hosts = {row["address"]: row for row in session("FROM fdl_serving()")}
    assert set(hosts) == {one["address"], two["address"]}
    assert (hosts[one["address"]]["requests"], hosts[two["address"]]["requests"]) == (2, 1)
    size = len(Path("repo/refs.json").read_bytes())
    assert hosts[two["address"]]["bytes_out"] >= size and hosts[one["address"]]["repository"] == str(Path("repo").resolve())
    assert hosts[one["address"]]["since"] is not None
    message = session.refused(call("serve", "repo", address=one["address"]), "FDL-BAD-ARGUMENT")
    assert one["address"] in message
    assert session("FROM fdl_serving()") == Session(session.connection.cursor())("FROM fdl_serving()"), "another connection to the same database"
    assert open_session()("FROM fdl_serving()") == [], "another database"
    assert session(f"FROM fdl_stop_serving(address := '{one['address']}')") == [{"address": one["address"], "requests": 2}]
    session.refused(f"FROM fdl_stop_serving(address := '{one['address']}')", "FDL-NOT-FOUND")
    with pytest.raises(OSError):
        wire.ask(one["url"] + "/HEAD")
    # The address is free again.
    assert session.fdl("serve", "repo", address=one["address"])["address"] == one["address"]
    assert len(session("FROM fdl_stop_serving()")) == 2
    assert session("FROM fdl_serving()") == session("FROM fdl_stop_serving()") == []


@pytest.mark.parametrize("given, code", [
    ({"address": "127.0.0.1"}, "FDL-BAD-ARGUMENT"), ({"address": "nowhere.invalid:1"}, "FDL-BAD-ARGUMENT"),
    ({"address": "127.0.0.1:99999"}, "FDL-BAD-ARGUMENT"), ({"write_token": "a b"}, "FDL-BAD-ARGUMENT"),
    ({"read_token": ""}, "FDL-BAD-ARGUMENT"), ({"move_refs": "all"}, "FDL-BAD-ARGUMENT"), ({"max_upload": -1}, "FDL-BAD-ARGUMENT")])
def test_a_host_that_cannot_be(repo, open_session, given, code):
    session = open_session()
    message = session.refused(call("serve", "repo", **{"address": "127.0.0.1:0", **given}), code)
    assert "a b" not in message
    assert session("FROM fdl_serving()") == []


def test_nothing_to_serve(open_session, bare, monkeypatch):
    session = open_session()
    (bare / "empty").mkdir()
    session.refused(call("serve", "empty", address="127.0.0.1:0"), "FDL-NOT-A-REPOSITORY")
    assert session("FROM fdl_serving()") == []
    # Whoever may write may also start it.
    url = session.fdl("serve", "empty", address="127.0.0.1:0", write_token=WRITE)["url"]
    open_session().refused(call("log", url), "FDL-NOT-A-REPOSITORY")
    monkeypatch.setenv("FDL_TOKEN", WRITE)
    assert open_session().fdl("init", url)["created"] is True
    assert open_session().fdl("init", url)["created"] is False


def test_a_host_ends_with_its_database(repo, connect, python):
    # A cursor would be closed with its connection.
    connection, other = connect(":memory:shared"), connect(":memory:shared")
    (url,) = connection.execute("SELECT url FROM fdl_serve('repo', address := '127.0.0.1:0')").fetchone()
    connection.close()
    time.sleep(1.5)
    assert wire.ask(url + "/HEAD")[0] == 200, "the database is still open"
    other.close()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            wire.ask(url + "/HEAD")
            time.sleep(0.05)
        except OSError:
            break
    else:
        raise AssertionError("it still answers")
    # A process that ends does not wait for its hosts.
    began = time.monotonic()
    assert python("s = connect(); print(json.dumps(rows(s, \"FROM fdl_serve('repo', address := '127.0.0.1:0')\")))").rows
    assert time.monotonic() - began < 30


def test_a_host_that_is_killed_in_a_push(place, python, tmp_path, open_session, monkeypatch):
    """Readers are fine behind the next host, and the next push finishes."""
    folder = place.folder.path
    host = places.Host()
    chance = random.Random(7)
    try:
        url = host.serve(folder, write_token=WRITE)
        address = url.removeprefix("http://")
        session = open_session()
        session.fdl("init", url)
        session.checkout(url)
        session("CREATE TABLE lake.n AS SELECT 0 AS n")
        session.publish("start")
        session("DETACH lake")
        for turn in range(1, 5):
            signal("go" + str(turn))
            push = python.start(f"""
from story import *
s = Session()
s("LOAD ducklake; LOAD sqlite_scanner; LOAD httpfs")
attach = s.checkout({url!r})
s("UPDATE lake.n SET n = {turn}")
for number in range(5):
    s(f"CREATE OR REPLACE TABLE lake.t{{number}} AS SELECT {turn} AS n, range AS a FROM range(1000)")
s.fdl("commit", "lake", message="turn {turn}")
signal("ready{turn}")
try:
    say(s.fdl("push", "lake"))
except Exception as error:
    say({{"error": str(error)}})
""")
            wait_for(f"ready{turn}")
            time.sleep(chance.uniform(0, 0.4))
            host.kill()
            host = places.Host()
            assert host.serve(folder, address=address, write_token=WRITE) == url
            (told,) = push.wait().results
            assert told.get("outcome") == "pushed" or "[FDL-" in told["error"], told
            reader = open_session()
            reader.fdl("attach", url, alias="p")
            now = reader.value("FROM p.n")
            assert now in (turn - 1, turn) and (now == turn or told.get("outcome") != "pushed")
            assert session.fdl("push", "lake.sqlite")["outcome"] in ("pushed", "up to date")
            reader.fdl("attach", url, alias="p")
            assert reader.value("FROM p.n") == turn
            assert {reader.value(f"SELECT min(n) FROM p.t{number}") for number in range(5)} == {turn}
            reader.close()
        entries = session.table("log", url)
        assert [entry["parent"] for entry in entries] == [*(entry["version"] for entry in entries[1:]), None] and len(entries) == 5
    finally:
        host.close()


OUTSIDE = [
    "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/%2e%2e%2fsecret.txt", "/data/../../secret.txt", "/data/..%2f..%2fsecret.txt",
    "/data/%2e%2e/%2e%2e/secret.txt", "/data/%252e%252e/%252e%252e/secret.txt", "/data/..%5c..%5csecret.txt", "/data\\..\\..\\secret.txt",
    "/data/....//....//secret.txt", "/data/..;/..;/secret.txt", "/data/%c0%ae%c0%ae/secret.txt", "/data/x/%00/../../../secret.txt", "//secret.txt",
    "/data/%2Fetc/passwd", "//etc/passwd", "/data//etc/passwd", "/data/link/secret.txt", "/data/link.txt", "/versions/../../secret.txt",
    "/versions/link/secret.txt", "/refs/heads/../../../secret.txt", "/refs/heads/link", "/sources/../../secret.txt", "/secret.txt",
    "/data/k=%2F..%2F..%2F..%2Fsecret.txt", "/.fdl-lock", "/data/", "/data", "/versions/", "/versions", "/refs/", "/refs", "/private.txt",
    "/c:/secret.txt", "/file:///etc/passwd", "/data/main/t/../../../../secret.txt?x", "/?list", "/%", "/%zz", "/%u002e%u002e/secret.txt",
]


INSIDE = ["/data/..;/..;/secret.txt"]


def test_no_path_leads_out_of_the_repository(writer, place, bare):
    """Sent as they are, to readers' and to writers' doors."""
    folder = place.folder.path
    (folder.parent / "secret.txt").write_text("TOPSECRET")
    (folder / "private.txt").write_text("TOPSECRET")
    (folder / "data" / "link").symlink_to(folder.parent)
    (folder / "data" / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "refs" / "heads" / "link").symlink_to(folder.parent / "secret.txt")
    (folder / "versions" / "link").symlink_to(folder.parent)
    before = sorted(path.relative_to(folder.parent) for path in folder.parent.rglob("*") if path.is_file())
    address = place.address
    for path in [*OUTSIDE, "http://example.org/secret.txt", f"http://{address}/../secret.txt"]:
        for method, body in (("GET", ""), ("HEAD", ""), ("PUT", "overwritten"), ("DELETE", ""), ("POST", "x")):
            head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {WRITE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            answer = wire.raw(address, head.encode() + body.encode())
            # A name that is odd and leads nowhere else is as good as any for a data file.
            odd = method == "PUT" and re.match(rb"HTTP/1\.1 201 ", answer) and path in INSIDE
            assert odd or re.match(rb"HTTP/1\.1 (400|403|404|405|428|501) ", answer), (method, path, answer[:200])
            assert b"TOPSECRET" not in answer and b"root:" not in answer and b"ducklake-" not in answer, (method, path, answer)
    for path in INSIDE:
        (folder / path[1:]).unlink(missing_ok=True)
    assert sorted(path.relative_to(folder.parent) for path in folder.parent.rglob("*") if path.is_file()) == before
    assert (folder.parent / "secret.txt").read_text() == (folder / "private.txt").read_text() == "TOPSECRET"


def test_what_is_written_stays(writer, place):
    """Whoever holds the token may add, never replace; other methods are for nobody."""
    key = place.keys("data/")[0]
    before = {key: place.read(key) for key in place.keys()}
    for key in (key, f"versions/{writer.first}/version.json", f"versions/{writer.first}/ducklake.duckdb", "fdl.json", "HEAD"):
        status, _, body = wire.ask(f"{place.location}/{key}", "PUT", before[key], Authorization=f"Bearer {WRITE}")
        assert status == 200, (key, status, body)
        status, _, body = wire.ask(f"{place.location}/{key}", "PUT", before[key] + b" ", Authorization=f"Bearer {WRITE}")
        assert status in (400, 403, 409) and json.loads(body)["error"], (key, status, body)
        assert wire.ask(f"{place.location}/{key}", "DELETE", Authorization=f"Bearer {WRITE}")[0] == 403
        assert wire.ask(f"{place.location}/{key}", "PUT", b"x")[0] == 401
    for key in (f"versions/{writer.first}/expired.json", "refs.json"):
        assert wire.ask(f"{place.location}/{key}", "PUT", b"{}", Authorization=f"Bearer {WRITE}")[0] == 403
    status, _, body = wire.ask(f"{place.location}/refs/heads/main", "PUT", b"019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10\n", Authorization=f"Bearer {WRITE}",
                               If_Match="*")
    assert status == 409, (status, body)
    for method in ("PATCH", "TRACE", "PROPFIND", "LINK"):
        assert wire.ask(f"{place.location}/HEAD", method, Authorization=f"Bearer {WRITE}")[0] in (405, 501)
    assert {key: place.read(key) for key in place.keys()} == before


def test_what_a_reader_may_ask(writer, place):
    """Ranges, conditions, caches and the latest catalog, as the format says."""
    url = f"{place.location}/versions/{writer.first}/ducklake.duckdb"
    whole = place.read(f"versions/{writer.first}/ducklake.duckdb")
    status, headers, body = wire.ask(url)
    assert (status, body, headers["Accept-Ranges"], int(headers["Content-Length"])) == (200, whole, "bytes", len(whole))
    assert headers["Cache-Control"] == "public, max-age=31536000, immutable" and re.fullmatch(r'"[^"]+"', headers["ETag"])
    for asked, start, end in (("0-9", 0, 10), ("10-", 10, len(whole)), ("-5", len(whole) - 5, len(whole)), (f"5-{len(whole) * 2}", 5, len(whole))):
        status, partial, body = wire.ask(url, Range=f"bytes={asked}")
        assert (status, body) == (206, whole[start:end]) and partial["Content-Range"] == f"bytes {start}-{end - 1}/{len(whole)}"
        assert partial["ETag"] == headers["ETag"]
    status, partial, _ = wire.ask(url, Range=f"bytes={len(whole)}-")
    assert status == 416 and partial["Content-Range"] == f"bytes */{len(whole)}"
    assert wire.ask(url, If_None_Match=headers["ETag"])[0] == 304
    status, partial, body = wire.ask(url, "HEAD")
    assert (status, body, int(partial["Content-Length"])) == (200, b"", len(whole))
    status, latest, body = wire.ask(place.location + "/ducklake.duckdb")
    assert (status, body, latest["FDL-Version"]) == (200, whole, writer.first)
    for key in ("HEAD", "refs/heads/main", "refs.json"):
        assert wire.ask(f"{place.location}/{key}")[1]["Cache-Control"] == "no-store"
    status, _, body = wire.ask(f"{place.location}/versions/{writer.first}/expired.json")
    assert status == 404 and json.loads(body)["error"] == "FDL-NOT-FOUND"


def test_two_hundred_readers_at_once(writer, place):
    key = f"versions/{writer.first}/ducklake.duckdb"
    whole, problems = place.read(key), []
    start = threading.Barrier(200)

    def read(number):
        try:
            connection = http.client.HTTPConnection(place.address, timeout=60)
            connection.connect()
            start.wait(60)
            for _ in range(3):
                connection.request("GET", "/" + key, headers={"Range": f"bytes={number}-"} if number % 2 else {})
                answer = connection.getresponse()
                body = answer.read()
                if body != (whole[number:] if number % 2 else whole):
                    problems.append((number, answer.status, len(body)))
            connection.close()
        except Exception as error:
            problems.append((number, repr(error)))

    readers = [threading.Thread(target=read, args=(number,)) for number in range(200)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(90)
    assert problems == []


def test_noise(writer, place):
    """Random bytes, heads without end, bodies that stop half way, and connections that say nothing: the host serves on."""
    address, noise = place.address, random.Random(3)
    idle = [socket.create_connection(tuple(address.split(":")), timeout=5) for _ in range(50)]
    for _ in range(300):
        content = noise.randbytes(noise.randint(1, 2000))
        if noise.random() < 0.5:
            content = noise.choice([b"GET /", b"PUT /data/x HTTP/1.1\r\nContent-Length: 99999\r\n\r\n", b"POST /?batch HTTP/1.1\r\n"]) + content
        answer = wire.raw(address, content, end=True)
        assert not answer or re.match(rb"HTTP/1\.[01] [45]\d\d ", answer), answer[:100]
    huge = b"GET /HEAD HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1000) for number in range(2000)) + b"\r\n"
    assert not (answer := wire.raw(address, huge, end=True)) or re.match(rb"HTTP/1\.1 4\d\d ", answer), answer[:100]
    half = f"PUT /data/main/t/half.parquet HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITE}\r\nContent-Length: 1000\r\n\r\nonly this"
    wire.raw(address, half.encode(), end=True)
    for connection in idle:
        connection.close()
    time.sleep(0.2)
    assert not [key for key in place.keys() if "half" in key or key.endswith(".tmp")]
    assert wire.ask(place.location + "/HEAD")[0] == 200
    writer("INSERT INTO lake.t VALUES (10)")
    writer.publish("after the noise")
