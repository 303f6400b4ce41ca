//! The blocking half of a folder store: what each request does on the disk.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::FileType;
use tempfile::NamedTempFile;

use super::lock::Lock;
use super::place::{Place, remove_empty};
use super::walk;
use crate::format::layout;
use crate::store::local::{io_error, local_error, replace_file};
use crate::store::{Body, ConditionalWrite, ETag, Object, ObjectMeta, StoreError, key};

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

impl Disk {
    pub(super) fn get(&self, key: &str) -> Result<Object, StoreError> {
        let (file, limit) = (self.open(key)?, layout::limit(key));
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content).map_err(|e| io_error(key, "read", e))?;
        if content.len() as u64 > limit {
            return Err(StoreError::TooLarge { key: key.to_owned(), limit });
        }
        let etag = ETag::of_content(&content);
        let bytes = content.into();
        Ok(Object { bytes, etag })
    }

    pub(super) fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let mut file = self.open(key)?;
        let length = range.end.saturating_sub(range.start);
        let mut content = Vec::new();
        let read = file.seek(SeekFrom::Start(range.start)).and_then(|_| file.take(length).read_to_end(&mut content));
        read.map_err(|e| io_error(key, "read", e))?;
        Ok(content.into())
    }

    pub(super) fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        let mut source = self.open(key)?.take(most.saturating_add(1));
        let mut too_large = false;
        let copied = replace_file(target, |file| match io::copy(&mut source, file)? {
            size if size > most => {
                too_large = true;
                Err(ErrorKind::FileTooLarge.into())
            }
            size => Ok(size),
        });
        copied.map_err(|e| match too_large {
            true => StoreError::TooLarge { key: key.to_owned(), limit: most },
            false => local_error(target, "write", e),
        })
    }

    pub(super) fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        key::check(key)?;
        Ok(walk::find(&self.root, key, "read")?.meta())
    }

    pub(super) fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        key::check(key)?;
        let found = walk::find(&self.root, key, "read")?;
        let meta = found.meta();
        found.open("read")?.sync_all().map_err(|e| io_error(key, "write", e))?;
        let place = self.locate(key, "write")?;
        self.sync_folders(&place)?;
        Ok(meta)
    }

    pub(super) fn put(&self, key: &str, body: &Body) -> Result<(), StoreError> {
        let place = self.locate(key, "write")?;
        let whole = place.write_beside(body)?;
        let lock = self.lock(key, "write")?;
        place.replace(whole)?;
        drop(lock);
        self.sync_folders(&place)
    }

    pub(super) fn put_if_absent(&self, key: &str, body: &Body) -> Result<ConditionalWrite, StoreError> {
        let place = self.locate(key, "write")?;
        match &place.found {
            Some(found) if found.is_dir() => remove_empty(&place.path),
            Some(_) => return Ok(ConditionalWrite::Refused),
            None => {}
        }
        let whole = place.write_beside(body)?;
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
        let whole = place.write_beside(&Body::Bytes(bytes))?;
        let lock = self.lock(key, "write")?;
        if !self.is(key, etag)? {
            return Ok(ConditionalWrite::Refused);
        }
        place.replace(whole)?;
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

    /// The place of a key that is to be written or deleted. No symbolic link is followed below the root, not even one that
    /// stays inside: so no key leads outside the repository (format.md section 1), and what a listing shows is all there is.
    /// Not against somebody who may write here and puts a link in the way between this look and the next step; what is
    /// read is opened without that gap (`walk`).
    fn locate<'a>(&self, key: &'a str, action: &'static str) -> Result<Place<'a>, StoreError> {
        key::check(key)?;
        let mut path = self.root.clone();
        let mut found = None;
        let mut missing = false;
        let mut walked = 0;
        for part in key.split('/') {
            path.push(part);
            walked += part.len() + 1;
            if missing {
                continue;
            }
            found = match fs::symlink_metadata(&path) {
                Ok(found) if !found.is_file() && !found.is_dir() => {
                    let here = key.get(..walked - 1).unwrap_or(key);
                    let wanted = if here.len() == key.len() { "regular file" } else { "folder" };
                    let kind = FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&found));
                    return Err(walk::not_regular(here, wanted, kind));
                }
                Ok(found) => Some(found),
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
                Err(e) => return Err(io_error(key, action, e)),
            };
            missing = found.is_none();
        }
        Ok(Place { key, path, found })
    }

    fn open(&self, key: &str) -> Result<File, StoreError> {
        key::check(key)?;
        walk::find(&self.root, key, "read")?.open("read")
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
                    return place.taken();
                }
                Err(e) if may_lack_atomic_create(&e.error) => e.file,
                Err(e) => return Err(place.unwritten(e.error)),
            }
        } else {
            whole
        };
        // Neither an exclusive rename nor a hard link here (FAT, some network file systems): every writer then comes this
        // way, and the lock makes one step of looking and renaming.
        let _lock = self.lock(place.key, "write")?;
        if self.locate(place.key, "write")?.found.is_some() {
            return place.taken();
        }
        place.replace(whole)?;
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
                Err(e) => return Err(place.unwritten(e)),
                Ok(()) => {}
            }
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A disk whose file system has no atomic create.
    fn plain_disk(root: &Path) -> Disk {
        Disk {
            root: root.to_owned(),
            anchor: root.to_owned(),
            lock_wait: Duration::from_secs(10),
            atomic_create: false,
        }
    }

    #[test]
    fn one_creator_wins_without_atomic_create() {
        let folder = tempfile::tempdir().unwrap();
        let disk = plain_disk(folder.path());
        for round in 0..20 {
            let key = format!("refs/heads/{round}");
            let winners: Vec<u8> = thread::scope(|scope| {
                let create = |me: u8| {
                    let answer = disk.put_if_absent(&key, &Body::Bytes(Bytes::from(vec![me])));
                    (answer.unwrap() == ConditionalWrite::Written).then_some(me)
                };
                let threads: Vec<_> = (0..4).map(|me| scope.spawn(move || create(me))).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(disk.get(&key).unwrap().bytes, winners);
        }
    }

    #[test]
    fn a_folder_in_the_way_is_no_object_without_atomic_create_either() {
        let folder = tempfile::tempdir().unwrap();
        let disk = plain_disk(folder.path());
        disk.put_if_absent("refs/heads/a/b", &Body::Bytes(Bytes::new())).unwrap();
        let answer = disk.put_if_absent("refs/heads/a", &Body::Bytes(Bytes::new()));
        assert!(matches!(answer, Err(StoreError::BadKey { .. })), "{answer:?}");
    }

    #[test]
    fn a_writer_that_waits_too_long_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = plain_disk(folder.path());
        disk.lock_wait = Duration::from_millis(20);
        let body = |text: &'static str| Body::Bytes(Bytes::from_static(text.as_bytes()));
        disk.put("a", &body("one")).unwrap();
        let held = disk.lock("a", "write").unwrap();
        let answers = [
            disk.put("a", &body("two")).err(),
            disk.put_if_unchanged("a", Bytes::new(), &ETag::of_content(b"one")).err(),
            disk.delete("a").err(),
        ];
        for error in answers {
            assert!(matches!(error, Some(StoreError::Failed { .. })), "{error:?}");
        }
        drop(held);
        assert_eq!(disk.get("a").unwrap().bytes, "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the object and the lock");
    }
}
