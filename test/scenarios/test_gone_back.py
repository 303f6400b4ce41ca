"""What fdl remembers of refs that it verified: a repository that goes back behind it is told, whatever is signed."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from signing import keygen_signs, make_key, move, publish, signed_repository, statuses

# In CI it is there: .ci/run installs it.
pytestmark = pytest.mark.skipif(not os.environ.get("CI") and not shutil.which("ssh-keygen"), reason="needs ssh-keygen (apt-get install openssh-client)")

ATTACH = "FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')"


@pytest.fixture
def signed(open_session, bare):
    return signed_repository(open_session())


def remembering(message):
    """The files that the hint of a message names."""
    folder, names = re.search(r"delete in (.+?) what remembers the other, and call again: (.+)$", message, re.M).groups()
    return [Path(folder, name) for name in names.split(", ")]


def attach(session, where="repo", **named):
    return session.fdl("attach", where, alias="x", allowed_signers="allowed_signers", **named)["version"]


def test_a_repository_that_goes_back(signed):
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    # Whoever has seen nothing cannot notice.
    move("heads/main", signed.version)
    assert signed.fdl("attach", "repo", alias="x", allowed_signers="allowed_signers")["version"] == signed.version
    # Forward is forward.
    move("heads/main", second)
    assert signed.fdl("attach", "repo", alias="x", allowed_signers="allowed_signers")["version"] == second
    # And back is told, though everything there is signed.
    move("heads/main", signed.version)
    message = signed.refused(ATTACH, "FDL-UNTRUSTED")
    assert "has gone back" in message and second in message and signed.version in message
    for named in ({}, {"ref": "main"}, {"ref": "refs/heads/main"}):
        rows = signed.table("verify", "repo", allowed_signers="allowed_signers", **named)
        assert [(row["status"], row["version"]) for row in rows] == [("gone back", second), ("good", signed.version)]
        assert "has gone back" in rows[0]["note"]
    # Without allowed_signers nobody asked.
    assert signed.fdl("attach", "repo", alias="x")["version"] == signed.version
    # By its ID a version is what it is.
    assert signed.fdl("attach", "repo", ref=signed.version, alias="x", allowed_signers="allowed_signers")["version"] == signed.version
    # It is the repository that is remembered, and not only the place: a copy of it is the same one.
    shutil.copytree("repo", "copy")
    signed.refused("FROM fdl_attach('copy', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
    # And the place: one that takes on another ID is no other repository.
    settings = Path("repo/fdl.json").read_text()
    ident = signed.value("SELECT id FROM fdl_init('repo')")
    Path("repo/fdl.json").write_text(settings.replace(ident, "11111111-1111-4111-8111-111111111111"))
    assert len(remembering(signed.refused(ATTACH, "FDL-UNTRUSTED"))) == 2
    Path("repo/fdl.json").write_text(settings)
    # What the hint says: whoever knows better deletes what is remembered.
    files = remembering(signed.refused(ATTACH, "FDL-UNTRUSTED"))
    assert len(files) == 4
    for file in files:
        assert file.read_text() == second + "\n"
        file.unlink()
    assert signed.fdl("attach", "repo", alias="x", allowed_signers="allowed_signers")["version"] == signed.version


def test_a_branch_beside_the_history_and_another_default_branch(signed):
    """Not only back: a ref that leads elsewhere does not lead to what was verified."""
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    signed("CALL fdl_branch('repo', name := 'old', ref := 'main~1')")
    assert signed.fdl("attach", "repo", alias="x", allowed_signers="allowed_signers")["version"] == second
    Path("repo/HEAD").write_text("ref: refs/heads/old\n")
    message = signed.refused("FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
    assert "refs/heads/old" in message and second in message
    # The branch itself was never seen before.
    assert signed.fdl("attach", "repo", ref="old", alias="x", allowed_signers="allowed_signers")["version"] == signed.version


def test_a_tag_that_moves(signed):
    signed("CALL fdl_tag('repo', name := 'v1')")
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    assert statuses(signed, "repo", ref="v1") == ["good"]
    move("tags/v1", second)
    assert statuses(signed, "repo", ref="v1") == ["gone back", "good", "good"]
    assert "refs/tags/v1" in signed.refused("FROM fdl_attach('repo', ref := 'v1', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")


def forge_parent(version, parent):
    """Another parent in a record, which is then not what was signed."""
    record = Path("repo/versions", version, "version.json")
    content = json.loads(record.read_text())
    content["parents"] = [parent]
    record.write_text(json.dumps(content))
    return record


def test_an_older_record_with_a_forged_parent(signed):
    """main goes back to the second of three versions, and the first says that it builds on the third."""
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    third = publish(signed, "INSERT INTO lake.t VALUES (12)", message="three")
    assert attach(signed) == third
    move("heads/main", second)
    record = forge_parent(signed.version, third)
    remembered = {file: file.read_text() for file in Path.home().glob(".cache/fdl/verified/*/*")}
    make_key("mallory")
    signature = record.with_name("version.json.sig")
    for forge, why in ((lambda: None, "not good but bad"), (signature.unlink, "not good but unsigned"),
                       (lambda: signature.write_bytes(keygen_signs(record, "mallory")), "not good but unknown signer")):
        forge()
        message = signed.refused(ATTACH, "FDL-UNTRUSTED")
        assert "refs/heads/main cannot be shown to have gone forward" in message and second in message and third in message
        assert f"{signed.version} is {why}" in message, message
        rows = signed.table("verify", "repo", allowed_signers="allowed_signers")
        assert [(row["status"], row["version"]) for row in rows[:2]] == [("unproved", third), ("good", second)]
    assert remembered == {file: file.read_text() for file in Path.home().glob(".cache/fdl/verified/*/*")}


def test_an_unsigned_version_on_the_way_forward(signed):
    """A branch with versions that nobody signed goes on all the same: what it holds is signed and was made later."""
    assert attach(signed) == signed.version
    signed("INSERT INTO lake.t VALUES (11)")
    signed.publish("not signed")
    third = publish(signed, "INSERT INTO lake.t VALUES (12)", message="three")
    assert statuses(signed, "repo") == ["good", "unsigned", "good"]
    assert attach(signed) == third


def test_a_tag_in_the_place_of_a_branch_and_the_other_way_round(signed):
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    signed("CALL fdl_tag('repo', name := 'v1', ref := 'main~1')")
    assert attach(signed, ref="main") == second
    assert attach(signed, ref="v1") == signed.version
    for kept in ("refs/heads/main", "refs/tags/v1"):
        Path("repo", kept).rename("kept")
        branch = kept == "refs/heads/main"
        name, swapped, version = ("main", "tags/main", signed.version) if branch else ("v1", "heads/v1", second)
        move(swapped, version)
        message = signed.refused(f"FROM fdl_attach('repo', ref := '{name}', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
        assert f"refs/{swapped} has gone back" in message and kept.replace("/", "+") in message
        assert statuses(signed, "repo", ref=name)[0] == "gone back"
        Path("repo/refs", swapped).unlink()
        Path("kept").rename(Path("repo", kept))
    # One that holds what was verified is as good.
    Path("repo/refs/heads/main").rename("repo/refs/tags/main")
    assert attach(signed, ref="main") == second


def test_a_history_that_is_damaged(signed):
    """Every version that can be read has its row, and a bad one ends them."""
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    third = publish(signed, "INSERT INTO lake.t VALUES (12)", message="three")
    assert statuses(signed, "repo", ref="main~2") == ["good"]
    assert attach(signed, ref="main") == third
    record = forge_parent(signed.version, second)
    rows = signed.table("verify", "repo", allowed_signers="allowed_signers")
    assert [(row["version"], row["status"]) for row in rows] == [(third, "good"), (second, "good"), (signed.version, "bad"), (second, "bad")]
    assert "circle" in rows[-1]["note"]
    record.unlink()
    rows = signed.table("verify", "repo", allowed_signers="allowed_signers")
    assert [(row["version"], row["status"]) for row in rows] == [(third, "good"), (second, "good"), (signed.version, "bad")]
    assert "it is missing" in rows[-1]["note"]
    # What was remembered lies behind the damage, or was never part of it.
    for file in Path.home().glob(".cache/fdl/verified/*/refs*"):
        file.write_text(signed.version[:-12] + "000000000000\n")
    rows = signed.table("verify", "repo", allowed_signers="allowed_signers")
    assert [row["status"] for row in rows] == ["unproved", "good", "good", "bad"]
    assert signed.version in rows[0]["note"]


def test_the_memory_is_not_where_duckdb_was_started(signed, monkeypatch):
    verify = "FROM fdl_verify('repo', allowed_signers := 'allowed_signers')"
    monkeypatch.setenv("FDL_CACHE_DIR", "relative")
    for call in (verify, ATTACH):
        assert "FDL_CACHE_DIR is relative" in signed.refused(call, "FDL-BAD-ARGUMENT")
    monkeypatch.delenv("FDL_CACHE_DIR")
    # Of this one a relative path is to be ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert attach(signed) == signed.version
    assert list(Path.home().glob(".cache/fdl/verified/*/HEAD"))
    monkeypatch.setenv("HOME", "relative")
    assert "no home folder" in signed.refused(verify, "FDL-BAD-ARGUMENT")
    assert not Path("relative").exists() and not Path("~").exists()
