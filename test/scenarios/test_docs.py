"""The documents: examples print what the pages say, docs/sql.md tells every parameter, column and code, links lead somewhere."""

import re
import shutil

import pytest

import docs
import layout

SQL = layout.ROOT / "docs" / "sql.md"


@pytest.mark.parametrize("page", docs.PAGES)
def test_examples_print_what_the_page_says(page):
    if page == "docs/signing.md" and not shutil.which("ssh-keygen"):
        pytest.skip("OpenSSH's client programs are not here")
    found, wrong = docs.check(page)
    assert not wrong, "\n\n".join([*wrong, "scripts/docs.py --write brings the page up to date"])
    assert sum(example.expected is not None for example in found) >= 3, "the examples were not found"


def test_a_wrong_page_is_found():
    """What is levelled out must not be what the pages are about."""
    one, two = "0198c0de-0000-7000-8000-000000000001", "0198c0de-0000-7000-8000-000000000002"
    assert docs.level([f"a {one}", f"b {one}"]) == docs.level([f"a {two}", f"b {two}"])
    assert docs.level([f"a {one}", f"b {one}"]) != docs.level([f"a {one}", f"b {two}"])
    assert docs.level(["rows = 3\nbytes = 378"]) == docs.level(["  rows = 3\n bytes = 91234"])
    assert docs.level(["rows = 3"]) != docs.level(["rows = 4"])
    assert docs.level(["at 2026-11-29 23:25:16.991+00"]) == docs.level(["at 2027-01-02 03:04:05+00"])
    table = "┌───┐\n│ rows │ bytes │\n│ int64 │ int64 │\n├───┤\n│ {} │ {} │\n└───┘"
    assert docs.level([table.format(3, 378)]) == docs.level([table.format(3, 9)])
    assert docs.level([table.format(3, 378)]) != docs.level([table.format(4, 378)])


def described():
    """Function: (its parameters with types, its columns with types), as docs/sql.md tells them."""
    functions = {}
    for section in re.split(r"^## ", SQL.read_text(encoding="utf-8"), flags=re.M):
        name = section.split("\n", 1)[0].strip()
        if not name.startswith("fdl_"):
            continue
        tables = {}
        for header, body in re.findall(r"^\| (Parameter|Column) \|.*\n\|[-|]+\n((?:\|.*\n)+)", section, re.M):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
            tables[header] = {word: row[1] for row in rows for word in re.findall(r"`(\w+)`", row[0])}
        functions[name] = (tables.get("Parameter", {}), tables.get("Column", {}))
    return functions


def test_every_parameter_and_column_is_described(connect):
    connection = connect()
    there = connection.execute("SELECT function_name, parameters, parameter_types FROM duckdb_functions() "
                               "WHERE starts_with(function_name, 'fdl_')").fetchall()
    functions = described()
    assert sorted(functions) == sorted(name for name, _, _ in there)
    for name, parameters, types in there:
        given = {parameter: kind for parameter, kind in zip(parameters, types)}
        positional = [parameter for parameter in given if re.fullmatch(r"col\d+", parameter)]
        told, columns = functions[name]
        # DuckDB has no name for the positional argument; the page gives it first.
        assert list(told.values())[:len(positional)] == ["VARCHAR"] * len(positional), name
        named = dict(list(told.items())[len(positional):])
        assert named == {parameter: kind for parameter, kind in given.items() if parameter not in positional}, name
        call = f"{name}({', '.join(['NULL'] * len(positional))})"
        assert columns == dict(row[:2] for row in connection.execute(f"DESCRIBE FROM {call}").fetchall()), name


def test_every_code_is_described():
    codes = set(re.findall(r'"(FDL-[A-Z-]+)"', (layout.ROOT / "src" / "format" / "code.rs").read_text(encoding="utf-8")))
    text = SQL.read_text(encoding="utf-8")
    assert codes == set(re.findall(r"^\| (FDL-[A-Z-]+) \|", text, re.M))
    assert set(re.findall(r"FDL-[A-Z-]*[A-Z]", text)) <= codes


def anchors(text):
    """The anchors of a page's headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}


def test_links_lead_somewhere():
    pages = [layout.ROOT / "README.md", layout.ROOT / "CHANGELOG.md", *(layout.ROOT / "docs").rglob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), f"{page}: {target}"


def test_sections_that_the_code_names_are_there():
    text = (layout.ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## (\d+)\. ", text, re.M))
    for source in [*(layout.ROOT / "src").rglob("*.rs"), *(layout.ROOT / "test").glob("*.rs")]:
        for named in re.findall(r"docs/format\.md`? sections? ([\d, and]+|\d+ to \d+)", source.read_text(encoding="utf-8")):
            assert set(re.findall(r"\d+", named)) <= sections, f"{source}: section {named}"
