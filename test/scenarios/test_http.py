"""Repositories behind HTTP, and the host: what a host lets in and what it does not, tokens, mirrors, and hosts that go away."""

import http.client
import json
import os
import random
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import places
import wire
from story import call, quoted, signal, wait_for

READ, WRITE = "hush-read-token", "hush-write-token"


@pytest.fixture
def place(new_place):
    """An open host whose writers hold the token that is in FDL_TOKEN, with an empty folder."""
    return new_place("http")


@pytest.fixture
def writer(place, open_session):
    """A session that has published one version of the table t, tagged v1."""
    session = open_session()
    session.fdl("init", place.location)
    session.checkout(place.location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    session.first = session.publish("one", tag="v1")["new_version"]
    return session


def ask(url, method="GET", body=None, **headers):
    """(status, headers, body) of one request; headers with `_` for `-`."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def raw(address, content, seconds=5, end=False):
    """What a host sends back to these bytes, until it closes or says no more. With `end` it hears that no more will come."""
    name, port = address.split(":")
    with socket.create_connection((name, int(port)), timeout=seconds) as connection:
        answer = b""
        try:
            connection.sendall(content)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except OSError:
            pass
        return answer


def address_of(place):
    return place.location.removeprefix("http://")


def files_with(secret, *folders):
    """The files that hold the secret."""
    return [file for folder in folders for file in Path(folder).rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


# Reading


def test_the_main_job_step_by_step(place, open_session, bare):
    session = open_session()
    assert session.fdl("init", place.location)["created"] is True
    made = session.checkout(place.location)
    assert made["repository"] == place.location and made["data_path"] == str(bare / "lake.sqlite.fdl" / "data") + "/"
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    assert place.keys("data/") == []
    done = session.fdl("commit", "lake", message="one")
    assert place.keys("data/") == place.keys("versions/") == []
    pushed = session.fdl("push", "lake", tag="v1")
    assert (pushed["outcome"], pushed["new_version"], pushed["files_uploaded"]) == ("pushed", done["version"], 1)
    assert pushed["bytes_uploaded"] == place.size(place.keys("data/")[0])
    # The host writes refs.json; nobody else does.
    assert json.loads(place.text("refs.json"))["refs"] == {"refs/heads/main": done["version"], "refs/tags/v1": done["version"]}
    # A second working copy reads the files that are there by URL, and sends only its own.
    other = open_session()
    other.checkout(place.location, path="other.sqlite")
    assert other.value("SELECT count(*) FROM lake.t") == 10
    other("INSERT INTO lake.t VALUES (10); DELETE FROM lake.t WHERE a = 0")
    pushed = other.publish("two")
    assert (pushed["files_uploaded"], pushed["files_skipped"]) == (2, 1)
    assert other.column("FROM lake.t ORDER BY a") == list(range(1, 11))
    # Its rebuild writes everything anew, and there is nothing to commit.
    count = len(place.keys())
    other("CREATE OR REPLACE TABLE lake.t AS FROM lake.t ORDER BY a DESC")
    assert other.fdl("push", "lake", message="nothing new")["outcome"] == "up to date"
    assert len(place.keys()) == count and len(other.table("log", place.location)) == 2
    for session_ in (session, other):
        session_.fdl("attach", place.location, alias="p")
        assert session_.column("FROM p.t ORDER BY a") == list(range(1, 11))
    (url,) = session.table("url", place.location, ref="v1")
    assert url["url"] == f"{place.location}/versions/{done['version']}/ducklake.duckdb" and url["data_path"] == f"{place.location}/data/"
    assert [ref["ref"] for ref in session.table("refs", place.location)] == ["refs/heads/main", "refs/tags/v1"]
    assert session.one(call("log", place.location, max_count=1))["message"] == "two"


def test_new_files_go_where_data_path_says(writer, place, open_session, bare):
    session = open_session()
    made = session.checkout(place.location, path="other.sqlite", data_path="new files")
    assert made["data_path"] == str(bare / "new files") + "/"
    session("INSERT INTO lake.t VALUES (10)")
    (file,) = [file for file in (bare / "new files").rglob("*") if file.is_file()]
    session.publish("two")
    assert [key for key in place.keys("data/") if key.endswith(file.name)] == [f"data/main/t/{file.name}"]
    assert session.value("SELECT count(*) FROM lake.t") == 11


def read_everything(session, location, alias="p"):
    session.fdl("attach", location, alias=alias, ref="v1")
    assert session.column(f"FROM {alias}.t ORDER BY a") == list(range(10))
    session.fdl("attach", location, alias=alias + "_never", cache="never")
    assert session.value(f"SELECT count(*) FROM {alias}_never.t") == 10
    assert [entry["message"] for entry in session.table("log", location)] == ["one"]
    assert [ref["name"] for ref in session.table("refs", location)] == ["main", "v1"]
    assert [table["name"] for table in session.table("tables", location)] == ["t"]
    assert len(session.table("files", location)) == 1


def test_a_plain_web_server_is_enough_to_read(writer, place, open_session, monkeypatch):
    monkeypatch.delenv("FDL_TOKEN")
    with wire.Static(place.folder.path) as server:
        session = open_session()
        read_everything(session, server.url)
        assert {request.method for request in server.requests} <= {"GET", "HEAD"}
        assert server.took("GET", "/refs.json") and {request.answer[0] for request in server.requests} <= {200, 206, 404}
        # A checkout is fine; what cannot be is the push.
        session.checkout(server.url, path="other.sqlite")
        session("INSERT INTO lake.t VALUES (10)")
        message = session.refused(call("push", "lake", message="x"), "FDL-STORE")
        assert "HTTP" in message and "write" in message, message


def test_a_mirror_is_read_with_the_same_statement(writer, place, open_session, host, tmp_path, bare):
    """A copy of the folder is the repository, wherever it is served: nothing in it knows its own address."""
    copy = tmp_path / "copy"
    shutil.copytree(place.folder.path, copy)
    for file in copy.rglob("*"):
        assert not file.is_file() or address_of(place).encode() not in file.read_bytes() or file.suffix == ".duckdb", file
    statement = writer.fdl("url", place.location)["attach_sql"]
    plain = open_session()
    plain("LOAD ducklake; LOAD httpfs")
    with wire.Static(tmp_path) as server:
        plain(re.sub(r' AS "[^"]+"', " AS mirror", statement.replace(place.location, server.url + "/copy"), count=1))
        shutil.move(place.folder.path, bare / "away")
        assert plain.column("FROM mirror.t ORDER BY a") == list(range(10))
        read_everything(open_session(), server.url + "/copy")
    # A writer goes on from the copy behind another host.
    url = host.serve(copy, write_token=WRITE)
    session = open_session()
    session.checkout(url, path="other.sqlite")
    session("INSERT INTO lake.t VALUES (10)")
    assert session.publish("two")["old_version"] == writer.first
    host.stop(url)


def test_an_expired_version(writer, place, open_session):
    writer("INSERT INTO lake.t VALUES (10)")
    writer.publish("two")
    mark = {"fdl": "0.1", "id": writer.first, "reason": "retention", "at": "2026-11-29T00:00:00.000Z", "message": "kept long enough"}
    (place.folder.path / "versions" / writer.first / "expired.json").write_text(json.dumps(mark))
    session = open_session()
    message = session.refused(call("attach", place.location, ref="v1"), "FDL-EXPIRED")
    assert writer.first in message
    session.refused(call("checkout", place.location, ref="v1", alias="x"), "FDL-EXPIRED")
    assert [entry["state"] for entry in session.table("log", place.location)] == ["live", "expired"]
    session.fdl("attach", place.location, alias="p")
    assert session.value("SELECT count(*) FROM p.t") == 11


# Writing


def test_the_reason_of_the_host_is_in_the_message(writer, place, open_session, monkeypatch):
    """A proxy that loses what it was sent: the host finds out, and the branch stays."""
    def lose(request):
        if request.method == "PUT" and "/data/" in request.path:
            return 201, [], b""

    with wire.Proxy(place.location, meddle=lose) as proxy:
        session = open_session()
        session.checkout(proxy.url, path="other.sqlite")
        session("INSERT INTO lake.t VALUES (10)")
        try:
            session.fdl("push", "lake", message="two")
            raise AssertionError("not refused")
        except Exception as error:
            message = str(error)
        assert "[FDL-" in message and "Hint: " in message
        assert re.search(r"data/main/t/ducklake-[0-9a-f-]+\.parquet.*missing", message), message
        assert place.text("refs/heads/main").strip() == writer.first
        proxy.meddle = None
        assert session.fdl("push", "lake")["outcome"] == "pushed"


def test_a_lost_race(writer, place, open_session):
    other = open_session()
    other.checkout(place.location, path="other.sqlite")
    other("INSERT INTO lake.t VALUES (10)")
    theirs = other.publish("theirs")["new_version"]
    writer("INSERT INTO lake.t VALUES (20)")
    message = writer.refused(call("push", "lake", message="mine"), "FDL-CONFLICT")
    assert theirs in message and writer.first in message
    assert place.text("refs/heads/main").strip() == theirs
    writer.fdl("push", "lake", ref="beside")
    assert {ref["name"] for ref in writer.table("refs", place.location)} == {"main", "beside", "v1"}


def test_a_race_that_is_lost_at_the_last_step(writer, place, open_session):
    """The branch moves between the reading of the ref and its writing: 412, and the message names both versions."""
    other = open_session()
    other.checkout(place.location, path="other.sqlite")
    other("INSERT INTO lake.t VALUES (10)")
    theirs = []

    def first(request):
        if request.method == "PUT" and request.path == "/refs/heads/main" and not theirs:
            theirs.append(other.publish("theirs")["new_version"])

    with wire.Proxy(place.location, meddle=first) as proxy:
        session = open_session()
        session.checkout(proxy.url, path="mine.sqlite")
        session("INSERT INTO lake.t VALUES (20)")
        message = session.refused(call("push", "lake", message="mine"), "FDL-CONFLICT")
        (put,) = proxy.took("PUT", "/refs/heads/main")
        assert put.answer[0] == 412
    assert theirs[0] in message and writer.first in message, message


def test_a_host_that_lets_nobody_move_refs(writer, place, host, open_session):
    url = host.serve(place.folder.path, write_token=WRITE, move_refs="nobody")
    session = open_session()
    session.checkout(url, path="other.sqlite")
    session("INSERT INTO lake.t VALUES (10)")
    pushed = session.fdl("push", "lake", message="two")
    assert pushed["outcome"] == "uploaded" and pushed["old_version"] == writer.first, pushed
    (version,) = {key.split("/")[1] for key in place.keys("versions/")} - {writer.first}
    assert pushed["new_version"] == version
    names = {key.split("/")[2] for key in place.keys(f"versions/{version}/")}
    assert names == {"version.json", "dataset.json", "files.json", "ducklake.duckdb"}
    assert place.text("refs/heads/main").strip() == writer.first
    status = session.fdl("status", "lake")
    assert (status["ahead"], status["version"], status["remote_version"]) == (1, version, writer.first)
    session.refused(call("tag", url, name="v2"), "FDL-PERMISSION")
    # The owner moves the branch; the writer finds out.
    (place.folder.path / "refs" / "heads" / "main").write_text(version + "\n")
    assert session.fdl("push", "lake")["outcome"] in ("pushed", "up to date")
    assert session.fdl("status", "lake")["ahead"] == 0
    host.stop(url)


def test_a_host_that_takes_nothing_large(writer, place, host, open_session):
    url = host.serve(place.folder.path, write_token=WRITE, max_upload=2000)
    session = open_session()
    session.checkout(url, path="other.sqlite")
    session("INSERT INTO lake.t SELECT hash(range) % 1000000 FROM range(5000)")
    try:
        session.fdl("push", "lake", message="two")
        raise AssertionError("not refused")
    except Exception as error:
        assert "2000 bytes" in str(error) and "[FDL-" in str(error), error
    assert place.text("refs/heads/main").strip() == writer.first
    host.stop(url)


# Tokens


@pytest.fixture
def closed(writer, place, host, monkeypatch):
    """The same folder behind a host that asks readers for a token as well; FDL_TOKEN is not set."""
    monkeypatch.delenv("FDL_TOKEN")
    url = host.serve(place.folder.path, read_token=READ, write_token=WRITE)
    yield url
    host.stop(url)


def test_who_may_do_what(closed, open_session, monkeypatch):
    def attach(session, **named):
        return session.fdl("attach", closed, alias="p", **named)

    for given in ({}, {"token": "wrong"}, {"token": ""}):
        session = open_session()
        message = session.refused(call("attach", closed, **given), "FDL-PERMISSION")
        assert "wrong" not in message.replace("wrong token", ""), message
    # For reading alone.
    session = open_session()
    attach(session, token=READ)
    assert session.value("SELECT count(*) FROM p.t") == 10
    session.checkout(closed, path="other.sqlite", token=READ)
    session("INSERT INTO lake.t VALUES (10)")
    message = session.refused(call("push", "lake", message="two"), "FDL-PERMISSION")
    assert "for reading only" in message and READ not in message, message
    # The session knows the new token from then on, DuckDB's reads included.
    assert session.fdl("push", "lake", token=WRITE)["outcome"] == "pushed"
    assert session.fdl("tag", "lake", name="v2")["ref"] == "refs/tags/v2"
    assert session.value("SELECT count(*) FROM lake.t") == 11
    # From the environment; what is empty there is anonymous.
    monkeypatch.setenv("FDL_TOKEN", READ)
    attach(open_session())
    open_session().refused(call("attach", closed, token=""), "FDL-PERMISSION")
    monkeypatch.setenv("FDL_TOKEN", "")
    open_session().refused(call("attach", closed), "FDL-PERMISSION")


def test_the_order_in_which_tokens_are_taken(closed, open_session, monkeypatch):
    """token :=, then the session's secret, then FDL_TOKEN."""
    monkeypatch.setenv("FDL_TOKEN", "wrong")
    session = open_session(allow_unredacted_secrets=True)
    session(f"LOAD httpfs; CREATE SECRET mine (TYPE http, BEARER_TOKEN '{READ}', SCOPE '{closed}')")
    session.fdl("attach", closed, alias="p")
    assert session.value("SELECT count(*) FROM p.t") == 10
    assert session.column("SELECT name FROM duckdb_secrets()") == ["mine"]
    session.refused(call("attach", closed, token="wrong"), "FDL-PERMISSION")


def test_an_open_host_is_read_with_any_token_and_written_with_the_right_one(writer, place, open_session, monkeypatch):
    monkeypatch.setenv("FDL_TOKEN", "wrong")
    session = open_session()
    session.checkout(place.location, path="other.sqlite")
    session("INSERT INTO lake.t VALUES (10)")
    message = session.refused(call("push", "lake", message="two"), "FDL-PERMISSION")
    assert "token" in message, message
    monkeypatch.setenv("FDL_TOKEN", "")
    session.refused(call("push", "lake"), "FDL-PERMISSION")
    assert place.text("refs/heads/main").strip() == writer.first
    assert session.fdl("push", "lake", token=WRITE)["outcome"] == "pushed"


def test_a_read_only_host(writer, place, host, open_session):
    url = host.serve(place.folder.path)
    session = open_session()
    session.checkout(url, path="other.sqlite")
    session("INSERT INTO lake.t VALUES (10)")
    message = session.refused(call("push", "lake", message="two"), "FDL-PERMISSION")
    assert "read-only" in message, message
    host.stop(url)


def test_a_token_goes_nowhere_else(closed, place, open_session, bare, monkeypatch):
    """Another server to which the host redirects sees no token, neither from fdl nor from DuckDB; the reading works."""
    with wire.Static(place.folder.path) as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")

        def redirect(request):
            if request.path.startswith("/versions/") or request.path.startswith("/data/"):
                return 302, [("Location", elsewhere + request.path)], b""

        with wire.Proxy(closed, meddle=redirect) as proxy:
            session = open_session()
            session.fdl("attach", proxy.url, alias="p", token=READ)
            assert other.requests and all("Authorization" not in request.headers for request in other.requests)
            del other.requests[:]
            assert session.value("SELECT sum(a)::BIGINT FROM p.t") == 45
            assert other.requests and all("Authorization" not in request.headers for request in other.requests), "DuckDB gives it away"


def test_tokens_are_not_sent_where_they_do_not_belong(closed, place, open_session):
    """A second host that the session reads without a token gets none, although its address begins alike."""
    with wire.Static(place.folder.path.parent) as other:
        session = open_session()
        session.fdl("attach", closed, alias="p", token=READ)
        session.fdl("attach", f"{other.url}/{place.folder.path.name}", alias="q")
        assert session.value("SELECT count(*) FROM q.t") == session.value("SELECT count(*) FROM p.t") == 10
        assert all("Authorization" not in request.headers for request in other.requests)


def test_tokens_are_not_shown(closed, open_session, bare):
    session = open_session()
    session.checkout(closed, path="other.sqlite", token=WRITE)
    session("INSERT INTO lake.t VALUES (10)")
    session.publish("two")
    session.fdl("attach", closed, alias="p")
    (secret,) = session("SELECT * FROM duckdb_secrets()")
    assert WRITE not in str(secret) and secret["persistent"] is False and secret["scope"] == [closed + "/"]
    assert files_with(WRITE, bare, os.environ["HOME"]) == []
    for row in (session.one(call("status", "lake")), session.one(call("url", "lake")), session.one(call("push", "lake"))):
        assert WRITE not in str(row)

    def gossip(request):
        shown = json.dumps({"error": "FDL-PERMISSION", "message": f"you sent {request.headers.get('Authorization', request.headers)}"})
        return 403, [("Content-Type", "application/json")], shown.encode()

    with wire.Answering(gossip) as server:
        message = open_session().refused(call("attach", server.url, token=WRITE), "FDL-PERMISSION")
        assert WRITE not in message and "you sent" in message, message
    message = open_session().refused(call("attach", closed, token="hush with a space"), "FDL-STORE")
    assert "hush" not in message
    for location in (closed.replace("http://", f"http://user:{WRITE}@"), f"{closed}/?token={WRITE}", f"{closed}#{WRITE}"):
        with pytest.raises(Exception) as refused:
            open_session().fdl("attach", location)
        assert "[FDL-" in str(refused.value) and WRITE not in str(refused.value), refused.value


# The host


def test_hosts_come_and_go(repo, open_session, connect):
    session = open_session()
    one, two = (session.fdl("serve", "repo", address="127.0.0.1:0") for _ in range(2))
    assert one["url"] == f"http://{one['address']}" and one["address"] != two["address"]
    for host in (one, two):
        status, headers, body = ask(host["url"] + "/refs.json")
        assert status == 200 and body == Path("repo/refs.json").read_bytes() and headers["Cache-Control"] == "no-store"
    ask(one["url"] + "/HEAD")
    hosts = {row["address"]: row for row in session("FROM fdl_serving()")}
    assert set(hosts) == {one["address"], two["address"]}
    assert (hosts[one["address"]]["requests"], hosts[two["address"]]["requests"]) == (2, 1)
    size = len(Path("repo/refs.json").read_bytes())
    assert hosts[two["address"]]["bytes_out"] >= size and hosts[one["address"]]["repository"] == str(Path("repo").resolve())
    assert hosts[one["address"]]["since"] is not None
    message = session.refused(call("serve", "repo", address=one["address"]), "FDL-BAD-ARGUMENT")
    assert one["address"] in message
    assert session("FROM fdl_serving()") == open_session_of(session)("FROM fdl_serving()"), "another connection to the same database"
    assert open_session()("FROM fdl_serving()") == [], "another database"
    assert session(f"FROM fdl_stop_serving(address := '{one['address']}')") == [{"address": one["address"], "requests": 2}]
    session.refused(f"FROM fdl_stop_serving(address := '{one['address']}')", "FDL-NOT-FOUND")
    with pytest.raises(OSError):
        ask(one["url"] + "/HEAD")
    # The address is free again.
    assert session.fdl("serve", "repo", address=one["address"])["address"] == one["address"]
    assert len(session("FROM fdl_stop_serving()")) == 2
    assert session("FROM fdl_serving()") == session("FROM fdl_stop_serving()") == []


def open_session_of(session):
    from story import Session
    return Session(session.connection.cursor())


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
    connection = connect()
    cursor = connection.cursor()
    (url,) = connection.execute("SELECT url FROM fdl_serve('repo', address := '127.0.0.1:0')").fetchone()
    connection.close()
    assert ask(url + "/HEAD")[0] == 200, "the database is still open"
    cursor.close()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            ask(url + "/HEAD")
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
    address = address_of(place)
    for path in [*OUTSIDE, "http://example.org/secret.txt", f"http://{address}/../secret.txt"]:
        for method, body in (("GET", ""), ("HEAD", ""), ("PUT", "overwritten"), ("DELETE", ""), ("POST", "x")):
            head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {WRITE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            answer = raw(address, head.encode() + body.encode())
            # A name that is odd and leads nowhere else is as good as any for a data file.
            odd = method == "PUT" and re.match(rb"HTTP/1\.1 201 ", answer) and path in INSIDE
            assert odd or re.match(rb"HTTP/1\.1 (400|403|404|405|501) ", answer), (method, path, answer[:200])
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
        status, _, body = ask(f"{place.location}/{key}", "PUT", before[key], Authorization=f"Bearer {WRITE}")
        assert status == 200, (key, status, body)
        status, _, body = ask(f"{place.location}/{key}", "PUT", before[key] + b" ", Authorization=f"Bearer {WRITE}")
        assert status in (400, 403, 409) and json.loads(body)["error"], (key, status, body)
        assert ask(f"{place.location}/{key}", "DELETE", Authorization=f"Bearer {WRITE}")[0] == 403
        assert ask(f"{place.location}/{key}", "PUT", b"x")[0] == 401
    for key in (f"versions/{writer.first}/expired.json", "refs.json"):
        assert ask(f"{place.location}/{key}", "PUT", b"{}", Authorization=f"Bearer {WRITE}")[0] == 403
    status, _, body = ask(f"{place.location}/refs/heads/main", "PUT", b"019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10\n", Authorization=f"Bearer {WRITE}")
    assert status == 409, (status, body)
    for method in ("PATCH", "TRACE", "PROPFIND", "LINK"):
        assert ask(f"{place.location}/HEAD", method, Authorization=f"Bearer {WRITE}")[0] in (405, 501)
    assert {key: place.read(key) for key in place.keys()} == before


def test_what_a_reader_may_ask(writer, place):
    """Ranges, conditions, caches and the latest catalog, as the format says."""
    url = f"{place.location}/versions/{writer.first}/ducklake.duckdb"
    whole = place.read(f"versions/{writer.first}/ducklake.duckdb")
    status, headers, body = ask(url)
    assert (status, body, headers["Accept-Ranges"], int(headers["Content-Length"])) == (200, whole, "bytes", len(whole))
    assert headers["Cache-Control"] == "public, max-age=31536000, immutable" and re.fullmatch(r'"[^"]+"', headers["ETag"])
    for asked, start, end in (("0-9", 0, 10), ("10-", 10, len(whole)), ("-5", len(whole) - 5, len(whole)), (f"5-{len(whole) * 2}", 5, len(whole))):
        status, partial, body = ask(url, Range=f"bytes={asked}")
        assert (status, body) == (206, whole[start:end]) and partial["Content-Range"] == f"bytes {start}-{end - 1}/{len(whole)}"
        assert partial["ETag"] == headers["ETag"]
    status, partial, _ = ask(url, Range=f"bytes={len(whole)}-")
    assert status == 416 and partial["Content-Range"] == f"bytes */{len(whole)}"
    assert ask(url, If_None_Match=headers["ETag"])[0] == 304
    status, partial, body = ask(url, "HEAD")
    assert (status, body, int(partial["Content-Length"])) == (200, b"", len(whole))
    status, latest, body = ask(place.location + "/ducklake.duckdb")
    assert (status, body, latest["FDL-Version"]) == (200, whole, writer.first)
    for key in ("HEAD", "refs/heads/main", "refs.json"):
        assert ask(f"{place.location}/{key}")[1]["Cache-Control"] == "no-store"
    status, _, body = ask(f"{place.location}/versions/{writer.first}/expired.json")
    assert status == 404 and json.loads(body)["error"] == "FDL-NOT-FOUND"


def test_two_hundred_readers_at_once(writer, place):
    key = f"versions/{writer.first}/ducklake.duckdb"
    whole, problems = place.read(key), []
    start = threading.Barrier(200)

    def read(number):
        try:
            connection = http.client.HTTPConnection(address_of(place), timeout=60)
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
    address, noise = address_of(place), random.Random(3)
    idle = [socket.create_connection(tuple(address.split(":")), timeout=5) for _ in range(50)]
    for _ in range(300):
        content = noise.randbytes(noise.randint(1, 2000))
        if noise.random() < 0.5:
            content = noise.choice([b"GET /", b"PUT /data/x HTTP/1.1\r\nContent-Length: 99999\r\n\r\n", b"POST /?batch HTTP/1.1\r\n"]) + content
        answer = raw(address, content, end=True)
        assert not answer or re.match(rb"HTTP/1\.[01] [45]\d\d ", answer), answer[:100]
    huge = b"GET /HEAD HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1000) for number in range(2000)) + b"\r\n"
    assert not (answer := raw(address, huge, end=True)) or re.match(rb"HTTP/1\.1 4\d\d ", answer), answer[:100]
    half = f"PUT /data/main/t/half.parquet HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITE}\r\nContent-Length: 1000\r\n\r\nonly this"
    raw(address, half.encode(), end=True)
    for connection in idle:
        connection.close()
    time.sleep(0.2)
    assert not [key for key in place.keys() if "half" in key or key.endswith(".tmp")]
    assert ask(place.location + "/HEAD")[0] == 200
    writer("INSERT INTO lake.t VALUES (10)")
    writer.publish("after the noise")
