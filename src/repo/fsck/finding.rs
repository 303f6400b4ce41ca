//! What fsck says of an object.

use std::fmt;

use crate::format::{RefKind, RefName, VersionId};
use crate::store::{Store, StoreError};

use super::super::error::RepoError;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Somebody cannot read what they should be able to.
    Error,
    /// Everything can be read; something is untidy.
    Warning,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// What kind of finding it is. The texts are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// An object that something names is not there.
    Missing,
    /// An object is not what the format asks for.
    Unreadable,
    /// An object has another content than version.json says.
    Hash,
    /// An object has another size than version.json or files.json says.
    Size,
    /// A signature does not fit the record that it lies beside.
    Signature,
    /// The parents of a version are not one line that ends.
    Parent,
    /// A ref points at a version that has been taken away.
    HeldExpired,
    /// files.json and the catalog do not name the same files.
    Files,
    /// A data file cannot be read through, or holds other rows than its size and the catalog say. Found by whoever can
    /// read Parquet.
    Content,
    /// A file lies where none may be.
    Stray,
    /// refs.json is not up to date.
    Lag,
    /// Something is half done: a version without its record, a version taken away with its catalog still there.
    Unfinished,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Hash => "hash",
            Self::Size => "size",
            Self::Signature => "signature",
            Self::Parent => "parent",
            Self::HeldExpired => "held-expired",
            Self::Files => "files",
            Self::Content => "content",
            Self::Stray => "stray",
            Self::Lag => "lag",
            Self::Unfinished => "unfinished",
        })
    }
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What kind of finding it is.
    pub code: Code,
    /// The key of the object.
    pub object: String,
    /// What is wrong, in a sentence without a capital and a full stop.
    pub problem: String,
    /// The SQL statement that mends it, where one does. In it `<copy>` stands for a copy of the repository.
    pub repair: Option<String>,
}

impl Finding {
    pub(super) fn error(code: Code, object: impl Into<String>, problem: impl Into<String>) -> Self {
        let (object, problem) = (object.into(), problem.into());
        Self { level: Level::Error, code, object, problem, repair: None }
    }

    pub(super) fn warning(code: Code, object: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::error(code, object, problem) }
    }

    pub(super) fn mended_by(self, repair: String) -> Self {
        Self { repair: Some(repair), ..self }
    }
}

/// What mends things in a repository.
#[derive(Debug, Clone)]
pub(super) struct Repairs(String);

impl Repairs {
    pub(super) fn of(store: &dyn Store) -> Self {
        Self(store.location().replace('\'', "''"))
    }

    /// Completes what init makes, refs.json among it.
    pub(super) fn init(&self) -> String {
        format!("CALL fdl_init('{}')", self.0)
    }

    /// Writes HEAD where it is missing.
    pub(super) fn head(&self, branch: &RefName) -> String {
        format!("CALL fdl_init('{}', branch := '{}')", self.0, branch.short())
    }

    /// Gives back a branch or a tag that is not there.
    pub(super) fn make_ref(&self, name: &RefName, version: VersionId) -> String {
        let function = if name.kind() == RefKind::Tag { "fdl_tag" } else { "fdl_branch" };
        format!("CALL {function}('{}', name := '{}', ref := '{version}')", self.0, name.short())
    }

    pub(super) fn gc(&self) -> String {
        format!("CALL fdl_gc('{}', dry_run := false)", self.0)
    }

    pub(super) fn expire(&self, id: VersionId) -> String {
        format!("CALL fdl_expire('{}', versions := ['{id}'], dry_run := false)", self.0)
    }

    pub(super) fn withdraw(&self, id: VersionId) -> String {
        format!("CALL fdl_withdraw('{}', versions := ['{id}'], dry_run := false)", self.0)
    }

    pub(super) fn delete_ref(&self, name: &RefName) -> String {
        format!("CALL fdl_delete_ref('{}', ref := '{name}')", self.0)
    }

    /// For an object that is not there: a copy of the repository, for which `<copy>` stands, brings it back.
    pub(super) fn bring_back(&self) -> String {
        format!("CALL fdl_clone('<copy>', target := '{}')", self.0)
    }

    /// For an object that must go and that no command deletes.
    pub(super) fn look_again(&self) -> String {
        format!("/* after deleting the object */ FROM fdl_fsck('{}')", self.0)
    }

    /// For an object that is there and wrong, which no command replaces.
    pub(super) fn replace(&self) -> String {
        format!("/* after deleting the object */ {}", self.bring_back())
    }
}

/// What is neither a file nor a folder, as a listing tells of it; any other error goes on. No statement mends it: a link
/// may lead to what somebody means to keep.
pub(super) fn odd(error: StoreError) -> Result<Finding, RepoError> {
    match error {
        StoreError::NotRegular { key, wanted, found } => {
            let problem = format!(
                "it is no {wanted} ({found}), and nothing is read through it; put in its place what belongs there"
            );
            Ok(Finding::error(Code::Unreadable, key, problem))
        }
        other => Err(other.into()),
    }
}

/// What an error about one object comes to as a finding. An error that is about no object is one of the store: it goes on.
pub(super) fn finding(error: RepoError, repairs: &Repairs) -> Result<Finding, RepoError> {
    let text = error.to_string();
    match error {
        RepoError::Corrupt { object, why } => {
            Ok(Finding::error(Code::Unreadable, object, why).mended_by(repairs.replace()))
        }
        RepoError::UnsupportedVersion { object, .. } => Ok(Finding::error(Code::Unreadable, object, text)),
        other => Err(other),
    }
}
