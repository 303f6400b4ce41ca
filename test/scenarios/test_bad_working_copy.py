"""Bad input for what lies on a person's own machine: files and names that are taken, work that would be lost, pushes that come too late."""

import shutil
import sqlite3
import threading
import time

import pytest

from repository import error_of, lake_of, refused, tree
from session import quoted, rows


def sqlite_of_somebody(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE notes (text TEXT)")
        database.execute("INSERT INTO notes VALUES ('mine')")
    database.close()


def sqlite_with_names_like_ours(path):
    """A DuckLake catalog of other people has these tables too."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE ducklake_snapshot (snapshot_id BIGINT, schema_version BIGINT)")
        database.execute("CREATE TABLE ducklake_metadata (key TEXT, value TEXT)")
        database.execute("INSERT INTO ducklake_snapshot VALUES (0, 0)")
    database.close()


FOREIGN = {"text": lambda path: path.write_text("notes\n"), "empty": lambda path: path.touch(), "sqlite": sqlite_of_somebody,
           "ducklake": sqlite_with_names_like_ours, "folder": lambda path: path.mkdir(),
           "full folder": lambda path: (path.mkdir(), (path / "x").write_text("x")), "link to nowhere": lambda path: path.symlink_to("nowhere/at/all")}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("force", ["false", "true"])
def test_a_file_that_is_not_ours(connect, repo, bare, kind, force):
    FOREIGN[kind](bare / "x.sqlite")
    code = "FDL-EXISTS" if kind != "link to nowhere" else ("FDL-EXISTS", "FDL-STORE", "FDL-BAD-ARGUMENT")
    refused(connect(), f"CALL fdl_checkout('repo', path := 'x.sqlite', alias := 'x', force := {force})", code, "x.sqlite", "path :=" if code == "FDL-EXISTS" else "")


def test_a_duckdb_file_that_is_in_use(connect, repo, bare):
    connection = connect()
    connection.execute("ATTACH 'x.sqlite' AS mine; CREATE TABLE mine.t AS SELECT 1")
    refused(connection, "CALL fdl_checkout('repo', path := 'x.sqlite', alias := 'x', force := true)", "FDL-EXISTS", "x.sqlite")
    refused(connection, "CALL fdl_checkout('repo', path := 'x.sqlite', alias := 'mine', force := true)", "FDL-EXISTS")
    assert connection.execute("FROM mine.t").fetchall() == [(1,)]


@pytest.mark.parametrize("alias", ["taken", "TAKEN", "memory", "system", "temp", "repo2"])
@pytest.mark.parametrize("call", ["fdl_checkout('repo', path := 'x.sqlite', alias := {}, force := true)", "fdl_attach('repo', alias := {})"])
def test_a_name_that_is_taken(connect, repo, call, alias):
    connection = connect()
    connection.execute("ATTACH ':memory:' AS taken; CREATE TABLE taken.t AS SELECT 1")
    connection.execute("CALL fdl_init('other')")
    connection.execute("CALL fdl_checkout('other', alias := 'repo2')")
    refused(connection, "CALL " + call.format(quoted(alias)), "FDL-EXISTS", alias.lower(), "alias :=")
    assert connection.execute("FROM taken.t").fetchall() == [(1,)]


@pytest.mark.parametrize("path", ["repo/such/folder/x.sqlite", "", ".", "..", "/", "repo", "repo/fdl.json"])
def test_paths_that_will_not_do(connect, repo, path):
    refused(connect(), f"CALL fdl_checkout('repo', alias := 'x', path := {quoted(path)})", ("FDL-BAD-ARGUMENT", "FDL-EXISTS", "FDL-NOT-FOUND", "FDL-STORE"))


@pytest.mark.parametrize("alias", ["", " ", "a" * 5000])
@pytest.mark.parametrize("call", ["fdl_checkout('repo', path := 'x.sqlite', alias := {})", "fdl_attach('repo', alias := {})"])
def test_names_that_will_not_do(connect, repo, call, alias):
    connection = connect()
    try:
        connection.execute("CALL " + call.format(quoted(alias))).fetchall()
    except Exception as error:
        assert "[FDL-" in str(error) and "Hint: " in str(error)
        assert len(str(error)) < 1500
    else:
        assert alias.strip(), "an empty name was taken"


def test_a_working_copy_inside_the_repository(connect, repo):
    """A repository never holds a working catalog (format.md section 1)."""
    for path in ("repo/x.sqlite", "repo/data/x.sqlite", "repo/versions/x.sqlite"):
        refused(connect(), f"CALL fdl_checkout('repo', alias := 'x', path := '{path}')", ("FDL-BAD-ARGUMENT", "FDL-BAD-PATH", "FDL-EXISTS"), "", "path :=")


# ---------------------------------------------------------------- work that would be lost

def test_uncommitted_work_is_not_replaced(connect, repo):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("DETACH lake")
    for ref in ("main", "v1"):
        refused(connection, f"CALL fdl_checkout('repo', alias := 'lake', ref := '{ref}')", "FDL-DIRTY", "not committed", "force := true")
    lake_of(connection, alias="again", path="other.sqlite")
    assert rows(connection, "FROM fdl_status('lake.sqlite')")[0]["uncommitted"] is True
    lake = rows(connection, "CALL fdl_checkout('repo', alias := 'lake', force := true)")[0]
    assert lake["version"] == repo.main
    assert connection.execute("SELECT count(*) FROM lake.t").fetchone() == (7,)


@pytest.mark.parametrize("versions", [1, 2])
def test_unpushed_work_is_not_replaced(connect, repo, versions):
    connection = connect()
    lake_of(connection)
    for number in range(versions):
        connection.execute(f"INSERT INTO lake.t VALUES ({number}, 'mine')")
        connection.execute("CALL fdl_commit('lake', message := 'mine')")
    connection.execute("DETACH lake")
    refused(connection, "CALL fdl_checkout('repo', alias := 'lake')", "FDL-DIRTY", "not pushed", "force := true")
    assert len(rows(connection, "FROM fdl_log('lake.sqlite')")) == 2 + versions


def test_the_hint_of_a_dirty_working_copy_works(connect, repo):
    """What the hint says can be run as it stands, the message aside."""
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    hint = error_of(connection, "CALL fdl_checkout('repo', alias := 'lake', ref := 'v1')").split("Hint: ")[1]
    assert "CALL fdl_push('lake', message := '…')" in hint or "lake.sqlite" in hint, hint
    connection.execute("CALL fdl_push('lake', message := 'as the hint says')")
    assert lake_of(connection, ref="v1")["version"] == repo.first


@pytest.mark.parametrize("damage, code", [("", "FDL-CORRUPT"), ("{", "FDL-CORRUPT"), ('{"fdl": "1.0"}', ("FDL-UNSUPPORTED-VERSION", "FDL-CORRUPT")), (None, ("FDL-CORRUPT", "FDL-BAD-ARGUMENT"))])
@pytest.mark.parametrize("call", ["fdl_status('lake.sqlite')", "fdl_commit('lake.sqlite', message := 'x')", "fdl_push('lake.sqlite')", "fdl_checkout('repo', alias := 'lake')"])
def test_a_damaged_state(connect, repo, bare, damage, code, call):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("DETACH lake")
    state = bare / "lake.sqlite.fdl/state.json"
    state.unlink() if damage is None else state.write_text(damage)
    if damage is None and "checkout" in call:
        code = "FDL-EXISTS"
    refused(connection, f"CALL {call}", code)


def test_a_local_version_that_is_gone(connect, repo, bare):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    version = rows(connection, "CALL fdl_commit('lake', message := 'x')")[0]["version"]
    connection.execute("DETACH lake")
    shutil.rmtree(bare / "lake.sqlite.fdl/versions" / version)
    refused(connection, "CALL fdl_push('lake.sqlite')", ("FDL-CORRUPT", "FDL-STORE"), version)
    assert [row["version"] for row in rows(connection, "FROM fdl_log('repo')")] == [repo.main, repo.first]


def test_the_repository_is_gone(connect, repo):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("CALL fdl_commit('lake', message := 'x')")
    connection.execute("DETACH lake")
    shutil.move("repo", "elsewhere")
    for call in ("fdl_push('lake.sqlite')", "fdl_status('lake.sqlite')", "fdl_refs('lake.sqlite')"):
        refused(connection, f"CALL {call}", "FDL-NOT-A-REPOSITORY", "repo")
    shutil.move("elsewhere", "repo")
    assert rows(connection, "CALL fdl_push('lake.sqlite')")[0]["outcome"] == "pushed"


# ---------------------------------------------------------------- pushes, refs

def two_writers(connection):
    for alias in ("first", "second"):
        lake_of(connection, alias=alias)
        connection.execute(f"INSERT INTO {alias}.t VALUES (100, '{alias}')")
    connection.execute("CALL fdl_push('first', message := 'first')")


def test_push_after_the_branch_moved(connect, repo):
    connection = connect()
    two_writers(connection)
    theirs = rows(connection, "FROM fdl_url('repo')")[0]["version"]
    connection.execute("CALL fdl_commit('second', message := 'second')")
    connection.execute("DETACH second")
    found = refused(connection, "CALL fdl_push('second.sqlite')", "FDL-CONFLICT", theirs, "fdl_checkout")
    assert repo.main in found["sentence"] and found["hint"].startswith("CALL fdl_push(") and "force := true" not in found["hint"]
    assert connection.execute("SELECT count(*) FROM fdl_log('repo')").fetchone() == (3,)
    assert rows(connection, "CALL fdl_push('second.sqlite', ref := 'second')")[0]["outcome"] == "pushed"


def test_push_with_nothing_to_push_after_the_branch_moved(connect, repo):
    """A push of nothing must not make the next one forget what others have published."""
    connection = connect()
    lake_of(connection, alias="idle")
    two_writers(connection)
    pushed = rows(connection, "CALL fdl_push('idle')")[0]
    assert (pushed["outcome"], pushed["versions"]) == ("up to date", 0)
    status = rows(connection, "FROM fdl_status('idle')")[0]
    assert (status["version"], status["ahead"], status["behind"]) == (repo.main, 0, 1)
    connection.execute("INSERT INTO idle.t VALUES (101, 'idle')")
    assert "[FDL-CONFLICT]" in error_of(connection, "CALL fdl_push('idle', message := 'idle')")


def test_push_to_a_branch_that_is_not_an_ancestor(connect, repo):
    connection = connect()
    two_writers(connection)
    connection.execute("CALL fdl_push('second', message := 'second', ref := 'second')")
    connection.execute("DETACH second")
    refused(connection, "CALL fdl_push('second.sqlite', ref := 'main')", "FDL-CONFLICT", "main")


def test_push_to_a_branch_that_was_deleted(connect, repo):
    connection = connect()
    connection.execute("CALL fdl_branch('repo', name := 'dev')")
    lake_of(connection, ref="dev")
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("CALL fdl_commit('lake', message := 'x')")
    connection.execute("DETACH lake")
    connection.execute("CALL fdl_delete_ref('repo', ref := 'refs/heads/dev')")
    refused(connection, "CALL fdl_push('lake.sqlite')", "FDL-CONFLICT", "dev")
    assert rows(connection, "CALL fdl_push('lake.sqlite', ref := 'dev2')")[0]["outcome"] == "pushed"


@pytest.mark.parametrize("call, code, says", [
    ("fdl_branch('repo', name := 'v1/x')", None, ""), ("fdl_branch('repo', name := 'main/x')", "FDL-EXISTS", "folder of the other"),
    ("fdl_branch('repo', name := 'main')", "FDL-EXISTS", "exists already"), ("fdl_tag('repo', name := 'v1')", "FDL-EXISTS", "exists already"),
    ("fdl_tag('repo', name := 'v1/x')", "FDL-EXISTS", "folder of the other"), ("fdl_tag('repo', name := '../v1')", "FDL-BAD-NAME", ""),
    ("fdl_tag('repo', name := 'a\nb')", "FDL-BAD-NAME", ""), ("fdl_delete_ref('repo', ref := 'refs/heads/main')", "FDL-BAD-ARGUMENT", "default branch"),
    ("fdl_delete_ref('repo', ref := 'refs/heads/../tags/v1')", "FDL-BAD-NAME", ""), ("fdl_delete_ref('repo', ref := 'v1')", "FDL-BAD-NAME", ""),
    ("fdl_log('repo', max_count := -1)", "FDL-BAD-ARGUMENT", "negative"), ("fdl_attach('repo', alias := 'x', cache := 'no')", "FDL-BAD-ARGUMENT", "'auto', 'always' or 'never'"),
    ("fdl_attach('repo', alias := 'x', allowed_signers := 'keys')", "FDL-NOT-FOUND", "allowed_signers"),
    ("fdl_checkout('repo', alias := 'x', data_path := 'here')", "FDL-BAD-ARGUMENT", "data_path")])
def test_other_bad_calls(connect, repo, call, code, says):
    if code is None:
        connect().execute(f"CALL {call}")
    else:
        refused(connect(), f"CALL {call}", code, says)


@pytest.mark.parametrize("key, author, code, says", [
    ("key", "Aiko <a@x.org>", "FDL-NOT-FOUND", "cannot be read"), ("", "Aiko <a@x.org>", "FDL-BAD-ARGUMENT", "sign_with is empty"),
    ("repo/fdl.json", "Aiko <a@x.org>", "FDL-BAD-ARGUMENT", "no OpenSSH key"), ("repo", "Aiko <a@x.org>", "FDL-BAD-ARGUMENT", "cannot be read"),
    ("key", "Aiko", "FDL-BAD-ARGUMENT", "no mail address")])
def test_what_cannot_sign(connect, repo, key, author, code, says):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("DETACH lake")
    refused(connection, f"CALL fdl_commit('lake.sqlite', message := 'x', author := {quoted(author)}, sign_with := {quoted(key)})", code, says)


def test_two_inits_at_once(connect):
    connections = [connect() for _ in range(4)]
    made, start = [], threading.Barrier(4)

    def init(connection):
        start.wait()
        made.append(rows(connection, "CALL fdl_init('new')")[0])

    threads = [threading.Thread(target=init, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one["id"] for one in made}) == 1 and sorted(one["created"] for one in made) == [False, False, False, True]


def test_an_encrypted_catalog(connect, repo, bare):
    """Its keys are in the catalog in clear, so that a version would publish them."""
    connection = connect()
    lake_of(connection)
    connection.execute("DETACH lake")
    with sqlite3.connect("lake.sqlite") as database:
        database.execute("UPDATE ducklake_metadata SET value = 'true' WHERE key = 'encrypted'")
    database.close()
    connection.execute(f"ATTACH 'ducklake:lake.sqlite' AS lake (META_TYPE 'sqlite', DATA_PATH {quoted(repo.path)}'/data/', OVERRIDE_DATA_PATH true, DATA_INLINING_ROW_LIMIT 0)".replace("''/", "/"))
    connection.execute("INSERT INTO lake.t VALUES (100, 'secret')")
    connection.execute("DETACH lake")
    for call in ("fdl_commit('lake.sqlite', message := 'x')", "fdl_push('lake.sqlite', message := 'x')"):
        refused(connection, f"CALL {call}", "FDL-ENCRYPTED", "keys", "allow_encrypted := true")
    assert rows(connection, "CALL fdl_commit('lake.sqlite', message := 'x', allow_encrypted := true)")[0]["committed"] is True


@pytest.mark.parametrize("held", ["reading", "writing"])
def test_an_open_transaction_of_another_process(connect, python, repo, bare, held):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    statement = "INSERT INTO lake.t VALUES (200, 'theirs')" if held == "writing" else "SELECT count(*) FROM lake.t"
    other = python.start(f"""
import os, time
c = connect()
c.execute({rows(connection, "FROM fdl_checkout('repo', alias := 'unused', attach := false, path := 'unused.sqlite')")[0]["attach_sql"]!r}.replace('unused', 'lake'))
c.execute('BEGIN'); c.execute({statement!r}).fetchall()
open('began', 'w').close()
while not os.path.exists('end'): time.sleep(0.02)
c.execute('COMMIT')
""")
    while not (bare / "began").exists():
        assert other.popen.poll() is None, other.wait()
        time.sleep(0.02)
    for call in ("fdl_commit('lake', message := 'x')", "fdl_push('lake', message := 'x')", "fdl_checkout('repo', alias := 'lake', force := true)"):
        refused(connection, f"CALL {call}", "FDL-IN-TRANSACTION", "lake.sqlite", "COMMIT or ROLLBACK", root="repo")
    (bare / "end").touch()
    assert other.wait().rc == 0
    committed = rows(connection, "CALL fdl_commit('lake', message := 'x')")[0]
    assert committed["rows"] == (10 if held == "writing" else 9)


def test_two_processes_on_one_working_copy(connect, repo, bare):
    """The second call waits for nothing and harms nothing. The lock is the operating system's, so another program can hold it."""
    fcntl = pytest.importorskip("fcntl")
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("DETACH lake")
    with open(bare / "lake.sqlite.fdl/lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for call in ("fdl_commit('lake.sqlite', message := 'x')", "fdl_push('lake.sqlite')", "fdl_checkout('repo', alias := 'lake', force := true)"):
            refused(connection, f"CALL {call}", "FDL-IN-TRANSACTION", "in use by another fdl call", "call again")
    assert rows(connection, "CALL fdl_push('lake.sqlite', message := 'x')")[0]["outcome"] == "pushed"


def test_rows_that_ducklake_itself_cannot_write_out(repo, connect):
    """Kept in the catalog by a session that anybody attached, for a table that lost a column (DuckLake 1.0)."""
    connection = connect()
    connection.execute(f"CALL fdl_checkout({quoted(repo.path)}, alias := 'lake', path := 'lake.sqlite')")
    connection.execute("CREATE TABLE lake.narrow (a INTEGER, b INTEGER); INSERT INTO lake.narrow VALUES (1, 1); CALL fdl_push('lake', message := 'one')")
    connection.execute("ALTER TABLE lake.narrow DROP COLUMN a; DETACH lake; ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    connection.execute("INSERT INTO lake.narrow VALUES (2); CREATE TABLE lake.other (a INTEGER)")
    message = error_of(connection, "CALL fdl_push('lake', message := 'two')")
    assert "[FDL-DUCKDB]" in message and "rows that it keeps inside the working catalog" in message
    assert "Hint: CALL ducklake_flush_inlined_data" in message
    connection.execute("CALL ducklake_flush_inlined_data('lake')")
    assert rows(connection, "CALL fdl_push('lake', message := 'two')")[0]["outcome"] == "pushed"


# As the type of a column it would end the cast that the bounds of a column are compared by, and write a file.
HOSTILE_TYPE = ("decimal(18,3)) IS NOT NULL), false)), true) AS known FROM fdl_columns c, (SELECT 1 AS data_file_id) d, "
                "(SELECT 1 AS value_count, '1' AS min_value) f GROUP BY ALL; COPY (SELECT 42) TO 'touched'; --")


@pytest.mark.parametrize("column_type", [HOSTILE_TYPE, "decimal(99,1)"])
def test_the_type_of_a_column_is_no_sql(connect, repo, bare, column_type):
    connection = connect()
    connection.execute("CALL fdl_checkout('repo', path := 'x.sqlite', alias := 'x')")
    connection.execute("CREATE TABLE x.odd AS SELECT 1::DECIMAL(18, 3) AS a; DETACH x")
    with sqlite3.connect(bare / "x.sqlite") as database:
        changed = database.execute("UPDATE ducklake_column SET column_type = ? WHERE column_type = 'decimal(18,3)'", [column_type])
        assert changed.rowcount >= 1
    database.close()
    refused(connection, "CALL fdl_commit('x.sqlite', message := 'm')", ("FDL-CORRUPT", "FDL-DUCKDB"), "")
    assert [path.name for path in bare.iterdir() if path.name.lower() == "touched"] == []
