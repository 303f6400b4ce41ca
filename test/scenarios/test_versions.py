"""One repository, every supported DuckDB: what one version writes the others list, read and go on from."""

import json
import shutil

import pytest

import layout
from repository import tree
from session import rows

OTHERS = [version for version in layout.SUPPORTED if version != layout.MAIN]
WITH_DUCKLAKE = [version for version, has in layout.SUPPORTED.items() if has["extensions"]]
OLDER = [version for version in WITH_DUCKLAKE if version != layout.MAIN]

# What needs no DuckLake.
LISTS = ["fdl_log('repo')", "fdl_log('repo', ref := 'v1', max_count := 1)", "fdl_refs('repo')", "fdl_tables('repo')",
         "fdl_tables('repo', ref := 'v1')", "fdl_files('repo')", "fdl_files('repo', ref := 'v2~1')"]
# The catalog that the session's DuckLake reads; where there is none, the one of the writer's format.
URLS = ["fdl_url('repo')", "fdl_url('repo', ref := 'main~1')"]
PRINT = "print(json.dumps({call: rows(c, f'FROM {call} ORDER BY ALL') for call in %s}, default=str))"


@pytest.mark.parametrize("version", OTHERS)
def test_lists_are_the_same(python, repo, version):
    before = tree("repo")
    code = "c = connect()\n" + PRINT % (LISTS if version in OLDER else LISTS + URLS)
    assert python(code, version).results[-1] == python(code).results[-1]
    assert tree("repo") == before


@pytest.mark.parametrize("version", OTHERS)
def test_refs_are_made_and_deleted(python, connect, repo, version):
    made = python("""
c = connect()
calls = ["fdl_branch('repo', name := 'dev', ref := 'v1')", "fdl_tag('repo', name := 'v3')", "fdl_delete_ref('repo', ref := 'refs/tags/v2')", "fdl_init('repo')"]
print(json.dumps([rows(c, f"CALL {call}")[0] for call in calls]))
""", version).results[-1]
    assert [one.get("ref") for one in made] == ["refs/heads/dev", "refs/tags/v3", "refs/tags/v2", None]
    refs = {row["ref"]: row["version"] for row in rows(connect(), "FROM fdl_refs('repo')")}
    assert refs == {"refs/heads/dev": repo.first, "refs/heads/main": repo.main, "refs/tags/v1": repo.first, "refs/tags/v3": repo.main}
    assert json.loads((repo.path / "refs.json").read_text())["refs"] == refs


@pytest.mark.parametrize("version", OTHERS)
def test_a_repository_is_started(python, connect, version):
    code = "c = connect()\nprint(json.dumps(rows(c, \"CALL fdl_init('new', id := '6f1f5f3e-64c8-4b2e-9d0e-0d8a9c6c1a11', data_dir := 'parts')\")))"
    there = python(code, version).results[-1]
    written = tree("new")
    shutil.rmtree("new")
    assert python(code).results[-1] == there
    assert tree("new") == written


@pytest.mark.parametrize("version", OTHERS)
def test_errors_are_the_same(python, repo, version):
    code = """
from repository import error_of
c = connect()
calls = ["fdl_log('nowhere')", "fdl_url('repo', ref := 'gone')", "fdl_tag('repo', name := 'v1')", "fdl_branch('repo', name := '../x')", "fdl_init('gs://bucket/x')",
         "fdl_delete_ref('repo', ref := 'refs/heads/main')", "fdl_status('nothing')", "fdl_commit('memory')", "fdl_log(NULL)"]
print(json.dumps([error_of(c, f"CALL {call}") for call in calls]))
"""
    assert python(code, version).results[-1] == python(code).results[-1]


def test_a_duckdb_without_ducklake_says_so(python, repo):
    """There is no DuckLake for DuckDB 2.0 here, so nothing can be attached; the message says what is missing."""
    version = next(version for version, has in layout.SUPPORTED.items() if not has["extensions"])
    python("""
import os
from repository import refused
c = connect(extensions=os.path.expanduser('~/extensions'), custom_extension_repository='no repository')
for call in ("fdl_checkout('repo', alias := 'x')", "fdl_attach('repo', alias := 'x')"):
    refused(c, f"CALL {call}", "FDL-DUCKDB", "ducklake", "INSTALL ducklake")
""", version)


# ---------------------------------------------------------------- with DuckLake: an older release of it reads and writes format 0.3

CHANGES = """
from repository import lake_of
c = connect()
lake_of(c)
c.execute("INSERT INTO lake.t VALUES (100, 'mine')")
c.execute("CREATE TABLE lake.new (i INTEGER, at STRUCT(x DOUBLE, y DOUBLE))".replace(' at ', ' place '))
c.execute("INSERT INTO lake.new VALUES (1, {'x': 1.5, 'y': 2.5}), (2, NULL)")
c.execute("DELETE FROM lake.t WHERE i = 9")
print(json.dumps([rows(c, "CALL fdl_commit('lake', message := 'three')")[0], rows(c, "CALL fdl_push('lake', tag := 'v3')")[0], rows(c, "FROM fdl_status('lake')")[0]]))
"""
READ = """
c = connect()
c.execute("CALL fdl_attach('repo', alias := 'reader', ref := '%s')")
print(json.dumps({name: c.execute(f"SELECT count(*), sum(i)::INTEGER FROM reader.{name}").fetchone() for (name,) in
                  c.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'reader' ORDER BY 1").fetchall()}))
"""


@pytest.mark.parametrize("version", OLDER)
def test_an_older_duckdb_goes_on_from_its_own(python, bare, version):
    """A repository that only the older one writes."""
    done = python("""
c = connect()
c.execute("CALL fdl_init('repo')")
c.execute("CALL fdl_checkout('repo', alias := 'lake')")
c.execute("CREATE TABLE lake.t AS SELECT range AS i, 'row ' || range AS s FROM range(10)")
c.execute("CALL fdl_push('lake', message := 'one', tag := 'v1')")
""" + CHANGES, version).results[-1]
    assert done[0]["committed"] and done[1]["outcome"] == "pushed" and done[2]["uncommitted"] is False
    assert python(READ % "v3", version).rows == {"new": [2, 3], "t": [10, 136]}
    record = json.loads(next((bare / "repo/versions").glob(f"{done[1]['new_version']}/version.json")).read_text())
    assert record["ducklake"] == "0.3"


# DuckLake 0.3 does not read a catalog of 1.0, and 1.0 does not read one of 0.3 without rewriting it.
REFUSED = """
from repository import refused, lake_of
c = connect()
for call in ("fdl_attach('repo', alias := 'x')", "fdl_attach('repo', alias := 'x', cache := 'always')", "fdl_checkout('repo', alias := 'x')"):
    found = refused(c, f"CALL {call}", "FDL-UNSUPPORTED-VERSION", "", "DuckDB")
    assert '0.3' in found['sentence'] and '1.0' in found['sentence'], found[0]
"""


@pytest.mark.parametrize("version", OLDER)
def test_a_newer_catalog_is_refused_by_an_older_duckdb(python, repo, version):
    python(REFUSED, version)


@pytest.mark.parametrize("version", OLDER)
def test_an_older_catalog_is_refused_by_a_newer_duckdb(python, version):
    """And the older one goes on with it afterwards."""
    python("""
c = connect()
c.execute("CALL fdl_init('repo')")
c.execute("CALL fdl_checkout('repo', alias := 'lake')")
c.execute("CREATE TABLE lake.t AS SELECT range AS i, 'row ' || range AS s FROM range(10)")
c.execute("CALL fdl_push('lake', message := 'one', tag := 'v1')")
""", version)
    python(REFUSED)
    assert python("c = connect()\n" + PRINT % LISTS[:1]).results == python("c = connect()\n" + PRINT % LISTS[:1], version).results
    done = python(CHANGES, version).results[-1]
    assert done[1]["outcome"] == "pushed" and python(READ % "v3", version).rows == {"new": [2, 3], "t": [10, 136]}


@pytest.mark.parametrize("version", OLDER)
def test_a_working_copy_of_the_other_version(python, repo, version):
    """A working catalog of 1.5 opened from 1.4: no harm is done to it, and the answer is one of ours."""
    python("from repository import lake_of\nc = connect()\nlake_of(c)\nc.execute(\"INSERT INTO lake.t VALUES (100, 'mine')\")")
    python("""
from repository import error_of, tree
c = connect()
before = tree('repo')
for call in ("fdl_commit('lake.sqlite', message := 'x')", "fdl_push('lake.sqlite', message := 'x')"):
    message = error_of(c, f"CALL {call}")
    assert '[FDL-UNSUPPORTED-VERSION]' in message and 'Hint: ' in message, message
assert tree('repo') == before
""", version)
    done = python("c = connect()\nprint(json.dumps(rows(c, \"CALL fdl_push('lake.sqlite', message := 'x')\")))").results[-1][0]
    assert done["outcome"] == "pushed"
