"""What the end-to-end stories share: a session that calls fdl, the comparison of lakes, and steps that processes wait for.

The tests use it, and so does the code that they run in child processes (`from story import *`).
"""

import json
import time
from pathlib import Path

import session as plain
from session import quoted


class Session:
    """A DuckDB session with fdl. `s(sql)` gives the rows, `s.one` the only row, `s.value` its only value."""

    def __init__(self, connection=None):
        self.connection = connection or plain.connect()

    def __call__(self, sql):
        return plain.rows(self.connection, sql)

    def one(self, sql):
        (row,) = self(sql)
        return row

    def value(self, sql):
        (value,) = self.one(sql).values()
        return value

    def column(self, sql):
        return [row[0] for row in self.connection.execute(sql).fetchall()]

    def fdl(self, function, where, **named):
        """The only row of a command, such as `s.fdl("checkout", location, alias="lake")`."""
        return self.one(call(function, where, **named))

    def table(self, function, where, **named):
        """All rows of a command."""
        return self(call(function, where, **named))

    def refused(self, sql, code):
        """Runs what must be refused with this code, and gives the message."""
        try:
            self(sql)
        except Exception as error:  # whatever class DuckDB makes of it
            message = str(error)
            assert f"[{code}]" in message, message
            assert " Hint: " in message, message
            return message
        raise AssertionError(f"not refused: {sql}")

    def checkout(self, repository, **named):
        return self.fdl("checkout", repository, **{"alias": "lake", **named})

    def publish(self, message="more", lake="lake", **named):
        """Commits and pushes; gives the row of the push."""
        pushed = self.fdl("push", lake, message=message, **named)
        assert pushed["outcome"] == "pushed", pushed
        return pushed

    def close(self):
        self.connection.close()


def call(function, where, **named):
    """The statement that calls a command."""
    values = {True: "true", False: "false"}
    named = {name: values[value] if isinstance(value, bool) else value if isinstance(value, int) else quoted(value)
             for name, value in named.items() if value is not None}
    return f"FROM fdl_{function}({', '.join([quoted(where), *(f'{name} := {value}' for name, value in named.items())])})"


def name(*parts):
    """A qualified and quoted name."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def signal(step):
    """Tells the processes that wait for the step to go on."""
    Path(step).touch()


def wait_for(step, seconds=60):
    """Waits until another process has come to the step."""
    end = time.monotonic() + seconds
    while not Path(step).exists():
        assert time.monotonic() < end, f"nobody came to {step}"
        time.sleep(0.005)


def say(value):
    """What a child process answers with."""
    print(json.dumps(value, default=str), flush=True)


def same_rows(session, left, right):
    """None, or how the rows of two relations (names or queries in brackets) differ: as multisets, by value and as text."""
    for columns in ("*", "COLUMNS(*)::VARCHAR"):
        for one, other in ((left, right), (right, left)):
            rows = session(f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other} LIMIT 3")
            if rows:
                return f"only in {one}: {rows}"
    return None


DEFINITIONS = {
    "schemas": "SELECT schema_name, comment FROM duckdb_schemas() WHERE database_name = {} AND NOT internal ORDER BY ALL",
    "tables": "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = {} ORDER BY ALL",
    "columns": "SELECT schema_name, table_name, column_index, column_name, data_type, is_nullable, column_default, comment "
               "FROM duckdb_columns() WHERE database_name = {} ORDER BY ALL",
    "views": "SELECT schema_name, view_name, comment FROM duckdb_views() WHERE database_name = {} AND NOT internal ORDER BY ALL",
    "macros": "SELECT schema_name, function_name, parameters, macro_definition FROM duckdb_functions() "
              "WHERE database_name = {} AND function_type LIKE '%macro' AND NOT internal ORDER BY ALL",
}


def differences(session, left, right):
    """Everything in which two attached lakes differ, tables and views read to the last row; [] when nothing."""
    found = []
    for what, sql in DEFINITIONS.items():
        one, other = (session.connection.execute(sql.format(quoted(lake))).fetchall() for lake in (left, right))
        if repr(one) != repr(other):
            found.append(f"{what} of {left}: {one}; of {right}: {other}")
    relations = session(f"SELECT schema_name AS s, table_name AS t FROM duckdb_tables() WHERE database_name = {quoted(left)} UNION "
                        f"SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = {quoted(left)} AND NOT internal")
    for relation in relations:
        one, other = (name(lake, relation["s"], relation["t"]) for lake in (left, right))
        try:
            described = [repr(session(f"DESCRIBE {relation}")) for relation in (one, other)]
            problem = f"{described}" if described[0] != described[1] else same_rows(session, one, other)
        except Exception as error:  # a table that cannot be read is a difference
            problem = str(error)
        if problem:
            found.append(f"{one}: {problem}")
    return found


def holding(session, lake):
    """All that a lake holds, comparable between DuckDB versions: schemas, comments, columns, and every row of every relation."""
    definitions = {what: DEFINITIONS[what] for what in ("schemas", "tables", "views")}
    # Each release writes types and defaults in its own way, and tells of the columns of views when it likes.
    definitions["columns"] = "SELECT schema_name, table_name, column_index, column_name, replace(data_type, '\"', ''), c.comment " \
                             "FROM duckdb_columns() c JOIN duckdb_tables() t USING (database_name, schema_name, table_name) " \
                             "WHERE database_name = {} ORDER BY ALL"
    held = {what: [repr(row) for row in session.connection.execute(sql.format(quoted(lake))).fetchall()]
            for what, sql in definitions.items()}
    relations = session(f"SELECT schema_name AS s, table_name AS t FROM duckdb_tables() WHERE database_name = {quoted(lake)} UNION "
                        f"SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = {quoted(lake)} AND NOT internal")
    for relation in relations:
        rows = session.connection.execute(f"FROM {name(lake, relation['s'], relation['t'])}").fetchall()
        held[f"{relation['s']}.{relation['t']}"] = sorted(map(repr, rows))
    return held


def published_differs(repository, setup, working_sql, ref=None):
    """For a child process: how the published version differs from the working catalog that `working_sql` attaches as `lake`."""
    reader = Session()
    reader("LOAD ducklake")
    reader("LOAD sqlite_scanner")
    reader(setup)
    reader(working_sql)
    reader.fdl("attach", repository, alias="published", ref=ref)
    return differences(reader, "lake", "published")
