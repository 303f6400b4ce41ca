"""A process that is killed: at any moment the working copy can be told about truly and gone on from, and readers see whole versions."""

import json
import os
import random
import signal as signals
import time
from pathlib import Path

import pytest

from story import call, wait_for

STATE = Path("lake.sqlite.fdl")
START = "from story import *\ns = Session()\n"


@pytest.fixture
def published(open_session, repository):
    """A repository with two versions of 40 tables, and nothing checked out."""
    session = open_session()
    session.checkout(repository.location, alias="first", path="first.sqlite")
    for number in range(20):
        session(f"CREATE TABLE first.t{number} AS SELECT range AS a FROM range(100)")
    session("CREATE TABLE first.n AS SELECT 1 AS n")
    session.publish("one", lake="first", tag="one")
    session("UPDATE first.n SET n = 2")
    session("INSERT INTO first.t0 VALUES (1000)")
    session.publish("two", lake="first")
    session("DETACH first")
    return session


def read_n(session, repository):
    """What a reader of the branch sees, read completely."""
    session.fdl("attach", repository.location, alias="published", ref="main")
    for number in range(20):
        assert session.value(f"SELECT count(*) FROM published.t{number}") >= 100
    return session.value("FROM published.n")


def kill_at(process, moment, seconds=20):
    """Kills the process as soon as `moment()` is true, or after that many seconds; gives whether it was still running."""
    end = time.monotonic() + seconds
    while process.popen.poll() is None and not moment() and time.monotonic() < end:
        time.sleep(0.0005)
    alive = process.popen.poll() is None
    if alive:
        os.kill(process.popen.pid, signals.SIGKILL)
    process.popen.wait()
    return alive


def after(seconds):
    """A moment that comes this long after the first look."""
    began = []

    def moment():
        began.append(time.monotonic()) if not began else None
        return time.monotonic() - began[0] > seconds

    return moment


def exists(path):
    return lambda: Path(path).exists()


def begun_and(then):
    """A moment after the child has said that it begins."""
    return lambda: Path("begin").exists() and then()


# Moments by what can be seen beside the working catalog, then by the clock. Nothing depends on hitting one exactly.
MOMENTS = {
    "scratch": lambda: exists(STATE / "tmp"),
    "catalog in scratch": lambda: (lambda: any(STATE.glob("tmp/*.duckdb")) or any(STATE.glob("tmp/*.sqlite"))),
    "a version kept": lambda: (lambda: len(list(STATE.glob("versions/*/version.json"))) > 1),
    **{f"{milliseconds} ms": (lambda seconds=milliseconds / 1000: after(seconds)) for milliseconds in (2, 10, 25, 50, 80, 120, 180, 260)},
}


def remove(*paths):
    for path in paths:
        Path(path).unlink(missing_ok=True)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_a_checkout(published, open_session, python, repository, moment):
    """Another version is put in the place of a clean one: it is the old or the new, whole."""
    session = open_session()
    session.checkout(repository.location, ref="one")
    session("DETACH lake")
    child = python.start(START + f"s('LOAD ducklake'), s('LOAD sqlite_scanner')\nsignal('begin')\ns.checkout({repository.location!r}, ref='main')\nwait_for('never')")
    assert kill_at(child, begun_and(MOMENTS[moment]()))
    status = session.fdl("status", "lake.sqlite")
    versions = {entry["version"]: entry["message"] for entry in session.table("log", repository.location)}
    reopened = open_session()
    reopened("LOAD ducklake; LOAD sqlite_scanner; ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    n = reopened.value("FROM lake.n")
    assert versions[status["version"]] == {1: "one", 2: "two"}[n]
    assert status["ref"] == {1: "refs/tags/one", 2: "refs/heads/main"}[n]
    assert (status["ahead"], status["uncommitted"]) == (0, False)
    reopened("DETACH lake")
    session.checkout(repository.location)
    assert session.value("FROM lake.n") == 2
    session("UPDATE lake.n SET n = 3")
    session.publish("three")
    assert read_n(session, repository) == 3


def test_killed_in_the_first_checkout(published, open_session, python, repository):
    for moment in MOMENTS.values():
        remove("begin")
        child = python.start(START + f"s('LOAD ducklake'), s('LOAD sqlite_scanner')\nsignal('begin')\ns.checkout({repository.location!r})\nwait_for('never')")
        assert kill_at(child, begun_and(moment()))
        session = open_session()
        if not Path("lake.sqlite").exists():
            session.refused(call("status", "lake.sqlite"), "FDL-NOT-FOUND")
        session.checkout(repository.location)
        assert session.value("FROM lake.n") == 2
        assert session.fdl("status", "lake")["uncommitted"] is False
        session.close()
        remove("lake.sqlite", "lake.sqlite-wal", "lake.sqlite-shm", *[path for path in STATE.rglob("*") if path.is_file()])
        for folder in sorted(STATE.rglob("*"), reverse=True):
            folder.rmdir()
        STATE.rmdir()


COMMIT = START + """
s("LOAD ducklake"), s("LOAD sqlite_scanner")
signal("begin")
s.fdl("commit", "lake.sqlite", message="three")
wait_for("never")
"""


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_a_commit(published, open_session, python, repository, moment):
    """With a table that was rebuilt, so that the working catalog is changed as well; and rows inlined in it."""
    session = open_session()
    session.checkout(repository.location)
    session("DETACH lake; ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    for number in range(5, 10):
        session(f"CREATE OR REPLACE TABLE lake.t{number} AS FROM lake.t{number} ORDER BY a DESC")
    session("UPDATE lake.n SET n = 3; INSERT INTO lake.t1 VALUES (7)")
    session("DETACH lake")
    assert kill_at(python.start(COMMIT), begun_and(MOMENTS[moment]()))
    status = session.fdl("status", "lake.sqlite")
    assert (status["ahead"], status["uncommitted"]) in ((0, True), (1, False)), status
    assert status["remote_version"] == session.table("log", repository.location)[0]["version"]
    assert read_n(session, repository) == 2
    done = session.fdl("commit", "lake.sqlite", message="three")
    assert done["committed"] is (status["ahead"] == 0)
    pushed = session.fdl("push", "lake.sqlite")
    assert (pushed["outcome"], pushed["versions"]) == ("pushed", 1)
    assert pushed["files_uploaded"] in (2, 3), "n and t1, not the five that were rebuilt"
    assert read_n(session, repository) == 3
    assert session.value("SELECT count(*) FROM published.t1") == 101
    assert [entry["message"] for entry in session.table("log", repository.location)] == ["three", "two", "one"]
    assert not list(STATE.glob("tmp/*")) and len(list(STATE.glob("versions/*"))) == 1


PUSH = START + """
s("LOAD ducklake"), s("LOAD sqlite_scanner")
signal("begin")
s.fdl("push", "lake.sqlite")
wait_for("never")
"""


@pytest.mark.everywhere
def test_killed_in_a_push(published, open_session, python, repository):
    """At moments by chance: the branch holds the old version or the new, both whole, and the next push finishes."""
    chance = random.Random(20)
    session, n = open_session(), 2
    session.checkout(repository.location)
    here = repository.kind == "folder"
    turns = 14 if here else 4
    for turn in range(turns):
        session("UPDATE lake.n SET n = n + 1")
        for number in range(2 + turn % 3):
            session(f"INSERT INTO lake.t{number} VALUES ({turn})")
        session.fdl("commit", "lake", message=f"turn {turn}")
        remove("begin")
        folders = set(repository.keys("versions/"))
        grown = [lambda: False, lambda: len(repository.keys("versions/")) > len(folders), lambda: len(repository.keys("versions/")) > len(folders) + 2]
        late, seen = after(chance.uniform(0, 0.08 if here else 0.5)), grown[turn % 3]
        assert kill_at(python.start(PUSH), begun_and(lambda: seen() or late()))
        reader = open_session()
        now = read_n(reader, repository)
        assert now in (n, n + 1)
        status = session.fdl("status", "lake")
        head = session.table("log", repository.location)[0]["version"]
        assert (status["remote_version"], status["ahead"], status["behind"]) == (head, n + 1 - now, 0)
        pushed = session.fdl("push", "lake")
        assert pushed["outcome"] in (("pushed", "up to date") if now > n else ("pushed",)), pushed
        n += 1
        assert read_n(reader, repository) == n
        reader.close()
        refs = json.loads(repository.text("refs.json"))["refs"]
        assert refs["refs/heads/main"] == pushed["new_version"] == repository.text("refs/heads/main").strip()
    entries = session.table("log", repository.location)
    assert len(entries) == turns + 2
    assert [entry["parent"] for entry in entries] == [*(entry["version"] for entry in entries[1:]), None]
    assert [key for key in repository.keys() if key.endswith(".tmp") or "#" in key] == []


def test_left_overs_of_a_stopped_call(published, open_session, repository):
    session = open_session()
    session.checkout(repository.location)
    session("UPDATE lake.n SET n = 3")
    (STATE / "tmp" / "deep").mkdir(parents=True)
    (STATE / "tmp" / "ducklake.duckdb").write_bytes(b"half a catalog")
    (STATE / "tmp" / "working.sqlite").write_bytes(b"")
    (STATE / "lock").write_text("held by a process that is gone")  # a lock is the system's, not a file's being there
    stray = STATE / "versions" / "01a22998-81f5-762d-bc15-b7b8f172723f"
    stray.mkdir(parents=True)
    assert session.fdl("status", "lake")["uncommitted"] is True
    session.publish("three")
    assert read_n(session, repository) == 3
    assert not stray.exists() and not list(STATE.glob("tmp/*"))


def test_two_processes_on_one_working_copy(published, open_session, python, repository):
    """Whoever comes second is told so or waits; neither damages what the other does."""
    session = open_session()
    session.checkout(repository.location)
    session("DETACH lake")
    racer = START + """
told = []
for turn in range(6):
    try:
        s(f"INSERT INTO lake.t{turn} VALUES (2000 + {who})")
        s.fdl("push", "lake", message=f"{who} {turn}")
    except Exception as error:
        told.append(str(error))
say({"told": told})
"""
    attach = "s('LOAD ducklake'), s('LOAD sqlite_scanner'), s('''" + session.fdl("checkout", repository.location, alias="lake")["attach_sql"] + "''')\n"
    session("DETACH lake")
    ends = [process.wait() for process in [python.start(racer.replace("told = []", f"who = {who}\n{attach}told = []")) for who in (1, 2)]]
    for end in ends:
        assert end.rc == 0, end
        for message in end.results[0]["told"]:
            assert "[FDL-IN-TRANSACTION]" in message or "Conflict" in message or "locked" in message, message
            assert "Hint: " in message or "fdl" not in message, message
    status = session.fdl("status", "lake.sqlite")
    pushed = session.fdl("push", "lake.sqlite", message="what is left")
    assert pushed["outcome"] in ("pushed", "up to date"), (status, pushed)
    entries = session.table("log", repository.location)
    assert [entry["parent"] for entry in entries] == [*(entry["version"] for entry in entries[1:]), None]
    assert session.fdl("status", "lake.sqlite")["uncommitted"] is False
    session.checkout(repository.location, path="again.sqlite", alias="again")
    session("ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    for number in range(6):
        rows = [session.column(f"FROM {lake}.t{number} ORDER BY a") for lake in ("lake", "again")]
        assert rows[0] == rows[1] and len(rows[0]) <= 103
    assert read_n(session, repository) == 2


def test_the_second_call_on_a_working_copy_gets_a_clear_error(published, open_session, python, repository):
    """A commit that takes long holds the working copy; status answers all the same, commit and checkout say who is in the way."""
    session = open_session()
    session.checkout(repository.location)
    session("UPDATE lake.n SET n = 3")
    session("CREATE TABLE lake.big AS SELECT range AS a, hash(range) AS h FROM range(3000000)")
    session.publish("big")
    session("CREATE OR REPLACE TABLE lake.big AS FROM lake.big ORDER BY h")
    session("DETACH lake")
    process = python.start(COMMIT.replace("wait_for('never')", "say({'done': True})").replace('wait_for("never")', "say({'done': True})"))
    messages = []
    while process.popen.poll() is None:
        if exists(STATE / "tmp")():
            try:
                session.fdl("commit", "lake.sqlite", message="me too")
            except Exception as error:
                messages.append(str(error))
        time.sleep(0.02)
    assert process.wait().rc == 0
    assert messages and all("[FDL-IN-TRANSACTION]" in message and "Hint: " in message for message in messages), messages
    assert session.fdl("commit", "lake.sqlite", message="now")["committed"] is False
    assert [entry["message"] for entry in session.table("log", "lake.sqlite")] == ["big", "two", "one"]


def test_a_repository_folder_that_is_moved_away_and_back(published, open_session, repository):
    if not hasattr(repository, "path"):
        pytest.skip("only a folder can be moved")
    session = open_session()
    session.checkout(repository.location)
    session("UPDATE lake.n SET n = 3")
    session.fdl("commit", "lake", message="three")
    away = repository.path.with_name("away")
    repository.path.rename(away)
    for function in ("push", "status", "log"):
        message = session.refused(call(function, "lake"), "FDL-NOT-A-REPOSITORY")
        assert repository.location in message
    assert not repository.path.exists(), "a push never starts a repository"
    away.rename(repository.path)
    status = session.fdl("status", "lake")
    assert (status["ahead"], status["uncommitted"]) == (1, False)
    session.fdl("push", "lake")
    assert read_n(session, repository) == 3


def test_killed_while_writing_plainly(published, open_session, python, repository):
    """A process without fdl is killed in a transaction, and leaves a journal that SQLite has to roll back first."""
    session = open_session()
    session.checkout(repository.location)
    session("UPDATE lake.n SET n = 3")
    session("DETACH lake")
    writer = python.start("""
from story import *
s = Session()
s("LOAD sqlite_scanner")
s("ATTACH 'lake.sqlite' AS w (TYPE sqlite, JOURNAL_MODE 'DELETE')")
s("BEGIN")
s("CREATE TABLE w.junk AS SELECT repeat('x', 4000) || range AS a FROM range(3000)")
s("INSERT INTO w.junk SELECT repeat('y', 4000) || range FROM range(3000)")
signal("spilled")
wait_for("never")
""")
    wait_for("spilled")
    writer.kill()
    assert Path("lake.sqlite-journal").exists()
    assert session.fdl("status", "lake.sqlite")["uncommitted"] is True
    session.refused(call("checkout", repository.location, alias="lake"), "FDL-DIRTY")
    session.publish("three", lake="lake.sqlite")
    assert read_n(session, repository) == 3


@pytest.mark.parametrize("suffix", ["-journal", "-wal"])
def test_a_journal_without_its_catalog_is_not_played_into_a_new_one(published, open_session, python, repository, suffix):
    """Somebody removed the catalog of a killed process, and not what SQLite keeps beside it."""
    session = open_session()
    session.checkout(repository.location)
    for number in range(30):
        session(f"CREATE TABLE lake.other{number} (a INTEGER, b INTEGER)")
    session("DETACH lake")
    mode = {"-journal": "DELETE", "-wal": "WAL"}[suffix]
    writer = python.start(f"""
from story import *
s = Session()
s("LOAD sqlite_scanner")
s("ATTACH 'lake.sqlite' AS w (TYPE sqlite, JOURNAL_MODE '{mode}')")
s("BEGIN")
for table in ("column", "table", "snapshot_changes"):
    s(f"CREATE TABLE w.saved_{{table}} AS FROM w.ducklake_{{table}}")
s("UPDATE w.ducklake_column SET column_name = column_name || 'x'")
s("UPDATE w.ducklake_metadata SET value = value || 'x'")
s("CREATE TABLE w.junk AS SELECT repeat('x', 4000) || range AS a FROM range(3000)")
s("INSERT INTO w.junk SELECT repeat('y', 4000) || range FROM range(3000)")
signal("spilled")
wait_for("never")
""")
    wait_for("spilled")
    writer.kill()
    assert Path("lake.sqlite" + suffix).exists()
    remove("lake.sqlite")
    session.checkout(repository.location)
    assert session.value("FROM lake.n") == 2
    assert session.fdl("status", "lake")["uncommitted"] is False
    session("UPDATE lake.n SET n = 3")
    session.publish("three")
    assert read_n(session, repository) == 3
