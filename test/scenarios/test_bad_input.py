"""Bad input: whatever is wrong, the answer is a sentence with a code and a hint, and nothing has changed."""

import shutil

import pytest

from repository import ERROR, error_of, lake_of, refused
from session import quoted, rows

# Everything that reads a version's content, and what only lists.
READERS = ["fdl_attach('repo', alias := 'x')", "fdl_url('repo')", "fdl_checkout('repo', alias := 'x')"]
LISTERS = ["fdl_tables('repo')", "fdl_files('repo')"]
OF_A_REPOSITORY = ["fdl_log({})", "fdl_url({})", "fdl_refs({})", "fdl_tables({})", "fdl_files({})", "fdl_attach({})", "fdl_checkout({})",
                   "fdl_branch({}, name := 'x')", "fdl_tag({}, name := 'x')", "fdl_delete_ref({}, ref := 'refs/tags/v1')"]
OF_A_LAKE = ["fdl_status({})", "fdl_commit({}, message := 'x')", "fdl_push({}, message := 'x')"]


# ---------------------------------------------------------------- lists

def test_a_null_in_a_list_counts_as_not_given(repo, shell):
    """DuckDB throws when a NULL is asked for its text, and that would end the process."""
    setup = f"CALL fdl_checkout({quoted(repo.path)}, alias := 'lake', path := 'nulls.sqlite');"
    for call in ("fdl_init('other', catalog_formats := [NULL], signers := [NULL])", "fdl_commit('lake', sources := [NULL])",
                 "fdl_push('lake', message := 'm', sources := [NULL, NULL])", f"fdl_clone({quoted(repo.path)}, target := 'copy', refs := ['main', NULL])"):
        shell(f"{setup} CALL {call};")
    for call in ("fdl_withdraw({}, files := [NULL])", "fdl_withdraw({}, versions := [NULL], tables := [NULL])", "fdl_expire({}, versions := [NULL])"):
        result = shell(f"CALL {call.format(quoted(repo.path))};", check=False)
        assert result.rc == 1 and "[FDL-BAD-ARGUMENT]" in result.err, result


# ---------------------------------------------------------------- where there is nothing, or something else

@pytest.mark.parametrize("call", OF_A_REPOSITORY)
def test_no_repository_there(connect, call, bare):
    (bare / "empty").mkdir()
    for place in ("nowhere", "empty", f"file://{bare}/empty", "~/nowhere"):
        found = refused(connect(), "CALL " + call.format(quoted(place)), "FDL-NOT-A-REPOSITORY", "holds no repository", "fdl_init")
        assert "nowhere" in found["sentence"] or "empty" in found["sentence"]


@pytest.mark.parametrize("call", OF_A_REPOSITORY)
def test_a_file_where_the_repository_should_be(connect, call, bare):
    (bare / "notes.txt").write_text("not a repository\n")
    refused(connect(), "CALL " + call.format("'notes.txt'"), ("FDL-NOT-A-REPOSITORY", "FDL-BAD-ARGUMENT"), "notes.txt")
    refused(connect(), "CALL " + call.format("'notes.txt/below'"), ("FDL-NOT-A-REPOSITORY", "FDL-BAD-ARGUMENT"), "notes.txt")


@pytest.mark.parametrize("call", OF_A_LAKE)
def test_no_lake_there(connect, call, bare):
    (bare / "notes.txt").write_text("not a lake\n")
    connection = connect()
    refused(connection, "CALL " + call.format("'nothing'"), "FDL-NOT-FOUND", "nothing", "fdl_checkout")
    refused(connection, "CALL " + call.format("'memory'"), "FDL-BAD-ARGUMENT", "memory", "fdl_checkout")
    refused(connection, "CALL " + call.format("'notes.txt'"), "FDL-BAD-ARGUMENT", "notes.txt", "fdl_checkout")
    refused(connection, "CALL " + call.format(quoted(bare)), ("FDL-NOT-FOUND", "FDL-BAD-ARGUMENT"), str(bare), "fdl_checkout")


@pytest.mark.parametrize("call", ["fdl_init({})", *OF_A_REPOSITORY])
def test_stores_of_a_kind_that_is_not_known(connect, call):
    refused(connect(), "CALL " + call.format("'ftp://example.org/x'"), "FDL-STORE")
    refused(connect(), "CALL " + call.format("'gs://bucket/x'"), "FDL-BAD-ARGUMENT", "write s3:// with the endpoint")


@pytest.mark.parametrize("call", ["fdl_init({})", "fdl_log({})"])
@pytest.mark.parametrize("location", ["s3://bucket/x", "http://127.0.0.1:1/x"])
def test_stores_that_cannot_be_reached(connect, monkeypatch, call, location):
    """Nothing listens at port 1. It is tried more than once, and not for ever."""
    for name, value in {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-of-mine", "AWS_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)
    message = error_of(connect(), "CALL " + call.format(quoted(location)))
    assert "[FDL-STORE]. Hint: " in message and "secret-of-mine" not in message


@pytest.mark.parametrize("location", ["file://elsewhere/x", "file://", "a\x01b", "x" * 5000])
def test_what_is_no_location(connect, location):
    refused(connect(), f"CALL fdl_log({quoted(location)})", ("FDL-BAD-ARGUMENT", "FDL-NOT-A-REPOSITORY", "FDL-STORE"))


# ---------------------------------------------------------------- versions that cannot be named, or may not be read

@pytest.mark.parametrize("call", ["fdl_log('repo', {})", "fdl_url('repo', {})", "fdl_tables('repo', {})", "fdl_files('repo', {})",
                                  "fdl_attach('repo', alias := 'x', {})", "fdl_checkout('repo', alias := 'x', {})",
                                  "fdl_branch('repo', name := 'x', {})", "fdl_tag('repo', name := 'x', {})"])
def test_refs_that_are_none(connect, repo, call):
    connection = connect()
    for ref in ("nothing", "refs/tags/nothing", "v1~5", "01a00000", "01a00000-0000-7000-8000-000000000000"):
        refused(connection, "CALL " + call.format(f"ref := '{ref}'"), "FDL-NOT-FOUND")
    for ref in ("../../x", "refs/heads/../../fdl.json", "a\nb", "v1~x", "ä", "a" * 300):
        refused(connection, "CALL " + call.format(f"ref := {quoted(ref)}"), ("FDL-BAD-NAME", "FDL-BAD-ARGUMENT"))


def test_the_beginning_of_two_ids(connect, repo):
    twin = repo.main[:14] + "7000-8000-000000000000"
    shutil.copytree(repo.path / "versions" / repo.main, repo.path / "versions" / twin)
    repo.rewrite(repo.version("version.json", twin), lambda record: record.update(id=twin))
    found = refused(connect(), f"FROM fdl_url('repo', ref := '{repo.main[:13]}')", "FDL-AMBIGUOUS", repo.main[:13], repo.main)
    assert twin in found["hint"]


def test_a_branch_and_a_tag_of_one_name(connect, repo):
    connection = connect()
    connection.execute("CALL fdl_branch('repo', name := 'v1')")
    for call in READERS + LISTERS:
        refused(connection, f"CALL {call[:-1]}, ref := 'v1')", "FDL-AMBIGUOUS", "both a branch and a tag", "ref := 'refs/tags/v1'")


@pytest.mark.parametrize("mark, code, told", [
    ('{"fdl": "0.1", "id": "ID", "reason": "retention", "at": "2026-01-02T03:04:05.000Z", "message": "kept for a year"}', "FDL-EXPIRED", "kept for a year"),
    ('{"fdl": "0.1", "id": "ID", "reason": "withdrawn", "at": "2026-01-02T03:04:05.000Z", "message": "names in it"}', "FDL-WITHDRAWN", "names in it"),
    ('{"fdl": "0.1", "id": "ID", "reason": "heat", "at": "2026-01-02T03:04:05.000Z"}', "FDL-EXPIRED", "expired"),
    ("{}", "FDL-EXPIRED", "expired"), ("not JSON", "FDL-EXPIRED", "expired"), ("", "FDL-EXPIRED", "expired")])
def test_a_version_that_was_taken_away(connect, repo, mark, code, told):
    repo.version("expired.json").write_text(mark.replace("ID", repo.main))
    connection = connect()
    for call in READERS:
        refused(connection, f"CALL {call}", code, told, "fdl_log")
        # What lies before it is there as ever.
        connection.execute(f"CALL {call[:-1]}, ref := 'v1')".replace("'x'", f"'{call[4:7]}'"))
    entries = rows(connection, "FROM fdl_log('repo')")
    assert [entry["state"] for entry in entries] == ["withdrawn" if code == "FDL-WITHDRAWN" else "expired", "live"]
    if "message" in mark:
        assert told in entries[0]["reason"]


# ---------------------------------------------------------------- repositories that are damaged, hostile or of tomorrow

@pytest.mark.parametrize("call", ["fdl_init('repo')", "fdl_log('repo')", "fdl_refs('repo')", "fdl_tag('repo', name := 'x')", *READERS, *LISTERS])
@pytest.mark.parametrize("settings, code", [
    ('{"fdl": "1.0", "id": "6f1f5f3e-64c8-4b2e-9d0e-0d8a9c6c1a11"}', "FDL-UNSUPPORTED-VERSION"), ('{"fdl": "one"}', ("FDL-CORRUPT", "FDL-UNSUPPORTED-VERSION")),
    ('{}', "FDL-CORRUPT"), ("", "FDL-CORRUPT"), ("[1", "FDL-CORRUPT"), ('{"fdl": "0.1", "data_dir": "../"}', ("FDL-CORRUPT", "FDL-BAD-PATH")),
    ('{"fdl": "0.1", "data_dir": "/etc/"}', ("FDL-CORRUPT", "FDL-BAD-PATH"))])
def test_bad_settings(connect, repo, call, settings, code):
    (repo.path / "fdl.json").write_text(settings)
    refused(connect(), f"CALL {call}", code, "fdl.json")


@pytest.mark.parametrize("change, code", [
    (lambda record: record.update(fdl="1.0"), "FDL-UNSUPPORTED-VERSION"),
    (lambda record: record.update(id="01a00000-0000-7000-8000-000000000000"), "FDL-CORRUPT"),
    (lambda record: record.pop("sha256"), "FDL-CORRUPT"), (lambda record: record.update(sha256="abc"), "FDL-CORRUPT"),
    (lambda record: record.update(id="../../fdl"), "FDL-CORRUPT"), (lambda record: record.update(parents=["../x"]), "FDL-CORRUPT")])
def test_bad_records(connect, repo, change, code):
    repo.rewrite(repo.version("version.json"), change)
    for call in (*READERS, *LISTERS, "fdl_log('repo')"):
        refused(connect(), f"CALL {call}", code, f"versions/{repo.main}/version.json")


@pytest.mark.parametrize("content", ["", "{", "null"])
def test_records_that_are_no_json(connect, repo, content):
    repo.version("version.json").write_text(content)
    refused(connect(), "CALL fdl_attach('repo', alias := 'x')", "FDL-CORRUPT", "version.json", "copy of the repository")


@pytest.mark.parametrize("content", ["../../../etc/passwd\n", "", "main\n", "01a00000", "a" * 5000, "01a00000-0000-7000-8000-000000000000/../x\n", "\0\0"])
def test_a_ref_that_holds_no_id(connect, repo, content):
    (repo.path / "refs/heads/main").write_text(content)
    for call in (*READERS, *LISTERS, "fdl_log('repo')", "fdl_refs('repo')"):
        refused(connect(), f"CALL {call}", "FDL-CORRUPT", "refs/heads/main")


@pytest.mark.parametrize("content", ["ref: refs/heads/../../fdl.json\n", "ref: refs/heads/a b\n", "ref: /etc/passwd", "main", "", "ref: refs/heads/" + "a" * 5000])
def test_a_head_that_names_no_branch(connect, repo, content):
    (repo.path / "HEAD").write_text(content)
    for call in (*READERS, "fdl_refs('repo')"):
        refused(connect(), f"CALL {call}", "FDL-CORRUPT", "HEAD")


def test_a_ref_to_a_version_that_is_not_there(connect, repo):
    shutil.rmtree(repo.path / "versions" / repo.main)
    for call in (*READERS, *LISTERS, "fdl_log('repo')"):
        refused(connect(), f"CALL {call}", "FDL-CORRUPT", repo.main)


def flip(catalog):
    content = bytearray(catalog.read_bytes())
    content[len(content) // 2] ^= 1
    catalog.write_bytes(content)


DAMAGE = {"one bit": flip, "truncated": lambda catalog: catalog.write_bytes(catalog.read_bytes()[:5000]), "empty": lambda catalog: catalog.write_bytes(b""),
          "longer": lambda catalog: catalog.write_bytes(catalog.read_bytes() + b"x"), "another": lambda catalog: catalog.write_text("a text"),
          "gone": lambda catalog: catalog.unlink()}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("call", ["fdl_attach('repo', alias := 'x')", "fdl_attach('repo', alias := 'x', cache := 'always')", "fdl_checkout('repo', alias := 'x')"])
def test_a_catalog_with_another_hash(connect, repo, damage, call):
    DAMAGE[damage](repo.catalog)
    refused(connect(), f"CALL {call}", "FDL-CORRUPT", "ducklake.duckdb", root=".")


@pytest.mark.parametrize("damage", ["truncated", "empty", "another"])
def test_a_bad_catalog_with_its_own_hash(connect, repo, damage):
    """A writer that is broken or means ill signs for what it wrote."""
    DAMAGE[damage](repo.catalog)
    repo.fix_hashes()
    for call in ("fdl_attach('repo', alias := 'x')", "fdl_checkout('repo', alias := 'x')"):
        refused(connect(), f"CALL {call}", "FDL-CORRUPT", "ducklake.duckdb")


ELSEWHERE = [(path, "true") for path in ("../../secret.parquet", "main/t/../../../../secret.parquet", "..%2f..%2fsecret.parquet", "C:\\secret.parquet",
                                         "..\\..\\secret.parquet", "")]
ELSEWHERE += [(path, "false") for path in ("/etc/passwd", "s3://bucket/x.parquet", "http://127.0.0.1:1/x.parquet", "data/x.parquet")]


@pytest.mark.parametrize("path, relative", ELSEWHERE)
def test_a_catalog_that_names_a_file_elsewhere(connect, repo, path, relative):
    tamper(connect, repo, f"UPDATE cat.ducklake_data_file SET path = {quoted(path)}, path_is_relative = {relative}")
    connection = connect()
    for call in ("fdl_attach('repo', alias := 'x')", "fdl_checkout('repo', alias := 'x')"):
        refused(connection, f"CALL {call}", "FDL-BAD-PATH")


@pytest.mark.parametrize("path, relative", [ELSEWHERE[0], ("/etc/passwd", "false")])
def test_a_catalog_whose_deletions_are_elsewhere(connect, repo, path, relative):
    tamper(connect, repo, f"UPDATE cat.ducklake_delete_file SET path = {quoted(path)}, path_is_relative = {relative}")
    connection = connect()
    for call in ("fdl_attach('repo', alias := 'x')", "fdl_attach('repo', alias := 'x', cache := 'always')", "fdl_checkout('repo', alias := 'x')"):
        refused(connection, f"CALL {call}", "FDL-BAD-PATH")


@pytest.mark.parametrize("change", ["ducklake_table SET path = '../../elsewhere/'", "ducklake_schema SET path = '/etc/', path_is_relative = false",
                                    "ducklake_table SET path = '/etc/', path_is_relative = false"])
def test_a_catalog_whose_tables_are_elsewhere(connect, repo, change):
    tamper(connect, repo, f"UPDATE cat.{change}")
    for call in ("fdl_attach('repo', alias := 'x')", "fdl_checkout('repo', alias := 'x')"):
        refused(connect(), f"CALL {call}", "FDL-BAD-PATH")


def tamper(connect, repo, sql):
    connection = connect(load=False)
    connection.execute(f"ATTACH {quoted(repo.catalog)} AS cat")
    connection.execute(sql)
    connection.execute("DETACH cat")
    connection.close()
    repo.fix_hashes()


@pytest.mark.parametrize("call", LISTERS)
def test_lists_that_do_not_match_are_read_from_the_catalog(connect, repo, call):
    """files.json and dataset.json may be missing or stale: the catalog is what counts."""
    right = rows(connect(), f"FROM {call} ORDER BY ALL")
    for name in ("files.json", "dataset.json"):
        repo.version(name).write_text('{"fdl": "0.1", "tables": [], "schemas": []}')
    assert rows(connect(), f"FROM {call} ORDER BY ALL") == right
    for name in ("files.json", "dataset.json"):
        repo.version(name).unlink()
    assert rows(connect(), f"FROM {call} ORDER BY ALL") == right


def test_a_list_that_names_a_file_elsewhere(connect, repo):
    repo.rewrite(repo.version("files.json"), lambda files: files["tables"][0]["files"][0].update(path="data/../../secret.parquet"))
    repo.fix_hashes()
    for call in ("fdl_files('repo')", "fdl_checkout('repo', alias := 'x')"):
        refused(connect(), f"CALL {call}", ("FDL-BAD-PATH", "FDL-CORRUPT"))


def test_links_do_not_lead_out(connect, repo, bare):
    """A repository that somebody else made must not show what lies outside."""
    (bare / "secret").write_text("ref: refs/heads/main\n01a00000-0000-7000-8000-000000000000\n")
    (repo.path / "refs/heads/main").unlink()
    (repo.path / "refs/heads/main").symlink_to(bare / "secret")
    message = error_of(connect(), "FROM fdl_url('repo')")
    assert ERROR.fullmatch(message) and "01a00000" not in message


def test_white_space_is_no_part_of_a_name(connect, repo):
    connection = connect()
    for call in ("CALL fdl_checkout('repo', ref := E'main\\n', alias := 'x')", "CALL fdl_attach('repo', ref := ' v1', alias := 'x')"):
        refused(connection, call, "FDL-BAD-ARGUMENT", "neither a branch")


def test_a_tag_cannot_be_pushed_to(connect, repo):
    connection = connect()
    lake_of(connection)
    found = refused(connection, "CALL fdl_push('lake', ref := 'refs/tags/dev')", "FDL-BAD-ARGUMENT", "refs/tags/dev is no branch", "ref := ")
    assert "checked out" not in found["sentence"]
