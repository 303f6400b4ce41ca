"""Same rows, no version: tables that were rebuilt keep the parent's files, in the version and in the working catalog."""

import pytest

from story import quoted

TABLES = 50


@pytest.fixture
def lake(open_session, repository):
    session = open_session()
    made = session.checkout(repository.location)
    session.attach_sql, session.data_path = made["attach_sql"], made["data_path"]
    return session


@pytest.fixture
def look(lake, repository):
    return Look(lake, repository)


class Look:
    """What the tests look at: the files that are named, by whom, and how many versions there are."""

    def __init__(self, lake, repository):
        self.lake, self.repository = lake, repository

    def versions(self):
        return len(self.lake.table("log", self.repository.location))

    def published(self):
        """The files of the last version: data and delete files by table."""
        files = {}
        for row in self.lake.table("files", self.repository.location):
            files.setdefault(f"{row['schema']}.{row['name']}", set()).update({row["path"], row["delete_path"]} - {None})
        return files

    def working(self, lake="lake"):
        """The files that the working catalog names now, as keys."""
        tables = self.lake(f"SELECT schema_name AS s, table_name AS t FROM duckdb_tables() WHERE database_name = {quoted(lake)}")
        files = {}
        for row in tables:
            listed = self.lake(f"FROM ducklake_list_files({quoted(lake)}, {quoted(row['t'])}, schema => {quoted(row['s'])})")
            paths = [path for file in listed for path in (file["data_file"], file["delete_file"]) if path]
            files[f"{row['s']}.{row['t']}"] = {"data/" + path.split("/data/", 1)[1] for path in paths}
        return {table: paths for table, paths in files.items() if paths}

    def require_no_version(self, *statements, note=None):
        """Runs statements that end in the same rows: no version, and the working catalog names the published files again."""
        before, count = self.published(), self.versions()
        for statement in statements:
            self.lake(statement)
        done = self.lake.fdl("commit", "lake", message="nothing new")
        assert (done["committed"], done["tables_changed"]) == (False, 0), done
        assert self.versions() == count
        assert self.working() == before
        assert self.lake.fdl("status", "lake")["uncommitted"] is False
        assert self.lake.fdl("push", "lake", message="nothing new")["outcome"] == "up to date"

    def require_version(self, *statements, changed=1, **named):
        before = self.published()
        for statement in statements:
            self.lake(statement)
        assert self.lake.fdl("status", "lake")["uncommitted"] is True
        done = self.lake.fdl("commit", "lake", message="something new", **named)
        assert (done["committed"], done["tables_changed"]) == (True, changed), done
        pushed = self.lake.fdl("push", "lake")
        after = self.published()
        assert self.working() == after
        old = set().union(*before.values())
        new = set().union(*after.values()) - old
        assert pushed["files_uploaded"] == len(new)
        return pushed


def make_tables(session, tables=range(TABLES), order="ASC", again=False):
    """The same tables whatever the order in which their rows are written."""
    for number in tables:
        if again:
            session(f"DROP TABLE lake.t{number}")
        session(f"CREATE TABLE lake.t{number} AS SELECT range + {number} AS a, 'row ' || range AS b, CASE WHEN range % 3 > 0 THEN range END AS c "
                f"FROM range(30) UNION ALL SELECT NULL, 'twice', 0 FROM range(2) ORDER BY a {order}, b")


def test_a_rebuild_of_fifty_tables(lake, look, open_session, repository, in_another_process_nothing_differs):
    make_tables(lake)
    lake.publish("fifty tables")
    other = open_session()  # has it attached from before
    other("LOAD ducklake; LOAD sqlite_scanner")
    other(lake.attach_sql)
    rows = other.value("SELECT sum(a)::BIGINT FROM lake.t7")
    published, keys = look.published(), set(repository.keys("data/"))
    assert other.one("FROM lake.t49 LIMIT 1")

    make_tables(lake, order="DESC", again=True)
    written = set(repository.keys("data/")) - keys
    assert len(written) == TABLES
    look.require_no_version()
    assert look.published() == published
    # The discarded files are named by nothing that is current.
    named = set().union(*look.working().values()) | set().union(*look.published().values())
    assert not named & written
    # The other session reads the right rows and goes on writing.
    assert other.value("SELECT sum(a)::BIGINT FROM lake.t7") == rows
    assert other.value("SELECT count(*) FROM lake.t49") == 32
    other("INSERT INTO lake.t7 VALUES (1000, 'by the other', 1)")
    other("DELETE FROM lake.t8 WHERE a IS NULL")
    other("ALTER TABLE lake.t9 ADD COLUMN d INTEGER DEFAULT 4")
    assert lake.value("SELECT count(*) FROM lake.t7") == 33
    look.require_version(changed=3)
    in_another_process_nothing_differs(lake.attach_sql)

    # One of fifty: only its files are new.
    make_tables(lake, (number for number in range(TABLES) if number not in (7, 8, 9)), "DESC", again=True)
    lake("UPDATE lake.t3 SET b = 'changed' WHERE a = 5")
    before = look.published()
    look.require_version()
    after = look.published()
    assert {table for table in after if after[table] != before[table]} == {"main.t3"}
    in_another_process_nothing_differs(lake.attach_sql)


def test_the_rows_count_not_how_they_came_there(lake, look, in_another_process_nothing_differs):
    make_tables(lake, range(4))
    lake("INSERT INTO lake.t2 VALUES (500, 'second file', 0)")
    lake.publish("four tables")
    look.require_no_version("UPDATE lake.t0 SET a = a", "UPDATE lake.t1 SET b = b || ''")
    look.require_no_version("CREATE TABLE lake.copy AS FROM lake.t2", "DELETE FROM lake.t2", "INSERT INTO lake.t2 FROM lake.copy", "DROP TABLE lake.copy")
    look.require_no_version("INSERT INTO lake.t3 VALUES (1, 'x', 1)", "DELETE FROM lake.t3 WHERE b = 'x'")
    look.require_no_version("BEGIN", "DELETE FROM lake.t3 WHERE a < 10", "ROLLBACK")
    look.require_no_version("CREATE OR REPLACE TABLE lake.t1 AS SELECT * FROM lake.t1 ORDER BY c")
    look.require_no_version("ALTER TABLE lake.t1 RENAME TO other", "ALTER TABLE lake.other RENAME TO t1")
    look.require_no_version("ALTER TABLE lake.t1 ADD COLUMN z INTEGER", "ALTER TABLE lake.t1 DROP COLUMN z")
    look.require_no_version("CREATE VIEW lake.v AS SELECT 1 AS one", "DROP VIEW lake.v", "COMMENT ON TABLE lake.t1 IS 'x'", "COMMENT ON TABLE lake.t1 IS NULL")
    in_another_process_nothing_differs(lake.attach_sql)


def test_tables_with_deletes_partitions_and_a_past(lake, look, in_another_process_nothing_differs):
    lake("CREATE TABLE lake.deleted AS SELECT range AS a FROM range(100)")
    lake("CREATE TABLE lake.parts (p VARCHAR, n INTEGER); ALTER TABLE lake.parts SET PARTITIONED BY (p)")
    lake("INSERT INTO lake.parts SELECT 'p/' || range % 3, range FROM range(30); INSERT INTO lake.parts VALUES (NULL, 1)")
    lake("CREATE TABLE lake.grown AS SELECT range AS a FROM range(10)")
    lake("CREATE SCHEMA lake.s; CREATE TABLE lake.s.t AS SELECT 1 AS a; CREATE VIEW lake.s.v AS FROM lake.s.t")
    lake("CREATE TABLE lake.empty (a INTEGER)")
    lake.publish("first")
    lake("DELETE FROM lake.deleted WHERE a % 7 = 0")
    lake("ALTER TABLE lake.grown ADD COLUMN b VARCHAR DEFAULT 'old'")
    lake("INSERT INTO lake.grown VALUES (10, NULL); ALTER TABLE lake.grown RENAME COLUMN a TO key")
    lake("DELETE FROM lake.parts WHERE n = 4")
    lake.publish("second")
    for order in ("ASC", "DESC"):  # twice: the second time from what the first has restored
        look.require_no_version(
            f"CREATE OR REPLACE TABLE lake.deleted AS FROM lake.deleted ORDER BY a {order}",
            "CREATE TABLE lake.keep AS FROM lake.parts", "DROP TABLE lake.parts", "CREATE TABLE lake.parts (p VARCHAR, n INTEGER)",
            "ALTER TABLE lake.parts SET PARTITIONED BY (p)", "INSERT INTO lake.parts FROM lake.keep", "DROP TABLE lake.keep",
            "CREATE TABLE lake.keep AS FROM lake.grown", "DROP TABLE lake.grown", "ALTER TABLE lake.keep RENAME TO grown",
            "ALTER TABLE lake.grown ALTER b SET DEFAULT 'old'",
            "DROP SCHEMA lake.s CASCADE", "CREATE SCHEMA lake.s", "CREATE TABLE lake.s.t AS SELECT 1 AS a", "CREATE VIEW lake.s.v AS FROM lake.s.t",
            "DROP TABLE lake.empty", "CREATE TABLE lake.empty (a INTEGER)")
        in_another_process_nothing_differs(lake.attach_sql)
    look.require_version("INSERT INTO lake.s.t VALUES (2)", "INSERT INTO lake.parts VALUES ('p/1', 7), ('new', 8)", "DELETE FROM lake.deleted WHERE a = 1",
                         "INSERT INTO lake.grown VALUES (11, 'x')", changed=4)
    in_another_process_nothing_differs(lake.attach_sql)
    look.require_version("ALTER TABLE lake.grown DROP COLUMN b", "DELETE FROM lake.parts WHERE p = 'p/0'", "UPDATE lake.deleted SET a = -a", changed=3)
    in_another_process_nothing_differs(lake.attach_sql)


CHANGES = {
    "one duplicate more": ["INSERT INTO lake.t SELECT * FROM lake.t WHERE a = 1 LIMIT 1"],
    "one duplicate less": ["DELETE FROM lake.t WHERE rowid IN (SELECT max(rowid) FROM lake.t WHERE a = 3)"],
    "another duplicate, as many rows": ["UPDATE lake.t SET a = 1, b = 'x' WHERE rowid IN (SELECT max(rowid) FROM lake.t WHERE a = 3)"],
    "NULL for a value": ["UPDATE lake.t SET b = NULL WHERE a = 1"],
    "an empty text for NULL": ["UPDATE lake.t SET b = '' WHERE b IS NULL"],
    "upper case": ["UPDATE lake.t SET b = 'X' WHERE a = 1"],
    "a blank": ["UPDATE lake.t SET b = 'x ' WHERE a = 1"],
    "a combining accent": ["UPDATE lake.t SET b = 'x' || chr(769) WHERE a = 1"],
    "a wider type": ["ALTER TABLE lake.t ALTER a TYPE BIGINT"],
    "another type by rebuilding": ["CREATE OR REPLACE TABLE lake.t AS SELECT a::DOUBLE AS a, b FROM lake.t"],
    "the order of columns": ["CREATE OR REPLACE TABLE lake.t AS SELECT b, a FROM lake.t"],
    "a comment": ["COMMENT ON TABLE lake.t IS 'x'"],
    "a column's comment": ["COMMENT ON COLUMN lake.t.b IS 'x'"],
    "a default": ["ALTER TABLE lake.t ALTER a SET DEFAULT 3"],
    "nullability": ["ALTER TABLE lake.t ALTER a SET NOT NULL"],
    "a column": ["ALTER TABLE lake.t ADD COLUMN c INTEGER"],
    "a column's name": ["ALTER TABLE lake.t RENAME COLUMN a TO key"],
    "partitions": ["ALTER TABLE lake.t SET PARTITIONED BY (a)"],
    "sorting": ["ALTER TABLE lake.t SET SORTED BY (a)"],
}
OTHERS = {
    "a view": ["CREATE VIEW lake.w AS SELECT 1 AS one"],
    "a view's text": ["CREATE OR REPLACE VIEW lake.v AS SELECT a + 1 AS a FROM lake.t"],
    "a view's comment": ["COMMENT ON VIEW lake.v IS 'x'"],
    "a view less": ["DROP VIEW lake.v"],
    "a macro": ["CREATE MACRO lake.f(x) AS x + 1"],
    "a schema": ["CREATE SCHEMA lake.s"],
}


@pytest.mark.parametrize("what", [*CHANGES, *OTHERS])
def test_what_is_a_change(lake, look, open_session, repository, what):
    lake("CREATE TABLE lake.t AS SELECT * FROM (VALUES (1, 'x'), (2, NULL), (3, 'y'), (3, 'y')) v(a, b)")
    lake("CREATE VIEW lake.v AS SELECT a FROM lake.t; CREATE TABLE lake.still AS SELECT 1 AS a")
    lake.publish("first")
    look.require_version(*{**CHANGES, **OTHERS}[what], changed=1 if what in CHANGES else 0)
    # Once is enough, and a checkout of it is clean.
    look.require_no_version("CREATE OR REPLACE TABLE lake.still AS SELECT 1 AS a")
    other = open_session()
    other.checkout(repository.location, path="other.sqlite")
    assert other.fdl("commit", "lake", message="x")["committed"] is False
    assert other("SELECT * FROM lake.t ORDER BY ALL") == lake("SELECT * FROM lake.t ORDER BY ALL")


def test_values_that_equal_without_being_the_same(lake, look):
    """-0.0 equals 0.0 and an interval of a month equals one of 30 days: another value all the same, and a change."""
    lake("CREATE TABLE lake.f AS SELECT 0.0::DOUBLE AS d")
    lake("CREATE TABLE lake.i AS SELECT INTERVAL 1 MONTH AS i")
    lake("CREATE TABLE lake.nan AS SELECT 'nan'::DOUBLE AS d, 'nan'::FLOAT AS f, NULL::INTEGER AS n, [NULL, 'nan'::DOUBLE] AS l")
    lake.publish("first")
    look.require_no_version("CREATE OR REPLACE TABLE lake.nan AS FROM lake.nan")
    look.require_version("CREATE OR REPLACE TABLE lake.i AS SELECT INTERVAL 30 DAY AS i")
    assert lake.value("SELECT i::VARCHAR FROM lake.i") == "30 days"
    look.require_version("CREATE OR REPLACE TABLE lake.f AS SELECT -(0.0::DOUBLE) AS d")
    assert lake.value("SELECT d::VARCHAR FROM lake.f") == "-0.0"


@pytest.mark.everywhere
def test_rebuild_upon_rebuild(lake, look, open_session, repository, in_another_process_nothing_differs):
    """What was restored is rebuilt, written to, deleted from and published again, and equals every time."""
    make_tables(lake, range(3))
    lake.publish("first")
    for turn, order in enumerate(("DESC", "ASC")):
        look.require_no_version("CREATE OR REPLACE TABLE lake.t1 AS FROM lake.t1 ORDER BY b")
        before = lake.value("SELECT count(*) FROM lake.t0")
        lake(f"CREATE OR REPLACE TABLE lake.t0 AS FROM lake.t0 ORDER BY a {order}")
        look.require_no_version()
        assert lake.value("SELECT count(*) FROM lake.t0") == before
        look.require_version(f"INSERT INTO lake.t0 VALUES ({turn}, 'turn {turn}', {turn}), ({turn}, 'turn {turn}', {turn})")
        look.require_version(f"DELETE FROM lake.t0 WHERE a = {turn + 10}", f"UPDATE lake.t2 SET c = {turn} WHERE a = {turn + 5}", changed=2)
        in_another_process_nothing_differs(lake.attach_sql)
        other = open_session()
        sql = other.checkout(repository.location, path=f"turn{turn}.sqlite")["attach_sql"]
        assert other.fdl("status", "lake")["uncommitted"] is False
        in_another_process_nothing_differs(sql)
        assert sorted(map(repr, other("FROM lake.t0"))) == sorted(map(repr, lake("FROM lake.t0")))
        assert lake.value("SELECT count(DISTINCT rowid) = count(*) FROM lake.t0")


def test_force(lake, look, repository):
    make_tables(lake, range(2))
    lake.publish("first")
    files = look.published()
    done = lake.fdl("commit", "lake", message="all the same", force=True)
    assert (done["committed"], done["tables_changed"]) == (True, 0)
    assert lake.fdl("push", "lake")["files_uploaded"] == 0
    make_tables(lake, range(2), "DESC", again=True)
    done = lake.fdl("commit", "lake", message="rebuilt", force=True)
    assert (done["committed"], done["tables_changed"]) == (True, 0)
    assert lake.fdl("push", "lake")["files_uploaded"] == 0
    assert look.published() == look.working() == files
    assert look.versions() == 3


def test_the_working_catalog_goes_on_after_a_restore(lake, look, in_another_process_nothing_differs):
    """DuckLake's own functions, time travel and transactions work on what was restored."""
    make_tables(lake, range(2))
    lake("DELETE FROM lake.t0 WHERE a = 3")
    lake.publish("first")
    first = lake.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
    look.require_no_version("CREATE OR REPLACE TABLE lake.t0 AS FROM lake.t0 ORDER BY b", "CREATE OR REPLACE TABLE lake.t1 AS FROM lake.t1 ORDER BY b",
                            "INSERT INTO lake.t1 VALUES (1, 'no', 1)", "DELETE FROM lake.t1 WHERE b = 'no'")
    snapshots = lake("FROM ducklake_snapshots('lake')")
    ids = [row["snapshot_id"] for row in snapshots]
    assert ids == sorted(set(ids)) and all(row["changes"] for row in snapshots)
    info = {row["table_name"]: row["file_count"] for row in lake("FROM ducklake_table_info('lake')")}
    assert info == {"t0": 1, "t1": 1}
    for snapshot in ids:
        tables = lake.column("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'") if snapshot >= first else []
        for table in tables:
            count = lake.value(f"SELECT count(*) FROM lake.{table} AT (VERSION => {snapshot})")
            assert count in ((31,) if table == "t0" else (32, 33)), (table, snapshot)
    last = ids[-1]
    lake("INSERT INTO lake.t0 VALUES (77, 'after', 0)")
    changes = lake(f"SELECT change_type, a FROM ducklake_table_changes('lake', 'main', 't0', {last + 1}, {last + 1})")
    assert changes == [{"change_type": "insert", "a": 77}]
    lake("BEGIN"), lake("UPDATE lake.t0 SET c = 1 WHERE a = 77"), lake("ALTER TABLE lake.t1 ADD COLUMN d INTEGER"), lake("COMMIT")
    lake("CALL ducklake_merge_adjacent_files('lake')")
    lake("CHECKPOINT lake")
    lake("CALL ducklake_expire_snapshots('lake', older_than => now())")
    look.require_version(changed=2)
    in_another_process_nothing_differs(lake.attach_sql)


def scheduled(lake):
    """The names of the files that DuckLake will delete some day."""
    paths = lake.column("SELECT path FROM __ducklake_metadata_lake.main.ducklake_files_scheduled_for_deletion")
    return {path.split("/")[-1] for path in paths}


@pytest.mark.parametrize("how", ["merge", "rewrite", "rebuild"])
def test_what_was_restored_is_not_deleted_as_old(lake, look, open_session, repository, in_another_process_nothing_differs, how):
    """DuckLake has scheduled the parent's files for deletion; the table names them again, so they must stay."""
    lake("CREATE TABLE lake.t AS SELECT range AS a FROM range(100)")
    for number in range(3):
        lake(f"INSERT INTO lake.t VALUES ({number})")
    lake("DELETE FROM lake.t WHERE a > 90")
    lake.publish("first")
    lake({"merge": "CALL ducklake_merge_adjacent_files('lake')", "rewrite": "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
          "rebuild": "CREATE OR REPLACE TABLE lake.t AS FROM lake.t"}[how])
    lake("CALL ducklake_expire_snapshots('lake', older_than => now())")
    look.require_no_version()
    named = set().union(*look.working().values())
    assert not scheduled(lake) & {key.split("/")[-1] for key in named}
    lake("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert named <= set(repository.keys("data/"))
    in_another_process_nothing_differs(lake.attach_sql)
    assert lake.value("SELECT count(*) FROM lake.t") == 94


def test_a_rebuild_of_a_table_with_a_file_that_was_added(lake, look, open_session, repository, in_another_process_nothing_differs):
    """Such a file is read by the names of its columns, not by their numbers."""
    lake("CREATE TABLE lake.t (a INTEGER, b VARCHAR)")
    lake("INSERT INTO lake.t VALUES (1, 'own')")
    path = lake.data_path
    lake(f"COPY (SELECT 'second' AS b, 2 AS a) TO {quoted(path + 'added.parquet')}")
    lake(f"CALL ducklake_add_data_files('lake', 't', {quoted(path + 'added.parquet')})")
    lake.publish("first")
    look.require_no_version("CREATE OR REPLACE TABLE lake.t AS FROM lake.t ORDER BY a DESC")
    in_another_process_nothing_differs(lake.attach_sql)
    look.require_version("ALTER TABLE lake.t ADD COLUMN c INTEGER", "INSERT INTO lake.t VALUES (3, 'third', 3)", "DELETE FROM lake.t WHERE a = 2")
    assert sorted(lake.column("SELECT a FROM lake.t")) == [1, 3]
    in_another_process_nothing_differs(lake.attach_sql)
    # In a checkout made anew as well.
    other = open_session()
    sql = other.checkout(repository.location, path="other.sqlite")["attach_sql"]
    other("CREATE TABLE lake.keep AS FROM lake.t; DELETE FROM lake.t; INSERT INTO lake.t FROM lake.keep ORDER BY a DESC; DROP TABLE lake.keep")
    assert other.fdl("commit", "lake", message="same")["committed"] is False
    in_another_process_nothing_differs(sql)


@pytest.mark.parametrize("column", ["__fdl_weight", "weight", "rowid2", "COUNT", "a b", "filename"])
def test_a_column_of_any_name(lake, look, column):
    lake(f'CREATE TABLE lake.t AS SELECT 1 AS "{column}", 2 AS other')
    lake.publish("first")
    look.require_no_version("CREATE OR REPLACE TABLE lake.t AS FROM lake.t")


def test_types_that_are_not_compared_every_day(lake, look):
    lake("""CREATE TABLE lake.t AS SELECT {'a': [1, NULL]}::VARIANT AS v, '{"b": 1}'::JSON AS j, 'POINT(1 2)'::GEOMETRY AS g, MAP {1: NULL::BLOB} AS m""")
    lake.publish("first")
    look.require_no_version("CREATE OR REPLACE TABLE lake.t AS FROM lake.t")
    look.require_version("CREATE OR REPLACE TABLE lake.t AS SELECT {'a': [2, NULL]}::VARIANT AS v, * EXCLUDE (v) FROM lake.t")
