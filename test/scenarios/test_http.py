"""Repositories behind HTTP: what readers and writers do through a host or a plain web server, mirrors, and tokens."""

import base64
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import places
import wire
from story import call

READ, WRITE = "hush-read-token", places.Http.token


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
        assert not file.is_file() or place.address.encode() not in file.read_bytes() or file.suffix == ".duckdb", file
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


def test_the_first_query_of_a_session_carries_the_token(writer, place, host, open_session, monkeypatch):
    """Data files are read by DuckDB itself, by the secret that fdl makes, in a session that has read nothing yet."""
    monkeypatch.delenv("FDL_TOKEN")
    url = host.serve(place.folder.path, read_token=READ, write_token=WRITE)
    with wire.Proxy(url) as proxy:
        session = open_session()
        session.fdl("attach", proxy.url, alias="p", token=READ)
        assert session.column("FROM p.t ORDER BY a") == list(range(10))
        data = [request for request in proxy.requests if "/data/" in request.path]
        assert data and all(request.headers.get("Authorization") == f"Bearer {READ}" for request in data)
        assert all(request.answer[0] < 400 for request in data)


def test_a_user_and_a_password_in_the_url(writer, place, open_session, bare, monkeypatch):
    """Basic authentication: of fdl's own requests and of DuckDB's; the location that is kept has neither."""
    monkeypatch.delenv("FDL_TOKEN")
    expected = "Basic " + base64.b64encode(b"aiko:hu:sh").decode()
    with wire.Static(place.folder.path) as files, wire.Proxy(files.url) as proxy:
        session = open_session()
        location = proxy.url.replace("http://", "http://aiko:hu%3Ash@")
        attached = session.fdl("attach", location, alias="p")
        assert "hu" not in json.dumps(attached)
        assert session.value("SELECT count(*) FROM p.t") == 10
        session.checkout(location, path="other.sqlite")
        sent = [{name.lower(): value for name, value in request.headers.items()}.get("authorization") for request in proxy.requests]
        assert sent and set(sent) == {expected}
        assert files_with("hu%3Ash", bare) == files_with(expected, bare) == []
