//! Files of this machine on either side of a store: bodies to read, targets of downloads, and what their errors mean.

use std::fs::{File, Permissions};
use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

use super::key::RESERVED_PREFIX;
use super::{Source, StoreError};

/// How the names of half-written files end.
pub(super) const TEMP_SUFFIX: &str = ".tmp";

/// Creates an empty file in `folder` under a name that no listing shows. It is removed when dropped.
///
/// It gets the permissions of any new file (those of the umask), not the private ones of a temporary file: it is about to
/// be renamed to something that others may read.
pub(super) fn temp_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(RESERVED_PREFIX).suffix(TEMP_SUFFIX).rand_bytes(16);
    #[cfg(unix)]
    let builder = builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Fills a file of this machine and gives it its name only when it is whole; an existing file is replaced.
///
/// Not synced: the target is a copy, and whoever keeps it checks it by its hash.
pub(super) fn replace_file<T>(target: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut temp = temp_in(folder)?;
    let filled = fill(temp.as_file_mut())?;
    temp.persist(target)?;
    Ok(filled)
}

/// What it means that a file of this machine, which is no object of the store, could not be read or written.
pub(super) fn local_error(path: &Path, action: &'static str, error: io::Error) -> StoreError {
    let key = path.display().to_string();
    match error.kind() {
        // `NotFound` would say that the object is missing.
        io::ErrorKind::NotFound => StoreError::Failed { key, action, source: Box::new(error) },
        _ => io_error(&key, action, error),
    }
}

/// Maps an error of a file system to the closed list.
pub(super) fn io_error(key: &str, action: &'static str, error: io::Error) -> StoreError {
    use io::ErrorKind as Kind;
    let key = key.to_owned();
    let kind = error.kind();
    let source: Source = Box::new(error);
    let reading = action == "read";
    match kind {
        Kind::NotFound => StoreError::NotFound { key },
        // Nothing can be behind an object, or be an object where a folder is.
        Kind::NotADirectory | Kind::IsADirectory if reading => StoreError::NotFound { key },
        Kind::NotADirectory => {
            StoreError::BadKey { key, why: "a part of it is an object, which cannot be a folder as well" }
        }
        Kind::IsADirectory | Kind::DirectoryNotEmpty => {
            StoreError::BadKey { key, why: "there is a folder of that name" }
        }
        Kind::InvalidFilename => {
            StoreError::BadKey { key, why: "the file system does not take such a name (it may be too long)" }
        }
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => StoreError::Permission { key, action, source },
        Kind::StorageFull | Kind::QuotaExceeded => StoreError::NoSpace { key, source },
        _ => StoreError::Failed { key, action, source },
    }
}
