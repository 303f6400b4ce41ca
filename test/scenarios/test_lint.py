"""The lint of the architecture's rules: each rule, broken on purpose, is found, and what only looks like a break is not."""

from pathlib import Path

import pytest

import lint

RIGHT = {
    "a layer below": ("src/repo/push.rs", "use crate::store::Store;\nuse crate::format::{ids, refs};\n"),
    "its own layer": ("src/repo/push.rs", "use crate::repo::open;\nuse super::log;\n"),
    "sql uses everything": ("src/sql/push.rs", "use crate::{repo::push, lake, engine::Rows, host, store, format};\n"),
    "words in comments and strings": ("src/repo/push.rs", "//! DuckDB, unsafe, crate::engine, Utc::now()\nconst A: &str = \"duckdb::x unsafe crate::sql\";\n"),
    "a raw string": ("src/format/x.rs", "const A: &str = r#\"a \"duckdb::x\" unsafe\"#;\nfn f<'a>(x: &'a str) -> char { '\"' }\n"),
    "unsafe where it may be": ("src/engine/raw.rs", "unsafe { call() }\n"),
    "a statement in engine": ("src/engine/raw.rs", "unsafe { ffi::duckdb_query(a, b, c) }\n"),
    "a lint's name": ("src/lib.rs", "#![deny(unsafe_code)]\n"),
    "a submodule of a layer's name": ("src/sql/push.rs", "use super::refs;\nuse self::engine::x;\n"),
    "the one real clock": ("src/format/time.rs", "fn now() { Utc::now() }\n"),
    "the clock in a test": ("src/repo/x.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { Utc::now(); }\n}\n"),
    "relative paths": ("docs/a.md", "see build/work/x, ~/work/x, $HOME/work/x and https://host/work/x\n"),
    "a product's name": ("docs/a.md", "from PyPI or crates.io\n"),
}

WRONG = {
    "repo uses engine": ("src/repo/push.rs", "\nuse crate::engine::Rows;\n", 2, "repo uses engine"),
    "repo uses lake in braces": ("src/repo/push.rs", "use crate::{\n  format::ids,\n  lake::{freeze, thaw},\n};\n", 1, "repo uses lake"),
    "store uses repo in an expression": ("src/store/s3.rs", "fn f() { crate::repo::open() }\n", 1, "store uses repo"),
    "lake uses store by super": ("src/lake/thaw.rs", "use super::super::store::Store;\n", 1, "lake uses store"),
    "lake's mod.rs by super": ("src/lake/mod.rs", "use super::store::Store;\n", 1, "lake uses store"),
    "format uses anything": ("src/format/ids.rs", "use crate::store::Store;\n", 1, "no other layer"),
    "host uses lake": ("src/host/mod.rs", "use crate::lake;\n", 1, "host uses lake"),
    "repo mentions DuckDB": ("src/repo/mod.rs", "use duckdb::Connection;\n", 1, "mentions the crate duckdb"),
    "store mentions DuckDB's C API": ("src/store/mod.rs", "fn f() { libduckdb_sys::x() }\n", 1, "libduckdb_sys"),
    "lake mentions the store crate": ("src/lake/mod.rs", "fn f(x: object_store::path::Path) {}\n", 1, "object_store"),
    "unsafe in repo": ("src/repo/mod.rs", "fn f() {\n    unsafe { g() }\n}\n", 2, "unsafe"),
    "unsafe in lib.rs": ("src/lib.rs", "unsafe fn f() {}\n", 1, "unsafe"),
    "unsafe in a test": ("test/crash.rs", "unsafe fn f() {}\n", 1, "unsafe"),
    "a statement beside engine": ("src/sql/raw.rs", "fn f() {\n    unsafe { ffi::duckdb_query(a, b, c) }\n}\n", 2, "duckdb_query"),
    "the clock": ("src/repo/mod.rs", "fn f() { let t = chrono::Utc::now(); }\n", 1, "instead of being given"),
    "sleeping": ("src/repo/mod.rs", "fn f() { std::thread::sleep(x) }\n", 1, "instead of being given"),
    "an id": ("src/lake/mod.rs", "fn f() { Uuid::now_v7() }\n", 1, "instead of being given"),
    "a new layer": ("src/misc/mod.rs", "\n", 1, "not a layer"),
    "a file beside the layers": ("src/util.rs", "\n", 1, "not in a layer"),
    "a long file": ("src/repo/mod.rs", "// x\n" * 501, 501, "501 lines"),
    "a machine's path": ("docs/a.md", "x\ncd /ho" "me/somebody/fdl\n", 2, "a path of a machine"),
    "a registry's host": ("scripts/a.sh", "curl https://files.python" "hosted.org/x\n", 1, "package registry"),
    "Python that does not parse": ("scripts/a.py", "def f(:\n", 1, "does not parse"),
    "bash that does not parse": ("scripts/a.sh", "#!/usr/bin/env bash\nif true; then\n", 1, "does not parse"),
}


def found(tmp_path, file, text):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    return list(lint.problems(tmp_path))


@pytest.mark.parametrize("name", RIGHT)
def test_lets_pass(tmp_path, name):
    assert found(tmp_path, *RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_finds(tmp_path, name):
    file, text, line, says = WRONG[name]
    problems = found(tmp_path, file, text)
    assert [(path, at) for path, at, _ in problems] == [(Path(file), line)]
    assert says in problems[0][2]
