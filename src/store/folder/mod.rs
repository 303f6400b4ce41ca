//! A repository in a folder of this machine, or of a file server that is mounted on it.
//!
//! Safe for several writers, in threads and in processes: an object is written whole beside its place and then renamed,
//! so a reader sees one content or another, never a part; a replacement compares and renames under a lock (`lock`).
//! Files that a killed writer left behind begin with `.fdl-` and are no objects. Nor is a link, a pipe or a device below
//! the root, which is an error that names it: nothing is followed, and nothing is waited for.
//!
//! Not over `object_store::local`: its paths percent-encode characters that schemas and tables may have in their names,
//! while DuckDB opens the same files by their plain names; its ETags are made of time and size; it follows symbolic
//! links; and it syncs nothing.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};

use super::{Body, ConditionalWrite, ETag, Object, ObjectMeta, Store, StoreError};
use disk::Disk;

mod disk;
mod list;
mod lock;
mod place;
mod root;
mod walk;

/// How long a writer waits for another one, which holds the lock only to compare and rename.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// A [`Store`] in a folder.
///
/// Requests run on tokio's blocking threads and need its runtime. One whose future is dropped may still be carried out.
#[derive(Debug, Clone)]
pub struct FolderStore {
    disk: Arc<Disk>,
    location: Arc<str>,
}

impl FolderStore {
    /// Opens a folder by its path, absolute or relative to the process's current directory, or by its `file://` URL.
    ///
    /// The folder need not exist: nothing is read, and the first write makes it. The root itself may be a symbolic link,
    /// or lie behind one; it is resolved here, once.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadLocation`] when it cannot be a folder (empty, a file, not UTF-8, the URL of another machine), and
    /// [`StoreError::Permission`] or [`StoreError::Failed`] when it cannot be looked at.
    pub fn open(location: &str) -> Result<Self, StoreError> {
        let (root, anchor) = root::resolve(location)?;
        let Some(resolved) = root.to_str().map(Arc::from) else {
            return Err(root::bad(location, "its path is not UTF-8"));
        };
        Ok(Self {
            disk: Arc::new(Disk { root, anchor, lock_wait: LOCK_WAIT, atomic_create: true }),
            location: resolved,
        })
    }

    /// Runs a request on a thread that may block: files have no other way.
    async fn on_disk<T: Send + 'static>(
        &self,
        key: &str,
        action: &'static str,
        request: impl FnOnce(&Disk, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let disk = Arc::clone(&self.disk);
        let key: Arc<str> = Arc::from(key);
        let asked = Arc::clone(&key);
        match tokio::task::spawn_blocking(move || request(&disk, &asked)).await {
            Ok(answer) => answer,
            // The runtime is shutting down.
            Err(error) => Err(StoreError::Failed { key: key.as_ref().to_owned(), action, source: Box::new(error) }),
        }
    }
}

#[async_trait]
impl Store for FolderStore {
    fn location(&self) -> &str {
        &self.location
    }

    fn local_root(&self) -> Option<&Path> {
        Some(&self.disk.root)
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        self.on_disk(key, "read", Disk::get).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.on_disk(key, "read", |disk, key| disk.get_range(key, range)).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        let target: PathBuf = target.to_owned();
        self.on_disk(key, "read", move |disk, key| disk.download(key, &target, most)).await
    }

    async fn check_regular(&self, keys: &[String]) -> Result<(), StoreError> {
        let keys = keys.to_vec();
        self.on_disk("/", "read", move |disk, _| disk.check_regular(&keys)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.on_disk(key, "read", Disk::head).await
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.on_disk(key, "write", move |disk, key| disk.put(key, &body)).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.on_disk(key, "write", |disk, key| disk.put_if_absent(key, &Body::Bytes(bytes))).await
    }

    async fn put_file_if_absent(&self, key: &str, path: &Path) -> Result<ConditionalWrite, StoreError> {
        let body = Body::File(path.to_owned());
        self.on_disk(key, "write", move |disk, key| disk.put_if_absent(key, &body)).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let etag = etag.clone();
        self.on_disk(key, "write", move |disk, key| disk.put_if_unchanged(key, bytes, &etag)).await
    }

    async fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.on_disk(key, "write", Disk::settle).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let prefix = prefix.to_owned();
        let listing = async move {
            match self.on_disk(&prefix, "list", Disk::list).await {
                Ok(objects) => objects,
                Err(error) => vec![Err(error)],
            }
        };
        stream::once(listing).flat_map(stream::iter).boxed()
    }

    async fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        self.on_disk("/", "delete", move |disk, _| disk.sweep(before)).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.on_disk(key, "delete", Disk::delete).await
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let etag = etag.clone();
        self.on_disk(key, "delete", move |disk, key| disk.delete_if_unchanged(key, &etag)).await
    }
}
