"""What somebody who may write in a repository's folder can put there, seen from SQL: links, pipes, files without end, lists that
leave files out."""

import hashlib
import json
import os
import resource

import pytest

from repository import error_of, lake_of, refused
from session import quoted, rows

READERS = ["fdl_checkout('repo', alias := 'x')", "fdl_tables('repo')", "fdl_files('repo')", "fdl_log('repo')", "fdl_refs('repo')",
           "fdl_fsck('repo')", "fdl_clone('repo', target := 'copy')"]


def codes(connection, depth="files"):
    return {(row["code"], row["object"]): row for row in rows(connection, f"FROM fdl_fsck('repo', depth := '{depth}')")}


@pytest.mark.parametrize("pipe", [False, True])
def test_a_catalog_that_is_a_link_or_a_pipe(connect, repo, tmp_path, pipe):
    """It would be followed out of the repository, or waited for for ever."""
    connection, catalog = connect(), repo.version("ducklake.duckdb")
    os.rename(catalog, tmp_path / "elsewhere.duckdb")
    if pipe:
        os.mkfifo(catalog)
    else:
        os.symlink(tmp_path / "elsewhere.duckdb", catalog)
    what = "a pipe" if pipe else "a symbolic link"
    message = error_of(connection, "CALL fdl_checkout('repo', alias := 'x')")
    assert "[FDL-CORRUPT]" in message and f"no regular file ({what})" in message, message
    found = codes(connection)["unreadable", f"versions/{repo.main}/ducklake.duckdb"]
    assert what in found["problem"] and found["repair"] is None


def test_a_data_folder_that_leads_out_of_the_repository(connect, repo, tmp_path):
    os.rename(repo.path / "data", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", repo.path / "data")
    connection = connect()
    for depth in ("structure", "files", "content"):
        found = codes(connection, depth)
        assert "a symbolic link" in found["unreadable", "data"]["problem"], found
        # What lies behind it is not called missing: nobody is told to bring it back.
        assert not any(code == "missing" for code, _ in found), found
    refused(connection, "CALL fdl_gc('repo')", "FDL-CORRUPT", "data", "restore")


def test_a_data_file_that_is_a_pipe_holds_nobody_up(connect, repo):
    file = next((repo.path / "data").rglob("*.parquet"))
    file.unlink()
    os.mkfifo(file)
    found = codes(connect(), "content")
    assert "a pipe" in found["unreadable", str(file.relative_to(repo.path))]["problem"], found


@pytest.mark.parametrize("name", ["fdl.json", "HEAD", "refs/heads/main", "version.json"])
def test_a_small_file_without_end(connect, repo, name):
    """8 GB of it were read once."""
    path = repo.version(name) if name == "version.json" else repo.path / name
    os.truncate(path, 1 << 40)
    connection, before = connect(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for call in READERS:
        if not (name == "HEAD" and call.startswith("fdl_refs")) and not call.startswith("fdl_fsck"):
            message = error_of(connection, f"CALL {call}") if name != "version.json" or "refs" not in call else "[FDL-CORRUPT]"
            assert "[FDL-CORRUPT]" in message, (call, message)
    assert any("more than" in row["problem"] for row in codes(connection, "structure").values())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, f"{grown} kB"


def leave_out(repo, table):
    """The record of main vouches for a files.json that leaves a table out."""
    path = repo.version("files.json")
    files = json.loads(path.read_text())
    kept = [entry for entry in files["tables"] if entry["table"] != table]
    gone = [file["path"] for entry in files["tables"] if entry["table"] == table for file in entry["files"]]
    text = json.dumps({**files, "tables": kept}).encode()
    path.write_bytes(text)
    repo.rewrite(repo.version("version.json"), lambda record: record.update(files_sha256=hashlib.sha256(text).hexdigest()))
    return gone


def test_a_list_that_leaves_files_out_deletes_nothing(connect, repo):
    connection = connect()
    lake_of(connection)
    connection.execute("CREATE TABLE lake.precious AS SELECT range AS i FROM range(1000)")
    connection.execute("CALL fdl_push('lake', message := 'precious')")
    repo.main = (repo.path / "refs/heads/main").read_text().strip()
    gone = leave_out(repo, "precious")
    assert gone
    grace = "grace := INTERVAL 0 seconds"
    planned = rows(connect(), f"FROM fdl_gc('repo', {grace})")
    assert not {row["path"] for row in planned} & set(gone), planned
    connect().execute(f"CALL fdl_gc('repo', {grace}, dry_run := false)")
    assert all((repo.path / key).exists() for key in gone)
    # The copy has it too, and both are told of the list.
    connect().execute("CALL fdl_clone('repo', target := 'copy')")
    assert all((repo.path.parent / "copy" / key).exists() for key in gone)
    assert ("files", f"versions/{repo.main}/files.json") in codes(connect())
    # A catalog that cannot be read tells nothing, and nothing goes.
    (repo.path / "data" / "garbage").write_text("x")
    repo.version("ducklake.duckdb").write_bytes(b"damaged")
    refused(connect(), f"FROM fdl_gc('repo', {grace})", "FDL-CORRUPT", "ducklake.duckdb", "restore")


def test_a_partition_value_that_leads_elsewhere_says_what_to_do(connect, repo):
    connection = connect()
    lake_of(connection)
    connection.execute("CREATE TABLE lake.p (k VARCHAR, n BIGINT); ALTER TABLE lake.p SET PARTITIONED BY (k)")
    connection.execute("INSERT INTO lake.p SELECT 'a/../b', range FROM range(20)")
    for call in ("fdl_commit('lake', message := 'm')", "fdl_push('lake', message := 'm')"):
        message = error_of(connection, f"CALL {call}")
        assert "the value of a partition key" in message and "[FDL-BAD-PATH]" in message and "UPDATE the value" in message, message
        assert connection.execute("SELECT count(*) FROM lake.p").fetchone() == (20,)
    # As the hint says.
    connection.execute("ALTER TABLE lake.p RESET PARTITIONED BY; CREATE OR REPLACE TABLE lake.p AS FROM lake.p")
    assert rows(connection, "CALL fdl_push('lake', message := 'm')")[0]["outcome"] == "pushed"
