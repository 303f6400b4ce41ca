"""A hostile repository can do nothing: attacks that were once done for real, with everything a record vouches for in order."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hostile
import layout
from repository import error_of, lake_of
from session import quoted, rows

SECRET = "hush-content-of-a-local-file"
READ = "(SELECT content FROM read_text('secret.txt'))"

# Every call that looks into a catalog, of a repository `bad` whose JSON files are missing.
READERS = ["fdl_attach('bad', alias := 'x')", "fdl_attach('bad', alias := 'x', cache := 'never')", "fdl_checkout('bad', alias := 'x')", "fdl_tables('bad')",
           "fdl_files('bad')", "fdl_diff('bad', from_ref := 'v1', to_ref := 'main')", "fdl_clone('bad', target := 'copy')", "fdl_gc('bad')",
           "fdl_withdraw('bad', tables := ['main.t'])"]
# Those that tell it as a finding.
LOOKERS = ["fdl_fsck('bad', depth := 'files')", "fdl_fsck('bad', depth := 'content')", "fdl_doctor('bad')"]


def renamed(table, select):
    return [f"ALTER TABLE {table} RENAME TO b_{table}", f"CREATE VIEW {table} AS {select}"]


TAG_VIEW = "SELECT * FROM b_ducklake_tag UNION ALL SELECT 1, 0, NULL, 'comment', {}"

# What no catalog of DuckLake has, and what the message must name.
ATTACKS = {
    "a view that reads a file": (renamed("ducklake_tag", TAG_VIEW.format(READ)), "the view ducklake_tag"),
    "a view that calls fdl": (renamed("ducklake_tag", TAG_VIEW.format("(SELECT any_value(ref) FROM fdl_delete_ref('other', ref := 'refs/tags/v1'))")),
                              "the view ducklake_tag"),
    "a view that shows one thing to fdl": (renamed("ducklake_data_file", "SELECT * REPLACE (CASE WHEN current_query() LIKE '%duckdb_columns%' THEN path ELSE "
                                                   "'../../../../secret.parquet' END AS path) FROM b_ducklake_data_file"), "the view ducklake_data_file"),
    "a macro": (["CREATE MACRO ducklake_m() AS 1"], "the macro ducklake_m"),
    "a table macro": (["CREATE MACRO ducklake_tm() AS TABLE SELECT 1"], "the macro ducklake_tm"),
    "a type": (["CREATE TYPE mood AS ENUM ('a')"], "the type mood"),
    "a sequence": (["CREATE SEQUENCE s"], "the sequence s"),
    "an index": (["CREATE INDEX i ON ducklake_tag (object_id)"], "the index i"),
    "a schema": (["CREATE SCHEMA other"], "the schema other"),
    "a table": (["CREATE TABLE other (a INTEGER)"], "the table other"),
    "a table in another schema": (["CREATE SCHEMA other", "CREATE TABLE other.ducklake_tag (a INTEGER)"], "the schema other"),
    "a default that is an expression": (["ALTER TABLE ducklake_tag ALTER value SET DEFAULT now()"], "ducklake_tag.value"),
    "a generated column": (["DROP TABLE ducklake_tag", "CREATE TABLE ducklake_tag (object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "
                            "key VARCHAR, value VARCHAR GENERATED ALWAYS AS (current_query()))"], "ducklake_tag.value"),
    "a check": (["DROP TABLE ducklake_tag", "CREATE TABLE ducklake_tag (object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, "
                 "value VARCHAR CHECK (length(value) > 0))"], "the constraint"),
    "a column too many": (["ALTER TABLE ducklake_tag ADD COLUMN more INTEGER"], "ducklake_tag.more"),
    "a column too few": (["ALTER TABLE ducklake_tag DROP COLUMN value"], "ducklake_tag.value"),
    "a column of another type": (["DROP TABLE ducklake_tag", "CREATE TABLE ducklake_tag (object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "
                                  "key VARCHAR, value STRUCT(a INTEGER))"], "ducklake_tag.value"),
    "a table missing": (["DROP TABLE ducklake_tag"], "ducklake_tag"),
    "two comments of one table": (["INSERT INTO ducklake_tag SELECT 1, 0, NULL, 'comment', 'x' FROM range(2)"], "ducklake_tag"),
    "a type as SQL": (["UPDATE ducklake_column SET column_type = 'decimal(18,3)) IS NOT NULL), 1; COPY (SELECT 42 AS a) TO ''PWNED.CSV''; --'"], "decimal(18,3))"),
    "a type that is too wide": (["UPDATE ducklake_column SET column_type = 'decimal(999999,1)'"], "decimal(999999,1)"),
    "rows in the catalog": (["CREATE TABLE ducklake_inlined_data_1_1 (row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, a BIGINT)",
                             "INSERT INTO ducklake_inlined_data_1_1 VALUES (0, 0, NULL, 1)"], "ducklake_inlined_data_1_1"),
    "a table named as SQL": (['CREATE TABLE "ducklake_inlined_data_1_1; DROP TABLE x" (a INTEGER)'], "DROP TABLE x"),
    # DuckLake takes a row for current by the number of the snapshot, and would show what fdl had not looked at.
    "a table that ends in the future": (["UPDATE ducklake_table SET end_snapshot = 1000000"], "ducklake_table begins or ends"),
    "a column that begins in the future": (["INSERT INTO ducklake_column SELECT * REPLACE (1000000 AS begin_snapshot, 1000001 AS end_snapshot) FROM "
                                            "ducklake_column LIMIT 1"], "ducklake_column begins or ends"),
    # These made DuckDB give up the user's database, at the next SHOW ALL TABLES.
    "no next number": (["UPDATE ducklake_snapshot SET next_file_id = NULL"], "ducklake_snapshot.next_file_id"),
    "a column without a number": (["UPDATE ducklake_column SET nulls_allowed = NULL"], "ducklake_column.nulls_allowed"),
    "a number that is too large": (["UPDATE ducklake_column SET column_id = 3000000000 WHERE column_id = 1"], "a column number"),
    "a type that is none": (["UPDATE ducklake_column SET column_type = 'unknown'"], "unknown"),
    "a list without an element": (["UPDATE ducklake_column SET column_type = 'list'"], "a nested column"),
    "a macro without a body": (["INSERT INTO ducklake_macro VALUES (0, 99, 'm', 0, NULL)"], "a macro has no implementation"),
    "no format": (["DELETE FROM ducklake_metadata WHERE key = 'version'"], "format"),
}


@pytest.fixture
def scene(repo, connect, bare):
    """A session with a local file that is nobody's business, another repository, and `bad`, a copy of it to be forged."""
    (bare / "secret.txt").write_text(SECRET)
    shutil.copytree(repo.path, bare / "other")
    shutil.copytree(repo.path, bare / "bad")
    return connect()


def unharmed(connection, bare):
    """No attack has had an effect."""
    assert not [path for path in bare.rglob("PWNED*")]
    assert (bare / "other/refs/tags/v1").exists()
    assert connection.execute("SELECT 42").fetchone() == (42,)
    assert not rows(connection, "SELECT 1 FROM duckdb_databases() WHERE database_name = 'x'")
    assert not rows(connection, "FROM fdl_serving()")


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_no_catalog_has(scene, bare, attack):
    statements, names = ATTACKS[attack]
    hostile.forge("bad", *statements, without_json=True)
    # All calls look into a catalog by one function: for each attack one that opens it and one that lists it, and for one attack all.
    every = attack == "a view that reads a file"
    for call in READERS if every else ["fdl_attach('bad', alias := 'x')", "fdl_files('bad')"]:
        message = error_of(scene, f"FROM {call}")
        assert "[FDL-CORRUPT]" in message and names in message and SECRET not in message, f"{call}: {message}"
        unharmed(scene, bare)
    for call in LOOKERS if every else LOOKERS[:1]:
        found = str(rows(scene, f"FROM {call}"))
        assert SECRET not in found and names in found, f"{call}: {found}"
        unharmed(scene, bare)


LEAVING = {
    "a folder of a table that is absolute": ["UPDATE ducklake_table SET path = '{bare}/elsewhere/', path_is_relative = false"],
    "a folder of a table that leads out": ["UPDATE ducklake_table SET path = '../../../elsewhere/'"],
    "a folder of a schema that leads out": ["UPDATE ducklake_schema SET path = '../../elsewhere/'"],
    "a folder of a table that has no files": ["DELETE FROM ducklake_data_file", "UPDATE ducklake_table SET path = '/elsewhere/', path_is_relative = false"],
    "a file that is a query to another service": ["UPDATE ducklake_data_file SET path = path || '?s3_endpoint=evil.example.org'"],
}


@pytest.mark.parametrize("attack", LEAVING)
def test_what_leads_out_of_the_data_folder(scene, bare, attack):
    (bare / "elsewhere").mkdir()
    hostile.forge("bad", *[statement.format(bare=bare) for statement in LEAVING[attack]], without_json=True)
    for call in ("fdl_attach('bad', alias := 'x')", "fdl_checkout('bad', alias := 'x')", "fdl_files('bad')"):
        assert "[FDL-BAD-PATH]" in error_of(scene, f"FROM {call}"), call
        unharmed(scene, bare)
    assert not list((bare / "elsewhere").iterdir())


def test_sort_keys_that_are_sql_are_told(scene):
    lake_of(scene)
    scene.execute("ALTER TABLE lake.t SET SORTED BY (n)" if "n" in [row[0] for row in scene.execute("DESCRIBE lake.t").fetchall()] else
                  f"ALTER TABLE lake.t SET SORTED BY ({scene.execute('DESCRIBE lake.t').fetchall()[0][0]})")
    rows(scene, "FROM fdl_push('lake', message := 'sorted')")
    assert rows(scene, "SELECT note FROM fdl_attach('repo', alias := 'plain')")[0]["note"] is None
    hostile.forge("repo", "UPDATE ducklake_sort_expression SET expression = '(SELECT 1)'")
    (found,) = rows(scene, "SELECT note FROM fdl_attach('repo', alias := 'other')")
    assert "1 table with sort expressions (main.t)" in found["note"]


def test_a_format_that_is_not_known(scene, bare):
    hostile.forge("bad", "UPDATE ducklake_metadata SET value = '9.9' WHERE key = 'version'", without_json=True)
    assert "[FDL-UNSUPPORTED-VERSION]" in error_of(scene, "FROM fdl_attach('bad', alias := 'x')")
    unharmed(scene, bare)


def test_texts_where_a_copy_from_sqlite_has_them(scene):
    """Another tool may leave every type as SQLite has it. What this session opens has DuckLake's own."""
    hostile.forge("bad", *[f"CREATE TABLE new AS SELECT * REPLACE ({column}::VARCHAR AS {column}) FROM {table}; DROP TABLE {table}; "
                           f"ALTER TABLE new RENAME TO {table}"
                           for table, column in (("ducklake_snapshot", "snapshot_time"), ("ducklake_table", "table_uuid"), ("ducklake_table", "path_is_relative"))])
    (found,) = rows(scene, "FROM fdl_attach('bad', alias := 'x')")
    assert rows(scene, "SELECT count(*) FROM x.t")
    scene.execute(f"ATTACH {quoted(found['catalog'])} AS opened (READ_ONLY)")
    with_types = dict(scene.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'opened' "
                                    "AND column_name IN ('snapshot_time', 'table_uuid', 'path_is_relative')").fetchall())
    assert with_types == {"snapshot_time": "TIMESTAMP WITH TIME ZONE", "table_uuid": "UUID", "path_is_relative": "BOOLEAN"}


def test_the_session_opens_a_copy_of_its_own(scene, bare):
    """Not the repository's file, which may be swapped after the look at it."""
    for cache in ("auto", "always", "never"):
        (found,) = rows(scene, f"FROM fdl_attach('bad', alias := 'x', cache := '{cache}')")
        assert not found["catalog"].startswith(str(bare / "bad")), cache
        folder = Path(found["catalog"]).parent
        assert folder.stat().st_mode & 0o077 == 0
        (opened,) = rows(scene, "SELECT path FROM duckdb_databases() WHERE database_name = 'x'")
        assert opened["path"] == found["catalog"]
        scene.execute("DETACH x")


def test_a_folder_of_the_cache_that_others_may_write_to(scene, bare, monkeypatch):
    cache = bare / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    monkeypatch.setenv("FDL_CACHE_DIR", str(cache))
    rows(scene, "FROM fdl_attach('bad', alias := 'x')")
    assert cache.stat().st_mode & 0o022 == 0


def test_a_copy_in_the_cache_that_was_changed(scene):
    (first,) = rows(scene, "FROM fdl_attach('bad', alias := 'x')")
    scene.execute("DETACH x")
    catalog = Path(first["catalog"])
    content = bytearray(catalog.read_bytes())
    content[-1] ^= 1
    catalog.write_bytes(content)
    (second,) = rows(scene, "FROM fdl_attach('bad', alias := 'x')")
    assert Path(second["catalog"]).read_bytes() != bytes(content)


def test_what_takes_too_much(scene, bare):
    """Five million tags in a small file once took two gigabytes."""
    hostile.forge("bad", "INSERT INTO ducklake_tag SELECT range, 0, NULL, 'comment', 'x' FROM range(5000000)", without_json=True)
    for call in ("fdl_attach('bad', alias := 'x')", "fdl_tables('bad')"):
        message = error_of(scene, f"FROM {call}")
        assert "[FDL-CORRUPT]" in message and ("definitions" in message or "MiB" in message), message
    unharmed(scene, bare)


def test_a_catalog_that_is_too_large(scene):
    message = error_of(scene, "FROM fdl_attach('bad', alias := 'x', max_catalog := 1000)")
    assert "1000" in message and "max_catalog" in message, message


def test_a_call_of_fdl_in_a_statement_of_fdl(scene, bare):
    """A view of a working catalog is not in a repository, and runs in the user's session all the same."""
    lake_of(scene)
    scene.execute("CREATE VIEW lake.evil AS SELECT ref FROM fdl_delete_ref('other', ref := 'refs/tags/v1')")
    for call in ("fdl_status('lake')", "fdl_diff('lake')", "fdl_commit('lake', message := 'm')", "fdl_push('lake')"):
        rows(scene, f"FROM {call}")
        assert (bare / "other/refs/tags/v1").exists(), call


def test_what_runs_later_is_told(scene):
    lake_of(scene)
    scene.execute("CREATE VIEW lake.large AS SELECT * FROM lake.t; CREATE MACRO lake.twice(x) AS 2 * x")
    scene.execute("CREATE TABLE lake.d (a INTEGER, made TIMESTAMP DEFAULT now())")
    rows(scene, "FROM fdl_push('lake', message := 'm')")
    for call in ("fdl_attach('repo', alias := 'x')", "fdl_attach('repo', alias := 'x')", "fdl_checkout('repo', alias := 'y')"):
        (found,) = rows(scene, f"SELECT note FROM {call}")
        assert "1 view (main.large), 1 macro (main.twice), 1 default expression (main.d.made)" in found["note"], call
    shown = {row["name"]: row["sql"] for row in rows(scene, "SELECT name, sql FROM fdl_tables('repo') WHERE sql IS NOT NULL")}
    assert set(shown) == {"large", "twice"} and "t" in shown["large"] and shown["twice"] == "(x) AS (2 * x)"


def test_a_commit_binds_no_view(scene, bare):
    """A request went out when a version was described."""
    lake_of(scene)
    scene.execute("CREATE VIEW lake.local AS SELECT * FROM read_text('secret.txt'); CREATE TEMP TABLE mine AS SELECT 1 AS a")
    scene.execute("CREATE VIEW lake.temporary AS SELECT * FROM mine; CREATE VIEW lake.good AS SELECT n FROM lake.t".replace("n FROM", "* FROM"))
    (found,) = rows(scene, "FROM fdl_push('lake', message := 'm')")
    assert "main.local" in found["note"] and "main.temporary" in found["note"] and "main.good" not in found["note"]
    columns = {row["name"]: row["columns"] for row in rows(scene, "SELECT name, columns FROM fdl_tables('repo') WHERE kind = 'view'")}
    assert columns["local"] == [] and columns["temporary"] == [] and columns["good"]


def test_a_macro_of_the_user_that_calls_fdl(scene, bare):
    """A macro of the user's own may have the name of one of DuckDB's functions, and then fdl's own statements find it."""
    lake_of(scene)
    scene.execute("CREATE MACRO lower(x) AS (SELECT any_value(ref) FROM fdl_delete_ref('other', ref := 'refs/tags/v1'))")
    try:
        message = error_of(scene, "FROM fdl_status('lake')")
    finally:
        scene.execute("DROP MACRO lower")
    assert "cannot run inside a statement that fdl itself runs" in message
    unharmed(scene, bare)
    assert rows(scene, "FROM fdl_status('lake')")


def test_a_version_that_expired_meanwhile(scene):
    """An alias that follows a branch goes on to what the branch holds, though what it held is gone."""
    lake_of(scene)
    rows(scene, "FROM fdl_attach('repo', alias := 'latest')")
    scene.execute("INSERT INTO lake.t SELECT * FROM lake.t LIMIT 1")
    rows(scene, "FROM fdl_push('lake', message := 'more')")
    for tag in ("v1", "v2"):
        rows(scene, f"FROM fdl_delete_ref('repo', ref := 'refs/tags/{tag}')")
    assert any(row["done"] for row in rows(scene, "FROM fdl_expire('repo', keep_last := 1, dry_run := false)"))
    before = scene.execute("SELECT count(*) FROM latest.t").fetchone()
    rows(scene, "FROM fdl_attach('latest', alias := 'latest')")
    assert scene.execute("SELECT count(*) FROM latest.t").fetchone() == (before[0] + 1,)


def test_what_is_opened(scene, bare, tmp_path):
    """The system is asked which files and addresses a reader opens."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    hostile.forge("bad", *ATTACKS["a view that reads a file"][0], without_json=True)
    shutil.copytree("bad", "bad2")
    script = tmp_path / "reader.py"
    script.write_text("import sys\nfrom session import connect, rows\nc = connect()\n"
                      "for call in sys.argv[1:]:\n    try:\n        rows(c, 'FROM ' + call)\n    except Exception as error:\n        print(error)\n")
    trace = tmp_path / "trace"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in (Path(__file__).parent, layout.ROOT / "scripts"))}
    calls = ["fdl_attach('bad', alias := 'x')", "fdl_tables('bad')", "fdl_fsck('bad', depth := 'content')", "fdl_attach('other', alias := 'good')"]
    done = subprocess.run(["strace", "-f", "-qq", "-o", trace, "-e", "trace=openat,open,connect,execve", sys.executable, script, *calls],
                          env=environment, capture_output=True, text=True, timeout=200)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine lets nobody trace a process")
    seen = trace.read_text()
    assert "ducklake.duckdb" in seen and done.stdout.count("FDL-CORRUPT") == 2, done
    assert "secret.txt" not in seen and "AF_INET" not in seen
    assert seen.count("execve(") == 1


FLIPS = int(os.environ.get("FDL_FUZZ", "200"))


def test_flipped_bits_with_mended_checksums(scene, bare):
    """A damaged file once made the user's whole database unusable."""
    size = (hostile.records("bad")[-1].with_name("ducklake.duckdb")).stat().st_size
    chance = random.Random(7)
    for number in range(FLIPS):
        shutil.rmtree("bad")
        shutil.copytree("other", "bad")
        at, bit = chance.randrange(hostile.HEADERS, size), chance.randrange(8)
        hostile.flip("bad", at, bit)
        calls = ["fdl_attach('bad', alias := 'x', cache := 'never')", "fdl_checkout('bad', alias := 'y', path := 'y.sqlite', force := true)",
                 "fdl_fsck('bad', depth := 'files')"]
        # They read it by one function.
        for call in calls if number % 8 == 0 else calls[:1]:
            try:
                scene.execute(f"CALL {call}").fetchall()
            except Exception as error:
                assert "[FDL-" in str(error), f"{number} {at}/{bit} {call}: {error}"
        assert scene.execute("SELECT 42").fetchone() == (42,), f"{at}/{bit}"
        scene.execute("DETACH DATABASE IF EXISTS x; DETACH DATABASE IF EXISTS y")


def test_a_fork(python):
    """A child of the process that loaded fdl says so at once, and can load fdl for itself."""
    code = """
import os
c = connect(); rows(c, "FROM fdl_init('r')"); rows(c, "FROM fdl_checkout('r', alias := 'lake')")
r, w = os.pipe()
if os.fork() == 0:
    try:
        rows(c, "FROM fdl_log('r')"); text = 'no error'
    except Exception as error:
        text = str(error)
    d = connect()
    text += '|' + str(rows(d, "FROM fdl_refs('r')"))
    os.write(w, text.encode()); os._exit(0)
os.close(w)
print(json.dumps([os.fdopen(r).read()]))
"""
    (found,) = python(code).rows
    message, listed = found.split("|")
    assert "[FDL-FORKED]" in message and "load fdl there" in message and listed == "[]"
