//! Files of this machine on either side of a store: bodies to read, targets of downloads, and what their errors mean.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

use super::key::RESERVED_PREFIX;
use super::{Source, StoreError};

/// How the names of half-written files end.
const TEMP_SUFFIX: &str = ".tmp";

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

/// Whether a file of this name is one of [`temp_in`].
pub(super) fn is_temp(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(RESERVED_PREFIX) && name.ends_with(TEMP_SUFFIX))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the file system's own numbers come to.
    #[cfg(unix)]
    #[test]
    fn maps_errors_of_the_file_system() {
        let map = |number, action| io_error("k", action, io::Error::from_raw_os_error(number));
        for number in [libc::EACCES, libc::EPERM, libc::EROFS] {
            let error = map(number, "write");
            assert!(matches!(error, StoreError::Permission { action: "write", .. }), "{error:?}");
        }
        for number in [libc::ENOSPC, libc::EDQUOT] {
            let error = map(number, "write");
            assert!(matches!(error, StoreError::NoSpace { .. }), "{error:?}");
        }
        for number in [libc::ENOENT, libc::ENOTDIR, libc::EISDIR] {
            let error = map(number, "read");
            assert!(matches!(error, StoreError::NotFound { .. }), "{error:?}");
        }
        for number in [libc::ENOTDIR, libc::EISDIR, libc::ENOTEMPTY, libc::ENAMETOOLONG] {
            let error = map(number, "write");
            assert!(matches!(error, StoreError::BadKey { .. }), "{error:?}");
        }
        let error = map(libc::EIO, "write");
        assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    }

    #[test]
    fn a_missing_file_of_this_machine_is_no_missing_object() {
        let error = local_error(Path::new("/x"), "read", io::ErrorKind::NotFound.into());
        assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    }

    #[test]
    fn a_file_that_cannot_be_filled_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        std::fs::write(&target, "kept").unwrap();
        let failed = replace_file(&target, |_| Err::<(), _>(io::ErrorKind::BrokenPipe.into()));
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
