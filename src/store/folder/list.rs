//! Looking through a folder: listing, and sweeping up.

use std::fs::{self, DirEntry, Metadata, ReadDir};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use chrono::{DateTime, Utc};

use super::disk::{Disk, meta, symbolic_link};
use crate::store::key::{self, RESERVED_PREFIX};
use crate::store::local::{io_error, is_temp};
use crate::store::{ObjectMeta, StoreError};

/// What lies under a prefix.
#[derive(Default)]
struct Found {
    objects: Vec<ObjectMeta>,
    half_written: Vec<(PathBuf, Metadata)>,
}

impl Disk {
    /// Every object under a prefix.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        Ok(self.look_through(prefix)?.objects)
    }

    /// Removes half-written files last touched before a time. Gives the bytes they held.
    pub(super) fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for (path, found) in self.look_through("")?.half_written {
            if found.modified().is_ok_and(|touched| DateTime::<Utc>::from(touched) < before) {
                match fs::remove_file(&path) {
                    Ok(()) => bytes += found.len(),
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    Err(e) => return Err(io_error(&path.display().to_string(), "delete", e)),
                }
            }
        }
        Ok(bytes)
    }

    /// A symbolic link is an error rather than left out: whoever takes a listing for all there is (gc) must not miss a
    /// `refs/` or `versions/` that lies elsewhere. Names that cannot be part of a key are left out, as no key leads
    /// there.
    fn look_through(&self, prefix: &str) -> Result<Found, StoreError> {
        key::check_prefix(prefix)?;
        self.refuse_links(prefix)?;
        let mut found = Found::default();
        let mut folders = vec![prefix.to_owned()];
        while let Some(folder) = folders.pop() {
            let failed = |e| io_error(if folder.is_empty() { "/" } else { &folder }, "list", e);
            for entry in self.entries(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                let name = entry.file_name();
                if kind.is_file() && is_temp(&name) {
                    found.half_written.extend(metadata(&entry).map_err(failed)?.map(|of| (entry.path(), of)));
                    continue;
                }
                let Some(key) = name.to_str().and_then(|name| key_of(&folder, name)) else {
                    continue;
                };
                if kind.is_symlink() {
                    return Err(symbolic_link(&key));
                } else if kind.is_dir() {
                    folders.push(key + "/");
                } else if kind.is_file()
                    && let Some(of) = metadata(&entry).map_err(failed)?
                {
                    found.objects.push(meta(&key, &of)?);
                }
            }
        }
        Ok(found)
    }

    /// The entries of a folder; none when it is not there.
    fn entries(&self, folder: &str) -> io::Result<impl Iterator<Item = io::Result<DirEntry>> + use<>> {
        let opened: Option<ReadDir> = match fs::read_dir(self.root.join(folder)) {
            Ok(entries) => Some(entries),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(e) => return Err(e),
        };
        Ok(opened.into_iter().flatten())
    }

    fn refuse_links(&self, prefix: &str) -> Result<(), StoreError> {
        let mut path = self.root.clone();
        for part in prefix.split_terminator('/') {
            path.push(part);
            if path.is_symlink() {
                return Err(symbolic_link(prefix));
            }
        }
        Ok(())
    }
}

/// The key of a file, or of what is in a folder, if it can have one.
fn key_of(folder: &str, name: &str) -> Option<String> {
    let key = format!("{folder}{name}");
    (!name.starts_with(RESERVED_PREFIX) && key::check(&key).is_ok()).then_some(key)
}

/// What is known of a file; nothing when it was deleted since the folder was read.
fn metadata(entry: &DirEntry) -> io::Result<Option<Metadata>> {
    match entry.metadata() {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
