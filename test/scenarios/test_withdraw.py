"""What is withdrawn is nowhere in the repository afterwards: not in a data file, a path, a catalog, a statistic or a list."""

import pytest

from story import quoted

SECRET = "Wilhelmina Zzyzx"  # the greatest value of its column, so that statistics hold it


def publish_the_secret(lake):
    """Three versions: without the secret, with it in every way a lake can hold a value, and without it again."""
    lake("""
        CREATE TABLE lake.people AS SELECT 'Person ' || range AS name, range AS id FROM range(20);
        CREATE TABLE lake.by_name (name VARCHAR, id BIGINT);
        ALTER TABLE lake.by_name SET PARTITIONED BY (name);
        INSERT INTO lake.by_name VALUES ('Abel', 1);
        CREATE TABLE lake.notes (note STRUCT(about VARCHAR, text VARCHAR[]))""")
    lake.publish("clean")
    # Attached as anybody would, DuckLake keeps few rows in its catalog.
    lake("DETACH lake; ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    lake(f"""
        INSERT INTO lake.people SELECT CASE WHEN range < 10 THEN {quoted(SECRET)} ELSE 'Nobody' END, range FROM range(20);
        INSERT INTO lake.by_name SELECT {quoted(SECRET)}, range FROM range(20);
        INSERT INTO lake.notes VALUES ({{'about': {quoted(SECRET)}, 'text': ['her', {quoted(SECRET)}]}});
        CREATE TABLE lake.only_then AS SELECT {quoted(SECRET)} AS name;
        COMMENT ON TABLE lake.only_then IS {quoted('all that is known of ' + SECRET)};
        CREATE VIEW lake.her AS FROM lake.people WHERE name = {quoted(SECRET)}""")
    assert lake.column("SELECT data_file FROM ducklake_list_files('lake', 'notes')") in ([], [None])
    lake.publish("with the secret", tag="v1")
    lake(f"""
        DELETE FROM lake.people WHERE name = {quoted(SECRET)};
        DELETE FROM lake.by_name WHERE name = {quoted(SECRET)};
        CREATE OR REPLACE TABLE lake.notes (note STRUCT(about VARCHAR, text VARCHAR[]));
        DROP VIEW lake.her;
        DROP TABLE lake.only_then""")
    lake.publish("deleted")


def rewrite(lake):
    """The rows of the kept tables are written anew, under the same tables, as DuckLake does it."""
    lake("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    lake("INSERT INTO lake.people VALUES ('Another person', 100)")
    lake.publish("rewritten")


def places_of_the_secret(lake, repository, tmp_path):
    """The objects that hold it: in their key, in their bytes, or in a row."""
    found = set()
    for key in repository.keys():
        text = repository.read(key).decode("latin-1")
        if any(SECRET in where or SECRET.replace(" ", "%20") in where for where in (key, text)):
            found.add(key)
        elif key.endswith(".parquet"):
            file = repository.copy(key, tmp_path / "looked-at.parquet")
            if lake.value(f"SELECT count(*) FROM read_parquet({quoted(str(file))}, hive_partitioning = false) t "
                          f"WHERE contains(t::VARCHAR, {quoted(SECRET)})"):
                found.add(key)
    return found


def readable_rows(open_session, repository):
    """What a reader finds at the head and in the first version."""
    reader = open_session()
    held = {}
    for name, ref in (("head", "main"), ("first", reader.column(f"SELECT version FROM fdl_log({quoted(repository.location)})")[-1])):
        reader.fdl("attach", repository.location, ref=ref, alias=name)
        for table in ("people", "by_name", "notes"):
            held[name, table] = sorted(map(repr, reader(f"FROM {name}.{table}")))
    return held


def the_call(lake, repository, by):
    files = lake.column(f"SELECT path FROM fdl_files({quoted(repository.location)}, ref := 'v1')")
    clean = lake.column(f"SELECT path FROM fdl_files({quoted(repository.location)})")
    holding = [file for file in files if file not in clean]
    log = lake.column(f"SELECT version FROM fdl_log({quoted(repository.location)})")
    return {
        "files": f"files := {holding}",
        # The second deleted the rows and read their files still.
        "versions": f"versions := {log[1:3]}",
    }[by]


@pytest.mark.parametrize("by", ["files", "versions"])
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_nothing_of_it_is_left(kind, by, new_place, open_session, tmp_path):
    repository, lake = new_place(kind), open_session()
    lake.fdl("init", repository.location)
    lake.checkout(repository.location)
    publish_the_secret(lake)
    location = quoted(repository.location)
    held = places_of_the_secret(lake, repository, tmp_path)
    assert any("name=Wilhelmina" in key for key in held) and any(key.endswith("ducklake.duckdb") for key in held)

    # A DELETE leaves the rows in their file, which the head reads.
    files = sorted(key for key in held if key.endswith(".parquet"))
    lake.refused(f"CALL fdl_withdraw({location}, files := {files})", "FDL-CONFLICT")
    rewrite(lake)
    head = lake.value(f"SELECT version FROM fdl_log({location}, max_count := 1)")
    assert not any(head in key for key in places_of_the_secret(lake, repository, tmp_path)), "the head's catalog tells it"

    call = f"fdl_withdraw({location}, {the_call(lake, repository, by)}, message := 'asked for by the person'"
    before, rows = repository.keys(), readable_rows(open_session, repository)
    plan = lake(f"FROM {call})")
    assert repository.keys() == before and not any(row["done"] for row in plan)
    done = lake(f"FROM {call}, dry_run := false)")
    assert [(row["object"], row["action"]) for row in done] == [(row["object"], row["action"]) for row in plan]

    assert places_of_the_secret(lake, repository, tmp_path) == set()
    assert readable_rows(open_session, repository) == rows
    assert lake(f"FROM fdl_fsck({location}, depth := 'content')") == []
    states = lake.column(f"SELECT state FROM fdl_log({location})")
    assert states == ["live", "withdrawn", "withdrawn", "live"]
    lake.refused(f"CALL fdl_attach({location}, ref := 'main~2', alias := 'gone')", "FDL-WITHDRAWN")
    lake.refused(f"CALL fdl_checkout({location}, ref := 'main~2', path := 'gone.sqlite', alias := 'gone')", "FDL-WITHDRAWN")
    assert "v1" not in lake.column(f"SELECT name FROM fdl_refs({location})")
    # The working copy goes on.
    lake("INSERT INTO lake.people VALUES ('One more', 101)")
    lake.publish("on")


def test_statistics_of_a_version_are_those_of_its_files(open_session, repository, tmp_path):
    """DuckLake keeps the least and the greatest value that a column ever had; a version has those of the rows it has."""
    lake = open_session()
    lake.checkout(repository.location)
    # Of each type the text order differs from the order of the values, where it can.
    columns = {
        "i": ("INTEGER", "-5 9 10 200"), "d": ("DECIMAL(9,2)", "-1.50 9.00 10.00 100.25"), "f": ("DOUBLE", "-2.5 9 10 1e10"),
        "t": ("TIMESTAMP", "1999-01-01 2001-01-01 2002-01-01 2030-01-01"), "v": ("VARCHAR", "A B a é"), "b": ("BLOB", "A B a z"),
        "s": ("STRUCT(x BIGINT)", "{x:-7} {x:8} {x:11} {x:99}"), "l": ("DATE[]", "[0999-01-01] [1000-02-03] [2000-01-01] [9999-01-01]")}

    def row(number):
        return ", ".join(f"CAST('{values.split()[number]}' AS {type})" for type, values in columns.values())

    lake(f"CREATE TABLE lake.t ({', '.join(f'{name} {type}' for name, (type, _) in columns.items())}, n INTEGER)")
    for number in (1, 2):
        lake(f"INSERT INTO lake.t VALUES ({row(number)}, NULL)")
    lake(f"INSERT INTO lake.t VALUES ({row(0)}, 3), ({row(3)}, 4)")
    lake.publish("all")
    lake("DELETE FROM lake.t WHERE i IN (-5, 200)")
    lake.publish("less")
    lake("CREATE TABLE lake.fresh AS FROM lake.t")
    lake.publish("the same rows anew")
    version = lake.value(f"SELECT version FROM fdl_log({quoted(repository.location)}, max_count := 1)")
    catalog = repository.copy(f"versions/{version}/ducklake.duckdb", tmp_path / "frozen.duckdb")
    lake(f"ATTACH {quoted(str(catalog))} AS frozen (READ_ONLY)")

    def statistics(table):
        # Whether a column ever held NULL is no value.
        return lake(f"""SELECT column_id, min_value, max_value FROM frozen.ducklake_table_column_stats WHERE table_id =
                        (SELECT table_id FROM frozen.ducklake_table WHERE table_name = '{table}') ORDER BY column_id""")

    assert len(statistics("t")) == len(columns) + 1
    assert statistics("t") == statistics("fresh")
    # A checkout of it goes on as any other.
    other = open_session()
    other.checkout(repository.location, path="other.sqlite")
    other(f"INSERT INTO lake.t VALUES ({row(3)}, 5)")
    assert other.column("SELECT i FROM lake.t WHERE i > 100 OR n = 5") == [200]
    assert other.column("SELECT max(i) FROM lake.t") == [200]


KINDS = {"JSON": "\"a\" \"b\" \"m\" \"z\"", "INTEGER": "-5 2 9 10", "DOUBLE": "nan 2.5 nan 10", "VARCHAR": "A B a z", "DATE": "1999-01-01 2001-01-01 2002-01-01 2030-01-01",
         "INTERVAL": "1s 2s 1m 1h", "TIMETZ": "01:00:00+00 02:00:00+00 03:00:00+00 04:00:00+00", "STRUCT(j JSON)": "{j:1} {j:2} {j:3} {j:4}",
         "DECIMAL(9,2)": "-1.5 2 10 100", "TIMESTAMPTZ": "1999-01-01 2001-01-01 2002-01-01 2030-01-01", "HUGEINT": "-5 2 9 10"}


@pytest.mark.parametrize("type", KINDS)
def test_rows_are_found_by_their_values_after_both_ends_have_gone(open_session, repository, type):
    """DuckDB leaves out files and rows by the statistics; those that say too little would lose rows."""
    low, new, middle, high = (f"CAST('{value}' AS {type})" for value in KINDS[type].split())
    lake = open_session()
    lake.checkout(repository.location)
    lake(f"CREATE TABLE lake.t (i INTEGER, v {type})")
    for i, value in ((1, middle), (3, high), (3, low)):
        lake(f"INSERT INTO lake.t VALUES ({i}, {value})")
    lake("DELETE FROM lake.t WHERE i = 3")
    lake.publish("the middle")
    other = open_session()
    other.checkout(repository.location, path="other.sqlite")
    other(f"INSERT INTO lake.t VALUES (4, {new})")
    other.publish("and another")
    other.fdl("attach", repository.location, alias="published")
    for place in ("lake", "published"):
        for i, value in ((1, middle), (4, new)):
            assert other.column(f"SELECT i FROM {place}.t WHERE v = {value}") == [i]
        assert sorted(other.column(f"SELECT i FROM {place}.t ORDER BY v")) == [1, 4]


def test_statistics_that_ducklake_made_too_narrow_are_not_published(open_session, repository):
    """DuckLake 1.5.5 loses the bounds of a column with its type; DuckDB sorts by them, and gives other values."""
    lake = open_session()
    lake.checkout(repository.location)
    lake("CREATE TABLE lake.t (a INTEGER); INSERT INTO lake.t VALUES (NULL); INSERT INTO lake.t VALUES (2); DELETE FROM lake.t WHERE a IS NULL")
    lake("ALTER TABLE lake.t ALTER COLUMN a SET DATA TYPE BIGINT")
    lake("INSERT INTO lake.t VALUES (99999999999)")
    lake("INSERT INTO lake.t VALUES (5)")
    lake.publish("wide")
    lake.fdl("attach", repository.location, alias="published")
    assert lake.column("SELECT a FROM published.t ORDER BY ALL") == [2, 5, 99999999999]
    other = open_session()
    other.checkout(repository.location, path="other.sqlite")
    assert other.column("SELECT a FROM lake.t ORDER BY ALL") == [2, 5, 99999999999]


def test_behind_http_nothing_can_be_withdrawn(new_place, open_session):
    place, session = new_place("http"), open_session()
    session.fdl("init", place.location)
    session.checkout(place.location)
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    session.publish("one", tag="v1")
    before = place.keys()
    said = session.refused(f"CALL fdl_withdraw({quoted(place.location)}, versions := ['v1'], dry_run := false)", "FDL-STORE")
    assert "list" in said
    assert place.keys() == before
