//! A repository over HTTP (docs/format.md section 14).
//!
//! The host serves what a [`Store`] holds, and nothing else: a request's path is checked against the layout before
//! anything is looked at (`target`). It takes versions from writers, and moves a ref only to a version that is whole
//! (`check`).

mod access;
mod answer;
mod batch;
mod budget;
mod check;
mod conditions;
mod counters;
mod dispatch;
mod history;
mod key_locks;
mod log;
mod meter;
mod options;
mod peers;
mod range;
mod read;
mod reference;
mod running;
mod shared;
mod target;
mod upload;
mod upload_urls;
mod version;
mod write;

pub use access::Token;
pub use counters::Stats;
pub use log::LogLine;
pub use options::{HostError, HostOptions, Limits, MoveRefs};
pub use running::{Host, RunningHost};
pub use upload_urls::{SignedUrls, UploadUrl, UploadUrls};

use crate::store::Store;
