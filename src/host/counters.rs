//! What a host has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

use chrono::{DateTime, Utc};

/// What a host has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// When it was started.
    pub since: DateTime<Utc>,
    /// How many requests it was sent that could be read.
    pub requests: u64,
    /// How many bytes it sent, heads of answers included.
    pub bytes_out: u64,
    /// How many bytes it received, heads of requests included.
    pub bytes_in: u64,
}

/// The numbers behind [`Stats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) bytes_in: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn stats(&self, since: DateTime<Utc>) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (requests, bytes_out, bytes_in) = (of(&self.requests), of(&self.bytes_out), of(&self.bytes_in));
        Stats { since, requests, bytes_out, bytes_in }
    }
}
