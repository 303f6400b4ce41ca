//! The one error a person sees: a sentence, a stable code, a hint (docs/sql.md, "Errors").

use std::fmt;

use crate::engine::{EngineError, EngineErrorKind};
pub use crate::format::Code;
use crate::format::{FormatError, PARTITION_VALUE};
use crate::lake::LakeError;
use crate::sign::SignError;
use crate::store::StoreError;

/// How many characters of a sentence are shown at the most.
const LONGEST: usize = 600;
/// How many characters of a hint: one can name four files by refs of 200 bytes (`super::memory`).
const LONGEST_HINT: usize = 900;

/// What to do about a file that no version has, and that changes what is read of one.
const WRITE_AHEAD_LOG: &str = "no version has such a file: find out who wrote it there, and move it to another folder; FROM \
                                          fdl_fsck('<repository>'); shows all of them.";

/// Why a command could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What the user can do about it.
    pub code: Code,
    /// What is wrong, without a full stop.
    pub sentence: String,
    /// What to run next.
    pub hint: String,
}

impl Error {
    /// An error of these parts.
    pub fn new(code: Code, sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), hint: hint.into() }
    }

    /// An argument that makes no sense.
    pub fn bad_argument(sentence: impl Into<String>) -> Self {
        Self::new(Code::BadArgument, sentence, "see docs/sql.md for what the function takes.")
    }

    /// The same error with a hint that knows more.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The line that DuckDB shows.
    pub fn message(&self, function: &str) -> String {
        // A location, a path or DuckDB's own words can be of any length.
        let whole = without_userinfo(&self.sentence);
        let mut sentence: String = whole.chars().take(LONGEST).collect();
        if sentence.len() < whole.len() {
            sentence.push('…');
        }
        let hint: String = without_userinfo(&self.hint).chars().take(LONGEST_HINT).collect();
        format!("{function}: {} [{}]. Hint: {hint}", sentence.trim_end_matches(['.', '!']), self.code.as_str())
    }

    pub(super) fn panicked() -> Self {
        Self::new(
            Code::DuckDb,
            "an internal error stopped the call, and what it published is whole or not there at all",
            "please report it with the statement; CALL fdl_status shows the working copy.",
        )
    }

    /// A child of the process that loaded fdl has none of its threads, and any lock may be held for ever.
    pub(super) fn forked() -> Self {
        Self::new(
            Code::Forked,
            "this process was forked off the one that loaded fdl, and cannot use its database",
            "connect to a database of its own in the child and load fdl there, or start it by spawn instead of fork.",
        )
    }

    /// A function of fdl in a statement that fdl itself runs: no catalog, view or setting may bring one in.
    pub(super) fn nested() -> Self {
        Self::new(
            Code::BadArgument,
            "a function of fdl cannot run inside a statement that fdl itself runs",
            "a view, macro or default expression calls it: look at FROM fdl_tables('…') and do without it.",
        )
    }

    pub(super) fn no_threads(error: std::io::Error) -> Self {
        Self::new(Code::DuckDb, format!("the system gives no threads: {error}"), "close other programs and try again.")
    }
}

/// A text without the user and the password that a URL in it may name: `s3://key:secret@bucket`.
fn without_userinfo(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '\'' | '"' | '?' | '#');
        let (authority, rest) = part.split_at(part.find(ends).unwrap_or(part.len()));
        clean.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => clean.extend(["…@", host, rest]),
            None => clean.push_str(part),
        }
    }
    clean
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]. Hint: {}", self.sentence, self.code.as_str(), self.hint)
    }
}

impl std::error::Error for Error {}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error.kind {
            EngineErrorKind::Locked => Self::new(
                Code::InTransaction,
                format!("the working catalog is locked: {}", error.message),
                "wait for the other transaction to end, then call again.",
            ),
            EngineErrorKind::NoSpace => Self::new(
                Code::Store,
                format!("no space is left: {}", error.message),
                "free some space, then call again; nothing was published.",
            ),
            EngineErrorKind::Permission => {
                Self::new(Code::Permission, error.message, "check who may write to the file and its folder.")
            }
            EngineErrorKind::Closed => Self::new(
                Code::DuckDb,
                error.message,
                "open the database again, and keep one connection open while you use fdl.",
            ),
            EngineErrorKind::Busy => {
                Self::new(Code::InTransaction, error.message, "wait for one of these calls to end, then call again.")
            }
            EngineErrorKind::Limit => Self::new(
                Code::Corrupt,
                error.message,
                "no catalog of this size needs that much: ask the publisher, and look at it with fdl_fsck.",
            ),
            EngineErrorKind::NotFound | EngineErrorKind::Other => Self::new(
                Code::DuckDb,
                format!("DuckDB refused: {}", error.message),
                "the message is DuckDB's; CALL fdl_status('…') shows the working copy.",
            ),
        }
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        let sentence = error.to_string();
        let (code, hint) = match error {
            FormatError::BadName { .. } => (
                Code::BadName,
                "use a-z, 0-9, '.', '_' and '-', with '/' between parts that begin with a letter or digit.",
            ),
            FormatError::BadPath { why, .. } if why == PARTITION_VALUE => (
                Code::BadPath,
                "UPDATE the value, or partition by something else (ALTER TABLE t SET PARTITIONED BY (…), or RESET PARTITIONED BY) \
                 and write the table anew with CREATE OR REPLACE TABLE t AS FROM t; nothing was committed, and the rows are kept.",
            ),
            FormatError::BadPath { .. } => {
                (Code::BadPath, "only files below the repository's data folder can be part of a version.")
            }
            FormatError::BadId { .. } | FormatError::BadRevision { .. } => (
                Code::BadArgument,
                "give a branch, a tag, a full ref name, a version ID or at least 8 characters of one, each with ~N if wanted.",
            ),
            FormatError::BadValue { .. } => (Code::BadArgument, "see docs/format.md for what the value may be."),
            FormatError::BadRef { .. } | FormatError::BadJson { .. } => {
                (Code::Corrupt, "restore the file from a copy of the repository.")
            }
            FormatError::TooLarge { .. } => (
                Code::BadArgument,
                "take a shorter message or fewer sources, tables or files (CALL ducklake_merge_adjacent_files('<lake>')); nothing \
                 was committed.",
            ),
            FormatError::UnsupportedVersion { .. } => (Code::UnsupportedVersion, "install a newer fdl to read it."),
        };
        Self::new(code, sentence, hint)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let sentence = match &error {
            StoreError::Permission { source, .. } => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        let (code, hint) = match error {
            StoreError::NotFound { .. } => (Code::NotFound, "check the location."),
            StoreError::Permission { .. } => {
                (Code::Permission, "check who may read and write there; behind HTTP give token := '…' or FDL_TOKEN.")
            }
            StoreError::BadLocation { .. } => (Code::BadArgument, "give the path of a folder, or a URL."),
            StoreError::BadKey { .. } => (Code::BadPath, "only the layout's own paths can be used."),
            StoreError::NotRegular { .. } => (
                Code::Corrupt,
                "a repository holds files and folders alone; look at what is there, and restore it from a copy.",
            ),
            StoreError::TooLarge { .. } => (Code::Corrupt, "restore the object from a copy of the repository."),
            StoreError::NoSpace { .. } => (Code::Store, "free some space, then call again; nothing was published."),
            StoreError::Rejected { code: Some(code), .. } if code == Code::Untrusted.as_str() => (
                Code::Untrusted,
                "the host takes what one of its signers has signed: commit with sign_with := 'KEY', or ask its owner.",
            ),
            StoreError::Rejected { .. } => (Code::Store, "do what the reason asks for, then call again."),
            StoreError::Unsupported { .. } => (Code::Store, "use a folder of this machine."),
            StoreError::Failed { .. } => (Code::Store, "call again; what was done already is not done twice."),
        };
        Self::new(code, sentence, hint)
    }
}

impl From<SignError> for Error {
    fn from(error: SignError) -> Self {
        let sentence = error.to_string();
        let (code, hint) = match error {
            SignError::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => (Code::NotFound, "give the path of a private key, or of a public one."),
                std::io::ErrorKind::PermissionDenied => (Code::Permission, "check who may read the key."),
                _ => (Code::BadArgument, "give the path of a private key, or of a public one."),
            },
            SignError::NotAKey { .. } => (
                Code::BadArgument,
                "ssh-keygen -t ed25519 makes a key; ssh-keygen -p -f FILE writes an old one in OpenSSH's form.",
            ),
            SignError::Encrypted { .. } | SignError::Unsupported { .. } => {
                (Code::BadArgument, "add it to an agent with ssh-add, and give its public key: sign_with := 'KEY.pub'.")
            }
            SignError::NoKeygen(_) => {
                (Code::BadArgument, "install OpenSSH's client programs, or sign with a private key file.")
            }
            SignError::NoAnswer { .. } => (
                Code::BadArgument,
                "ask the agent with ssh-add -l; a key in hardware may wait to be touched. Nothing was committed.",
            ),
            SignError::Refused { .. } => (
                Code::BadArgument,
                "add the key with ssh-add, and start DuckDB where SSH_AUTH_SOCK names the agent; ssh-add -l lists its keys.",
            ),
            SignError::NotGood(_) => (Code::BadArgument, "sign with another key; an Ed25519 key always works."),
        };
        Self::new(code, sentence, hint)
    }
}

impl From<LakeError> for Error {
    fn from(error: LakeError) -> Self {
        let sentence = error.to_string();
        let (code, hint) = match error {
            LakeError::Engine(error) => return error.into(),
            LakeError::Format(error) => return error.into(),
            LakeError::Sign(error) => return error.into(),
            LakeError::Extension { name, .. } => {
                let hint = format!("run INSTALL {name}; LOAD {name}; with a network, or set extension_directory.");
                return Self::new(Code::DuckDb, sentence, hint);
            }
            LakeError::UnknownFormat { format, .. } => {
                let hint = format!(
                    "take {format} off catalog_formats in fdl.json, or install a newer fdl; nothing was committed."
                );
                return Self::new(Code::UnsupportedVersion, sentence, hint);
            }
            LakeError::Inexpressible { format, .. } => {
                let hint = format!(
                    "do without it, or end {format} in catalog_formats of fdl.json (\"until\": a day that is over); nothing \
                     was committed."
                );
                return Self::new(Code::UnsupportedVersion, sentence, hint);
            }
            LakeError::NoSuchLake { .. } => {
                (Code::NotFound, "CALL fdl_checkout('<repository>') makes a working catalog.")
            }
            LakeError::NotACheckout { .. } => {
                (Code::BadArgument, "CALL fdl_checkout('<repository>') makes one; only it knows where to push to.")
            }
            LakeError::InTransaction { .. } => (
                Code::InTransaction,
                "COMMIT or ROLLBACK first; where this was called between BEGIN and COMMIT, DuckDB ends that transaction with the \
                 error, whatever COMMIT says then, and its statements have to be run again; in dbt call it from on-run-end or a hook with transaction: false (after_commit); \
                 after USE <lake>, where every call by its short name opens one, write CALL system.main.fdl_… or USE memory \
                 first.",
            ),
            LakeError::Busy { .. } => (Code::InTransaction, "wait for the other call to end, then call again."),
            LakeError::Encrypted => (
                Code::Encrypted,
                "allow_encrypted := true publishes the keys to everybody who can read the repository.",
            ),
            LakeError::OutsideDataDir { .. } => (
                Code::BadPath,
                "copy the rows with CREATE TABLE … AS SELECT, so that they are written to the data folder.",
            ),
            LakeError::NotFlushed { .. } => (
                Code::DuckDb,
                "CALL ducklake_flush_inlined_data('<lake>') in the session that wrote the rows, or write the table anew with \
                 CREATE OR REPLACE TABLE t AS FROM t; then call again.",
            ),
            LakeError::StillInlined { .. } => (
                Code::DuckDb,
                "run CALL ducklake_flush_inlined_data('<lake>'); it writes them out, or shows DuckLake's reason.",
            ),
            LakeError::Corrupt { .. } => (
                Code::Corrupt,
                "the working catalog keeps what it holds: CALL fdl_checkout('<repository>', path := '<another file>', alias := \
                 '<another name>') makes a second working copy, and what is not published can be copied into it.",
            ),
            LakeError::BadCatalog { .. } => (
                Code::Corrupt,
                "FROM fdl_fsck('<repository>', depth := 'files'); shows what else is wrong; ask the publisher for a sound copy.",
            ),
            LakeError::StrangeFormat { .. } => (Code::UnsupportedVersion, "install a newer fdl to read it."),
            LakeError::WriteAheadLog { .. } => (Code::Corrupt, WRITE_AHEAD_LOG),
            LakeError::AliasTaken { .. } => {
                (Code::Exists, "choose another name with alias := '…', or DETACH it first.")
            }
            LakeError::ForeignFile { .. } => {
                (Code::Exists, "choose another place with path := '…'; fdl replaces its own files only.")
            }
            LakeError::UnknownLayout { .. } => (
                Code::UnsupportedVersion,
                "install a newer fdl, or use a DuckDB with an older ducklake; nothing was changed.",
            ),
            LakeError::OtherFormat { .. } => (
                Code::UnsupportedVersion,
                "go on with the DuckDB that made the working copy (1.4 writes 0.3, 1.5 writes 1.0).",
            ),
            LakeError::OtherRepository { .. } => (
                Code::Exists,
                "choose another place with path := '…'; force := true throws away what only this one holds.",
            ),
            LakeError::BadSource { .. } => (
                Code::BadArgument,
                "sources are files of this machine: give their paths, each once; nothing was committed.",
            ),
            LakeError::Dirty { .. } => {
                (Code::Dirty, "CALL fdl_push('…', message := '…') publishes it; force := true throws it away.")
            }
            LakeError::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    (Code::Permission, "check who may write there.")
                }
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    (Code::Store, "free some space, then call again; nothing was published.")
                }
                _ => (Code::Store, "check the path, then call again; nothing was published."),
            },
        };
        Self::new(code, sentence, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reads_a_password() {
        for (text, clean) in [
            ("s3://key:SECRET@bucket/x is no place", "s3://…@bucket/x is no place"),
            ("'http://a:b@h:80/x', then https://c@d", "'http://…@h:80/x', then https://…@d"),
            ("https://h/x@y and file:///a@b", "https://h/x@y and file:///a@b"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_userinfo(text), clean);
            let error = Error::new(Code::Store, text, text);
            assert!(!error.message("fdl_log").contains("SECRET"));
        }
    }
}
