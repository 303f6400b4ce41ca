"""The packaged extension: the footer's bytes, the folder to INSTALL from, and that every supported DuckDB loads it."""

import gzip
import subprocess
import sys

import pytest

import layout
import package

FOOTER = 534
LIBRARY = b"\x7fELF a library with fdl_init_c_api in it"


def run(*arguments):
    command = [sys.executable, layout.ROOT / "scripts" / "package.py", *arguments]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)


def test_footer_is_what_duckdb_reads():
    content = layout.extension().read_bytes()
    footer = content[-FOOTER:]
    assert footer[:22] == b"\x00\x93\x04\x10duckdb_signature\x80\x04"
    fields = [footer[22 + 32 * at:54 + 32 * at].rstrip(b"\x00").decode() for at in range(8)]
    assert fields == ["", "", "", "C_STRUCT", layout.extension_version(), "v1.2.0", layout.platform(), "4"]
    assert footer[-256:] == bytes(256)
    same = content[:-FOOTER] == layout.library().read_bytes()
    assert same, "the packaged library is not the one that was built last"


def test_footer_has_the_shape_of_duckdbs_own():
    own = next(layout.EXTENSIONS.glob(f"v{layout.MAIN}/*/ducklake.duckdb_extension"))
    theirs, ours = own.read_bytes()[-FOOTER:], package.footer("0.1.0", layout.platform())
    assert len(ours) == FOOTER
    assert theirs[:22 + 3 * 32] == ours[:22 + 3 * 32]
    assert theirs[22 + 6 * 32:22 + 8 * 32] == ours[22 + 6 * 32:22 + 8 * 32]


def test_repository_has_the_extension_for_every_version():
    for version in layout.SUPPORTED:
        packed = layout.REPOSITORY / f"v{version}" / layout.platform() / "fdl.duckdb_extension.gz"
        same = gzip.decompress(packed.read_bytes()) == layout.extension().read_bytes()
        assert same, packed


@pytest.mark.parametrize("name", ["libfdl.so", "libfdl.dylib"])
def test_packages_a_library_of_either_system(tmp_path, name):
    (tmp_path / name).write_bytes(LIBRARY)
    done = run("--library", tmp_path / name, "--output", tmp_path / "fdl.duckdb_extension", "--repository", tmp_path / "repository",
               "--platform", "osx_arm64")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fdl.duckdb_extension").read_bytes() == LIBRARY + package.footer(layout.extension_version(), "osx_arm64")
    assert sorted(path.parent.parent.name for path in (tmp_path / "repository").glob("*/osx_arm64/fdl.duckdb_extension.gz")) == \
        sorted(f"v{version}" for version in layout.SUPPORTED)


def test_refuses_what_duckdb_could_not_load(tmp_path):
    done = run("--library", tmp_path / "none.so", "--output", tmp_path / "x")
    assert done.returncode != 0 and "build it first" in done.stderr and "Traceback" not in done.stderr
    (tmp_path / "other.so").write_bytes(b"something else")
    done = run("--library", tmp_path / "other.so", "--output", tmp_path / "x", "--repository", tmp_path / "repository")
    assert done.returncode != 0 and "fdl_init_c_api" in done.stderr
    assert not (tmp_path / "x").exists() and not (tmp_path / "repository").exists()


def test_installs_from_the_folder(python, fresh_extensions, any_version):
    done = python(f"""
c = connect(load=False, extensions={str(fresh_extensions)!r})
c.execute("INSTALL fdl FROM " + quoted({str(layout.REPOSITORY)!r}) + "; LOAD fdl")
print(json.dumps([duckdb.__version__, rows(c, "FROM fdl_version()")[0]["fdl"]]))
""", version=any_version)
    assert done.results == [[any_version, layout.extension_version()]]


def test_installs_in_the_shell(shell, fresh_extensions):
    install = f"INSTALL fdl FROM '{layout.REPOSITORY}'; LOAD fdl; FROM fdl_version();"
    for version, has in layout.SUPPORTED.items():
        if has["shell"]:
            assert shell(install, version=version, load=False, extensions=fresh_extensions).rows[0]["fdl"] == layout.extension_version()


def test_loads_the_file_in_this_process(connect):
    assert connect().execute("SELECT fdl FROM fdl_version()").fetchone() == (layout.extension_version(),)


def test_platform_is_duckdbs_own_word(shell):
    assert shell("PRAGMA platform", load=False).rows == [{"platform": layout.platform()}]
