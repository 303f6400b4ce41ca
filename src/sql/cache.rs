//! The folder of this user's machine where fdl keeps what it may fetch or find out again (docs/sql.md, "Environment").

use std::path::{Path, PathBuf};
use std::{env, fs};

use tempfile::TempDir;

use super::place::expand;
use super::{Code, Error};
use crate::lake::LakeError;

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

/// A folder of the cache that nobody else may write to, made where it is not there: what is read from it was checked before.
///
/// # Errors
/// Those of [`cache_root`], FDL-PERMISSION for a folder of somebody else's, and the system's.
pub(super) fn private_folder(name: &str) -> Result<PathBuf, Error> {
    let root = cache_root()?;
    let folder = root.join(name);
    for path in [&root, &folder] {
        make_private(path)?;
    }
    Ok(folder)
}

/// A folder that goes with its value, and that nobody else may look into.
///
/// # Errors
/// The system's.
pub(super) fn temporary_folder() -> Result<TempDir, Error> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("fdl-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    Ok(builder.tempdir().map_err(|source| LakeError::Io { action: "create", path: env::temp_dir(), source })?)
}

#[cfg(unix)]
fn make_private(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

    let failed = |action, source| Error::from(LakeError::Io { action, path: path.to_owned(), source });
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| failed("create", source))?;
    let found = fs::metadata(path).map_err(|source| failed("read", source))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let sentence = format!(
            "the cache folder {} belongs to another user, who could change what is read from it",
            path.display()
        );
        return Err(Error::new(Code::Permission, sentence, "set FDL_CACHE_DIR to a folder of your own."));
    }
    let others_write = found.mode() & 0o022 != 0;
    if others_write {
        let mode = fs::Permissions::from_mode(found.mode() & 0o7777 & !0o022);
        fs::set_permissions(path, mode).map_err(|source| failed("change", source))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn make_private(path: &Path) -> Result<(), Error> {
    // The profile of a user is the user's own.
    Ok(fs::create_dir_all(path).map_err(|source| LakeError::Io { action: "create", path: path.to_owned(), source })?)
}
