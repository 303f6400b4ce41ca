//! The blocking half of a folder store: what each request does on the disk.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use tempfile::NamedTempFile;

use super::lock::Lock;
use crate::store::local::{io_error, is_temp, local_error, replace_file, temp_in};
use crate::store::{Body, ConditionalWrite, ETag, Object, ObjectMeta, StoreError, key};

/// How often a write makes its folder anew when a delete took it away in between.
const FOLDER_TRIES: usize = 10;

/// A half-written object under `refs/`, a moment's work, belongs to nobody after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Disk {
    /// Absolute, without symbolic links. Need not exist.
    pub(super) root: PathBuf,
    /// The deepest folder that existed when the store was opened, `root` or one above it: new folders are durable once
    /// every folder down from here is.
    pub(super) anchor: PathBuf,
    /// How long a writer waits for the others.
    pub(super) lock_wait: Duration,
    /// Whether to try an atomic create. Always, but in the test of the way around it.
    pub(super) atomic_create: bool,
}

/// Where an object is or would be.
struct Place<'a> {
    key: &'a str,
    path: PathBuf,
    /// What is there now.
    found: Option<Metadata>,
}

impl Disk {
    pub(super) fn get(&self, key: &str) -> Result<Object, StoreError> {
        let (mut file, _) = self.open(key)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(|e| io_error(key, "read", e))?;
        let etag = ETag::of_content(&content);
        let bytes = content.into();
        Ok(Object { bytes, etag })
    }

    pub(super) fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let (mut file, _) = self.open(key)?;
        let length = range.end.saturating_sub(range.start);
        let mut content = Vec::new();
        let read = file.seek(SeekFrom::Start(range.start)).and_then(|_| file.take(length).read_to_end(&mut content));
        read.map_err(|e| io_error(key, "read", e))?;
        Ok(content.into())
    }

    pub(super) fn download(&self, key: &str, target: &Path) -> Result<u64, StoreError> {
        let (mut source, _) = self.open(key)?;
        replace_file(target, |file| io::copy(&mut source, file)).map_err(|e| local_error(target, "write", e))
    }

    pub(super) fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let found = self.locate(key, "read")?.object()?;
        meta(key, &found)
    }

    pub(super) fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let (file, found) = self.open(key)?;
        file.sync_all().map_err(|e| io_error(key, "write", e))?;
        let place = self.locate(key, "write")?;
        self.sync_folders(&place)?;
        meta(key, &found)
    }

    pub(super) fn put(&self, key: &str, body: &Body) -> Result<(), StoreError> {
        let place = self.locate(key, "write")?;
        let whole = write_beside(&place, body)?;
        let lock = self.lock(key, "write")?;
        rename(whole, &place)?;
        drop(lock);
        self.sync_folders(&place)
    }

    pub(super) fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        let place = self.locate(key, "write")?;
        match &place.found {
            Some(found) if found.is_dir() => remove_empty(&place.path),
            Some(_) => return Ok(ConditionalWrite::Refused),
            None => {}
        }
        let whole = write_beside(&place, &Body::Bytes(bytes))?;
        let written = self.create(whole, &place)?;
        if written == ConditionalWrite::Written {
            self.sync_folders(&place)?;
        }
        Ok(written)
    }

    pub(super) fn put_if_unchanged(
        &self,
        key: &str,
        bytes: Bytes,
        etag: &ETag,
    ) -> Result<ConditionalWrite, StoreError> {
        // Most refusals need neither the lock nor a file.
        if !self.is(key, etag)? {
            return Ok(ConditionalWrite::Refused);
        }
        let place = self.locate(key, "write")?;
        let whole = write_beside(&place, &Body::Bytes(bytes))?;
        let lock = self.lock(key, "write")?;
        if !self.is(key, etag)? {
            return Ok(ConditionalWrite::Refused);
        }
        rename(whole, &place)?;
        drop(lock);
        self.sync_folders(&place)?;
        Ok(ConditionalWrite::Written)
    }

    pub(super) fn delete(&self, key: &str) -> Result<(), StoreError> {
        let place = self.locate(key, "delete")?;
        if place.found.as_ref().is_none_or(Metadata::is_dir) {
            return Ok(());
        }
        let lock = self.lock(key, "delete")?;
        self.remove(&place)?;
        drop(lock);
        self.sync_folders(&place)
    }

    pub(super) fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        if !self.is(key, etag)? {
            return Ok(ConditionalWrite::Refused);
        }
        let place = self.locate(key, "delete")?;
        let lock = self.lock(key, "delete")?;
        if !self.is(key, etag)? {
            return Ok(ConditionalWrite::Refused);
        }
        self.remove(&place)?;
        drop(lock);
        self.sync_folders(&place)?;
        Ok(ConditionalWrite::Written)
    }

    /// The file of a key. No symbolic link is followed below the root, not even one that stays inside: so no key leads
    /// outside the repository (format.md section 1), and what a listing shows is all there is.
    fn locate<'a>(&self, key: &'a str, action: &'static str) -> Result<Place<'a>, StoreError> {
        key::check(key)?;
        let mut path = self.root.clone();
        let mut found = None;
        let mut missing = false;
        for part in key.split('/') {
            path.push(part);
            if missing {
                continue;
            }
            found = match fs::symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => return Err(symbolic_link(key)),
                Ok(found) => Some(found),
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
                Err(e) => return Err(io_error(key, action, e)),
            };
            missing = found.is_none();
        }
        Ok(Place { key, path, found })
    }

    fn open(&self, key: &str) -> Result<(File, Metadata), StoreError> {
        let place = self.locate(key, "read")?;
        place.object()?;
        let file = File::open(&place.path).map_err(|e| io_error(key, "read", e))?;
        let found = file.metadata().map_err(|e| io_error(key, "read", e))?;
        Ok((file, found))
    }

    /// Whether the object is there and has this state.
    fn is(&self, key: &str, etag: &ETag) -> Result<bool, StoreError> {
        match self.get(key) {
            Ok(object) => Ok(object.etag == *etag),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps other writers out. Taken by whatever replaces or removes an object; a create needs none, as it is atomic.
    fn lock(&self, key: &str, action: &'static str) -> Result<Lock, StoreError> {
        Lock::take(&self.root, self.lock_wait).map_err(|e| io_error(key, action, e))
    }

    /// Gives a whole file its name if nothing has it.
    fn create(&self, whole: NamedTempFile, place: &Place) -> Result<ConditionalWrite, StoreError> {
        let whole = if self.atomic_create {
            match whole.persist_noclobber(&place.path) {
                Ok(_) => return Ok(ConditionalWrite::Written),
                Err(e) if e.error.kind() == ErrorKind::AlreadyExists => {
                    return already_exists(place);
                }
                Err(e) if may_lack_atomic_create(&e.error) => e.file,
                Err(e) => return Err(io_error(place.key, "write", e.error)),
            }
        } else {
            whole
        };
        // Neither an exclusive rename nor a hard link here (FAT, some network file systems): every writer then comes this
        // way, and the lock makes one step of looking and renaming.
        let _lock = self.lock(place.key, "write")?;
        if self.locate(place.key, "write")?.found.is_some() {
            return already_exists(place);
        }
        rename(whole, place)?;
        Ok(ConditionalWrite::Written)
    }

    /// Removes a file and, under `refs/`, the folders that are empty without it, so that a branch `a` can follow a
    /// branch `a/b`. `refs/` and the folders right under it stay.
    fn remove(&self, place: &Place) -> Result<(), StoreError> {
        match fs::remove_file(&place.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(io_error(place.key, "delete", e));
            }
            _ => {}
        }
        let under_refs = place.key.starts_with("refs/");
        let folders = place.key.split('/').count().saturating_sub(3);
        for folder in place.path.ancestors().skip(1).take(if under_refs { folders } else { 0 }) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Makes the name of an object, or its absence, durable: syncs every folder from it up to the root, as any of them
    /// may be new, made by us or by whoever wrote the file.
    fn sync_folders(&self, place: &Place) -> Result<(), StoreError> {
        let above = place.path.ancestors().skip(1);
        for folder in above.take_while(|folder| folder.starts_with(&self.anchor)) {
            match File::open(folder).and_then(|folder| folder.sync_all()) {
                // Removed meanwhile, or of a file system (or with permissions) that cannot sync folders.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::NotFound
                            | ErrorKind::InvalidInput
                            | ErrorKind::Unsupported
                            | ErrorKind::PermissionDenied
                    ) => {}
                Err(e) => return Err(io_error(place.key, "write", e)),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

impl Place<'_> {
    /// The object that is here.
    fn object(&self) -> Result<Metadata, StoreError> {
        let key = self.key.to_owned();
        match &self.found {
            Some(found) if found.is_file() => Ok(found.clone()),
            Some(found) if !found.is_dir() => Err(StoreError::BadKey { key, why: "what is there is not a plain file" }),
            _ => Err(StoreError::NotFound { key }),
        }
    }
}

pub(super) fn symbolic_link(key: &str) -> StoreError {
    StoreError::BadKey {
        key: key.to_owned(),
        why: "it leads through a symbolic link, and none is followed inside a repository",
    }
}

pub(super) fn meta(key: &str, found: &Metadata) -> Result<ObjectMeta, StoreError> {
    let modified = found.modified().map_err(|e| io_error(key, "read", e))?;
    Ok(ObjectMeta {
        key: key.to_owned(),
        size: found.len(),
        last_modified: DateTime::<Utc>::from(modified),
        etag: None,
    })
}

/// Opens a file that a body names. A pipe or a device has no end to wait for.
fn open_plain(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "it is not a plain file"))
    }
}

/// Writes the content to a file in the folder of the object, durable and not yet under its name.
fn write_beside(place: &Place, body: &Body) -> Result<NamedTempFile, StoreError> {
    let failed = |e| io_error(place.key, "write", e);
    let mut temp = temp_for(place)?;
    let file = temp.as_file_mut();
    match body {
        Body::Bytes(bytes) => file.write_all(bytes).map_err(failed)?,
        Body::File(path) => {
            let mut source = open_plain(path).map_err(|e| local_error(path, "read", e))?;
            io::copy(&mut source, file).map_err(failed)?;
        }
    }
    file.sync_all().map_err(failed)?;
    Ok(temp)
}

fn temp_for(place: &Place) -> Result<NamedTempFile, StoreError> {
    let folder = place.path.parent().unwrap_or(&place.path);
    let mut tries = 0;
    let made = loop {
        tries += 1;
        match fs::create_dir_all(folder).and_then(|()| temp_in(folder)) {
            // A delete saw the new folder empty and removed it.
            Err(e) if e.kind() == ErrorKind::NotFound && tries < FOLDER_TRIES => {}
            made => break made,
        }
    };
    made.map_err(|e| match e.kind() {
        ErrorKind::NotFound => StoreError::Failed { key: place.key.to_owned(), action: "write", source: Box::new(e) },
        // A part of the key is a file.
        ErrorKind::AlreadyExists => io_error(place.key, "write", ErrorKind::NotADirectory.into()),
        _ => io_error(place.key, "write", e),
    })
}

fn rename(whole: NamedTempFile, place: &Place) -> Result<(), StoreError> {
    whole.persist(&place.path).map(drop).map_err(|e| io_error(place.key, "write", e.error))
}

/// Something has the name that was to be created: an object refuses, a folder is in the way.
fn already_exists(place: &Place) -> Result<ConditionalWrite, StoreError> {
    if place.path.is_dir() {
        return Err(io_error(place.key, "write", ErrorKind::IsADirectory.into()));
    }
    Ok(ConditionalWrite::Refused)
}

/// `PermissionDenied` is how some file systems say that they have no hard links.
fn may_lack_atomic_create(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::Unsupported
            | ErrorKind::InvalidInput
            | ErrorKind::CrossesDevices
            | ErrorKind::TooManyLinks
    )
}

/// Removes a folder if it holds nothing but what killed writers left: empty folders and half-written files.
fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = || {
            let touched = entry.metadata().and_then(|found| found.modified());
            touched.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        } else if is_temp(&entry.file_name()) && is_old() {
            drop(fs::remove_file(entry.path()));
        }
    }
    // It stays when something is left in it, and the create then says that it is in the way.
    drop(fs::remove_dir(folder));
}
