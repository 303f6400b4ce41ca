//! The body of a request: taken up to a limit, in memory while it is small, in a file otherwise.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::format::{Code, Sha256};
use crate::store::key::RESERVED_PREFIX;

use super::answer::Refusal;
use super::options::HostOptions;
use super::shared::Shared;

/// A body up to this many bytes is kept in memory.
pub(super) const SMALL: u64 = 1 << 20;
/// How much more of a refused body is read, so that the client sees the answer.
const DRAINED: u64 = 1 << 20;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    body: Body,
    /// The length that the client has said.
    declared: Option<u64>,
    limit: u64,
    idle: Duration,
    /// Nothing more is to come, or nothing more may be asked for.
    done: bool,
    /// The client waits to be asked for the body.
    waits: bool,
}

/// A whole body.
#[derive(Debug)]
pub(super) enum Spooled {
    /// In memory.
    Small(Bytes),
    /// In a file that is removed when dropped, and its size.
    File(NamedTempFile, u64),
}

impl Spooled {
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::File(_, size) => *size,
        }
    }

    /// The hash of all of it.
    pub(super) async fn sha256(&self) -> Result<Sha256, Refusal> {
        match self {
            Self::Small(bytes) => Ok(Sha256::of(bytes)),
            Self::File(file, _) => {
                let path = file.path().to_owned();
                let hashed = tokio::task::spawn_blocking(move || Sha256::of_file(&path)).await;
                let (hash, _) = hashed.map_err(Refusal::internal)?.map_err(|error| unspooled(&error))?;
                Ok(hash)
            }
        }
    }

    /// A part of it.
    pub(super) async fn range(&self, range: Range<u64>) -> Result<Bytes, Refusal> {
        match self {
            Self::Small(bytes) => {
                let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Ok(bytes.slice(at(range.start)..at(range.end)))
            }
            Self::File(file, _) => {
                let opened = file.reopen().map_err(|error| unspooled(&error))?;
                let read = tokio::task::spawn_blocking(move || read_range(opened, range)).await;
                read.map_err(Refusal::internal)?.map_err(|error| unspooled(&error))
            }
        }
    }
}

impl Upload {
    pub(super) fn new(headers: &HeaderMap, body: Body, options: &HostOptions) -> Self {
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let waits = headers.contains_key(header::EXPECT);
        Self { body, declared, limit: options.max_upload, idle: options.limits.idle, done: false, waits }
    }

    /// The length that the client has said.
    pub(super) fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// Takes no more than this.
    pub(super) fn limit_to(&mut self, limit: u64) {
        self.limit = self.limit.min(limit);
    }

    /// A body that must be small.
    pub(super) async fn small(&mut self, limit: u64) -> Result<Bytes, Refusal> {
        let limit = limit.min(self.limit);
        self.check_declared(limit)?;
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if bytes.len().saturating_add(piece.len()) as u64 > limit {
                return Err(Refusal::too_large(limit));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// A body of any size. What a client leaves half-sent is gone with the request.
    pub(super) async fn spool(&mut self, shared: &Shared) -> Result<Spooled, Refusal> {
        self.check_declared(self.limit)?;
        let mut bytes = BytesMut::new();
        let mut next = self.next().await?;
        while let Some(piece) = &next {
            if bytes.len().saturating_add(piece.len()) as u64 > SMALL.min(self.limit) {
                break;
            }
            bytes.extend_from_slice(piece);
            next = self.next().await?;
        }
        let Some(mut piece) = next else {
            return Ok(Spooled::Small(bytes.freeze()));
        };
        let file = new_file(shared).map_err(|error| unspooled(&error))?;
        let opened = file.reopen().map_err(|error| unspooled(&error))?;
        let mut writer = tokio::fs::File::from_std(opened);
        let mut size = bytes.len() as u64;
        writer.write_all(&bytes).await.map_err(|error| unspooled(&error))?;
        drop(bytes);
        loop {
            size = size.saturating_add(piece.len() as u64);
            if size > self.limit {
                return Err(Refusal::too_large(self.limit));
            }
            writer.write_all(&piece).await.map_err(|error| unspooled(&error))?;
            match self.next().await? {
                Some(next) => piece = next,
                None => break,
            }
        }
        writer.flush().await.map_err(|error| unspooled(&error))?;
        Ok(Spooled::File(file, size))
    }

    /// Reads what a client still sends to a host that has made up its mind, within limits.
    pub(super) async fn drain(&mut self) {
        if self.done || self.waits {
            return;
        }
        let drain = async {
            let mut left = DRAINED;
            while let Ok(Some(piece)) = self.next().await {
                left = left.saturating_sub(piece.len() as u64);
                if left == 0 {
                    break;
                }
            }
        };
        drop(tokio::time::timeout(DRAIN_TIME, drain).await);
    }

    fn check_declared(&self, limit: u64) -> Result<(), Refusal> {
        match self.declared {
            Some(declared) if declared > limit => Err(Refusal::too_large(limit)),
            _ => Ok(()),
        }
    }

    /// The next piece; nothing at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        self.waits = false;
        loop {
            if self.done {
                return Ok(None);
            }
            match tokio::time::timeout(self.idle, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    // Trailers say nothing to us.
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
                Ok(None) => self.done = true,
                Ok(Some(Err(_))) => {
                    self.done = true;
                    return Err(Refusal::bad_request("the body ended before its end"));
                }
                Err(_) => {
                    self.done = true;
                    let message = "the body did not go on";
                    return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, Code::BadArgument, message));
                }
            }
        }
    }
}

fn read_range(mut file: File, range: Range<u64>) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(range.start))?;
    file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// An empty file for something on its way.
pub(super) fn new_file(shared: &Shared) -> io::Result<NamedTempFile> {
    let prefix = format!("{}host-", RESERVED_PREFIX);
    tempfile::Builder::new().prefix(&prefix).suffix(".tmp").tempfile_in(shared.spool())
}

fn unspooled(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::full(error),
        _ => Refusal::internal(error),
    }
}
