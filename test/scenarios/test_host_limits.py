"""What a host takes from one address, tells whom, and demands of writers: done to the real extension, as it was done to it before."""

import hashlib
import json
import re
import socket
import time
from pathlib import Path

import duckdb
import pytest

import places
import wire
from signing import AIKO, AUTHOR, allow, make_key
from story import quoted

WRITE = places.Http.token


@pytest.fixture
def logging(tmp_path):
    """A host in a process of its own whose standard error is a file: `logging.told()` gives the lines."""
    hosts = []

    def start(**environment):
        log = tmp_path / f"log-{len(hosts)}"
        with open(log, "wb") as stderr:
            host = places.Host(stderr=stderr, **environment)
        host.told = lambda: [line for line in log.read_text().splitlines() if " fdl-host " in line]
        hosts.append(host)
        return host

    yield start
    for host in hosts:
        host.close()


def test_six_hundred_half_open_connections(writer, place):
    """The longest wait of an honest reader was 29 seconds: all 512 places were taken by whoever said nothing."""
    address = tuple(place.address.split(":"))
    half_open = []
    for number in range(600):
        connection = socket.create_connection(address, timeout=20)
        if number % 2:
            connection.sendall(b"GET /HEAD HTTP/1.1\r\nHo")
        half_open.append(connection)
    began = time.monotonic()
    for _ in range(50):
        assert wire.ask(place.location + "/HEAD")[0] == 200
    # Heads that do not end are given 30 seconds.
    assert time.monotonic() - began < 20
    writer("INSERT INTO lake.t VALUES (10)")
    writer.publish("meanwhile")
    for connection in half_open:
        connection.close()


def test_two_commits_in_one_push(writer, place, open_session):
    for number in (10, 11, 12):
        writer(f"INSERT INTO lake.t VALUES ({number})")
        assert writer.fdl("commit", "lake", message=f"add {number}")["committed"]
    pushed = writer.fdl("push", "lake", tag="v2")
    assert (pushed["outcome"], pushed["versions"], pushed["old_version"]) == ("pushed", 3, writer.first)
    log = writer.table("log", place.location)
    assert [entry["message"] for entry in log] == ["add 12", "add 11", "add 10", "one"]
    reader = open_session()
    reader.fdl("attach", place.location, alias="p")
    assert reader.value("SELECT count(*) FROM p.t") == 13


def test_a_ref_is_moved_to_a_child_and_on_condition(writer, place):
    for number in (10, 11):
        writer(f"INSERT INTO lake.t VALUES ({number})")
        writer.fdl("commit", "lake", message=f"add {number}")
    ref = f"{place.location}/refs/heads/main"
    first = wire.ask(ref)[1]["ETag"]
    newest = writer.fdl("push", "lake")["new_version"]
    # Back at the first, as if nobody had pushed.
    (place.folder.path / "refs/heads/main").write_text(writer.first + "\n")
    token = f"Bearer {WRITE}"
    status, _, body = wire.ask(ref, "PUT", newest.encode(), Authorization=token)
    assert (status, json.loads(body)["error"]) == (428, "FDL-BAD-ARGUMENT"), body
    status, _, body = wire.ask(ref, "PUT", newest.encode(), Authorization=token, If_Match=first)
    said = json.loads(body)
    assert (status, said["error"], said["reason"]) == (409, "FDL-CONFLICT", "not-a-child") and writer.first in said["message"]
    parent = json.loads(wire.ask(f"{place.location}/versions/{newest}/version.json")[2])["parents"][0]
    for version in (parent, newest):
        now = wire.ask(ref)[1]["ETag"]
        assert wire.ask(ref, "PUT", version.encode(), Authorization=token, If_Match=now)[0] == 200


def test_the_content_of_a_file_stays_on_the_host(bare, logging, open_session, monkeypatch):
    """A catalog with a view that reads a file of the host: its content was in the answer to the PUT of the ref."""
    monkeypatch.setenv("FDL_TOKEN", WRITE)
    (bare / "private.txt").write_text("TOPSECRET")
    (bare / "served").mkdir()
    host = logging()
    url = host.serve(bare / "served", write_token=WRITE, log=True)
    session = open_session()
    session.fdl("init", url)
    session.checkout(url)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    session.publish("one")
    session("INSERT INTO lake.t VALUES (10)")
    version = session.fdl("commit", "lake", message="two")["version"]
    folder = Path("lake.sqlite.fdl/versions") / version
    catalog = folder / "ducklake.duckdb"
    with duckdb.connect(str(catalog)) as connection:
        connection.execute("ALTER TABLE ducklake_data_file RENAME TO b")
        connection.execute("CREATE VIEW ducklake_data_file AS SELECT * REPLACE ((SELECT content FROM "
                           f"read_text({quoted(bare / 'private.txt')}))::BIGINT AS data_file_id) FROM b")
    record = json.loads((folder / "version.json").read_text())
    record["sha256"], record["size"] = hashlib.sha256(catalog.read_bytes()).hexdigest(), catalog.stat().st_size
    (folder / "version.json").write_text(json.dumps(record))
    message = session.refused("CALL fdl_push('lake')", "FDL-STORE")
    assert "TOPSECRET" not in message and str(bare / "served") not in message and "could not read the files" in message, message
    (told,) = [line for line in host.told() if "FDL-CORRUPT" in line]
    ident = re.search(r"under ([0-9a-z]{8})", message).group(1)
    assert ident in told and "PUT /refs/heads/main 409" in told and "cause: " in told and WRITE not in told, told
    assert wire.ask(url + "/HEAD")[0] == 200


@pytest.mark.parametrize("asked", [{"log": True}, {}])
def test_the_log_by_parameter_and_by_environment(repo, logging, asked):
    host = logging(**({} if asked else {"FDL_LOG": "host"}))
    url = host.serve(Path("repo").resolve(), **asked)
    assert wire.ask(url + "/HEAD")[0] == 200
    status, _, body = wire.ask(url + "/data/none.parquet?token=hush", Authorization="Bearer hush")
    assert status == 404
    (line,) = host.told()
    assert json.loads(body)["id"] in line and "GET /data/none.parquet 404 FDL-NOT-FOUND" in line and "hush" not in line, line


def test_nothing_is_logged_unasked(repo, logging):
    host = logging()
    url = host.serve(Path("repo").resolve())
    assert wire.ask(url + "/data/none.parquet")[0] == 404 and host.told() == []


def test_a_host_demands_signatures(bare, open_session, monkeypatch):
    monkeypatch.setenv("FDL_TOKEN", WRITE)
    (bare / "served").mkdir()
    make_key("key")
    make_key("other")
    allow((AIKO, None, "key"))
    host = open_session()
    host.refused("FROM fdl_serve('served', address := '127.0.0.1:0', write_token := 'x', allowed_signers := 'none')", "FDL-NOT-FOUND")
    host.refused("FROM fdl_serve('served', address := '127.0.0.1:0', write_token := 'x', allowed_signers := '')", "FDL-BAD-ARGUMENT")
    url = host.fdl("serve", "served", address="127.0.0.1:0", write_token=WRITE, allowed_signers="allowed_signers")["url"]
    session = open_session()
    session.fdl("init", url)
    session.checkout(url)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    session.fdl("commit", "lake", message="one", author=AUTHOR)
    message = session.refused("CALL fdl_push('lake')", "FDL-UNTRUSTED")
    assert "is not signed" in message and "sign_with" in message, message
    session("INSERT INTO lake.t VALUES (10)")
    session.fdl("commit", "lake", message="signed upon that", author=AUTHOR, sign_with="key")
    session.refused("CALL fdl_push('lake')", "FDL-UNTRUSTED")
    assert not (bare / "served/refs/heads/main").exists()
    session("DETACH lake")
    fresh = open_session()
    fresh.checkout(url, alias="two")
    fresh("CREATE TABLE two.t AS SELECT 1 AS a")
    fresh.fdl("commit", "two", message="by another", author=AUTHOR, sign_with="other")
    assert "nobody whom this host lists" in fresh.refused("CALL fdl_push('two')", "FDL-UNTRUSTED")
    fresh("DETACH two")
    third = open_session()
    third.checkout(url, alias="three")
    for number in (1, 2):
        third(f"CREATE OR REPLACE TABLE three.t AS SELECT {number} AS a")
        third.fdl("commit", "three", message=f"signed {number}", author=AUTHOR, sign_with="key")
    assert third.fdl("push", "three")["outcome"] == "pushed"
