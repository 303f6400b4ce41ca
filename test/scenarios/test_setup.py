"""scripts/setup.py: does nothing when all is there, goes on where a stopped run left off, and says in one sentence what is missing."""

import os
import shutil
import subprocess
import sys
import time

import pytest

import layout
import setup


def run(root, env=(), *arguments):
    return subprocess.run([sys.executable, str(root / "scripts" / "setup.py"), *arguments], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **dict(env)})


@pytest.fixture
def copy(tmp_path):
    """A fresh checkout, as far as set-up is concerned."""
    shutil.copytree(layout.ROOT / "scripts", tmp_path / "scripts")
    return tmp_path


def test_nothing_to_do_is_quick_and_silent():
    start = time.monotonic()
    done = run(layout.ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - start < 5


def test_every_part_is_where_the_layout_says():
    for version, has in layout.SUPPORTED.items():
        assert layout.shell(version).exists() == has["shell"]
        for name in layout.TEST_EXTENSIONS if has["extensions"] else []:
            assert (layout.EXTENSIONS / f"v{version}" / layout.platform() / f"{name}.duckdb_extension").exists()
    assert sorted(path.name for path in layout.FLIGHTS.iterdir()) == [
        "airlines.csv", "airports.csv", "flights.csv.gz", "planes.csv", "weather.csv"]


def test_python_packages_are_the_versions_they_say(python, any_version):
    assert python("print(json.dumps(duckdb.__version__))\nprint(json.dumps([duckdb.__version__]))", version=any_version).rows == [any_version]


def test_a_stopped_part_is_made_again_and_a_finished_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "BUILD", tmp_path)
    monkeypatch.setattr(setup, "TEMP", tmp_path / "temp")
    made = []

    def stopped(temp):
        (temp / "half").touch()
        raise KeyboardInterrupt

    def whole(temp):
        assert list(temp.iterdir()) == [], "a part starts in an empty folder"
        (temp / "whole").touch()
        setup.replace(temp / "whole", tmp_path / "part" / "whole")
        made.append(1)

    present = [tmp_path / "part" / "whole"]
    with pytest.raises(KeyboardInterrupt):
        setup.part("part", ["1"], present, stopped)
    for _ in range(2):
        setup.part("part", ["1"], present, whole)
    assert len(made) == 1
    setup.part("part", ["another version"], present, whole)
    assert len(made) == 2
    present[0].unlink()
    setup.part("part", ["another version"], present, whole)
    assert len(made) == 3


def test_no_network_is_one_sentence(copy):
    nowhere = "http://127.0.0.1:9"  # nothing listens on the discard port
    done = run(copy, {"HTTPS_PROXY": nowhere, "https_proxy": nowhere, "PIP_RETRIES": "1", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"})
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"setup: could not fetch duckdb-cli=={layout.MAIN}: the Python package index cannot be reached; "
        "check the network or the proxy (all of it: build/setup.log)."]


def test_no_venv_module_is_one_sentence(copy):
    (copy / "broken" / "ensurepip").mkdir(parents=True)
    (copy / "broken" / "ensurepip" / "__init__.py").write_text("raise ImportError")
    done = run(copy, {"PYTHONPATH": str(copy / "broken")})
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "install python3-venv" in done.stderr
