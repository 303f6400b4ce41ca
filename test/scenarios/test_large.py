"""Pushes over HTTP of many files, and of a file larger than what fdl may keep in memory."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

import places
import wire

LARGE = 300 << 20
MOST = 256 << 20


def refuse_batches(request):
    """For a host that knows no batches: everything goes through it."""
    if request.method == "POST":
        return 404, [], b""


@pytest.fixture
def s3_place(new_place, monkeypatch, tmp_path):
    """An empty place in a bucket, and `s3_place.url`, where a host serves it. Nothing but that host stands between the writers and S3.
    The environment knows the token of its writers and nothing of S3."""
    place = new_place("s3")
    for name in place.variables:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FDL_TOKEN", places.Http.token)
    place.host = places.Host(**place.variables, HOME=str(tmp_path))
    place.url = place.host.serve(place.location, write_token=places.Http.token)
    yield place
    place.host.close()


def push_many(open_session, place, url, files):
    """Publishes a version of so many small files. Gives the sizes of the batches, and how many files went through the host."""
    with wire.Proxy(url) as front:
        session = open_session()
        session.fdl("init", front.url)
        session.checkout(front.url)
        session("CREATE TABLE lake.t (k INTEGER, v VARCHAR); ALTER TABLE lake.t SET PARTITIONED BY (k)")
        session(f"INSERT INTO lake.t SELECT range, 'row ' || range FROM range({files})")
        pushed = session.publish("many")
        batches = [len(json.loads(request.body)["files"]) for request in front.took("POST", "?batch")]
        through = len(front.took("PUT", "/data/"))
    assert (pushed["files_uploaded"], pushed["files_skipped"]) == (files, 0)
    assert len(place.keys("data/")) == files
    reader = open_session()
    reader.fdl("attach", url, alias="p")
    assert reader.one("SELECT count(*) AS n, sum(k)::BIGINT AS k, count(DISTINCT v) AS v FROM p.t") == {
        "n": files, "k": files * (files - 1) // 2, "v": files}
    return batches, through


def test_more_files_than_a_batch_holds(place, open_session):
    """In one version: two batches, and each file once, through the host."""
    assert push_many(open_session, place, place.location, 1150) == ([1000, 150], 1150)


def test_more_files_than_a_batch_holds_past_the_host(s3_place, open_session):
    assert push_many(open_session, s3_place, s3_place.url, 1001) == ([1000, 1], 0)


PUSH = """
import re
from story import *

def peak():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) << 10

s = Session()
s("LOAD ducklake; LOAD sqlite_scanner; LOAD httpfs")
assert s.fdl("status", "lake.sqlite")["ahead"] == 1
before = peak()
pushed = s.fdl("push", "lake.sqlite")
say({**pushed, "grown": peak() - before})
"""


def peak(process):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
@pytest.mark.parametrize("way", ["past the host", "through the host"])
def test_a_file_larger_than_memory(s3_place, open_session, python, tmp_path, way):
    """300 MiB that nothing makes smaller, in one request to S3 or in parts: neither the writer nor the host ever has it in memory."""
    with wire.Proxy(s3_place.url, meddle=refuse_batches) as front:
        location = s3_place.url if way == "past the host" else front.url
        for number in range(10):
            (tmp_path / f"{number}.noise").write_bytes(os.urandom(LARGE // 10))
        session = open_session()
        session.fdl("init", location)
        session.checkout(location)
        session(f"CREATE TABLE lake.noise AS SELECT filename, content FROM read_blob('{tmp_path}/*.noise')")
        session.fdl("commit", "lake", message="noise")
        session.close()
        before = peak(s3_place.host.process)
        told = python(PUSH).rows
        grown = peak(s3_place.host.process) - before
        assert len(front.took("PUT", "/data/")) == (0 if way == "past the host" else 1)
    assert (told["outcome"], told["files_uploaded"]) == ("pushed", 1) and told["bytes_uploaded"] > LARGE, told
    print(f"{way}: the writer grew by {told['grown'] >> 20} MiB, the host by {grown >> 20} MiB")
    assert told["grown"] < MOST and grown < MOST
    (key,) = s3_place.keys("data/")
    (local,) = Path("lake.sqlite.fdl/data").rglob("*.parquet")
    with local.open("rb") as file:
        assert hashlib.sha256(s3_place.read(key)).digest() == hashlib.file_digest(file, "sha256").digest()
