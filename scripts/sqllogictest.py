#!/usr/bin/env python3
"""Runs test/sql/*.test, in DuckDB's sqllogictest form, against the packaged extension.

    scripts/sqllogictest.py [--duckdb 1.5.5] [FILE ...]

What it knows of the form:
    statement ok|error|maybe [con1]      `error` needs `----` and a part of the message, or `<REGEX>:` and a pattern for all of it
    query IT.. [nosort|rowsort|valuesort] [con1] [label]     `----` and the rows, values apart by tabs or one a line; NULL, (empty),
                                         <REGEX>:pattern, <!REGEX>:pattern; a newline or tab inside a value is shown as \\n or \\t
    require NAME                         loads fdl or another extension; one that this DuckDB does not have skips the file
    skipif|onlyif COND                   COND: duckdb, duckdb_version>=1.5.0, or a loop variable as in i=3; for the next command
    loop i 0 3, foreach x a b, endloop   ${i} is replaced
    load [FILE] [readonly], restart, reconnect, sleep N seconds, mode skip|unskip, halt
    __TEST_DIR__, {TEST_DIR}             a fresh folder, which is also the working directory
    # versions: 1.4.4 1.5.5              the DuckDB versions that the file runs in (default: the main one alone)

Each file runs in a process of its own, so that a crash is one failed file. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import layout
from sqllogic_form import BadTest, error_matches, parse, query_arguments, rows_match, show, text, versions_of

TESTS = layout.ROOT / "test" / "sql"
# `require` names that are about the machine, not an extension; all machines we run on have them.
MACHINE = ("notwindows", "notmusl", "64bit", "vector_size", "skip_reload")
MAX_MISMATCHES = 10


# ---------------------------------------------------------------- running a file (in the child process)

class Halt(Exception):
    """The file ends here."""


class SkipFile(Exception):
    """The file cannot run in this DuckDB."""


class Stopped(Exception):
    """A command that is not a statement failed, so that the rest of the file means nothing."""


class Runner:
    """One test file in one DuckDB."""

    def __init__(self, path, folder, extension, note):
        import duckdb  # the version that PYTHONPATH says
        self.duckdb, self.path, self.folder, self.extension, self.note = duckdb, path, folder, extension, note
        self.version = duckdb.__version__
        self.variables, self.labels, self.required = {}, {}, []
        self.skipping, self.statements, self.mismatches = False, 0, 0
        self.connections, self.database, self.readonly = {}, ":memory:", False
        self.open(":memory:", False)

    # Connections

    def open(self, database, readonly):
        self.close()
        self.database, self.readonly = database, readonly
        self.connections[""] = self.duckdb.connect(database, read_only=readonly, config={
            "allow_unsigned_extensions": True, "extension_directory": str(layout.EXTENSIONS)})
        self.quiet(self.connections[""])
        for name in self.required:
            self.load_extension(name)

    def close(self):
        had = bool(self.connections)
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        gc.collect()
        if had and self.database != ":memory:" and "fdl" in self.required:
            time.sleep(1.2)  # our extension lets go of a closed database within a second; only then is the next open a new one

    def quiet(self, connection):
        # Otherwise a table name in a query may be taken for a variable of this program.
        connection.execute("SET python_enable_replacements = false")

    def connection(self, name):
        if name not in self.connections:
            self.connections[name] = self.connections[""].cursor()
            self.quiet(self.connections[name])
        return self.connections[name]

    def load_extension(self, name):
        if name == "fdl":
            self.connections[""].execute("LOAD '{}'".format(str(self.extension).replace("'", "''")))
            return
        loaded = self.connections[""].execute(
            "SELECT count(*) FROM duckdb_extensions() WHERE extension_name = ? AND loaded", [name]).fetchone()[0]
        if not loaded:
            file = layout.EXTENSIONS / f"v{self.version}" / layout.platform() / f"{name}.duckdb_extension"
            if not file.exists():
                raise SkipFile(f"DuckDB {self.version} has no extension {name} here")
            self.connections[""].execute(f"LOAD {name}")

    # Commands

    def run(self, commands):
        for command in commands:
            if self.mismatches >= MAX_MISMATCHES:
                raise Halt
            if command.name == "mode":
                self.skipping = self.replace(command.arguments[0]) == "skip"
            elif not self.skipping and all(self.holds(command, *condition) for condition in command.conditions):
                try:
                    COMMANDS[command.name](self, command)
                except self.duckdb.Error as error:
                    raise Stopped(f"line {command.line}: {command.name} {' '.join(command.arguments)}: {error}") from error

    def holds(self, command, which, condition):
        match = re.fullmatch(r"(\w+)\s*(?:(=|!=|<=|>=|<|>)\s*(\S+))?", condition)
        if not match:
            raise BadTest(command.line, f"cannot read the condition {condition!r}")
        name, sign, value = match.groups()
        if sign is None:
            true = name == "duckdb"
        else:
            known = {**self.variables, "duckdb_version": self.version}
            if name not in known:
                raise BadTest(command.line, f"nothing is called {name!r} in the condition {condition!r}")
            order = self.order(known[name]), self.order(value)
            true = {"=": order[0] == order[1], "!=": order[0] != order[1], "<": order[0] < order[1], ">": order[0] > order[1],
                    "<=": order[0] <= order[1], ">=": order[0] >= order[1]}[sign]
        return true == (which == "onlyif")

    @staticmethod
    def order(value):
        """Numbers and versions by number, all else as text."""
        numeric = re.fullmatch(r"v?(\d+(?:\.\d+)*)", value)
        return ([int(part) for part in numeric.group(1).split(".")], "") if numeric else ([], value)

    def replace(self, text):
        for name, value in self.variables.items():
            text = text.replace("${" + name + "}", value)
        for name in ("__TEST_DIR__", "${TEST_DIR}", "{TEST_DIR}"):
            text = text.replace(name, str(self.folder))
        return text.replace("__WORKING_DIRECTORY__", str(layout.ROOT))

    def loop(self, command):
        name, values = command.arguments[0], [self.replace(word) for word in command.arguments[1:]]
        if command.name == "loop":
            values = [str(number) for number in range(int(values[0]), int(values[1]))]
        for value in values:
            self.variables[name] = value
            self.run(command.body)
        self.variables.pop(name, None)

    def require(self, command):
        name = command.arguments[0]
        if name not in MACHINE and name not in self.required:
            self.load_extension(name)
            self.required.append(name)

    def load(self, command):
        words = [self.replace(word) for word in command.arguments]
        readonly = "readonly" in words
        self.open(next((word for word in words if word != "readonly"), ":memory:"), readonly)

    def restart(self, _command):
        self.open(self.database, self.readonly)

    def reconnect(self, _command):
        old = self.connections[""]
        self.connections[""] = old.cursor()
        self.quiet(self.connections[""])
        old.close()

    def sleep(self, command):
        unit = command.arguments[1].rstrip("s") if len(command.arguments) > 1 else "second"
        time.sleep(float(command.arguments[0]) * {"second": 1, "millisecond": 1e-3}[unit])

    def halt(self, _command):
        raise Halt

    def ignore(self, _command):
        """A setting of DuckDB's own runner without a meaning here."""

    def statement(self, command):
        self.begin(command)
        kind, connection = command.arguments[0], (command.arguments[1:] or [""])[0]
        expected = self.replace("\n".join(command.expected or []))
        try:
            self.fetch(self.connection(connection), self.replace(command.sql))  # to the last row: an error may come late
        except self.duckdb.Error as error:
            if kind == "ok":
                self.mismatch(command, "no error", str(error))
            elif expected and not error_matches(expected, str(error)):
                self.mismatch(command, "an error with: " + expected, str(error))
        else:
            if kind == "error":
                self.mismatch(command, "an error with: " + expected, "no error")

    def query(self, command):
        self.begin(command)
        types, (sort, connection, label) = command.arguments[0], query_arguments(command)
        try:
            columns, rows = self.fetch(self.connection(connection), self.replace(command.sql))
        except self.duckdb.Error as error:
            return self.mismatch(command, "rows", str(error))
        if len(columns) != len(types):
            return self.mismatch(command, f"{len(types)} columns", f"{len(columns)} columns\n" + show(rows))
        if sort == "rowsort":
            rows.sort()
        elif sort == "valuesort":
            columns, rows = ["VARCHAR"], sorted([value] for row in rows for value in row)
        if label is not None and self.labels.setdefault(label, rows) != rows:
            self.mismatch(command, f"the same rows as the other query labelled {label}:\n" + show(self.labels[label]), show(rows))
        if command.expected is not None:
            lines = [self.replace(line) for line in command.expected]
            if not rows_match(columns, rows, lines):
                self.mismatch(command, "\n".join(lines), show(rows))

    def begin(self, command):
        self.statements += 1
        self.note(line=command.line)

    @staticmethod
    def fetch(connection, sql):
        """The types and the rows as text, cast by DuckDB itself; a statement with effects runs once."""
        relation = connection.sql(sql)
        if relation is None or not relation.columns:
            return [], []
        rows = relation.select("CAST(COLUMNS(*) AS VARCHAR)").fetchall()
        return [str(kind) for kind in relation.types], [[text(value) for value in row] for row in rows]

    def mismatch(self, command, expected, got):
        self.mismatches += 1
        where = f"{os.path.relpath(self.path, layout.ROOT)}:{command.line}"
        loops = "".join(f" {name}={value}" for name, value in self.variables.items())
        print(f"{where}: mismatch in DuckDB {self.version}{loops}")
        for title, body in (("SQL", self.replace(command.sql)), ("expected", expected), ("got", got)):
            print(f"  {title}:\n" + "\n".join("    " + line for line in body.splitlines()))


COMMANDS = {
    "statement": Runner.statement, "query": Runner.query, "loop": Runner.loop, "foreach": Runner.loop, "require": Runner.require,
    "load": Runner.load, "restart": Runner.restart, "reconnect": Runner.reconnect, "sleep": Runner.sleep, "halt": Runner.halt,
    "hash-threshold": Runner.ignore, "tags": Runner.ignore,
}


# ---------------------------------------------------------------- the two processes

def child(path, folder, extension, result):
    """Runs one file; writes how it went to `result`, and before each statement where it is, for the case of a crash."""
    def note(**what):
        result.write_text(json.dumps(what))

    try:
        runner = Runner(path, folder, extension, note)
        try:
            runner.run(parse(path.read_text(encoding="utf-8")))
        except Halt:
            pass
        runner.close()
        if runner.mismatches:
            note(status="failed", reason=f"{runner.mismatches} mismatches")
        elif not runner.statements:
            note(status="failed", reason="the file has no statements")
        else:
            note(status="passed", reason=f"{runner.statements} statements")
    except SkipFile as skip:
        # The main version has every extension; there a missing one is a broken set-up.
        note(status="failed" if runner.version == layout.MAIN else "skipped", reason=str(skip))
    except BadTest as bad:
        note(status="failed", reason=f"line {bad.args[0]}: {bad.args[1]}")
    except Stopped as stopped:
        note(status="failed", reason=str(stopped))


def run_file(path, version, extension, timeout):
    """Runs one file in a child process: (status, reason, output)."""
    folder = Path(tempfile.mkdtemp(prefix="fdl-sql-")).resolve()
    result, work = folder / "result.json", folder / "work"
    (folder / "home").mkdir()
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "XDG_", "PYTHON"))}
    environment.update(HOME=str(folder / "home"), FDL_AUTHOR="Test <test@example.org>", PYTHONDONTWRITEBYTECODE="1")
    if layout.python_package(version):
        environment["PYTHONPATH"] = str(layout.python_package(version))
    command = [layout.VENV_PYTHON, __file__, "--child", str(work), str(result), str(extension), str(path)]
    try:
        done = subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)
        output, ended = done.stdout, ending(done.returncode)
    except subprocess.TimeoutExpired as expired:
        output, ended = (expired.stdout or b"").decode(errors="replace"), f"took more than {timeout} seconds"
    try:
        said = json.loads(result.read_text())
    except (OSError, ValueError):
        said = {}
    shutil.rmtree(folder, ignore_errors=True)
    if "status" in said and ended is None:
        return said["status"], said["reason"], output
    after = f" after line {said['line']}" if "line" in said else ""
    return "failed", f"the process {ended or 'ended early'}{after}", output


def ending(code):
    """How a process ended, when not well."""
    if code == 0:
        return None
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="the files (default: all of test/sql that name this DuckDB)")
    parser.add_argument("--duckdb", choices=list(layout.SUPPORTED), default=layout.MAIN, help="the DuckDB version")
    parser.add_argument("--extension", type=Path, default=layout.extension(), help="the extension that `require fdl` loads")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files at the same time")
    arguments = parser.parse_args()
    for needed, how in ((layout.VENV_PYTHON, "make setup"), (arguments.extension, "make")):
        if not needed.exists():
            sys.exit(f"sqllogictest: {needed} is not there; run `{how}` first.")
    files = [path.resolve() for path in arguments.files] or [
        path for path in sorted(TESTS.rglob("*.test")) if arguments.duckdb in versions_of(path.read_text(encoding="utf-8"), layout.MAIN)]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = pool.map(lambda path: run_file(path, arguments.duckdb, arguments.extension.resolve(), arguments.timeout), files)
        for path, (status, reason, output) in zip(files, runs):
            counts[status] += 1
            print(f"{status:7} {os.path.relpath(path, layout.ROOT)}: {reason}", flush=True)
            if output.strip():
                print(output.rstrip(), flush=True)
    if not files:
        print(f"No file under {os.path.relpath(TESTS, layout.ROOT)} is for DuckDB {arguments.duckdb}.")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] or not files else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        work_, result_, extension_, path_ = map(Path, sys.argv[2:6])
        child(path_, work_, extension_, result_)
    else:
        main()
