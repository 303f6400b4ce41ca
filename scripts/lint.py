#!/usr/bin/env python3
"""Checks the rules of the architecture that clippy does not know. Prints `file:line: what` and exits with 1 when one is broken.

    scripts/lint.py            the files that git tracks, and those it would
    scripts/lint.py FOLDER     another tree of the same shape (for the tests of this script)

- a layer uses only the layers below it: sql -> {repo, lake, host} -> {store, engine} -> format
- format, store and repo have no DuckDB in them, lake has no stores
- unsafe code only in engine and sql
- statements reach DuckDB through engine alone, which takes typed SQL and no text (src/engine/sql.rs)
- format, repo and lake are given the clock and randomness, format and repo sleeping too; they do not take them
- a source file has at most 500 lines
- no path of somebody's machine and no host of a package registry in any file
- scripts and tests in Python and bash at least parse
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import layout

# What each layer may use of this crate, lib.rs aside.
LAYERS = {
    "format": set(),
    "store": {"format"},
    "engine": {"format"},
    "sign": {"format"},
    "repo": {"store", "format"},
    "lake": {"engine", "sign", "format"},
    "host": {"repo", "store", "format"},
    "sql": {"repo", "lake", "host", "store", "engine", "sign", "format"},
}
# Crates that a layer never mentions.
NO_DUCKDB = ("duckdb", "libduckdb_sys", "duckdb_loadable_macros")
BANNED_CRATES = {"format": NO_DUCKDB + ("object_store", "tokio", "reqwest"), "store": NO_DUCKDB, "repo": NO_DUCKDB, "host": NO_DUCKDB,
                 "sign": NO_DUCKDB + ("object_store", "reqwest"), "lake": ("object_store", "reqwest")}
UNSAFE_LAYERS = ("engine", "sql")
# The functions of DuckDB's C API that take the text of a statement.
STATEMENTS = re.compile(r"\bduckdb_(?:query|query_arrow|prepare|extract_statements)\b")
# What a layer is given and does not take, so that a test can replay it; the files that hold the real ones are exempt.
CLOCK = r"(?:SystemTime|Instant|Utc|Local)::now"
CHANCE = r"Uuid::(?:now_v7|new_v4|now_v1)|thread_rng|rand::(?:rng|random)"
SLEEP = r"thread::sleep|time::sleep"
GIVEN = {"format": (CLOCK, CHANCE, SLEEP), "repo": (CLOCK, CHANCE, SLEEP), "lake": (CLOCK, CHANCE)}
GIVERS = ("src/format/time.rs", "src/format/random.rs")
MAX_LINES = 500
SOURCES = (".rs", ".py", ".sh", ".sql", ".test")
# Names put together from parts, so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.~})-])/(?:home|root|work|Users)/\w")
REGISTRIES = re.compile("|".join((r"pypi\." "org", r"python" "hosted", r"(?:static|index)\.crates" r"\.io", r"registry\.npm" "js",
                                  r"(?:deb|security)\.debian" r"\.org", r"archive\.ubuntu" r"\.com", r"proxy\.golang" r"\.org")))
# cargo writes the registry's name into its lock file, the same on every machine.
NOT_CHECKED_FOR_HOSTS = ("Cargo.lock",)


def blank(match):
    """Keeps the lines of what is taken out."""
    return "\n" * match.group().count("\n")


RUST_NOISE = re.compile(r"""
    //[^\n]*                                  # a comment, doc comments too
  | /\*.*?\*/                                 # a block comment (nested ones are not used here)
  | \bb?r(\#*)".*?"\1                         # a raw string
  | b?"(?:\\.|[^"\\])*"                       # a string
  | b?'(?:\\.[^']*|[^'\\\n])'                 # a character, but not a lifetime
""", re.X | re.S)


def rust_code(text):
    """The code alone: without comments and the contents of strings, lines kept."""
    return RUST_NOISE.sub(blank, text)


def without_tests(code):
    """The code before the unit tests, which by custom are the last thing in a file."""
    found = re.search(r"^#\[cfg\(test\)\]\s*\n(?:#\[[^\n]*\n)*\s*mod\s+\w+\s*\{", code, re.M)
    return code[:found.start()] if found else code


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def top_names(tree):
    """The first names in the braces of `use crate::{a::b, c::{d, e}}`."""
    names, depth, word = [], 0, ""
    for char in tree + ",":
        if char == "," and depth == 0:
            names.append(word.strip().split("::")[0].split(" ")[0].strip())
            word = ""
            continue
        depth += {"{": 1, "}": -1}.get(char, 0)
        word += char
    return [name for name in names if name]


def braces(code, start):
    """What stands between the brace at `start` and its partner."""
    depth = 0
    for at in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return code[start + 1:at]
    return code[start + 1:]


def crate_uses(code, depth):
    """(place, name) of each use of a module at the top of this crate; `depth` is how many `super::` lead there."""
    for match in re.finditer(r"\bcrate::(\{|\w+)|((?:\bsuper::)+)(\{|\w+)", code):
        supers = (match.group(2) or "").count("super::")
        if supers and supers < depth:
            continue
        name = match.group(1) or match.group(3)
        names = top_names(braces(code, match.end() - 1)) if name == "{" else [name]
        for name in names:
            yield match.start(), name


def check_rust(path, text):
    """The rules for one Rust file under src/, `path` being relative to the tree."""
    code = rust_code(text)
    parts = path.parts
    layer = parts[1] if len(parts) > 2 else None
    if parts[0] == "src" and layer is None and path.name != "lib.rs":
        yield 1, f"{path.name} is not in a layer; src/ holds lib.rs and the layers {', '.join(LAYERS)}"
        return
    if parts[0] == "src" and layer is not None and layer not in LAYERS:
        yield 1, f"{layer} is not a layer; if it is to be one, say in scripts/lint.py what it may use"
        return
    if layer not in UNSAFE_LAYERS:
        for match in re.finditer(r"\bunsafe\b", code):
            yield line_of(code, match.start()), f"unsafe code outside {' and '.join(UNSAFE_LAYERS)}"
    if parts[0] != "src" or layer is None:
        return
    if layer != "engine":
        for match in STATEMENTS.finditer(code):
            yield line_of(code, match.start()), f"{layer} calls {match.group()} itself; a statement goes through engine"
    # src/repo/mod.rs is one step below the crate, src/repo/push.rs and src/repo/push/mod.rs are two.
    depth = len(parts) - 1 - (path.name == "mod.rs")
    for place, name in crate_uses(code, depth):
        if name in LAYERS and name != layer and name not in LAYERS[layer]:
            yield line_of(code, place), f"{layer} uses {name}; it may use {', '.join(sorted(LAYERS[layer])) or 'no other layer'}"
    for crate in BANNED_CRATES.get(layer, ()):
        for match in re.finditer(rf"(?<![\w:])(?:::)?{crate}::|\buse\s+{crate}\b|\bextern\s+crate\s+{crate}\b", code):
            yield line_of(code, match.start()), f"{layer} mentions the crate {crate}"
    if layer in GIVEN and path.as_posix() not in GIVERS:
        for match in re.finditer(rf"\b(?:{'|'.join(GIVEN[layer])})\b", without_tests(code)):
            yield line_of(code, match.start()), f"{layer} takes {match.group()} instead of being given it"


def check_text(path, text):
    """The rules for any tracked text file."""
    if path.suffix in SOURCES and text.count("\n") > MAX_LINES:
        yield MAX_LINES + 1, f"{text.count(chr(10))} lines, more than {MAX_LINES}: it holds two things"
    if path.name in NOT_CHECKED_FOR_HOSTS:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield number, f"a path of a machine: {line.strip()[:100]}"
        if REGISTRIES.search(line):
            yield number, f"the host of a package registry: {line.strip()[:100]}"


def check_script(root, path, text):
    """That a script parses."""
    if path.suffix == ".py":
        try:
            ast.parse(text, feature_version=(3, 9))
        except SyntaxError as error:
            yield error.lineno or 1, f"Python does not parse it: {error.msg}"
    elif text.startswith("#!") and "bash" in text.splitlines()[0]:
        done = subprocess.run(["bash", "-n", str(root / path)], capture_output=True, text=True)
        if done.returncode != 0:
            yield 1, f"bash does not parse it: {done.stderr.strip().splitlines()[0]}"


def files(root):
    """What git tracks or would track; without git every file."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, check=True,
                                capture_output=True).stdout.decode()
        found = [Path(name) for name in listed.split("\0") if name]
    else:
        found = [path.relative_to(root) for path in root.rglob("*")]
    return sorted({path for path in found if (root / path).is_file()})


def problems(root):
    for path in files(root):
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        yield from ((path, *found) for found in check_text(path, text))
        yield from ((path, *found) for found in check_script(root, path, text))
        if path.suffix == ".rs":
            yield from ((path, *found) for found in check_rust(path, text))


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else layout.ROOT
    found = list(problems(root))
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    print(f"lint: {len(found)} problems" if found else "lint: the rules of the architecture hold")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
