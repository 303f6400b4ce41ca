//! Which versions a ref would make reachable that no ref leads to yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{Code, Record, RefName, VersionId};
use crate::repo::{RepoError, read_mark, read_record};

use super::Store;
use super::answer::Refusal;

/// The most versions one push may bring.
const LONGEST: usize = 10_000;
/// The most memory that their records may take, in bytes.
const LARGEST: usize = 64 << 20;

/// The records of a push, newest first.
#[derive(Debug, Default)]
struct Records {
    records: Vec<Record>,
    size: usize,
}

impl Records {
    /// Reads the record of a version that a push brings. One with more than one parent is none of ours.
    async fn read(&mut self, store: &dyn Store, id: VersionId) -> Result<Option<VersionId>, Refusal> {
        let record = read_record(store, id).await.map_err(|error| match error {
            RepoError::NoSuchVersion { id } => {
                Refusal::conflict(Code::NotFound, format!("version {id} is not complete: it has no version.json"))
            }
            error => Refusal::of_push(error),
        })?;
        if record.parents.len() > 1 {
            return Err(Refusal::conflict(Code::Corrupt, format!("version {id} names more than one parent")));
        }
        self.size = self.size.saturating_add(memory_of(&record));
        if self.records.len() >= LONGEST || self.size > LARGEST {
            let message = format!("the push brings more than {LONGEST} versions, or their records are too long");
            return Err(Refusal::conflict(Code::BadArgument, message));
        }
        let parent = record.parent();
        self.records.push(record);
        Ok(parent)
    }
}

/// About how many bytes a record takes.
fn memory_of(record: &Record) -> usize {
    let sources: usize = record.sources.iter().map(|source| source.name.len() + 200).sum();
    let message = record.message.as_ref().map_or(0, String::len);
    sources + message + record.catalogs.len() * 200 + 1_000
}

/// The version that a branch is to be moved to, and before it those between it and what the branch holds: versions that
/// were taken away, which no branch can be moved to. Newest first.
///
/// # Errors
/// 409 when its parent is not what the branch holds (docs/format.md section 14).
pub(super) async fn since(
    store: &dyn Store,
    branch: &RefName,
    new: VersionId,
    held: VersionId,
) -> Result<Vec<Record>, Refusal> {
    let mut records = Records::default();
    let mut seen = BTreeSet::from([new]);
    let mut at = new;
    loop {
        let Some(parent) = records.read(store, at).await? else {
            let message = format!("{branch} is at {held}, which version {new} does not build on");
            return Err(Refusal::not_a_child(message));
        };
        if parent == held {
            return Ok(records.records);
        }
        if !seen.insert(parent) {
            return Err(Refusal::conflict(Code::Conflict, format!("the parents of {new} do not end")));
        }
        if read_mark(store, parent).await.map_err(Refusal::of_push)?.is_none() {
            let message = format!("{branch} is at {held}, and the parent of version {new} is {parent}");
            return Err(Refusal::not_a_child(message));
        }
        at = parent;
    }
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
    let mut records = Records::default();
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
            false => records.read(store, id).await?,
        };
        if let Some(parent) = parent {
            *ahead.entry(parent).or_default() |= published;
        }
    }
    Ok(records.records)
}
