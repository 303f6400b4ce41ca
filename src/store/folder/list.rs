//! Looking through a folder: listing, and sweeping up.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use chrono::{DateTime, Utc};
use rustix::fs::FileType;

use super::disk::Disk;
use super::walk;
use crate::store::key::{self, RESERVED_PREFIX};
use crate::store::local::{io_error, is_temp};
use crate::store::{ObjectMeta, StoreError};

/// What lies under a prefix.
#[derive(Default)]
struct Seen {
    objects: Vec<Result<ObjectMeta, StoreError>>,
    half_written: Vec<ObjectMeta>,
}

impl Disk {
    /// Every object under a prefix. What is neither a file nor a folder stands among them as an error of its own, and the
    /// others follow.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Result<ObjectMeta, StoreError>>, StoreError> {
        Ok(self.look_through(prefix)?.objects)
    }

    /// Removes half-written files last touched before a time. Gives the bytes they held.
    pub(super) fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for found in self.look_through("")?.half_written {
            if found.last_modified < before {
                match fs::remove_file(self.root.join(&found.key)) {
                    Ok(()) => bytes += found.size,
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    Err(e) => return Err(io_error(&found.key, "delete", e)),
                }
            }
        }
        Ok(bytes)
    }

    /// Every one of these keys leads to a regular file, through folders and no link. What is not there is no error.
    pub(super) fn check_regular(&self, keys: &[String]) -> Result<(), StoreError> {
        let mut folders: HashSet<&str> = HashSet::new();
        for key in keys {
            key::check(key)?;
            // Once a folder has been walked to, its files are looked at by their path.
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
            let known = !folders.insert(folder);
            if known && fs::symlink_metadata(self.root.join(key)).is_ok_and(|found| found.is_file()) {
                continue;
            }
            match walk::find(&self.root, key, "read") {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A symbolic link is an error rather than left out: whoever takes a listing for all there is (gc) must not miss a
    /// `refs/` or `versions/` that lies elsewhere. Names that cannot be part of a key are left out, as no key leads
    /// there.
    fn look_through(&self, prefix: &str) -> Result<Seen, StoreError> {
        key::check_prefix(prefix)?;
        let mut seen = Seen::default();
        let mut folders = vec![prefix.to_owned()];
        while let Some(folder) = folders.pop() {
            let at = if folder.is_empty() { "/" } else { &folder };
            let (open, entries) = match walk::entries(&self.root, &folder) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                // It was a folder a moment ago, or it is the prefix itself.
                Err(error @ StoreError::NotRegular { .. }) => {
                    seen.objects.push(Err(error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry.map_err(|error| io_error(at, "list", error.into()))?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                let temp = is_temp(name);
                let Some(name) = name.to_str().filter(|name| !matches!(*name, "." | "..")) else { continue };
                let key = format!("{folder}{name}");
                if !temp && !is_key(name, &key) {
                    continue;
                }
                let Some(stat) = walk::look(&open, name, &key)? else { continue };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile if temp => seen.half_written.push(walk::meta(&key, &stat)),
                    _ if temp => {}
                    FileType::RegularFile => seen.objects.push(Ok(walk::meta(&key, &stat))),
                    FileType::Directory => folders.push(key + "/"),
                    other => seen.objects.push(Err(walk::not_regular(&key, "regular file", other))),
                }
            }
        }
        Ok(seen)
    }
}

/// Whether a file, or what is in a folder, can have a key.
fn is_key(name: &str, key: &str) -> bool {
    !name.starts_with(RESERVED_PREFIX) && key::check(key).is_ok()
}
