"""What a version holds is one thing for commit, push, status, diff, checkout: a change that a reader can see is none that is lost."""

import pytest

PRELUDE = """
from story import *
at, setup = {location!r}, {setup!r}
copies = iter(range(100))
def fresh():
    "A session with a checkout made anew."
    session = Session()
    session(setup), session.checkout(at, path=f"fresh{{next(copies)}}.sqlite")
    return session
def read(sql):
    "What a reader of the published version sees."
    session = Session()
    session(setup), session.fdl("attach", at, alias="seen")
    return session(sql)
def change(table="t"):
    rows = [row for row in s.table("diff", "lake") if row["name"] == table]
    return [rows[0][key] for key in ("change", "rows_added", "rows_removed")] if rows else None
def require_change(tables=1):
    "Everybody who is asked sees it, until it is published; then nobody does."
    status = s.fdl("status", "lake")
    assert (status["uncommitted"], status["tables_changed"]) == (True, tables), status
    s.refused(f"CALL fdl_checkout({{quoted(at)}}, alias := 'lake', path := {{quoted(status['path'])}})", "FDL-DIRTY")
    assert s.publish("changed")
    assert s.fdl("status", "lake")["uncommitted"] is False
    assert s.fdl("commit", "lake", message="again")["committed"] is False
    s.checkout(at, path=status["path"])
def require_no_change():
    assert s.fdl("status", "lake")["uncommitted"] is False
    done = s.fdl("commit", "lake", message="the same")
    assert (done["committed"], done["tables_changed"]) == (False, 0), done
    assert s.fdl("status", "lake")["uncommitted"] is False
METADATA = "__ducklake_metadata_lake.main.ducklake"
def numbers(table="t"):
    return s.column(f"SELECT column_id FROM {{METADATA}}_column c JOIN {{METADATA}}_table t USING (table_id) "
                    f"WHERE t.table_name = '{{table}}' AND t.end_snapshot IS NULL AND c.end_snapshot IS NULL ORDER BY 1")
def options(catalog=METADATA):
    "Options by what they were set for, by name."
    return sorted(s.column(f"SELECT coalesce(t.table_name, h.schema_name, 'all') || ' ' || m.key || ' ' || m.value FROM {{catalog}}_metadata m "
                           f"LEFT JOIN {{catalog}}_table t ON m.scope = 'table' AND t.table_id = m.scope_id AND t.end_snapshot IS NULL "
                           f"LEFT JOIN {{catalog}}_schema h ON m.scope = 'schema' AND h.schema_id = m.scope_id AND h.end_snapshot IS NULL "
                           f"WHERE starts_with(m.key, 'parquet_')"))
s = fresh()
"""


@pytest.fixture(params=["1.5.5", "1.4.4"])
def told(request, python, repository):
    """`told(code)` runs code in that DuckDB, in a checkout `s`, and gives what it says last."""
    prelude = PRELUDE.format(location=repository.location, setup=repository.setup)
    return lambda code: python(prelude + code, request.param).rows


def test_dropped_and_added_again_under_one_name(told):
    assert told("""
s("CREATE TABLE lake.t AS SELECT range AS id, {'a': 1, 'b': range} AS s, 'private' AS note FROM range(2)"), s.publish("one")
s("ALTER TABLE lake.t DROP COLUMN note"), s("ALTER TABLE lake.t ADD COLUMN note VARCHAR")
s("CREATE OR REPLACE TABLE lake.other AS SELECT 1 AS one")
assert [row["note"] for row in s("FROM lake.t")] == [None, None]
assert change() == ["rows", 2, 2], change()
require_change(2)
assert read("SELECT DISTINCT note FROM seen.t") == [{"note": None}]
s("ALTER TABLE lake.t DROP COLUMN s.b"), s("ALTER TABLE lake.t ADD COLUMN s.b BIGINT")
assert change() == ["rows", 2, 2], change()
require_change()
say(read("SELECT id, note, s.b AS b FROM seen.t ORDER BY id"))
""") == [{"id": 0, "note": None, "b": None}, {"id": 1, "note": None, "b": None}]


def test_another_initial_default(told):
    assert told("""
s("CREATE TABLE lake.t AS SELECT range AS id FROM range(2)")
s("ALTER TABLE lake.t ADD COLUMN c INTEGER DEFAULT 1"), s.publish("one")
s("ALTER TABLE lake.t DROP COLUMN c"), s("ALTER TABLE lake.t ADD COLUMN c INTEGER DEFAULT 2"), s("ALTER TABLE lake.t ALTER c SET DEFAULT 1")
assert change() == ["rows", 2, 2], change()
require_change()
say(read("SELECT c FROM seen.t"))
""") == [{"c": 2}, {"c": 2}]


def test_what_reads_the_same_is_no_change(told):
    """Other numbers and the same rows: the parent's files and numbers come back, and the working copy goes on from there."""
    assert told("""
s("CREATE TABLE lake.t AS SELECT range AS id, NULL::INTEGER AS c FROM range(2)"), s("CREATE TABLE lake.none (id INTEGER, c INTEGER)")
s.publish("one")
before = numbers()
s("ALTER TABLE lake.t DROP COLUMN c"), s("ALTER TABLE lake.t ADD COLUMN c INTEGER")
s("ALTER TABLE lake.none DROP COLUMN c"), s("ALTER TABLE lake.none ADD COLUMN c INTEGER")
assert numbers() != before and change() == ["same", 0, 0], (before, numbers(), change())
require_no_change()
assert numbers() == before
s("INSERT INTO lake.t VALUES (2, 5)"), s("INSERT INTO lake.none VALUES (1, 2)"), s("ALTER TABLE lake.t ADD COLUMN d INTEGER")
assert max(numbers()) == 4
require_change(2)
say(read("FROM seen.t ORDER BY id") + read("FROM seen.none"))
""") == [{"id": 0, "c": None, "d": None}, {"id": 1, "c": None, "d": None}, {"id": 2, "c": 5, "d": None}, {"id": 1, "c": 2}]


def test_an_added_file_whose_columns_are_others_now(told):
    """Such a file is read by a name mapping, which leads to other columns."""
    assert told("""
s("CREATE TABLE lake.t (id INTEGER, a INTEGER)")
path = quoted(s.fdl("checkout", at, alias="o", path="o.sqlite")["data_path"] + "added.parquet")
add = f"CALL ducklake_add_data_files('lake', 't', {path})"
s(f"COPY (SELECT 1 AS id, 7 AS a) TO {path}"), s(add), s.publish("one")
s("DELETE FROM lake.t"), s("ALTER TABLE lake.t DROP COLUMN a"), s("ALTER TABLE lake.t ADD COLUMN a INTEGER"), s(add)
assert s("FROM lake.t") == [{"id": 1, "a": 7}]
require_no_change()
assert s("FROM lake.t") == [{"id": 1, "a": 7}]
say(read("FROM seen.t"))
""") == [{"id": 1, "a": 7}]


def test_options_are_part_of_a_version(told):
    assert told("""
s("CREATE TABLE lake.t AS SELECT 1 AS id"), s("CREATE TABLE lake.u AS SELECT 1 AS id"), s("CREATE SCHEMA lake.h"), s.publish("one")
s("CALL lake.set_option('parquet_compression', 'zstd', table_name => 't')")
assert change() == ["schema", 0, 0], change()
require_change()
s("CALL lake.set_option('parquet_compression', 'gzip')"), require_change(0)
s("CALL lake.set_option('parquet_compression', 'lz4', schema => 'h')"), require_change(0)
s("CALL lake.set_option('parquet_compression', 'snappy')"), require_change(0)
s("CALL lake.set_option('parquet_compression', 'snappy')"), require_no_change()
s("CALL lake.set_option('delete_older_than', '900 years')"), require_no_change()
s = fresh()
held = options()
assert held == ["all parquet_compression snappy", "h parquet_compression lz4", "t parquet_compression zstd"], held
s("INSERT INTO lake.t VALUES (2)"), s("INSERT INTO lake.u VALUES (2)")
s("DROP TABLE lake.u"), s.publish("two")
say(options())
""") == ["all parquet_compression snappy", "h parquet_compression lz4", "t parquet_compression zstd"]


def test_a_table_that_is_given_its_files_back_keeps_its_options(told):
    assert told("""
s("CREATE TABLE lake.t AS SELECT 1 AS id"), s("CALL lake.set_option('parquet_compression', 'zstd', table_name => 't')"), s.publish("one")
s("CREATE OR REPLACE TABLE lake.t AS SELECT 1 AS id")
assert change()[0] == "schema"
s("CALL lake.set_option('parquet_compression', 'zstd', table_name => 't')")
require_no_change()
assert options() == ["t parquet_compression zstd"], options()
s("CREATE OR REPLACE TABLE lake.t AS SELECT 1 AS id")
require_change()
s = fresh()
say(options() + ["none"])
""") == ["none"]


@pytest.mark.parametrize("disabled", ["filter_pushdown", "all"])
def test_nothing_depends_on_the_optimizer(told, disabled):
    """`disabled_optimizers` holds for the whole instance, fdl's own statements included."""
    assert told(f"disabled = {disabled!r}" + """
s("CREATE TABLE lake.t AS SELECT 1 AS id"), s("CREATE VIEW lake.v AS FROM lake.t"), s.publish("one")
if disabled == "all":
    disabled = ",".join(s.column("SELECT name FROM duckdb_optimizers()"))
s(f"SET disabled_optimizers = {quoted(disabled)}")
s("INSERT INTO lake.t VALUES (2)")
assert change() == ["rows", 1, 0], change()
require_change()
s("CREATE OR REPLACE TABLE lake.t AS FROM lake.t ORDER BY id DESC"), require_no_change()
assert s.table("fsck", at, depth="content") == []
say(read("FROM seen.t ORDER BY id"))
""") == [{"id": 1}, {"id": 2}]


def test_inlined_rows_that_are_gone_are_in_nothing_that_is_published(told):
    """DuckLake keeps small inserts inside the catalog, and a deleted one until it is flushed: to a file whose statistics have it."""
    assert told("""
path = s.fdl("status", "lake")["path"]
s("DETACH lake"), s(f"ATTACH {quoted('ducklake:sqlite:' + path)} AS lake (META_JOURNAL_MODE 'WAL', DATA_INLINING_ROW_LIMIT 10)")
s("CREATE TABLE lake.t (id INTEGER, note VARCHAR)"), s("CREATE TABLE lake.u (id INTEGER, note VARCHAR)")
s("INSERT INTO lake.t VALUES (1, 'kept'), (2, 'zz-hush')"), s("DELETE FROM lake.t WHERE id = 2"), s("UPDATE lake.t SET id = 3 WHERE id = 1")
s("INSERT INTO lake.u VALUES (1, 'zz-hush')"), s("DELETE FROM lake.u")
s.publish("one")
from pathlib import Path
mark = s.value("SELECT max(value) FROM __ducklake_metadata_lake.main.ducklake_metadata WHERE key = 'fdl_checkout'").encode()
for hidden in (b"zz-hush", mark):
    assert [str(file) for file in Path(at).rglob("*") if file.is_file() and hidden in file.read_bytes()] == []
assert s("SELECT count(*) AS n, max(note) AS note FROM lake.t") == [{"n": 1, "note": "kept"}], s("FROM lake.t")
s("INSERT INTO lake.t VALUES (4, 'later')"), s("DELETE FROM lake.t WHERE id = 3")
assert s.fdl("status", "lake")["uncommitted"] is True
s.publish("two")
assert s.fdl("status", "lake")["uncommitted"] is False
sound = s.table("fsck", at, depth="content")
assert sound == [], sound
say(s("FROM lake.t") + read("FROM seen.t") + read("SELECT count(*) AS n FROM seen.u"))
""") == [{"id": 4, "note": "later"}, {"id": 4, "note": "later"}, {"n": 0}]


def test_names_that_web_servers_decode_are_told_once(told):
    assert told("""
s("CREATE TABLE lake.t (country VARCHAR, n INTEGER)"), s("ALTER TABLE lake.t SET PARTITIONED BY (country)")
notes = []
for country in ("Japan", "United States", "France"):
    s(f"INSERT INTO lake.t VALUES ('{country}', 1)")
    note = s.publish(country)["note"]
    notes.append(note and "country=United%20States" in note and "docs/hosting.md" in note)
say(notes)
""") == [None, True, None]
