"""In a session, nothing surprises: what a call does not name stays as it was, and a call can stand wherever a table can."""

import json
import os
import time
from pathlib import Path

import pytest

import layout
from repository import error_of, lake_of, refused, session_state, tree
from session import quoted, rows

EVERY_CALL = ["fdl_init('new')", "fdl_checkout('repo', alias := 'lake')", "fdl_attach('repo', alias := 'reader')", "fdl_status('lake')",
              "fdl_commit('lake', message := 'x', force := true)", "fdl_push('lake', tag := 'v3')", "fdl_log('lake')", "fdl_url('repo')", "fdl_refs('repo')",
              "fdl_branch('repo', name := 'dev')", "fdl_tag('repo', name := 'v4')", "fdl_delete_ref('repo', ref := 'refs/heads/dev')", "fdl_tables('lake')",
              "fdl_files('reader')", "fdl_version()"]
ASKED_FOR = {"lake", "__ducklake_metadata_lake", "reader", "__ducklake_metadata_reader"}


# ---------------------------------------------------------------- what stays as it was

def test_settings_search_path_and_databases(connect, repo):
    connection = connect()
    connection.execute("LOAD ducklake; LOAD sqlite")
    connection.execute("ATTACH ':memory:' AS other; CREATE SCHEMA other.s; USE other.s; SET threads = 2; SET search_path = 'other.s,memory.main'")
    connection.execute("SET errors_as_json = false; SET TimeZone = 'Asia/Tokyo'; SET default_null_order = 'nulls_first'")
    before = session_state(connection)
    for call in EVERY_CALL:
        connection.execute(f"CALL {call}").fetchall()
        after = session_state(connection)
        assert after[1:] == before[1:], call
        assert [row for row in after[0] if row[0] not in ASKED_FOR] == before[0], call
    assert {row[0] for row in after[0]} - {row[0] for row in before[0]} <= ASKED_FOR


@pytest.mark.parametrize("call", EVERY_CALL[1:-1])
def test_explaining_describing_and_preparing_do_nothing(connect, repo, call):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    files, state = tree("."), session_state(connection)
    for sql in (f"EXPLAIN FROM {call}", f"DESCRIBE FROM {call}", f"PREPARE p AS FROM {call}", f"CREATE VIEW v AS FROM {call}", f"SELECT * FROM {call} WHERE false"):
        if sql.startswith("SELECT") and "fdl_c" not in call:
            continue
        connection.execute(sql).fetchall()
        if not sql.startswith("SELECT"):
            assert tree(".") == files and session_state(connection) == state, sql


def test_settings_that_are_locked(connect, repo):
    connection = connect()
    connection.execute("SET lock_configuration = true")
    for call in EVERY_CALL:
        connection.execute(f"CALL {call}").fetchall()


def test_the_lake_is_the_default_database(connect, repo):
    """After USE lake DuckDB looks a function's name up in the lake, which opens a transaction there for the length of the statement."""
    connection = connect()
    lake_of(connection)
    connection.execute("USE lake")

    def call(sql):
        try:
            return rows(connection, f"CALL {sql}")
        except Exception as error:
            hint = str(error).split("Hint: ")[1]
            assert "[FDL-IN-TRANSACTION]" in str(error) and "system.main." in hint, error
            return rows(connection, f"CALL system.main.{sql}")

    call("fdl_checkout('repo', alias := 'lake', ref := 'v1')")
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (10,)
    call("fdl_checkout('repo', alias := 'lake')")
    connection.execute("INSERT INTO t VALUES (100, 'mine')")
    assert call("fdl_commit('lake', message := 'three')")[0]["committed"] is True
    assert call("fdl_push('lake')")[0]["outcome"] == "pushed"
    assert connection.execute("SELECT current_database(), count(*) FROM t").fetchone() == ("lake", 8)


def test_a_transaction_elsewhere_is_not_touched(connect, repo):
    connection = connect()
    lake_of(connection)
    connection.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE memory.mine AS SELECT 1 AS i")
    for call in EVERY_CALL[2:]:
        connection.execute(f"CALL {call}").fetchall()
    connection.execute("COMMIT")
    assert connection.execute("FROM memory.mine").fetchall() == [(1,)]


def test_an_open_transaction_on_the_lake_is_refused_and_unharmed(connect, repo):
    connection = connect()
    lake_of(connection)
    other = connection.cursor()
    other.execute("BEGIN; INSERT INTO lake.t VALUES (100, 'open')")
    for call in ("fdl_commit('lake', message := 'x')", "fdl_push('lake', message := 'x')", "fdl_push('lake')", "fdl_checkout('repo', alias := 'lake')",
                 "fdl_checkout('repo', alias := 'lake', force := true)"):
        refused(connection, f"CALL {call}", "FDL-IN-TRANSACTION", "lake.sqlite", "COMMIT or ROLLBACK first", root="repo")
    for call in ("fdl_status('lake')", "fdl_log('lake')", "fdl_tables('lake')", "fdl_files('lake')", "fdl_url('lake')", "fdl_refs('lake')"):
        connection.execute(f"FROM {call}").fetchall()
    other.execute("COMMIT")
    assert connection.execute("SELECT count(*) FROM lake.t").fetchone() == (8,)
    assert rows(connection, "CALL fdl_push('lake', message := 'x')")[0]["outcome"] == "pushed"


def test_loading_twice_and_in_a_database_that_can_only_be_read(connect, repo, bare):
    first = connect(bare / "mine.duckdb")
    first.execute("CREATE TABLE t AS SELECT 1")
    first.execute(f"LOAD {quoted(layout.extension())}")
    assert len(rows(first, "FROM fdl_log('repo')")) == 2
    first.close()
    time.sleep(1.2)
    only_read = connect(bare / "mine.duckdb", access_mode="read_only")
    assert rows(only_read, "CALL fdl_attach('repo', alias := 'reader')")[0]["alias"] == "reader"
    assert only_read.execute("SELECT count(*) FROM reader.t").fetchone() == (7,)
    lake_of(only_read)
    only_read.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    assert rows(only_read, "CALL fdl_push('lake', message := 'three')")[0]["outcome"] == "pushed"


# ---------------------------------------------------------------- closing

OPEN = "import duckdb, sys\nduckdb.connect('mine.duckdb').execute('INSERT INTO t VALUES (2)')\n"


def test_closing_the_last_connection_lets_go_of_the_file(connect, python, repo, bare):
    first, last = connect(bare / "mine.duckdb"), connect(bare / "mine.duckdb")
    first.execute("CREATE TABLE t AS SELECT 1 AS i")
    for call in EVERY_CALL:
        first.execute(f"CALL {call}").fetchall()
    first.close()
    time.sleep(1)
    assert python(OPEN, check=False).rc != 0, "another process can write to it while a connection is open"
    assert last.execute("FROM t").fetchall() == [(1,)]
    assert last.execute("FROM fdl_refs('repo')").fetchall()
    last.close()
    closed = time.monotonic()
    while python(OPEN, check=False).rc != 0:
        assert time.monotonic() - closed < 5, "the file is not let go of"
    assert not (bare / "mine.duckdb.wal").exists()


def test_closing_lets_go_within_a_second(connect, repo, bare):
    """The same file can be opened anew in this process, with other settings, which DuckDB refuses while the old one lives."""
    for round_number in range(3):
        connection = connect(bare / "mine.duckdb", threads=round_number + 1)
        connection.execute("CALL fdl_attach('repo', alias := 'reader')")
        connection.close()
        closed = time.monotonic()
        while True:
            try:
                connect(bare / "mine.duckdb", load=False, threads=7).close()
                break
            except Exception:
                assert time.monotonic() - closed < 5
                time.sleep(0.02)
        assert time.monotonic() - closed < 3


@pytest.mark.parametrize("ending", ["close", "forget", "exit", "error"])
def test_no_log_is_left_at_the_end_of_a_process(python, connect, repo, bare, ending):
    how = {"close": "c.close()", "forget": "pass", "exit": "import sys; sys.exit(0)", "error": "raise SystemExit(3)"}[ending]
    python(f"c = connect('mine.duckdb')\nc.execute('CREATE TABLE t AS SELECT 1 AS i')\nc.execute(\"CALL fdl_checkout('repo', alias := 'lake')\")\n"
           f"c.execute(\"INSERT INTO lake.t VALUES (100, 'mine')\")\nc.execute(\"CALL fdl_push('lake', message := 'x')\")\n"
           f"c.execute('INSERT INTO t VALUES (2)')\n{how}", check=False)
    assert not (bare / "mine.duckdb.wal").exists()
    assert not list(bare.glob("lake.sqlite-*")), "the lake's own log is folded in as well"
    assert connect(bare / "mine.duckdb", load=False).execute("SELECT count(*) FROM t").fetchone() == (2,)


@pytest.mark.parametrize("round_number", range(3))
def test_no_log_is_left_by_the_shell(shell, connect, repo, bare, round_number):
    result = shell("CREATE TABLE t AS SELECT 1 AS i; CALL fdl_checkout('repo', alias := 'lake'); INSERT INTO lake.t VALUES (100, 'mine'); "
                   "CALL fdl_push('lake', message := 'x'); INSERT INTO t VALUES (2);", db="mine.duckdb")
    assert result.rc == 0 and not result.err.strip(), result
    assert not (bare / "mine.duckdb.wal").exists() and not list(bare.glob("lake.sqlite-*"))
    assert connect(bare / "mine.duckdb", load=False).execute("SELECT count(*) FROM t").fetchone() == (2,)


# ---------------------------------------------------------------- wherever a table can stand

def test_calls_are_tables(connect, repo, bare):
    connection = connect()
    lake_of(connection)
    one = lambda sql: connection.execute(sql).fetchall()
    assert one("SELECT count(*) FROM fdl_log('repo') AS a JOIN fdl_log('repo') AS b ON a.parent = b.version") == [(1,)]
    assert one("WITH l AS (FROM fdl_log('repo')) SELECT (SELECT count(*) FROM l), (SELECT max(message) FROM l)") == [(2, "two")]
    assert one("WITH l AS MATERIALIZED (FROM fdl_log('repo')) SELECT count(*) FROM l AS a, l AS b") == [(4,)]
    assert one("SELECT message FROM fdl_log('repo') WHERE version IN (SELECT version FROM fdl_refs('repo') WHERE kind = 'tag') ORDER BY 1") == [("one",), ("two",)]
    assert one("SELECT r.name, t.rows FROM fdl_refs('repo') AS r, fdl_tables('repo') AS t WHERE t.name = 't' AND r.kind = 'branch'") == [("main", 7)]
    assert one("SELECT (SELECT count(*) FROM fdl_files('repo')) + 1") == [(3,)]
    assert one("FROM fdl_log('repo') SELECT message UNION ALL FROM fdl_log('repo', ref := 'v1') SELECT message ORDER BY 1") == [("one",), ("one",), ("two",)]
    assert one("SELECT list(message ORDER BY created) OVER () FROM fdl_log('repo') LIMIT 1") == [(["one", "two"],)]
    connection.execute("CREATE TABLE log AS FROM fdl_log('repo'); INSERT INTO log FROM fdl_log('repo')")
    assert one("SELECT count(*), count(DISTINCT version), any_value(typeof(refs)) FROM log") == [(4, 2, "VARCHAR[]")]
    connection.execute("CREATE TABLE tables AS FROM fdl_tables('repo')")
    assert one("SELECT columns[1].name, columns[2].type FROM tables WHERE name = 't'") == [("i", "VARCHAR")]
    connection.execute("CREATE VIEW history AS FROM fdl_log('repo')")
    assert one("SELECT count(*) FROM history") == [(2,)]
    connection.execute("COPY (FROM fdl_log('repo')) TO 'log.parquet'")
    assert one("SELECT count(*) FROM 'log.parquet'") == [(2,)]
    # The history as a table of the lake itself: read before it is written.
    connection.execute("CREATE TABLE lake.history AS SELECT version, message FROM fdl_log('repo')")
    assert rows(connection, "CALL fdl_push('lake', message := 'three')")[0]["outcome"] == "pushed"
    # A view sees what is there when it is read.
    assert one("SELECT count(*) FROM history") == [(3,)]


def test_prepared_statements(connect, repo):
    connection = connect()
    lake_of(connection)
    assert [row["message"] for row in rows(connection, "FROM fdl_log(?, max_count := ?)", ["repo", 1])] == ["two"]
    assert [row["message"] for row in rows(connection, "FROM fdl_log($where, ref := $ref)", {"where": "repo", "ref": "v1"})] == ["one"]
    connection.execute("PREPARE logs AS SELECT count(*) FROM fdl_log('lake'); PREPARE commits AS SELECT committed FROM fdl_commit('lake', message := 'prepared')")
    assert connection.execute("EXECUTE commits").fetchall() == [(False,)]
    for number in range(3):
        connection.execute(f"INSERT INTO lake.t VALUES ({100 + number}, 'mine')")
        assert connection.execute("EXECUTE commits").fetchall() == [(True,)]
        assert connection.execute("EXECUTE logs").fetchall() == [(3 + number,)]


@pytest.mark.parametrize("threads", [1, 8])
def test_any_number_of_threads_in_duckdb(connect, repo, threads):
    connection = connect(threads=threads)
    for call in EVERY_CALL:
        assert connection.execute(f"CALL {call}").fetchall(), call
    assert connection.execute("SELECT count(*) FROM fdl_log('repo') AS a, fdl_log('repo') AS b, fdl_refs('repo') AS c").fetchone()[0] > 0


def test_two_lakes_in_one_statement(python, repo):
    """DuckDB runs the two calls at the same time. In a process of its own, as it must not crash."""
    python("""
from repository import lake_of
c = connect(threads=4)
lake_of(c, alias='a'); lake_of(c, alias='b')
for number in range(30):
    for call in ("fdl_log('{}')", "fdl_refs('{}.sqlite')", "fdl_status('{}')", "fdl_url('{}')", "fdl_tables('{}')"):
        a, b = call.format('a'), call.format('b')
        assert c.execute(f"SELECT (SELECT count(*) FROM {a}) = (SELECT count(*) FROM {b})").fetchone() == (True,)
""", timeout=100)


@pytest.mark.parametrize("listing", ["SELECT count(*) FROM duckdb_databases()", "SELECT count(*) FROM duckdb_tables()", "SHOW ALL TABLES"])
def test_many_threads_at_once(python, repo, listing):
    """Eight threads call what they like while another one lists what there is, as a notebook's sidebar does."""
    result = python(f"""
import threading
from repository import lake_of
c = connect()
lake_of(c)
errors, start, done = [], threading.Barrier(9), threading.Event()

def work(number):
    own = c.cursor()
    start.wait()
    try:
        for turn in range(12):
            assert len(own.execute("FROM fdl_log('repo')").fetchall()) == 2
            assert len(own.execute("FROM fdl_refs('lake')").fetchall()) == 3
            assert len(own.execute("FROM fdl_status('lake')").fetchall()) == 1
            own.execute(f"CALL fdl_attach('repo', alias := 'reader{{number}}_{{turn}}', ref := 'v{{turn % 2 + 1}}')").fetchall()
            assert own.execute(f"SELECT count(*) FROM reader{{number}}_{{turn}}.t").fetchone() == ((10, 7)[turn % 2],)
    except Exception as error:
        errors.append(f"{{number}}: {{error}}")

def look():
    own = c.cursor()
    start.wait()
    while not done.is_set():
        own.execute({listing!r}).fetchall()

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
watcher = threading.Thread(target=look)
for thread in [*threads, watcher]: thread.start()
for thread in threads: thread.join()
done.set(); watcher.join()
left = c.execute("SELECT database_name FROM duckdb_databases() WHERE starts_with(database_name, '__fdl_')").fetchall()
print(json.dumps({{"errors": errors, "left": left}}))
""")
    assert result.results[-1] == {"errors": [], "left": []}


def test_threads_that_write(python, repo):
    """Each with a lake and a branch of its own; nobody waits for ever, nothing is lost."""
    result = python("""
import threading
from repository import lake_of
c = connect()
errors = []
for number in range(4):
    lake_of(c, alias=f'lake{number}')

def work(number):
    own = c.cursor()
    try:
        for turn in range(3):
            own.execute(f"INSERT INTO lake{number}.t VALUES ({100 + turn}, 'thread {number}')")
            own.execute(f"CALL fdl_push('lake{number}', message := 'turn {turn}', ref := 'b{number}')").fetchall()
    except Exception as error:
        errors.append(f"{number}: {error}")

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"errors": errors, "counts": [c.execute(f"SELECT count(*) FROM fdl_log('repo', ref := 'b{number}')").fetchone()[0] for number in range(4)]}))
""")
    assert result.results[-1] == {"errors": [], "counts": [5, 5, 5, 5]}


def long_history(repo, length):
    """Versions on top of the last one that differ in nothing but their IDs and messages."""
    parent, record = repo.main, json.loads(repo.version("version.json").read_text())
    for number in range(length):
        version = f"02000000-0000-7000-8000-{number:012}"
        folder = repo.path / "versions" / version
        folder.mkdir()
        for name in ("dataset.json", "files.json", "ducklake.duckdb"):
            os.link(repo.version(name), folder / name)
        (folder / "version.json").write_text(json.dumps({**record, "id": version, "parents": [parent], "message": f"{number}"}))
        parent = version
    (repo.path / "refs/heads/main").write_text(parent + "\n")


def test_a_long_history_is_read_as_far_as_it_is_asked_for(connect, repo):
    long_history(repo, 220)
    connection = connect()
    messages = [row["message"] for row in rows(connection, "FROM fdl_log('repo')")]
    assert messages == [str(number) for number in reversed(range(220))] + ["two", "one"]
    assert rows(connection, "FROM fdl_url('repo', ref := 'main~221')")[0]["version"] == repo.first
    # Whoever reads a page of it does not notice that an old version is damaged.
    repo.version("version.json", f"02000000-0000-7000-8000-{100:012}").write_text("")
    for sql in ("SELECT message FROM fdl_log('repo') LIMIT 5", "SELECT message FROM fdl_log('repo', max_count := 5)"):
        assert [row["message"] for row in rows(connection, sql)] == ["219", "218", "217", "216", "215"]
    assert len(connection.execute("SELECT message FROM fdl_log('repo') LIMIT 20 OFFSET 40").fetchall()) == 20
    assert "[FDL-CORRUPT]" in error_of(connection, "FROM fdl_log('repo')")


# ---------------------------------------------------------------- databases, extensions

def test_two_databases_in_one_process(connect, repo, bare):
    first, second = connect(bare / "a.duckdb"), connect(bare / "b.duckdb")
    lake_of(first, path="a.sqlite")
    lake_of(second, path="b.sqlite")
    first.execute("INSERT INTO lake.t VALUES (100, 'first')")
    first.execute("CALL fdl_push('lake', message := 'first')")
    first.close()
    second.execute("INSERT INTO lake.t VALUES (100, 'second')")
    assert "[FDL-CONFLICT]" in error_of(second, "CALL fdl_push('lake', message := 'second')")
    time.sleep(1.2)
    assert rows(second, "CALL fdl_push('lake', ref := 'second')")[0]["outcome"] == "pushed"
    assert len(rows(second, "FROM fdl_log('repo')")) == 3


@pytest.mark.parametrize("call", ["fdl_checkout('repo', alias := 'x')", "fdl_attach('repo', alias := 'x')"])
def test_extensions_that_are_missing(connect, repo, tmp_path, call):
    connection = connect(extensions=tmp_path / "empty", custom_extension_repository=str(tmp_path / "no repository"))
    for reads in ("fdl_log('repo')", "fdl_refs('repo')", "fdl_url('repo')", "fdl_tables('repo')", "fdl_files('repo')"):
        assert rows(connection, f"FROM {reads}")
    refused(connection, f"CALL {call}", "FDL-DUCKDB", "ducklake", "INSTALL ducklake")


def test_a_missing_extension_leaves_a_new_repository_alone(connect, tmp_path):
    connection = connect(extensions=tmp_path / "empty", custom_extension_repository=str(tmp_path / "no repository"))
    connection.execute("CALL fdl_init('fresh')")
    refused(connection, "CALL fdl_checkout('fresh')", "FDL-DUCKDB", "ducklake", "INSTALL ducklake")


def test_installing_from_the_folder(shell, repo, fresh_extensions, bare):
    result = shell(f"INSTALL fdl FROM {quoted(layout.REPOSITORY)}; LOAD fdl; FROM fdl_version(); SELECT count(*) AS n FROM fdl_log('repo');",
                   load=False, extensions=fresh_extensions)
    assert result.results[-1] == [{"n": 2}]
    again = shell("LOAD fdl; CALL fdl_attach('repo', alias := 'x'); SELECT count(*) AS n FROM x.t;", load=False, extensions=fresh_extensions)
    assert again.rows == [{"n": 7}]


# ---------------------------------------------------------------- DuckLake's own housekeeping

def test_checkpoint_leaves_other_versions_readable(connect, repo):
    """CHECKPOINT deletes files that it does not know and that are older than two days: those of other versions and branches."""
    connection = connect()
    lake_of(connection, alias="branch", ref="v1")
    connection.execute("CREATE TABLE branch.only_there AS FROM range(100)")
    connection.execute("CALL fdl_push('branch', message := 'beside', ref := 'beside')")
    for file in Path("repo").rglob("*.parquet"):
        os.utime(file, (time.time() - 30 * 86400,) * 2)
    files = {name for name in tree("repo") if name.endswith(".parquet")}
    connection.execute("CALL fdl_init('new')")
    lake_of(connection, alias="fresh", ref="main")
    lake_of(connection, alias="old", ref="v1")
    connection.execute("INSERT INTO fresh.t VALUES (100, 'mine')")
    for alias in ("fresh", "old", "branch"):
        connection.execute(f"CHECKPOINT {alias}")
    connection.execute("CALL fdl_commit('fresh', message := 'after it')")
    connection.execute("CHECKPOINT fresh")
    assert files <= {name for name in tree("repo") if name.endswith(".parquet")}
    for ref, tables in {"v1": 2, "v2": 2, "main": 2, "beside": 3}.items():
        connection.execute(f"CALL fdl_attach('repo', alias := 'reader', ref := '{ref}')")
        names = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'reader'").fetchall()]
        assert len(names) == tables
        for name in names:
            connection.execute(f"FROM reader.{name}").fetchall()
    assert rows(connection, "CALL fdl_push('fresh')")[0]["outcome"] == "pushed"
