"""Copies of repositories from every kind of place to every other: backups and mirrors."""

import json

import pytest

import wire
from session import quoted
from story import call, same_rows


def house(place):
    """Where the repository can be listed: a host's is kept in its folder, by whoever has it."""
    return str(place.folder.path) if place.kind == "http" else place.location


def clone(session, source, target, refs=()):
    chosen = f", refs := [{', '.join(map(quoted, refs))}]" if refs else ""
    return session.one(f"FROM fdl_clone({quoted(source)}, target := {quoted(target)}{chosen})")


def fill(session, location):
    """Two versions on main, a tag at the first, an expired version and a delete file, a branch beside it, a table in another language."""
    session.fdl("init", location)
    session.checkout(location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(100); CREATE SCHEMA lake.\"町\"; CREATE TABLE lake.\"町\".\"人 口\" AS SELECT 1 AS a")
    session.publish("one", tag="v1")
    session("DELETE FROM lake.t WHERE a % 10 = 0")
    gone = session.publish("two")["new_version"]
    session("INSERT INTO lake.t VALUES (1000)")
    session.publish("three")
    session.fdl("branch", location, name="team/side")
    session.checkout(location, alias="side", ref="team/side")
    session("CREATE TABLE side.more AS SELECT 2 AS a")
    session.publish("beside", lake="side")
    return gone


def grow(session, location):
    session.checkout(location, force=True)
    session("INSERT INTO lake.t VALUES (2000), (3000)")
    return session.publish("later")["new_version"]


def check_copy(session, source, target):
    """The copy is the repository: the same id, refs, history, and rows by the same statements, and it is sound."""
    for key in ("fdl.json", "refs.json"):
        assert json.loads(target.text(key)) == json.loads(source.text(key))
    assert target.text("HEAD") == source.text("HEAD")
    for function in ("refs", "log"):
        assert session.table(function, target.location) == session.table(function, source.location), function
    live = [row for row in session.table("log", source.location, ref="team/side") if row["state"] == "live"]
    live += [row for row in session.table("log", source.location) if row["state"] == "live" and row not in live]
    assert len(live) >= 3
    for row in live:
        for function in ("tables", "files"):
            assert session.table(function, target.location, ref=row["version"]) == session.table(function, source.location, ref=row["version"])
        session.fdl("attach", source.location, ref=row["version"], alias="ours")
        session.fdl("attach", target.location, ref=row["version"], alias="theirs")
        for table in session.table("tables", source.location, ref=row["version"]):
            name = ".".join(f'"{table[part]}"' for part in ("schema", "name"))
            assert same_rows(session, f"ours.{name}", f"theirs.{name}") is None
    assert session.table("fsck", house(target), depth="content") == []


PAIRS = [("folder", "s3"), ("s3", "folder"), ("folder", "http"), ("http", "folder"), ("s3", "http")]


@pytest.mark.parametrize("kinds", PAIRS, ids=" to ".join)
def test_a_copy_is_the_repository(new_place, open_session, kinds):
    source, target = (new_place(kind) for kind in kinds)
    session = open_session()
    gone = fill(session, source.location)
    session(f"FROM fdl_expire({quoted(house(source))}, versions := ['{gone}'], dry_run := false)")
    first = clone(session, source.location, target.location)
    assert first["refs"] == ["refs/heads/main", "refs/heads/team/side", "refs/tags/v1"]
    assert first["objects_copied"] >= len(target.keys()) - 1, (first, target.keys())
    check_copy(session, source, target)
    again = clone(session, source.location, target.location)
    assert (again["objects_copied"], again["bytes_copied"]) == (0, 0)
    later = grow(session, source.location)
    update = clone(session, source.location, target.location)
    assert 0 < update["objects_copied"] < first["objects_copied"]
    check_copy(session, source, target)
    assert target.text("refs/heads/main").strip() == later


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_one_branch_or_one_tag(new_place, open_session, kind):
    source, target, tagged = new_place("folder"), new_place(kind), new_place("folder")
    session = open_session()
    fill(session, source.location)
    assert clone(session, source.location, target.location, ["team/side"])["refs"] == ["refs/heads/team/side"]
    assert [row["ref"] for row in session.table("refs", target.location)] == ["refs/heads/team/side"]
    # It is the copy's default branch.
    session.fdl("attach", target.location, alias="p")
    assert session.value("SELECT a FROM p.more") == 2
    assert session.table("fsck", house(target), depth="content") == []
    # And from the copy, wherever it is, one tag into another: no version after it, no file of those.
    clone(session, source.location, target.location)
    assert clone(session, target.location, tagged.location, ["v1"])["refs"] == ["refs/tags/v1"]
    assert [row["message"] for row in session.table("log", tagged.location, ref="v1")] == ["one"]
    assert len(tagged.keys("data/")) == 2 and len({key.split("/")[1] for key in tagged.keys("versions/")}) == 1
    session.fdl("attach", tagged.location, alias="t", ref="v1")
    assert session.value("SELECT count(DISTINCT a) FROM t.t") == 100
    assert session.table("fsck", tagged.location, depth="content") == []
    message = session.refused(f"FROM fdl_clone({quoted(source.location)}, target := 'x', refs := ['nobody'])", "FDL-NOT-FOUND")
    assert "nobody" in message


@pytest.mark.parametrize("kind", ["folder", "s3", "http"])
def test_a_mirror_that_went_its_own_way_is_told_and_left_alone(new_place, open_session, kind):
    source, target = new_place("folder"), new_place(kind)
    session = open_session()
    fill(session, source.location)
    clone(session, source.location, target.location)
    other = open_session()
    other.checkout(target.location, alias="theirs")
    other("INSERT INTO theirs.t VALUES (7000)")
    theirs = other.publish("on the mirror", lake="theirs")["new_version"]
    grow(session, source.location)
    before = {key: target.read(key) for key in target.keys()}
    message = session.refused(f"FROM fdl_clone({quoted(source.location)}, target := {quoted(target.location)})", "FDL-CONFLICT")
    assert "refs/heads/main" in message and theirs in message
    assert {key: target.read(key) for key in target.keys()} == before
    # The other refs can still be brought.
    assert clone(session, source.location, target.location, ["team/side"])["refs"] == ["refs/heads/team/side"]


def test_the_token_is_for_the_source_and_the_environment_for_the_target(new_place, open_session, host, monkeypatch):
    source, target = new_place("folder"), new_place("http")
    session = open_session()
    fill(session, source.location)
    url = host.serve(source.path, read_token="hush-read-token")
    message = open_session().refused(call("clone", url, target=target.location, token="wrong"), "FDL-PERMISSION")
    assert "hush" not in message and "wrong" not in message and target.keys() == [], message
    done = open_session().one(call("clone", url, target=target.location, token="hush-read-token"))
    assert done["note"] is None or "sources/" in done["note"], done
    monkeypatch.setenv("FDL_TOKEN", "not-the-write-token")
    grow(session, source.location)
    message = open_session().refused(call("clone", url, target=target.location, token="hush-read-token"), "FDL-PERMISSION")
    assert "hush" not in message, message
    host.stop(url)
    assert [row["ref"] for row in session.table("refs", target.location)] == ["refs/heads/main", "refs/heads/team/side", "refs/tags/v1"]
    assert session.table("fsck", house(target), depth="content") == []


# What is about to be written when the process dies: anything, a data file, a catalog, a ref, and the last of all.
STOPS = {"s3": ("", "/data/", "ducklake.duckdb", "refs/heads/main", "fdl.json"),
         "http": ("", "fdl.json", "/data/", "ducklake.duckdb", "refs/heads/main")}


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_copy_that_was_killed_goes_on(new_place, open_session, python, monkeypatch, kind):
    source, target = new_place("folder"), new_place(kind)
    session, running = open_session(), []
    fill(session, source.location)
    sent = 0
    for what in STOPS[kind]:
        def stop(request, what=what):
            if request.method == "PUT" and what in request.path:
                running[0].popen.kill()
                return 503, [], b""
            return None

        with wire.Proxy(target.endpoint if kind == "s3" else target.location, meddle=stop) as proxy:
            if kind == "s3":
                monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
            statement = call("clone", source.location, target=target.location if kind == "s3" else proxy.url)
            running[:] = [python.start(f"from story import Session\nSession()({statement!r})")]
            assert running[0].wait().rc == -9, what
            sent += len([request for request in proxy.took("PUT") if request.answer[0] != 503])
        if kind == "s3":
            monkeypatch.setenv("AWS_ENDPOINT_URL", target.endpoint)
        # Nobody reads half of a repository: until the last write there is none. A host has fdl.json first and the default branch late.
        code = "FDL-NOT-A-REPOSITORY" if kind == "s3" or what in ("", "fdl.json") else "FDL-NOT-FOUND"
        open_session().refused(call("attach", target.location, alias="p"), code)
    done = clone(session, source.location, target.location)
    assert sent > 12 and done["objects_copied"] >= 1, (sent, done)
    check_copy(session, source, target)
