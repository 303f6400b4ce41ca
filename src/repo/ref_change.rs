//! Making and deleting refs (docs/format.md section 8).

use futures::future::try_join;

use crate::format::{RefKind, RefName, VersionId};
use crate::store::{ConditionalWrite, Patience, Store};

use super::error::RepoError;
use super::publish::{Expected, RefOutcome};
use super::read::{Held, read_head, read_live, read_ref};
use super::refs::{check_free, refresh_refs_json};
use super::write::{given_up, read_back, unknown, write_ref};

/// A ref that was made or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefChange {
    /// The ref.
    pub reference: RefName,
    /// The version it holds, or held.
    pub version: VersionId,
    /// What did not go as well as it should, for the user.
    pub notes: Vec<String>,
}

/// Makes a branch that holds a version.
///
/// # Errors
/// [`RepoError::Exists`], [`RepoError::NameTaken`], [`RepoError::WrongKind`]; [`RepoError::NoSuchVersion`],
/// [`RepoError::Expired`] and [`RepoError::Withdrawn`] for a version that cannot be read;
/// [`RepoError::UnknownOutcome`] when the store's answer was lost.
pub async fn create_branch(store: &dyn Store, name: &RefName, version: VersionId) -> Result<RefChange, RepoError> {
    create(store, RefKind::Branch, name, version).await
}

/// Makes a tag that holds a version. It never moves.
///
/// # Errors
/// Those of [`create_branch`].
pub async fn create_tag(store: &dyn Store, name: &RefName, version: VersionId) -> Result<RefChange, RepoError> {
    create(store, RefKind::Tag, name, version).await
}

async fn create(
    store: &dyn Store,
    wanted: RefKind,
    name: &RefName,
    version: VersionId,
) -> Result<RefChange, RepoError> {
    let reference = name.clone();
    if name.kind() != wanted {
        return Err(RepoError::WrongKind { reference, wanted });
    }
    // What is there says more than what is in its way.
    if let Some(held) = read_ref(store, name).await? {
        let version = held.version;
        return Err(RepoError::Exists { reference, version });
    }
    try_join(check_free(store, name), read_live(store, version)).await?;
    match write_ref(store, name, version, None).await? {
        RefOutcome::Landed | RefOutcome::LandedAndBuiltUpon { .. } => Ok(changed(store, reference, version).await),
        RefOutcome::Refused { now: Some(version) } => Err(RepoError::Exists { reference, version }),
        RefOutcome::Refused { now: None } | RefOutcome::Unmoved => Err(RepoError::Rejected { reference }),
        RefOutcome::Unknown => Err(unknown(name, Some(version), None)),
    }
}

/// Deletes a ref. Its version stays.
///
/// # Errors
/// [`RepoError::NoSuchRef`]; [`RepoError::DefaultBranch`] for the branch that HEAD names; [`RepoError::Conflict`] when
/// somebody moved it meanwhile; [`RepoError::UnknownOutcome`] when the store's answer was lost.
pub async fn delete_ref(store: &dyn Store, name: &RefName) -> Result<RefChange, RepoError> {
    let reference = name.clone();
    let (head, held) = try_join(read_head(store), read_ref(store, name)).await?;
    if head == *name {
        return Err(RepoError::DefaultBranch { reference });
    }
    let Held { version, mut etag } = held.ok_or_else(|| RepoError::NoSuchRef { name: name.to_string() })?;
    let mut patience = Patience::with(store);
    let mut failure = None;
    loop {
        let error = match store.delete_if_unchanged(name.key(), &etag).await {
            Ok(ConditionalWrite::Written) => return Ok(changed(store, reference, version).await),
            Ok(ConditionalWrite::Refused) => None,
            Err(error) => Some(error),
        };
        match (read_back(store, name, &mut patience).await, error) {
            (Ok(None), _) => return Ok(changed(store, reference, version).await),
            (Ok(Some(now)), _) if now.version != version => {
                let expected = Expected::Exactly(version);
                return Err(RepoError::Conflict { reference, expected, now: Some(now.version) });
            }
            (_, Some(error)) if failure.is_none() && !error.may_have_happened() => return Err(error.into()),
            (Ok(Some(now)), error) => {
                etag = now.etag;
                failure = error.or(failure);
            }
            (Err(_), error) => return Err(unknown(name, None, error.or(failure))),
        }
        if !patience.wait().await {
            return Err(given_up(name, None, failure));
        }
    }
}

/// The change is made; refs.json follows, and may lag.
async fn changed(store: &dyn Store, reference: RefName, version: VersionId) -> RefChange {
    let notes = lagging(store, &reference).await.into_iter().collect();
    RefChange { reference, version, notes }
}

/// Brings refs.json up to date; a note when that fails.
pub(super) async fn lagging(store: &dyn Store, touched: &RefName) -> Option<String> {
    let error = refresh_refs_json(store, Some(touched)).await.err()?;
    Some(format!("refs.json could not be brought up to date: {error}"))
}
