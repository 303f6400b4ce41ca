//! What a host is told at its start.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::format::{AllowedSigners, Clock, SystemClock};
use crate::repo::CatalogFiles;

use super::access::Token;
use super::log::LogLine;
use super::upload_urls::UploadUrls;

/// Who may move refs (docs/format.md section 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MoveRefs {
    /// Whoever holds the write token, once the version has been checked.
    #[default]
    Writers,
    /// Nobody over HTTP: writers bring versions, and somebody else moves the ref later.
    Nobody,
}

/// How much a host takes from its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many connections are open at the same time, half of them for one peer at the most. Where there is no room for
    /// another one, the one that has waited longest for a request is closed; while a request is under way on each, others
    /// wait to be accepted.
    pub connections: usize,
    /// How many requests run at the same time, half of them for one peer at the most. Others wait as long as `head` says.
    pub requests: usize,
    /// How long a client may take to send the head of a request, and to begin the next one.
    pub head: Duration,
    /// How long a client may pause in a body it sends or receives.
    pub idle: Duration,
    /// How many pushes are checked at the same time.
    pub checks: usize,
    /// How long a push may wait until its check begins.
    pub check_wait: Duration,
    /// How long the check of a push may take.
    pub check: Duration,
    /// How long [`RunningHost::stop`](super::RunningHost::stop) waits for the requests under way.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 512,
            head: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            checks: 2,
            check_wait: Duration::from_secs(30),
            check: Duration::from_secs(240),
            grace: Duration::from_secs(5),
        }
    }
}

/// What a host is and may do.
#[derive(Clone)]
pub struct HostOptions {
    /// Where to listen: an address and a port, `127.0.0.1:8080`. Port 0 takes a free one.
    pub address: String,
    /// Whoever reads must send this token or the write token. Reading is open to everybody when there is none.
    pub read_token: Option<Token>,
    /// Whoever writes must send this token. Nobody can write when there is none.
    pub write_token: Option<Token>,
    /// Who may move refs.
    pub move_refs: MoveRefs,
    /// The largest file that is taken, in bytes, through the host or past it.
    pub max_upload: u64,
    /// The largest catalog that is taken and looked into, in bytes.
    pub max_catalog: u64,
    /// Who may sign versions. With a list, no ref moves to a version that none of them has signed.
    pub allowed_signers: Option<AllowedSigners>,
    /// Where a line is written for each request that was not done. It has what the client is not told.
    pub log: Option<Arc<LogLine>>,
    /// Tells since when the host runs.
    pub clock: Arc<dyn Clock>,
    /// Lists the data files of a catalog, so that a push is checked against the catalog itself. With none, files.json
    /// is believed, and a version without one is refused.
    pub catalog_files: Option<Arc<CatalogFiles<'static>>>,
    /// Makes URLs that a writer sends files to, past the host. With none, all is sent through the host.
    pub upload_urls: Option<Arc<dyn UploadUrls>>,
    /// The folder for bodies that are on their way. With none it is the repository's own folder, or the system's folder
    /// for temporary files where the store has none.
    pub spool: Option<PathBuf>,
    /// How much the host takes from its clients.
    pub limits: Limits,
}

impl HostOptions {
    /// A read-only host that is open to everybody.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            read_token: None,
            write_token: None,
            move_refs: MoveRefs::default(),
            max_upload: 5 << 30,
            max_catalog: 2 << 30,
            allowed_signers: None,
            log: None,
            clock: Arc::new(SystemClock),
            catalog_files: None,
            upload_urls: None,
            spool: None,
            limits: Limits::default(),
        }
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostOptions")
            .field("address", &self.address)
            .field("read_token", &self.read_token)
            .field("write_token", &self.write_token)
            .field("move_refs", &self.move_refs)
            .field("max_upload", &self.max_upload)
            .field("max_catalog", &self.max_catalog)
            .field("allowed_signers", &self.allowed_signers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Why a host could not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address as it was given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The token cannot be sent in a header.
    #[error("a token is 1 to 1024 visible ASCII characters without spaces")]
    BadToken,
}
