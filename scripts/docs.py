#!/usr/bin/env python3
"""Runs the examples of README.md, docs/sql.md, docs/hosting.md, docs/maintenance.md and docs/signing.md and compares what they print with what the page says.

    scripts/docs.py            names the examples whose output has changed; exits with 1 when there are any
    scripts/docs.py --write    writes the outputs of a fresh run into the pages

Every ```sql block of a page is run, all in one session of the DuckDB shell in an empty folder, and between them every ```bash
block (a ```sh block is only shown); then every ```python block, in that folder. A ```text block right behind a block is its output. A block without one must only not fail. What differs from run
to run (IDs, times, hashes, sizes, the folder) is levelled out before the comparison, but two places that name the same ID
must still name the same one.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import layout

PAGES = ("README.md", "docs/sql.md", "docs/hosting.md", "docs/maintenance.md", "docs/signing.md")
# What the pages write for this project's folder, and for the folder that the examples run in.
HERE, FOLDER = "/path/to/fdl", "/tmp/fdl-docs"
# What they write for the address of a host, and how its parts stand in names that are made of it.
PORT = re.compile(r"(127[._]0[._]0[._]1[:_])8080\b")
AUTHOR = "Aiko Tanaka <aiko@example.org>"
MARK = "=== end of example"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
ERROR = re.compile(r"^\s*(?:\w+ )+Error:", re.M)
UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
LEVELLED = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00(?::00)?|Z)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b(?:linux|osx)_(?:amd64|arm64)(?:_musl)?\b"), "<platform>"),
    (re.compile(r"^(\s*bytes\w* = )\d+$", re.M), r"\1<bytes>"),
    (re.compile("─+"), "─"),
    (re.compile(" +"), " "),
    (re.compile("^ | $", re.M), ""),
)


class Example:
    """A block of a page that is run, and the place of its output in the page, where the page shows it."""

    def __init__(self, language, code, expected, span):
        self.language, self.code, self.expected, self.span = language, code, expected, span
        self.found = None


def examples(text):
    """The examples of a page, in order."""
    fences = list(FENCE.finditer(text))
    found = []
    for at, fence in enumerate(fences):
        if fence[1] not in ("sql", "bash", "python"):
            continue
        after = fences[at + 1] if at + 1 < len(fences) else None
        shown = after is not None and after[1] == "text" and not text[fence.end():after.start()].strip()
        found.append(Example(fence[1], fence[2], after[2] if shown else None, after.span(2) if shown else None))
    return found


def install_folder(home):
    """A home in which DuckDB finds its own extensions, as if it had fetched them."""
    for file in layout.EXTENSIONS.glob(f"v{layout.MAIN}/*/*.duckdb_extension"):
        link = home / ".duckdb" / "extensions" / file.relative_to(layout.EXTENSIONS)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)


def free_port():
    """A port as long as 8080 that nobody listens on, so that tables keep their shape."""
    for port in range(8100, 10000):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)):
                return port
    raise SystemExit("no port is free")


def statements(example, file):
    """What the DuckDB shell runs for an example. Bash it calls itself, with the code in `file`."""
    if example.language == "sql":
        return example.code
    file.write_text(example.code, encoding="utf-8")
    return f".shell bash -e '{file}' 2>&1 || echo 'Shell Error: it failed'"


def run_all(found):
    """Runs the examples of one page in a fresh folder and fills in what they print."""
    # A name as long as that of FOLDER, so that tables keep their shape.
    folder = Path(tempfile.mkdtemp(prefix="", dir="/tmp")).resolve()
    home = Path(tempfile.mkdtemp(prefix="fdl-docs-home-"))
    try:
        install_folder(home)
        port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "XDG_", "DUCKDB_"))}
        environment = {**kept, "HOME": str(home), "FDL_AUTHOR": AUTHOR, "TZ": "UTC"}

        def run(command, text):
            text = PORT.sub(rf"\g<1>{port}", text.replace(HERE, str(layout.ROOT)))
            done = subprocess.run([str(word) for word in command], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, encoding="utf-8", cwd=folder, env=environment, timeout=300)
            printed = re.sub(rf"(127[._]0[._]0[._]1[:_]){port}\b", r"\g<1>8080", done.stdout)
            return printed.replace(str(folder), FOLDER).replace(str(layout.ROOT), HERE)

        sql = [example for example in found if example.language in ("sql", "bash")]
        script = "".join(f"{statements(example, home / f'example-{at}')}\n.mode duckbox\n.print {MARK}\n" for at, example in enumerate(sql))
        printed = run([layout.shell(), "-unsigned", "-no-init"], script).split(f"{MARK}\n")
        if len(printed) != len(sql) + 1:
            raise SystemExit(f"the shell stopped after {len(printed) - 1} of {len(sql)} examples:\n{printed[-1]}")
        for example, output in zip(sql, printed):
            example.found = output
        for example in found:
            if example.language == "python":
                example.found = run([layout.VENV_PYTHON, "-"], example.code)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


def level_sizes(text):
    """Columns of a drawn table whose name begins with `bytes` hold sizes."""
    lines, sizes = [], []
    header = False
    for line in text.splitlines():
        if line.startswith("┌"):
            header = True
        elif line.startswith("│"):
            cells = line.split("│")
            if header:
                sizes = [at for at, cell in enumerate(cells) if cell.strip().startswith("bytes")]
            header = False
            for at in sizes:
                cells[at] = re.sub(r"\d+", "<bytes>", cells[at]) if not re.search("[a-z]", cells[at]) else cells[at]
            line = "│".join(cells)
        lines.append(line)
    return "\n".join(lines)


def level(texts):
    """The texts without what differs from run to run. An ID becomes its number by first appearance in any of them."""
    numbers = {}
    levelled = []
    for text in texts:
        text = UUID.sub(lambda match: f"<id {numbers.setdefault(match[0], len(numbers) + 1)}>", level_sizes(text))
        for pattern, instead in LEVELLED:
            text = pattern.sub(instead, text)
        levelled.append(text.strip())
    return levelled


def check(page):
    """Runs the examples of a page: (examples, what is wrong with them)."""
    found = examples((layout.ROOT / page).read_text(encoding="utf-8"))
    run_all(found)
    wrong = []
    for example in found:
        if example.expected is None and (ERROR.search(example.found) or "Traceback" in example.found):
            wrong.append(f"{page}: this fails:\n{example.code}\n{example.found}")
    shown = [example for example in found if example.expected is not None]
    pairs = zip(shown, level([example.expected for example in shown]), level([example.found for example in shown]))
    for example, expected, printed in pairs:
        if expected != printed:
            wrong.append(f"{page}: this prints something else than the page says:\n{example.code}\n--- page\n{expected}\n"
                         f"--- found\n{printed}")
    return found, wrong


def write(page, found):
    """Puts the outputs of a run into a page."""
    path = layout.ROOT / page
    text = path.read_text(encoding="utf-8")
    for example in reversed(found):
        if example.span:
            start, end = example.span
            text = text[:start] + example.found.strip("\n") + "\n" + text[end:]
    path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the outputs into the pages")
    arguments = parser.parse_args()
    bad = 0
    for page in PAGES:
        found, wrong = check(page)
        failed = [text for text in wrong if ": this fails:" in text]
        if arguments.write and wrong and not failed:
            write(page, found)
            print(f"{page}: written")
        elif wrong:
            bad += len(wrong)
            print("\n\n".join(wrong))
        else:
            print(f"{page}: {len(found)} examples, all as they say")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
