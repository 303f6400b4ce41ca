//! The stable codes of errors: `FDL-…` (docs/sql.md, "Errors"). A host answers with the same ones (docs/format.md section 14).

/// What went wrong, by what can be done about it. A closed list: what a call, a host and its log say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// No such ref, version, table or file.
    NotFound,
    /// No repository at the location.
    NotARepository,
    /// Written by a newer version of the format.
    UnsupportedVersion,
    /// Past retention.
    Expired,
    /// Withdrawn by its publisher.
    Withdrawn,
    /// Somebody else was first.
    Conflict,
    /// The answer was lost; it may have happened.
    UnknownOutcome,
    /// Damaged.
    Corrupt,
    /// A path that leaves the data folder.
    BadPath,
    /// Not a name.
    BadName,
    /// An argument that makes no sense.
    BadArgument,
    /// More than one fits.
    Ambiguous,
    /// It is there already.
    Exists,
    /// Work would be lost.
    Dirty,
    /// A transaction is open.
    InTransaction,
    /// The catalog is encrypted.
    Encrypted,
    /// Not allowed.
    Permission,
    /// The store cannot be reached, or misbehaves.
    Store,
    /// Nobody vouches for it whom the reader trusts.
    Untrusted,
    /// The process was forked after fdl was loaded.
    Forked,
    /// DuckDB refused.
    DuckDb,
}

impl Code {
    /// The code as it stands in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FDL-NOT-FOUND",
            Self::NotARepository => "FDL-NOT-A-REPOSITORY",
            Self::UnsupportedVersion => "FDL-UNSUPPORTED-VERSION",
            Self::Expired => "FDL-EXPIRED",
            Self::Withdrawn => "FDL-WITHDRAWN",
            Self::Conflict => "FDL-CONFLICT",
            Self::UnknownOutcome => "FDL-UNKNOWN-OUTCOME",
            Self::Corrupt => "FDL-CORRUPT",
            Self::BadPath => "FDL-BAD-PATH",
            Self::BadName => "FDL-BAD-NAME",
            Self::BadArgument => "FDL-BAD-ARGUMENT",
            Self::Ambiguous => "FDL-AMBIGUOUS",
            Self::Exists => "FDL-EXISTS",
            Self::Dirty => "FDL-DIRTY",
            Self::InTransaction => "FDL-IN-TRANSACTION",
            Self::Encrypted => "FDL-ENCRYPTED",
            Self::Permission => "FDL-PERMISSION",
            Self::Store => "FDL-STORE",
            Self::Untrusted => "FDL-UNTRUSTED",
            Self::Forked => "FDL-FORKED",
            Self::DuckDb => "FDL-DUCKDB",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
