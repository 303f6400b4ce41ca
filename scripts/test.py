#!/usr/bin/env python3
"""Runs the tests, all of them or some kinds, and adds them up in the last line: `N passed, N failed, N skipped`.

    scripts/test.py [rust] [sql] [scenarios]

`make test` builds and fetches what this needs, then calls it. A kind that ends badly or runs no test counts as one failure.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time

import layout

RUST = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
PYTEST = re.compile(r"^(?:=+ )?(?:\d+ \w+(?:, )?)+ in [\d.]+s")
KINDS = ["rust", "sql", "scenarios"]
SKIPPED = ("skipped", "xfailed", "deselected")


def rust(line):
    """cargo test says this once for each test binary."""
    match = RUST.match(line)
    return tuple(map(int, match.groups())) if match else None


def plain(line):
    match = PLAIN.match(line)
    return tuple(map(int, match.groups())) if match else None


def pytest(line):
    """`= 1 failed, 12 passed, 1 skipped in 3.2s =`"""
    if not PYTEST.match(line):
        return None
    counts = {word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) (\w+)", line.split(" in ")[0])}
    return counts.get("passed", 0) + counts.get("xpassed", 0), counts.get("failed", 0) + counts.get("error", 0), \
        sum(counts.get(word, 0) for word in SKIPPED)


def stages(kinds):
    """(title, command, how its summary lines are read, minutes it may take)."""
    python = str(layout.VENV_PYTHON)
    if "rust" in kinds:
        yield "Rust unit and integration tests", ["cargo", "test", "--locked"], rust, 25
    if "sql" in kinds:
        for version in layout.SUPPORTED:
            yield f"test/sql in DuckDB {version}", [sys.executable, "scripts/sqllogictest.py", "--duckdb", version], plain, 15
    if "scenarios" in kinds:
        yield "test/scenarios", [python, "-m", "pytest", "-c", "test/pytest.ini", "test/scenarios"], pytest, 50


def environment():
    """What the Rust tests are told: where the S3 server is, when it has been fetched. They say so when they run without it."""
    moto = layout.VENV / "bin" / "moto_server"
    return {**os.environ, **({"FDL_TEST_MOTO": str(moto)} if moto.exists() else {})}


def run(command, read, minutes):
    """Runs one kind with its output shown as it comes: (passed, failed, skipped)."""
    process = subprocess.Popen(command, cwd=layout.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", bufsize=1, env=environment())
    late = threading.Event()

    def stop():
        late.set()
        process.kill()

    timer = threading.Timer(minutes * 60, stop)
    timer.start()
    totals = [0, 0, 0]
    try:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            counts = read(line.rstrip("\n"))
            if counts:
                totals = [total + count for total, count in zip(totals, counts)]
        process.wait()
    finally:
        timer.cancel()
    if late.is_set():
        print(f"Stopped after {minutes} minutes.")
    if process.returncode != 0 and not totals[1]:
        print(f"It ended with {process.returncode} and without a failed test.")
        totals[1] += 1
    elif not sum(totals):
        print("It ran no test.")
        totals[1] += 1
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    kinds = parser.parse_args().kinds or KINDS
    if set(kinds) - set(KINDS):
        parser.error(f"there are the kinds {', '.join(KINDS)}")
    done = []
    for title, command, read, minutes in stages(kinds):
        print(f"\n--- {title}", flush=True)
        start = time.monotonic()
        totals = run(command, read, minutes)
        done.append((title, totals, time.monotonic() - start))
    print()
    for title, totals, seconds in done:
        print(f"{title}: {totals[0]} passed, {totals[1]} failed, {totals[2]} skipped ({seconds:.0f} s)")
    passed, failed, skipped = (sum(totals[at] for _, totals, _ in done) for at in range(3))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
