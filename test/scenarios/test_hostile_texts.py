"""No value of a repository becomes SQL: hostile text in each place where a text can stand, and the statements that DuckDB logged."""

import json
import re
import shutil
from pathlib import Path

import pytest

import hostile
import session
from session import quoted, rows

HOSTILE = """x'"; COPY (SELECT 42 AS a) TO 'PWNED.CSV'; --"""
# What is between quotes, and what differs from call to call: names of databases that fdl attaches, numbers.
VALUES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\b\d+\b")

MADE = """
CREATE SCHEMA lake.s;
CREATE TABLE lake.t (a INTEGER NOT NULL, b VARCHAR DEFAULT 'x', c DECIMAL(18,3), d STRUCT(e INTEGER, f VARCHAR[]), g DOUBLE, h TIMESTAMP DEFAULT now());
CREATE TABLE lake.s.u (day DATE, n BIGINT);
ALTER TABLE lake.s.u SET PARTITIONED BY (year(day));
COMMENT ON TABLE lake.t IS 'a comment'; COMMENT ON COLUMN lake.t.a IS 'another';
CREATE VIEW lake.v AS SELECT a FROM lake.t; CREATE MACRO lake.m(x, y := 2) AS x + y;
INSERT INTO lake.t VALUES (1, 'one', 1.5, {'e': 1, 'f': ['p']}, 0.5, now());
INSERT INTO lake.s.u VALUES (DATE '2026-01-01', 1), (DATE '2025-01-01', 2);
DELETE FROM lake.s.u WHERE n = 2;
CALL lake.set_option('parquet_compression', 'zstd', table_name => 't');
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory, built):
    """A version with something of everything, and the places of a text in its catalog."""
    folder = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDL_AUTHOR", "Test <test@example.org>")
        patch.setenv("HOME", str(folder))
        patch.chdir(folder)
        with session.connect() as connection:
            for statement in ("CALL fdl_init('repo')", "CALL fdl_checkout('repo', alias := 'lake')", MADE, "CALL fdl_push('lake', message := 'one')",
                              "INSERT INTO lake.t (a) VALUES (2)", "CALL fdl_push('lake', message := 'two')"):
                connection.execute(statement)
            catalog = hostile.records(folder / "repo")[-1].with_name("ducklake.duckdb")
            connection.execute(f"ATTACH {quoted(catalog)} AS c (READ_ONLY)")
            texts = connection.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'c' AND data_type = 'VARCHAR' ORDER BY ALL").fetchall()
            filled = [(table, column) for table, column in texts if connection.execute(f"SELECT count({column}) FROM c.{table}").fetchone()[0]]
    return folder / "repo", filled


def logged(connection):
    """The statements that ran since the last look, without what stands in quotes."""
    found = connection.execute("SELECT message FROM duckdb_logs WHERE type = 'QueryLog'").fetchall()
    connection.execute("CALL truncate_duckdb_logs()")
    # How many columns a table has, and of which types, is no text.
    return {re.sub(r"(?:signbit\(\?\)|\?(?:::VARCHAR)?)(?:, (?:signbit\(\?\)|\?(?:::VARCHAR)?))*", "?", VALUES.sub("?", message)) for (message,) in found}


CALLS = ["fdl_attach('bad', alias := 'x')", "fdl_diff('bad', from_ref := 'main~1', to_ref := 'main')", "fdl_tables('bad')", "fdl_files('bad')",
         "fdl_log('bad')", "fdl_refs('bad')", "fdl_fsck('bad', depth := 'files')", "fdl_checkout('bad', alias := 'lake', force := true)", "fdl_status('lake')",
         "fdl_push('lake', message := 'three')"]


def run(connection):
    """Every call, and a change between the checkout and the push. Gives the statements that DuckDB ran and the errors."""
    connection.execute("CALL enable_logging('QueryLog')")
    statements, errors = set(), []
    for call in CALLS:
        if "push" in call:
            try:
                connection.execute("INSERT INTO lake.s.u VALUES (DATE '2024-01-01', 3)")
            except session.duckdb.Error:
                pass
        logged(connection)
        try:
            connection.execute(f"CALL {call}").fetchall()
        except session.duckdb.Error as error:
            errors.append((call, str(error)))
        statements |= logged(connection)
    connection.execute("CALL disable_logging()")
    return statements, errors


@pytest.fixture(scope="module")
def clean(template, tmp_path_factory):
    """What runs where nobody is hostile."""
    folder = tmp_path_factory.mktemp("clean")
    shutil.copytree(template[0], folder / "bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("FDL_AUTHOR", "Test <test@example.org>")
        patch.chdir(folder)
        with session.connect() as connection:
            statements, errors = run(connection)
    assert not errors, errors
    return statements


def same_statements(connection, clean):
    statements, errors = run(connection)
    for call, error in errors:
        assert "[FDL-" in error or "lake" in error, f"{call}: {error}"
    # DuckLake looks for deletions inside the working catalog by the number of a table; there are tables 1 to 3.
    more = {statement for statement in statements - clean - {"ROLLBACK"} if not re.fullmatch(r"SELECT NULL FROM \?\.\?\.ducklake_inlined_delete_\d LIMIT \?", statement)}
    assert not more, more
    assert not [path for path in Path(".").rglob("PWNED*")]
    assert connection.execute("SELECT 42").fetchone() == (42,)


def test_each_text_of_a_catalog(template, clean, bare, connect):
    """One place at a time: a text that is refused must not hide another."""
    source, filled = template
    assert len(filled) > 25
    for table, column in filled:
        for name in ("bad", "lake.sqlite.fdl"):
            shutil.rmtree(name, ignore_errors=True)
        for left in Path(".").glob("lake.sqlite*"):
            left.unlink()
        shutil.copytree(source, "bad")
        hostile.forge("bad", f"UPDATE {table} SET {column} = {quoted(HOSTILE)}")
        connection = connect()
        same_statements(connection, clean)
        connection.close()


def texts_of(value, path=()):
    """Every place of a text in a JSON value."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts_of(inner, (*path, key))


def put(value, path, text):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = text


@pytest.mark.parametrize("name", ["version.json", "dataset.json", "files.json", "refs.json", "fdl.json"])
def test_each_text_of_a_json_file(template, clean, bare, connect, name):
    source, _ = template
    kinds = set()
    whole = json.loads((source / name if name in ("refs.json", "fdl.json") else hostile.records(source)[-1].with_name(name)).read_text())
    for path in texts_of(whole):
        kind = tuple(part for part in path if isinstance(part, str))
        if kind in kinds:
            continue
        kinds.add(kind)
        for left in ("bad", "lake.sqlite.fdl"):
            shutil.rmtree(left, ignore_errors=True)
        for left in Path(".").glob("lake.sqlite*"):
            left.unlink()
        shutil.copytree(source, "bad")
        file = Path("bad", name) if name in ("refs.json", "fdl.json") else hostile.records("bad")[-1].with_name(name)
        value = json.loads(file.read_text())
        put(value, path, HOSTILE)
        file.write_text(json.dumps(value))
        if name in ("dataset.json", "files.json"):
            record = hostile.records("bad")[-1]
            content = json.loads(record.read_text())
            del content[name.replace(".json", "_sha256")]
            record.write_text(json.dumps(content))
        connection = connect()
        same_statements(connection, clean)
        connection.close()


@pytest.mark.parametrize("call", ["fdl_attach({})", "fdl_log({})", "fdl_checkout({})", "fdl_init({})", "fdl_clone('repo', target := {})", "fdl_attach('repo', alias := {})",
                                  "fdl_attach('repo', ref := {})", "fdl_checkout('repo', alias := {})", "fdl_checkout('repo', path := {})", "fdl_tag('repo', name := {})",
                                  "fdl_attach('repo', allowed_signers := {})", "fdl_push('lake', message := {})", "fdl_push('lake', author := {}, message := 'm')",
                                  "fdl_push('lake', tag := {})", "fdl_log('http://127.0.0.1:1/x', token := {})"])
def test_each_argument(template, connect, bare, call):
    """Paths, aliases, authors, messages and tokens come from scripts that took them from somewhere."""
    shutil.copytree(template[0], "repo")
    connection = connect()
    connection.execute("CALL fdl_checkout('repo', alias := 'lake')")
    connection.execute("INSERT INTO lake.s.u VALUES (DATE '2024-01-01', 3)")
    try:
        rows(connection, f"FROM {call.format(quoted(HOSTILE))}")
    except session.duckdb.Error as error:
        assert "[FDL-" in str(error), error
    assert not [path for path in Path(".").rglob("PWNED.CSV")]
    assert connection.execute("SELECT 42").fetchone() == (42,)


def test_a_token_is_in_no_log(place, writer, connect, monkeypatch):
    """DuckDB writes down the statement that makes a secret, when somebody has asked it to write down statements."""
    monkeypatch.delenv("FDL_TOKEN")
    connection = connect()
    connection.execute("SET VARIABLE token = ?", ["hush-a-token"])
    connection.execute("CALL enable_logging('QueryLog')")
    rows(connection, f"FROM fdl_attach({quoted(place.location)}, alias := 'x', token := getvariable('token'))")
    assert connection.execute("SELECT count(*) FROM x.t").fetchone() == (10,)
    assert connection.execute("SELECT count(*) FROM duckdb_secrets() WHERE type = 'http'").fetchone() == (1,)
    told = str(connection.execute("SELECT message FROM duckdb_logs").fetchall())
    assert "CREATE OR REPLACE TEMPORARY SECRET" in told and "hush-a-token" not in told


def test_who_holds_the_connections(repo, connect, monkeypatch):
    """A fifth call waits for a while, and then says for whom."""
    import threading
    import wire

    monkeypatch.setenv("FDL_WAIT", "1")
    opened = threading.Event()

    def meddle(request):
        opened.wait(60)

    with wire.Static(Path("repo").resolve()) as server, wire.Proxy(server.url, meddle=meddle) as slow:
        connection = connect()
        cursors = [connection.cursor() for _ in range(4)]

        def hold(cursor):
            try:
                cursor.execute(f"CALL fdl_attach('{slow.url}', alias := 'x')").fetchall()
            except session.duckdb.Error:
                pass

        threads = [threading.Thread(target=hold, args=(cursor,)) for cursor in cursors]
        for thread in threads:
            thread.start()
        while len(slow.requests) < 4:
            pass
        with pytest.raises(session.duckdb.Error) as caught:
            connection.execute("FROM fdl_attach('repo', alias := 'y')").fetchall()
        opened.set()
        for thread in threads:
            thread.join()
    assert "[FDL-IN-TRANSACTION]" in str(caught.value) and "fdl_attach for" in str(caught.value)
    assert connection.execute("SELECT 42").fetchone() == (42,)
