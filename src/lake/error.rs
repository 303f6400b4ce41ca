//! What can go wrong with a catalog or a working copy.

use std::io;
use std::path::{Path, PathBuf};

use crate::engine::{EngineError, EngineErrorKind};
use crate::format::FormatError;
use crate::sign::SignError;

/// Why something could not be done with a catalog. A closed list; [`crate::sql`] gives each its code and hint.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// DuckDB refused a statement.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A text that the format does not allow.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The version cannot be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// An extension of DuckDB that is needed cannot be loaded or installed.
    #[error("the DuckDB extension {name} could not be loaded: {source}")]
    Extension {
        /// Its name.
        name: &'static str,
        /// DuckDB's reason.
        source: EngineError,
    },
    /// Neither an attached lake nor a file.
    #[error("{given} is neither an attached DuckLake catalog nor a file")]
    NoSuchLake {
        /// What was given.
        given: String,
    },
    /// A lake or a file that no checkout has made.
    #[error("{given} is not a working catalog that fdl_checkout has made")]
    NotACheckout {
        /// What was given.
        given: String,
    },
    /// A transaction is open on the working catalog, in this session or in another.
    #[error("a transaction is open on the working catalog {}", path.display())]
    InTransaction {
        /// The working catalog.
        path: PathBuf,
    },
    /// Another call works on the same working copy.
    #[error("the working copy {} is in use by another fdl call", path.display())]
    Busy {
        /// The working catalog.
        path: PathBuf,
    },
    /// The catalog holds encryption keys in clear.
    #[error("the catalog is encrypted; a version would hold its keys in clear")]
    Encrypted,
    /// A data file that the repository's data folder does not hold.
    #[error("{table} has a data file outside the repository's data folder: {path}")]
    OutsideDataDir {
        /// Schema and table.
        table: String,
        /// The path in the catalog.
        path: String,
    },
    /// Rows or deletions are still inside the catalog instead of Parquet files.
    #[error("rows of the working catalog are inlined and not in Parquet files, in {table}")]
    StillInlined {
        /// The metadata table that holds them.
        table: String,
    },
    /// DuckLake does not write out the rows that it keeps in the working catalog.
    #[error("DuckLake could not write the rows that it keeps inside the working catalog {} to Parquet: {source}", path.display())]
    NotFlushed {
        /// The working catalog.
        path: PathBuf,
        /// DuckDB's reason.
        source: EngineError,
    },
    /// A catalog that does not hold together.
    #[error("{object} is damaged: {why}")]
    Corrupt {
        /// What it is, for people.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// A catalog from a repository that holds anything but what DuckLake writes, or that cannot be read.
    #[error("{object} is damaged: {why}")]
    BadCatalog {
        /// The catalog, for people.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// A catalog from a repository in a DuckLake format whose tables fdl does not know, and so cannot check.
    #[error("{object} is in DuckLake format {format:?}, which this fdl does not know")]
    StrangeFormat {
        /// The catalog, for people.
        object: String,
        /// Its format.
        format: String,
    },
    /// A write-ahead log beside a frozen catalog.
    #[error("{} lies beside a catalog, and DuckDB would read the catalog with the changes in it", path.display())]
    WriteAheadLog {
        /// The log.
        path: PathBuf,
    },
    /// The alias belongs to a database that has nothing to do with the call.
    #[error("the name {alias} is taken by another database")]
    AliasTaken {
        /// The alias.
        alias: String,
    },
    /// A file that fdl did not make stands where the working catalog should go.
    #[error("{} exists and is not a working catalog of fdl", path.display())]
    ForeignFile {
        /// The file.
        path: PathBuf,
    },
    /// The working catalog is in a format that this session's DuckLake does not write.
    #[error("{} is in DuckLake format {written}, and this session's DuckLake writes {read}", path.display())]
    OtherFormat {
        /// The working catalog.
        path: PathBuf,
        /// Its format.
        written: String,
        /// The session's.
        read: String,
    },
    /// A version is to have a catalog in a DuckLake format that fdl cannot write.
    #[error("a version is to have a catalog in DuckLake {format}, which this fdl cannot write from {session}")]
    UnknownFormat {
        /// The format.
        format: String,
        /// The session's.
        session: String,
    },
    /// The session's DuckLake has a metadata table that fdl cannot make.
    #[error("this session's DuckLake has the format {format}, and fdl does not know the type {sql_type} of {column}")]
    UnknownLayout {
        /// The format.
        format: String,
        /// The metadata table and its column.
        column: String,
        /// The type of the column.
        sql_type: String,
    },
    /// A version is to have a catalog in a DuckLake format that has no place for what it holds.
    #[error("a version is to have a catalog in DuckLake {format}, which has no place for {}", listed(what))]
    Inexpressible {
        /// The format.
        format: String,
        /// What has no place there, for people: `the macro main.m`.
        what: Vec<String>,
    },
    /// The working copy belongs to another repository.
    #[error("{} is a working copy of {repository}", path.display())]
    OtherRepository {
        /// The working catalog.
        path: PathBuf,
        /// The repository that it was checked out from.
        repository: String,
    },
    /// A file that cannot be the source of a version.
    #[error("{} cannot be a source: {why}", path.display())]
    BadSource {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Work that is nowhere else would be lost.
    #[error("{} holds {what}", path.display())]
    Dirty {
        /// The working catalog.
        path: PathBuf,
        /// What would be lost, for people: `changes that are not committed`.
        what: String,
    },
    /// The system refused.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// A verb: `read`, `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// How many things a message names.
const NAMED: usize = 5;

fn listed(what: &[String]) -> String {
    let named = what.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match what.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Less than this many bytes are as good as none: SQLite needs some pages for its log.
const NO_SPACE: u64 = 64 << 10;

impl LakeError {
    /// SQLite says little of why it cannot open or write a file; the file system says more.
    pub(super) fn of_file(file: &Path, error: EngineError) -> Self {
        let folder = file.parent().unwrap_or(file);
        let unclear = error.kind == EngineErrorKind::Other;
        let kind = match rustix::fs::statvfs(folder) {
            Ok(space) if unclear && space.f_bavail.saturating_mul(space.f_frsize) < NO_SPACE => {
                EngineErrorKind::NoSpace
            }
            Ok(space) if unclear && space.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) => {
                EngineErrorKind::Permission
            }
            _ if error.message.contains("unable to open database") => EngineErrorKind::Permission,
            _ => error.kind,
        };
        Self::Engine(EngineError { kind, ..error })
    }

    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}
