"""After each step the repository holds what docs/format.md says: these files and no others, with this content."""

import hashlib
import inspect
import json
import re

import pytest

from story import quoted

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
VERSION_FILES = ["dataset.json", "ducklake.duckdb", "files.json", "version.json"]


def version_keys(*ids):
    return sorted(f"versions/{version}/{file}" for version in ids for file in VERSION_FILES)


def load(repository, key):
    """A JSON file, which is written with two-space indents and a line break at its end."""
    text = repository.text(key)
    value = json.loads(text)
    assert text == json.dumps(value, indent=2, ensure_ascii=False) + "\n", key
    return value


def sha256(repository, key):
    return hashlib.sha256(repository.read(key)).hexdigest()


def of_kind(repository, prefix):
    return [key for key in repository.keys() if key.startswith(prefix)]


@pytest.fixture
def lake(open_session, repository):
    session = open_session()
    session.attach_sql = session.checkout(repository.location)["attach_sql"]
    return session


@pytest.mark.everywhere
def test_the_files_of_a_repository_step_by_step(lake, repository):
    where = repository.location
    assert repository.keys() == ["HEAD", "fdl.json", "refs.json"]
    assert repository.text("HEAD") == "ref: refs/heads/main\n"
    settings = load(repository, "fdl.json")
    assert settings["fdl"] == "0.1" and settings["data_dir"] == "data/" and re.fullmatch(r"[0-9a-f-]{36}", settings["id"])
    assert load(repository, "refs.json") == {"head": "refs/heads/main", "refs": {}}

    # DuckDB writes data files into the repository at once, where it can; nothing names them yet.
    lake("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    lake("CREATE SCHEMA lake.s; CREATE TABLE lake.s.u AS SELECT 'u' AS u; CREATE VIEW lake.v AS FROM lake.t")
    at_once = [] if repository.kind == "http" else of_kind(repository, "data/")
    first = lake.fdl("commit", "lake", message="one")["version"]
    assert repository.keys() == ["HEAD", *at_once, "fdl.json", "refs.json"]
    lake.fdl("push", "lake")
    data = of_kind(repository, "data/")
    assert len(data) == 2 and all(re.fullmatch(r"data/(main/t|s/u)/ducklake-[0-9a-f-]{36}\.parquet", key) for key in data)
    assert at_once in ([], data)
    expected = {"HEAD", "fdl.json", "refs.json", "refs/heads/main", *data, *version_keys(first)}
    assert set(repository.keys()) == expected
    assert repository.text("refs/heads/main") == first + "\n" and UUID7.fullmatch(first)
    assert load(repository, "refs.json") == {"head": "refs/heads/main", "refs": {"refs/heads/main": first}}
    unchanging = {key: sha256(repository, key) for key in expected if key.startswith(("data/", "versions/", "fdl.json", "HEAD"))}

    # A commit and a push of nothing change nothing at all.
    before = {key: repository.read(key) for key in repository.keys()}
    assert lake.fdl("commit", "lake", message="nothing")["committed"] is False
    assert lake.fdl("push", "lake", message="nothing")["outcome"] == "up to date"
    assert {key: repository.read(key) for key in repository.keys()} == before

    # Looking changes nothing either.
    for function in ("status", "log", "refs", "tables", "files", "url", "attach"):
        lake.table(function, "lake" if function == "status" else where, **({"alias": "p"} if function == "attach" else {}))
    assert {key: repository.read(key) for key in repository.keys()} == before

    lake("DELETE FROM lake.t WHERE a < 3")
    second = lake.publish("two", tag="v1")["new_version"]
    (deletes,) = set(of_kind(repository, "data/")) - set(data)
    expected |= {deletes, "refs/tags/v1", *version_keys(second)}
    assert set(repository.keys()) == expected
    assert re.fullmatch(r"data/main/t/ducklake-[0-9a-f-]{36}-delete\.parquet", deletes)
    assert load(repository, "refs.json")["refs"] == {"refs/heads/main": second, "refs/tags/v1": second}
    assert first < second

    # Two commits, one push; a branch; a ref less.
    made = []
    for number in range(2):
        lake(f"INSERT INTO lake.t VALUES ({number})")
        made.append(lake.fdl("commit", "lake", message="more")["version"])
    assert set(repository.keys()) - set(of_kind(repository, "data/")) == {key for key in expected if not key.startswith("data/")}
    lake.fdl("push", "lake")
    lake.fdl("branch", where, name="a/b", ref="v1")
    expected |= {"refs/heads/a/b", *version_keys(*made)}
    assert set(repository.keys()) - set(of_kind(repository, "data/")) == {key for key in expected if not key.startswith("data/")}
    refs = load(repository, "refs.json")["refs"]
    assert list(refs.items()) == [("refs/heads/a/b", second), ("refs/heads/main", made[1]), ("refs/tags/v1", second)]
    lake.fdl("delete_ref", where, ref="refs/heads/a/b")
    assert "refs/heads/a/b" not in repository.keys() and list(load(repository, "refs.json")["refs"]) == ["refs/heads/main", "refs/tags/v1"]
    assert {key: sha256(repository, key) for key in unchanging} == unchanging


def test_the_order_of_writing(lake, repository):
    """Whatever a file points at is written before it, as the times of a folder tell: docs/format.md section 9."""
    if not hasattr(repository, "path"):
        pytest.skip("only a folder keeps the times of writing")
    for number in range(3):
        lake(f"CREATE TABLE lake.t{number} AS SELECT {number} AS a")
        version = lake.publish("next")["new_version"]
        steps = [of_kind(repository, "data/"), [f"versions/{version}/{file}" for file in VERSION_FILES if file != "version.json"],
                 [f"versions/{version}/version.json"], ["refs/heads/main"], ["refs.json"]]
        times = [[(repository.path / key).stat().st_mtime_ns for key in step] for step in steps]
        for earlier, later in zip(times, times[1:]):
            assert max(earlier) <= min(later), times


@pytest.mark.everywhere
def test_the_record_and_what_it_vouches_for(lake, repository):
    lake("CREATE TABLE lake.t AS SELECT 1 AS a")
    first = lake.publish("地図\n\nsecond line \"quoted\"", author="Aiko 田中 <aiko@example.org>")["new_version"]
    lake("INSERT INTO lake.t VALUES (2)")
    second = lake.publish("two")["new_version"]
    for version, parents in ((first, []), (second, [first])):
        folder = f"versions/{version}/"
        record = load(repository, folder + "version.json")
        assert list(record) == ["fdl", "id", "parents", "author", "message", "created", "sha256", "size", "ducklake", "files_sha256", "dataset_sha256", "tool"]
        assert (record["fdl"], record["id"], record["parents"]) == ("0.1", version, parents)
        assert record["sha256"] == sha256(repository, folder + "ducklake.duckdb")
        assert record["size"] == repository.size(folder + "ducklake.duckdb")
        assert record["files_sha256"] == sha256(repository, folder + "files.json")
        assert record["dataset_sha256"] == sha256(repository, folder + "dataset.json")
        assert TIME.fullmatch(record["created"]) and record["ducklake"] == "1.0" and record["tool"].startswith("fdl-duckdb ")
    record = load(repository, f"versions/{first}/version.json")
    assert (record["author"], record["message"]) == ("Aiko 田中 <aiko@example.org>", "地図\n\nsecond line \"quoted\"")
    assert [entry["sha256"] for entry in lake.table("log", repository.location)] == [
        sha256(repository, f"versions/{version}/ducklake.duckdb") for version in (second, first)]


def make_dataset(lake):
    for statement in (
            "CREATE TABLE lake.t AS SELECT range::INTEGER AS a, 'x' AS b, {'k': [1.5::DECIMAL(4,1)]} AS s FROM range(100)", "INSERT INTO lake.t (a) VALUES (1000)",
            "DELETE FROM lake.t WHERE a < 10", "COMMENT ON TABLE lake.t IS '説明'", "COMMENT ON COLUMN lake.t.b IS 'b'", "ALTER TABLE lake.t ALTER a SET NOT NULL",
            "CREATE SCHEMA lake.\"ス\"", "CREATE TABLE lake.\"ス\".p (k VARCHAR, n BIGINT)", "ALTER TABLE lake.\"ス\".p SET PARTITIONED BY (k)",
            "INSERT INTO lake.\"ス\".p VALUES ('a/b', 1), ('c', 2)", "CREATE TABLE lake.empty (x TIMESTAMPTZ)", "CREATE VIEW lake.v AS SELECT a FROM lake.t",
            "ALTER TABLE lake.t SET SORTED BY (a)", "CREATE TABLE lake.gone AS SELECT 1 AS a", "DROP TABLE lake.gone"):
        lake(statement)


@pytest.mark.everywhere
def test_dataset_json_and_files_json_match_the_catalog(lake, open_session, repository):
    make_dataset(lake)
    version = lake.publish("all")["new_version"]
    dataset = load(repository, f"versions/{version}/dataset.json")
    assert list(dataset) == ["fdl", "schemas", "totals"] and [schema["name"] for schema in dataset["schemas"]] == ["main", "ス"]
    main, other = dataset["schemas"]
    tables = {table["name"]: table for table in main["tables"] + other["tables"]}
    assert {name: table["kind"] for name, table in tables.items()} == {"t": "table", "empty": "table", "v": "view", "p": "table"}
    assert tables["t"]["comment"] == "説明" and tables["t"]["rows"] == 91 and tables["empty"]["rows"] == 0
    assert tables["p"]["partition_by"] == ["k"] and len(tables["t"]["sort_by"]) == 1 and "SELECT a" in tables["v"]["sql"]
    assert tables["t"]["columns"] == [
        {"name": "a", "type": "INTEGER", "nullable": False}, {"name": "b", "type": "VARCHAR", "nullable": True, "comment": "b"},
        {"name": "s", "type": tables["t"]["columns"][2]["type"], "nullable": True}]
    assert lake.value(f"SELECT typeof(NULL::{tables['t']['columns'][2]['type']}) = typeof((SELECT s FROM lake.t LIMIT 1))")
    files = load(repository, f"versions/{version}/files.json")
    listed = {(table["schema"], table["table"]): table["files"] for table in files["tables"]}
    paths = []
    for file in (file for files in listed.values() for file in files):
        for stored in (file, file.get("deletes")):
            if stored:
                paths.append(stored["path"])
                assert repository.size(stored["path"]) == stored["bytes"]
        target = repository.copy(file["path"], "copy.parquet")
        assert lake.value(f"SELECT count(*) FROM read_parquet({quoted(target)})") == file["rows"]
    assert len(paths) == len(set(paths)) and all(path.startswith("data/") for path in paths)
    assert len(listed["main", "t"]) == 2 and len(listed["ス", "p"]) == 2
    (deleted,) = [file["deletes"]["rows"] for file in listed["main", "t"] if file.get("deletes")]
    assert deleted == 10
    count, size = len(paths), sum(repository.size(path) for path in paths)
    totals = dataset["totals"]
    assert (totals["tables"], totals["views"], totals["rows"], totals["bytes"]) == (3, 1, 93, size)
    assert totals["files"] in (count, count - 1), "with or without the delete file"
    (entry,) = lake.table("log", repository.location)
    assert (entry["tables"], entry["rows"], entry["bytes"]) == (3, 93, size)


def test_the_same_dataset_gives_the_same_bytes(lake, repository):
    make_dataset(lake)
    first = lake.publish("all")["new_version"]
    second = lake.fdl("commit", "lake", message="again", force=True)["version"]
    lake.fdl("push", "lake")
    for file in ("dataset.json", "files.json"):
        assert repository.read(f"versions/{first}/{file}") == repository.read(f"versions/{second}/{file}")


def check_frozen(s, catalog):
    """What a frozen catalog is, asked of a session of any DuckDB: nothing but a DuckDB file with DuckLake's tables."""
    s.execute(f"ATTACH '{catalog}' AS c (READ_ONLY)")

    def rows(sql):
        return s.execute(sql).fetchall()

    tables = [row[0] for row in rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'c'")]
    problems = [table for table in tables if table.startswith("ducklake_inlined_") and rows(f"SELECT 1 FROM c.\"{table}\" LIMIT 1")]
    ended = [table for (table,) in rows("SELECT DISTINCT table_name FROM duckdb_columns() WHERE database_name = 'c' AND column_name = 'end_snapshot'")]
    problems += [table for table in ended if rows(f"SELECT 1 FROM c.{table} WHERE end_snapshot IS NOT NULL")]
    for table in ("ducklake_data_file", "ducklake_delete_file", "ducklake_table", "ducklake_schema"):
        problems += rows(f"SELECT path FROM c.{table} WHERE NOT path_is_relative OR path LIKE '/%' OR path LIKE '%://%'")
    return {
        "problems": problems,
        "snapshots": rows("SELECT count(*) FROM c.ducklake_snapshot") + rows("SELECT count(*) FROM c.ducklake_snapshot_changes"),
        "scheduled": rows("SELECT count(*) FROM c.ducklake_files_scheduled_for_deletion"),
        "metadata": dict(rows("SELECT key, value FROM c.ducklake_metadata WHERE scope IS NULL")),
        "types": {f"{t}.{c}": d for t, c, d in rows("SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'c' ORDER BY ALL")},
        "orphans": rows("SELECT data_file_id FROM c.ducklake_file_column_stats EXCEPT SELECT data_file_id FROM c.ducklake_data_file")
        + rows("SELECT data_file_id FROM c.ducklake_delete_file EXCEPT SELECT data_file_id FROM c.ducklake_data_file")
        + rows("SELECT table_id FROM c.ducklake_table_stats EXCEPT SELECT table_id FROM c.ducklake_table"),
        "live": rows("SELECT count(*) FROM c.ducklake_data_file") + rows("SELECT count(*) FROM c.ducklake_delete_file"),
    }


@pytest.mark.everywhere
def test_the_frozen_catalog(lake, python, any_version, repository):
    """In every DuckDB we support, as a plain file: one snapshot, nothing inlined, nothing ended, all paths relative, DuckLake's own types."""
    lake("DETACH lake; ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    make_dataset(lake)
    lake("INSERT INTO lake.t (a) VALUES (1001); DELETE FROM lake.t WHERE a = 1000; CALL ducklake_merge_adjacent_files('lake')")
    version = lake.publish("all", lake="lake.sqlite")["new_version"]
    catalog = repository.copy(f"versions/{version}/ducklake.duckdb", "frozen.duckdb")
    ask = inspect.getsource(check_frozen) + "\nprint(json.dumps(check_frozen(duckdb.connect(), 'frozen.duckdb')))"
    (told,) = python(ask, version=any_version).results
    assert told["problems"] == [] and told["orphans"] == [] and told["scheduled"] == [[0]]
    assert told["snapshots"] == [[1], [1]]
    data_path = lake.fdl("url", repository.location)["data_path"]
    metadata = told["metadata"]
    assert metadata["data_path"] == data_path and metadata["version"] == "1.0"
    assert not {"fdl_checkout", "delete_older_than"} & set(metadata)
    lake("ATTACH 'ducklake:fresh.duckdb' AS fresh (DATA_PATH 'fresh'); DETACH fresh; ATTACH 'fresh.duckdb' AS plain (READ_ONLY)")
    declared = {f"{row['t']}.{row['c']}": row["d"] for row in lake(
        "SELECT table_name AS t, column_name AS c, data_type AS d FROM duckdb_columns() WHERE database_name = 'plain'")}
    assert told["types"] == declared
    files = load(repository, f"versions/{version}/files.json")["tables"]
    listed = [file for table in files for file in table["files"]]
    assert told["live"] == [[len(listed)], [len([file for file in listed if file.get("deletes")])]]


def test_no_stray_is_left_beside_the_working_catalog(lake, repository, bare):
    lake("CREATE TABLE lake.t AS SELECT 1 AS a")
    lake.publish("one")
    lake("INSERT INTO lake.t VALUES (2)")
    second = lake.publish("two")["new_version"]
    lake.fdl("status", "lake")
    beside = sorted(path.relative_to(bare).as_posix() for path in bare.rglob("*") if path.is_file())
    state = [path for path in beside if path.startswith("lake.sqlite.fdl/")]
    assert set(state) == {"lake.sqlite.fdl/lock", "lake.sqlite.fdl/state.json", *(f"lake.sqlite.fdl/{key}" for key in version_keys(second))}
    assert set(beside) - set(state) <= {"lake.sqlite", "lake.sqlite-wal", "lake.sqlite-shm"}
    assert lake.column("SELECT database_name FROM duckdb_databases() WHERE database_name LIKE '%fdl%'") == []
    lake.close()
