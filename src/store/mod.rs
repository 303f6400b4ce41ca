//! Where the files of a repository are: one trait for every store.

use std::ops::Range;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

mod error;
pub mod fault;
pub mod folder;
pub mod http;
pub mod key;
mod local;
pub mod log;
pub mod memory;
pub mod net;
mod object;
mod open;
mod patience;
mod request;
pub mod s3;

pub use error::{Source, StoreError};
pub use fault::FaultStore;
pub use folder::FolderStore;
pub use http::HttpStore;
pub use log::LoggedStore;
pub use memory::MemoryStore;
pub use net::Retry;
pub use object::{Body, ConditionalWrite, ETag, FilePut, FileToPut, Object, ObjectMeta};
pub use open::{OpenOptions, open, open_with, split_credentials};
pub use patience::Patience;
pub use request::Verb;
pub use s3::{S3Options, S3Session, S3Store};

/// How many files are sent at a time.
pub(crate) const AT_ONCE: usize = 16;

/// Writes a file unless something is at its key.
async fn put_file<S: Store + ?Sized>(store: &S, file: FileToPut) -> Result<FilePut, StoreError> {
    match store.head(&file.key).await {
        Ok(meta) => return Ok(FilePut::There { size: meta.size }),
        Err(StoreError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    store.put(&file.key, Body::File(file.path)).await?;
    Ok(FilePut::Written)
}

/// A place that holds a repository. Keys are relative to its root and `/`-separated.
///
/// Every write is durable when its future ends with success. One whose future is dropped before may still happen. Every
/// key is checked first ([`key::check`]). The contract that all stores pass is `test/store_contract.rs`.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The location as a person would write it: a folder's absolute path, or a URL. Ends without `/`. Holds no secret.
    fn location(&self) -> &str;

    /// The folder on this machine that holds the objects, where there is one: DuckDB then opens files there by path.
    fn local_root(&self) -> Option<&Path> {
        None
    }

    /// How often and how long a request that failed may be made again by whoever can tell what became of it
    /// ([`Patience`]). None: a few times and at once, as nothing passes there with time.
    fn retry(&self) -> Option<Retry> {
        None
    }

    /// What was met that is odd about the store and that its users should hear of, as the rest of a sentence about it.
    fn oddity(&self) -> Option<&'static str> {
        None
    }

    /// Reads a whole small object: of one that has more bytes than [`layout::limit`](crate::format::layout::limit) gives for its key, no
    /// more than a byte behind that, and it is [`StoreError::TooLarge`].
    async fn get(&self, key: &str) -> Result<Object, StoreError>;

    /// Reads the bytes of a range. A range that ends behind the object is cut at its end, so one that begins there is
    /// empty.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError>;

    /// Copies a whole object into a file of this machine, streamed. Returns its size. One that has more than `most` bytes
    /// is [`StoreError::TooLarge`], and no more than a byte behind that is read.
    ///
    /// The target gets its name when it is whole, replacing an existing file; its folder must exist. It is not synced.
    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError>;

    /// Makes sure that what others will open by path, without this store, is a regular file reached through no link. What
    /// is not there is no error. Nothing to do where objects are no files.
    async fn check_regular(&self, keys: &[String]) -> Result<(), StoreError> {
        let _ = keys;
        Ok(())
    }

    /// What is known of an object.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError>;

    /// Writes an object, replacing what is there.
    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError>;

    /// Writes files that nobody ever replaces, several at a time, and leaves alone what is there already. Gives what
    /// became of each, in their order. After an error some may be written and others not.
    async fn put_files(&self, files: &[FileToPut]) -> Result<Vec<FilePut>, StoreError> {
        stream::iter(files.to_vec()).map(|file| put_file(self, file)).buffered(AT_ONCE).try_collect().await
    }

    /// Writes an object only if there is none at the key.
    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError>;

    /// Writes a file of this machine only if there is no object at the key. A store that cannot do that in one step looks
    /// first, and what somebody else writes at that very moment is replaced, unless the other side (a host) refuses.
    async fn put_file_if_absent(&self, key: &str, path: &Path) -> Result<ConditionalWrite, StoreError> {
        match self.head(key).await {
            Ok(_) => return Ok(ConditionalWrite::Refused),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        self.put(key, Body::File(path.to_owned())).await.map(|()| ConditionalWrite::Written)
    }

    /// Replaces an object only if its state is still `etag`. An object that is gone refuses.
    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError>;

    /// Makes sure that an object somebody else wrote (DuckDB, a data file) is durable, and says what is known of it.
    async fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.head(key).await
    }

    /// Every object whose key begins with `prefix` (a folder that ends in `/`, or empty for all), in no order.
    /// Files that a write left behind half-way are not objects. [`StoreError::NotRegular`] stands for one thing that is no
    /// object, and the others follow; any other error ends the listing.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>>;

    /// Removes what killed writers left half-way and no listing shows, if it was last touched before a time (of the
    /// store's own clock). Returns how many bytes that frees. Nothing to do where writes leave nothing behind.
    async fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let _ = before;
        Ok(0)
    }

    /// Deletes an object. One that is not there is no error.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Deletes objects, many in one request where the store can. Gives each key that is gone, in the order they came in,
    /// and an error in the place of one (or of a whole request's) that could not be deleted; others go on.
    fn delete_all<'a>(&'a self, keys: BoxStream<'a, String>) -> BoxStream<'a, Result<String, StoreError>> {
        keys.then(move |key| async move { self.delete(&key).await.map(|()| key) }).boxed()
    }

    /// Deletes an object only if its state is still `etag`. An object that is gone refuses.
    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError>;
}
