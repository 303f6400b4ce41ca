"""Deletion vectors and encrypted files: no Parquet that anybody reads, and sound all the same."""

from pathlib import Path

import pytest


VECTORS = "CALL lake.set_option('write_deletion_vectors', 'true')"


def content(session, location):
    return [(row["level"], row["code"], row["object"]) for row in session.table("fsck", location, depth="content")]


@pytest.fixture
def lake(open_session, repository):
    session = open_session()
    session.checkout(repository.location)
    return session


def test_a_deletion_vector_is_read_as_ducklake_reads_it(lake, repository, open_session, in_another_process_nothing_differs):
    lake(f"CREATE TABLE lake.t AS SELECT range AS a FROM range(100); CREATE TABLE lake.u AS SELECT 1 AS a; {VECTORS}")
    lake("DELETE FROM lake.t WHERE a % 7 = 0")
    lake.publish("first")
    lake("DELETE FROM lake.t WHERE a = 1; INSERT INTO lake.u VALUES (2)")
    lake.publish("second")
    assert content(lake, repository.location) == []
    vectors = [row["delete_path"] for row in lake.table("files", repository.location) if row["delete_path"]]
    (vector,) = [path for path in vectors if path.endswith(".puffin")]
    # Its bits are read, and its number of rows: what is wrong with it is found, and nothing else is.
    file = Path(repository.location, vector)
    whole = file.read_bytes()
    for place in (4, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1:])
        assert content(lake, repository.location) == [("error", "content", vector)]
    file.write_bytes(whole)
    assert content(lake, repository.location) == []
    # What else looks at files: a comparison of versions, and of the working copy; a rebuild; collection.
    (row,) = [row for row in lake.table("diff", repository.location, from_ref="HEAD~1", to_ref="HEAD") if row["name"] == "t"]
    assert (row["change"], row["rows_added"], row["rows_removed"]) == ("rows", 0, 1)
    lake("CREATE TABLE lake.keep AS FROM lake.t; DELETE FROM lake.t; INSERT INTO lake.t FROM lake.keep; DROP TABLE lake.keep")
    assert lake.fdl("commit", "lake", message="the same")["committed"] is False
    assert {row["path"] for row in lake.table("gc", repository.location)} & set(vectors) == set()
    assert lake.fdl("status", "lake")["uncommitted"] is False
    in_another_process_nothing_differs("ATTACH 'ducklake:sqlite:lake.sqlite' AS lake")
    # The data file under a vector is looked at for itself.
    data = Path(repository.location, row_path(lake, repository.location))
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    assert ("error", "content", data.relative_to(repository.location).as_posix()) in content(lake, repository.location)


def row_path(lake, location):
    return next(row["path"] for row in lake.table("files", location) if row["name"] == "t")


def test_older_snapshots_in_a_version_are_not_called_damaged(lake, repository):
    lake(f"CREATE TABLE lake.t AS SELECT range AS a FROM range(10); {VECTORS}")
    lake("DELETE FROM lake.t WHERE a = 1"), lake("DELETE FROM lake.t WHERE a = 2")
    lake.fdl("commit", "lake", message="all of them", keep_snapshots=True)
    lake.fdl("push", "lake")
    assert content(lake, repository.location) == []


@pytest.mark.parametrize("version", ["1.5.5", "1.4.4"])
def test_encrypted_files_are_read_with_the_keys_of_their_version(python, repository, version):
    code = f"""
from story import *
at = {repository.location!r}
s = Session()
path = s.checkout(at)["path"]
s("CREATE TABLE lake.plain AS SELECT 1 AS a")
attach = s.fdl("status", "lake")["attach_sql"]
s("UPDATE __ducklake_metadata_lake.main.ducklake_metadata SET value = 'true' WHERE key = 'encrypted'"), s("DETACH lake")
w = Session()
w("LOAD ducklake"), w("LOAD sqlite_scanner"), w(attach)
w("CREATE TABLE lake.t AS SELECT range AS a FROM range(100)"), w("DELETE FROM lake.t WHERE a = 3")
w.fdl("commit", "lake", message="keys", allow_encrypted=True), w.fdl("push", "lake")
encrypted = w.column("SELECT count(*) FROM __ducklake_metadata_lake.main.ducklake_data_file WHERE encryption_key IS NOT NULL")
sound = w.table("fsck", at, depth="content")
from pathlib import Path
files = [row for row in w.table("files", at) if row["name"] == "t"]
data = Path(at, files[0]["path"])
whole = data.read_bytes()
damaged = []
for place in (40, 200, len(whole) // 2, len(whole) - 20):
    data.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1:])
    damaged.append([row["object"] for row in Session().table("fsck", at, depth="content")])
say([encrypted, sound, damaged == [[files[0]["path"]]] * 4])
"""
    assert python(code, version).rows == [[1], [], True]
