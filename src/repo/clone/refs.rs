//! The refs of a copy: they only move forward, to what the source holds. A branch that is further than the source's stays:
//! a backup that is a few versions behind brings back what was lost.

use std::collections::BTreeMap;

use crate::format::{RefKind, RefName, VersionId, layout, print_head};
use crate::store::Store;

use super::super::error::RepoError;
use super::super::publish::RefOutcome;
use super::super::read::{Held, get_optional, read_ref};
use super::super::refs::refresh_refs_json;
use super::super::resolve::descends_from;
use super::super::steps;
use super::super::write::{Content, Put, unknown, write_new, write_ref};
use super::CloneError;
use super::choose::Chosen;
use super::target::Target;

/// What became of the refs.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) written: u64,
    pub(super) there: u64,
    /// What the copy holds now.
    pub(super) refs: BTreeMap<RefName, VersionId>,
    pub(super) notes: Vec<String>,
}

/// Where a ref of the target is, seen from the source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// At the same version.
    Same,
    /// Behind it, or not there.
    Behind,
    /// At a version that builds on it.
    Ahead,
}

/// Finds a ref of the target that cannot follow, before anything is written.
pub(super) async fn check(
    source: &dyn Store,
    target: &dyn Store,
    refs: &BTreeMap<RefName, VersionId>,
) -> Result<(), CloneError> {
    for (name, version) in refs {
        let held = read_ref(target, name).await?;
        standing(source, target, name, *version, held.as_ref()).await?;
    }
    Ok(())
}

async fn standing(
    source: &dyn Store,
    target: &dyn Store,
    name: &RefName,
    version: VersionId,
    held: Option<&Held>,
) -> Result<Standing, CloneError> {
    let Some(Held { version: theirs, .. }) = held else {
        return Ok(Standing::Behind);
    };
    let branch = name.kind() == RefKind::Branch;
    if *theirs == version {
        Ok(Standing::Same)
    } else if branch && descends_from(source, version, *theirs, None).await? {
        Ok(Standing::Behind)
    } else if branch && descends_from(target, *theirs, version, None).await? {
        Ok(Standing::Ahead)
    } else {
        Err(CloneError::Diverged { reference: name.clone(), theirs: *theirs, ours: version })
    }
}

/// Writes the refs, HEAD where there is none, and refs.json. A target that does not list is told of each ref by name.
/// A ref to a version that the target has taken away is not made.
pub(super) async fn write(source: &dyn Store, target: &Target<'_>, chosen: &Chosen) -> Result<Moved, CloneError> {
    let (mut moved, store) = (Moved::default(), target.store);
    for (name, version) in &chosen.refs {
        if target.has_taken_away(*version) {
            moved.notes.push(format!("{name} is not copied: the copy has taken away {version}, which it holds"));
            continue;
        }
        match write_one(source, store, name, *version).await? {
            Wrote::Moved => moved.written += 1,
            Wrote::Same => moved.there += 1,
            Wrote::Ahead(theirs) => {
                moved.there += 1;
                moved.notes.push(format!("{name} of the copy is ahead, at {theirs}, and stays there"));
                moved.refs.insert(name.clone(), theirs);
                continue;
            }
        }
        moved.refs.insert(name.clone(), *version);
    }
    moved.written += u64::from(write_head(store, &chosen.head).await?);
    let named = moved.refs.keys().filter(|_| !target.lists).map(Some);
    for touched in named.chain(target.lists.then_some(None)) {
        if let Err(error) = refresh_refs_json(store, touched).await {
            moved.notes.push(format!("refs.json could not be brought up to date: {error}"));
            break;
        }
    }
    Ok(moved)
}

/// Writes HEAD where there is none.
pub(super) async fn write_head(target: &dyn Store, head: &RefName) -> Result<bool, RepoError> {
    if get_optional(target, layout::HEAD).await?.is_some() {
        return Ok(false);
    }
    let written = write_new(target, layout::HEAD, &Content::Bytes(print_head(head).into())).await?;
    Ok(written == Put::Written)
}

/// What became of one ref of the target.
enum Wrote {
    /// It was moved.
    Moved,
    /// It was there already.
    Same,
    /// It is at this version, which builds on the source's.
    Ahead(VersionId),
}

/// Moves one ref of the target forward.
async fn write_one(
    source: &dyn Store,
    target: &dyn Store,
    name: &RefName,
    version: VersionId,
) -> Result<Wrote, CloneError> {
    let held = read_ref(target, name).await?;
    match (standing(source, target, name, version, held.as_ref()).await?, &held) {
        (Standing::Same, _) => return Ok(Wrote::Same),
        (Standing::Ahead, Some(held)) => return Ok(Wrote::Ahead(held.version)),
        (Standing::Behind | Standing::Ahead, _) => {}
    }
    let outcome = match write_ref(target, name, version, held.as_ref()).await {
        Err(RepoError::Store(refused)) if steps::are_asked_for(&refused) => {
            let steps = steps::between(target, held.map(|held| held.version), version).await?;
            if steps.is_empty() {
                return Err(refused.into());
            }
            for step in steps {
                Box::pin(write_one(source, target, name, step)).await?;
            }
            return Ok(Wrote::Moved);
        }
        outcome => outcome?,
    };
    match outcome {
        RefOutcome::Landed | RefOutcome::LandedAndBuiltUpon { .. } => Ok(Wrote::Moved),
        RefOutcome::Refused { now: Some(theirs) } => {
            Err(CloneError::Diverged { reference: name.clone(), theirs, ours: version })
        }
        RefOutcome::Refused { now: None } | RefOutcome::Unmoved => {
            Err(CloneError::Repo(RepoError::Rejected { reference: name.clone() }))
        }
        RefOutcome::Unknown => Err(CloneError::Repo(unknown(name, Some(version), None))),
    }
}
