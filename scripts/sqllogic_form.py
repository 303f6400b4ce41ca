"""DuckDB's sqllogictest form: reading a test file, and comparing rows and errors with what it expects. Runs nothing."""

import math
import re
from decimal import Decimal, InvalidOperation

SORTS = ("nosort", "rowsort", "valuesort")
DIRECTIVES = ("statement", "query", "require", "load", "restart", "reconnect", "sleep", "halt", "mode", "hash-threshold", "tags")
FLOATS = ("FLOAT", "DOUBLE")
EXACT = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")


class BadTest(Exception):
    """The test file itself is wrong: (line, what)."""


class Command:
    """One directive with its arguments, SQL, expected lines, conditions, and for loops the commands inside."""

    def __init__(self, line, words):
        self.line, self.name, self.arguments = line, words[0], words[1:]
        self.sql, self.expected, self.conditions, self.body = "", None, [], []


def parse(text):
    """The commands of a file, loops as trees."""
    lines = text.splitlines()
    stack, conditions, at = [Command(0, ["file"])], [], 0

    def block(until):
        """The lines from here to one that `until` accepts, or to the end."""
        nonlocal at
        start = at
        while at < len(lines) and not until(lines[at].strip()):
            at += 1
        return lines[start:at]

    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if words[0] in ("skipif", "onlyif"):
            conditions.append((words[0], " ".join(words[1:])))
            continue
        command = Command(at, words)
        command.conditions, conditions = conditions, []
        if command.name in ("statement", "query"):
            command.sql = "\n".join(block(lambda text: text in ("", "----"))).rstrip()
            if at < len(lines) and lines[at].strip() == "----":
                at += 1
                command.expected = block(lambda text: text == "")
            check(command)
        elif command.name in ("loop", "foreach"):
            stack[-1].body.append(command)
            stack.append(command)
            continue
        elif command.name == "endloop":
            if len(stack) == 1:
                raise BadTest(at, "endloop without a loop")
            stack.pop()
            continue
        elif command.name not in DIRECTIVES:
            raise BadTest(at, f"unknown directive {command.name!r}")
        stack[-1].body.append(command)
    if len(stack) > 1:
        raise BadTest(stack[-1].line, f"{stack[-1].name} without endloop")
    if conditions:
        raise BadTest(at, "skipif or onlyif with nothing after it")
    return stack[0].body


def check(command):
    """Refuses commands that could not fail, or that say what this runner does not do."""
    if not command.sql:
        raise BadTest(command.line, f"{command.name} without SQL")
    kind = command.arguments[0] if command.arguments else ""
    if command.name == "statement":
        if kind not in ("ok", "error", "maybe"):
            raise BadTest(command.line, "statement must be followed by ok, error or maybe")
        if kind == "error" and not any(command.expected or []):
            raise BadTest(command.line, "statement error needs ---- and a part of the message")
        if kind == "ok" and command.expected is not None:
            raise BadTest(command.line, "statement ok takes no ----")
    else:
        if not re.fullmatch("[ITR]+", kind):
            raise BadTest(command.line, "query must be followed by its columns, as in query IT")
        if command.expected is None and query_arguments(command)[2] is None:
            raise BadTest(command.line, "query needs ---- and the rows")
        if any("values hashing to" in line for line in command.expected or []):
            raise BadTest(command.line, "hashed results are not supported")


def query_arguments(command):
    """How a query's rows are sorted, the name of its connection, and its label (None without one)."""
    words = command.arguments[1:]
    sort = words.pop(0) if words and words[0] in SORTS else "nosort"
    connection = words.pop(0) if words and words[0].startswith("con") else ""
    return sort, connection, words[0] if words else None


def versions_of(text, default):
    """The DuckDB versions that a file says it runs in."""
    said = re.search(r"^#\s*versions:(.*)$", text, re.M)
    return said.group(1).replace(",", " ").split() if said else [default]


def text(value):
    """A value as the form writes it."""
    if value is None:
        return "NULL"
    return "(empty)" if value == "" else value.replace("\n", "\\n").replace("\t", "\\t")


def show(rows):
    return "\n".join("\t".join(row) for row in rows) or "(no rows)"


def regex(pattern, value):
    return re.fullmatch(pattern, value, re.S) is not None


def error_matches(expected, message):
    if expected.startswith("<REGEX>:"):
        return regex(expected[len("<REGEX>:"):], message)
    return expected in message


def rows_match(columns, rows, lines):
    """Whether the rows are those of the expected lines: a row a line, or a value a line."""
    width = len(columns)
    split = [line.split("\t") for line in lines]
    if width > 1 and any(len(row) != width for row in split):
        if any(len(row) > 1 for row in split) or len(lines) % width:
            return False
        split = [lines[start:start + width] for start in range(0, len(lines), width)]
    elif width == 1:
        split = [[line] for line in lines]
    return len(split) == len(rows) and all(
        value_matches(kind, expected, value)
        for row, values in zip(split, rows) for kind, expected, value in zip(columns, row, values))


def value_matches(kind, expected, value):
    if expected.startswith("<REGEX>:"):
        return regex(expected[len("<REGEX>:"):], value)
    if expected.startswith("<!REGEX>:"):
        return not regex(expected[len("<!REGEX>:"):], value)
    if expected == value:
        return True
    if kind == "BOOLEAN":
        return {"1": "true", "0": "false"}.get(expected) == value
    try:
        if kind in FLOATS:
            return math.isclose(float(expected), float(value), rel_tol=1e-9)
        if kind in EXACT or kind.startswith("DECIMAL"):
            return Decimal(expected) == Decimal(value)
    except (ValueError, InvalidOperation):
        pass
    return False
