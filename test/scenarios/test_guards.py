"""What must not be lost or mixed up in situations that are easy to overlook: each of these once went wrong."""

import os
import shutil
from pathlib import Path

import pytest

from repository import error_of, refused
from session import quoted, rows
from test_bad_input import tamper


@pytest.fixture
def lake(connect, repo):
    connection = connect()
    connection.execute("CALL fdl_checkout('repo', alias := 'lake')")
    return connection


def commit(connection, message="changed"):
    return rows(connection, f"CALL fdl_commit('lake', message := {quoted(message)})")[0]


def test_a_collation_of_the_session_hides_no_change(lake):
    """To NOCASE 'Row 5' and 'row 5' are equal; they are not the same."""
    lake.execute("SET default_collation = 'NOCASE'")
    lake.execute("UPDATE lake.t SET s = 'ROW 5' WHERE i = 5")
    assert rows(lake, "FROM fdl_status('lake')")[0]["uncommitted"] is True
    assert commit(lake)["committed"] is True
    assert lake.execute("SELECT s COLLATE \"binary\" FROM lake.t WHERE i = 5").fetchone() == ("ROW 5",)


def test_an_option_of_the_catalog_is_a_change(lake, connect):
    lake.execute("CALL lake.set_option('parquet_compression', 'zstd')")
    assert commit(lake)["committed"] is True
    assert commit(lake)["committed"] is False
    lake.execute("CALL fdl_push('lake'); CALL fdl_checkout('repo', alias := 'lake')")
    assert lake.execute("SELECT value FROM lake.options() WHERE option_name = 'parquet_compression'").fetchone() == ("zstd",)


def test_a_catalog_that_is_gone_does_not_take_the_versions_along(lake):
    lake.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    commit(lake)
    lake.execute("DETACH lake")
    os.remove("lake.sqlite")
    refused(lake, "CALL fdl_checkout('repo', alias := 'lake')", "FDL-DIRTY", "not pushed")
    assert len(list(Path("lake.sqlite.fdl/versions").iterdir())) == 2
    lake.execute("CALL fdl_checkout('repo', alias := 'lake', force := true)")
    assert lake.execute("SELECT count(*) FROM lake.t").fetchone() == (7,)


def test_a_checkout_that_fails_leaves_the_session_its_lake(lake, repo):
    (repo.path / "versions" / repo.first / "ducklake.duckdb").unlink()
    error = error_of(lake, "CALL fdl_checkout('repo', alias := 'lake', ref := 'v1')")
    assert "[FDL-CORRUPT]" in error
    assert lake.execute("SELECT count(*) FROM lake.t").fetchone() == (7,)
    lake.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    assert commit(lake)["committed"] is True


def test_a_push_builds_on_no_version_that_was_taken_away(lake, connect):
    """The branch still holds an ancestor, but the version in between is gone, and its files with it."""
    lake.execute("INSERT INTO lake.t VALUES (100, 'mine')")
    between = rows(lake, "CALL fdl_push('lake', message := 'between', ref := 'dev')")[0]["new_version"]
    other = connect()
    other.execute("CALL fdl_delete_ref('repo', ref := 'refs/heads/dev')")
    version = Path("repo/versions") / between
    (version / "expired.json").write_text('{"fdl": "0.1", "reason": "retention"}')
    (version / "ducklake.duckdb").unlink()
    for said in ("INSERT INTO lake.t VALUES (200, 'more')", "SELECT 1"):
        lake.execute(said)
        error = error_of(lake, "CALL fdl_push('lake', message := 'on top', ref := 'main')")
        assert "[FDL-EXPIRED]" in error, error
        assert [row["message"] for row in rows(other, "FROM fdl_log('repo')")] == ["two", "one"]


def served(connection):
    return rows(connection, "CALL fdl_serve('repo', address := '127.0.0.1:0')")[0]["url"]


@pytest.mark.parametrize("cache", ["auto", "always", "never"])
def test_a_hostile_catalog_from_elsewhere_is_not_attached(connect, repo, cache):
    shutil.copy(next(Path("repo/data/main/u").iterdir()), "secret.parquet")
    path = Path("secret.parquet").resolve()
    tamper(connect, repo, f"UPDATE cat.ducklake_data_file SET path = {quoted(path)}, path_is_relative = false")
    connection = connect()
    url = served(connection)
    error = error_of(connection, f"CALL fdl_attach({quoted(url)}, alias := 'far', cache := {quoted(cache)})")
    assert "[FDL-BAD-PATH]" in error
    assert connection.execute("SELECT count(*) FROM duckdb_databases() WHERE database_name = 'far'").fetchone() == (0,)


def test_a_cached_catalog_is_used_and_a_damaged_one_fetched_again(connect, repo, monkeypatch, bare):
    monkeypatch.setenv("FDL_CACHE_DIR", str(bare / "cache"))
    connection = connect()
    url = served(connection)

    def attach():
        before = rows(connection, "FROM fdl_serving()")[0]["bytes_out"]
        connection.execute(f"CALL fdl_attach({quoted(url)}, alias := 'far')")
        assert connection.execute("SELECT count(*) FROM far.t").fetchone() == (7,)
        return rows(connection, "FROM fdl_serving()")[0]["bytes_out"] - before

    size = repo.catalog.stat().st_size
    assert attach() > size
    assert attach() < size / 2
    connection.execute("DETACH far")
    cached = next((bare / "cache").rglob("*.duckdb"))
    cached.write_bytes(cached.read_bytes()[:1000])
    assert attach() > size


def test_a_version_that_is_read_where_it_is_can_be_asked_by_its_alias(connect, repo):
    connection = connect()
    connection.execute(f"CALL fdl_attach({quoted(served(connection))}, alias := 'far', cache := 'never')")
    assert [row["message"] for row in rows(connection, "FROM fdl_log('far')")] == ["two", "one"]
