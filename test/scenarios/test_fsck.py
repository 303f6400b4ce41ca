"""Damage of every kind, to every kind of object of a real repository: fdl_fsck finds it at the depth that should, and not before, and
the statements that it gives as repairs mend it."""

import os
import random
import re
import shutil
from pathlib import Path

import pytest

import session as plain
import wire
from session import quoted
from story import Session, call

DEPTHS = ("structure", "files", "content")
# Any version: `one` is the first, whose tag holds it, `two` is the second, `gone` has expired.
OBJECTS = {
    "fdl.json": "fdl.json",
    "HEAD": "HEAD",
    "branch": "refs/heads/main",
    "tag": "refs/tags/v1",
    "refs.json": "refs.json",
    "version.json": "versions/{two}/version.json",
    "files.json": "versions/{two}/files.json",
    "dataset.json": "versions/{two}/dataset.json",
    "catalog": "versions/{two}/ducklake.duckdb",
    "data file": "{partition}",
    "delete file": "{deletes}",
    "expired.json": "versions/{gone}/expired.json",
}
# What is put in the place of each other. A repository has one fdl.json, one HEAD and one refs.json.
OTHERS = {
    "branch": "refs/heads/side",
    "tag": "refs/tags/v2",
    "version.json": "versions/{one}/version.json",
    "files.json": "versions/{one}/files.json",
    "dataset.json": "versions/{one}/dataset.json",
    "catalog": "versions/{one}/ducklake.duckdb",
    "data file": "{other}",
    "delete file": "{partition}",
    "expired.json": "versions/{older}/expired.json",
}
# (depth, level, code, object) by which it is found, in place of what `expected` says of most.
FOUND = {
    ("HEAD", "flipped"): ("structure", "error", "missing", "HEAD"),
    ("branch", "removed"): ("structure", "error", "missing", "refs/heads/main"),
    ("branch", "flipped"): ("structure", "error", "missing", "refs/heads/main"),
    # Both hold what they should not and could: refs.json alone can tell.
    ("branch", "swapped"): ("structure", "warning", "lag", "refs.json"),
    ("tag", "removed"): ("structure", "warning", "missing", "refs/tags/v1"),
    ("tag", "flipped"): ("structure", "error", "missing", "refs/tags/v1"),
    ("tag", "swapped"): ("structure", "warning", "lag", "refs.json"),
    ("refs.json", "removed"): ("structure", "warning", "lag", "refs.json"),
    ("catalog", "truncated"): ("structure", "error", "size", None),
    ("catalog", "swapped"): ("structure", "error", "size", None),
    ("catalog", "flipped"): ("files", "error", "hash", None),
    ("data file", "removed"): ("files", "error", "missing", None),
    ("data file", "truncated"): ("files", "error", "size", None),
    ("data file", "swapped"): ("files", "error", "size", None),
    ("data file", "flipped"): ("content", "error", "content", None),
    ("delete file", "removed"): ("files", "error", "missing", None),
    ("delete file", "truncated"): ("files", "error", "size", None),
    ("delete file", "swapped"): ("files", "error", "size", None),
    ("delete file", "flipped"): ("content", "error", "content", None),
    # A mark that is gone leaves a version whose catalog is missing.
    ("expired.json", "removed"): ("structure", "error", "missing", "versions/{gone}/ducklake.duckdb"),
    ("expired.json", "truncated"): ("structure", "warning", "unreadable", None),
    ("expired.json", "flipped"): ("structure", "warning", "unreadable", None),
    ("expired.json", "swapped"): ("structure", "warning", "unreadable", None),
}
# Which bit is flipped: the one at the beginning of this text (in bytes of the object), the lowest one.
WHERE = {
    "fdl.json": b"{", "HEAD": b"main", "branch": None, "tag": None, "refs.json": b"{", "version.json": b"id",
    "files.json": b"path", "dataset.json": b"town", "catalog": b"DUCK", "expired.json": b"retention",
}


def expected(kind, how, key):
    """The finding of a damage: JSON that has a hash does not have it any more; what is read is not readable."""
    hashed = kind in ("files.json", "dataset.json")
    code = "missing" if how == "removed" else "hash" if hashed else "unreadable"
    depth, level, code, found = FOUND.get((kind, how), ("structure", "error", code, None))
    return depth, level, code, found or key


class Lake:
    """A repository with two versions on main, a tag at each, a branch beside it whose first two versions have expired, partitions and
    a delete file."""

    def __init__(self, location, session):
        self.location, self.session = location, session
        s = session
        s.fdl("init", location)
        s.checkout(location)
        s("CREATE TABLE lake.town (name VARCHAR, people BIGINT, area DOUBLE, year BIGINT)")
        s("ALTER TABLE lake.town SET PARTITIONED BY (year)")
        s("INSERT INTO lake.town SELECT 'town ' || range, range * range, sqrt(range), 2024 + range % 2 FROM range(2000)")
        one = s.publish("one", tag="v1")["new_version"]
        s("DELETE FROM lake.town WHERE people % 7 = 0")
        s("CREATE TABLE lake.more AS SELECT range AS a FROM range(10)")
        two = s.publish("two", tag="v2")["new_version"]
        s.fdl("branch", location, name="side")
        s.checkout(location, alias="side", ref="side")
        older, gone, last = (self.add(count) for count in range(3))
        expired = s(f"FROM fdl_expire({quoted(location)}, versions := ['{older}', '{gone}'], dry_run := false)")
        assert [row["done"] for row in expired] == [True, True]
        files = s.table("files", location, ref="main")
        # A file of the first version, that the second has too, with deletes; and one of another size.
        towns = [row for row in files if row["name"] == "town"]
        self.names = {"one": one, "two": two, "older": older, "gone": gone, "last": last, "partition": towns[0]["path"],
                      "other": towns[1]["path"], "deletes": next(row["delete_path"] for row in towns if row["delete_path"])}
        assert "year=2024" in towns[0]["path"] + towns[1]["path"]

    def add(self, count):
        self.session(f"INSERT INTO side.more VALUES ({100 + count})")
        return self.session.publish(f"side {count}", lake="side")["new_version"]

    def key(self, kind):
        return OBJECTS[kind].format(**self.names)

    def other(self, kind):
        return OTHERS[kind].format(**self.names)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """In a folder. Not to be changed."""
    folder = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FDL_AUTHOR", "Test <test@example.org>")
        session = Session()
        lake = Lake(str(folder / "repo"), session)
        session.close()
    return lake


@pytest.fixture
def damaged(lake, bare):
    """A copy of the repository to be damaged, as `repo`; the sound one is `lake.location`."""
    shutil.copytree(lake.location, bare / "repo")
    return bare / "repo"


def flipped(content, kind, seed=0):
    """The content with one bit flipped, where `WHERE` says or, in a Parquet file, in a page."""
    changed = bytearray(content)
    if WHERE.get(kind) is None:
        # A version ID in a ref: another that may be one.
        changed[0] ^= 1
    else:
        changed[content.index(WHERE[kind])] ^= 1
    return bytes(changed)


def damage(lake, folder, kind, how):
    path = folder / lake.key(kind)
    content = path.read_bytes()
    if how == "removed":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(content[:len(content) // 2])
    elif how == "flipped":
        path.write_bytes(flipped(content, kind) if "file" not in kind.split() else content[:-6] + bytes([content[-6] ^ 1]) + content[-5:])
    else:
        other = folder / lake.other(kind)
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)


def found(session, location, depth):
    return [(row["level"], row["code"], row["object"]) for row in session.table("fsck", location, depth=depth)]


def test_a_sound_repository_gives_no_row(lake, open_session):
    session = open_session()
    for depth in DEPTHS:
        assert session.table("fsck", lake.location, depth=depth) == []


@pytest.mark.parametrize("how", ["removed", "truncated", "flipped", "swapped"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_damage_is_found_at_its_depth_and_mended(lake, damaged, open_session, kind, how):
    if how == "swapped" and kind not in OTHERS:
        return
    session, key = open_session(), lake.key(kind)
    damage(lake, damaged, kind, how)
    depth, level, code, where = expected(kind, how, key)
    found_at = {depth: found(session, damaged, depth) for depth in DEPTHS}
    finding = (level, code, where.format(**lake.names))
    for earlier in DEPTHS[:DEPTHS.index(depth)]:
        assert found_at[earlier] == []
    for later in DEPTHS[DEPTHS.index(depth):]:
        assert finding in found_at[later], found_at
        assert len(set(found_at[later])) == len(found_at[later]), found_at
    if how == "swapped" and kind not in ("branch", "tag"):
        assert lake.other(kind) in {where for _, _, where in found_at[depth]}, found_at
    swapped_refs = how == "swapped" and kind in ("branch", "tag")
    if swapped_refs:
        (row,) = session.table("fsck", damaged)
        held = Path(lake.location, key).read_text().strip()
        assert f"; {key} holds" in f"; {row['problem']}" and f"and it says {held}" in row["problem"], row
    mend(session, lake, damaged, swapped_refs)


def mend(session, lake, damaged, swapped_refs):
    """Runs the repairs, those that bring things back before those that follow what is there, until nothing is found."""
    for _ in range(3):
        rows = session.table("fsck", damaged, depth="content")
        for row in rows:
            if row["repair"] is None:
                # What has no statement of its own: an expired version stays so, whatever its mark says.
                assert row["object"].endswith("expired.json"), row
                shutil.copy(Path(lake.location) / row["object"], damaged / row["object"])
                continue
            if "after deleting the object" in row["repair"]:
                (damaged / row["object"]).unlink(missing_ok=True)
        for row in rows:
            if row["repair"]:
                try:
                    session(row["repair"].replace("<copy>", lake.location))
                except plain.duckdb.Error as error:
                    # refs.json follows the refs, which must be whole before.
                    assert "fdl_init" in row["repair"] and "[FDL-" in str(error), error
        if not rows:
            break
    assert session.table("fsck", damaged, depth="content") == []
    refs = [(row["ref"], row["version"]) for row in session.table("refs", damaged)]
    # Where two refs have changed places and only refs.json tells, it follows them, and the finding says what it said.
    assert swapped_refs or refs == [(row["ref"], row["version"]) for row in session.table("refs", lake.location)]
    session.fdl("attach", str(damaged), alias="mended")
    assert session.value("SELECT count(*) FROM mended.town") == session.value(
        f"SELECT sum(rows - coalesce(deleted_rows, 0)) FROM fdl_files({quoted(lake.location)}) WHERE name = 'town'")


def test_what_no_hash_and_no_format_covers_is_not_found(lake, damaged, open_session):
    """docs/sql.md says so: without a signature nothing vouches for the words in version.json."""
    path = damaged / lake.key("version.json")
    path.write_bytes(path.read_bytes().replace(b'"message": "two"', b'"message": "uwo"'))
    assert open_session().table("fsck", damaged, depth="content") == []


def readable(session, path):
    """How many rows DuckDB reads in a Parquet file; None when it cannot."""
    try:
        session(f"CREATE OR REPLACE TEMP TABLE whole AS FROM read_parquet({quoted(path)}, hive_partitioning := false)")
        return session.value("SELECT count(*) FROM whole")
    except plain.duckdb.Error:
        return None


@pytest.mark.parametrize("kind", ["data file", "delete file"])
def test_of_flipped_bits_in_parquet_those_are_found_that_break_it(lake, damaged, open_session, kind):
    """Parquet as DuckLake writes it has no checksums: a bit of a value is another value. The bits are the same in every run."""
    chance, key = random.Random(7), lake.key(kind)
    content = (damaged / key).read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    noticed, silent, session = 0, 0, open_session()
    for _ in range(20):
        at = chance.randrange(4, len(content) - footer)
        changed = bytearray(content)
        changed[at] ^= 1 << chance.randrange(8)
        (damaged / key).write_bytes(changed)
        # Nobody has read this one before.
        other = damaged.parent / f"{noticed + silent}.parquet"
        other.write_bytes(changed)
        whole = readable(session, other) == readable(session, Path(lake.location, key))
        assert found(session, damaged, "content") == ([] if whole else [("error", "content", key)]), at
        noticed, silent = noticed + (not whole), silent + whole
    assert noticed >= 1 and silent >= 1, (noticed, silent)
    # The length of the footer and the mark at the end are looked at always.
    for at in range(1, 9):
        changed = bytearray(content)
        changed[-at] ^= 0x40
        (damaged / key).write_bytes(changed)
        assert found(session, damaged, "content") == [("error", "content", key)], at


def test_what_the_session_has_read_before_is_read_again(lake, damaged, open_session):
    """Bits rot without a new time of change, and DuckDB keeps what it has read of a file."""
    session, path = open_session(), damaged / lake.key("data file")
    before = path.stat()
    assert session.table("fsck", damaged, depth="content") == []
    content = path.read_bytes()
    path.write_bytes(content[:-6] + bytes([content[-6] ^ 1]) + content[-5:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(session, damaged, "content") == [("error", "content", lake.key("data file"))]
    assert session.value("SELECT current_setting('enable_external_file_cache')") is True
    session("SET GLOBAL enable_external_file_cache = false")
    assert found(session, damaged, "content") == [("error", "content", lake.key("data file"))]
    assert session.value("SELECT current_setting('enable_external_file_cache')") is False


def test_a_session_with_locked_settings_hears_why(lake, open_session):
    session = open_session()
    session("LOAD ducklake; LOAD sqlite_scanner; SET lock_configuration = true")
    assert session.table("fsck", lake.location, depth="files") == []
    message = session.refused(call("fsck", lake.location, depth="content"), "FDL-DUCKDB")
    assert "lock" in message, message


def test_everything_that_is_wrong_is_told_at_once(lake, damaged, open_session):
    """Errors first."""
    for kind in ("fdl.json", "dataset.json", "catalog", "data file", "delete file", "tag"):
        (damaged / lake.key(kind)).unlink()
    rows = found(open_session(), damaged, "content")
    missing = [("error", "missing", lake.key(kind)) for kind in ("fdl.json", "dataset.json", "catalog", "data file", "delete file")]
    assert set(rows) == {*missing, ("warning", "missing", "refs/tags/v1"), ("warning", "lag", "refs.json")}
    assert [level for level, _, _ in rows] == sorted(level for level, _, _ in rows)


def test_a_catalog_in_the_cache_hides_nothing(lake, damaged, open_session):
    session = open_session()
    session.fdl("attach", str(damaged), alias="p", ref="v2", cache="always")
    path = damaged / lake.key("catalog")
    path.write_bytes(flipped(path.read_bytes(), "catalog"))
    assert found(session, damaged, "files") == [("error", "hash", lake.key("catalog"))]


def test_damage_in_s3(new_place, open_session):
    place, session = new_place("s3"), open_session()
    lake = Lake(place.location, session)
    for depth in DEPTHS:
        assert session.table("fsck", place.location, depth=depth) == []
    session.fdl("clone", place.location, target="copy")
    kinds = ("HEAD", "files.json", "catalog", "data file", "expired.json")
    content = {kind: place.read(lake.key(kind)) for kind in kinds}
    for kind in kinds:
        for how in ("removed", "flipped"):
            key = lake.key(kind)
            if how == "removed":
                place.ask("DELETE", place.object(key))
            elif "file" in kind.split():
                place.write(key, content[kind][:-6] + bytes([content[kind][-6] ^ 1]) + content[kind][-5:])
            else:
                place.write(key, flipped(content[kind], kind))
            depth, level, code, where = expected(kind, how, key)
            finding = (level, code, where.format(**lake.names))
            assert finding in found(session, place.location, depth), (kind, how)
            for earlier in DEPTHS[:DEPTHS.index(depth)]:
                assert found(session, place.location, earlier) == [], (kind, how)
            if how == "removed":
                row = next(row for row in session.table("fsck", place.location, depth=depth) if row["code"] == "missing")
                session(row["repair"].replace("<copy>", "copy"))
                session.fdl("init", place.location)
                assert found(session, place.location, depth) == [], (kind, how)
            place.write(key, content[kind])
    assert session.table("fsck", place.location, depth="content") == []


def test_behind_http_nothing_can_be_listed(lake, open_session):
    with wire.Static(lake.location) as server:
        for depth in DEPTHS:
            message = open_session().refused(call("fsck", server.url, depth=depth), "FDL-STORE")
            assert "list" in message and "HTTP" in message, message
