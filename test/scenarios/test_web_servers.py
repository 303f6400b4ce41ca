"""Repositories behind real web servers: nginx by the configurations of docs/hosting.md, and a server of Python that knows ranges."""

import re

import pytest

import nginx
import tls
import wire
from session import connect, rows
from story import call, same_rows

WRITE = "hush-write-token"


@pytest.fixture
def lake(open_session, bare):
    """A folder with two versions on main, the tag v1 at the first, and a branch with one more."""
    session = open_session()
    folder = bare / "srv" / "lake"
    session.fdl("init", str(folder))
    session.checkout(str(folder))
    session("CREATE TABLE lake.town AS SELECT 'town ' || range AS name, range AS people FROM range(5000)")
    session.publish("one", tag="v1")
    session("DELETE FROM lake.town WHERE people % 3 = 0")
    session.publish("two")
    session.fdl("branch", str(folder), name="team/mine")
    session.checkout(str(folder), alias="mine", ref="team/mine")
    session("CREATE TABLE mine.own AS SELECT 1 AS a")
    session.publish("mine", lake="mine")
    return folder


def read_everything(session, url, folder, setup="SELECT 1"):
    """All that reading is, behind a server that lists nothing; the folder says what must be seen. `setup` is what DuckDB needs."""
    where = str(folder)
    for ref in (None, "main", "v1", "team/mine", "main~1"):
        alias = re.sub(r"\W", "_", f"at_{ref}")
        here = session.fdl("attach", where, alias=f"{alias}_here", ref=ref)
        for cache in ("auto", "never") if ref == "main" else ("auto",):
            there = session.fdl("attach", url, alias=f"{alias}_{cache}", ref=ref, cache=cache)
            assert (there["version"], there["ref"]) == (here["version"], here["ref"])
            assert same_rows(session, f"{alias}_here.town", f"{alias}_{cache}.town") is None
    for function in ("refs", "log", "tables", "files"):
        assert session.table(function, url) == session.table(function, where), function
    (last,) = session.table("log", url, max_count=1)
    assert last["message"] == "two"
    plain = connect(load=False)
    plain.execute(f"LOAD ducklake; LOAD httpfs; {setup}")
    plain.execute(session.fdl("url", url, ref="v1")["attach_sql"])
    assert rows(plain, f'SELECT count(*) AS n FROM "{session.fdl("url", url, ref="v1")["attach_sql"].split(chr(34))[1]}".town') == [{"n": 5000}]
    plain.close()
    session.checkout(url, alias="working", ref="main")
    assert same_rows(session, "working.town", "at_main_here.town") is None
    differ = session(f"SELECT name, change FROM fdl_diff('{url}', from_ref := 'v1', to_ref := 'main')")
    assert differ == [{"name": "town", "change": "rows"}]


def refuse_writing(session, url, code):
    session("INSERT INTO working.town VALUES ('new', 1)")
    session.refused(call("push", "working", message="x"), code)
    session.refused(call("branch", url, name="new"), code)
    for function in ("fsck", "gc"):
        message = session.refused(call(function, url), "FDL-STORE")
        assert "list" in message and "HTTP" in message, message
    session.refused(call("expire", url, keep_last=1), "FDL-STORE")


def static(folder, port):
    text, _ = nginx.configurations()
    return nginx.changed(text, ("listen 80;", f"listen 127.0.0.1:{port};"), ("root /srv/lake;", f"root {folder};"))


def test_nginx_serves_a_folder(lake, open_session, tmp_path, monkeypatch):
    port = nginx.free_port()
    with nginx.Nginx(tmp_path / "nginx", port, static(lake, port)) as server:
        session = open_session()
        read_everything(session, server.url, lake)
        assert {method for method, _, _ in server.requests()} <= {"GET", "HEAD"}
        assert {status for _, _, status in server.requests()} <= {200, 206, 404}, server.requests()
        refuse_writing(session, server.url, "FDL-PERMISSION")
        # What is kept by caches and what is not; what pages of other origins see.
        version = (lake / "refs" / "heads" / "main").read_text().strip()
        kept = {path: wire.ask(f"{server.url}/{path}")[1] for path in
                ("HEAD", "refs.json", "refs/heads/main", "fdl.json", f"versions/{version}/version.json")}
        assert [headers["Cache-Control"] for headers in kept.values()] == ["no-store"] * 4 + ["public, max-age=31536000, immutable"]
        assert {headers["Access-Control-Allow-Origin"] for headers in kept.values()} == {"*"}
        status, headers, _ = wire.ask(f"{server.url}/versions/{version}/expired.json")
        assert (status, headers["Cache-Control"], headers["Access-Control-Allow-Origin"]) == (404, None, "*")
        assert wire.ask(f"{server.url}/HEAD", "OPTIONS")[0] == 204
        for method in ("PUT", "DELETE", "POST"):
            assert wire.ask(f"{server.url}/refs/heads/main", method, b"x")[0] == 403
        assert wire.ask(f"{server.url}/refs/heads/")[0] == 404, "nothing is listed"


def test_a_server_that_knows_get_alone(lake, open_session):
    with GetAlone(lake) as server:
        session = open_session()
        read_everything(session, server.url, lake)
        assert {request.method for request in server.requests if request.answer[0] != 405} == {"GET"}
        refuse_writing(session, server.url, "FDL-STORE")


class GetAlone(wire.Static):
    """Answers every other method with 405."""

    def __init__(self, folder):
        self.folder = folder
        wire.Server.__init__(self, Plainest)


# Answering 405 is what a server does that has never heard of a method.
class Plainest(wire.Plain):
    def do_HEAD(self):
        self.reply(self.keep(), 405, [("Allow", "GET")], b"")

    do_PUT = do_POST = do_DELETE = do_HEAD


def test_fdl_serve_behind_nginx_with_tls(lake, open_session, host, tmp_path, monkeypatch):
    served, port, (ca, pem, key) = host.serve(lake, write_token=WRITE), nginx.free_port(), tls.certificates(tmp_path)
    _, text = nginx.configurations()
    text = nginx.changed(text, ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"), ("http://127.0.0.1:8080/", f"{served}/"),
                         ("/etc/ssl/data.example.org.pem", str(pem)), ("/etc/ssl/private/data.example.org.key", str(key)))
    # Whoever has a certificate of their own says so: to fdl by this variable, to DuckDB by a setting.
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    with nginx.Nginx(tmp_path / "nginx", port, text) as server:
        url = f"https://127.0.0.1:{port}/towns"
        session = open_session()
        setup = f"LOAD httpfs; SET GLOBAL ca_cert_file = '{ca}'"
        session(setup)
        read_everything(session, url, lake, setup)
        # More than nginx takes when it is not told to.
        session("CREATE TABLE working.large AS SELECT random() AS a, random() AS b FROM range(200000)")
        session.refused(call("push", "working", message="large"), "FDL-PERMISSION")
        pushed = session.fdl("push", "working", token=WRITE)
        assert pushed["outcome"] == "pushed" and pushed["bytes_uploaded"] > 2_000_000, pushed
        (large,) = [path for method, path, status in server.requests() if method == "PUT" and "/data/main/large/" in path and status == 201]
        assert large.startswith("/towns/data/")
        session.fdl("attach", str(lake), alias="pushed")
        assert same_rows(session, "pushed.large", "working.large") is None
        session.fdl("attach", url, alias="far")
        assert same_rows(session, "far.large", "pushed.large") is None
        assert session.table("fsck", str(lake), depth="files") == []
    host.stop(served)
