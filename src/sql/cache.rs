//! The folder of this user's machine where fdl keeps what it may fetch or find out again (docs/sql.md, "Environment").

use std::env;
use std::path::PathBuf;

use super::place::expand;
use super::{Code, Error};

/// `FDL_CACHE_DIR`, else `$XDG_CACHE_HOME/fdl`, else `~/.cache/fdl`. It need not be there. Always absolute: what is
/// remembered of a repository must not depend on where DuckDB was started.
///
/// # Errors
/// FDL-BAD-ARGUMENT for an `FDL_CACHE_DIR` that is relative, and where there is no home folder either.
pub(super) fn cache_root() -> Result<PathBuf, Error> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(given) = set("FDL_CACHE_DIR") {
        let path = expand(&given);
        return match path.is_absolute() {
            true => Ok(path),
            false => {
                let sentence = format!("FDL_CACHE_DIR is {given}, another folder wherever DuckDB is started");
                Err(Error::new(Code::BadArgument, sentence, "set it to an absolute path."))
            }
        };
    }
    // Its specification has relative paths ignored.
    let xdg = set("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(path) = xdg {
        return Ok(path.join("fdl"));
    }
    // Without HOME it is the one of the user database.
    match env::home_dir().filter(|path| path.is_absolute()) {
        Some(home) => Ok(home.join(".cache/fdl")),
        None => Err(Error::new(
            Code::BadArgument,
            "there is no folder for the cache, as this user has no home folder",
            "set FDL_CACHE_DIR to an absolute path.",
        )),
    }
}
