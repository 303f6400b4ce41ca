//! Where the files of a repository are: one trait for every store.

use std::ops::Range;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;

/// The state of one object, as the store names it. Opaque: only compared, and sent back in a conditional write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

/// What is known of an object without its content.
#[derive(Debug, Clone)]
pub struct ObjectMeta {
    /// The key, relative to the root of the repository, `/`-separated.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was last written, by the store's own clock.
    pub last_modified: DateTime<Utc>,
    /// Its state. Not every store gives one when listing.
    pub etag: Option<ETag>,
}

/// An object with its content, read in one request.
#[derive(Debug, Clone)]
pub struct Object {
    /// The whole content.
    pub bytes: Bytes,
    /// The state that was read, for a conditional write.
    pub etag: ETag,
}

/// What is to be written.
#[derive(Debug, Clone)]
pub enum Body {
    /// Bytes in memory, for small objects.
    Bytes(Bytes),
    /// A file of this machine, streamed.
    File(PathBuf),
}

/// What a conditional write came to (format.md section 9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionalWrite {
    /// The object was written and is durable.
    Written,
    /// The condition did not hold; nothing was written by this call.
    Refused,
}

/// Why a store could not do what was asked. A closed list: every store maps its own errors to these.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no object at the key.
    #[error("{key} does not exist")]
    NotFound {
        /// The key that was asked for.
        key: String,
    },
    /// The store does not let this caller do it.
    #[error("no permission to {action} {key}")]
    Permission {
        /// The key that was asked for.
        key: String,
        /// A verb: `read`, `write`, `list`, `delete`.
        action: &'static str,
        /// What the store said.
        source: Source,
    },
    /// The key cannot be a key of a repository.
    #[error("{key:?} is not a key of a repository: {why}")]
    BadKey {
        /// The key that was asked for.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No room left to write.
    #[error("no space left to write {key}")]
    NoSpace {
        /// The key that was to be written.
        key: String,
        /// What the store said.
        source: Source,
    },
    /// This store cannot do this at all (listing over plain HTTP, say).
    #[error("{store} cannot {action}")]
    Unsupported {
        /// The kind of store, for people: `a plain HTTP server`.
        store: &'static str,
        /// A verb phrase: `list objects`.
        action: &'static str,
    },
    /// Anything else: unreachable, timed out, an answer that makes no sense. A write may or may not have happened.
    #[error("could not {action} {key}: {source}")]
    Failed {
        /// The key that was asked for.
        key: String,
        /// A verb: `read`, `write`, `list`, `delete`.
        action: &'static str,
        /// What went wrong.
        source: Source,
    },
}

/// The cause behind a [`StoreError`].
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// A place that holds a repository. Keys are relative to its root and `/`-separated.
///
/// Every write is durable when its future ends with success. The contract that all stores pass is
/// `test/store_contract.rs`.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The location as a person would write it: a folder's absolute path, or a URL. Ends without `/`. Holds no secret.
    fn location(&self) -> &str;

    /// The folder on this machine that holds the objects, where there is one: DuckDB then opens files there by path.
    fn local_root(&self) -> Option<&Path> {
        None
    }

    /// Reads a whole object.
    async fn get(&self, key: &str) -> Result<Object, StoreError>;

    /// Reads the bytes of a range. A range that ends behind the object is cut at its end.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError>;

    /// Copies a whole object into a file of this machine, streamed; an existing file is replaced. Returns its size.
    async fn download(&self, key: &str, target: &Path) -> Result<u64, StoreError>;

    /// What is known of an object.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError>;

    /// Writes an object, replacing what is there.
    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError>;

    /// Writes an object only if there is none at the key.
    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError>;

    /// Replaces an object only if its state is still `etag`. An object that is gone refuses.
    async fn put_if_unchanged(
        &self,
        key: &str,
        bytes: Bytes,
        etag: &ETag,
    ) -> Result<ConditionalWrite, StoreError>;

    /// Makes sure that an object somebody else wrote (DuckDB, a data file) is durable, and says what is known of it.
    async fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.head(key).await
    }

    /// Every object whose key begins with `prefix` (a folder that ends in `/`, or empty for all), in no order.
    /// Files that a write left behind half-way are not objects.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>>;

    /// Deletes an object. One that is not there is no error.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Deletes an object only if its state is still `etag`.
    async fn delete_if_unchanged(
        &self,
        key: &str,
        etag: &ETag,
    ) -> Result<ConditionalWrite, StoreError>;
}
