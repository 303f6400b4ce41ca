#!/usr/bin/env python3
"""How long fdl takes, as a ratio to the bare work: what DuckDB or the file system needs for the same result without fdl.

    make bench                                     after `make` and `make setup`; a few minutes
    build/venv/bin/python benches/measure.py [case ...] [--rounds N] [--files N] [--rows N]

Both sides run by turns in one process, so that a machine that is busy for a while slows both. Each line has the median of either
side, their ratio, and the range of the ratio over the rounds. Times of different machines, or of different days, say nothing.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / folder) for folder in ("scripts", "test/scenarios")]

from session import connect, quoted  # noqa: E402


class Bench:
    """A repository in the working folder: a table `many` of many small files, and a table `rows` of many rows in one."""

    def __init__(self, files, rows):
        self.session = connect()
        run = self.run = self.session.execute
        run("LOAD ducklake; LOAD sqlite_scanner; CALL fdl_init('repo'); CALL fdl_checkout('repo', alias := 'lake')")
        run("CREATE TABLE lake.many (part BIGINT, i BIGINT); ALTER TABLE lake.many SET PARTITIONED BY (part)")
        for start in range(0, files, 100):  # DuckDB keeps so many files open at a time
            run(f"INSERT INTO lake.many SELECT part, part FROM range({start}, {min(start + 100, files)}) t(part)")
        run(f"CREATE TABLE lake.rows AS SELECT range AS i, hash(range) AS h, 'row ' || range AS name FROM range({rows})")
        run("CALL fdl_push('lake', message := 'first')")
        run("UPDATE lake.rows SET name = 'changed' WHERE i % 1000 = 0")
        run("CALL fdl_push('lake', message := 'second')")
        (version,) = self.row("SELECT version FROM fdl_url('repo')")
        self.catalog = f"repo/versions/{version}/ducklake.duckdb"
        self.number = 0

    def row(self, sql):
        return self.run(sql).fetchone()

    def fresh(self, ending=""):
        """A name that is not taken."""
        self.number += 1
        return f"new-{self.number}{ending}"


def attach(bench):
    """a version is attached"""
    def bare():
        bench.run(f"ATTACH {quoted('ducklake:' + bench.catalog)} AS v (READ_ONLY, DATA_PATH 'repo/data/', OVERRIDE_DATA_PATH true); DETACH v")

    def fdl():
        bench.run("CALL fdl_attach('repo', alias := 'v'); DETACH v")
    return bare, fdl, "ATTACH of the frozen catalog"


def checkout(bench):
    """a version is checked out"""
    def bare():
        bench.run(f"ATTACH {quoted(bench.catalog)} AS f (READ_ONLY); ATTACH {quoted(bench.fresh('.sqlite'))} AS s (TYPE sqlite)")
        bench.run("COPY FROM DATABASE f TO s; DETACH s; DETACH f")

    def fdl():
        bench.run(f"CALL fdl_checkout('repo', alias := 'w', path := {quoted(bench.fresh('.sqlite'))}); DETACH w")
    return bare, fdl, "COPY FROM DATABASE into SQLite"


def commit(bench):
    """a changed table is committed"""
    def bare():
        bench.run(f"ATTACH 'lake.sqlite' AS s (TYPE sqlite, READ_ONLY); ATTACH {quoted(bench.fresh('.duckdb'))} AS f")
        bench.run("COPY FROM DATABASE s TO f; DETACH s; DETACH f")

    def fdl():
        bench.run("CALL fdl_commit('lake', message := 'again', force := true)")
    return bare, fdl, "COPY FROM DATABASE out of SQLite"


def publish(bench):
    """rows are inserted and pushed"""
    bench.run(f"ATTACH {quoted('ducklake:sqlite:' + bench.fresh('.sqlite'))} AS plain (DATA_PATH 'plain/', DATA_INLINING_ROW_LIMIT 0)")
    bench.run("CREATE TABLE plain.rows AS FROM lake.rows LIMIT 0")
    insert = "INSERT INTO {}.rows SELECT range, range, 'one more' FROM range(100000)"

    def bare():
        bench.run(insert.format("plain"))

    def fdl():
        bench.run(insert.format("lake"))
        bench.run("CALL fdl_push('lake', message := 'more')")
    return bare, fdl, "the INSERT alone"


def diff(bench):
    """rows of two versions are compared"""
    for alias, ref in (("old", "main~1"), ("new", "main")):
        bench.run(f"CALL fdl_attach('repo', ref := '{ref}', alias := '{alias}')")
    versions = [bench.row(f"SELECT version FROM fdl_attach('repo', ref := '{ref}', alias := '{alias}')")[0]
                for alias, ref in (("old", "main~1"), ("new", "main"))]

    def bare():
        for one, other in (("old", "new"), ("new", "old")):
            bench.run(f"SELECT count(*) FROM (FROM {one}.rows EXCEPT ALL FROM {other}.rows)").fetchall()

    def fdl():
        bench.run(f"FROM fdl_diff('repo', from_ref := '{versions[0]}', to_ref := '{versions[1]}')").fetchall()
    return bare, fdl, "EXCEPT ALL both ways"


def fsck(bench):
    """everything is read through"""
    def bare():
        bench.run("SELECT count(COLUMNS(*)) FROM read_parquet('repo/data/**/*.parquet', union_by_name = true)").fetchall()

    def fdl():
        assert bench.run("FROM fdl_fsck('repo', depth := 'content')").fetchall() == []
    return bare, fdl, "read_parquet of all data files"


def clone(bench):
    """a repository is copied"""
    def bare():
        shutil.copytree("repo", bench.fresh())
        os.sync()

    def fdl():
        bench.run(f"CALL fdl_clone('repo', target := {quoted(bench.fresh())})")
    return bare, fdl, "cp -r and sync"


def clone_by_http(bench):
    """a repository is copied from a host"""
    url = bench.row("SELECT url FROM fdl_serve('repo', address := '127.0.0.1:0')")[0]
    keys = [file.relative_to("repo").as_posix() for file in Path("repo").rglob("*") if file.is_file() and ".fdl-" not in file.name]
    keys = [key for key in keys if "ducklake.duckdb.wal" not in key]

    def bare():
        folder = Path(bench.fresh())
        for key in keys:
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(f"{url}/{urllib.request.pathname2url(key)}") as answer:
                (folder / key).write_bytes(answer.read())

    def fdl():
        bench.run(f"CALL fdl_clone({quoted(url)}, target := {quoted(bench.fresh())})")
    return bare, fdl, "GET of each object by turns"


CASES = [attach, checkout, commit, publish, diff, fsck, clone, clone_by_http]


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(case, bench, rounds):
    bare, fdl, against = case(bench)
    bare(), fdl()  # what is done once only: extensions, caches
    pairs = [(timed(bare), timed(fdl)) for _ in range(rounds)]
    medians = [statistics.median(times) for times in zip(*pairs)]
    ratios = [fdl_time / bare_time for bare_time, fdl_time in pairs]
    print(f"{case.__doc__:38} {medians[1] * 1000:9.1f} ms {medians[0] * 1000:9.1f} ms {medians[1] / medians[0]:7.2f} "
          f"  {min(ratios):.2f} to {max(ratios):.2f}   against {against}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=", ".join(case.__name__ for case in CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    known = {case.__name__: case for case in CASES}
    if unknown := [name for name in arguments.cases if name not in known]:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="fdl-bench-") as folder:
        os.chdir(folder)
        os.environ.update(HOME=folder, FDL_AUTHOR="Bench <bench@example.org>")
        print(f"{arguments.files} data files, {arguments.rows} rows, {arguments.rounds} rounds, {os.cpu_count()} cores")
        print(f"{'what':38} {'fdl':>12} {'bare':>12} {'ratio':>7}   over the rounds")
        for name in arguments.cases or known:
            subprocess.run(["rm", "-rf", *map(str, Path(".").iterdir())], check=True)
            bench = Bench(arguments.files, arguments.rows)
            measure(known[name], bench, arguments.rounds)
            bench.session.close()


if __name__ == "__main__":
    main()
