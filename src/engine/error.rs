//! What DuckDB said when it refused a statement.

/// What a refusal means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineErrorKind {
    /// Another transaction, of this process or another, holds the database file.
    Locked,
    /// There is no such table, column, schema or file.
    NotFound,
    /// The disk is full.
    NoSpace,
    /// The file system does not let us write.
    Permission,
    /// Every connection of the user was closed, and ours were let go with them.
    Closed,
    /// Other calls hold all connections.
    Busy,
    /// A private instance has used up the time or the memory that it was given.
    Limit,
    /// Anything else.
    Other,
}

/// A statement failed. The message is DuckDB's own.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    /// What it means.
    pub kind: EngineErrorKind,
    /// DuckDB's message, on one line.
    pub message: String,
}

impl EngineError {
    /// Sorts a message of DuckDB by what it means; the C API gives no finer code.
    pub(super) fn from_message(message: &str) -> Self {
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = |text: &str| message.contains(text);
        let kind = if says("does not exist") {
            EngineErrorKind::NotFound
        } else if says("database is locked") || says("database table is locked") {
            EngineErrorKind::Locked
        } else if says("No space left on device") || says("database or disk is full") {
            EngineErrorKind::NoSpace
        } else if says("Read-only file system") || says("Permission denied") || says("readonly database") {
            EngineErrorKind::Permission
        } else {
            EngineErrorKind::Other
        };
        Self { kind, message }
    }

    /// The pool was emptied because nobody but fdl had the database open.
    pub(super) fn closed() -> Self {
        Self {
            kind: EngineErrorKind::Closed,
            message: "every connection to this database had been closed, so fdl let go of it".to_owned(),
        }
    }

    /// Other calls hold all connections, each described as `fdl_push for 75 s`.
    pub(super) fn busy(held: &[String]) -> Self {
        let message = format!("other calls hold all connections of fdl to this database: {}", held.join(", "));
        Self { kind: EngineErrorKind::Busy, message }
    }

    /// A result that is not what the statement was written to give.
    pub(super) fn unexpected(what: &str) -> Self {
        Self { kind: EngineErrorKind::Other, message: format!("unexpected result: {what}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sorted_and_put_on_one_line() {
        let locked =
            EngineError::from_message("Failed to execute query \"PRAGMA journal_mode=DELETE\":\n database is locked");
        assert_eq!(locked.kind, EngineErrorKind::Locked);
        assert!(!locked.message.contains('\n'));
        assert_eq!(EngineError::from_message("IO Error: No space left on device").kind, EngineErrorKind::NoSpace);
        assert_eq!(EngineError::from_message("Catalog Error: no table").kind, EngineErrorKind::Other);
    }
}
