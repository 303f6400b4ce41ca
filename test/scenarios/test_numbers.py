"""Numbers that DuckLake gives are never given twice: what was dropped does not come back under another name, in whatever checkout."""

import pytest

from session import quoted

VERSIONS = ["1.5.5", "1.4.4"]

PRELUDE = """
from story import *
at = {location!r}
copies = iter(range(100))
def fresh():
    "A session with a checkout made anew."
    session = Session()
    session({setup!r})
    session.checkout(at, path=f"fresh{{next(copies)}}.sqlite")
    return session
def read(sql, ref=None):
    "What a reader of the published version sees."
    session = Session()
    session({setup!r})
    session.fdl("attach", at, alias="seen", ref=ref)
    return session(sql)
s = fresh()
"""


@pytest.fixture(params=VERSIONS)
def told(request, python, repository):
    """`told(code)` runs code in that DuckDB, in a checkout `s`, and gives what it says last."""
    prelude = PRELUDE.format(location=repository.location, setup=repository.setup)
    return lambda code: python(prelude + code, request.param).rows


CASES = {
    "a column": ("id INTEGER, salary INTEGER", "(1, 1000), (2, 2000)", "DROP COLUMN salary", "ADD COLUMN points INTEGER", "points"),
    "another type": ("id INTEGER, secret VARCHAR", "(1, 'a'), (2, 'b')", "DROP COLUMN secret", "ADD COLUMN points INTEGER", "points"),
    "the same name": ("id INTEGER, salary INTEGER", "(1, 1000), (2, 2000)", "DROP COLUMN salary", "ADD COLUMN salary INTEGER", "salary"),
    "a field": ("id INTEGER, s STRUCT(a INTEGER, salary INTEGER)", "(1, {'a': 1, 'salary': 1000}), (2, {'a': 2, 'salary': 2000})",
                "DROP COLUMN s.salary", "ADD COLUMN s.points INTEGER", "s.points"),
    "a struct for a column": ("id INTEGER, s STRUCT(a INTEGER, b INTEGER)", "(1, {'a': 1, 'b': 2}), (2, {'a': 3, 'b': 4})",
                              "DROP COLUMN s", "ADD COLUMN points INTEGER", "points"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_dropped_column_does_not_come_back(told, case):
    columns, values, drop, add, new = CASES[case]
    assert told(f"""
s("CREATE TABLE lake.t ({columns})"), s("INSERT INTO lake.t VALUES {values}"), s.publish("one")
s("ALTER TABLE lake.t {drop}"), s.publish("two")
names = read("SELECT column_name FROM __ducklake_metadata_seen.main.ducklake_column")
assert all(row["column_name"] not in ("salary", "secret", "b") for row in names), names
s = fresh()  # through a version of another checkout as well
s("INSERT INTO lake.t (id) VALUES (10)"), s.publish("three")
s = fresh()
s("ALTER TABLE lake.t {add}")
assert s.column("SELECT {new} FROM lake.t") == [None] * 3
s("UPDATE lake.t SET id = id + 1 WHERE id = 1"), s.publish("four")
say(read("SELECT id, {new} AS new FROM seen.t ORDER BY ALL") + s.table("fsck", at, depth="content"))
""") == [{"id": 2, "new": None}, {"id": 2, "new": None}, {"id": 10, "new": None}]


def test_ducklake_goes_on_with_what_has_dropped_columns(told):
    """Reading, altering, merging, expiring and travelling in time, in a checkout and in versions with DuckLake's own snapshots."""
    assert told("""
s("CREATE TABLE lake.t (id INTEGER, salary INTEGER)")
for turn in range(3):
    s(f"INSERT INTO lake.t VALUES ({turn}, 1000)")
s.publish("one"), s("ALTER TABLE lake.t DROP COLUMN salary"), s.publish("two")
s = fresh()
start = s.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
s("ALTER TABLE lake.t ADD COLUMN points INTEGER"), s("INSERT INTO lake.t VALUES (3, 30)"), s("DELETE FROM lake.t WHERE id = 0")
assert [row["file_count"] for row in s("FROM ducklake_table_info('lake')")] == [3]
assert s(f"FROM lake.t AT (VERSION => {start}) ORDER BY id") == [{"id": 0}, {"id": 1}, {"id": 2}]
s("CALL ducklake_merge_adjacent_files('lake')"), s("CALL ducklake_expire_snapshots('lake', older_than => now())")
s("ALTER TABLE lake.t RENAME COLUMN points TO score"), s("ALTER TABLE lake.t ADD COLUMN more INTEGER DEFAULT 7")
s.fdl("commit", "lake", message="kept", keep_snapshots=True), s.fdl("push", "lake")
s = fresh()
s("ALTER TABLE lake.t DROP COLUMN more"), s.publish("last")
s = fresh()
s("ALTER TABLE lake.t ADD COLUMN another INTEGER"), s("CALL ducklake_merge_adjacent_files('lake')"), s.publish("and one")
say(read("FROM seen.t ORDER BY id"))
""") == [{"id": 1, "score": None, "another": None}, {"id": 2, "score": None, "another": None}, {"id": 3, "score": 30, "another": None}]


def test_a_table_that_was_given_back_knows_its_numbers(told):
    """Rebuilt, with DuckLake's own snapshots expired: nothing in the working catalog tells any more what the parent's table had."""
    assert told("""
s("CREATE TABLE lake.t AS SELECT 1 AS id, 1000 AS salary"), s.publish("one")
s("ALTER TABLE lake.t DROP COLUMN salary"), s.publish("two")
s = fresh()
s("CREATE OR REPLACE TABLE lake.t AS SELECT 1 AS id"), s("CALL ducklake_expire_snapshots('lake', older_than => now())")
assert s.fdl("commit", "lake", message="the same")["committed"] is False
s("ALTER TABLE lake.t ADD COLUMN points INTEGER"), s.publish("three")
say(read("FROM seen.t"))
""") == [{"id": 1, "points": None}]


def test_a_version_that_lost_the_number(told):
    """An older fdl published it: the files' statistics tell the number."""
    assert told("""
s("CREATE TABLE lake.t AS SELECT 1 AS id, 1000 AS salary"), s.publish("one")
s("ALTER TABLE lake.t DROP COLUMN salary")
version = s.publish("two")["new_version"]
s.close()
import hashlib
from pathlib import Path
catalog = Path(at, "versions", version, "ducklake.duckdb")
connection = duckdb.connect(str(catalog))
assert connection.execute("DELETE FROM ducklake_column WHERE end_snapshot IS NOT NULL").fetchall() == [(1,)]
connection.execute("CHECKPOINT")
connection.close()
record = Path(at, "versions", version, "version.json")
value = json.loads(record.read_text())
value.update(sha256=hashlib.sha256(catalog.read_bytes()).hexdigest(), size=catalog.stat().st_size)
record.write_text(json.dumps(value))
s = Session()
s.checkout(at, path="anew.sqlite")
s("ALTER TABLE lake.t ADD COLUMN points INTEGER"), s.publish("three")
say(read("FROM seen.t"))
""") == [{"id": 1, "points": None}]


@pytest.mark.parametrize("kept", [False, True])
def test_no_number_is_given_twice(told, kept):
    """Every kind of thing that has a number is made, published and dropped, again and again in a checkout made anew."""
    assert told(f"kept = {kept}" + """
KINDS = {"schema_id": ["schema"], "table_id": ["table"], "view_id": ["view"], "macro_id": ["macro"], "partition_id": ["partition_info"],
         "sort_id": ["sort_info"], "data_file_id": ["data_file"], "delete_file_id": ["delete_file"], "mapping_id": ["column_mapping"]}
new = s.value("SELECT count(*) FROM duckdb_columns() WHERE table_name = 'ducklake_macro'") > 0
given, snapshots, rows = {}, [], []
for turn in range(3):
    s = fresh()
    s(f"CREATE SCHEMA lake.s{turn}"), s(f"CREATE TABLE lake.s{turn}.t (turn INTEGER, p INTEGER)"), s(f"CREATE VIEW lake.s{turn}.v AS SELECT 1 AS one")
    s(f"ALTER TABLE lake.s{turn}.t SET PARTITIONED BY (p)")
    if new:
        s(f"CREATE MACRO lake.s{turn}.f(x) AS x + 1"), s(f"ALTER TABLE lake.s{turn}.t SET SORTED BY (turn)")
    s(f"INSERT INTO lake.s{turn}.t SELECT {turn}, range % 2 FROM range(10)"), s(f"DELETE FROM lake.s{turn}.t WHERE rowid = 3")
    s("CREATE TABLE IF NOT EXISTS lake.stays (turn INTEGER)"), s(f"INSERT INTO lake.stays VALUES ({turn})")
    if turn:
        s("DELETE FROM lake.stays WHERE turn = 0")
    added = f"{s.fdl('checkout', at, path='other.sqlite', alias='other')['data_path']}added{turn}.parquet"
    s(f"COPY (SELECT {turn} AS turn) TO {quoted(added)}"), s(f"CALL ducklake_add_data_files('lake', 'stays', {quoted(added)})")
    metadata = "__ducklake_metadata_lake.main.ducklake"
    for key, tables in KINDS.items():
        for table in tables:
            if not new and table in ("macro", "sort_info"):
                continue
            what = {"schema": "schema_name", "table": "table_uuid", "view": "view_uuid", "macro": "schema_id", "partition_info": "table_id",
                    "sort_info": "table_id", "data_file": "path", "delete_file": "path", "column_mapping": "table_id"}[table]
            kind = "catalog" if table in ("schema", "table", "view", "macro", "partition_info", "sort_info") else "file"
            for row in s(f"SELECT DISTINCT {key} AS id, {what}::VARCHAR AS what FROM {metadata}_{table}"):
                given.setdefault((kind, row["id"]), set()).add((table, row["what"].split("/")[-1]))
    rows += s.column("SELECT rowid FROM lake.stays WHERE turn = " + str(turn))
    snapshots.append(s.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')"))
    s.fdl("commit", "lake", message=f"turn {turn}", keep_snapshots=kept), s.fdl("push", "lake")
    s = fresh()
    snapshots.append(s.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')"))
    s(f"DROP SCHEMA lake.s{turn} CASCADE"), s.publish("dropped")
twice = {str(key): sorted(what) for key, what in given.items() if len(what) > 1}
assert len(given) > 20 and len(set(rows)) == len(rows) and snapshots == sorted(snapshots), (len(given), rows, snapshots)
say(list(twice.items()))
""") == []
