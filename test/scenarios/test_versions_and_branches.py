"""Several people on one repository: writers that race, readers meanwhile, branches, tags, and old versions."""

import json
import re

import pytest

from story import call, quoted, signal, wait_for

WRITER = "from story import *\ns = Session()\nlake = s.checkout({location!r}, path={path!r})\n"


def rows_of(session, ref, repository, table="t"):
    """The values of a table's first column in a published version."""
    attached = session.fdl("attach", repository.location, ref=ref, alias="published")
    return sorted(session.column(f"FROM {attached['alias']}.{table}"))


@pytest.fixture
def lake(open_session, repository):
    """A session with a checkout that has published one version, the table t with the row 0."""
    session = open_session()
    session.checkout(repository.location)
    session("CREATE TABLE lake.t AS SELECT 0 AS who")
    session.publish("first")
    return session


def log_of(session, where, **named):
    return session.table("log", where, **named)


def require_one_chain(entries):
    """Newest first, each the parent of the one before, and the last without one."""
    parents = [entry["parent"] for entry in entries]
    assert parents == [entry["version"] for entry in entries[1:]] + [None]


@pytest.mark.everywhere
def test_of_two_writers_one_wins_and_the_other_applies_its_change_again(lake, python, repository):
    first = log_of(lake, repository.location)[0]["version"]
    race = """
s({insert!r})
made = s.fdl("commit", "lake", message={path!r})
signal({path!r} + ".ready")
wait_for("go")
try:
    say({{"mine": made["version"], "pushed": s.fdl("push", "lake")}})
except Exception as error:
    refused = str(error)
    try:  # not by luck: told once more, the same
        s.fdl("push", "lake")
    except Exception as again:
        assert str(again) == refused, (refused, str(again))
    status = s.fdl("status", "lake")
    beside, here = refused.split("Hint: ")[1].split(" publishes your version beside it; then ")
    s(beside.replace("<new branch>", {path!r})), s(here.split(" brings the branch here")[0])
    before = s.column("FROM lake.t ORDER BY who")
    s({insert!r})
    say({{"mine": made["version"], "refused": refused, "status": status, "before": before, "pushed": s.publish({path!r})}})
"""
    racers = []
    for who in (1, 2):
        how = {"location": repository.location, "path": f"w{who}.sqlite", "insert": f"INSERT INTO lake.t VALUES ({who})"}
        racers.append(python.start((WRITER + race).format(**how)))
    for who in (1, 2):
        wait_for(f"w{who}.sqlite.ready")
    signal("go")
    ends = [json.loads(racer.wait().out) for racer in racers]
    (winner,) = [end for end in ends if "refused" not in end]
    (loser,) = [end for end in ends if "refused" in end]
    assert winner["pushed"]["outcome"] == "pushed" and winner["pushed"]["old_version"] == first
    assert "[FDL-CONFLICT]" in loser["refused"]
    for version in (winner["mine"], first):
        assert version in loser["refused"], loser["refused"]
    status = loser["status"]
    assert (status["version"], status["remote_version"], status["ahead"]) == (loser["mine"], winner["mine"], 1)
    assert status["behind"] == 1
    assert loser["before"] == [0, ends.index(winner) + 1]
    entries = log_of(lake, repository.location)
    assert [entry["version"] for entry in entries] == [loser["pushed"]["new_version"], winner["mine"], first]
    require_one_chain(entries)
    assert rows_of(lake, "main", repository) == [0, 1, 2]


def test_many_writers_that_try_again_all_land_in_one_chain(lake, python, repository):
    again = """
tries = 0
while True:
    s("INSERT INTO lake.t VALUES ({who})")
    try:
        s.publish("by {who}", lake="lake")
        break
    except Exception as error:
        if "[FDL-CONFLICT]" not in str(error):
            raise
    tries += 1
    s.checkout({location!r}, path={path!r}, force=True)
say({{"tries": tries}})
"""
    writers = range(1, 6)
    how = {"location": repository.location}
    racers = [python.start((WRITER + again).format(who=who, path=f"w{who}.sqlite", **how)) for who in writers]
    for racer in racers:
        result = racer.wait()
        assert result.rc == 0, result
    entries = log_of(lake, repository.location)
    require_one_chain(entries)
    assert sorted(entry["message"] for entry in entries) == [*(f"by {who}" for who in writers), "first"]
    assert rows_of(lake, "main", repository) == [0, *writers]
    assert json.loads(repository.text("refs.json"))["refs"] == {"refs/heads/main": entries[0]["version"]}
    assert [entry["rows"] for entry in entries] == [6, 5, 4, 3, 2, 1]


@pytest.mark.everywhere
def test_branches_and_tags(lake, open_session, repository):
    where = repository.location
    main = log_of(lake, where)[0]["version"]
    made = lake.fdl("branch", where, name="dev/new", ref="main")
    assert (made["ref"], made["version"]) == ("refs/heads/dev/new", main)
    made = lake.fdl("tag", where, name="v1")
    assert (made["ref"], made["version"]) == ("refs/tags/v1", main)

    other = open_session()
    made = other.checkout(where, ref="dev/new", alias="dev")
    assert (made["ref"], made["version"]) == ("refs/heads/dev/new", main)
    other("INSERT INTO dev.t VALUES (10)")
    pushed = other.publish("on dev", lake="dev", tag="dev-1")
    assert (pushed["ref"], pushed["old_version"]) == ("refs/heads/dev/new", main)
    assert rows_of(lake, "dev/new", repository) == [0, 10]
    assert rows_of(lake, "dev-1", repository) == [0, 10]
    assert rows_of(lake, "main", repository) == [0]

    lake("INSERT INTO lake.t VALUES (20)")
    lake.publish("on main")
    assert rows_of(lake, "main", repository) == [0, 20]
    assert rows_of(lake, "main~1", repository) == rows_of(lake, "v1", repository) == [0]
    assert rows_of(lake, "refs/heads/dev/new", repository) == [0, 10]
    refs = {ref["ref"]: (ref["kind"], ref["name"], ref["is_default"]) for ref in lake.table("refs", where)}
    assert refs == {
        "refs/heads/dev/new": ("branch", "dev/new", False), "refs/heads/main": ("branch", "main", True),
        "refs/tags/dev-1": ("tag", "dev-1", False), "refs/tags/v1": ("tag", "v1", False)}

    assert main in lake.refused(call("tag", where, name="v1", ref="main"), "FDL-EXISTS")
    lake.refused(call("branch", where, name="dev/new", ref="main"), "FDL-EXISTS")
    lake.refused(call("branch", where, name="dev", ref="main"), "FDL-EXISTS")  # the folder of dev/new
    assert lake.fdl("delete_ref", where, ref="refs/heads/dev/new")["version"] == pushed["new_version"]
    assert rows_of(lake, "dev-1", repository) == [0, 10]
    lake.refused(call("attach", where, ref="dev/new"), "FDL-NOT-FOUND")


@pytest.mark.everywhere
def test_a_push_that_cannot_make_its_tag_pushes_nothing(lake, repository):
    lake.fdl("tag", repository.location, name="v1")
    before = log_of(lake, repository.location)[0]["version"]
    lake("INSERT INTO lake.t VALUES (1)")
    lake.refused(call("push", "lake", message="x", tag="v1"), "FDL-EXISTS")
    assert log_of(lake, repository.location)[0]["version"] == before
    assert lake.fdl("status", "lake")["ahead"] == 1
    assert lake.fdl("push", "lake", tag="v2")["versions"] == 1
    assert rows_of(lake, "v2", repository) == [0, 1]


@pytest.mark.everywhere
def test_push_to_a_new_branch(lake, open_session, repository):
    """Work that lost the race goes to a branch beside."""
    where = repository.location
    base = log_of(lake, where)[0]["version"]
    other = open_session()
    other.checkout(where, path="other.sqlite")
    other("INSERT INTO lake.t VALUES (1)")
    other.publish("faster")
    lake("INSERT INTO lake.t VALUES (2)")
    refused = lake.refused(call("push", "lake", message="slower"), "FDL-CONFLICT")
    assert re.search(r"ref := '", refused)
    pushed = lake.fdl("push", "lake", ref="beside")
    assert (pushed["ref"], pushed["old_version"], pushed["outcome"]) == ("refs/heads/beside", None, "pushed")
    assert log_of(lake, where, ref="beside")[0]["parent"] == base
    assert rows_of(lake, "beside", repository) == [0, 2]
    assert rows_of(lake, "main", repository) == [0, 1]
    # From here on the working copy is of that branch.
    assert lake.fdl("status", "lake")["ref"] == "refs/heads/beside"
    lake("INSERT INTO lake.t VALUES (3)")
    assert lake.publish("more")["ref"] == "refs/heads/beside"
    assert rows_of(lake, "beside", repository) == [0, 2, 3]
    # A branch that is elsewhere is not moved by name either.
    lake("INSERT INTO lake.t VALUES (4)")
    lake.refused(call("push", "lake", message="wrong", ref="main"), "FDL-CONFLICT")
    assert rows_of(lake, "main", repository) == [0, 1]


@pytest.mark.everywhere
def test_a_tag_or_a_version_is_checked_out_and_pushed_to_a_branch(lake, open_session, repository):
    where = repository.location
    first = log_of(lake, where)[0]["version"]
    lake.fdl("tag", where, name="v1")
    lake("INSERT INTO lake.t VALUES (1)")
    second = lake.publish("second")["new_version"]
    # Where nothing can be listed, nobody can say what an ID begins with.
    for number, ref in enumerate(("v1", first, first if repository.kind == "http" else first[:13], "main~1")):
        other = open_session()
        made = other.checkout(where, ref=ref, path=f"old{number}.sqlite")
        assert made["version"] == first
        assert made["ref"] == ("refs/tags/v1" if ref == "v1" else None)
        other(f"INSERT INTO lake.t VALUES ({number + 100})")
        message = other.refused(call("push", "lake", message="x"), "FDL-BAD-ARGUMENT")
        assert "ref :=" in message
        other.refused(call("push", "lake", message="x", ref="main"), "FDL-CONFLICT")
        pushed = other.publish("on the old one", ref=f"fix-{number}")
        assert log_of(other, where, ref=f"fix-{number}")[0]["parent"] == first
        assert pushed["files_uploaded"] == 1
        assert rows_of(lake, f"fix-{number}", repository) == [0, number + 100]
    # The version that a branch holds may be checked out by its ID and pushed to it.
    other = open_session()
    other.checkout(where, ref=second, path="new.sqlite")
    other("INSERT INTO lake.t VALUES (2)")
    other.publish("third", ref="main")
    assert rows_of(lake, "main", repository) == [0, 1, 2]


@pytest.mark.everywhere
def test_several_commits_then_one_push(lake, repository):
    where = repository.location
    base = log_of(lake, where)[0]["version"]
    made = []
    for number in (1, 2, 3):
        lake(f"INSERT INTO lake.t VALUES ({number})")
        made.append(lake.fdl("commit", "lake", message=f"number {number}")["version"])
    assert [key for key in repository.keys("versions/") if key.split("/")[1] != base] == []
    entries = log_of(lake, "lake")
    assert [(entry["version"], entry["state"]) for entry in entries] == [
        (made[2], "local"), (made[1], "local"), (made[0], "local"), (base, "live")]
    require_one_chain(entries)
    status = lake.fdl("status", "lake")
    assert (status["ahead"], status["behind"], status["uncommitted"], status["remote_version"]) == (3, 0, False, base)
    pushed = lake.fdl("push", "lake")
    assert (pushed["versions"], pushed["old_version"], pushed["new_version"]) == (3, base, made[2])
    entries = log_of(lake, where)
    assert [entry["version"] for entry in entries] == [*reversed(made), base]
    require_one_chain(entries)
    for number, version in enumerate(made, 1):
        assert rows_of(lake, version, repository) == list(range(number + 1))
    status = lake.fdl("status", "lake")
    assert (status["ahead"], status["behind"], status["remote_version"]) == (0, 0, made[2])
    assert lake.fdl("push", "lake")["outcome"] == "up to date"


@pytest.mark.everywhere
def test_commit_in_one_process_and_push_in_another(python, open_session, repository):
    how = {"location": repository.location, "path": "work.sqlite"}
    commit = "s('CREATE TABLE lake.t AS SELECT 7 AS who')\nsay(s.fdl('commit', 'lake', message='made here', author='A <a@example.org>'))"
    (made,) = python((WRITER + commit).format(**how)).results
    assert made["committed"]
    push = "from story import *\nsay(Session().fdl('push', 'work.sqlite'))"
    (pushed,) = python(push).results
    assert (pushed["new_version"], pushed["outcome"]) == (made["version"], "pushed")
    session = open_session()
    (entry,) = log_of(session, repository.location)
    assert (entry["author"], entry["message"]) == ("A <a@example.org>", "made here")
    assert rows_of(session, "main", repository) == [7]


def test_work_that_is_nowhere_else_is_not_replaced(lake, repository):
    where = repository.location
    lake("INSERT INTO lake.t VALUES (1)")
    lake.refused(call("checkout", where, alias="lake"), "FDL-DIRTY")
    assert lake.column("FROM lake.t ORDER BY who") == [0, 1]
    lake.fdl("commit", "lake", message="kept")
    lake.refused(call("checkout", where, alias="lake"), "FDL-DIRTY")
    assert lake.fdl("status", "lake")["ahead"] == 1
    lake.fdl("push", "lake")
    lake.checkout(where, ref="main~1")
    assert lake.column("FROM lake.t") == [0]
    lake("INSERT INTO lake.t VALUES (2)")
    lake.checkout(where, force=True)
    assert lake.column("FROM lake.t ORDER BY who") == [0, 1]


def test_another_version_under_the_same_alias_while_others_have_it_attached(lake, open_session, python, repository):
    where = repository.location
    lake.fdl("tag", where, name="one")
    lake("ALTER TABLE lake.t ADD COLUMN place VARCHAR DEFAULT 'here'")
    lake("CREATE TABLE lake.u AS SELECT 'u' AS a")
    lake.publish("two")
    attach_sql = lake.checkout(where)["attach_sql"]
    other = open_session()
    other("LOAD ducklake; LOAD sqlite_scanner")
    other(attach_sql)
    assert other("FROM lake.t") == [{"who": 0, "place": "here"}]
    elsewhere = python.start(f"""
from story import *
s = Session()
s("LOAD ducklake"); s("LOAD sqlite_scanner")
s({attach_sql!r})
answers = [s("FROM lake.t")]
signal("attached")
wait_for("replaced")
answers.append(s("FROM lake.t"))
s("INSERT INTO lake.t VALUES (5)")
answers.append(s("FROM lake.t ORDER BY who"))
signal("inserted")
wait_for("back")
answers.append(s("FROM lake.u"))
say(answers)
""")
    wait_for("attached")
    lake.checkout(where, ref="one")
    assert lake("FROM lake.t") == [{"who": 0}]
    assert lake.column("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'") == ["t"]
    assert other("FROM lake.t") == [{"who": 0}]
    signal("replaced")
    wait_for("inserted")
    # What the other process wrote is in the working copy, not in a file that is gone.
    assert lake.column("FROM lake.t ORDER BY who") == [0, 5]
    assert other.column("FROM lake.t ORDER BY who") == [0, 5]
    lake.refused(call("checkout", where, alias="lake"), "FDL-DIRTY")
    lake.checkout(where, ref="main", force=True)
    assert lake("FROM lake.t") == other("FROM lake.t") == [{"who": 0, "place": "here"}]
    signal("back")
    assert elsewhere.wait().rows == [[{"who": 0, "place": "here"}], [{"who": 0}], [{"who": 0}, {"who": 5}], [{"a": "u"}]]


@pytest.mark.everywhere
def test_a_reader_always_sees_a_complete_version_while_others_are_pushed(lake, open_session, python, repository):
    lake("CREATE TABLE lake.n AS SELECT 0 AS n; CREATE TABLE lake.pairs AS SELECT 0 AS a WHERE false")
    lake.publish("ready")
    count = 20 if repository.kind == "folder" else 6
    how = {"location": repository.location, "path": "writer.sqlite", "count": count}
    writer = python.start((WRITER + """
for n in range(1, {count} + 1):
    # Version n says so in one table, has n rows in the second and 10 rows, all n, in the third.
    s(f"UPDATE lake.n SET n = {{n}}")
    s(f"INSERT INTO lake.pairs VALUES ({{n}})")
    s(f"CREATE OR REPLACE TABLE lake.t AS SELECT {{n}} AS who FROM range(10)")
    s.publish(f"version {{n}}")
signal("done")
""").format(**how))
    reader, fresh = open_session(), open_session()
    fresh("LOAD ducklake")
    fresh(repository.setup)
    seen, kept, last = [], {}, False
    while not last:
        last = writer.popen.poll() is not None
        version = reader.fdl("attach", repository.location, alias="main_now", ref="main")["version"]
        n = reader.value("FROM main_now.n")
        assert reader.column("FROM main_now.pairs ORDER BY a") == list(range(1, n + 1))
        if n:
            assert reader.column("FROM main_now.t") == [n] * 10
        assert not seen or n >= seen[-1]
        seen.append(n)
        # The same by plain DuckLake, as a reader without fdl would; what it attached stays as it is.
        if n % 5 == 0 and n not in kept:
            kept[n] = f"v{n}"
            url = reader.fdl("url", repository.location, ref=version)["attach_sql"]
            fresh(re.sub(r' AS "[^"]+"', f" AS {kept[n]}", url, count=1))
            assert fresh.value(f"FROM {kept[n]}.n") == n
    result = writer.wait()
    assert result.rc == 0, result
    assert seen[-1] == count and len(set(seen)) > min(3, count // 3), seen
    for n, alias in kept.items():
        assert fresh.value(f"FROM {alias}.n") == n
        assert fresh.value(f"SELECT count(*) FROM {alias}.pairs") == n
    assert len(log_of(reader, repository.location)) == count + 2


def test_calls_by_alias_by_path_and_by_quoted_names(open_session, repository):
    session = open_session()
    session.checkout(repository.location, alias='it"s ö', path="it's.sqlite")
    session('CREATE TABLE "it""s ö".t AS SELECT 1 AS who')
    version = session.fdl("commit", 'it"s ö', message="it's ok; -- really")["version"]
    assert session.fdl("status", "it's.sqlite")["version"] == version
    assert session.fdl("push", "it's.sqlite")["new_version"] == version
    assert session(f"SELECT message FROM fdl_log({quoted(repository.location)})") == [{"message": "it's ok; -- really"}]
    assert rows_of(session, "main", repository) == [1]
