"""Repositories that somebody with write access has made to attack their readers. Every hash in them is right."""

import hashlib
import json
import shutil
import struct
from pathlib import Path

import session
from session import quoted

MASK = (1 << 64) - 1
HEADERS = 3 * 4096


def records(repository):
    """Every version.json, the oldest first."""
    return sorted(Path(repository).glob("versions/*/version.json"))


def seal(record):
    """Makes a record vouch for the catalog beside it."""
    content, catalog = json.loads(record.read_text()), record.with_name("ducklake.duckdb").read_bytes()
    content["sha256"], content["size"] = hashlib.sha256(catalog).hexdigest(), len(catalog)
    record.write_text(json.dumps(content))


def forge(repository, *statements, without_json=False, database="forged"):
    """Runs SQL on the catalog of the newest version. With `without_json` a reader has to look into the catalog for what it holds."""
    record = records(repository)[-1]
    catalog = record.with_name("ducklake.duckdb")
    with session.connect() as connection:
        connection.execute(f"ATTACH {quoted(catalog)} AS {database}; USE {database}")
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"USE memory; DETACH {database}")
    if without_json:
        for name in ("dataset.json", "files.json"):
            record.with_name(name).unlink(missing_ok=True)
    seal(record)
    return record.parent.name


def another(repo, target):
    """A copy of a repository to be forged."""
    shutil.copytree(repo, target)
    return target


def word_checksum(content):
    """DuckDB's checksum over the whole words of a block."""
    total = 5381
    for (word,) in struct.iter_unpack("<Q", content):
        total ^= (word * 0xBF58476D1CE4E5B9) & MASK
    return total


def blocks(content):
    """Where the blocks of a DuckDB file with blocks of 16 KiB begin."""
    return range(HEADERS, len(content), 16384)


def flip(repository, at, bit):
    """Flips a bit in a block of the newest catalog and mends the block's checksum and the record, so that nothing looks wrong."""
    record = records(repository)[-1]
    catalog = record.with_name("ducklake.duckdb")
    content = bytearray(catalog.read_bytes())
    start = HEADERS + (at - HEADERS) // 16384 * 16384
    at = max(at, start + 8)
    content[at] ^= 1 << bit
    struct.pack_into("<Q", content, start, word_checksum(content[start + 8:start + 16384]))
    catalog.write_bytes(content)
    seal(record)
