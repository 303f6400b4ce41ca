"""A dbt project that publishes what it builds: test/scenarios/dbt, described in docs/dbt.md."""

import gzip
import os
import re
import shutil
import subprocess
from decimal import Decimal

import pytest
import yaml

import layout
import session
from conftest import AUTHOR, FOREIGN, Result

PROJECT = layout.ROOT / "test" / "scenarios" / "dbt"
DOCUMENT = layout.ROOT / "docs" / "dbt.md"
NEW_ORDERS = "6,4,2024-01-06,8.00\n7,2,2024-01-06,9.50\n"


def blocks(language):
    """The blocks of docs/dbt.md in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)


class Shop:
    """A copy of the dbt project, a repository and what is needed to run dbt on them, all in one folder."""

    def __init__(self, folder, home):
        self.folder, self.repository, self.lake = folder, folder / "shop", folder / "lake.sqlite"
        skip = shutil.ignore_patterns("target", "logs", ".user.yml", "lake.sqlite*")
        shutil.copytree(PROJECT, folder, dirs_exist_ok=True, ignore=skip)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        programs = os.pathsep.join([str(layout.VENV / "bin"), os.environ["PATH"]])
        self.environment = {**inherited, "HOME": str(home), "PATH": programs, "FDL_AUTHOR": AUTHOR, "DBT_USE_COLORS": "false",
                            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "SHOP_REPOSITORY": str(self.repository)}

    def run(self, *command, rc=0, **more):
        done = subprocess.run(command, cwd=self.folder, env={**self.environment, **more}, capture_output=True, text=True, timeout=100)
        result = Result(done.returncode, done.stdout, done.stderr)
        assert result.rc == rc, f"{command} should end with {rc}\n{result}"
        return result

    def checkout(self, *branch):
        self.environment["SHOP_DATA"] = self.run("python", "checkout.py", str(self.repository), *branch).out.strip()

    @property
    def attach(self):
        """The statement with which any session attaches the working catalog as `lake`."""
        options = f"META_TYPE 'sqlite', DATA_PATH {session.quoted(self.environment['SHOP_DATA'])}, OVERRIDE_DATA_PATH true, BUSY_TIMEOUT 5000, " \
                  "DATA_INLINING_ROW_LIMIT 0, META_JOURNAL_MODE 'WAL'"
        return f"ATTACH {session.quoted(f'ducklake:{self.lake}')} AS lake ({options})"

    def dbt(self, *arguments, rc=0):
        return self.run("dbt", *arguments, rc=rc).out

    def edit(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def order(self, lines):
        """New orders come in."""
        with open(self.folder / "seeds" / "orders.csv", "a", encoding="utf-8") as orders:
            orders.write(lines)

    def variant(self, name):
        shutil.copy(self.folder / "variants" / f"{name}.sql", self.folder / "models" / "marts")

    def sql(self, *statements):
        """The rows of the last statement, in a session of its own."""
        with session.connect() as connection:
            for statement in statements[:-1]:
                connection.execute(statement)
            return session.rows(connection, statements[-1])

    def call(self, function, where=None, **named):
        arguments = [session.quoted(where or self.repository)]
        arguments += [f"{name} := {session.quoted(value)}" for name, value in named.items()]
        return self.sql(f"FROM fdl_{function}({', '.join(arguments)})")

    def versions(self, **named):
        return self.call("log", **named)

    def status(self):
        return self.call("status", self.lake)[0]

    def read(self, query, **named):
        """What a reader sees, who knows the repository only; under another alias than dbt's."""
        attach = self.call("url", **named)[0]["attach_sql"]
        name = re.search(r' AS (".*?"|\w+) \(', attach).group(1)
        return self.sql("LOAD ducklake", attach, f"USE {name}", query)

    def published(self):
        """Everything in the repository but data files, which a failed run may leave for the garbage collection."""
        return {path.relative_to(self.repository): path.read_bytes() for path in self.repository.rglob("*")
                if path.is_file() and path.relative_to(self.repository).parts[0] != "data"}

    def tables(self):
        """The tables and views in the working catalog."""
        return {row["name"] for row in self.call("tables", self.lake)}

    def files(self, **named):
        """The data files of each table of a version."""
        files = {}
        for row in self.call("files", **named):
            files.setdefault(row["name"], set()).add(row["path"])
        return files


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with DuckDB's extensions where DuckDB looks for them, and without fdl."""
    home = tmp_path_factory.mktemp("home")
    for file in (layout.EXTENSIONS / f"v{layout.MAIN}").glob("*/*.duckdb_extension"):
        link = home / ".duckdb" / "extensions" / file.relative_to(layout.EXTENSIONS)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return home


@pytest.fixture(scope="module")
def first(tmp_path_factory, home):
    """The shop after the first steps of docs/dbt.md and one `dbt build`, whose output is in `shop.output`. Not to be changed."""
    shop = Shop(tmp_path_factory.mktemp("first"), home)
    packed = shop.folder / "build" / "repository" / f"v{layout.MAIN}" / layout.platform() / "fdl.duckdb_extension.gz"
    packed.parent.mkdir(parents=True)
    packed.write_bytes(gzip.compress(layout.extension().read_bytes(), compresslevel=1))
    shop.run("python", "start.py")
    shop.checkout()
    shop.output = shop.dbt("build")
    return shop


@pytest.fixture
def shop(first, tmp_path, home):
    """A shop of one's own, with the version of the first run checked out."""
    shop = Shop(tmp_path, home)
    shutil.copytree(first.repository, shop.repository)
    shop.checkout()
    return shop


def test_the_first_run_publishes(first):
    version, = first.versions()
    assert version["message"] == "dbt build of shop" and version["author"] == AUTHOR
    assert version["refs"] == ["refs/heads/main"] and version["state"] == "live"
    assert f"fdl: committed {version['version']}, tables changed: 6" in first.output
    assert f"fdl: refs/heads/main of {first.repository}: pushed" in first.output
    status = first.status()
    assert (status["version"], status["ahead"], status["uncommitted"]) == (version["version"], 0, False)


def test_the_published_version_reads_as_the_models_of_dbt(first, python):
    attach = first.call("url")[0]["attach_sql"].replace(' AS "shop" ', " AS published ")
    working = first.call("checkout", first.repository, path=first.folder / "other.sqlite", alias="other", attach="false")[0]["attach_sql"]
    working = working.replace("other.sqlite", "lake.sqlite").replace('"other"', "lake")
    result = python(f"""
connection = connect(load=False)
for statement in ["LOAD ducklake", "LOAD sqlite_scanner", {attach!r}, {working!r}]:
    connection.execute(statement)
tables = [name for name, in connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' UNION ALL "
    "SELECT view_name FROM duckdb_views() WHERE database_name = 'lake' AND NOT internal").fetchall()]
differ = {{}}
for name in tables:
    here, there = f"FROM lake.{{name}}", f"FROM published.{{name}}"
    differ[name] = len(connection.execute(f"({{here}} EXCEPT ALL {{there}}) UNION ALL ({{there}} EXCEPT ALL {{here}})").fetchall())
print(json.dumps(differ))
""", cwd=first.folder)
    names = ["countries", "customers", "customers_history", "order_log", "orders", "revenue_by_country", "stg_customers", "stg_orders"]
    assert result.rows == dict.fromkeys(names, 0)
    assert first.read("FROM revenue_by_country ORDER BY country") == [
        {"country": country, "orders": orders, "revenue": Decimal(revenue)}
        for country, orders, revenue in [("GB", 2, "112.50"), ("IT", 1, "3.25"), ("JP", 1, "42.00"), ("VN", 1, "7.00")]]
    # A view names dbt's alias in dbt's session, and the reader's in the reader's.
    assert len(first.read("FROM stg_orders")) == 5


def test_a_run_without_changes_makes_no_version(shop):
    before = shop.published()
    output = shop.dbt("build")
    assert f"fdl: nothing has changed since {shop.versions()[0]['version']}" in output
    assert f"fdl: refs/heads/main of {shop.repository}: up to date" in output
    assert "WARN" not in output.replace("WARN=0", "")
    assert shop.published() == before
    assert shop.status()["uncommitted"] is False


def test_new_rows_make_one_version_that_keeps_the_files_of_the_other_tables(shop):
    old, = shop.versions()
    shop.order(NEW_ORDERS)
    shop.dbt("build")
    new, parent = shop.versions()
    assert parent["version"] == old["version"] == new["parent"]
    before, after = shop.files(ref=old["version"]), shop.files(ref=new["version"])
    unchanged = {"customers", "customers_history", "countries"}
    assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert before["order_log"] < after["order_log"], "an incremental model adds files"
    assert before["revenue_by_country"].isdisjoint(after["revenue_by_country"]), "a table is built anew"
    assert len(shop.read("FROM order_log")) == 7
    assert shop.read("FROM revenue_by_country WHERE country = 'JP'")[0]["revenue"] == Decimal("50.00")
    assert len(shop.read("FROM order_log", ref=old["version"])) == 5


def test_a_snapshot_keeps_what_a_row_was(shop):
    customers = (shop.folder / "seeds" / "customers.csv").read_text(encoding="utf-8")
    shop.edit("seeds/customers.csv", customers.replace("1,Ada,GB", "1,Ada,FR"))
    shop.dbt("build")
    history = shop.read("SELECT country, dbt_valid_to IS NULL AS current FROM customers_history WHERE id = 1 ORDER BY dbt_valid_from")
    assert history == [{"country": "GB", "current": False}, {"country": "FR", "current": True}]


def test_a_failed_model_publishes_nothing_until_it_is_mended(shop):
    before = shop.published()
    good = (shop.folder / "models" / "marts" / "countries.sql").read_text(encoding="utf-8")
    shop.edit("models/marts/countries.sql", "select error('on purpose') as country")
    shop.order(NEW_ORDERS)
    output = shop.dbt("build", rc=1)
    assert "fdl: nothing is published: countries (error)" in output
    assert shop.published() == before
    status = shop.status()
    assert (status["ahead"], status["behind"], status["uncommitted"]) == (0, 0, True)
    shop.edit("models/marts/countries.sql", good)
    assert "fdl: committed" in shop.dbt("retry")
    assert len(shop.versions()) == 2 and len(shop.read("FROM order_log")) == 7
    assert {name for name in shop.tables() if "__dbt_" in name} == set()


def test_a_failed_test_publishes_nothing_and_a_checkout_brings_the_version_back(shop):
    before = shop.published()
    shop.order("6,4,2024-01-06,\n")
    output = shop.dbt("build", rc=1)
    assert "fdl: nothing is published: not_null_stg_orders_amount (fail), order_log (skipped)" in output
    # Tests that find no fault with what the failed run left do not publish it.
    assert "fdl: nothing is published: this is dbt test" in shop.dbt("test", "--select", "order_log")
    assert shop.published() == before
    assert shop.status()["uncommitted"] is True
    shop.checkout()
    assert shop.status()["uncommitted"] is False
    assert len(shop.sql(shop.attach, "FROM lake.orders")) == 5


def test_a_post_hook_outside_the_transaction_publishes(shop):
    """Alone: the hooks at the end are switched off."""
    shop.variant("order_count")
    output = shop.dbt("run", "--vars", "fdl_publish: false", "--select", "order_count")
    assert "fdl: nothing is published: fdl_publish is false" in output
    assert [version["message"] for version in shop.versions()] == ["order_count is new", "dbt build of shop"]
    assert shop.read("FROM order_count") == [{"orders": 5}]
    assert shop.status()["uncommitted"] is False
    assert {name for name in shop.tables() if "__dbt_" in name} == set()


def test_a_post_hook_inside_the_transaction_fails_and_harms_nothing(shop):
    before, tables = shop.published(), shop.tables()
    shop.variant("order_count_in_transaction")
    output = shop.dbt("build", rc=1)
    assert "[FDL-IN-TRANSACTION]" in output and "on-run-end" in output and "after_commit" in output
    assert "fdl: nothing is published: order_count_in_transaction (error)" in output
    assert shop.published() == before
    assert shop.tables() == tables, "the model was rolled back"
    assert shop.status()["uncommitted"] is False
    # The working copy goes on from there.
    shop.sql(shop.attach, "INSERT INTO lake.countries VALUES ('FR', 0)", "CALL fdl_push('lake', message := 'goes on')")
    assert len(shop.versions()) == 2 and shop.read("FROM countries WHERE country = 'FR'") == [{"country": "FR", "customers": 0}]


def test_leftovers_of_dbt_are_published_with_a_warning(shop):
    shop.sql(shop.attach, "CREATE TABLE lake.gone__dbt_tmp AS SELECT 1 AS one", "CREATE VIEW lake.gone__dbt_backup AS SELECT 1 AS one")
    note = "left over from a dbt run and part of this version: main.gone__dbt_tmp, main.gone__dbt_backup"
    # dbt breaks long lines.
    assert note in " ".join(shop.dbt("run").split())
    assert {"gone__dbt_tmp", "gone__dbt_backup"} <= {row["name"] for row in shop.call("tables")}
    # A checkout of what is published keeps them, and so the warning stays until they are dropped.
    committed = shop.call("commit", shop.lake, message="again")[0]
    assert (committed["committed"], committed["note"]) == (False, note)


def test_a_branch_that_moved_fails_the_run_and_loses_nothing(shop):
    shop.order(NEW_ORDERS)
    other = shop.folder / "other.sqlite"
    shop.sql(f"CALL fdl_checkout({session.quoted(shop.repository)}, alias := 'other', path := {session.quoted(other)})",
             "CREATE TABLE other.theirs AS SELECT 1 AS one", "CALL fdl_push('other', message := 'theirs')")
    output = shop.dbt("build", rc=1)
    assert "[FDL-CONFLICT]" in output and "SKIP hook" in output
    assert [version["message"] for version in shop.versions()] == ["theirs", "dbt build of shop"]
    status = shop.status()
    assert (status["ahead"], status["behind"], status["uncommitted"]) == (1, 1, False)
    # The way out that the hint names as well: beside the branch.
    shop.call("push", shop.lake, ref="ours")
    assert len(shop.read("FROM order_log", ref="ours")) == 7


def test_several_threads_publish_all_or_nothing(shop):
    """SQLite has one writer: dbt's other threads may be told that the database is locked. One hook does both here, with a quote."""
    before = shop.published()
    hook = """{{ fdl_commit_and_push(results, 'lake', "Ada's run") }}"""
    project = yaml.safe_load((shop.folder / "dbt_project.yml").read_text(encoding="utf-8"))
    shop.edit("dbt_project.yml", yaml.safe_dump({**project, "on-run-end": [hook, project["on-run-end"][-1]]}))
    shop.order(NEW_ORDERS)
    many = subprocess.run(["dbt", "build", "--threads", "4"], cwd=shop.folder, env=shop.environment, capture_output=True, text=True, timeout=100)
    if many.returncode:
        assert "database is locked" in many.stdout or "conflict" in many.stdout.lower(), many.stdout
        assert shop.published() == before
        shop.dbt("build")
    assert [version["message"] for version in shop.versions()] == ["Ada's run", "dbt build of shop"]
    assert len(shop.read("FROM order_log")) == 7


def test_each_pull_request_has_its_branch(shop):
    on_main, on_request = blocks("sh")[-2:]
    assert on_main == on_request.replace(' "pr-$PR_NUMBER"', "")
    main, = shop.versions()
    # There already, with a version of its own, from an earlier run of the same pull request.
    shop.checkout("pr-12")
    shop.sql(shop.attach, "DROP TABLE lake.countries", "CALL fdl_push('lake', message := 'earlier')")
    shop.order(NEW_ORDERS)
    shop.run("bash", "-c", on_request, PR_NUMBER="12")
    assert shop.versions() == [main]
    assert [version["message"] for version in shop.versions(ref="pr-12")] == ["dbt build of shop", "dbt build of shop"]
    assert len(shop.read("FROM order_log", ref="pr-12")) == 7 and len(shop.read("FROM order_log")) == 5
    assert shop.files(ref="main")["countries"] == shop.files(ref="pr-12")["countries"]


class FarShop(Shop):
    """A shop whose repository is elsewhere, started and checked out as docs/dbt.md says, by what its profile asks for."""

    def __init__(self, folder, home, kind, repository, **environment):
        super().__init__(folder, home)
        self.repository = repository
        self.environment.update(SHOP_TARGET=kind, SHOP_REPOSITORY=repository, **environment)
        self.call("init")
        self.checkout()


@pytest.fixture(params=["s3", "http"])
def far(request, first, new_place, host, tmp_path, home, monkeypatch):
    """In S3, and behind a host that shows nothing to whoever has no token."""
    if request.param == "s3":
        place = new_place("s3")
        return FarShop(tmp_path, home, "s3", place.location, **place.variables, SHOP_S3_ENDPOINT=place.endpoint.removeprefix("http://"),
                       SHOP_S3_URL_STYLE="path", SHOP_S3_USE_SSL="false")
    place = new_place("http", read_token="hush-read-token")
    return FarShop(tmp_path, home, "http", place.location, **place.variables)


def test_a_repository_elsewhere(far, open_session):
    """Built, pushed by the hook; once more without a change; with a changed model."""
    output = far.dbt("build")
    (one,) = far.versions()
    assert f"fdl: committed {one['version']}, tables changed: 6" in output
    assert f"fdl: refs/heads/main of {far.repository}: pushed" in output
    output = far.dbt("build")
    assert f"fdl: nothing has changed since {one['version']}" in output and far.versions() == [one]
    model = far.folder / "models" / "marts" / "countries.sql"
    model.write_text(model.read_text(encoding="utf-8").replace("count(*)", "count(*) + 1"), encoding="utf-8")
    # Another machine, or the same one later: it begins with what is published.
    far.checkout()
    output += far.dbt("build")
    two, before = far.versions()
    assert (before["version"], two["parent"]) == (one["version"], one["version"])
    changed = far.sql(f"FROM fdl_diff({session.quoted(far.repository)}, from_ref := 'main~1', to_ref := 'main') WHERE change <> 'same'")
    assert [(row["name"], row["change"]) for row in changed] == [("countries", "rows")]
    reader = open_session()
    reader.fdl("attach", far.repository, alias="p")
    reader.fdl("attach", far.repository, alias="old", ref=one["version"])
    assert reader.value("SELECT sum(customers) FROM p.countries") - reader.value("SELECT count(*) FROM p.countries") \
        == reader.value("SELECT sum(customers) FROM old.countries")
    assert len(reader("FROM p.order_log")) == 5 and len(reader("FROM p.customers_history")) > 0
    # No secret is in what dbt says or keeps.
    for secret in ("hush-secret-key", "hush-write-token"):
        assert secret not in output
        kept = [path for path in far.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert not kept, kept


def test_the_profile_attaches_with_all_options_of_attach_sql(first):
    attach = first.call("checkout", path=first.folder / "other.sqlite", alias="other", attach="false")[0]["attach_sql"]
    wanted = dict(option.split(" ", 1) for option in re.search(r"\((.*)\)$", attach).group(1).split(", "))
    profile = yaml.safe_load((PROJECT / "profiles.yml").read_text(encoding="utf-8"))["shop"]["outputs"]["dev"]
    given = {name: f"'{value}'" if isinstance(value, str) else str(value).lower()
             for name, value in profile["attach"][0]["options"].items()}
    assert given.pop("DATA_PATH") == "'{{ env_var('SHOP_DATA') }}'"
    assert wanted.pop("DATA_PATH") == session.quoted(first.environment["SHOP_DATA"])
    assert given == wanted


def test_the_document_shows_what_is_tested():
    """Each named block is a file of the project; each other block is part of one, or a command that these tests run."""
    text = DOCUMENT.read_text(encoding="utf-8")
    files = {path.relative_to(PROJECT).as_posix(): path.read_text(encoding="utf-8") for path in PROJECT.rglob("*.*") if path.is_file()
             and path.suffix in (".sql", ".yml", ".py")}
    named = dict(re.findall(r"^`([\w./]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", text, re.M | re.S))
    assert {"profiles.yml", "dbt_project.yml", "macros/fdl_publish.sql", "macros/snapshot_staging.sql", "checkout.py", "start.py",
            "models/marts/order_log.sql"} <= set(named)
    for name, block in named.items():
        assert block == files[name], f"docs/dbt.md shows another {name}"
    rest = [block for language in ("yaml", "sql", "jinja", "python") for block in blocks(language) if block not in named.values()]
    assert rest
    for block in rest:
        assert any(block in file for file in files.values()), f"no file of the project has\n{block}"
