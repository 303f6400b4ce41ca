"""The files that a version was made from, in every kind of place."""

import hashlib
import json
from pathlib import Path

import pytest

from story import quoted


def sources(*names):
    return f"sources := {list(names)}"


@pytest.mark.everywhere
def test_they_are_pushed_under_their_hash(repository, open_session, tmp_path):
    Path("raw").mkdir()
    contents = {"raw/towns.csv": b"Sendai,1096704\n", "elsewhere.bin": bytes(range(256)) * 5000}
    Path("raw/towns.csv").write_bytes(contents["raw/towns.csv"])
    (tmp_path / "elsewhere.bin").write_bytes(contents["elsewhere.bin"])
    lake = open_session()
    lake.checkout(repository.location)
    lake("CREATE TABLE lake.t AS SELECT 1 AS a")
    given = sources("./raw/towns.csv", str(tmp_path / "elsewhere.bin"))
    # The files are copied by the commit: what becomes of them before the push is nobody's concern.
    version = lake.one(f"FROM fdl_commit('lake', message := 'one', {given})")["version"]
    Path("raw/towns.csv").write_text("changed since")
    (tmp_path / "elsewhere.bin").unlink()
    pushed = lake.fdl("push", "lake")
    assert (pushed["outcome"], pushed["files_uploaded"]) == ("pushed", 3)
    assert list(Path("lake.sqlite.fdl").rglob("sources")) == [], "what is published need not lie here too"
    record = json.loads(repository.text(f"versions/{version}/version.json"))
    assert record["sources"] == [
        {"name": name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)} for name, content in contents.items()]
    for name, content in contents.items():
        assert repository.read(f"sources/{hashlib.sha256(content).hexdigest()}") == content, name
    # Nothing of the folders of this machine is told.
    assert str(tmp_path) not in json.dumps(record)

    copied = lake.fdl("clone", repository.location, target=str(tmp_path / "copy"))
    assert copied["note"] is None
    for content in contents.values():
        assert (tmp_path / "copy" / "sources" / hashlib.sha256(content).hexdigest()).read_bytes() == content
    assert lake(f"FROM fdl_fsck({quoted(str(tmp_path / 'copy'))}, depth := 'content')") == []


@pytest.mark.parametrize("damage, depth, code", [
    ("removed", "files", "missing"), ("truncated", "files", "size"), ("a bit flipped", "content", "hash"), ("swapped", "content", "hash")])
def test_fsck_finds_what_became_of_them(repository, open_session, damage, depth, code):
    names = ["a.csv", "b.csv"]
    for name in names:
        Path(name).write_text(f"the content of {name}")
    lake = open_session()
    lake.checkout(repository.location)
    lake("CREATE TABLE lake.t AS SELECT 1 AS a")
    lake(f"FROM fdl_push('lake', message := 'one', {sources(*names)})")
    first, second = (repository.path / "sources" / hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names)
    content = first.read_bytes()
    if damage == "removed":
        first.unlink()
    elif damage == "truncated":
        first.write_bytes(content[:-1])
    elif damage == "a bit flipped":
        first.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    else:
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    depths = ["structure", "files", "content"]
    for looked in depths:
        found = lake(f"FROM fdl_fsck({quoted(repository.location)}, depth := '{looked}')")
        expected = {first.name, second.name} if damage == "swapped" else {first.name}
        expected = expected if depths.index(looked) >= depths.index(depth) else set()
        assert {row["object"].removeprefix("sources/") for row in found} == expected, found
        assert {row["code"] for row in found} <= {code}
