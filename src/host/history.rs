//! Which versions a ref would make reachable that no ref leads to yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{Record, RefName, VersionId};
use crate::repo::{RepoError, read_record};

use super::Store;
use super::answer::Refusal;

/// The most versions one push may bring.
const LONGEST: usize = 10_000;

/// The record of a version that a push brings. One with more than one parent is none of ours.
async fn record(store: &dyn Store, id: VersionId) -> Result<Record, Refusal> {
    let record = read_record(store, id).await.map_err(|error| match error {
        RepoError::NoSuchVersion { id } => {
            Refusal::conflict("FDL-NOT-FOUND", format!("version {id} is not complete: it has no version.json"))
        }
        error => Refusal::repository(error).failed_check(),
    })?;
    match record.parents.len() {
        0 | 1 => Ok(record),
        _ => Err(Refusal::conflict("FDL-CORRUPT", format!("version {id} names more than one parent"))),
    }
}

/// The versions from `new` down to the one that the branch holds, newest first, without the latter.
///
/// # Errors
/// 409 when they do not lead there: branches only move forward (docs/format.md section 8).
pub(super) async fn since(
    store: &dyn Store,
    branch: &RefName,
    new: VersionId,
    held: VersionId,
) -> Result<Vec<Record>, Refusal> {
    let mut records = Vec::new();
    let mut seen = BTreeSet::new();
    let mut at = new;
    while at != held {
        if records.len() >= LONGEST || !seen.insert(at) {
            return Err(Refusal::conflict("FDL-CONFLICT", format!("the parents of {new} do not end")));
        }
        let record = record(store, at).await?;
        let parent = record.parent();
        records.push(record);
        let Some(parent) = parent else {
            let message = format!("{branch} is at {held}, which version {new} does not build on");
            return Err(Refusal::conflict("FDL-CONFLICT", message));
        };
        at = parent;
    }
    Ok(records)
}

/// The versions from `new` down that lead to no version of `refs`, newest first.
///
/// IDs sort by the time they were made, so both sides are walked newest first until nothing unpublished is left. When
/// clocks were wrong it may return more than it need, never less.
pub(super) async fn unpublished(
    store: &dyn Store,
    new: VersionId,
    refs: impl IntoIterator<Item = VersionId>,
) -> Result<Vec<Record>, Refusal> {
    let mut ahead: BTreeMap<VersionId, bool> = refs.into_iter().map(|id| (id, true)).collect();
    let mut records: Vec<Record> = Vec::new();
    let mut seen = BTreeSet::new();
    ahead.entry(new).or_insert(false);
    while ahead.values().any(|published| !published) {
        let Some((id, published)) = ahead.pop_last() else { break };
        if !seen.insert(id) {
            continue;
        }
        let parent = match published {
            // Damage in what is published already is no reason to refuse what is new.
            true => read_record(store, id).await.ok().and_then(|record| record.parent()),
            false => {
                let record = record(store, id).await?;
                let parent = record.parent();
                records.push(record);
                parent
            }
        };
        if records.len() > LONGEST {
            return Err(Refusal::conflict("FDL-CONFLICT", format!("the parents of {new} do not end")));
        }
        if let Some(parent) = parent {
            *ahead.entry(parent).or_default() |= published;
        }
    }
    Ok(records)
}
