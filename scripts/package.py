#!/usr/bin/env python3
"""Makes a DuckDB extension of the library that cargo built, and a folder to INSTALL it from.

    scripts/package.py                    target/release/libfdl.so -> build/release/fdl.duckdb_extension, build/repository/
    scripts/package.py --profile debug    target/debug/libfdl.so   -> build/debug/fdl.duckdb_extension

One binary serves every supported DuckDB: it uses only the stable part of DuckDB's C API, and its footer says so.
"""

import argparse
import gzip
import os
import sys
from pathlib import Path

import layout

ABI = "C_STRUCT"  # the stable C API, handed over as a struct of functions
C_API = "v1.2.0"  # the first version with all that we call; DuckDB loads it from there on


def footer(version, platform):
    """What DuckDB reads at the end of an extension file.

    It is shaped as a WebAssembly custom section (so that the same reader serves both): section id 0, the length of what
    follows (531) in LEB128, a name of 16 bytes, the length of the content (512) in LEB128; then eight fields of 32
    zero-padded bytes and 256 bytes of signature, all zero for an extension that is not signed.
    """
    fields = ["", "", "", ABI, version, C_API, platform, "4"]
    out = b"\x00" + b"\x93\x04" + b"\x10" + b"duckdb_signature" + b"\x80\x04"
    for field in fields:
        raw = field.encode("ascii")
        if len(raw) > 32:
            raise SystemExit(f"package: {field!r} does not fit in the 32 bytes of a footer field.")
        out += raw.ljust(32, b"\x00")
    return out + b"\x00" * 256


def write(path, content):
    """Whole or not at all: a DuckDB that has the old file mapped keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    temp.write_bytes(content)
    os.replace(temp, path)


def package(library, output, repository, platform):
    try:
        code = library.read_bytes()
    except OSError as error:
        sys.exit(f"package: cannot read the library {library} ({error.strerror}); build it first with `make`.")
    if b"fdl_init_c_api" not in code:
        sys.exit(f"package: {library} has no entry point fdl_init_c_api, so DuckDB could not load it.")
    content = code + footer(layout.extension_version(), platform)
    write(output, content)
    print(f"{show(output)}: {len(content) / 1e6:.1f} MB, {platform}, fdl {layout.extension_version()}, C API {C_API}")
    if repository:
        packed = gzip.compress(content, compresslevel=6, mtime=0)  # no time in it: the same input gives the same bytes
        for version in layout.SUPPORTED:
            write(repository / f"v{version}" / platform / "fdl.duckdb_extension.gz", packed)
        print(f"{show(repository)}: for DuckDB {', '.join(layout.SUPPORTED)}")


def show(path):
    return os.path.relpath(path, layout.ROOT) if path.is_relative_to(layout.ROOT) else path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=["release", "debug"], default="release")
    parser.add_argument("--library", type=Path, help="the built library (default: where cargo leaves it)")
    parser.add_argument("--output", type=Path, help="the extension to write (default: build/<profile>/fdl.duckdb_extension)")
    parser.add_argument("--repository", type=Path, help="the folder to INSTALL from (default: build/repository, release only)")
    parser.add_argument("--platform", help="DuckDB's name for the target machine (default: this one)")
    arguments = parser.parse_args()
    repository = arguments.repository or (layout.REPOSITORY if arguments.profile == "release" else None)
    package((arguments.library or layout.library(arguments.profile)).absolute(),
            (arguments.output or layout.extension(arguments.profile)).absolute(),
            repository and repository.absolute(),
            arguments.platform or layout.platform())


if __name__ == "__main__":
    main()
