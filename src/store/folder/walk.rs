//! Opening what lies below the root, part by part from one open folder to the next, so that no link is ever followed:
//! not one that was there, and not one that is put in the way in between.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use chrono::{DateTime, Utc};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, statat};
use rustix::io::Errno;

use crate::store::local::io_error;
use crate::store::{ObjectMeta, StoreError};

/// A folder on the way, which is only passed through.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const PASS: OFlags = OFlags::RDONLY;

/// An object: the folder that it is in, and what is known of it there. Always a regular file.
pub(super) struct Found<'a> {
    key: &'a str,
    folder: OwnedFd,
    stat: Stat,
}

/// Finds the object of a key that has been checked.
pub(super) fn find<'a>(root: &Path, key: &'a str, action: &'static str) -> Result<Found<'a>, StoreError> {
    let missing = || StoreError::NotFound { key: key.to_owned() };
    let (path, name) = key.rsplit_once('/').unwrap_or(("", key));
    let folder = folder(root, path, PASS, action)?.ok_or_else(missing)?;
    let stat = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(missing()),
        Err(error) => return Err(io_error(key, action, error.into())),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Found { key, folder, stat }),
        FileType::Directory => Err(missing()),
        other => Err(not_regular(key, "regular file", other)),
    }
}

impl Found<'_> {
    /// Opens it. Never waits: what has become a pipe meanwhile is no object either.
    pub(super) fn open(self, action: &'static str) -> Result<File, StoreError> {
        let name = self.key.rsplit('/').next().unwrap_or(self.key);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(&self.folder, name, flags, Mode::empty());
        let failed = |error: Errno| match error {
            Errno::LOOP | Errno::MLINK => not_regular(self.key, "regular file", FileType::Symlink),
            error => io_error(self.key, action, error.into()),
        };
        let opened = opened.map_err(failed)?;
        match FileType::from_raw_mode(fstat(&opened).map_err(failed)?.st_mode) {
            FileType::RegularFile => Ok(opened.into()),
            FileType::Directory => Err(StoreError::NotFound { key: self.key.to_owned() }),
            other => Err(not_regular(self.key, "regular file", other)),
        }
    }

    pub(super) fn meta(&self) -> ObjectMeta {
        meta(self.key, &self.stat)
    }
}

/// Opens a folder below the root to read its entries; none when it is not there.
pub(super) fn entries(root: &Path, path: &str) -> Result<Option<(OwnedFd, Dir)>, StoreError> {
    let Some(folder) = folder(root, path, OFlags::RDONLY, "list")? else { return Ok(None) };
    let dir = Dir::read_from(&folder).map_err(|error| io_error(shown(path), "list", error.into()))?;
    Ok(Some((folder, dir)))
}

/// What is known of an entry of a folder, itself and not what it leads to; none when it is gone.
pub(super) fn look(folder: &OwnedFd, name: &str, key: &str) -> Result<Option<Stat>, StoreError> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(io_error(key, "list", error.into())),
    }
}

/// Opens a folder; the last one with these flags. None when it, or one on the way, is missing or a file.
fn folder(root: &Path, path: &str, last: OFlags, action: &'static str) -> Result<Option<OwnedFd>, StoreError> {
    let always = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let flags = |at_last: bool| if at_last { last } else { PASS };
    let mut parts = path.split_terminator('/').peekable();
    // The root may be reached by a link.
    let mut folder = match open(root, always | flags(parts.peek().is_none()), Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(io_error(shown(path), action, error.into())),
    };
    let mut walked = 0;
    while let Some(part) = parts.next() {
        walked += part.len() + 1;
        let here = path.get(..walked.saturating_sub(1)).unwrap_or(path);
        folder = match openat(&folder, part, always | OFlags::NOFOLLOW | flags(parts.peek().is_none()), Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOENT) => return Ok(None),
            Err(error @ (Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => {
                return match statat(&folder, part, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                        FileType::RegularFile => Ok(None),
                        // It has become one since.
                        FileType::Directory => Err(io_error(here, action, error.into())),
                        other => Err(not_regular(here, "folder", other)),
                    },
                    Err(Errno::NOENT) => Ok(None),
                    Err(error) => Err(io_error(here, action, error.into())),
                };
            }
            Err(error) => return Err(io_error(here, action, error.into())),
        };
    }
    Ok(Some(folder))
}

/// A folder in messages.
fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path.trim_end_matches('/') }
}

/// What is said of what is neither a file nor a folder.
pub(super) fn not_regular(key: &str, wanted: &'static str, found: FileType) -> StoreError {
    let found = match found {
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Unknown => "something that this system has no name for",
    };
    StoreError::NotRegular { key: key.to_owned(), wanted, found }
}

pub(super) fn meta(key: &str, stat: &Stat) -> ObjectMeta {
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
    ObjectMeta {
        key: key.to_owned(),
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        last_modified: DateTime::<Utc>::from_timestamp(stat.st_mtime, nanos).unwrap_or_default(),
        etag: None,
    }
}
