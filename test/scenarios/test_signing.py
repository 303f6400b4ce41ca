"""Signatures made and checked with the real OpenSSH: ssh-keygen, ssh-agent, ssh-add."""

import base64
import hashlib
import os
import shutil
from pathlib import Path

import pytest

import layout
from session import quoted
from signing import AIKO, AUTHOR, Agent, allow, fingerprint, keygen_signs, keygen_verifies, make_key, public, publish, run, signed_repository, statuses, verify

# In CI they are there: .ci/run installs them.
pytestmark = pytest.mark.skipif(not os.environ.get("CI") and not all(map(shutil.which, ("ssh-keygen", "ssh-agent", "ssh-add"))),
                                reason="needs OpenSSH's client programs (apt-get install openssh-client)")

KINDS = {"ed25519": ("ed25519",), "ecdsa 256": ("ecdsa", "-b", "256"), "ecdsa 384": ("ecdsa", "-b", "384"), "ecdsa 521": ("ecdsa", "-b", "521"),
         "rsa 2048": ("rsa", "-b", "2048"), "rsa 4096": ("rsa", "-b", "4096")}


@pytest.fixture
def signed(open_session, bare):
    return signed_repository(open_session())


@pytest.fixture
def agent(monkeypatch, tmp_path_factory):
    # The path of a socket must be short.
    agent = Agent(monkeypatch, tmp_path_factory.mktemp("a"))
    yield agent
    agent.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_fdl_signs_ssh_keygen_verifies_and_the_other_way_round(open_session, kind):
    session = open_session()
    make_key("key", *KINDS[kind])
    allow((AIKO, None, "key"))
    session.fdl("init", "repo")
    session.checkout("repo")
    version = publish(session, "CREATE TABLE lake.t AS SELECT 1 AS i", message="one")
    folder = Path("repo/versions", version)
    assert keygen_verifies(folder / "version.json", folder / "version.json.sig")[0]
    assert not keygen_verifies(folder / "version.json", folder / "version.json.sig", namespace="file")[0]
    assert verify(session, "repo") == [("good", AIKO, fingerprint("key"), None)]
    assert session.fdl("attach", "repo", alias="a", allowed_signers="allowed_signers")["version"] == version
    # The same from ssh-keygen's hand. (Other bytes for ECDSA, which takes chances; so the old signature goes first.)
    theirs = keygen_signs(folder / "version.json", "key")
    (folder / "version.json.sig").write_bytes(theirs)
    assert verify(session, "repo") == [("good", AIKO, fingerprint("key"), None)]
    assert session.fdl("attach", "repo", alias="b", allowed_signers="allowed_signers")["version"] == version
    assert session("FROM a.t") == session("FROM b.t") == [{"i": 1}]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa 256", "rsa 2048"])
def test_a_key_in_an_agent(open_session, agent, kind):
    """The private half is nowhere but in the agent."""
    session = open_session()
    agent.add(make_key("key", *KINDS[kind]))
    Path("key").unlink()
    allow((AIKO, None, "key"))
    session.fdl("init", "repo")
    session.checkout("repo")
    version = publish(session, "CREATE TABLE lake.t AS SELECT 1 AS i", key="key.pub", message="one")
    folder = Path("repo/versions", version)
    assert keygen_verifies(folder / "version.json", folder / "version.json.sig")[0]
    assert statuses(session, "repo") == ["good"]


def scalar(key):
    """The secret number of an ECDSA key, as its file holds it."""
    data = base64.b64decode("".join(Path(key).read_text().splitlines()[1:-1])).removeprefix(b"openssh-key-v1\0")

    def take(data, count):
        for _ in range(count):
            size = int.from_bytes(data[:4], "big")
            text, data = data[4:4 + size], data[4 + size:]
        return text, data

    _, rest = take(data, 3)  # cipher, KDF, its options; then the number of keys
    private, _ = take(rest[4:], 2)
    return take(private[8:], 4)[0]


def test_a_key_whose_number_is_short(signed):
    """OpenSSH leaves leading zeros out: of every 256th P-256 key, and of half of all P-521 keys."""
    for at in range(40):
        key = make_key(f"short-{at}", "ecdsa", "-b", "521")
        if len(scalar(key)) < 66:
            break
    allow((AIKO, None, "key"), (AIKO, None, key))
    publish(signed, "INSERT INTO lake.t VALUES (11)", key=key, message="two")
    assert [row[:3] for row in verify(signed, "repo")] == [("good", AIKO, fingerprint(key)), ("good", AIKO, fingerprint("key"))]


def test_an_agent_that_does_not_sign(signed, agent, monkeypatch):
    make_key("other")
    signed("INSERT INTO lake.t VALUES (11)")
    commit = f"FROM fdl_commit('lake', author := {quoted(AUTHOR)}, sign_with := 'other.pub')"
    assert "ssh-keygen did not sign with" in signed.refused(commit, "FDL-BAD-ARGUMENT")
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert "SSH_AUTH_SOCK" in signed.refused(commit, "FDL-BAD-ARGUMENT")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert "install OpenSSH" in signed.refused(commit, "FDL-BAD-ARGUMENT")
    # Nothing was made by what was refused, and nothing is lost.
    status = signed.fdl("status", "lake")
    assert (status["ahead"], status["uncommitted"]) == (0, True)
    assert publish(signed, "SELECT 1", message="two")
    assert statuses(signed, "repo") == ["good", "good"]


def test_a_passphrase_is_not_asked_for(signed, agent, monkeypatch):
    make_key("locked", passphrase="open sesame")
    signed("INSERT INTO lake.t VALUES (11)")
    commit = f"FROM fdl_commit('lake', author := {quoted(AUTHOR)}, sign_with := "
    message = signed.refused(f"{commit}'locked')", "FDL-BAD-ARGUMENT")
    assert "the key locked is protected by a passphrase" in message and "ssh-add" in message and "KEY.pub" in message
    # What the hint says: ssh-add asks once, the agent signs from then on.
    Path("say").write_text("#!/bin/sh\necho open sesame\n")
    Path("say").chmod(0o700)
    run("ssh-add", "-q", "locked", env={**os.environ, "SSH_ASKPASS": "./say", "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"})
    allow((AIKO, None, "key"), (AIKO, None, "locked"))
    publish(signed, "SELECT 1", key="locked.pub", message="two")
    assert [row[:3] for row in verify(signed, "repo")] == [("good", AIKO, fingerprint("locked")), ("good", AIKO, fingerprint("key"))]


def test_old_forms_of_keys_are_told_from_no_key(signed):
    run("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", "pem")
    signed("INSERT INTO lake.t VALUES (11)")
    message = signed.refused(f"FROM fdl_commit('lake', author := {quoted(AUTHOR)}, sign_with := 'pem')", "FDL-BAD-ARGUMENT")
    assert "pem holds no OpenSSH key" in message and "ssh-keygen -p -f" in message
    run("ssh-keygen", "-q", "-p", "-N", "", "-P", "", "-f", "pem")
    assert publish(signed, "SELECT 1", key="pem", message="two")


def test_a_damaged_key(signed):
    signed("INSERT INTO lake.t VALUES (11)")
    Path("damaged").write_text(Path("key").read_text().replace("b3BlbnNzaC1rZXktdjE", "b3BlbnNzaC1rZXktdjI"))
    Path("damaged").chmod(0o600)
    Path("empty").touch()
    for key, code in (("damaged", "FDL-BAD-ARGUMENT"), ("empty", "FDL-BAD-ARGUMENT"), ("repo", "FDL-BAD-ARGUMENT"), ("none", "FDL-NOT-FOUND"), ("", "FDL-BAD-ARGUMENT")):
        signed.refused(f"FROM fdl_commit('lake', author := {quoted(AUTHOR)}, sign_with := {quoted(key)})", code)
    assert signed.fdl("status", "lake")["ahead"] == 0


def test_who_signs_must_have_an_address(signed):
    signed("INSERT INTO lake.t VALUES (11)")
    for author in ("Aiko", "Aiko <>", ""):
        message = signed.refused(f"FROM fdl_commit('lake', author := {quoted(author)}, sign_with := 'key')", "FDL-BAD-ARGUMENT")
        assert "no mail address" in message and "Name <mail>" in message
    assert signed.fdl("status", "lake")["ahead"] == 0


def test_nothing_to_commit_is_nothing_to_sign(signed):
    made = signed.fdl("commit", "lake", author=AUTHOR, sign_with="key")
    assert (made["committed"], made["version"], made["note"]) == (False, signed.version, None)
    signed("INSERT INTO lake.t VALUES (11)")
    unsigned = signed.fdl("commit", "lake", author=AUTHOR)["version"]
    made = signed.fdl("commit", "lake", author=AUTHOR, sign_with="key")
    assert (made["committed"], made["version"]) == (False, unsigned) and "a version that is not signed" in made["note"]
    made = signed.fdl("commit", "lake", author=AUTHOR, sign_with="key", force=True)
    assert made["committed"] and made["note"] is None
    assert statuses(signed, "lake") == ["good", "unsigned", "good"]


def test_a_push_that_commits_signs(signed):
    signed("INSERT INTO lake.t VALUES (11)")
    signed.fdl("push", "lake", message="eleven", author=AUTHOR, sign_with="key")
    assert statuses(signed, "repo") == ["good", "good"]
    # A version that is there already cannot be signed by a push.
    said = signed.refused("CALL fdl_push('lake', sign_with := 'key')", "FDL-BAD-ARGUMENT")
    assert "sign_with is for a commit" in said


def test_one_byte(signed):
    """Whatever byte of the record is changed: it is bad, and it is not attached."""
    record = signed.folder / "version.json"
    content = record.read_bytes()
    for at in range(0, len(content), 7):
        record.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
        rows = signed.table("verify", "repo", allowed_signers="allowed_signers")
        assert [row["status"] for row in rows] == ["bad"], (at, rows)
        message = signed.refused("FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
        assert "is bad" in message
    assert not signed("FROM duckdb_databases() WHERE database_name = 'x'")
    record.write_bytes(content)
    assert statuses(signed, "repo") == ["good"]


def test_one_byte_of_the_signature(signed):
    file = signed.folder / "version.json.sig"
    content = file.read_bytes()
    for at in range(0, len(content), 5):
        file.write_bytes(content[:at] + bytes([content[at] ^ 2]) + content[at + 1:])
        assert statuses(signed, "repo") != ["good"], at
    # White space is none of it: other programs write lines of another length.
    begin, *lines, end = content.decode().split("\n")[:-1]
    for length in (64, 76, 1000):
        body = "".join(lines)
        file.write_text("\n".join([begin, *(body[at:at + length] for at in range(0, len(body), length)), end, ""]))
        assert statuses(signed, "repo") == ["good"], length
        assert keygen_verifies(signed.folder / "version.json", file)[0], length
    for odd in (b"", b"nonsense", content[:40], b"\xff\xfe", content * 2):
        file.write_bytes(odd)
        assert statuses(signed, "repo") == ["bad"], odd[:20]


def test_signatures_of_something_else(signed):
    first = signed.folder / "version.json.sig"
    content = first.read_bytes()
    second = Path("repo/versions", publish(signed, "INSERT INTO lake.t VALUES (11)", message="two"), "version.json.sig")
    # Of another version.
    second.write_bytes(content)
    assert [row[:1] + row[3:] for row in verify(signed, "repo", ref="main")][0][0] == "bad"
    # For another namespace.
    second.write_bytes(keygen_signs(second.with_suffix(""), "key", namespace="file"))
    status, signer, key, note = verify(signed, "repo")[0]
    assert (status, signer, key) == ("bad", AIKO, fingerprint("key")) and '"file", not for fdl' in note
    # By another key.
    make_key("mallory")
    second.write_bytes(keygen_signs(second.with_suffix(""), "mallory"))
    assert verify(signed, "repo")[0] == ("unknown signer", AIKO, fingerprint("mallory"), "the key is not among the allowed signers")
    message = signed.refused("FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
    assert fingerprint("mallory") in message
    # By a key that may sign, in another name than the author's.
    allow((AIKO, None, "key"), ("mallory@example.org", None, "mallory"))
    status, _, _, note = verify(signed, "repo")[0]
    assert status == "unknown signer" and note == f"the key is allowed for mallory@example.org, not for {AIKO}"
    # Not at all.
    second.unlink()
    assert verify(signed, "repo")[0] == ("unsigned", AIKO, None, None)
    message = signed.refused("FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
    assert "is not signed" in message
    # The other version is good all the same: it has its own signature.
    assert statuses(signed, "repo") == ["unsigned", "good"]
    assert signed.fdl("attach", "repo", ref="main~1", alias="x", allowed_signers="allowed_signers")["version"] == signed.version


@pytest.mark.parametrize("line, good", [
    ("{who} {key}", True), ("*@example.org {key}", True), ("!{who},* {key}", False), ("b@x.org {key}", False), ('{who} namespaces="fdl" {key}', True),
    ('{who} namespaces="file,git" {key}', False), ('{who} valid-after="20200101" {key}', True), ('{who} valid-after="29990101Z" {key}', False),
    ('{who} valid-before="29990101" {key}', True), ('{who} valid-before="20200101Z" {key}', False), ("{who} cert-authority {key}", False),
    ('{who} VALID-BEFORE="299901010000",Namespaces="f?l" {key} and a comment', True), ('"{who}" {key}', True), ("# {who} {key}", False), ("", False)])
def test_the_file_means_what_it_means_to_ssh_keygen(signed, line, good):
    """Now, and when the version says it was made, are the same here: minutes ago."""
    allow(line.format(who=AIKO, key=public("key")))
    record = signed.folder / "version.json"
    assert keygen_verifies(record, record.with_name("version.json.sig"))[0] == good
    assert statuses(signed, "repo") == (["good"] if good else ["unknown signer"])
    call = "FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')"
    if good:
        assert signed(call)
    else:
        signed.refused(call, "FDL-UNTRUSTED")


def test_a_file_that_is_not_understood(signed):
    for content, code, says in [("a@x.org no-such-option ssh-ed25519 AAAA", "FDL-BAD-ARGUMENT", "line 1"),
                                ("# the keys\nroot:hush-password-hash", "FDL-BAD-ARGUMENT", "line 2"), (None, "FDL-NOT-FOUND", "cannot be read")]:
        Path("signers").unlink(missing_ok=True)
        if content:
            Path("signers").write_text(content)
        for call in ("fdl_verify('repo', allowed_signers := 'signers')", "fdl_attach('repo', alias := 'x', allowed_signers := 'signers')"):
            message = signed.refused(f"FROM {call}", code)
            assert says in message and "hush" not in message


@pytest.mark.parametrize("what", ["pipe", "device", "folder", "long"])
def test_files_of_keys_that_are_none(signed, what):
    """A pipe nobody writes to, and a device that gives without end: neither is waited for."""
    path = {"device": "/dev/zero", "folder": "repo"}.get(what, "odd")
    if what == "pipe":
        os.mkfifo(path)
    elif what == "long":
        Path(path).write_bytes(b"x" * ((1 << 20) + 1))
    says = "too long" if what == "long" else "not a file"
    for call in (f"fdl_verify('repo', allowed_signers := '{path}')", f"fdl_commit('lake', message := 'm', author := {quoted(AUTHOR)}, sign_with := '{path}')"):
        assert says in signed.refused(f"FROM {call}", "FDL-BAD-ARGUMENT")


def test_a_key_that_has_run_out_vouches_for_what_it_signed_before(signed):
    """As in Git: what counts is when the version says it was made."""
    record = signed.folder / "version.json"
    made = signed.value("SELECT strftime(created AT TIME ZONE 'UTC', '%Y%m%d%H%M%SZ') FROM fdl_log('repo')")
    assert made[-1] == "Z"
    allow((AIKO, 'valid-before="20991231Z"', "key"))
    assert statuses(signed, "repo") == ["good"]
    earlier = "20200101000000Z"
    allow((AIKO, f'valid-before="{earlier}"', "key"))
    status, _, _, note = verify(signed, "repo")[0]
    assert status == "unknown signer" and "was valid until 2020-01-01 00:00:00 UTC" in note
    # A version that says it is older, signed by the same key, is good: the time is the signer's own word.
    content = record.read_text()
    created = signed.value("SELECT regexp_extract(content, '\"created\": \"([^\"]+)\"', 1) FROM read_text('repo/versions/*/version.json')")
    record.write_text(content.replace(created, "2019-06-01T00:00:00.000Z"))
    record.with_name("version.json.sig").write_bytes(keygen_signs(record, "key"))
    assert statuses(signed, "repo") == ["good"]


def test_what_fdl_json_lists_is_no_reason_to_trust(open_session):
    session = open_session()
    make_key("key")
    session(f"CALL fdl_init('repo', signers := [{quoted(f'{AIKO} ' + public('key'))}])")
    session.checkout("repo")
    publish(session, "CREATE TABLE lake.t AS SELECT 1 AS i", message="one")
    for signers in (None, allow("# nobody")):
        status, signer, key, note = verify(session, "repo", signers=signers)[0]
        assert (status, signer, key) == ("unknown signer", AIKO, fingerprint("key"))
        assert f"fdl.json lists it for {AIKO}, which alone is no reason to trust it" in note
    session.refused("FROM fdl_attach('repo', alias := 'x', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")


def test_the_catalog_must_be_the_one_that_was_signed(signed):
    """The signature covers the record, and the record has the catalog's hash."""
    catalog = signed.folder / "ducklake.duckdb"
    content = catalog.read_bytes()
    catalog.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for cache in ("auto", "always"):
        signed.refused(f"FROM fdl_attach('repo', alias := 'x', cache := '{cache}', allowed_signers := 'allowed_signers')", "FDL-CORRUPT")
    catalog.write_bytes(content)
    # It is a copy that is attached: whoever can write to the folder cannot exchange it any more.
    attached = signed.fdl("attach", "repo", alias="x", allowed_signers="allowed_signers")
    copied = Path(attached["catalog"]).read_bytes()
    assert "/.cache/fdl/" in attached["catalog"] and hashlib.sha256(content).hexdigest() in attached["catalog"]
    assert attached["catalog"].endswith(f"-{hashlib.sha256(copied).hexdigest()}.duckdb")
    # The copy is looked at again each time.
    Path(attached["catalog"]).write_bytes(b"x" + copied[1:])
    signed("DETACH x")
    again = Path(signed.fdl("attach", "repo", alias="x", allowed_signers="allowed_signers")["catalog"])
    assert again.name.endswith(f"-{hashlib.sha256(again.read_bytes()).hexdigest()}.duckdb")
    # One that goes with the session is a copy as well.
    never = signed.fdl("attach", "repo", alias="y", cache="never", allowed_signers="allowed_signers")["catalog"]
    assert not never.startswith(str(Path("repo").resolve())) and "/.cache/fdl/" not in never


def test_the_log_and_the_working_copy(signed):
    """Versions that are not pushed are verified as those that are."""
    assert signed.column("SELECT signed FROM fdl_log('repo')") == [True]
    signed("INSERT INTO lake.t VALUES (11)")
    signed.fdl("commit", "lake", author=AUTHOR)
    signed("INSERT INTO lake.t VALUES (12)")
    signed.fdl("commit", "lake", author=AUTHOR, sign_with="key")
    assert signed.column("SELECT signed FROM fdl_log('lake')") == [True, False, True]
    assert statuses(signed, "lake") == ["good", "unsigned", "good"]
    assert signed.fdl("push", "lake")["versions"] == 2
    assert signed.column("SELECT signed FROM fdl_log('repo')") == [True, False, True]
    assert statuses(signed, "repo") == ["good", "unsigned", "good"]
    assert statuses(signed, "repo", ref="main~1") == ["unsigned", "good"]


def test_a_wrong_signature_is_not_pushed(signed):
    """It could never be replaced."""
    signed("INSERT INTO lake.t VALUES (11)")
    version = signed.fdl("commit", "lake", author=AUTHOR, sign_with="key")["version"]
    signature = Path("lake.sqlite.fdl/versions", version, "version.json.sig")
    content = signature.read_bytes()
    signature.write_bytes((signed.folder / "version.json.sig").read_bytes())
    assert "does not fit" in signed.refused("FROM fdl_push('lake')", "FDL-CORRUPT")
    assert not Path("repo/versions", version).exists()
    signature.write_bytes(content)
    assert signed.fdl("push", "lake")["outcome"] == "pushed"


def test_what_is_not_good_is_not_remembered(signed):
    second = publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    allow("# nobody")
    assert statuses(signed, "repo") == ["unknown signer", "unknown signer"]
    assert statuses(signed, "repo", signers=None) == ["unknown signer", "unknown signer"]
    assert not Path.home().joinpath(".cache/fdl/verified").exists()
    allow((AIKO, None, "key"))
    statuses(signed, "repo")
    assert {file.read_text().strip() for file in Path.home().glob(".cache/fdl/verified/*/refs+heads+main")} == {second}


def test_a_memory_that_cannot_be_kept_or_read(signed, monkeypatch):
    Path("not-a-folder").write_text("x")
    monkeypatch.setenv("FDL_CACHE_DIR", str(Path("not-a-folder").resolve()))
    status, _, _, note = verify(signed, "repo")[0]
    assert status == "good" and "could not be remembered" in note
    monkeypatch.setenv("FDL_CACHE_DIR", str(Path("cache").resolve()))
    assert statuses(signed, "repo") == ["good"]
    for file in Path("cache/verified").glob("*/refs*"):
        file.write_text("nonsense")
    assert "only remembers" in signed.refused("FROM fdl_verify('repo', allowed_signers := 'allowed_signers')", "FDL-CORRUPT")


def test_housekeeping_keeps_signatures(signed):
    """Expired and cloned versions keep theirs; gc takes none; fsck finds what does not fit."""
    publish(signed, "INSERT INTO lake.t VALUES (11)", message="two")
    assert not signed.table("fsck", "repo", depth="files")
    signed("CALL fdl_expire('repo', versions := ['main~1'], dry_run := false)")
    signed("CALL fdl_gc('repo', grace := INTERVAL 0 SECONDS, dry_run := false)")
    assert statuses(signed, "repo") == ["good", "good"]
    signed("CALL fdl_clone('repo', target := 'copy')")
    assert statuses(signed, "copy") == ["good", "good"]
    assert not signed.table("fsck", "copy", depth="files")
    signature = signed.folder / "version.json.sig"
    content = signature.read_bytes()
    for wrong, code in ((b"nonsense", "unreadable"), (keygen_signs("allowed_signers", "key"), "signature"),
                        (keygen_signs(signed.folder / "version.json", "key", namespace="file"), "signature")):
        signature.write_bytes(wrong)
        (found,) = signed.table("fsck", "repo")
        assert (found["level"], found["code"]) == ("error", code) and found["object"].endswith("version.json.sig"), found
    signature.write_bytes(content)
    # A changed message is found, which no hash covers.
    record = signed.folder / "version.json"
    record.write_text(record.read_text().replace('"one"', '"two"'))
    (found,) = signed.table("fsck", "repo")
    assert found["code"] == "signature"


@pytest.mark.everywhere
def test_everywhere(open_session, repository):
    """Over every kind of place: the signature arrives, is verified, and what is not signed is not attached."""
    session = open_session()
    make_key("key")
    allow((AIKO, None, "key"))
    session.checkout(repository.location)
    version = publish(session, "CREATE TABLE lake.t AS SELECT range AS i FROM range(10)", message="one")
    repository.copy(f"versions/{version}/version.json", "record")
    repository.copy(f"versions/{version}/version.json.sig", "signature")
    assert keygen_verifies("record", "signature")[0]
    assert verify(session, repository.location) == [("good", AIKO, fingerprint("key"), None)]
    assert session.column(f"SELECT signed FROM fdl_log({quoted(repository.location)})") == [True]
    attached = session.fdl("attach", repository.location, alias="published", allowed_signers="allowed_signers")
    assert "/.cache/fdl/" in attached["catalog"]
    assert session.value("SELECT sum(i) FROM published.t") == 45
    assert session(f"FROM fdl_attach({quoted(repository.location)}, alias := 'x', cache := 'never', allowed_signers := 'allowed_signers')")
    session("INSERT INTO lake.t VALUES (10)")
    session.publish("not signed")
    assert statuses(session, repository.location) == ["unsigned", "good"]
    session.refused(f"FROM fdl_attach({quoted(repository.location)}, alias := 'published', allowed_signers := 'allowed_signers')", "FDL-UNTRUSTED")
    # What was attached is still there.
    assert session.value("SELECT sum(i) FROM published.t") == 45


@pytest.mark.parametrize("version", [version for version in layout.SUPPORTED if version != layout.MAIN])
def test_in_every_duckdb(signed, python, version):
    found = python("c = connect()\nprint(json.dumps(rows(c, \"FROM fdl_verify('repo', allowed_signers := 'allowed_signers')\")))", version=version).rows
    assert [row["status"] for row in found] == ["good"]
