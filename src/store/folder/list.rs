//! Listing a folder.

use std::fs::{self, DirEntry, ReadDir};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::disk::{Disk, meta, symbolic_link};
use crate::store::key::{self, RESERVED_PREFIX};
use crate::store::local::io_error;
use crate::store::{ObjectMeta, StoreError};

impl Disk {
    /// Every object under a prefix.
    ///
    /// A symbolic link is an error rather than left out: whoever takes a listing for all there is (gc) must not miss a
    /// `refs/` or `versions/` that lies elsewhere. Names that cannot be part of a key are left out, as no key leads
    /// there.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        key::check_prefix(prefix)?;
        let mut objects = Vec::new();
        let mut folders = vec![prefix.to_owned()];
        self.refuse_links(prefix)?;
        while let Some(folder) = folders.pop() {
            let failed = |e| io_error(if folder.is_empty() { "/" } else { &folder }, "list", e);
            for entry in self.entries(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                    continue;
                };
                let key = format!("{folder}{name}");
                let kind = entry.file_type().map_err(failed)?;
                if name.starts_with(RESERVED_PREFIX) || key::check(&key).is_err() {
                    continue;
                } else if kind.is_symlink() {
                    return Err(symbolic_link(&key));
                } else if kind.is_dir() {
                    folders.push(key + "/");
                } else if kind.is_file() {
                    objects.extend(object(&key, &entry)?);
                }
            }
        }
        Ok(objects)
    }

    /// The entries of a folder; none when it is not there.
    fn entries(&self, folder: &str) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
        let opened: Option<ReadDir> = match fs::read_dir(self.path_of(folder)) {
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

    fn path_of(&self, folder: &str) -> PathBuf {
        self.root.join(folder)
    }
}

/// What is known of a file; nothing when it was deleted since the folder was read.
fn object(key: &str, entry: &DirEntry) -> Result<Option<ObjectMeta>, StoreError> {
    match entry.metadata() {
        Ok(found) => meta(key, &found).map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error(key, "list", e)),
    }
}
