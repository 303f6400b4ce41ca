"""A session commits while others write to the same working catalog: a version is one moment, and nobody's rows are lost."""

import time

import pytest

from story import call, quoted

WRITER = """
from story import *
s = Session()
s("LOAD ducklake"), s("LOAD sqlite_scanner")
s({attach!r})
signal("writing")
done, at = 0, time.monotonic()
while done < {rounds} and time.monotonic() - at < 60:
    try:
        s("BEGIN")
        s(f"INSERT INTO lake.a VALUES ({{done}})")
        s(f"INSERT INTO lake.b VALUES ({{done}}, 'pair')")
        s("COMMIT")
        done += 1
    except Exception as error:  # somebody else was first; DuckLake says so, and the transaction is gone
        text = str(error)
        assert "onflict" in text or "locked" in text or "retry" in text.lower(), text
        try:
            s("ROLLBACK")
        except Exception:
            pass
    time.sleep(0.02)
say({{"done": done}})
"""


@pytest.fixture
def lake(open_session, repository):
    session = open_session()
    session.attach_sql = session.checkout(repository.location)["attach_sql"]
    session("CREATE TABLE lake.a (n INTEGER); CREATE TABLE lake.b (n INTEGER, t VARCHAR)")
    session("CREATE TABLE lake.still AS SELECT range AS a FROM range(100)")
    session.publish("first")
    return session


def test_commits_while_another_process_writes(lake, python, repository, in_another_process_nothing_differs):
    """Every version holds both rows of a pair or none, and a table that is rebuilt meanwhile keeps its file."""
    (still,) = [row["path"] for row in lake.table("files", repository.location) if row["name"] == "still"]
    rounds = 40
    writer = python.start(WRITER.format(attach=lake.attach_sql, rounds=rounds))
    pushed, refused = [], []
    while writer.popen.poll() is None:
        try:
            lake("CREATE OR REPLACE TABLE lake.still AS FROM lake.still ORDER BY a DESC")
        except Exception as error:
            assert "onflict" in str(error) or "locked" in str(error), error
        try:
            pushed.append(lake.fdl("push", "lake", message="meanwhile")["new_version"])
        except Exception as error:
            assert "[FDL-IN-TRANSACTION]" in str(error), error
            refused.append(str(error))
        time.sleep(0.05)
    ended = writer.wait()
    assert ended.rc == 0 and ended.results == [{"done": rounds}], ended
    lake.fdl("push", "lake", message="last")
    entries = lake.table("log", repository.location)
    assert len(entries) > 2 and len(set(pushed)) > 1, (pushed, refused)
    counts = []
    for entry in reversed(entries):
        lake.fdl("attach", repository.location, ref=entry["version"], alias="published")
        a, b = (sorted(lake.column(f"SELECT n FROM published.{table}")) for table in "ab")
        assert a == b == list(range(len(a)))
        counts.append(len(a))
        assert [row["path"] for row in lake.table("files", repository.location, ref=entry["version"]) if row["name"] == "still"] == [still]
    assert counts == sorted(counts) and counts[-1] == rounds
    lake("DETACH published")
    in_another_process_nothing_differs(lake.attach_sql)


def test_a_commit_does_not_wait_for_ever_for_a_transaction(lake, open_session, repository):
    """Open in another session or this one, reading or writing: refused soon, told why, and neither is harmed."""
    other = open_session()
    other("LOAD ducklake; LOAD sqlite_scanner")
    other(lake.attach_sql)
    versions = repository.keys("versions/")
    for begun in ("INSERT INTO lake.a VALUES (1)", "SELECT count(*) FROM lake.a", "CREATE TABLE lake.new (a INTEGER)"):
        other("BEGIN"), other(begun)
        for function, named in (("commit", {"message": "x"}), ("push", {"message": "x"})):
            began = time.monotonic()
            lake.refused(call(function, "lake", **named), "FDL-IN-TRANSACTION")
            assert time.monotonic() - began < 10
        lake.refused(call("checkout", repository.location, alias="lake", force=True), "FDL-IN-TRANSACTION")
        other("COMMIT")
    assert repository.keys("versions/") == versions
    assert lake.value("SELECT count(*) FROM lake.a") == 1
    lake.publish("now")
    # In the session itself.
    lake("BEGIN"), lake("INSERT INTO lake.a VALUES (2)")
    lake.refused(call("push", "lake", message="x"), "FDL-IN-TRANSACTION")
    lake("ROLLBACK")
    assert lake.value("SELECT count(*) FROM lake.a") == 1
    assert lake.fdl("status", "lake")["uncommitted"] is False


def test_two_working_copies_of_one_session(lake, open_session, repository):
    """Two branches side by side; what one has committed can be copied into the other by SQL."""
    lake.fdl("branch", repository.location, name="dev")
    lake.checkout(repository.location, ref="dev", alias="dev", path="dev.sqlite")
    lake("INSERT INTO dev.a VALUES (10)")
    lake("INSERT INTO lake.a VALUES (20)")
    lake.publish("on dev", lake="dev")
    lake.publish("on main")
    lake("INSERT INTO lake.a FROM dev.a")
    lake.publish("both")
    reader = open_session()
    for ref, rows in (("dev", [10]), ("main", [10, 20]), ("main~1", [20])):
        reader.fdl("attach", repository.location, ref=ref, alias="p")
        assert reader.column("FROM p.a ORDER BY n") == rows
    assert lake(f"SELECT count(*) AS n FROM fdl_log({quoted(repository.location)}, ref := 'dev')") == [{"n": 2}]
