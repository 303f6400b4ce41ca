//! The values a store takes and gives.

use std::path::PathBuf;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

/// The state of one object, as the store names it. Opaque: only compared, and sent back in a conditional write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

impl ETag {
    /// The state of an object in a store that has no other name for it: the sha256 of its content, in lower-case hex.
    #[must_use]
    pub fn of_content(bytes: &[u8]) -> Self {
        let digest = Sha256::digest(bytes);
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What is known of an object without its content.
#[derive(Debug, Clone)]
pub struct ObjectMeta {
    /// The key, relative to the root of the repository, `/`-separated.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was last written, by the store's own clock.
    pub last_modified: DateTime<Utc>,
    /// Its state, where the store knows it without reading the content. [`Store::get`](super::Store::get) always gives it.
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

/// A file of this machine that is to be written to a key and never changes there: a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileToPut {
    /// The key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// Where it is on this machine.
    pub path: PathBuf,
}

/// What became of a [`FileToPut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePut {
    /// It was written and is durable.
    Written,
    /// Something was at the key already and was left as it is.
    There {
        /// Its size in bytes.
        size: u64,
    },
}
