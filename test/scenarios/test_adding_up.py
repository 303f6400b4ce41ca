"""scripts/test.py: reads the summaries of cargo, the sqllogictest runner and pytest, and lets nothing that went wrong pass."""

import importlib.util
import sys

import pytest

import layout

# Not `import test`: that is Python's own.
SPEC = importlib.util.spec_from_file_location("adding_up", layout.ROOT / "scripts" / "test.py")
adding_up = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(adding_up)


@pytest.mark.parametrize(("read", "line", "counts"), [
    ("rust", "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.01s", (12, 0, 3)),
    ("rust", "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", (1, 2, 0)),
    ("rust", "running 12 tests", None),
    ("plain", "4 passed, 1 failed, 2 skipped", (4, 1, 2)),
    ("plain", "passed  test/sql/a.test: 4 statements", None),
    ("pytest", "============ 1 failed, 103 passed, 2 skipped in 15.14s ============", (103, 1, 2)),
    ("pytest", "========== 3 passed, 1 warning, 2 errors in 0.12s (0:00:00) ==========", (3, 2, 0)),
    ("pytest", "============ no tests ran in 0.00s ============", None),
    ("pytest", "collected 103 items", None),
])
def test_reads(read, line, counts):
    assert getattr(adding_up, read)(line) == counts


@pytest.mark.parametrize(("code", "totals"), [
    ("print('2 passed, 0 failed, 1 skipped')", [2, 0, 1]),
    ("print('2 passed, 1 failed, 0 skipped'); exit(1)", [2, 1, 0]),
    ("print('2 passed, 0 failed, 0 skipped'); exit(1)", [2, 1, 0]),
    ("import os; os.abort()", [0, 1, 0]),
    ("print('hello')", [0, 1, 0]),
    ("print('0 passed, 0 failed, 0 skipped')", [0, 1, 0]),
])
def test_counts_what_went_wrong(code, totals):
    assert adding_up.run([sys.executable, "-c", code], adding_up.plain, 1) == totals


def test_stops_what_hangs():
    assert adding_up.run([sys.executable, "-c", "import time; time.sleep(50)"], adding_up.plain, 0.02) == [0, 1, 0]
