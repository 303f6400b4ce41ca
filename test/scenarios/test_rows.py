"""Everything that can be in a table is in the version: values of every type, names, definitions, partitions, small tables."""

import json

import pytest

from story import call, name, quoted

# Values of each type, as SQL; a NULL is added to each, and to every list the other way round.
SCALARS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "0", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "HUGEINT": ["-1000000000000000000000", "1000000000000000000000"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["65535"],
    "UINTEGER": ["4294967295"],
    "UBIGINT": ["18446744073709551615"],
    "UHUGEINT": ["1000000000000000000000"],
    "FLOAT": ["'nan'", "'inf'", "'-inf'", "'-0.0'", "1.5", "3.4028235e38", "1e-45"],
    "DOUBLE": ["'nan'", "'inf'", "'-inf'", "'-0.0'", "0.1", "1.7976931348623157e308", "5e-324"],
    "DECIMAL(4,1)": ["-999.9", "0.1"],
    "DECIMAL(9,3)": ["123456.789"],
    "DECIMAL(18,6)": ["-123456789012.123456"],
    "DECIMAL(38,0)": ["99999999999999999999999999999999999999", "-99999999999999999999999999999999999999"],
    "DECIMAL(38,37)": ["1.2345678901234567890123456789012345678"],
    "VARCHAR": ["''", "' '", "'NULL'", "'日本語 🗾'", "'it''s'", "E'a\\tb\\r\\nc\\\\'", "repeat('long ', 10000)", "'e' || chr(769)"],
    "BLOB": ["''", "'\\x00\\xff\\x27'", "encode('é')"],
    "BLOB AS TEXT": ["'PAR1'"],
    "DATE": ["'0001-01-01'", "'1969-12-31'", "'9999-12-31'", "'2024-02-29'", "'infinity'", "'-infinity'", "'0044-03-15 (BC)'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'"],
    "TIMETZ": ["'10:00:00+00'", "'23:59:59.999999+00'"],  # Parquet keeps the moment, not the zone
    "TIMESTAMP": ["'1900-01-01 00:00:00.000001'", "'2026-11-29 23:59:59.999999'", "'infinity'"],
    "TIMESTAMP_S": ["'2026-11-29 23:59:59'"],
    "TIMESTAMP_MS": ["'2026-11-29 23:59:59.999'"],
    "TIMESTAMP_NS": ["'2026-11-29 23:59:59.123456789'"],
    "TIMESTAMPTZ": ["'2026-11-29 23:59:59.999999+09'", "'1883-11-18 12:03:58+00'", "'-infinity'"],
    "INTERVAL": ["'1 year 2 months'", "'3 days'", "'1 millisecond'", "'0 seconds'"],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "JSON": ["'{\"a\": [1, null, \"ü\"]}'", "'[]'", "'null'", "'1e2'"],
}

NESTED = {
    "INTEGER[]": ["[]", "[1, NULL, 2]", "[NULL]"],
    "VARCHAR[][]": ["[['a', NULL], [], NULL]", "[[]]"],
    'STRUCT(a INTEGER, "B b" VARCHAR, "日本" DOUBLE)': ["{'a': 1, 'B b': 'x', '日本': 'nan'}", "{'a': NULL, 'B b': NULL, '日本': NULL}"],
    "MAP(VARCHAR, INTEGER)": ["MAP {}", "MAP {'a': 1, 'b': NULL}"],
    "MAP(INTEGER, STRUCT(x DECIMAL(10,2), y TIMESTAMP[]))": ["MAP {1: {'x': 1.25, 'y': [TIMESTAMP '2020-01-01', NULL]}}"],
    "STRUCT(l STRUCT(m MAP(VARCHAR, STRUCT(n INTEGER[][])[]))[])":
        ["{'l': [{'m': MAP {'k': [{'n': [[1], NULL, []]}, NULL]}}, NULL]}", "{'l': NULL}"],
    "STRUCT(u UUID, b BLOB, h HUGEINT, i INTERVAL)[]": ["[{'u': uuid(), 'b': '\\x00', 'h': 1, 'i': INTERVAL 1 DAY}]"],
}


def values(types, inlined):
    """A query for each type that gives its values and NULL, with a number."""
    for number, (sql_type, items) in enumerate(types.items()):
        if inlined:  # DuckLake 1.0 cannot read back a NaN that it inlined inside a struct
            items = [item.replace("'日本': 'nan'", "'日本': 0.5") for item in items]
        casts = [f"CAST({item} AS {sql_type.split(' AS ')[0]})" for item in items]
        rows = ", ".join(f"({at}, {cast})" for at, cast in enumerate([*casts, f"CAST(NULL AS {sql_type.split(' AS ')[0]})"]))
        yield f"t{number}", f"SELECT * FROM (VALUES {rows}) v(number, value)"


@pytest.fixture
def lake(open_session, repository):
    session = open_session()
    session("LOAD json")
    session.attach_sql = session.checkout(repository.location)["attach_sql"]
    return session


def require_same(python, repository, truth):
    """Asserts that, in another process, each table of the truth is in the published version row for row, type for type."""
    check = f"""
from story import *
s = Session()
s("LOAD json")
s("ATTACH {truth!s} AS truth (READ_ONLY)")
s.fdl("attach", {repository.location!r}, alias="published")
tables = s.column("SELECT table_name FROM duckdb_tables() WHERE database_name = 'truth'")
problems = []
for table in tables:
    one, other = name("truth", "main", table), name("published", "main", table)
    columns = [[(row["column_name"], row["column_type"], row["null"]) for row in s("DESCRIBE " + table)] for table in (one, other)]
    if columns[0] != columns[1]:
        problems.append([table, str(s("DESCRIBE " + other))])
    problems += [[table, found] for found in [same_rows(s, one, other)] if found]
say({{"tables": len(tables), "problems": problems}})
"""
    (answer,) = python(check).results
    assert answer["problems"] == []
    return answer["tables"]


@pytest.mark.parametrize("inlined", [False, True], ids=["files", "inlined"])
@pytest.mark.parametrize("types", [SCALARS, NESTED], ids=["scalars", "nested"])
def test_values_of_every_type(lake, open_session, python, repository, types, inlined):
    lake("ATTACH 'truth.duckdb' AS truth")
    lake("SET TimeZone = 'Asia/Tokyo'")
    if inlined:  # attached as anybody would, DuckLake keeps small inserts in the catalog
        lake("DETACH lake")
        lake("ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    for table, query in values(types, inlined):
        lake(f"CREATE TABLE truth.{table} AS {query}")
        # uuid() and the like: what is compared is what was stored.
        lake(f"CREATE TABLE lake.{table} AS FROM truth.{table} LIMIT 0")
        lake(f"INSERT INTO lake.{table} FROM truth.{table}")
    lake("DETACH truth")
    made = lake.publish("all", "lake.sqlite")
    assert made["files_uploaded"] >= len(types)
    assert require_same(python, repository, quoted("truth.duckdb")) == len(types)
    assert lake.fdl("commit", "lake.sqlite", message="nothing")["committed"] is False


def test_empty_tables_views_and_schemas(lake, in_another_process_nothing_differs, repository):
    for statement in (
            "CREATE TABLE lake.empty (a INTEGER, b VARCHAR[])", "CREATE SCHEMA lake.bare", "CREATE TABLE lake.emptied AS SELECT 1 AS a",
            "DELETE FROM lake.emptied", "CREATE VIEW lake.nothing AS SELECT * FROM lake.empty"):
        lake(statement)
    made = lake.fdl("push", "lake", message="nothing in it")
    assert made["outcome"] == "pushed"
    in_another_process_nothing_differs(lake.attach_sql)
    tables = {row["name"]: (row["kind"], row["rows"]) for row in lake.table("tables", repository.location)}
    assert tables["empty"] == ("table", 0) and tables["emptied"] == ("table", 0) and tables["nothing"][0] == "view"
    assert lake.fdl("commit", "lake", message="again")["committed"] is False
    lake("INSERT INTO lake.empty VALUES (1, ['x'])")
    assert lake.fdl("push", "lake", message="one row")["files_uploaded"] == 1
    in_another_process_nothing_differs(lake.attach_sql)


def attach_plainly(session):
    """The working catalog as somebody attaches it who never read our attach_sql: rows and deletes are inlined."""
    session("DETACH DATABASE IF EXISTS lake")
    session("ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    return "ATTACH 'ducklake:sqlite:lake.sqlite' AS lake"


def test_a_table_of_five_rows_attached_plainly(lake, open_session, in_another_process_nothing_differs, repository, python):
    plain = attach_plainly(lake)
    lake("CREATE TABLE lake.five AS SELECT range AS i, 'row ' || range AS t FROM range(5)")
    assert lake("SELECT * FROM ducklake_list_files('lake', 'five')") == [], "the rows are in the catalog"
    lake.publish("five rows")
    in_another_process_nothing_differs(plain)
    reader = open_session()
    reader.fdl("attach", repository.location, alias="published")
    assert reader.column("SELECT i FROM published.five ORDER BY i") == [0, 1, 2, 3, 4]

    lake("DELETE FROM lake.five WHERE i = 2")
    lake("INSERT INTO lake.five VALUES (5, 'five')")
    lake.publish("one goes, one comes")
    reader.fdl("attach", repository.location, alias="published")
    assert reader.column("SELECT i FROM published.five ORDER BY i") == [0, 1, 3, 4, 5]
    assert lake.column("SELECT i FROM lake.five ORDER BY i") == [0, 1, 3, 4, 5]

    lake("UPDATE lake.five SET i = i + 100 WHERE i IN (0, 5)")
    lake("DELETE FROM lake.five WHERE i IN (1, 105)")
    lake.publish("more")
    in_another_process_nothing_differs(plain)
    reader.fdl("attach", repository.location, alias="published")
    assert reader.column("SELECT i FROM published.five ORDER BY i") == [3, 4, 100]
    # A checkout of it holds neither more nor less, nor does one of an older version.
    for ref, rows in (("main", [3, 4, 100]), ("main~1", [0, 1, 3, 4, 5]), ("main~2", [0, 1, 2, 3, 4])):
        other = open_session()
        other.checkout(repository.location, ref=ref, path=f"{ref[-1]}.sqlite")
        assert other.column("SELECT i FROM lake.five ORDER BY i") == rows
        assert other.fdl("status", "lake")["uncommitted"] is False


def test_rows_and_deletes_inlined_on_tables_with_files(lake, open_session, in_another_process_nothing_differs, repository):
    lake("CREATE TABLE lake.big AS SELECT range AS i FROM range(1000)")
    lake("CREATE TABLE lake.small AS SELECT range AS i FROM range(10)")
    lake.publish("files")
    plain = attach_plainly(lake)
    lake("DELETE FROM lake.big WHERE i IN (3, 500)")  # a delete of few rows is kept in the catalog
    lake("DELETE FROM lake.small WHERE i < 9")
    lake("INSERT INTO lake.small VALUES (42)")
    lake("BEGIN"), lake("INSERT INTO lake.small VALUES (43)"), lake("DELETE FROM lake.small WHERE i = 43"), lake("COMMIT")
    assert lake.fdl("status", "lake")["uncommitted"] is True
    lake.publish("inlined")
    in_another_process_nothing_differs(plain)
    other = open_session()
    other.checkout(repository.location, path="other.sqlite")
    assert other.value("SELECT count(*) FROM lake.big") == 998
    assert other.value("SELECT count(*) FROM lake.big WHERE i IN (3, 500)") == 0
    assert other.column("FROM lake.small ORDER BY i") == [9, 42]
    # The session goes on as it was attached.
    lake("DELETE FROM lake.big WHERE i >= 900")
    lake("DELETE FROM lake.small WHERE i = 42")
    lake("DROP TABLE lake.small")
    lake.publish("and more")
    in_another_process_nothing_differs(plain)
    assert lake.value("SELECT count(*) FROM lake.big") == 898


def test_inlined_rows_behind_a_schema_change(lake, in_another_process_nothing_differs):
    plain = attach_plainly(lake)
    lake("CREATE TABLE lake.t AS SELECT 1 AS a, 'x' AS b")
    lake("ALTER TABLE lake.t ADD COLUMN c INTEGER DEFAULT 7")
    lake("INSERT INTO lake.t VALUES (2, 'y', NULL)")
    lake("ALTER TABLE lake.t DROP COLUMN b")
    lake("INSERT INTO lake.t VALUES (3, 9)")
    lake("DELETE FROM lake.t WHERE a = 2")
    rows = lake("FROM lake.t ORDER BY a")
    assert rows == [{"a": 1, "c": 7}, {"a": 3, "c": 9}]
    lake.publish("changed while inlined")
    in_another_process_nothing_differs(plain)
    assert lake("FROM lake.t ORDER BY a") == rows


NAMES = ["日本の町", 'with "quotes"', "it's", "a.b", "sp ace", "semi;colon", "UPPER", "%41%2F", "été", "select", "a/b", "..", "back\\slash",
         "line\nbreak", "{DUCKLAKE_CATALOG}", "main"]


def test_names_of_schemas_tables_columns_and_views(lake, in_another_process_nothing_differs, repository):
    lake(f"CREATE SCHEMA lake.{name('市町村')}")
    for at, text in enumerate(NAMES):
        table = name("lake", "市町村", text)
        lake(f"CREATE TABLE {table} AS SELECT {at} AS {name(text)}, {{ {name(text)}: 1 }} AS s")
        lake(f"COMMENT ON TABLE {table} IS {quoted(text)}")
        lake(f"COMMENT ON COLUMN {table}.{name(text)} IS {quoted(text + text)}")
        lake(f"CREATE VIEW {name('lake', '市町村', 'view of ' + text)} AS SELECT {name(text)} AS {name('v ' + text)} FROM {table}")
        if text not in ("main", ".."):
            lake(f"CREATE SCHEMA {name('lake', text)}")
            lake(f"CREATE TABLE {name('lake', text, text)} AS SELECT 1 AS a")
    lake.publish("names")
    in_another_process_nothing_differs(lake.attach_sql)
    listed = {(row["schema"], row["name"], row["kind"]) for row in lake.table("tables", repository.location)}
    assert {("市町村", text, "table") for text in NAMES} < listed
    assert {("市町村", "view of " + text, "view") for text in NAMES} < listed
    dataset = json.loads(repository.text(f"versions/{lake.fdl('status', 'lake')['version']}/dataset.json"))
    (schema,) = [schema for schema in dataset["schemas"] if schema["name"] == "市町村"]
    comments = {table["name"]: (table.get("comment"), table["columns"][0].get("comment")) for table in schema["tables"] if table["kind"] == "table"}
    assert comments == {text: (text, text + text) for text in NAMES}
    for row in lake.table("files", repository.location):
        assert row["path"].startswith("data/") and "/../" not in row["path"], row
        assert row["path"] in repository.keys(), row


@pytest.mark.everywhere
def test_views_macros_comments_defaults_and_constraints(lake, open_session, in_another_process_nothing_differs, repository):
    for statement in (
            "CREATE TABLE lake.t (a INTEGER DEFAULT 5, b VARCHAR NOT NULL DEFAULT 'x''y', c DATE DEFAULT DATE '2026-01-01', d DECIMAL(9,2) DEFAULT 1.25)",
            "INSERT INTO lake.t (b) VALUES ('b')", "COMMENT ON TABLE lake.t IS 'it''s a table'", "COMMENT ON COLUMN lake.t.a IS '説明'",
            "CREATE SCHEMA lake.s", "CREATE VIEW lake.s.v(one, two) AS SELECT a, b FROM lake.main.t WHERE a > 1 ORDER BY ALL",
            "COMMENT ON VIEW lake.s.v IS 'a view'", "CREATE MACRO lake.add(x, y := 2) AS x + y",
            "CREATE MACRO lake.s.twice(x) AS TABLE SELECT x AS v UNION ALL SELECT x"):
        lake(statement)
    lake.publish("definitions")
    in_another_process_nothing_differs(lake.attach_sql)
    reader = open_session()
    reader.fdl("attach", repository.location, alias="elsewhere")  # a view does not know the alias it was made under
    assert reader("FROM elsewhere.s.v") == [{"one": 5, "two": "b"}]
    assert reader.value("SELECT elsewhere.add(1)") == 3
    assert reader.column("FROM elsewhere.s.twice(4)") == [4, 4]
    other = open_session()
    other.checkout(repository.location, path="other.sqlite", alias="mine")
    other("INSERT INTO mine.t (a) VALUES (6)")
    assert other("FROM mine.t WHERE a = 6") == [
        {"a": 6, "b": "x'y", "c": lake.value("SELECT DATE '2026-01-01'"), "d": lake.value("SELECT 1.25::DECIMAL(9,2)")}]
    with pytest.raises(Exception, match="NOT NULL"):
        other("INSERT INTO mine.t (b) VALUES (NULL)")
    columns = {row["name"]: row for row in other.table("tables", repository.location)}["t"]["columns"]
    assert columns == [{"name": "a", "type": "INTEGER", "nullable": True}, {"name": "b", "type": "VARCHAR", "nullable": False},
                       {"name": "c", "type": "DATE", "nullable": True}, {"name": "d", "type": "DECIMAL(9,2)", "nullable": True}]


PARTITIONS = ["plain", "with space", "a/b", "..", ".", "100%", "%2F", "日本", "a=b", "", " ", "NULL", "null", "__HIVE_DEFAULT_PARTITION__",
              "q?x#y&z", "back\\slash", "dot.", "new\nline", "'quote'", "x" * 150]


@pytest.mark.everywhere
def test_partitions(lake, open_session, in_another_process_nothing_differs, repository):
    listed = ", ".join(f"({quoted(value)})" for value in PARTITIONS)
    lake("CREATE TABLE lake.p (part VARCHAR, day DATE, n INTEGER)")
    lake("ALTER TABLE lake.p SET PARTITIONED BY (part, year(day))")
    lake(f"INSERT INTO lake.p SELECT part, DATE '2025-06-01' + INTERVAL (n) YEAR, n FROM (VALUES {listed}, (NULL)) v(part), range(2) r(n)")
    lake("INSERT INTO lake.p VALUES ('plain', NULL, 9)")
    made = lake.publish("partitioned")
    count = 2 * (len(PARTITIONS) + 1) + 1
    assert lake.value("SELECT count(*) FROM lake.p") == count
    assert made["files_uploaded"] > len(PARTITIONS)
    in_another_process_nothing_differs(lake.attach_sql)
    keys = repository.keys("data/")
    for row in lake.table("files", repository.location):
        assert row["path"] in keys, row
        assert ".." not in row["path"].split("/"), row
    reader = open_session()
    reader.fdl("attach", repository.location, alias="published")
    for value in PARTITIONS:
        assert reader.value(f"SELECT count(*) FROM published.p WHERE part = {quoted(value)}") == (3 if value == "plain" else 2), value
    assert reader.value("SELECT count(*) FROM published.p WHERE part IS NULL") == 2
    # A checkout goes on in the same partitions; another partitioning leaves the old files readable.
    other = open_session()
    attach_sql = other.checkout(repository.location, path="other.sqlite")["attach_sql"]
    other("DELETE FROM lake.p WHERE part = 'a/b'; INSERT INTO lake.p VALUES ('日本', '2030-01-01', 7)")
    other("ALTER TABLE lake.p SET PARTITIONED BY (n)")
    other("INSERT INTO lake.p VALUES ('later', '2031-01-01', 8)")
    other.publish("repartitioned")
    in_another_process_nothing_differs(attach_sql)
    other("ALTER TABLE lake.p RESET PARTITIONED BY")
    assert other.fdl("push", "lake", message="no partitions")["outcome"] == "pushed"
    in_another_process_nothing_differs(attach_sql)
    assert other.value("SELECT count(*) FROM lake.p") == count


@pytest.mark.everywhere
def test_a_partition_value_that_would_leave_the_folder_for_one_who_decodes_it(lake, repository):
    """`part=..%2F..%2Fup` stays inside for us, not for everybody who reads the key: docs/format.md section 1 refuses it."""
    lake("CREATE TABLE lake.p (part VARCHAR, n INTEGER)")
    lake("ALTER TABLE lake.p SET PARTITIONED BY (part)")
    lake("INSERT INTO lake.p VALUES ('../../up', 1)")
    lake.refused(call("push", "lake", message="up"), "FDL-BAD-PATH")
    assert repository.keys("versions/") == []
    assert lake("FROM lake.p") == [{"part": "../../up", "n": 1}]


def test_sorted_tables(lake, open_session, in_another_process_nothing_differs, repository):
    lake("CREATE TABLE lake.t AS SELECT 1000 - range AS a, range % 7 AS b FROM range(1000)")
    lake("ALTER TABLE lake.t SET SORTED BY (b DESC, a)")
    lake("INSERT INTO lake.t SELECT range, range % 3 FROM range(100)")
    lake.publish("sorted")
    in_another_process_nothing_differs(lake.attach_sql)
    version = lake.fdl("status", "lake")["version"]
    (table,) = json.loads(repository.text(f"versions/{version}/dataset.json"))["schemas"][0]["tables"]
    assert len(table["sort_by"]) == 2
    other = open_session()
    attach_sql = other.checkout(repository.location, path="other.sqlite")["attach_sql"]
    other("INSERT INTO lake.t VALUES (-1, -1)")
    other("ALTER TABLE lake.t RESET SORTED BY")
    other.publish("not sorted")
    in_another_process_nothing_differs(attach_sql)


def test_a_wide_table(lake, in_another_process_nothing_differs, repository):
    columns = ", ".join(f"range + {at} AS {name(f'column {at}')}" for at in range(250))
    lake(f"CREATE TABLE lake.wide AS SELECT {columns} FROM range(20)")
    lake.publish("wide")
    lake('ALTER TABLE lake.wide DROP COLUMN "column 3"')
    lake('ALTER TABLE lake.wide ADD COLUMN "column 3" VARCHAR')
    lake('UPDATE lake.wide SET "column 3" = \'again\' WHERE "column 0" < 5')
    lake.publish("changed")
    in_another_process_nothing_differs(lake.attach_sql)
    (table,) = lake.table("tables", repository.location)
    assert [column["name"] for column in table["columns"]][-1] == "column 3" and len(table["columns"]) == 250


def test_thousands_of_small_statements_before_one_commit(lake, in_another_process_nothing_differs, repository):
    lake("DETACH lake")
    lake("ATTACH 'ducklake:sqlite:lake.sqlite' AS lake (META_JOURNAL_MODE 'WAL')")
    lake("CREATE TABLE lake.t (i INTEGER, t VARCHAR)")
    for number in range(2000):
        if number % 20 == 0:
            lake.connection.execute("BEGIN")
        lake.connection.execute(f"INSERT INTO lake.t VALUES ({number}, 'row {number}')")
        if number % 20 == 19:
            lake.connection.execute("COMMIT")
        if number % 100 == 99:
            lake.connection.execute(f"DELETE FROM lake.t WHERE i = {number - 50}")
            lake.connection.execute(f"UPDATE lake.t SET t = 'changed' WHERE i = {number}")
    made = lake.publish("many statements")
    assert lake.one("SELECT count(*) AS n, count(*) FILTER (t = 'changed') AS changed FROM lake.t") == {"n": 1980, "changed": 20}
    assert made["files_uploaded"] < 10, "inlined rows are written to few files"
    in_another_process_nothing_differs("ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")


def test_an_encrypted_catalog_is_refused(lake, repository):
    lake("CREATE TABLE lake.t AS SELECT 1 AS a")
    lake("UPDATE __ducklake_metadata_lake.main.ducklake_metadata SET value = 'true' WHERE key = 'encrypted'")
    before = repository.keys("versions/")
    lake.refused(call("push", "lake", message="keys"), "FDL-ENCRYPTED")
    assert lake.fdl("status", "lake")["ahead"] == 0
    assert repository.keys("versions/") == before
