"""Versions one after another: tables change their shape and lose rows, files are merged and added; every version stays what it was."""

import os
import shutil

import pytest

from story import call, quoted


@pytest.fixture
def lake(open_session, repository):
    session = open_session()
    session.attach_sql = session.checkout(repository.location)["attach_sql"]
    return session


class History:
    """Publishes a version after each step and remembers what it held; `require` looks again at every one of them."""

    def __init__(self, lake, repository, nothing_differs):
        self.lake, self.repository, self.nothing_differs = lake, repository, nothing_differs
        self.versions = {}

    def contents(self, alias):
        tables = self.lake.column(f"SELECT table_name FROM duckdb_tables() WHERE database_name = {quoted(alias)} ORDER BY ALL")
        return {table: sorted(map(repr, self.lake(f'FROM {alias}."{table}"'))) for table in tables}

    def publish(self, *statements, message="step"):
        for statement in statements:
            self.lake(statement)
        held = self.contents("lake")
        pushed = self.lake.publish(message)
        assert self.contents("lake") == held
        self.versions[pushed["new_version"]] = held
        return pushed

    def require(self, open_session=None):
        self.nothing_differs(self.lake.attach_sql)
        for version, held in self.versions.items():
            self.lake.fdl("attach", self.repository.location, ref=version, alias="published")
            assert self.contents("published") == held
        self.lake("DETACH published")


@pytest.fixture
def history(lake, repository, in_another_process_nothing_differs):
    return History(lake, repository, in_another_process_nothing_differs)


def test_schema_changes_over_old_files(history, lake, open_session, repository):
    history.publish("CREATE TABLE lake.t AS SELECT range::INTEGER AS a, 'row ' || range AS b, range * 1.5 AS c FROM range(20)")
    for statements in (
            ["ALTER TABLE lake.t ADD COLUMN d VARCHAR DEFAULT 'old'"],
            ["INSERT INTO lake.t VALUES (100, 'new', 1.0, NULL)", "ALTER TABLE lake.t DROP COLUMN b"],
            ["ALTER TABLE lake.t RENAME COLUMN c TO b"],  # the name of a column that is gone
            ["ALTER TABLE lake.t ALTER a TYPE BIGINT", "INSERT INTO lake.t VALUES (5000000000, 2.0, 'wide')"],
            ["ALTER TABLE lake.t RENAME TO u", "ALTER TABLE lake.u ADD COLUMN e INTEGER[]"],
            ["ALTER TABLE lake.u ALTER d SET DEFAULT 'newer'", "INSERT INTO lake.u (a) VALUES (7)"],
            ["ALTER TABLE lake.u ALTER a SET NOT NULL", "UPDATE lake.u SET e = [1, 2] WHERE a > 100"],
            ["CREATE TABLE lake.t AS SELECT 'another one' AS a"],  # the name of a table that was renamed
            ["DROP TABLE lake.u", "ALTER TABLE lake.t RENAME TO u"]):
        history.publish(*statements)
    history.require()
    # A checkout of each goes on from there as if it were the only one.
    for back in range(0, 10, 3):
        other = open_session()
        other.checkout(repository.location, ref=f"main~{back}", path=f"back{back}.sqlite", alias="old")
        (table,) = set(other.column("SELECT table_name FROM duckdb_tables() WHERE database_name = 'old'")) - {"t" if back == 1 else ""}
        count = other.value(f"SELECT count(*) FROM old.{table}")
        other(f"INSERT INTO old.{table} SELECT * FROM old.{table} LIMIT 1; DELETE FROM old.{table} WHERE rowid IN (SELECT min(rowid) FROM old.{table})")
        other.publish("on", lake="old", ref=f"from-{back}")
        assert other.value(f"SELECT count(*) FROM old.{table}") == count


def test_fields_of_structs_change(history):
    history.publish("CREATE TABLE lake.t AS SELECT {'x': range, 'y': 'y' || range, 'in': {'z': [range]}} AS s FROM range(5)")
    history.publish("ALTER TABLE lake.t ADD COLUMN s.w INTEGER", "INSERT INTO lake.t VALUES ({'x': 9, 'y': 'n', 'in': {'z': []}, 'w': 1})")
    history.publish("ALTER TABLE lake.t DROP COLUMN s.y")
    history.publish("ALTER TABLE lake.t RENAME COLUMN s.x TO v", "INSERT INTO lake.t VALUES (NULL)")
    history.require()


def test_deletes_and_updates(history, lake, repository):
    history.publish("CREATE TABLE lake.t AS SELECT range AS a, range % 10 AS b FROM range(1000)")
    first = {row["path"]: row["bytes"] for row in lake.table("files", repository.location)}
    for number in range(4):  # several on one file: each version has its own list of deleted rows
        pushed = history.publish(f"DELETE FROM lake.t WHERE b = {number}")
        assert pushed["files_uploaded"] == 1
    (file,) = lake.table("files", repository.location)
    assert file["path"] in first and file["rows"] == 1000 and file["deleted_rows"] == 400
    history.publish("UPDATE lake.t SET b = -1 WHERE a < 50", "INSERT INTO lake.t VALUES (0, 0)")
    history.publish("DELETE FROM lake.t WHERE a >= 500", "DELETE FROM lake.t WHERE a < 500 AND b = 5", "UPDATE lake.t SET a = a + 1 WHERE b = 6")
    history.publish("DELETE FROM lake.t")
    history.publish("INSERT INTO lake.t VALUES (1, 1)")
    history.publish("TRUNCATE lake.t")
    history.publish("MERGE INTO lake.t USING (SELECT range AS a FROM range(5)) s ON t.a = s.a WHEN NOT MATCHED THEN INSERT VALUES (s.a, 0)",
                    "MERGE INTO lake.t USING (SELECT 3 AS a) s ON t.a = s.a WHEN MATCHED THEN DELETE")
    history.require()
    rows = [entry["rows"] for entry in reversed(lake.table("log", repository.location))]
    assert rows[:6] == [1000, 900, 800, 700, 600, 601] and rows[-4:] == [0, 1, 0, 4]


COMPACTIONS = {
    "merge": "CALL ducklake_merge_adjacent_files('lake')",
    "rewrite": "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "checkpoint": "CHECKPOINT lake",
    "expire": "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "default clean-up": "CALL ducklake_cleanup_old_files('lake')",
    "default orphans": "CALL ducklake_delete_orphaned_files('lake')",
}


def test_compaction_between_commits_takes_no_file_from_another_version(history, lake, repository):
    history.publish("CREATE TABLE lake.t AS SELECT range AS a FROM range(100)", "CREATE TABLE lake.u AS SELECT 1 AS a",
                    "ALTER TABLE lake.u SET PARTITIONED BY (a)")
    for number in range(4):
        history.publish(f"INSERT INTO lake.t SELECT {number} FROM range(10)", f"INSERT INTO lake.u VALUES ({number % 2})",
                        f"DELETE FROM lake.t WHERE a = {50 + number}")
    lake.fdl("branch", repository.location, name="kept")
    files = set(repository.keys("data/"))
    for what, statement in COMPACTIONS.items():
        lake(statement)
        assert files <= set(repository.keys("data/")), what
    history.require()
    # The rows are what they were, so no version is made of it: the parent's files are as good.
    count = len(history.versions)
    assert lake.fdl("commit", "lake", message="compacted")["committed"] is False
    assert len(lake.table("log", repository.location)) == count
    history.publish("INSERT INTO lake.t VALUES (1000)", "DELETE FROM lake.u WHERE a = 0")
    for statement in (*COMPACTIONS.values(), "INSERT INTO lake.t VALUES (1001)", "CALL ducklake_merge_adjacent_files('lake')"):
        lake(statement)
    history.publish()
    assert files <= set(repository.keys("data/"))
    history.require()


def test_a_checkpoint_leaves_branches_that_the_working_catalog_does_not_know(history, lake, open_session, repository):
    history.publish("CREATE TABLE lake.t AS SELECT 1 AS a")
    other = open_session()
    other.checkout(repository.location, path="other.sqlite")
    other("INSERT INTO lake.t VALUES (2)")
    theirs = other.publish("theirs", ref="theirs")["new_version"]
    if hasattr(repository, "path"):  # DuckLake takes what is older than two days for nobody's
        for key in repository.keys("data/"):
            os.utime(repository.path / key, (0, 0))
    for statement in COMPACTIONS.values():
        lake(statement)
    lake.fdl("attach", repository.location, ref=theirs, alias="theirs")
    assert lake.column("FROM theirs.t ORDER BY a") == [1, 2]
    history.require()


def test_a_data_file_that_was_added(history, lake, open_session, repository, bare):
    """By ducklake_add_data_files, which names a file by its absolute path; a version names it by its place in the data folder."""
    history.publish("CREATE TABLE lake.t (a INTEGER, b VARCHAR)", "INSERT INTO lake.t VALUES (1, 'own')", "CREATE TABLE lake.other AS SELECT 1 AS x")
    data_path = lake.fdl("url", repository.location)["data_path"]
    for number, place in enumerate(("main/t/added.parquet", "elsewhere/deep/added.parquet", "top.parquet", "main/other/mixed up.parquet")):
        if hasattr(repository, "path"):
            (repository.path / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        lake(f"COPY (SELECT {number + 10} AS a, {quoted(place)} AS b) TO {quoted(data_path + place)}")
        lake(f"CALL ducklake_add_data_files('lake', 't', {quoted(data_path + place)})")
        pushed = history.publish("INSERT INTO lake.t VALUES (2, 'own again')")
        assert pushed["files_uploaded"] == 2
        assert "data/" + place in [row["path"] for row in lake.table("files", repository.location)]
    history.require()
    # They live on like all others: rows deleted, a checkout elsewhere, more rows in the table's own folder.
    other = open_session()
    other.checkout(repository.location, path="other.sqlite", alias="mine")
    assert other.value("SELECT count(*) FROM mine.t") == 9
    other("DELETE FROM mine.t WHERE b LIKE '%.parquet' AND a > 11; INSERT INTO mine.t VALUES (3, 'more'); INSERT INTO mine.other VALUES (2)")
    other.publish("on", lake="mine")
    assert other.fdl("status", "mine")["uncommitted"] is False
    lake.checkout(repository.location)
    history.require()
    assert sorted(lake.column("SELECT a FROM lake.t")) == [1, 2, 2, 2, 2, 3, 10, 11]
    assert lake.column("FROM lake.other ORDER BY x") == [1, 2]


def test_a_data_file_outside_the_data_folder(history, lake, repository, bare):
    history.publish("CREATE TABLE lake.t AS SELECT 1 AS a")
    versions = repository.keys("versions/")
    lake("COPY (SELECT 2 AS a) TO 'outside.parquet'")
    outside = bare / "outside.parquet"
    lake(f"CALL ducklake_add_data_files('lake', 't', {quoted(outside)})")
    message = lake.refused(call("push", "lake", message="x"), "FDL-BAD-PATH")
    assert "outside.parquet" in message
    assert repository.keys("versions/") == versions
    assert lake.fdl("status", "lake")["ahead"] == 0
    data_path = lake.fdl("url", repository.location)["data_path"]
    if hasattr(repository, "path"):
        shutil.copy(outside, repository.path / "up.parquet")
        lake("DELETE FROM lake.t WHERE a = 2")
        history.publish("UPDATE lake.t SET a = 3")
        lake(f"CALL ducklake_add_data_files('lake', 't', {quoted(data_path + '../up.parquet')})")
        lake.refused(call("push", "lake", message="x"), "FDL-BAD-PATH")
    # What the hint says works.
    lake("CREATE OR REPLACE TABLE lake.t AS SELECT * FROM lake.t")
    history.publish()
    history.require()


def test_keep_snapshots(lake, open_session, repository, in_another_process_nothing_differs):
    lake("CREATE TABLE lake.t AS SELECT 1 AS a")
    lake("INSERT INTO lake.t VALUES (2)")
    before = lake.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
    lake("DELETE FROM lake.t WHERE a = 1")
    lake("CREATE OR REPLACE TABLE lake.u AS SELECT 'gone' AS u")
    lake("DROP TABLE lake.u")
    assert lake.fdl("commit", "lake", message="with its history", keep_snapshots=True)["committed"]
    lake.fdl("push", "lake")
    in_another_process_nothing_differs(lake.attach_sql)
    reader = open_session()
    reader.fdl("attach", repository.location, alias="published")
    assert reader.column(f"FROM published.t AT (VERSION => {before}) ORDER BY a") == [1, 2]
    assert reader.column(f"FROM published.u AT (VERSION => {before + 2})") == ["gone"]
    assert reader.column("FROM published.t") == [2]
    # A version without: one snapshot, as always; and the files of the old one stay where they are.
    lake("INSERT INTO lake.t VALUES (3)")
    lake.publish("without")
    reader.fdl("attach", repository.location, alias="published")
    assert len(reader("FROM ducklake_snapshots('published')")) == 1
    reader.fdl("attach", repository.location, ref="main~1", alias="published")
    assert reader.column(f"FROM published.t AT (VERSION => {before}) ORDER BY a") == [1, 2]
    # A checkout of it keeps travelling as well.
    other = open_session()
    other.checkout(repository.location, ref="main~1", path="other.sqlite", alias="old")
    assert other.column(f"FROM old.t AT (VERSION => {before}) ORDER BY a") == [1, 2]
