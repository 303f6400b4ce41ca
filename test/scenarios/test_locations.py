"""Folders with every kind of name hold a repository, and so do working copies; where one was started from does not matter."""

import os

import pytest

from story import quoted

NAMES = ["r é's #1?%20", "r [x]*{a,b}", "日本/深い", "a;b -- c", 'q"uote', "per%2Fcent", "-dash", "~tilde", "new\nline", "UPPER", "data", "x.sqlite"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name(open_session, bare, name):
    os.makedirs(name)
    session = open_session()
    session.fdl("init", name)
    session.checkout(name, path=f"work {name.replace('/', ' ').replace('?', '')}.sqlite")
    session("CREATE TABLE lake.t AS SELECT 1 AS a, 'x' AS p; ALTER TABLE lake.t SET PARTITIONED BY (p); INSERT INTO lake.t VALUES (2, 'é [a]*?')")
    session("CREATE TABLE lake.u AS SELECT 2 AS a")
    session.publish("first")
    session("DELETE FROM lake.t WHERE a = 1")
    session("CREATE OR REPLACE TABLE lake.u AS SELECT 2 AS a")
    session.publish("second")
    assert [row["name"] for row in session.table("files", name)].count("u") == 1
    reader = open_session()
    attached = reader.fdl("attach", os.path.abspath(name), alias="p")
    assert reader("FROM p.t") == [{"a": 2, "p": "é [a]*?"}]
    reader("DETACH p")
    reader(attached["attach_sql"])
    assert reader("FROM p.u") == [{"a": 2}]
    other = open_session()
    other.checkout("file://" + os.path.abspath(name) if name.isascii() and name.isalnum() else name, path="other.sqlite", alias="mine")
    assert other.fdl("status", "mine")["uncommitted"] is False
    assert sorted(os.listdir(name)) == sorted([".fdl-lock", "HEAD", "data", "fdl.json", "refs", "refs.json", "versions"])


def test_a_folder_by_a_relative_path_and_by_a_link(open_session, bare):
    """What a working copy remembers holds when the process is in another folder."""
    session = open_session()
    os.makedirs("deep/er")
    session.fdl("init", "deep/er/repo")
    os.symlink("deep/er/repo", "link")
    session.checkout("link", path="deep/work.sqlite")
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    session.publish("by a link")
    os.chdir("deep")
    session("INSERT INTO lake.t VALUES (2)")
    session.publish("from below", lake="work.sqlite")
    os.chdir("er")
    other = open_session()
    other.checkout("./repo", path="../other.sqlite", alias="mine")
    assert other.column("FROM mine.t ORDER BY a") == [1, 2]
    other("INSERT INTO mine.t VALUES (3)")
    other.publish("from a third", lake="mine")
    assert other.value(f"SELECT count(*) FROM fdl_log({quoted(bare / 'link')})") == 3
    assert not os.path.exists(bare / "deep" / "er" / "data")
