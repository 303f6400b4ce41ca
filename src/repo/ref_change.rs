//! Making and deleting refs (docs/format.md section 8).

use futures::future::try_join;

use crate::format::{RefKind, RefName, VersionId, print_ref};
use crate::store::{ConditionalWrite, Store, StoreError};

use super::error::RepoError;
use super::publish::Expected;
use super::read::{read_head, read_live, read_ref};
use super::refs::{check_free, refresh_refs_json};

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
    let written = store.put_if_absent(name.key(), print_ref(version).into()).await;
    let error = match written {
        Ok(ConditionalWrite::Written) => return Ok(changed(store, reference, version).await),
        Ok(ConditionalWrite::Refused) => None,
        Err(error) => Some(error),
    };
    // It was absent a moment ago, so when it holds our version now it is ours and the answer was lost.
    match (read_ref(store, name).await, error) {
        (Ok(Some(held)), _) if held.version == version => Ok(changed(store, reference, version).await),
        (Ok(Some(held)), _) => Err(RepoError::Exists { reference, version: held.version }),
        (Ok(None), Some(error)) if !may_have_happened(&error) => Err(error.into()),
        (_, source) => {
            Err(RepoError::UnknownOutcome { reference, version: Some(version), source: source.map(Box::new) })
        }
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
    let held = held.ok_or_else(|| RepoError::NoSuchRef { name: name.to_string() })?;
    let error = match store.delete_if_unchanged(name.key(), &held.etag).await {
        Ok(ConditionalWrite::Written) => return Ok(changed(store, reference, held.version).await),
        Ok(ConditionalWrite::Refused) => None,
        Err(error) => Some(error),
    };
    match (read_ref(store, name).await, error) {
        (Ok(None), _) => Ok(changed(store, reference, held.version).await),
        (Ok(Some(now)), _) if now.version != held.version => {
            Err(RepoError::Conflict { reference, expected: Expected::Exactly(held.version), now: Some(now.version) })
        }
        (Ok(Some(_)), Some(error)) if !may_have_happened(&error) => Err(error.into()),
        (Ok(Some(_)), None) => Err(RepoError::Rejected { reference }),
        (_, source) => Err(RepoError::UnknownOutcome { reference, version: None, source: source.map(Box::new) }),
    }
}

/// Whether a request that was answered by this error may have been done, or may still be.
pub(super) fn may_have_happened(error: &StoreError) -> bool {
    match error {
        StoreError::Failed { .. } => true,
        StoreError::NotFound { .. }
        | StoreError::Permission { .. }
        | StoreError::BadKey { .. }
        | StoreError::NotRegular { .. }
        | StoreError::TooLarge { .. }
        | StoreError::BadLocation { .. }
        | StoreError::NoSpace { .. }
        | StoreError::Rejected { .. }
        | StoreError::Unsupported { .. } => false,
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
