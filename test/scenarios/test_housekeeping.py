"""Keeping house in a folder, in S3 and behind HTTP: fdl_expire, fdl_gc and fdl_diff."""

import datetime
import os
import re
import time
import urllib.parse

import pytest

import wire
from session import quoted
from story import call, same_rows

MONTH = datetime.timedelta(days=30)


def house(place):
    """Where the repository can be listed: a host's is kept in its folder, by whoever has it."""
    return str(place.folder.path) if place.kind == "http" else place.location


def expire(session, where, versions):
    listed = ", ".join(map(quoted, versions))
    return session(f"FROM fdl_expire({quoted(where)}, versions := [{listed}], dry_run := false)")


@pytest.mark.everywhere
def test_who_attaches_an_expired_version_hears_since_when(repository, open_session):
    session = open_session()
    session.checkout(repository.location)
    ids = []
    for count in range(3):
        session(f"CREATE OR REPLACE TABLE lake.t AS SELECT range AS a FROM range({10 + count})")
        ids.append(session.publish(f"version {count}")["new_version"])
    # One reader has it in the cache, and one has it attached.
    session.fdl("attach", repository.location, ref=ids[1], alias="before")
    if repository.kind == "http":
        message = session.refused(call("expire", repository.location, keep_last=1), "FDL-STORE")
        assert "list" in message and "HTTP" in message, message
    (row,) = expire(session, house(repository), [ids[1]])
    assert (row["version"], row["action"], row["done"]) == (ids[1], "expire", True)
    today = datetime.datetime.now(datetime.timezone.utc)
    for function in ("attach", "checkout"):
        for ref in (ids[1], "main~1"):
            message = open_session().refused(call(function, repository.location, ref=ref, alias="gone", path="x.sqlite"
                                                  if function == "checkout" else None), "FDL-EXPIRED")
            (date,) = re.findall(r"\d{4}-\d\d-\d\d", message.replace(ids[1], ""))
            assert abs(datetime.date.fromisoformat(date) - today.date()) <= datetime.timedelta(days=1), message
    assert [(row["version"], row["state"]) for row in session.table("log", repository.location)] == [
        (ids[2], "live"), (ids[1], "expired"), (ids[0], "live")]
    reader = open_session()
    for version, count in ((ids[0], 10), (ids[2], 12)):
        reader.fdl("attach", repository.location, ref=version, alias=f"at_{count}")
        assert reader.value(f"SELECT count(DISTINCT a) FROM at_{count}.t") == count
    assert session.table("fsck", house(repository), depth="content") == []


@pytest.mark.everywhere
def test_a_diff_is_the_same_everywhere(repository, open_session):
    session = open_session()
    session.checkout(repository.location)
    session("CREATE TABLE lake.kept AS SELECT range AS a FROM range(5); CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    session.publish("one", tag="v1")
    session("INSERT INTO lake.t VALUES (10), (11); DELETE FROM lake.t WHERE a < 3; CREATE TABLE lake.new AS SELECT 1 AS a")
    columns = "name, change, rows_from, rows_to, rows_added, rows_removed"
    expected = {"new": ("added", None, 1, 1, 0), "kept": ("same", 5, 5, 0, 0), "t": ("rows", 10, 9, 2, 3)}

    def differ(sql):
        return {name: tuple(row) for name, *row in session.connection.execute(f"SELECT {columns} FROM {sql}").fetchall()}

    before = differ("fdl_diff('lake')")
    assert {name: row[:1] + row[2:] for name, row in before.items()} == {name: row[:1] + row[2:] for name, row in expected.items()}
    session.publish("two")
    after = differ(f"fdl_diff({quoted(repository.location)}, from_ref := 'v1', to_ref := 'main')")
    assert after == before
    assert {row[0] for row in differ("fdl_diff('lake')").values()} == {"same"}


class Ages:
    """Makes objects of a repository a month old, as its store tells it; of a folder by the times of the files, of S3 by a proxy in
    front of it."""

    def __init__(self, new_place, monkeypatch, kind):
        self.place, self.old, self.clock = new_place(kind), set(), datetime.timedelta(0)
        if kind == "s3":
            self.proxy = wire.Proxy(self.place.endpoint, rewrite=self.rewrite)
            monkeypatch.setenv("AWS_ENDPOINT_URL", self.proxy.url)

    def age(self, *keys):
        for key in keys:
            self.old.add(key)
            if self.place.kind == "folder":
                then = time.time() - MONTH.total_seconds()
                os.utime(self.place.path / key, (then, then))

    def put(self, key, content=b"x"):
        if self.place.kind == "folder":
            path = self.place.path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        else:
            self.place.write(key, content)

    def rewrite(self, request, answer):
        status, headers, body = answer
        if "list-type=2" in request.path:
            def aged(entry):
                key = urllib.parse.unquote(re.search(rb"<Key>(.*?)</Key>", entry[0])[1].decode()).removeprefix(f"{self.place.prefix}/")
                return re.sub(rb"<LastModified>(.*?)</LastModified>", self.earlier, entry[0]) if key in self.old else entry[0]
            body = re.sub(rb"<Contents>.*?</Contents>", aged, body, flags=re.S)
        if request.method == "HEAD" and "fdl-clock" in request.path:
            headers = [(name, self.shifted(value) if name.lower() == "last-modified" else value) for name, value in headers]
        return status, headers, body

    @staticmethod
    def earlier(match):
        then = datetime.datetime.fromisoformat(match[1].decode().replace("Z", "+00:00")) - MONTH
        return f"<LastModified>{then.strftime('%Y-%m-%dT%H:%M:%S.000Z')}</LastModified>".encode()

    def shifted(self, text):
        form = "%a, %d %b %Y %H:%M:%S GMT"
        return (datetime.datetime.strptime(text, form) + self.clock).strftime(form)


@pytest.fixture(params=["folder", "s3"])
def ages(request, new_place, monkeypatch):
    made = Ages(new_place, monkeypatch, request.param)
    yield made
    if request.param == "s3":
        made.proxy.__exit__()


def test_gc_takes_what_is_old_and_nobodys(ages, open_session):
    session, place = open_session(), ages.place
    where = place.location
    session.fdl("init", where)
    session.checkout(where)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    first = session.publish("one")["new_version"]
    session("CREATE OR REPLACE TABLE lake.t AS SELECT range AS a FROM range(20)")
    session.publish("two")
    expire(session, where, [first])
    # What nobody needs: of the expired version, of a dropped table that never was in a version, of a push that was stopped.
    unfinished = "versions/019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10/"
    garbage = ["data/main/t/old.parquet", "data/main/t/町 ☃.parquet", f"{unfinished}ducklake.duckdb", f"{unfinished}files.json"]
    named = {row["path"] for row in session.table("files", where)}
    (expired,) = set(place.keys("data/")) - named
    # What is spared: sources, whatever the format does not know, what is young.
    spared = ["sources/0123456789abcdef", "README.md", "versions/note.txt"]
    young = ["data/main/t/young.parquet", "versions/019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e11/ducklake.duckdb"]
    for key in garbage + spared + young:
        ages.put(key)
    # Of this working copy, not pushed: a commit, and rows that are not committed.
    session("INSERT INTO lake.t VALUES (100)")
    session.fdl("commit", "lake", message="local")
    session("INSERT INTO lake.t VALUES (101)")
    every = place.keys()
    ages.age(*(key for key in every if key not in young))
    own = set(place.keys("data/")) - set(garbage) - {expired} - set(young) - named
    assert len(own) == 2
    planned = session.table("gc", "lake")
    goes = set(garbage)
    # The working catalog names, in its own history, the file that the expired version had; a fresh one will not.
    assert {row["path"] for row in planned} == goes and not any(row["done"] for row in planned), planned
    assert place.keys() == every
    ages.clock = -MONTH
    if place.kind == "s3":
        # By the store's clock all of it was written today: the machine's does not count.
        stays = session.table("gc", "lake", dry_run=False)
        assert {row["reason"] for row in stays} == {"keep: it is younger than the grace period by the store's clock"}
        assert place.keys() == every
    ages.clock = datetime.timedelta(0)
    done = session.table("gc", "lake", dry_run=False)
    assert {row["path"] for row in done if row["done"]} == goes, done
    assert place.keys() == sorted(set(every) - goes)
    # What was not pushed is still there, and goes on.
    assert session.value("SELECT count(DISTINCT a) FROM lake.t") == 22
    session.publish("three")
    session.checkout(where)
    assert {row["path"] for row in session.table("gc", "lake", dry_run=False) if row["done"]} == {expired}
    assert place.keys(young[0]) and place.keys("sources/") and place.keys("README.md")
    reader = open_session()
    for back, count in enumerate((22, 21, 20)):
        reader.fdl("attach", where, ref=f"main~{back}", alias=f"at_{back}")
        assert reader.value(f"SELECT count(DISTINCT a) FROM at_{back}.t") == count
    findings = [(row["code"], row["object"]) for row in session.table("fsck", where, depth="content")]
    assert findings == [("unfinished", young[1].rsplit("/", 1)[0] + "/"), ("stray", "versions/note.txt")]


def test_whoever_has_only_the_repository_is_protected_by_the_grace(ages, open_session):
    """What another working copy has not pushed is named by nobody: only its age says that it may come to be needed."""
    session, where = open_session(), ages.place.location
    session.fdl("init", where)
    session.checkout(where)
    session("CREATE TABLE lake.t AS SELECT 1 AS a")
    keys = ages.place.keys("data/")
    assert session.table("gc", where, dry_run=False) == [] and ages.place.keys("data/") == keys
    ages.age(*keys)
    assert [row["path"] for row in session.table("gc", where)] == keys
    assert session.table("gc", "lake") == []


def test_behind_a_host_gc_is_the_business_of_whoever_has_the_folder(writer, place, open_session):
    for function in ("gc", "fsck"):
        message = writer.refused(call(function, place.location), "FDL-STORE")
        assert "list" in message and "HTTP" in message, message
    assert writer.table("gc", house(place)) == writer.table("fsck", house(place), depth="content") == []
    assert same_rows(writer, "lake.t", "(SELECT range AS a FROM range(10))") is None
