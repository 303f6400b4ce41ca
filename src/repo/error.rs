//! What can go wrong with a repository. Each variant holds what the user's message needs.

use std::io;
use std::path::PathBuf;

use crate::format::{Expired, FormatError, RefKind, RefName, VersionId, layout};
use crate::store::StoreError;

use super::publish::Expected;

/// Why something could not be done to a repository.
#[derive(Debug, thiserror::Error)]
pub enum RepoError {
    /// There is no fdl.json at the location.
    #[error("{location} holds no repository{}", oddity.map(|oddity| format!(": {oddity}")).unwrap_or_default())]
    NotARepository {
        /// Where it was looked for.
        location: String,
        /// What is odd about the store there.
        oddity: Option<&'static str>,
    },
    /// There is neither a branch nor a tag, nor a version that begins so.
    #[error("there is no {name} here")]
    NoSuchRef {
        /// What was asked for.
        name: String,
    },
    /// There is no version of this ID.
    #[error("there is no version {id}")]
    NoSuchVersion {
        /// The ID.
        id: VersionId,
    },
    /// The history is shorter than the generations asked for.
    #[error("{revision} goes back further than the history, which has {generations} generations before it")]
    NoSuchAncestor {
        /// What was asked for.
        revision: String,
        /// How many generations there are.
        generations: u32,
    },
    /// The branch has no version yet.
    #[error("{reference} has no version yet")]
    Unborn {
        /// The branch.
        reference: RefName,
    },
    /// Several versions begin so.
    #[error("{prefix} is the beginning of {} versions", candidates.len())]
    AmbiguousPrefix {
        /// What was asked for.
        prefix: String,
        /// The versions, sorted.
        candidates: Vec<VersionId>,
    },
    /// A branch and a tag have this name.
    #[error("{} is both a branch and a tag: {branch} and {tag}", branch.short())]
    AmbiguousName {
        /// The branch.
        branch: RefName,
        /// The tag.
        tag: RefName,
    },
    /// No ref has this name, and to look for the beginning of an ID the store would have to list.
    #[error("{prefix} is neither a branch nor a tag, and this store cannot look for the beginning of a version ID")]
    PrefixNeedsListing {
        /// What was asked for.
        prefix: String,
    },
    /// The version is past retention, or marked for a reason that is not known.
    #[error("version {id} has expired{}", told(mark))]
    Expired {
        /// The version.
        id: VersionId,
        /// What its mark says.
        mark: Expired,
    },
    /// The version held data that must not be published.
    #[error("version {id} has been withdrawn{}", told(mark))]
    Withdrawn {
        /// The version.
        id: VersionId,
        /// What its mark says.
        mark: Expired,
    },
    /// A file of a major version of the format that this program does not know.
    #[error("{object} is written in version {found} of the format; this program reads version 0")]
    UnsupportedVersion {
        /// The key of the file.
        object: String,
        /// The version found.
        found: String,
    },
    /// The version has no catalog in a DuckLake format that the reader reads.
    #[error("version {id} is published in DuckLake {}, and {reader}", formats.join(" and "))]
    OtherFormats {
        /// The version.
        id: VersionId,
        /// The formats of its catalogs.
        formats: Vec<String>,
        /// What the reader reads, for people.
        reader: String,
    },
    /// Something in the repository, or in a version that is to be pushed, is not as it must be.
    #[error("{object} is damaged: {why}")]
    Corrupt {
        /// The key or path.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// The catalog has more bytes than the reader allows. It may be whole and right.
    #[error("{object} has {} bytes, and no more than {limit} are read", size.map_or("more".to_owned(), |size| size.to_string()))]
    TooLarge {
        /// Its key.
        object: String,
        /// How many bytes it has, where its record says so.
        size: Option<u64>,
        /// How many the reader allows.
        limit: u64,
    },
    /// The ref is not where the caller expects it; nothing was changed.
    #[error("{reference} is {}, not {expected}", now.map_or("gone".to_owned(), |id| format!("at {id}")))]
    Conflict {
        /// The ref.
        reference: RefName,
        /// What the caller builds on.
        expected: Expected,
        /// What the ref holds now.
        now: Option<VersionId>,
    },
    /// The write of a ref was answered by an error and the ref cannot be read, or a write may still be under way.
    #[error("it is not known whether {reference} was {}{}", changed(*version), said(source.as_deref()))]
    UnknownOutcome {
        /// The ref.
        reference: RefName,
        /// What it was to hold; nothing when it was to be deleted.
        version: Option<VersionId>,
        /// What the store said.
        source: Option<Box<StoreError>>,
    },
    /// The answer to the write of a new object was lost, and the object cannot be read.
    #[error("it is not known whether {key} was written{}", said(source.as_deref()))]
    UnknownWrite {
        /// The key.
        key: String,
        /// What the store said.
        source: Option<Box<StoreError>>,
    },
    /// The store refuses to write or delete the ref although it is as was expected.
    #[error("the store refuses to change {reference}, although nobody else has changed it")]
    Rejected {
        /// The ref.
        reference: RefName,
    },
    /// The ref is there already.
    #[error("{reference} exists already and holds {version}")]
    Exists {
        /// The ref.
        reference: RefName,
        /// What it holds.
        version: VersionId,
    },
    /// The name is a folder of another ref's name, or below another ref.
    #[error("{reference} cannot exist beside {by}: one would be the folder of the other")]
    NameTaken {
        /// The ref that was to be made.
        reference: RefName,
        /// The ref in its way.
        by: RefName,
    },
    /// HEAD names the branch, so it cannot be deleted.
    #[error("{reference} is the default branch")]
    DefaultBranch {
        /// The branch.
        reference: RefName,
    },
    /// Only a branch, or only a tag, will do here.
    #[error("{reference} is not a {wanted}")]
    WrongKind {
        /// The ref.
        reference: RefName,
        /// What it should be.
        wanted: RefKind,
    },
    /// The store ignores the conditions of writes: of two writers, the last would silently win.
    #[error("{location} ignores the condition {} of a write, so it can be read but not written", ignored.join(" and "))]
    NoConditions {
        /// The location.
        location: String,
        /// The headers that it ignores.
        ignored: Vec<&'static str>,
    },
    /// A name, path, revision or value that the format does not allow.
    #[error(transparent)]
    Format(FormatError),
    /// A file of this machine cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The store could not do what was asked.
    #[error(transparent)]
    Store(StoreError),
}

/// What is at a key and is no object, or goes on for too long, is damage of the repository.
impl From<StoreError> for RepoError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotRegular { key, wanted, found } => Self::corrupt(key, format!("it is no {wanted} ({found})")),
            StoreError::TooLarge { key, limit } => {
                Self::corrupt(key, format!("it has more than {limit} bytes, the most that is read of it"))
            }
            other => Self::Store(other),
        }
    }
}

/// What was to become of a ref, which is at that version or gone afterwards.
fn changed(version: Option<VersionId>) -> String {
    version.map_or("deleted".to_owned(), |id| format!("moved to {id}"))
}

/// What the store said, as the end of a sentence.
fn said(source: Option<&StoreError>) -> String {
    source.map(|source| format!(": {source}")).unwrap_or_default()
}

/// What a mark says, as the end of a sentence.
fn told(mark: &Expired) -> String {
    let since = mark.at.map(|at| format!(" on {at}")).unwrap_or_default();
    let message = mark.message.as_deref().map(|text| format!(": {text:?}"));
    since + &message.unwrap_or_default()
}

impl From<FormatError> for RepoError {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::UnsupportedVersion { file, found } => Self::UnsupportedVersion { object: file, found },
            FormatError::BadRef { file, why } | FormatError::BadJson { file, why } => {
                Self::Corrupt { object: file, why }
            }
            other => Self::Format(other),
        }
    }
}

impl RepoError {
    pub(super) fn corrupt(object: impl Into<String>, why: impl Into<String>) -> Self {
        let (object, why) = (object.into(), why.into());
        Self::Corrupt { object, why }
    }

    pub(super) fn marked(id: VersionId, mark: Expired) -> Self {
        match mark.reason {
            Some(crate::format::Reason::Withdrawn) => Self::Withdrawn { id, mark },
            _ => Self::Expired { id, mark },
        }
    }

    /// A version that something in the repository names must be there: its absence is damage, not a bad question.
    #[must_use]
    pub fn named_by(self, namer: impl std::fmt::Display) -> Self {
        match self {
            Self::NoSuchVersion { id } => {
                Self::corrupt(layout::version_json(id), format!("it is missing, but {namer} names it"))
            }
            other => other,
        }
    }
}
