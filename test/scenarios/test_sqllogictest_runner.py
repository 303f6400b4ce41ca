"""The runner of test/sql itself: what is right passes, and everything that is wrong fails and says where."""

import re
import subprocess
import sys

import pytest

import layout

RUNNER = layout.ROOT / "scripts" / "sqllogictest.py"


@pytest.fixture
def run(tmp_path):
    """Runs one test file's text: (exit code, output)."""
    def runner(text, *arguments):
        file = tmp_path / "one.test"
        file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, str(RUNNER), str(file), *arguments], capture_output=True, text=True, timeout=100)
        return done.returncode, done.stdout + done.stderr
    return runner


PASSES = {
    "rows apart by tabs": "query IT\nSELECT 1, 'a b'\n----\n1\ta b\n",
    "a value a line": "query II\nFROM (VALUES (1, 2), (3, 4))\n----\n1\n2\n3\n4\n",
    "no rows": "query I\nSELECT 1 WHERE false\n----\n",
    "NULL and empty": "query TTT\nSELECT NULL, '', 'NULLs'\n----\nNULL\t(empty)\tNULLs\n",
    "types as DuckDB writes them": "query TTTT\nSELECT {'a': [1.50::DECIMAL(9,2)]}, TIMESTAMPTZ '2020-01-01 00:00:00+00' IS NOT NULL, 1e20::DOUBLE, DATE '2020-01-02'\n"
                                   "----\n{'a': [1.50]}\ttrue\t1e+20\t2020-01-02\n",
    "booleans as numbers": "query II\nSELECT true, false\n----\n1\t0\n",
    "numbers by value": "query RRI\nSELECT 0.1::DOUBLE + 0.2, 1.50::DECIMAL(9,2), 7\n----\n0.3\t1.5\t7\n",
    "rowsort": "query IT rowsort\nFROM (VALUES (2, 'b'), (1, 'a'))\n----\n1\ta\n2\tb\n",
    "valuesort": "query II valuesort\nFROM (VALUES (3, 1), (2, 4))\n----\n1\n2\n3\n4\n",
    "pattern": "query TT\nSELECT 'abc-123', 'x'\n----\n<REGEX>:abc-\\d+\t<!REGEX>:y\n",
    "newline in a value": "query T\nSELECT 'a' || chr(10) || 'b'\n----\na\\nb\n",
    "label": "query I nosort same\nSELECT 1\n\nquery I nosort same\nSELECT 2 - 1\n",
    "SQL on several lines": "query I\nSELECT\n  -- a comment\n  1\n----\n1\n",
    "call and pragma": "query T\nPRAGMA platform\n----\n<REGEX>:\\w+\n\nquery TTT\nCALL pragma_version()\n----\n<REGEX>:v.*\t<REGEX>:.*\t<REGEX>:.*\n",
    "a call runs once": "statement ok\nCREATE SEQUENCE s\n\nquery I\nSELECT nextval('s')\n----\n1\n\nquery I\nSELECT nextval('s')\n----\n2\n",
    "expected error": "statement error\nSELECT nope\n----\nnot found\n",
    "error by pattern": "statement error\nSELECT nope\n----\n<REGEX>:.*Binder Error.*nope.*\n",
    "statement maybe": "statement maybe\nSELECT nope\n----\nnot found\n",
    "loops": "statement ok\nCREATE TABLE t(i INT)\n\nloop i 0 3\n\nforeach x 10 20\n\nstatement ok\nINSERT INTO t VALUES (${i} + ${x})\n\nendloop\n\nendloop\n\n"
             "query II\nSELECT count(*), sum(i) FROM t\n----\n6\t96\n",
    "conditions": "loop i 0 3\n\nonlyif i=1\nquery I\nSELECT ${i}\n----\n1\n\nskipif i<2\nquery I\nSELECT ${i}\n----\n2\n\nendloop\n\n"
                  "skipif duckdb\nstatement ok\nnonsense\n\nonlyif duckdb_version>=9.0\nstatement ok\nnonsense\n",
    "mode skip": "mode skip\n\nstatement ok\nnonsense\n\nmode unskip\n\nstatement ok\nSELECT 1\n",
    "halt": "statement ok\nSELECT 1\n\nhalt\n\nstatement ok\nnonsense\n",
    "restart keeps a file": "load __TEST_DIR__/a.db\n\nstatement ok\nCREATE TABLE t AS SELECT 5 AS i\n\nrestart\n\nquery I\nFROM t\n----\n5\n\n"
                            "load {TEST_DIR}/a.db readonly\n\nstatement error\nDROP TABLE t\n----\nread-only\n",
    "load forgets memory": "statement ok\nCREATE TABLE t(i INT)\n\nload\n\nstatement error\nFROM t\n----\ndoes not exist\n",
    "connections": "statement ok con1\nBEGIN\n\nstatement ok con1\nCREATE TABLE t(i INT)\n\nstatement error con2\nFROM t\n----\ndoes not exist\n\n"
                   "statement ok con1\nCOMMIT\n\nquery I con2\nSELECT count(*) FROM t\n----\n0\n",
    "extensions": "require ducklake\n\nrequire sqlite_scanner\n\nrequire json\n\nrequire fdl\n\nquery I\nSELECT count(*) FROM fdl_version()\n----\n1\n",
}

FAILS = {
    "wrong value": ("query I\nSELECT 1\n----\n2\n", "one.test:1: mismatch"),
    "wrong value in the second row": ("query II\nFROM (VALUES (1, 2), (3, 4))\n----\n1\t2\n3\t5\n", "mismatch"),
    "a row too many": ("query I\nSELECT 1\n----\n1\n1\n", "mismatch"),
    "a row too few": ("query I\nFROM range(2)\n----\n0\n", "mismatch"),
    "rows where none are expected": ("query I\nSELECT 1\n----\n", "mismatch"),
    "wrong order": ("query I\nFROM (VALUES (2), (1))\n----\n1\n2\n", "mismatch"),
    "wrong number of columns": ("query II\nSELECT 1\n----\n1\n", "2 columns"),
    "NULL is not the empty text": ("query T\nSELECT NULL\n----\n(empty)\n", "mismatch"),
    "pattern must match all": ("query T\nSELECT 'abc'\n----\n<REGEX>:b\n", "mismatch"),
    "nearly the same number": ("query R\nSELECT 0.1234::DOUBLE\n----\n0.1235\n", "mismatch"),
    "missing error": ("statement error\nSELECT 1\n----\nanything\n", "no error"),
    "another error": ("statement error\nSELECT nope\n----\nsomething else\n", "an error with: something else"),
    "unexpected error": ("statement ok\nSELECT nope\n", "not found"),
    "an error at the last row": ("statement ok\nSELECT CASE WHEN range = 99999 THEN error('late') END FROM range(100000)\n", "late"),
    "error in a query": ("query I\nSELECT nope\n----\n1\n", "not found"),
    "other rows under a label": ("query I nosort same\nSELECT 1\n\nquery I nosort same\nSELECT 2\n", "labelled same"),
    "second statement": ("statement ok\nSELECT 1\n\nstatement ok\nnonsense\n", "one.test:4: mismatch"),
    "inside a loop": ("loop i 0 3\n\nquery I\nSELECT ${i}\n----\n0\n\nendloop\n", "i=1"),
    "no statements": ("# name: nothing\n", "no statements"),
    "only skipped statements": ("mode skip\n\nstatement ok\nSELECT 1\n", "no statements"),
    "statement error without a message": ("statement error\nSELECT nope\n", "needs ----"),
    "query without rows": ("query I rowsort\nSELECT 1\n", "needs ----"),
    "unknown directive": ("statment ok\nSELECT 1\n", "unknown directive"),
    "unknown condition": ("onlyif mood=good\nstatement ok\nSELECT 1\n", "mood"),
    "loop without end": ("loop i 0 2\n\nstatement ok\nSELECT 1\n", "without endloop"),
    "missing extension in the main version": ("require no_such_thing\n\nstatement ok\nSELECT 1\n", "no extension no_such_thing"),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(run, name):
    code, output = run(PASSES[name])
    assert code == 0, output
    assert output.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("name", FAILS)
def test_fails(run, name):
    text, says = FAILS[name]
    code, output = run(text)
    assert code == 1 and says in output, output
    assert output.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_mismatch_says_where_what_and_why(run):
    _, output = run("statement ok\nSELECT 1\n\nquery IT\nSELECT 1,\n  'b'\n----\n1\ta\n")
    shown = re.sub(r"\s+", " ", output)
    assert "one.test:4: mismatch" in shown and "SQL: SELECT 1, 'b' expected: 1 a got: 1 b" in shown


def test_a_missing_extension_skips_the_file_in_another_version(run):
    code, output = run("require ducklake\n\nstatement ok\nSELECT 1\n", "--duckdb", "2.0.1")
    assert code == 0 and "no extension ducklake" in output, output
    assert output.splitlines()[-1] == "0 passed, 0 failed, 1 skipped"


def test_runs_in_the_version_asked_for(run, any_version):
    code, output = run(f"query T\nSELECT version()\n----\nv{any_version}\n", "--duckdb", any_version)
    assert code == 0, output


def test_a_hang_is_a_failure(run):
    code, output = run("statement ok\nSELECT 1\n\nsleep 60 seconds\n", "--timeout", "3")
    assert code == 1 and "took more than 3.0 seconds after line 1" in output, output
