//! Why a store could not do what was asked.

use super::net::{Answer, Lasting, NetError};

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
        /// The key that was asked for, or the path of a file of this machine (a body, the target of a download).
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
    /// Something is at the key, or on the way to it, that is neither a file nor a folder.
    #[error("{key} is no {wanted} ({found})")]
    NotRegular {
        /// The key of what is there: the one that was asked for, or a folder on the way to it.
        key: String,
        /// What should be there: `regular file`, `folder`.
        wanted: &'static str,
        /// What is there, with its article: `a symbolic link`.
        found: &'static str,
    },
    /// The object goes on after the most that may be read of it. Not more than a byte behind that was read.
    #[error("{key} has more than {limit} bytes, the most that is read of it")]
    TooLarge {
        /// The key that was asked for.
        key: String,
        /// How many bytes are read at the most.
        limit: u64,
    },
    /// The location cannot be one of a repository.
    #[error("{location:?} is not a location of a repository: {why}")]
    BadLocation {
        /// The location as it was given.
        location: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No room left to write.
    #[error("no space left to write {key}")]
    NoSpace {
        /// The key that was to be written, or the path of a file of this machine (the target of a download).
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
    /// The store heard a write and turned it down for a reason of its own (format.md section 14). Nothing was written.
    #[error("{key} was turned down: {reason}")]
    Rejected {
        /// The key that was to be written.
        key: String,
        /// The status of the answer: 409 when a host's checks of a push failed, 413 when it takes nothing so large.
        status: u16,
        /// The store's own word for the reason (`FDL-CONFLICT`), where it gives one.
        code: Option<String>,
        /// The reason, in the store's words where it gives any, its code in brackets.
        reason: String,
    },
    /// Anything else: unreachable, timed out, an answer that makes no sense. A write may or may not have happened.
    #[error("could not {action} {key}: {source}")]
    Failed {
        /// The key that was asked for, or the path of a file of this machine (a body, the target of a download).
        key: String,
        /// A verb: `read`, `write`, `list`, `delete`.
        action: &'static str,
        /// What went wrong.
        source: Source,
    },
}

impl StoreError {
    /// Whether a write that was answered by this error may have been done, or may still be: whoever sent it looks. The same
    /// write may be answered better in a while.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Failed { action: "write" | "delete", source, .. } => may_have_happened(source.as_ref()),
            Self::Failed { .. }
            | Self::NotFound { .. }
            | Self::Permission { .. }
            | Self::BadKey { .. }
            | Self::NotRegular { .. }
            | Self::TooLarge { .. }
            | Self::BadLocation { .. }
            | Self::NoSpace { .. }
            | Self::Rejected { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}

fn may_have_happened(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    if let Some(answer) = source.downcast_ref::<Answer>() {
        return answer.is_passing();
    }
    match source.downcast_ref::<NetError>() {
        Some(NetError::Connect(_) | NetError::Body(_) | NetError::Request(_)) => false,
        Some(NetError::Idle(_) | NetError::Broken(_) | NetError::Slow(_)) => true,
        None => !source.is::<Lasting>(),
    }
}

/// The cause behind a [`StoreError`].
pub type Source = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;

    fn failed(action: &'static str, source: impl Into<Source>) -> StoreError {
        StoreError::Failed { key: "k".to_owned(), action, source: source.into() }
    }

    fn answered(status: u16) -> StoreError {
        failed("write", Answer::of_status(StatusCode::from_u16(status).unwrap()))
    }

    #[test]
    fn tells_what_may_have_happened_from_what_did_not() {
        for status in [408, 429, 499, 500, 502, 503, 504, 520] {
            assert!(answered(status).may_have_happened(), "{status}");
        }
        for status in [301, 400, 409, 501, 505, 511] {
            assert!(!answered(status).may_have_happened(), "{status}");
        }
        let text = || "x".to_owned();
        for error in [NetError::Idle(Duration::ZERO), NetError::Broken(text())] {
            assert!(failed("delete", error).may_have_happened());
        }
        for error in [NetError::Connect(text()), NetError::Body(text()), NetError::Request(text())] {
            assert!(!failed("write", error).may_have_happened());
        }
        assert!(failed("write", "a disk that failed").may_have_happened());
        assert!(!failed("write", Lasting(text())).may_have_happened());
        assert!(!failed("read", "the file that was to be sent").may_have_happened());
        assert!(!StoreError::NotFound { key: text() }.may_have_happened());
    }
}
