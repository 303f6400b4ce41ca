"""A write-ahead log beside a catalog: DuckDB applies one to what it attaches, read-only as well, and hash and signature stay right."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wire
from session import connect, quoted

FORGE = """
import duckdb, os, sys
c = duckdb.connect()
c.execute("ATTACH 'forged.duckdb' AS forged; SET wal_autocheckpoint = '1GB'")
c.execute("UPDATE forged.ducklake_column SET column_name = 'forged' WHERE column_name = 'people'")
os._exit(0)
"""


def forged_log(catalog):
    """The bytes of a log that fits a catalog and gives a column another name."""
    Path("forged.duckdb").write_bytes(catalog)
    subprocess.run([sys.executable, "-c", FORGE], check=True, timeout=60)
    log = Path("forged.duckdb.wal").read_bytes()
    assert log
    return log


@pytest.fixture
def published(open_session, bare):
    """A session with a repository `repo`, whose catalog is `.catalog`; `.log` is a path beside it where nothing is yet, `.forged` what goes there."""
    session = open_session()
    session.fdl("init", "repo")
    session.checkout("repo")
    session("CREATE TABLE lake.town AS SELECT 'Izumo' AS name, 1 AS people")
    session.version = session.publish("one")["new_version"]
    session.catalog = Path("repo/versions", session.version, "ducklake.duckdb").resolve()
    session.log = session.catalog.with_name("ducklake.duckdb.wal")
    session.forged = forged_log(session.catalog.read_bytes())
    return session


def columns(session, alias):
    return [row["column_name"] for row in session(f"DESCRIBE {alias}.town")]


def test_duckdb_does_that(published):
    """If it ends, so may the rest."""
    published.log.write_bytes(published.forged)
    plain = connect(load=False)
    plain.execute(f"LOAD ducklake; ATTACH {quoted(f'ducklake:{published.catalog}')} AS x (READ_ONLY)")
    assert "forged" in [row[0] for row in plain.execute("DESCRIBE x.town").fetchall()]
    plain.close()
    with wire.Static(Path("repo").resolve()) as server:
        plain = connect(load=False)
        plain.execute(f"LOAD ducklake; LOAD httpfs; ATTACH 'ducklake:{server.url}/versions/{published.version}/ducklake.duckdb' AS x (READ_ONLY)")
        assert "forged" in [row[0] for row in plain.execute("DESCRIBE x.town").fetchall()]
        plain.close()


def test_a_folder(published):
    """What the session opens is a copy that fdl wrote, and the log is not beside it."""
    published.log.write_bytes(published.forged)
    for cache in ("auto", "always", "never"):
        published.fdl("attach", "repo", alias="x", cache=cache)
        assert columns(published, "x") == ["name", "people"], cache
    found = published("FROM fdl_fsck('repo')")
    assert any(str(published.log.name) in row["object"] for row in found), found
    published("CALL fdl_checkout('repo', alias := 'other')")
    assert columns(published, "other") == ["name", "people"]
    published.log.unlink()
    published.fdl("attach", "repo", alias="y")
    assert columns(published, "y") == ["name", "people"]


def test_beside_a_copy(published):
    """Whether the cache was written to by others or not."""
    copy = published.fdl("attach", "repo", alias="x", cache="always")["catalog"]
    published("DETACH x")
    Path(copy + ".wal").write_bytes(published.forged)
    assert copy + ".wal" in published.refused("FROM fdl_attach('repo', alias := 'x', cache := 'always')", "FDL-CORRUPT")
    # So does a working copy keep one.
    kept = Path("lake.sqlite.fdl/versions", published.version, "ducklake.duckdb.wal")
    kept.write_bytes(published.forged)
    assert kept.name in published.refused("FROM fdl_checkout('repo', alias := 'lake')", "FDL-CORRUPT")
    published("UPDATE lake.town SET people = 2")
    assert kept.name in published.refused("FROM fdl_commit('lake')", "FDL-CORRUPT")


def test_behind_a_web_server(published):
    with wire.Static(Path("repo").resolve()) as server:
        published.log.write_bytes(published.forged)
        for cache in ("never", "auto"):
            published.fdl("attach", server.url, alias="y", cache=cache)
            assert columns(published, "y") == ["name", "people"], cache
        assert not server.took("GET", "ducklake.duckdb.wal")


def test_on_s3(new_place, open_session):
    place, session = new_place("s3"), open_session()
    session.fdl("init", place.location)
    session.checkout(place.location)
    session("CREATE TABLE lake.town AS SELECT 'Izumo' AS name, 1 AS people")
    version = session.publish("one")["new_version"]
    key = f"versions/{version}/ducklake.duckdb"
    place.write(f"{key}.wal", forged_log(place.read(key)))
    for cache in ("never", "auto"):
        session.fdl("attach", place.location, alias="x", cache=cache)
        assert columns(session, "x") == ["name", "people"], cache


def test_a_host_neither_gives_nor_takes_one(published, host):
    url = host.serve(Path("repo").resolve(), write_token="hush-write-token")
    path = f"{url}/versions/{published.version}/ducklake.duckdb.wal"
    published.log.write_bytes(published.forged)
    for method in ("GET", "HEAD"):
        assert wire.ask(path, method)[0] == 404
    published.log.unlink()
    assert wire.ask(path, "PUT", b"x", Authorization="Bearer hush-write-token")[0] == 404 and not published.log.exists()
    host.stop(url)


def test_housekeeping(published):
    published("UPDATE lake.town SET people = 2")
    published.publish("two")
    other = published.catalog.with_name("catalogs") / "0.3.duckdb.wal"
    other.parent.mkdir()
    for log in (published.log, other, published.catalog.with_name("x.wal")):
        log.write_bytes(published.forged)
        for depth in ("structure", "files"):
            (found,) = published.table("fsck", "repo", depth=depth)
            key = f"versions/{published.version}/{log.relative_to(published.catalog.parent)}"
            assert (found["level"], found["code"], found["object"]) == ("error", "stray", key)
            assert "after deleting the object" in found["repair"]
        # A copy is made without it.
        published(f"CALL fdl_clone('repo', target := 'copy of {log.name}')")
        assert not published.table("fsck", f"copy of {log.name}", depth="files")
        assert not list(Path(f"copy of {log.name}").rglob("*.wal"))
        log.unlink()
    # It goes with the catalog.
    published.log.write_bytes(published.forged)
    shutil.copytree("repo", "other")
    published("CALL fdl_expire('repo', versions := ['main~1'], dry_run := false)")
    published("CALL fdl_withdraw('other', versions := ['main~1'], dry_run := false)")
    for where in ("repo", "other"):
        assert not list(Path(where).rglob("*.wal")) and not published.table("fsck", where)
