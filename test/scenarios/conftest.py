"""What every scenario uses: the real DuckDB shell, the Python package, and child interpreters for the other DuckDB versions.

Each test runs in an empty working directory with an empty home, so that nothing of the machine or of another test plays in.
"""

import json
import os
import subprocess
import sys
import tempfile

import pytest

import layout
import places
import presigned
import repository as repositories
import session
import story
from session import quoted

AUTHOR = "Test <test@example.org>"
FOREIGN = ("FDL_", "AWS_", "XDG_", "DBT_", "DUCKDB_", "GIT_")


class Result:
    """How a process ended: `rc`, `out`, `err`; and the JSON it printed: `results`, one for each statement with rows, `rows` of the last."""

    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    @property
    def results(self):
        return list(json_values(self.out))

    @property
    def rows(self):
        results = self.results
        return results[-1] if results else []

    def __repr__(self):
        return f"rc {self.rc}\n--- out\n{self.out}\n--- err\n{self.err}"


class Process:
    """A started process. Use `wait` for its Result, `kill` to end it at once (as a crash would).

    Its input and output are files, so that it never waits for the test.
    """

    def __init__(self, command, text, **how):
        self.files = [tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(3)]
        self.files[0].write(text)
        self.files[0].seek(0)
        stdin, stdout, stderr = self.files
        self.popen = subprocess.Popen([str(word) for word in command], stdin=stdin, stdout=stdout, stderr=stderr, **how)

    def wait(self, timeout=100):
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} seconds\n{self.kill()}") from None
        texts = []
        for file in self.files[1:]:
            file.seek(0)
            texts.append(file.read())
        return Result(self.popen.returncode, *texts)

    def kill(self):
        self.popen.kill()
        return self.wait()


def json_values(text):
    """The JSON values that stand one after another in the text; what is not JSON (a .print, a progress line) is passed over."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        starts = [place for place in (text.find("[", at), text.find("{", at)) if place >= 0]
        if not starts:
            return
        try:
            value, at = decoder.raw_decode(text, min(starts))
        except ValueError:
            at = min(starts) + 1
            continue
        yield value


def environment(extra=None):
    return {**os.environ, **{name: str(value) for name, value in (extra or {}).items()}}


class Shell:
    """`shell(sql)` runs the DuckDB shell with fdl loaded and fails the test when a statement fails (unless check=False);
    `shell.start(sql)` gives the running Process instead."""

    def start(self, sql, version=layout.MAIN, db=":memory:", cwd=None, load=True, json=True, args=(), env=None, extensions=None):
        program = layout.shell(version)
        assert program.exists(), f"{program} is not there; run `make setup`"
        setting = f"SET extension_directory = {quoted(extensions or layout.EXTENSIONS)};"
        command = [program, "-unsigned", "-bail", *(["-json"] if json else []), "-cmd", setting]
        if load:
            command += ["-cmd", f"LOAD {quoted(layout.extension())};"]
        return Process([*command, *args, db], sql, cwd=cwd, env=environment(env))

    def __call__(self, sql, check=True, timeout=100, **how):
        result = self.start(sql, **how).wait(timeout)
        assert not check or result.rc == 0, f"the shell failed on:\n{sql}\n{result}"
        return result


class Python:
    """`python(code, version)` runs code in a child interpreter with that DuckDB version; `connect`, `rows`, `quoted`, `json` and
    `duckdb` are there already. What it prints as JSON is in `results`. `python.start` gives the running Process instead."""

    PRELUDE = "import json, duckdb\nfrom session import connect, rows, quoted\n"

    def start(self, code, version=layout.MAIN, cwd=None, env=None):
        package = layout.python_package(version)
        assert package is None or package.exists(), f"{package} is not there; run `make setup`"
        path = [*([package] if package else []), layout.ROOT / "test" / "scenarios", layout.ROOT / "scripts"]
        variables = environment({**(env or {}), "PYTHONPATH": os.pathsep.join(map(str, path))})
        return Process([sys.executable, "-c", self.PRELUDE + code], "", cwd=cwd, env=variables)

    def __call__(self, code, version=layout.MAIN, check=True, timeout=100, **how):
        result = self.start(code, version, **how).wait(timeout)
        assert not check or result.rc == 0, f"the code failed:\n{code}\n{result}"
        return result


@pytest.fixture(scope="session", autouse=True)
def built():
    assert layout.extension().exists(), f"{layout.extension()} is not there; run `make` first"


def clear(patch):
    """Takes the machine's settings out of the environment."""
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            patch.delenv(name)


@pytest.fixture(autouse=True)
def bare(tmp_path_factory, monkeypatch):
    """An empty working directory and home, and none of the machine's settings. Gives the working directory."""
    clear(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("FDL_AUTHOR", AUTHOR)
    work = tmp_path_factory.mktemp("work")
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def shell():
    return Shell()


@pytest.fixture
def python():
    return Python()


@pytest.fixture
def connect():
    """`connect(database)` in this process, DuckDB's main version; the connections are closed after the test."""
    made = []

    def make(*arguments, **named):
        made.append(session.connect(*arguments, **named))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def open_session(connect):
    """`open_session()` gives a story.Session in this process, with a database of its own."""
    return lambda *arguments, **named: story.Session(connect(*arguments, **named))


def pytest_generate_tests(metafunc):
    """A story plays in a folder; one with the mark `everywhere` in every kind of place."""
    if "repository" in metafunc.fixturenames:
        everywhere = metafunc.definition.get_closest_marker("everywhere")
        metafunc.parametrize("repository", places.PLACES if everywhere else places.PLACES[:1], indirect=True)


@pytest.fixture(scope="session")
def moto():
    """An S3 for all tests, each of which takes a bucket of its own."""
    with pytest.MonkeyPatch.context() as patch:
        clear(patch)
        server = places.Moto()
    yield server
    server.close()


@pytest.fixture(scope="session")
def host(tmp_path_factory, built):
    """A process that serves the folders of all tests, each at an address of its own."""
    with pytest.MonkeyPatch.context() as patch:
        clear(patch)
        patch.chdir(tmp_path_factory.mktemp("host"))
        process = places.Host(HOME=str(tmp_path_factory.mktemp("host-home")))
    yield process
    process.close()


@pytest.fixture(scope="session")
def checked_moto(moto):
    """The same S3, which takes signed URLs for what was signed alone."""
    with presigned.Checked(moto.endpoint, {"host": "hush-host-secret"}) as server:
        yield server


@pytest.fixture(scope="session")
def s3_host(tmp_path_factory, checked_moto, built):
    """A process that serves buckets, each at an address of its own. It has keys for S3, and nobody else has."""
    with pytest.MonkeyPatch.context() as patch:
        clear(patch)
        patch.chdir(tmp_path_factory.mktemp("s3-host"))
        process = places.Host(HOME=str(tmp_path_factory.mktemp("s3-host-home")), AWS_ACCESS_KEY_ID="host", AWS_SECRET_ACCESS_KEY="hush-host-secret",
                              AWS_REGION="us-east-1", AWS_ENDPOINT_URL=checked_moto.url)
    yield process
    process.close()


@pytest.fixture
def new_place(request, bare, monkeypatch):
    """`new_place("s3")` gives an empty place of that kind, and puts what its sessions need into the environment."""
    made = []

    def make(kind, **options):
        path = bare.parent / f"{bare.name}-repository{len(made) or ''}"
        if kind == "folder":
            place = places.Folder(path)
        elif kind == "s3":
            moto = request.getfixturevalue("moto")
            place = places.S3(moto.endpoint, moto.bucket())
        elif kind == "hosted s3":
            moto = request.getfixturevalue("moto")
            place = places.HostedS3(moto.endpoint, moto.bucket(), request.getfixturevalue("s3_host"), **options)
        else:
            place = places.Http(request.getfixturevalue("host"), path, **options)
        made.append(place)
        for name, value in place.variables.items():
            monkeypatch.setenv(name, value)
        return place

    yield make
    for place in made:
        place.close()


@pytest.fixture
def repository(request, new_place):
    """A repository that fdl_init has just started. The stories use nothing but this to say where it is."""
    place = new_place(request.param)
    connection = session.connect()
    connection.execute(f"CALL fdl_init({quoted(place.location)})")
    connection.close()
    return place


@pytest.fixture
def place(new_place):
    """An open host whose writers hold the token that is in FDL_TOKEN, with an empty folder."""
    return new_place("http")


@pytest.fixture
def writer(place, open_session):
    """A session that has published one version of the table t, tagged v1."""
    session = open_session()
    session.fdl("init", place.location)
    session.checkout(place.location)
    session("CREATE TABLE lake.t AS SELECT range AS a FROM range(10)")
    session.first = session.publish("one", tag="v1")["new_version"]
    return session


@pytest.fixture
def in_another_process_nothing_differs(python, repository):
    """Asserts that a version, attached in a process of its own, holds what the working catalog holds."""

    def check(attach_sql, ref=None):
        code = f"from story import *\nsay(published_differs({repository.location!r}, {repository.setup!r}, {attach_sql!r}, {ref!r}))"
        assert python(code).rows == []

    return check


@pytest.fixture
def fresh_extensions(tmp_path):
    """An extension directory of its own for a test that runs INSTALL: DuckDB's extensions as links, no fdl."""
    target = tmp_path / "extensions"
    for file in layout.EXTENSIONS.glob("*/*/*.duckdb_extension"):
        link = target / file.relative_to(layout.EXTENSIONS)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return target


@pytest.fixture(params=list(layout.SUPPORTED))
def any_version(request):
    """Every supported DuckDB version in turn."""
    return request.param


@pytest.fixture(scope="session")
def repository_template(tmp_path_factory, built):
    """Built once; `repo` gives each test its copy."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDL_AUTHOR", AUTHOR)
        repositories.build(folder)
    return folder


@pytest.fixture
def repo(repository_template, bare):
    """A repository of two versions, `repo` in the working directory, with tags v1 and v2."""
    return repositories.Repo(repository_template)
