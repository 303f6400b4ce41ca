//! Writing what is ours, and finding out what became of it where the store's answer does not say (docs/format.md section
//! 9): what fails in passing is tried again, and what was refused or failed is read back first.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;

use crate::format::{RefName, VersionId, print_ref};
use crate::store::{ConditionalWrite, Patience, Store, StoreError};

use super::error::RepoError;
use super::publish::{RefOutcome, Seen, after_ref_write};
use super::read::{Held, read_ref};

/// How much of a large file is compared at a time, in bytes.
const PIECE: usize = 1 << 20;

/// A new object.
#[derive(Debug, Clone)]
pub(super) enum Content<'a> {
    /// In memory.
    Bytes(Bytes),
    /// A file of this machine.
    File {
        /// Where it is.
        path: &'a Path,
        /// Its size in bytes.
        size: u64,
    },
}

/// What a write of something new came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It was written.
    Written,
    /// The same bytes are there: the answer was lost, or an earlier call wrote them.
    Same,
    /// Other bytes are there, and stay.
    Other,
}

/// What the store says of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The condition did not hold.
    Refused,
    /// It was turned down for a reason.
    TurnedDown,
    /// This try or one before it failed, and may have been carried out.
    Failed,
}

/// What is at the key afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Ours,
    Other,
    Nothing,
    Unreadable,
}

/// What follows from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Landed,
    Taken,
    Again,
    /// Nothing was written, and the store or the look says why.
    Error,
    Unknown,
}

fn after_write(said: Said, found: Found) -> Verdict {
    match (said, found) {
        (_, Found::Ours) => Verdict::Landed,
        (Said::TurnedDown, Found::Other | Found::Nothing | Found::Unreadable) => Verdict::Error,
        (Said::Refused | Said::Failed, Found::Other) => Verdict::Taken,
        (Said::Refused | Said::Failed, Found::Nothing) => Verdict::Again,
        (Said::Refused, Found::Unreadable) => Verdict::Error,
        (Said::Failed, Found::Unreadable) => Verdict::Unknown,
    }
}

/// Writes an object where there is none.
///
/// # Errors
/// [`RepoError::UnknownWrite`] when the answer was lost and nothing can be read; otherwise nothing was written, and the
/// error is the store's.
pub(super) async fn write_new(store: &dyn Store, key: &str, content: &Content<'_>) -> Result<Put, RepoError> {
    let mut patience = Patience::with(store);
    let mut failure = None;
    loop {
        let (said, error) = match put(store, key, content).await {
            Ok(ConditionalWrite::Written) => return Ok(Put::Written),
            Ok(ConditionalWrite::Refused) if failure.is_none() => (Said::Refused, None),
            Ok(ConditionalWrite::Refused) => (Said::Failed, None),
            Err(error @ StoreError::Rejected { .. }) => (Said::TurnedDown, Some(error)),
            Err(error) if !error.may_have_happened() => return Err(error.into()),
            Err(error) => (Said::Failed, Some(error)),
        };
        let (found, unread) = match look(store, key, content, &mut patience).await {
            Ok(found) => (found, None),
            Err(RepoError::Store(error)) => (Found::Unreadable, Some(error)),
            Err(error) => return Err(error),
        };
        match (after_write(said, found), error.or(unread)) {
            (Verdict::Landed, _) => return Ok(Put::Same),
            (Verdict::Taken, _) => return Ok(Put::Other),
            (Verdict::Error, Some(error)) => return Err(error.into()),
            (Verdict::Unknown, error) => {
                let (key, source) = (key.to_owned(), error.or(failure).map(Box::new));
                return Err(RepoError::UnknownWrite { key, source });
            }
            (Verdict::Again | Verdict::Error, error) => failure = error.or(failure),
        }
        if !patience.wait().await {
            return Err(match failure {
                Some(error) => error.into(),
                None => refused_for_nothing(key).into(),
            });
        }
    }
}

fn refused_for_nothing(key: &str) -> StoreError {
    let reason = "the store says that its condition does not hold, and nothing is there".to_owned();
    StoreError::Rejected { key: key.to_owned(), status: 409, code: None, reason }
}

async fn put(store: &dyn Store, key: &str, content: &Content<'_>) -> Result<ConditionalWrite, StoreError> {
    match content {
        Content::Bytes(bytes) => store.put_if_absent(key, bytes.clone()).await,
        Content::File { path, .. } => store.put_file_if_absent(key, path).await,
    }
}

/// What is at a key, asked again while that fails in passing.
async fn look(
    store: &dyn Store,
    key: &str,
    content: &Content<'_>,
    patience: &mut Patience,
) -> Result<Found, RepoError> {
    loop {
        match look_once(store, key, content).await {
            Err(RepoError::Store(StoreError::NotFound { .. })) => return Ok(Found::Nothing),
            Err(RepoError::Store(StoreError::Failed { .. })) if patience.wait().await => {}
            Err(error) => return Err(error),
            Ok(true) => return Ok(Found::Ours),
            Ok(false) => return Ok(Found::Other),
        }
    }
}

/// Whether what is at a key is the content.
async fn look_once(store: &dyn Store, key: &str, content: &Content<'_>) -> Result<bool, RepoError> {
    let (path, size) = match content {
        Content::Bytes(bytes) => return Ok(store.get(key).await?.bytes == *bytes),
        Content::File { path, size } => (*path, *size),
    };
    if store.head(key).await?.size != size {
        return Ok(false);
    }
    let local = |source| RepoError::Local { path: path.to_owned(), source };
    let mut here = File::open(path).map_err(local)?;
    for at in (0..size).step_by(PIECE) {
        let end = at.saturating_add(PIECE as u64).min(size);
        let there = store.get_range(key, at..end).await?;
        let mut piece = Vec::with_capacity(there.len());
        (&mut here).take(end - at).read_to_end(&mut piece).map_err(local)?;
        if there != piece {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a ref after a write of it, again while that fails in passing.
pub(super) async fn read_back(
    store: &dyn Store,
    name: &RefName,
    patience: &mut Patience,
) -> Result<Option<Held>, RepoError> {
    loop {
        match read_ref(store, name).await {
            Err(RepoError::Store(StoreError::Failed { .. })) if patience.wait().await => {}
            read => return read,
        }
    }
}

/// Makes a ref hold a version, where it holds what was read before. Never [`RefOutcome::LandedAndBuiltUpon`], as no
/// history is read, and never [`RefOutcome::Unmoved`].
///
/// # Errors
/// Those of the store when nothing was written; [`RepoError::UnknownOutcome`], [`RepoError::Rejected`].
pub(super) async fn write_ref(
    store: &dyn Store,
    name: &RefName,
    version: VersionId,
    held: Option<&Held>,
) -> Result<RefOutcome, RepoError> {
    let before = held.map(|held| held.version);
    let mut etag = held.map(|held| held.etag.clone());
    let mut patience = Patience::with(store);
    let mut failure = None;
    loop {
        let content = print_ref(version).into();
        let written = match &etag {
            Some(etag) => store.put_if_unchanged(name.key(), content, etag).await,
            None => store.put_if_absent(name.key(), content).await,
        };
        let error = match written {
            Ok(ConditionalWrite::Written) => return Ok(RefOutcome::Landed),
            Ok(ConditionalWrite::Refused) => None,
            Err(error) => Some(error),
        };
        let (seen, now) = match read_back(store, name, &mut patience).await {
            Ok(Some(held)) => (Seen::Holds { now: held.version, contains_ours: Some(false) }, Some(held.etag)),
            Ok(None) => (Seen::Absent, None),
            Err(_) => (Seen::Unreadable, None),
        };
        match (after_ref_write(seen, version, before), error) {
            (RefOutcome::Unmoved | RefOutcome::Unknown, Some(error))
                if failure.is_none() && !error.may_have_happened() =>
            {
                return Err(error.into());
            }
            (RefOutcome::Unmoved, error) => failure = error.or(failure),
            (RefOutcome::Unknown, error) => return Err(unknown(name, Some(version), error.or(failure))),
            (outcome, _) => return Ok(outcome),
        }
        etag = now;
        if !patience.wait().await {
            return Err(given_up(name, Some(version), failure));
        }
    }
}

/// Why a ref was not written, after it was tried long enough: a write that failed may still be under way, one that was
/// refused is not.
pub(super) fn given_up(name: &RefName, version: Option<VersionId>, failure: Option<StoreError>) -> RepoError {
    match failure {
        Some(error) => unknown(name, version, Some(error)),
        None => RepoError::Rejected { reference: name.clone() },
    }
}

/// Nobody can say what a ref holds. `version` is what it was to hold, none when it was to be deleted.
pub(super) fn unknown(name: &RefName, version: Option<VersionId>, source: Option<StoreError>) -> RepoError {
    RepoError::UnknownOutcome { reference: name.clone(), version, source: source.map(Box::new) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_a_write_and_a_look() {
        for (said, found, verdict) in [
            (Said::Refused, Found::Ours, Verdict::Landed),
            (Said::Refused, Found::Other, Verdict::Taken),
            (Said::Refused, Found::Nothing, Verdict::Again),
            (Said::Refused, Found::Unreadable, Verdict::Error),
            (Said::Failed, Found::Ours, Verdict::Landed),
            (Said::Failed, Found::Other, Verdict::Taken),
            (Said::Failed, Found::Nothing, Verdict::Again),
            (Said::Failed, Found::Unreadable, Verdict::Unknown),
            (Said::TurnedDown, Found::Ours, Verdict::Landed),
            (Said::TurnedDown, Found::Other, Verdict::Error),
            (Said::TurnedDown, Found::Nothing, Verdict::Error),
            (Said::TurnedDown, Found::Unreadable, Verdict::Error),
        ] {
            assert_eq!(after_write(said, found), verdict, "{said:?} {found:?}");
        }
    }
}
