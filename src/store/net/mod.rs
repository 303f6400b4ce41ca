//! Requests over HTTP, for the stores behind a URL: one client, its timeouts, what is tried again and when (format.md
//! section 13), and reading on after a connection broke.

mod answer;
mod body;
mod client;
mod read;
mod retry;

pub(super) use answer::{Answer, tidy};
pub(super) use body::Content;
pub(super) use client::{Client, Incoming, NetError, Outgoing};
pub(super) use read::{Opened, Part, Reader, download, get, get_range, is_named};
pub(super) use retry::Repeat;
pub use retry::Retry;
use retry::is_passing;

use super::{Source, StoreError};

/// What fdl calls itself in every request.
pub const USER_AGENT: &str = concat!("fdl-duckdb/", env!("CARGO_PKG_VERSION"));

/// The media type of an object, by the name of its key.
pub(super) fn content_type(key: &str) -> &'static str {
    match key.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("parquet") => "application/vnd.apache.parquet",
        // A ref or HEAD.
        None => "text/plain; charset=utf-8",
        Some(_) if key.starts_with("refs/") => "text/plain; charset=utf-8",
        Some(_) => "application/octet-stream",
    }
}

/// Why the same request will fail in the same way however often it is sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Lasting(pub(super) String);

/// A request that will fail in the same way however often it is sent. Nothing was written by it.
pub(super) fn hopeless(key: &str, action: &'static str, why: impl Into<String>) -> StoreError {
    failed(key, action, Lasting(why.into()))
}

/// A request that came to nothing, or to something that makes no sense.
pub(super) fn failed(key: &str, action: &'static str, source: impl Into<Source>) -> StoreError {
    StoreError::Failed { key: key.to_owned(), action, source: source.into() }
}
