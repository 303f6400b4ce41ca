//! Carrying objects from one store to another, a few at a time, each checked on its way.

use std::path::Path;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tempfile::TempPath;

use crate::format::{Expired, Sha256, Signature, layout};
use crate::store::{Body, FilePut, FileToPut, Store, StoreError};

use super::super::CONCURRENT;
use super::super::catalog::scratch_file;
use super::super::error::RepoError;
use super::super::read::get_optional;
use super::super::write::{Content, Put, write_new};

/// An object of a version up to this many bytes is carried in memory and written on condition.
const SMALL: u64 = 8 << 20;

/// How many data files are handed to the target at a time where the source has them as files of this machine.
const IN_PLACE: usize = 1000;

/// An object of the source.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) key: String,
    /// Its size in bytes, where it is known.
    pub(super) size: Option<u64>,
    /// Its hash, where something gives it.
    pub(super) hash: Option<Sha256>,
}

impl Object {
    pub(super) fn plain(key: &str) -> Self {
        Self { key: key.to_owned(), size: None, hash: None }
    }
}

/// Carries objects, and counts them.
pub(super) struct Carrier<'a> {
    source: &'a dyn Store,
    target: &'a dyn Store,
    scratch: &'a Path,
    pub(super) copied: u64,
    pub(super) skipped: u64,
    pub(super) bytes: u64,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(source: &'a dyn Store, target: &'a dyn Store, scratch: &'a Path) -> Self {
        Self { source, target, scratch, copied: 0, skipped: 0, bytes: 0 }
    }

    fn count(&mut self, copied: Option<u64>) {
        match copied {
            Some(bytes) => {
                self.copied += 1;
                self.bytes += bytes;
            }
            None => self.skipped += 1,
        }
    }

    /// Carries objects that the target may have: there they must have the same bytes.
    pub(super) async fn carry(&mut self, objects: Vec<Object>) -> Result<(), RepoError> {
        let (source, target, scratch) = (self.source, self.target, self.scratch);
        let mut all = stream::iter(objects)
            .map(|object| async move { carry_one(source, target, scratch, object).await })
            .buffer_unordered(CONCURRENT);
        let mut done = Vec::new();
        while let Some(copied) = all.try_next().await? {
            done.push(copied);
        }
        drop(all);
        done.into_iter().for_each(|copied| self.count(copied));
        Ok(())
    }

    /// Carries files that nobody ever replaces. With `missing` the target is known not to have them.
    pub(super) async fn carry_unless_there(&mut self, objects: Vec<Object>, missing: bool) -> Result<(), RepoError> {
        let objects = match missing {
            true => objects,
            false => self.not_there(objects).await?,
        };
        let at_once = if self.source.local_root().is_some() { IN_PLACE } else { CONCURRENT };
        for batch in objects.chunks(at_once) {
            let (source, scratch) = (self.source, self.scratch);
            let here: Vec<(Option<TempPath>, FileToPut)> = stream::iter(batch.to_vec())
                .map(|object| async move { on_disk(source, scratch, object).await })
                .buffered(CONCURRENT)
                .try_collect()
                .await?;
            let files: Vec<FileToPut> = here.iter().map(|(_, file)| file.clone()).collect();
            for (file, put) in files.iter().zip(self.target.put_files(&files).await?) {
                match put {
                    FilePut::Written => self.count(Some(file.size)),
                    FilePut::There { size } if size == file.size => self.count(None),
                    FilePut::There { size } => {
                        let why = format!("the copy has it with {size} bytes, not {}", file.size);
                        return Err(RepoError::corrupt(&file.key, why));
                    }
                }
            }
        }
        Ok(())
    }

    /// Those that a target which cannot list does not have.
    async fn not_there(&mut self, objects: Vec<Object>) -> Result<Vec<Object>, RepoError> {
        let target = self.target;
        let asked: Vec<Option<Object>> = stream::iter(objects)
            .map(|object| async move {
                match target.head(&object.key).await {
                    Ok(meta) if object.size == Some(meta.size) => Ok(None),
                    Ok(_) | Err(StoreError::NotFound { .. }) => Ok(Some(object)),
                    Err(error) => Err(error),
                }
            })
            .buffered(CONCURRENT)
            .try_collect()
            .await?;
        self.skipped += asked.iter().filter(|object| object.is_none()).count() as u64;
        Ok(asked.into_iter().flatten().collect())
    }
}

/// A file of the source as a file of this machine, with the size it should have; the copy, where it had to be made, is
/// removed when dropped.
async fn on_disk(
    source: &dyn Store,
    scratch: &Path,
    object: Object,
) -> Result<(Option<TempPath>, FileToPut), RepoError> {
    let missing = |error| match error {
        StoreError::NotFound { .. } => RepoError::corrupt(&object.key, "it is missing, but a version names it"),
        StoreError::TooLarge { limit, .. } => {
            RepoError::corrupt(&object.key, format!("it has more than the {limit} bytes that a version says"))
        }
        error => error.into(),
    };
    let (path, copy, found) = match source.local_root() {
        Some(root) => {
            let meta = source.head(&object.key).await.map_err(missing)?;
            (root.join(&object.key), None, meta.size)
        }
        None => {
            let copy = scratch_file(scratch)?;
            let most = object.size.unwrap_or(u64::MAX);
            let size = source.download(&object.key, &copy, most).await.map_err(missing)?;
            (copy.to_path_buf(), Some(copy), size)
        }
    };
    if object.size.is_some_and(|size| size != found) {
        return Err(RepoError::corrupt(&object.key, format!("it has {found} bytes, not as a version says")));
    }
    if object.hash.is_some() {
        let read = Sha256::of_file(&path).map_err(|source| RepoError::Local { path: path.clone(), source })?;
        check_hash(&object, read.0)?;
    }
    Ok((copy, FileToPut { key: object.key, size: found, path }))
}

/// Carries one object. Gives its size when it was written.
async fn carry_one(
    source: &dyn Store,
    target: &dyn Store,
    scratch: &Path,
    object: Object,
) -> Result<Option<u64>, RepoError> {
    let size = match object.size {
        Some(size) => Some(size),
        None if object.key.ends_with(".json") || object.key.ends_with(".sig") => Some(0),
        None => get_size(source, &object.key).await?,
    };
    if let Some(size) = size.filter(|size| *size > SMALL) {
        return stream_one(source, target, scratch, object, size).await;
    }
    let Some(read) = get_optional(source, &object.key).await? else {
        // A signature that is only said to be there is none.
        if object.key.ends_with(layout::SIGNATURE) {
            return Ok(None);
        }
        return gone(source, &object.key).await;
    };
    check_hash(&object, Sha256::of(&read.bytes))?;
    let Some(bytes) = readable(&object.key, read.bytes)? else {
        return Ok(None);
    };
    match write_new(target, &object.key, &Content::Bytes(bytes.clone())).await? {
        Put::Written => Ok(Some(bytes.len() as u64)),
        Put::Same => Ok(None),
        // A mark may say something else of the same version; it stays.
        Put::Other if object.key.ends_with(layout::EXPIRED_JSON) => Ok(None),
        Put::Other => Err(RepoError::corrupt(&object.key, "the copy has it with other bytes, and nothing is replaced")),
    }
}

/// What is copied of a file that no hash vouches for: written once, it could never be put right. A mark that cannot be read
/// stops a reader, so the copy gets a plain one; a signature that cannot be read says nothing.
fn readable(key: &str, bytes: Bytes) -> Result<Option<Bytes>, RepoError> {
    Ok(match layout::in_version(key) {
        Some((id, layout::EXPIRED_JSON)) if !Expired::is_readable(&bytes) => Some(Expired::default().print(id)?.into()),
        Some((_, layout::SIGNATURE)) if Signature::parse(&bytes).is_err() => None,
        _ => Some(bytes),
    })
}

async fn get_size(store: &dyn Store, key: &str) -> Result<Option<u64>, StoreError> {
    match store.head(key).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A large object, which is streamed and written without a condition: while the target has no record it is nobody's yet.
async fn stream_one(
    source: &dyn Store,
    target: &dyn Store,
    scratch: &Path,
    object: Object,
    most: u64,
) -> Result<Option<u64>, RepoError> {
    let copy = scratch_file(scratch)?;
    match source.download(&object.key, &copy, most).await {
        Ok(_) => {}
        Err(StoreError::NotFound { .. }) => return gone(source, &object.key).await,
        Err(error) => return Err(error.into()),
    }
    let read = Sha256::of_file(&copy);
    let (hash, size) = read.map_err(|source| RepoError::Local { path: copy.to_path_buf(), source })?;
    check_hash(&object, hash)?;
    target.put(&object.key, Body::File(copy.to_path_buf())).await?;
    Ok(Some(size))
}

/// What was listed and is not there: its version was taken away meanwhile, and the next call copies the mark.
async fn gone(source: &dyn Store, key: &str) -> Result<Option<u64>, RepoError> {
    if let Some((id, _)) = layout::in_version(key)
        && let Some(mark) = super::super::read::read_mark(source, id).await?
    {
        return Err(RepoError::marked(id, mark));
    }
    Err(RepoError::corrupt(key, "it is missing in the source"))
}

fn check_hash(object: &Object, found: Sha256) -> Result<(), RepoError> {
    match object.hash {
        Some(hash) if hash != found => {
            Err(RepoError::corrupt(&object.key, format!("its sha256 in the source is {found}, not {hash}")))
        }
        _ => Ok(()),
    }
}
