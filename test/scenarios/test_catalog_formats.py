"""Versions in several DuckLake formats: DuckDB 1.5.5 with DuckLake 1.0 and the real 1.4.4 with DuckLake 0.3 on one repository."""

import json
import re

import pytest

import layout
from session import quoted
from story import call, holding

OLD = "1.4.4"

LAKE = """
CREATE TABLE lake.towns (id INTEGER NOT NULL, name VARCHAR DEFAULT 'none', dropped DOUBLE, height DECIMAL(8, 2));
INSERT INTO lake.towns SELECT range, 'town ' || range, 1.5, range / 7 FROM range(1000);
ALTER TABLE lake.towns DROP COLUMN dropped;
ALTER TABLE lake.towns RENAME COLUMN name TO called;
ALTER TABLE lake.towns ADD COLUMN added BIGINT DEFAULT 7;
ALTER TABLE lake.towns ALTER COLUMN id SET DATA TYPE BIGINT;
INSERT INTO lake.towns VALUES (5000, 'last', 1.25, NULL);
DELETE FROM lake.towns WHERE id % 10 = 3;
UPDATE lake.towns SET called = 'new' WHERE id = 4;
DELETE FROM lake.towns WHERE id = 5;
COMMENT ON TABLE lake.towns IS 'all towns';
COMMENT ON COLUMN lake.towns.called IS 'how they are called';
CREATE SCHEMA lake."Other One";
CREATE TABLE lake."Other One"."a ""q"" table" ("select" INTEGER, "名" VARCHAR);
INSERT INTO lake."Other One"."a ""q"" table" VALUES (1, '東京');
CREATE TABLE lake.nested (s STRUCT(x INTEGER, "y z" VARCHAR[]), m MAP(VARCHAR, INTEGER), l STRUCT(a DATE)[]);
INSERT INTO lake.nested VALUES ({'x': 1, 'y z': ['a', NULL]}, MAP {'k': 1}, [{'a': DATE '2026-01-01'}]), (NULL, NULL, []);
ALTER TABLE lake.nested ADD COLUMN s.added INTEGER;
INSERT INTO lake.nested VALUES ({'x': 2, 'y z': [], 'added': 3}, MAP {}, NULL);
CREATE TABLE lake.kinds (i8 TINYINT, u8 UTINYINT, h HUGEINT, uh UHUGEINT, d DECIMAL(38, 5), f FLOAT, x DOUBLE, bo BOOLEAN, u UUID, j JSON,
    iv INTERVAL, dt DATE, ti TIME, ts TIMESTAMP, tz TIMESTAMPTZ, ttz TIMETZ, tns TIMESTAMP_NS, tss TIMESTAMP_S, tms TIMESTAMP_MS, b BLOB);
INSERT INTO lake.kinds VALUES (1, 2, 3, 4, 1.25, 'nan', 'inf', true, '019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10', '{"a": 1}', INTERVAL 3 DAY,
    '2026-01-01', '12:00', '2026-01-01 01:02:03.000004', '2026-01-01 00:00:00+01', '12:00:00+01', '2026-01-01 00:00:00.123456789', '2026-01-01',
    '2026-01-01', '\\xAA'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE lake.parts (day DATE, region VARCHAR, n INTEGER);
ALTER TABLE lake.parts SET PARTITIONED BY (year(day), region);
INSERT INTO lake.parts SELECT DATE '2024-06-01' + INTERVAL (range * 100) DAY, CASE WHEN range % 2 = 0 THEN 'a' ELSE 'b/c' END, range FROM range(20);
DELETE FROM lake.parts WHERE n = 3;
CREATE TABLE lake.empty (a INTEGER);
CREATE VIEW lake.few AS SELECT id, called FROM lake.main.towns WHERE id < 20;
CREATE VIEW lake."Other One".renamed(one) AS SELECT t.id FROM lake.main.towns t JOIN lake."Other One"."a ""q"" table" o ON o."select" = t.id;
COMMENT ON VIEW lake.few IS 'a few towns';
"""

# Another table of the same name beside the lake must not be taken for the lake's own.
HOLDS = """
from story import *
s = Session()
s("CREATE TABLE main.towns AS SELECT -1 AS id, 'wrong' AS called")
s({setup!r})
row = s.fdl("attach", {where!r}, alias="another name")
say({{"catalog": row["catalog"], "held": holding(s, "another name"), "snapshots": len(s('FROM "another name".snapshots()'))}})
"""

CHANGE = """
from story import *
s = Session()
s({setup!r})
s.checkout({where!r})
{change}
say({{"commit": s.fdl("commit", "lake", message="by the old one"), "status": s.fdl("status", "lake"),
      "push": s.fdl("push", "lake"), "held": holding(s, "lake")}})
"""


@pytest.fixture
def old(python):
    """Runs code in DuckDB 1.4.4 and gives what it says."""
    return lambda code, **how: python(code, OLD, **how).rows


@pytest.fixture
def start(new_place, open_session):
    """`start(*formats)` gives a place with a repository that lists these formats, and a session of 1.5.5 with a working catalog."""

    def make(*formats, kind="folder"):
        place = new_place(kind)
        session = open_session()
        listed = ", ".join(map(quoted, formats))
        session(f"CALL fdl_init({quoted(place.location)}, catalog_formats := [{listed}])")
        session.checkout(place.location)
        return place, session

    return make


def set_formats(place, *formats):
    """Edits fdl.json by hand."""
    settings = json.loads(place.text("fdl.json"))
    settings["catalog_formats"] = list(formats)
    (place.path / "fdl.json").write_text(json.dumps(settings))


def record(place, version):
    return json.loads(place.text(f"versions/{version}/version.json"))


def catalogs(place, version):
    return [key.rsplit("/", 1)[1] for key in place.keys(f"versions/{version}/catalogs/")]


@pytest.mark.parametrize("kind", ["folder", "s3", "http"])
def test_the_old_one_reads_what_the_new_one_wrote(start, old, kind):
    place, session = start("0.3", kind=kind)
    session(LAKE)
    version = session.publish("all of it")["new_version"]
    written = record(place, version)
    assert (written["ducklake"], list(written["catalogs"])) == ("1.0", ["0.3"])
    assert written["catalogs"]["0.3"]["size"] == place.size(f"versions/{version}/catalogs/0.3.duckdb")
    read = old(HOLDS.format(setup=place.setup, where=place.location))
    if kind == "folder":
        assert written["catalogs"]["0.3"]["sha256"] in read["catalog"]
    held = holding(session, "lake")
    assert read["held"] == held
    assert len(held["main.towns"]) == 900


def test_the_old_one_without_fdl(start, shell):
    """What fdl_url gives in a 1.4.4 session is a statement for plain DuckDB 1.4.4 with ducklake."""
    place, session = start("0.3")
    session(LAKE)
    version = session.publish("all of it")["new_version"]
    url = shell(call("url", place.location), version=OLD).rows[0]
    assert url["url"].endswith(f"{version}/catalogs/0.3.duckdb")
    here = session.fdl("url", place.location)
    assert here["url"].endswith(f"{version}/ducklake.duckdb")
    count = shell(f"LOAD ducklake; {url['attach_sql']}; SELECT count(*)::INTEGER AS n FROM {_alias(url)}.few", version=OLD, load=False)
    assert count.rows == [{"n": session.value("SELECT count(*) FROM lake.few")}]
    # An alias that was attached so is one that fdl knows.
    (log,) = shell(f"LOAD ducklake; {url['attach_sql']}; {call('log', _alias(url).strip(chr(34)))}", version=OLD).rows
    assert log["version"] == version


def test_fdl_url_where_there_is_no_ducklake(start, python):
    """DuckDB 2.0 has none yet: fdl_url then names the catalog of the writer's own format."""
    place, session = start("0.3")
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    version = session.publish("one")["new_version"]
    code = f"from story import *\nsay(Session().fdl('url', {place.location!r}))"
    assert python(code, "2.0.1").rows["url"].endswith(f"{version}/ducklake.duckdb")


def _alias(url):
    return re.search(r" AS (\S+) \(", url["attach_sql"]).group(1)


def test_the_layouts_are_ducklakes_own(start, shell, old, tmp_path):
    """Tables, columns, types and keys of a translated catalog are those that the real DuckLake of the format makes."""
    place, session = start("0.3", "1.0")
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    new = session.publish("one")["new_version"]
    by_old = old(CHANGE.format(setup=place.setup, where=place.location, change='s("INSERT INTO lake.t VALUES (2)")'))["push"]["new_version"]
    columns = "SELECT table_name, column_name, data_type, is_nullable, constraints FROM (SELECT * FROM duckdb_columns() WHERE database_name = " \
              "'it') LEFT JOIN (SELECT table_name, list((constraint_type, constraint_column_names) ORDER BY ALL)::VARCHAR AS constraints " \
              "FROM duckdb_constraints() WHERE database_name = 'it' GROUP BY ALL) USING (table_name) ORDER BY table_name, column_index"

    def laid_out(version, path):
        return shell(f"ATTACH {quoted(path)} AS it (READ_ONLY); {columns}", version=version, load=False).rows

    for version, translated in ((OLD, place.path / f"versions/{new}/catalogs/0.3.duckdb"),
                                (layout.MAIN, place.path / f"versions/{by_old}/catalogs/1.0.duckdb")):
        own = tmp_path / f"own-{version}"
        shell(f"LOAD ducklake; ATTACH 'ducklake:{own}' AS lake (DATA_PATH '{tmp_path}/data')", version=version, load=False)
        assert laid_out(version, translated) == laid_out(version, own)


def test_both_work_on_one_repository(start, old, connect):
    """1.5.5, then 1.4.4, then 1.5.5: each goes on from what the other published, and every version is there for both."""
    place, session = start("0.3")
    session(LAKE)
    session.publish("first")
    change = """
s("INSERT INTO lake.towns VALUES (6000, 'by the old one', 2, 8)")
s("DELETE FROM lake.towns WHERE id = 7")
s("CREATE TABLE lake.made (a INTEGER DEFAULT 3, b STRUCT(c VARCHAR))")
s("INSERT INTO lake.made VALUES (1, {'c': 'x'})")
s("ALTER TABLE lake.kinds ADD COLUMN more VARCHAR DEFAULT 'x'")
s("DROP TABLE lake.empty")
s("CREATE OR REPLACE TABLE lake.nested AS FROM lake.nested")
"""
    answer = old(CHANGE.format(setup=place.setup, where=place.location, change=change))
    assert answer["commit"]["tables_changed"] == 4
    # The views are the new one's, which name no alias, and formats are as before: there is nothing to tell.
    assert answer["commit"]["note"] is None
    second = answer["push"]["new_version"]
    assert record(place, second)["ducklake"] == "0.3"
    # 1.0 is not listed, and the version before has it: nobody is locked out.
    assert catalogs(place, second) == ["1.0.duckdb"]
    session.checkout(place.location)
    held = holding(session, "lake")
    assert answer["held"] == held
    # Only what changed has new files, although a table was written anew.
    changed = {row["name"]: (row["change"], row["rows_added"], row["rows_removed"], row["files_added"] > 0)
               for row in session(call("diff", place.location, from_ref="main~1"))}
    assert changed == {"towns": ("rows", 1, 1, True), "made": ("added", 1, 0, True), "kinds": ("schema", 0, 0, False),
                       "empty": ("dropped", 0, 0, False), "nested": ("same", 0, 0, False), "parts": ("same", 0, 0, False),
                       'a "q" table': ("same", 0, 0, False)}
    # The new one goes on, where the old one has made a default and a table.
    session("INSERT INTO lake.made(b) VALUES (NULL); DELETE FROM lake.towns WHERE id = 6000")
    third = session.publish("third")["new_version"]
    assert (record(place, third)["ducklake"], catalogs(place, third)) == ("1.0", ["0.3.duckdb"])
    read = old(HOLDS.format(setup=place.setup, where=place.location))
    assert read["held"] == holding(session, "lake")
    assert session("FROM lake.made ORDER BY a") == [{"a": 1, "b": {"c": "x"}}, {"a": 3, "b": None}]
    # Everything in the repository is as it should be, looked at from either side.
    assert session(call("fsck", place.location, depth="content")) == []


IN_1_0_ALONE = {
    "the macro main.m": "CREATE MACRO lake.m(a) AS a + 1",
    "the macro main.mt": "CREATE MACRO lake.mt(a) AS TABLE SELECT a",
    "the sort keys of main.t": "ALTER TABLE lake.t SET SORTED BY (a ASC)",
    "the type VARIANT of main.v.a": "CREATE TABLE lake.v (a VARIANT)",
    "the type TIME_NS of main.v.inner": "CREATE TABLE lake.v (a STRUCT(\"inner\" TIME_NS))",
    "the type GEOMETRY of main.v.a": "CREATE TABLE lake.v (a GEOMETRY)",
    "the default now() of main.v.a": "CREATE TABLE lake.v (a TIMESTAMPTZ DEFAULT now())",
    "the partition key bucket(4) of main.t": "ALTER TABLE lake.t SET PARTITIONED BY (bucket(4, a))",
    "the deletion vectors of main.t": "CALL lake.set_option('write_deletion_vectors', true); DELETE FROM lake.t WHERE a < 5",
}


@pytest.mark.parametrize("what", IN_1_0_ALONE)
def test_what_0_3_has_no_place_for_is_named(start, what):
    place, session = start("0.3")
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(100)")
    first = session.publish("one")["new_version"]
    session(IN_1_0_ALONE[what])
    for command in ("commit", "push"):
        message = session.refused(call(command, "lake", message="two"), "FDL-UNSUPPORTED-VERSION")
        assert f"a version is to have a catalog in DuckLake 0.3, which has no place for {what} [" in message, message
        assert '"until": a day that is over' in message
    # Nothing was committed, and as soon as 0.3 is not wanted any more it goes on.
    assert session.fdl("status", "lake")["ahead"] == 0
    set_formats(place, {"ducklake": "0.3", "until": "2026-01-01"})
    pushed = session.publish("two")
    assert (pushed["old_version"], catalogs(place, pushed["new_version"])) == (first, [])
    assert pushed["note"] == "no longer published in DuckLake 0.3, which the version before was"
    session("CREATE TABLE lake.more AS SELECT 1 AS a")
    assert session.publish("three")["note"] is None


def test_until_is_the_last_day(start):
    """The day is that of the version's own time, in UTC; the rest is in the unit tests, with a clock of their own."""
    place, session = start("0.3 until 9999-12-31", "1.0 until 2026-01-01")
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    assert catalogs(place, session.publish("one")["new_version"]) == ["0.3.duckdb"]
    set_formats(place, {"ducklake": "0.3", "until": "2026-01-01"})
    session("INSERT INTO lake.t VALUES (2)")
    assert catalogs(place, session.publish("two")["new_version"]) == []


def test_a_format_that_is_listed_later(start):
    """fdl.json is read at each commit; a version without changes has to be asked for."""
    place, session = start()
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    assert catalogs(place, session.publish("one")["new_version"]) == []
    set_formats(place, {"ducklake": "0.3"}, {"ducklake": "1.0"})
    assert session.fdl("commit", "lake", message="no change")["committed"] is False
    assert session.fdl("commit", "lake", message="in 0.3 too", force=True)["committed"] is True
    assert catalogs(place, session.fdl("push", "lake")["new_version"]) == ["0.3.duckdb"]
    # Of a format that fdl does not know none can be written.
    set_formats(place, {"ducklake": "9.9"})
    message = session.refused(call("commit", "lake", message="x", force=True), "FDL-UNSUPPORTED-VERSION")
    assert "a catalog in DuckLake 9.9, which this fdl cannot write from 1.0 [" in message and "take 9.9 off" in message


def test_a_commit_far_from_the_repository(start, bare):
    """A repository that cannot be reached asks for what it asked for last."""
    place, session = start("0.3", kind="http")
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    place.close()
    place.close = lambda: None
    version = session.fdl("commit", "lake", message="on the train")["version"]
    assert (bare / f"lake.sqlite.fdl/versions/{version}/catalogs/0.3.duckdb").exists()


def test_a_session_that_reads_none_of_them(start, python, shell, new_place):
    place, session = start()
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    version = session.publish("one")["new_version"]
    statements = [call("attach", place.location), call("url", place.location), call("checkout", place.location, alias="x"),
                  call("diff", place.location, from_ref="main")]
    for statement in statements:
        message = shell(statement, version=OLD, check=False).err
        assert f"version {version} is published in DuckLake 1.0, and this session's DuckLake reads 0.3 [FDL-UNSUPPORTED-VERSION]" in message
        assert "1.4 reads 0.3, 1.5 reads 1.0" in message and "ask the publisher to add yours to catalog_formats" in message
    # What does not need DuckLake is told all the same.
    assert [row["name"] for row in shell(call("tables", place.location), version=OLD).rows] == ["t"]
    assert [row["rows"] for row in shell(call("files", place.location), version=OLD).rows] == [1]
    (row,) = [row for row in shell(call("doctor", place.location), version=OLD).rows if row["probe"] == "default version"]
    assert row["ok"] is False and "[FDL-UNSUPPORTED-VERSION]" in row["detail"]
    # And the other way round.
    newer = new_place("folder").location
    session(f"CALL fdl_init({quoted(newer)})")
    code = f"""
from story import *
s = Session()
s.checkout({newer!r}, path="old.sqlite")
s("CREATE TABLE lake.t AS SELECT 1 AS a")
say(s.publish("one"))
"""
    version = python(code, OLD).rows["new_version"]
    for statement in (call("attach", newer), call("url", newer), call("checkout", newer, alias="y")):
        message = session.refused(statement, "FDL-UNSUPPORTED-VERSION")
        assert f"version {version} is published in DuckLake 0.3, and this session's DuckLake reads 1.0 [" in message


def test_older_snapshots_in_0_3(start, old):
    """With keep_snapshots the older format has DuckLake's own history too."""
    place, session = start("0.3")
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    session("INSERT INTO lake.t VALUES (1000)")
    first = session.value("SELECT max(snapshot_id) FROM lake.snapshots()")
    # One file then holds the rows of three snapshots.
    session("INSERT INTO lake.t VALUES (100); CALL ducklake_merge_adjacent_files('lake')")
    before = session.value("SELECT max(snapshot_id) FROM lake.snapshots()")
    session("DELETE FROM lake.t WHERE a = 3; CREATE TABLE lake.later AS SELECT 1 AS a")
    session.fdl("commit", "lake", message="all of it", keep_snapshots=True)
    session.fdl("push", "lake")
    code = f"""
from story import *
s = Session()
s.fdl("attach", {place.location!r}, alias="lake")
say([s.value("SELECT sum(a)::BIGINT FROM lake.t AT (VERSION => {first})"),
     s.value("SELECT sum(a)::BIGINT FROM lake.t AT (VERSION => {before})"), s.value("SELECT sum(a)::BIGINT FROM lake.t"),
     len(s("FROM lake.snapshots()"))])
"""
    assert old(code) == [1045, 1145, 1142, len(session("FROM lake.snapshots()"))]


def test_merged_files(start, old):
    """Files that one DuckLake has merged, out of several snapshots, the other reads and goes on from, and merges in turn."""
    place, session = start("0.3")
    session("CREATE TABLE lake.t (a INTEGER, b VARCHAR)")
    for n in range(4):
        session(f"INSERT INTO lake.t SELECT range, 'new {n}' FROM range({n * 10}, {n * 10 + 10})")
    session("DELETE FROM lake.t WHERE a = 15; CALL ducklake_merge_adjacent_files('lake'); DELETE FROM lake.t WHERE a = 25")
    session("ALTER TABLE lake.t ADD COLUMN c INTEGER DEFAULT 5")
    session.publish("merged by the new one")
    change = """
for n in range(4):
    s(f"INSERT INTO lake.t SELECT range, 'old {n}', {n} FROM range({100 + n * 10}, {110 + n * 10})")
s("CALL ducklake_merge_adjacent_files('lake')")
s("DELETE FROM lake.t WHERE a IN (5, 105)")
s("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)")
"""
    answer = old(CHANGE.format(setup=place.setup, where=place.location, change=change))
    session.checkout(place.location)
    assert answer["held"] == holding(session, "lake")
    assert session.one("SELECT count(*) AS n, sum(a)::INTEGER AS a, sum(c)::INTEGER AS c FROM lake.t") == {
        "n": 76, "a": sum(range(40)) + sum(range(100, 140)) - 15 - 25 - 5 - 105, "c": 37 * 5 + 60 - 0}
    session("INSERT INTO lake.t VALUES (1000, 'again', 1); CALL ducklake_merge_adjacent_files('lake')")
    session.publish("merged again")
    # The last change is a merge, for which 0.3 has another word.
    assert session.value("SELECT map_keys(changes)[1] FROM lake.snapshots() ORDER BY snapshot_id DESC LIMIT 1") == "merge_adjacent"
    read = old(HOLDS.format(setup=place.setup, where=place.location))
    assert (read["held"], read["snapshots"]) == (holding(session, "lake"), 1)
    assert session(call("fsck", place.location, depth="content")) == []


def test_nothing_but_a_schema(start, old):
    """Catalogs without tables, in both directions."""
    place, session = start("0.3")
    session("CREATE SCHEMA lake.bare; CREATE VIEW lake.one AS SELECT 1 AS a")
    session.publish("no table")
    answer = old(CHANGE.format(setup=place.setup, where=place.location, change='s("CREATE SCHEMA lake.more")'))
    session.checkout(place.location)
    assert answer["held"] == holding(session, "lake")
    session("CREATE TABLE lake.more.t AS SELECT 1 AS a")
    session.publish("a table")
    assert old(HOLDS.format(setup=place.setup, where=place.location))["held"] == holding(session, "lake")
