"""Real keys and signatures: what the stories of test_signing.py share. Everything is made by OpenSSH's own programs."""

import os
import subprocess
from pathlib import Path

AIKO = "aiko@example.org"
AUTHOR = f"Aiko Tanaka <{AIKO}>"


def run(*words, check=True, **how):
    """Runs a program; gives its CompletedProcess."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, stdin=how.pop("stdin", subprocess.DEVNULL), **how)
    assert not check or done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done


def make_key(name, kind="ed25519", *more, passphrase=""):
    """A key pair in the working directory; gives the name of the private key's file."""
    run("ssh-keygen", "-q", "-t", kind, *more, "-N", passphrase, "-C", f"{name} of a test", "-f", name)
    return name


def public(name):
    """Type and key, without the comment."""
    with open(f"{name}.pub", encoding="utf-8") as file:
        return " ".join(file.read().split()[:2])


def fingerprint(name):
    return run("ssh-keygen", "-l", "-f", f"{name}.pub").stdout.split()[1]


def allow(*lines, file="allowed_signers"):
    """An allowed_signers file. A line is a text, or (who, options, the name of a key)."""
    with open(file, "w", encoding="utf-8") as out:
        for line in lines:
            out.write((line if isinstance(line, str) else " ".join([line[0], *([line[1]] if line[1] else []), public(line[2])])) + "\n")
    return file


def keygen_verifies(record, signature, signers="allowed_signers", who=AIKO, namespace="fdl"):
    """What the real ssh-keygen says of a signature: whether it is good, and its words."""
    with open(record, "rb") as message:
        done = run("ssh-keygen", "-Y", "verify", "-f", signers, "-I", who, "-n", namespace, "-s", signature, stdin=message, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def keygen_signs(record, key, namespace="fdl"):
    """Has the real ssh-keygen sign a file; gives the signature's bytes."""
    with open(record, "rb") as message:
        return run("ssh-keygen", "-Y", "sign", "-n", namespace, "-f", key, stdin=message).stdout.encode()


class Agent:
    """A real ssh-agent, in the foreground of a process of its own, with its socket in the environment."""

    def __init__(self, monkeypatch, folder):
        socket = os.path.join(folder, "agent")
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE, text=True)
        assert "SSH_AUTH_SOCK" in self.process.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)

    def add(self, key):
        run("ssh-add", "-q", key)

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()


def verify(session, where, signers="allowed_signers", **named):
    """The rows of fdl_verify, as (status, signer, key, note)."""
    rows = session.table("verify", where, allowed_signers=signers, **named)
    return [(row["status"], row["signer"], row["key"], row["note"]) for row in rows]


def statuses(session, where, signers="allowed_signers", **named):
    return [row[0] for row in verify(session, where, signers, **named)]


def publish(session, sql, lake="lake", key="key", **named):
    """Changes the lake, commits it signed, and pushes; gives the version."""
    session(sql)
    made = session.fdl("commit", lake, author=AUTHOR, sign_with=key, **named)
    assert made["committed"], made
    assert session.fdl("push", lake)["outcome"] == "pushed"
    return made["version"]


def signed_repository(session):
    """A repository `repo`, whose branch main has one version signed by `key`; `.version` and `.folder` are its. Gives the session."""
    make_key("key")
    allow((AIKO, None, "key"))
    session.fdl("init", "repo")
    session.checkout("repo")
    session.version = publish(session, "CREATE TABLE lake.t AS SELECT range AS i FROM range(10)", message="one")
    session.folder = Path("repo/versions", session.version).resolve()
    return session


def move(ref, version):
    """What somebody who has the folder can do and fdl does not: a ref that goes anywhere."""
    Path("repo/refs", ref).write_text(version + "\n")
