//! A store in memory, for tests: deterministic, and cheap enough for thousands of random histories a second.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};

use super::local::{local_error, replace_file};
use crate::format::layout;

use super::{Body, ConditionalWrite, ETag, Object, ObjectMeta, Store, StoreError, key};

/// Objects in a map. Every request ends at its first poll, so the order of requests is the order of polls.
///
/// ETags are hashes of the content, as in a folder. The weakest promise of all stores is the one to test against, so
/// `head` and `list` give none.
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Stored>>,
    clock: Box<dyn Fn() -> DateTime<Utc> + Send + Sync>,
}

#[derive(Debug, Clone)]
struct Stored {
    bytes: Bytes,
    last_modified: DateTime<Utc>,
}

impl MemoryStore {
    /// An empty store that takes the time from the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Utc::now)
    }

    /// An empty store that takes the time of each write from `clock`.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self { objects: Mutex::default(), clock: Box::new(clock) }
    }

    /// Every object as it is now, to compare two moments.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Bytes> {
        let objects = self.objects();
        objects.iter().map(|(key, stored)| (key.clone(), stored.bytes.clone())).collect()
    }

    /// Another store that begins with the same objects, to try what could happen next.
    #[must_use]
    pub fn fork(&self, clock: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self { objects: Mutex::new(self.objects().clone()), clock: Box::new(clock) }
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        // No code that holds the lock can leave the map half-changed.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, key: &str) -> Result<Stored, StoreError> {
        key::check(key)?;
        self.objects().get(key).cloned().ok_or_else(|| StoreError::NotFound { key: key.to_owned() })
    }

    fn stored(&self, bytes: Bytes) -> Stored {
        Stored { bytes, last_modified: (self.clock)() }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("objects", &self.objects().len()).finish_non_exhaustive()
    }
}

impl Stored {
    fn is(&self, etag: &ETag) -> bool {
        ETag::of_content(&self.bytes) == *etag
    }

    fn meta(&self, key: &str) -> ObjectMeta {
        ObjectMeta { key: key.to_owned(), size: self.bytes.len() as u64, last_modified: self.last_modified, etag: None }
    }
}

fn require_size(key: &str, bytes: &Bytes, limit: u64) -> Result<(), StoreError> {
    match bytes.len() as u64 > limit {
        true => Err(StoreError::TooLarge { key: key.to_owned(), limit }),
        false => Ok(()),
    }
}

/// Blocking, so that a test needs no tokio runtime.
fn read_file(path: &Path) -> Result<Bytes, StoreError> {
    Ok(std::fs::read(path).map_err(|e| local_error(path, "read", e))?.into())
}

#[async_trait]
impl Store for MemoryStore {
    fn location(&self) -> &str {
        "memory:"
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        let bytes = self.read(key)?.bytes;
        require_size(key, &bytes, layout::limit(key))?;
        let etag = ETag::of_content(&bytes);
        Ok(Object { bytes, etag })
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let bytes = self.read(key)?.bytes;
        let cut = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let end = cut(range.end);
        Ok(bytes.slice(cut(range.start).min(end)..end))
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        let bytes = self.read(key)?.bytes;
        require_size(key, &bytes, most)?;
        replace_file(target, |file| file.write_all(&bytes)).map_err(|e| local_error(target, "write", e))?;
        Ok(bytes.len() as u64)
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        Ok(self.read(key)?.meta(key))
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        key::check(key)?;
        let bytes = match body {
            Body::Bytes(bytes) => bytes,
            Body::File(path) => read_file(&path)?,
        };
        let stored = self.stored(bytes);
        self.objects().insert(key.to_owned(), stored);
        Ok(())
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        key::check(key)?;
        let stored = self.stored(bytes);
        let mut objects = self.objects();
        if objects.contains_key(key) {
            return Ok(ConditionalWrite::Refused);
        }
        objects.insert(key.to_owned(), stored);
        Ok(ConditionalWrite::Written)
    }

    async fn put_file_if_absent(&self, key: &str, path: &Path) -> Result<ConditionalWrite, StoreError> {
        self.put_if_absent(key, read_file(path)?).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        key::check(key)?;
        let stored = self.stored(bytes);
        match self.objects().get_mut(key) {
            Some(current) if current.is(etag) => {
                *current = stored;
                Ok(ConditionalWrite::Written)
            }
            _ => Ok(ConditionalWrite::Refused),
        }
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let prefix = prefix.to_owned();
        let listing = async move {
            if let Err(error) = key::check_prefix(&prefix) {
                return vec![Err(error)];
            }
            let objects = self.objects();
            let under = objects.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            under.map(|(key, stored)| Ok(stored.meta(key))).collect()
        };
        stream::once(listing).flat_map(stream::iter).boxed()
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        key::check(key)?;
        self.objects().remove(key);
        Ok(())
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        key::check(key)?;
        let mut objects = self.objects();
        if !objects.get(key).is_some_and(|current| current.is(etag)) {
            return Ok(ConditionalWrite::Refused);
        }
        objects.remove(key);
        Ok(ConditionalWrite::Written)
    }
}
