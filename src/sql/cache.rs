//! The folder of this user's machine where fdl keeps what it may fetch or find out again (docs/sql.md, "Environment").

use std::env;
use std::path::PathBuf;

use super::place::expand;

/// `FDL_CACHE_DIR`, else `$XDG_CACHE_HOME/fdl`, else `~/.cache/fdl`. It need not be there.
pub(super) fn cache_root() -> PathBuf {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    set("FDL_CACHE_DIR")
        .map(|path| expand(&path))
        .or_else(|| set("XDG_CACHE_HOME").map(|path| PathBuf::from(path).join("fdl")))
        .unwrap_or_else(|| expand("~/.cache/fdl"))
}
