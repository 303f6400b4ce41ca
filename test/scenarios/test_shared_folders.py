"""Folders and files follow the umask and the folder they are in, so that people of a group can work in one repository."""

import os
import stat
from pathlib import Path

import pytest


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("version", ["1.5.5", "1.4.4"])
@pytest.mark.parametrize("umask, folder_mode, file_mode", [(0o002, 0o2775, 0o664), (0o077, 0o700, 0o600)])
def test_modes_follow_the_umask(python, version, umask, folder_mode, file_mode):
    Path("shared").mkdir()
    os.chmod("shared", folder_mode)
    python(f"""
import os
os.umask({umask})
from story import *
s = Session()
s.fdl("init", "shared/repo")
s.checkout("shared/repo", path="shared/lake.sqlite")
s("CREATE SCHEMA lake.s"), s("CREATE TABLE lake.s.t (day VARCHAR, n INTEGER)"), s("ALTER TABLE lake.s.t SET PARTITIONED BY (day)")
s("INSERT INTO lake.s.t VALUES ('a', 1), ('b', 2)"), s("DELETE FROM lake.s.t WHERE n = 1"), s("CREATE TABLE lake.u AS SELECT 1 AS a")
s.publish("one")
""", version)
    data = Path("shared/repo/data")
    folders = [path for path in data.rglob("*") if path.is_dir()]
    assert {path.name for path in folders} >= {"s", "t", "day=b", "main", "u"}
    if folder_mode & 0o020:
        assert {str(path): oct(mode(path) & 0o020) for path in folders if not mode(path) & 0o020 and any(path.rglob("*.parquet"))} == {}
    for path in ("shared/lake.sqlite", "shared/lake.sqlite.fdl/state.json"):
        assert oct(mode(path)) == oct(file_mode), path


def test_the_folders_of_path_are_made(open_session, repository):
    session = open_session()
    made = session.checkout(repository.location, path="new/er/lake.sqlite")
    assert made["path"] == str(Path("new/er/lake.sqlite").resolve())
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    assert session.publish("one")
    # A link is followed as far as it leads, and one that leads nowhere is no folder.
    Path("link").symlink_to("new")
    assert open_session().checkout(repository.location, path="link/more/lake.sqlite")["path"] == str(Path("new/more/lake.sqlite").resolve())
    Path("nowhere").symlink_to("gone")
    session.refused(f"CALL fdl_checkout('{repository.location}', alias := 'x', path := 'nowhere/x.sqlite')", "FDL-STORE")
    session.refused(f"CALL fdl_checkout('{repository.location}', alias := 'x', path := 'gone/../x.sqlite')", "FDL-STORE")
