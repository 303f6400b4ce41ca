"""A small repository to try things on, and how to see that nothing has changed. Used by the scenarios of bad input and of sessions."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import layout
import session
from session import quoted, rows

ERROR = re.compile(r"Invalid Input Error: (?P<function>fdl_\w+): (?P<sentence>[^\n]+?) \[(?P<code>FDL-[A-Z-]+)\]\. Hint: (?P<hint>[^\n]+)", re.S)
NOT_OURS = ("-wal", "-shm", "-journal")  # SQLite's own, beside a working catalog that is in use


def content(path):
    """The bytes of a file. Of a SQLite file, without the fields of its header that tell how and how often it was opened for writing:
    a look whether a transaction is open folds the write-ahead log in."""
    content = path.read_bytes()
    if not content.startswith(b"SQLite format 3\0"):
        return content
    return content[:18] + content[20:24] + content[28:92] + content[100:]


def tree(root):
    """Every file below a folder with the hash of its content, every folder and link."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = "folder"
        elif not name.endswith(NOT_OURS):
            found[name] = hashlib.sha256(content(path)).hexdigest()
    return found


def session_state(connection):
    """What a person sees of a session: attached databases, settings, search path."""
    names = "SELECT database_name, type, path, readonly FROM duckdb_databases() ORDER BY ALL"
    settings = "SELECT name, value FROM duckdb_settings() ORDER BY ALL"
    place = "SELECT current_database(), current_schema(), current_setting('search_path')"
    return [connection.execute(sql).fetchall() for sql in (names, settings, place)]


def error_of(connection, sql):
    """The message of a statement that must fail."""
    with pytest.raises(session.duckdb.Error) as caught:
        connection.execute(sql).fetchall()
    return str(caught.value)


def check_message(message, sql, code, says="", hint=""):
    """A message as sql-api.md wants it: the function, one sentence, the code, a hint; all on one line."""
    found = ERROR.fullmatch(message)
    assert found, f"not a message of ours: {message}"
    assert found["function"] == re.search(r"fdl_\w+", sql)[0]
    assert found["code"] in (code if isinstance(code, tuple) else (code,)), message
    assert says in found["sentence"], message
    assert hint in found["hint"], message
    assert not found["sentence"].endswith((".", "!")) and len(message) < 1500, message
    return found


def refused(connection, sql, code, says="", hint="", root="."):
    """Runs a statement that must be refused, and checks the message and that nothing has changed: no file below `root`, no
    database, no setting. The session goes on working."""
    files, state = tree(root), session_state(connection)
    found = check_message(error_of(connection, sql), sql, code, says, hint)
    after = tree(root)
    changed = sorted(name for name in files.keys() | after.keys() if files.get(name) != after.get(name))
    assert not changed, f"{sql} was refused and changed {changed}"
    # ducklake and sqlite, and their settings, may have been loaded by it.
    now = session_state(connection)
    assert now[0] == state[0] and now[2] == state[2]
    assert set(state[1]) <= set(now[1])
    assert connection.execute("SELECT 42").fetchone() == (42,)
    return found


def build(folder):
    """A repository of two versions in `folder`, whose `repo` can be copied: nothing in it says where it is."""
    with session.connect() as connection:
        repo, lake = quoted(folder / "repo"), quoted(folder / "lake.sqlite")
        connection.execute(f"CALL fdl_init({repo}, id := '6f1f5f3e-64c8-4b2e-9d0e-0d8a9c6c1a11')")
        connection.execute(f"CALL fdl_checkout({repo}, path := {lake}, alias := 'lake')")
        connection.execute("CREATE TABLE lake.t AS SELECT range AS i, 'row ' || range AS s FROM range(10)")
        connection.execute("CREATE TABLE lake.u AS SELECT 1 AS i")
        connection.execute("CALL fdl_push('lake', message := 'one', tag := 'v1')")
        connection.execute("DELETE FROM lake.t WHERE i < 3")
        connection.execute("CALL fdl_push('lake', message := 'two', tag := 'v2')")


class Repo:
    """A copy of that repository in the working directory."""

    def __init__(self, template):
        self.path = Path("repo").resolve()
        shutil.copytree(template / "repo", self.path)
        self.main = (self.path / "refs/heads/main").read_text().strip()
        self.first = (self.path / "refs/tags/v1").read_text().strip()

    def version(self, name, version=None):
        """A file of a version, of the last one where none is said."""
        return self.path / "versions" / (version or self.main) / name

    @property
    def catalog(self):
        return self.version("ducklake.duckdb")

    def rewrite(self, file, change):
        """Changes a JSON file by hand, as another writer might have written it."""
        value = json.loads(file.read_text())
        change(value)
        file.write_text(json.dumps(value, indent=2) + "\n")

    def fix_hashes(self):
        """Makes version.json agree with the files beside it again."""
        def change(record):
            for key, name in (("sha256", "ducklake.duckdb"), ("files_sha256", "files.json"), ("dataset_sha256", "dataset.json")):
                record[key] = hashlib.sha256(self.version(name).read_bytes()).hexdigest()
            record["size"] = self.catalog.stat().st_size

        self.rewrite(self.version("version.json"), change)


def lake_of(connection, alias="lake", **named):
    """A working copy of `repo`, attached."""
    extra = "".join(f", {name} := {quoted(value)}" for name, value in named.items())
    return rows(connection, f"CALL fdl_checkout('repo', alias := {quoted(alias)}{extra})")[0]


# ---------------------------------------------------------------- a machine with a full disk, or without permission

CHILD = """
import json, os, sys
from pathlib import Path
import duckdb
from session import connect, rows, quoted
from repository import error_of, check_message, tree, lake_of

class Disk:
    def __init__(self, folder):
        self.filler = Path(folder, 'filler')

    def fill(self, leave=0):
        'Nothing more fits but this many bytes.'
        with open(self.filler, 'wb', buffering=0) as file:
            for size in (1 << 16, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
            if leave:
                file.truncate(max(0, file.tell() - leave))

    def free(self):
        self.filler.unlink()

c = connect()
"""


def namespaced(prepare, code, check=True):
    """Runs Python code in a child process whose own mounts `prepare` (shell) has made; skips the test where that is not allowed."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not let a test mount a file system")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, layout.ROOT / "scripts")))}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(CHILD + code)
        script.flush()
        done = subprocess.run([*unshare, "sh", "-ec", prepare + '\nexec "$0" "$1"', sys.executable, script.name], env=environment,
                              capture_output=True, text=True, timeout=100)
    assert not check or done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done
