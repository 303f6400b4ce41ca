//! What to do about each error of a repository.

use super::{Code, Error};
use crate::repo::RepoError;

impl From<RepoError> for Error {
    fn from(error: RepoError) -> Self {
        let sentence = error.to_string();
        let (code, hint): (Code, String) = match error {
            RepoError::Store(error) => return error.into(),
            RepoError::Format(error) => return error.into(),
            RepoError::NotARepository { location, .. } => (
                Code::NotARepository,
                format!("check the location, or start one there with CALL fdl_init('{location}');"),
            ),
            RepoError::NoSuchRef { .. } => {
                (Code::NotFound, "FROM fdl_refs('<repository>'); lists the branches and tags.".into())
            }
            RepoError::NoSuchVersion { .. } | RepoError::NoSuchAncestor { .. } => {
                (Code::NotFound, "FROM fdl_log('<repository>'); lists the versions.".into())
            }
            RepoError::Unborn { .. } => (
                Code::NotFound,
                "CALL fdl_checkout('<repository>'); then create tables, and CALL fdl_push('<lake>', message := '…');"
                    .into(),
            ),
            RepoError::AmbiguousPrefix { candidates, .. } => {
                let list: Vec<String> = candidates.iter().take(5).map(ToString::to_string).collect();
                (Code::Ambiguous, format!("give more of the ID: {}.", list.join(", ")))
            }
            RepoError::AmbiguousName { branch, tag } => {
                (Code::Ambiguous, format!("write ref := '{branch}' or ref := '{tag}'."))
            }
            RepoError::PrefixNeedsListing { .. } => (Code::NotFound, "give the whole version ID.".into()),
            RepoError::Expired { .. } => (
                Code::Expired,
                "FROM fdl_log('<repository>'); shows which versions can still be read (state 'live').".into(),
            ),
            RepoError::Withdrawn { .. } => (
                Code::Withdrawn,
                "its publisher took it back; FROM fdl_log('<repository>'); shows which versions can be read.".into(),
            ),
            RepoError::UnsupportedVersion { .. } => {
                (Code::UnsupportedVersion, "install a newer fdl to read it.".into())
            }
            RepoError::OtherFormats { .. } => (
                Code::UnsupportedVersion,
                "use a DuckDB whose ducklake extension reads it (1.4 reads 0.3, 1.5 reads 1.0; UPDATE EXTENSIONS (ducklake) \
                 gets the newest), or ask the publisher to add yours to catalog_formats in fdl.json."
                    .into(),
            ),
            RepoError::TooLarge { size, limit, .. } => (
                Code::BadArgument,
                match size {
                    Some(size) => {
                        format!("if you trust its publisher, allow that much: max_catalog := {size} (fdl_attach, fdl_checkout).")
                    }
                    None => format!("if you trust its publisher, allow more than max_catalog := {limit} (fdl_attach, fdl_checkout)."),
                },
            ),
            RepoError::Corrupt { .. } => {
                (Code::Corrupt, "restore the object from a copy of the repository; nothing was changed.".into())
            }
            RepoError::Conflict { .. } => {
                (Code::Conflict, "read the ref again with FROM fdl_refs('<repository>'); and start from there.".into())
            }
            RepoError::UnknownOutcome { .. } | RepoError::UnknownWrite { .. } => (
                Code::UnknownOutcome,
                "call again once the store answers: it finds out what happened, and nothing is lost or done twice."
                    .into(),
            ),
            RepoError::Rejected { .. } => (Code::Store, "call again; if it stays, ask whoever runs the store.".into()),
            RepoError::Exists { .. } => {
                (Code::Exists, "choose another name; a tag never moves, and a branch moves by fdl_push.".into())
            }
            RepoError::NameTaken { .. } => (Code::Exists, "choose another name.".into()),
            RepoError::DefaultBranch { .. } => {
                (Code::BadArgument, "HEAD names it, and a repository always has it.".into())
            }
            RepoError::WrongKind { wanted, .. } => {
                (Code::BadArgument, format!("give the full name of a {wanted}, such as {}name.", wanted.folder()))
            }
            RepoError::NoConditions { .. } => (
                Code::Store,
                "use a store with If-Match and If-None-Match; without them two writers overwrite each other.".into(),
            ),
            RepoError::Local { .. } => (Code::Store, "check the working copy with CALL fdl_status('<lake>');".into()),
        };
        Self::new(code, sentence, hint)
    }
}
