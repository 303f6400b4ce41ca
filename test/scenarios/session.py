"""A DuckDB session with fdl loaded. Used by conftest.py and, in the child interpreters of other DuckDB versions, by itself."""

import duckdb

import layout


def quoted(value):
    """A SQL string literal."""
    return "'" + str(value).replace("'", "''") + "'"


def connect(database=":memory:", load=True, extensions=None, **config):
    """A connection in this process's DuckDB, as a user would make it; `load=False` leaves fdl out."""
    connection = duckdb.connect(str(database), config={
        "allow_unsigned_extensions": True, "extension_directory": str(extensions or layout.EXTENSIONS), **config})
    if load:
        connection.execute(f"LOAD {quoted(layout.extension())}")
    return connection


def rows(connection, sql, parameters=None):
    """The rows of a statement as a list of dictionaries."""
    result = connection.execute(sql, parameters)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row)) for row in result.fetchall()]
