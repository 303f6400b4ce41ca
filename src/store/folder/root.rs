//! From what a person wrote to the root of a folder store.

use std::fs;
use std::io::ErrorKind;
use std::path::{self, Path, PathBuf};

use url::Url;

use crate::store::StoreError;
use crate::store::local::io_error;

/// The root, absolute and without symbolic links, and the deepest folder of its path that exists (itself, if it does).
pub(super) fn resolve(location: &str) -> Result<(PathBuf, PathBuf), StoreError> {
    let written = match location.get(..6) {
        Some(scheme) if scheme.eq_ignore_ascii_case("file:/") => path_of_url(location)?,
        _ => PathBuf::from(location),
    };
    if location.is_empty() {
        return Err(bad(location, "it is empty"));
    }
    let written = path::absolute(written).map_err(|e| io_error(location, "read", e))?;
    let mut missing = Vec::new();
    for ancestor in written.ancestors() {
        match ancestor.canonicalize() {
            Ok(anchor) if anchor.is_dir() => {
                let mut root = anchor.clone();
                root.extend(missing.iter().rev());
                return Ok((root, anchor));
            }
            Ok(_) => return Err(bad(location, "it, or a part of it, is a file")),
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return Err(bad(location, "it, or a part of it, is a file"));
            }
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(io_error(location, "read", e)),
            Err(_) => missing.push(missing_name(location, ancestor)?),
        }
    }
    Err(bad(location, "no part of its path exists"))
}

/// The last part of a path that does not exist.
fn missing_name<'a>(location: &str, path: &'a Path) -> Result<&'a std::ffi::OsStr, StoreError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(bad(location, "a part of it is a symbolic link that leads nowhere"));
    }
    // None after `..`, whose meaning depends on what does not exist.
    path.file_name().ok_or_else(|| bad(location, "it leads through a folder that does not exist"))
}

fn path_of_url(location: &str) -> Result<PathBuf, StoreError> {
    let url = Url::parse(location).map_err(|_| bad(location, "it is not a URL"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad(location, "in a URL, ? and # of a path are written %3F and %23"));
    }
    url.to_file_path().map_err(|()| bad(location, "the URL of a folder is file:/// and its absolute path"))
}

pub(super) fn bad(location: &str, why: &'static str) -> StoreError {
    StoreError::BadLocation { location: location.to_owned(), why }
}
