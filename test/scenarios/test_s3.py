"""Repositories in S3: whose credentials are used, what DuckDB is told, what is sent, and what must never be shown."""

import os
import re
from pathlib import Path

import pytest

import places
import session as plain
import story
import wire
from story import call, quoted

KEY, SECRET, TOKEN = "AKHUSHKEY0123456789", "hush/secret+key=", "hush-session-token"


@pytest.fixture
def bucket(new_place, monkeypatch):
    """An empty place in S3 of which the environment says nothing."""
    place = new_place("s3")
    for name in place.variables:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return place


@pytest.fixture
def proxy(bucket):
    with wire.Proxy(bucket.endpoint) as server:
        yield server


def secrets(session):
    return session("SELECT name, type, persistent, storage, scope, secret_string FROM duckdb_secrets() ORDER BY name")


def signed_by(proxy):
    """The access keys that signed the requests, None for requests that nobody signed."""
    keys = set()
    for request in proxy.requests:
        found = re.search(r"Credential=([^/]+)/", request.headers.get("Authorization") or request.headers.get("authorization") or "")
        keys.add(found[1] if found else None)
    return keys


def main_job(session, location):
    """Everything from nothing to two versions that are read, in one session."""
    session.fdl("init", location)
    session.checkout(location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(100)")
    session.publish("one", tag="v1")
    session("DELETE FROM lake.t WHERE a >= 50")
    session.publish("two")
    session.fdl("attach", location, alias="now")
    session.fdl("attach", location, alias="v1", ref="v1", cache="never")
    assert session.one("SELECT (SELECT count(*) FROM lake.t) AS lake, (SELECT count(*) FROM now.t) AS now, "
                       "(SELECT count(*) FROM v1.t) AS v1") == {"lake": 50, "now": 50, "v1": 100}
    assert [entry["message"] for entry in session.table("log", location)] == ["two", "one"]


def from_secret(bucket, proxy, monkeypatch):
    return bucket.secret(endpoint=proxy.url, key=KEY, secret=SECRET)


def from_environment(bucket, proxy, monkeypatch):
    for name, value in {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN, "AWS_REGION": "us-east-1",
                        "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)


def from_files(bucket, proxy, monkeypatch):
    folder = Path(os.environ["HOME"]) / ".aws"
    folder.mkdir()
    (folder / "config").write_text(f"[default]\nregion = nowhere-1\n\n[profile lab]\nregion = us-east-1\nendpoint_url = {proxy.url}\n")
    (folder / "credentials").write_text("[default]\naws_access_key_id = WRONG\naws_secret_access_key = wrong\n\n"
                                        f"[lab]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")


@pytest.mark.parametrize("given", [from_secret, from_environment, from_files], ids=["secret", "environment", "files"])
def test_credentials(bucket, proxy, open_session, monkeypatch, bare, given):
    """With nothing but the credentials set, the main job works, DuckDB's own reads and writes included; nobody else signs."""
    setup = given(bucket, proxy, monkeypatch)
    session = open_session(allow_unredacted_secrets=True) if setup else open_session()
    if setup:
        session(setup)
        before = secrets(session)
    main_job(session, bucket.location)
    assert signed_by(proxy) == {KEY}
    if setup:
        assert secrets(session) == before
    else:
        (made,) = secrets(session)
        assert (made["type"], made["persistent"], made["storage"]) == ("s3", False, "memory")
        assert made["scope"] == [bucket.location + "/"]
        tokens = {request.headers.get("x-amz-security-token") for request in proxy.requests}
        assert tokens == ({TOKEN} if given is from_environment else {None})
    require_hidden(bare, session, proxy)


def require_hidden(bare, session, proxy=None):
    """The secret key is in no file of the working directory, the home or the repository, and in no request."""
    for folder in (bare, Path(os.environ["HOME"])):
        for file in folder.rglob("*"):
            if file.is_file() and file.parent.name != ".aws":
                content = file.read_bytes()
                for secret in (SECRET, TOKEN, KEY):
                    assert secret.encode() not in content, file
    for row in secrets(session):
        assert SECRET not in str(row) and TOKEN not in str(row), row
    for request in proxy.requests if proxy else ():
        assert SECRET not in str(request.headers) and SECRET.encode() not in request.body, request


def test_the_secret_of_one_repository_is_not_used_for_another(new_place, open_session, monkeypatch):
    """Each has a secret with a scope of its own, a prefix that begins like the other's included."""
    one = new_place("s3")
    session = open_session()
    for location in (one.location, one.location + "-2"):
        session.fdl("init", location)
        session.checkout(location, alias=f"lake{len(location)}", path=f"{len(location)}.sqlite")
    scopes = [row["scope"] for row in secrets(session)]
    assert sorted(scopes) == sorted([[one.location + "/"], [one.location + "-2/"]])


def test_a_secret_that_may_not_be_read(bucket, proxy, open_session):
    """DuckDB hides its secrets unless it was started otherwise. fdl says so, and does not put one of its own before the user's."""
    session = open_session()
    session(bucket.secret(endpoint=proxy.url, key=KEY, secret=SECRET))
    before = secrets(session)
    message = session.refused(call("init", bucket.location), "FDL-PERMISSION")
    assert "allow_unredacted_secrets" in message, message
    assert secrets(session) == before and proxy.requests == []


def test_messages_show_no_secret(bucket, proxy, open_session, monkeypatch, bare):
    from_environment(bucket, proxy, monkeypatch)
    session = open_session()
    session.fdl("init", bucket.location)
    session.checkout(bucket.location)
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    session.fdl("commit", "lake", message="one")

    def denied(request):
        # A service may give back what it was sent.
        shown = " ".join(request.headers.values()).replace("<", "").replace("&", "")
        body = f"<Error><Code>AccessDenied</Code><Message>Not for you: {shown} {SECRET} {TOKEN}</Message></Error>"
        return 403, [("Content-Type", "application/xml")], body.encode()

    proxy.meddle = denied
    messages = [session.refused(sql, "FDL-PERMISSION") for sql in (
        call("push", "lake"), call("attach", bucket.location), call("log", bucket.location), call("tag", bucket.location, name="x"))]
    for message in messages:
        assert SECRET not in message and TOKEN not in message and "Signature=" not in message, message
    proxy.meddle = None
    session.publish("one")
    require_hidden(bare, session, proxy)


@pytest.mark.parametrize("setting, value", [("AWS_SECRET_ACCESS_KEY", ""), ("AWS_PROFILE", "nobody"), ("AWS_ENDPOINT_URL", "ftp://x")])
def test_settings_that_make_no_sense(bucket, proxy, open_session, monkeypatch, setting, value):
    from_environment(bucket, proxy, monkeypatch)
    if setting == "AWS_PROFILE":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv(setting, value)
    session = open_session()
    with pytest.raises(Exception) as refused:
        session.fdl("init", bucket.location)
    message = str(refused.value)
    assert "[FDL-" in message and "Hint: " in message and SECRET not in message, message
    assert (setting if setting != "AWS_ENDPOINT_URL" else "ftp://x") in message
    assert proxy.requests == []


def test_no_such_bucket(bucket, proxy, open_session, monkeypatch):
    from_environment(bucket, proxy, monkeypatch)
    message = open_session().refused(call("init", "s3://there-is-none-of-this-name/lake"), "FDL-STORE")
    assert "bucket" in message


@pytest.fixture
def published(bucket, open_session, monkeypatch):
    """A repository of one version with three tables. Gives the place; the environment knows moto itself."""
    for name, value in bucket.variables.items():
        monkeypatch.setenv(name, value)
    session = open_session()
    session.fdl("init", bucket.location)
    session.checkout(bucket.location)
    for number in range(3):
        session(f"CREATE TABLE lake.t{number} AS SELECT range AS a FROM range(10)")
    session.publish("one")
    session.close()
    return bucket


def test_a_reader_of_a_branch_lists_nothing_and_waits_twice(published, open_session, monkeypatch):
    with wire.Proxy(published.endpoint, delay=0.25) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        session = open_session()
        session.fdl("attach", published.location, ref="main", alias="p")
        asked = list(proxy.requests)
        assert {request.method for request in asked} <= {"GET", "HEAD"}
        assert not [request for request in asked if "list-type" in request.path or "prefix=" in request.path], asked
        catalogs = [request for request in asked if request.path.endswith("/ducklake.duckdb") and request.method == "GET"]
        assert [proxy.depth(request) for request in catalogs] == [2], asked
        assert max(proxy.depth(request) for request in asked) == 2, asked
        assert len(asked) <= 8, asked
        assert session.value("SELECT count(*) FROM p.t0") == 10
        # Once more, and the catalog is still there.
        del proxy.requests[:]
        session.fdl("attach", published.location, ref="main", alias="p")
        assert len(proxy.requests) <= 8


def test_a_push_waits_four_times_until_the_branch_has_moved(published, open_session, monkeypatch):
    with wire.Proxy(published.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        session = open_session()
        session.checkout(published.location)
        # The first push by an address tries whether the service keeps conditions: one round more, once a day.
        session("INSERT INTO lake.t0 VALUES (10)")
        session.publish("two")
        assert [request.answer[0] for request in proxy.took("PUT", "/HEAD")] == [412, 412]
        session("INSERT INTO lake.t0 VALUES (11)")
        session.fdl("commit", "lake", message="three")
        del proxy.requests[:]
        proxy.delay = 0.25
        assert session.fdl("push", "lake")["outcome"] == "pushed"
        (moved,) = proxy.took("PUT", "/refs/heads/main")
        assert "If-Match" in {name.title() for name in moved.headers}
        assert not proxy.took("PUT", "/HEAD")
        assert not [request for request in proxy.took("GET", "list-type") if request.began < moved.began]
        assert proxy.depth(moved) <= 5, "\n".join(f"{proxy.depth(request)} {request}" for request in proxy.requests)


def test_keys_that_are_not_there_answer_403(published, open_session, monkeypatch):
    """As S3 does where the reader may not list."""
    def after(request, status):
        if status == 404:
            return 403, [("Content-Type", "application/xml")], b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    with wire.Proxy(published.endpoint, after=after) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        session = open_session()
        session.fdl("attach", published.location, ref="main", alias="p")
        assert session.value("SELECT count(*) FROM p.t0") == 10
        assert len(session.table("log", published.location)) == 1
        assert [request for request in proxy.requests if request.answer[0] == 403]


CONDITIONS = ["If-None-Match", "If-Match"]


@pytest.fixture(params=[CONDITIONS[:1], CONDITIONS[1:], CONDITIONS], ids=["If-None-Match", "If-Match", "both"])
def careless(request, bucket, monkeypatch):
    """A bucket whose service ignores these conditions of a write. `careless.ignored` are their names."""
    def meddle(asked):
        if asked.method == "PUT":
            for name in [name for name in asked.headers if name.title() in request.param]:
                del asked.headers[name]

    with wire.Proxy(bucket.endpoint, meddle=meddle) as proxy:
        from_environment(bucket, proxy, monkeypatch)
        bucket.ignored, bucket.proxy = request.param, proxy
        yield bucket


def require_named(message, ignored):
    """It is said which condition the service ignores, and of no other."""
    assert f"ignores the condition {' and '.join(ignored)} of a write" in message, message
    assert "Hint: use a store with If-Match and If-None-Match" in message, message


def test_a_store_that_ignores_conditions_is_refused(careless, open_session):
    """By fdl_init, which leaves nothing behind."""
    message = open_session().refused(call("init", careless.location), "FDL-STORE")
    require_named(message, careless.ignored)
    assert careless.keys() == []


def test_a_repository_that_was_copied_to_a_store_that_ignores_conditions(careless, open_session):
    """fdl_doctor tells, fdl_init refuses, and neither changes or takes away what is there; whoever reads is served."""
    meddle, careless.proxy.meddle = careless.proxy.meddle, None
    session = open_session()
    session.fdl("init", careless.location)
    session.checkout(careless.location)
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    session.publish("one")
    before = {key: careless.read(key) for key in careless.keys()}
    rows = {row["probe"]: row for row in session.table("doctor", careless.location)}
    assert rows["conditional writes"]["ok"] is True
    careless.proxy.meddle = meddle
    rows = {row["probe"]: row for row in session.table("doctor", careless.location)}
    assert [name for name, row in rows.items() if not row["ok"]] == ["conditional writes"]
    require_named(rows["conditional writes"]["detail"], careless.ignored)
    assert "[FDL-STORE]" in rows["conditional writes"]["detail"]
    message = session.refused(call("init", careless.location, id="5f0c8a52-6d3e-4f8e-9b1a-2c7d4e9f0a13", branch="other"), "FDL-STORE")
    require_named(message, careless.ignored)
    assert {key: careless.read(key) for key in careless.keys()} == before
    session.fdl("attach", careless.location, alias="p")
    assert session.value("FROM p.t") == 1


def test_two_writers_in_two_processes_try_again_until_both_have_landed(published, open_session, python):
    writer = """
from story import *
s = Session()
s.checkout({location!r}, path="w{who}.sqlite")
signal("ready{who}")
wait_for("go")
for turn in range(3):
    while True:
        s("INSERT INTO lake.t0 VALUES ({who}00 + " + str(turn) + ")")
        try:
            s.publish(f"{who} {{turn}}")
            break
        except Exception as error:
            if "[FDL-CONFLICT]" not in str(error):
                raise
        s.checkout({location!r}, path="w{who}.sqlite", force=True)
"""
    racers = [python.start(writer.format(who=who, location=published.location)) for who in (1, 2)]
    for who in (1, 2):
        story.wait_for(f"ready{who}")
    story.signal("go")
    for racer in racers:
        result = racer.wait()
        assert result.rc == 0, result
    session = open_session()
    entries = session.table("log", published.location)
    assert sorted(entry["message"] for entry in entries) == sorted(["one", *(f"{who} {turn}" for who in (1, 2) for turn in range(3))])
    assert [entry["parent"] for entry in entries] == [*(entry["version"] for entry in entries[1:]), None]
    session.fdl("attach", published.location, alias="p")
    assert session.column("FROM p.t0 WHERE a >= 100 ORDER BY a") == [100, 101, 102, 200, 201, 202]


def test_a_host_in_front_of_a_bucket(published, open_session, monkeypatch, tmp_path):
    """fdl_serve takes an S3 repository as it takes a folder; whoever writes through it needs no key of S3."""
    host = places.Host()
    try:
        url = host.serve(published.location, write_token="hush-write-token")
        for name in published.variables:
            monkeypatch.delenv(name)
        monkeypatch.setenv("FDL_TOKEN", "hush-write-token")
        session = open_session()
        session.checkout(url, path="through.sqlite")
        session("INSERT INTO lake.t0 VALUES (10)")
        pushed = session.publish("through the host")
        assert pushed["files_uploaded"] == 1
        session.fdl("attach", url, alias="p")
        assert session.value("SELECT count(*) FROM p.t0") == 11
        assert published.text("refs/heads/main").strip() == pushed["new_version"]
    finally:
        host.close()
