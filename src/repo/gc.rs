//! Deleting what no version needs (docs/format.md section 12).
//!
//! A version is live while it has no mark, whether or not a ref leads to it; one that has a mark and is held by a ref all
//! the same is taken for live too, as far as its files can be told. Nothing under `sources/` is ever looked at.
//!
//! What a live version needs is what its files.json and its catalogs name: a record can vouch for a files.json that leaves
//! files out, and readers follow the catalog. Catalogs are read only where there is something to delete.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{Files, Random, VersionId, layout};
use crate::store::{Store, StoreError};

use super::CONCURRENT;
use super::catalog::{LookInto, every_list, version_files};
use super::error::RepoError;
use super::folders::{Folder, Folders, list_folders, read_records};
use super::key_set::KeySet;
use super::open::Repository;
use super::read::{read_mark, read_record};
use super::refs::{Refs, list_refs};

/// How many objects are deleted between two looks at the refs and versions.
const AT_ONCE: usize = 10_000;

/// How many versions' catalogs are in hand at a time.
const CATALOGS: usize = 4;

/// What is spared.
#[derive(Debug, Clone)]
pub struct GcOptions {
    /// Nothing younger than this goes. A push may have written it that has not come to its record yet.
    pub grace: TimeDelta,
    /// Keys of data files that the caller's own unpushed versions and working catalog name.
    pub files: HashSet<String>,
    /// The caller's own unpushed versions: their folders stay, complete or not.
    pub versions: BTreeSet<VersionId>,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self { grace: TimeDelta::days(7), files: HashSet::new(), versions: BTreeSet::new() }
    }
}

/// Why an object goes, or stays after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcReason {
    /// No live version names the data file.
    Unnamed,
    /// It is in the folder of a version that never got its record.
    Incomplete,
    /// A killed writer left it half-way; such leftovers are told of together.
    HalfWritten,
    /// It stays: a version that appeared since the plan needs it.
    NeededNow,
    /// It stays: by the store's own clock it is younger than the grace period.
    Young,
}

impl fmt::Display for GcReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unnamed => "no version names it",
            Self::Incomplete => "its version was never finished",
            Self::HalfWritten => "left half-written",
            Self::NeededNow => "keep: a new version needs it",
            Self::Young => "keep: it is younger than the grace period by the store's clock",
        })
    }
}

impl GcReason {
    /// Whether the object goes.
    #[must_use]
    pub fn goes(self) -> bool {
        matches!(self, Self::Unnamed | Self::Incomplete | Self::HalfWritten)
    }
}

/// An object that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcRow {
    /// Its key; empty for [`GcReason::HalfWritten`].
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// How long ago it was written: since the plan's `now` in a plan, by the store's clock after a run.
    pub age: TimeDelta,
    /// Why it goes or stays.
    pub reason: GcReason,
    /// Whether it is gone.
    pub done: bool,
}

/// What is to be deleted.
#[derive(Debug)]
pub struct GcPlan {
    /// The objects, in the order of the listings.
    pub rows: Vec<GcRow>,
    now: DateTime<Utc>,
    /// The versions whose files have been left out.
    live: BTreeSet<VersionId>,
}

/// Says what would go. Writes nothing, so it takes `now` for the store's time; [`run_gc`] asks the store itself.
///
/// Each of `versions/`, `refs/` and the data folder is listed once, and each files.json read; where a data file could go,
/// every catalog of a live version as well. Beside the rows it keeps 16 bytes for each data file that is live.
///
/// # Errors
/// [`RepoError::Corrupt`] when a record that is there or that a ref or another record names cannot be read, or when a data
/// file could go and a catalog of a live version cannot be looked into: it is not known then what it needs, and nothing
/// may go. Those of the store where it cannot list.
pub async fn plan_gc(
    repository: &Repository,
    options: &GcOptions,
    look: LookInto<'_>,
    now: DateTime<Utc>,
) -> Result<GcPlan, RepoError> {
    let mut work = Work::new(repository, options, look, BTreeSet::new(), Ask::Lists);
    let (folders, refs) = work.look().await?;
    let before = now.checked_sub_signed(options.grace).unwrap_or(DateTime::<Utc>::MIN_UTC);
    let row = |path, bytes, written, reason| GcRow { path, bytes, age: now - written, reason, done: false };
    let mut rows = Vec::new();
    for (id, folder) in &folders.by_id {
        // One young file keeps the whole folder: somebody is still writing.
        if work.is_unfinished(&folders, &refs, *id) && folder.0.iter().all(|part| part.written < before) {
            rows.extend(folder.0.iter().map(|part| {
                let key = format!("{}{}", layout::version(*id), part.name);
                row(key, part.size, part.written, GcReason::Incomplete)
            }));
        }
    }
    let mut listing = repository.store().list(repository.settings().data_dir.as_str());
    while let Some(meta) = listing.try_next().await? {
        if meta.last_modified < before && !work.needed.contains(&meta.key) && !options.files.contains(&meta.key) {
            rows.push(row(meta.key, meta.size, meta.last_modified, GcReason::Unnamed));
        }
    }
    drop(listing);
    if rows.iter().any(|row| row.reason == GcReason::Unnamed) {
        work.ask = Ask::Catalogs;
        let live = work.live.iter().map(|id| (*id, folders.by_id.get(id).is_some_and(Folder::is_marked))).collect();
        work.need(live).await?;
        rows.retain(|row| row.reason != GcReason::Unnamed || !work.needed.contains(&row.path));
    }
    Ok(GcPlan { rows, now, live: work.live })
}

/// Carries a plan out. Gives its rows as they are now: what a version has come to need, or what the store takes for
/// younger than the grace period, stays.
///
/// Refs and versions are read again before every ten thousand deletions, and whatever appeared is left out, until there
/// is nothing new. The store's time is that of a small object, written for it and deleted again. Stopped at any point,
/// the same call with a fresh plan finishes it.
///
/// # Errors
/// Those of [`plan_gc`] before anything is deleted; afterwards the first object that could not be deleted, when all the
/// others have been tried.
pub async fn run_gc(
    repository: &Repository,
    plan: GcPlan,
    options: &GcOptions,
    look: LookInto<'_>,
    random: &dyn Random,
) -> Result<Vec<GcRow>, RepoError> {
    let store = repository.store();
    let GcPlan { mut rows, now: planned, live } = plan;
    let mut work = Work::new(repository, options, look, live, Ask::Catalogs);
    let now = store_time(repository, random).await?;
    for row in &mut rows {
        row.age = row.age.checked_add(&(now - planned)).unwrap_or(TimeDelta::zero());
        if row.age <= options.grace {
            row.reason = GcReason::Young;
        }
    }
    let mut failed = None;
    for chunk in rows.chunks_mut(AT_ONCE) {
        let (folders, refs) = work.look().await?;
        for row in chunk.iter_mut().filter(|row| row.reason.goes()) {
            let needed = match layout::in_version(&row.path) {
                Some((id, _)) => !work.is_unfinished(&folders, &refs, id),
                None => work.needed.contains(&row.path),
            };
            if needed {
                row.reason = GcReason::NeededNow;
            }
        }
        failed = delete(store, chunk).await.or(failed);
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    let before = now.checked_sub_signed(options.grace).unwrap_or(DateTime::<Utc>::MIN_UTC);
    let bytes = store.sweep(before).await?;
    if bytes > 0 {
        let (path, age, reason) = (String::new(), options.grace, GcReason::HalfWritten);
        rows.push(GcRow { path, bytes, age, reason, done: true });
    }
    Ok(rows)
}

/// Deletes what goes. Gives the first error, when everything has been tried.
async fn delete(store: &dyn Store, rows: &mut [GcRow]) -> Option<StoreError> {
    let keys: Vec<String> = rows.iter().filter(|row| row.reason.goes()).map(|row| row.path.clone()).collect();
    let (gone, failed) = store
        .delete_all(stream::iter(keys).boxed())
        .fold((HashSet::new(), None), |(mut gone, mut failed), answer| async move {
            match answer {
                Ok(key) => drop(gone.insert(key)),
                Err(error) => failed = failed.or(Some(error)),
            }
            (gone, failed)
        })
        .await;
    for row in rows {
        row.done = gone.contains(&row.path);
    }
    failed
}

/// The time by the clock of the store: when it says that a new object was written. Left behind by a stop, that object
/// goes with the next gc after the grace period.
async fn store_time(repository: &Repository, random: &dyn Random) -> Result<DateTime<Utc>, RepoError> {
    let store = repository.store();
    let key = format!("{}fdl-clock-{}", repository.settings().data_dir, random.uuid());
    store.put_if_absent(&key, bytes::Bytes::new()).await?;
    let time = store.head(&key).await?.last_modified;
    store.delete(&key).await?;
    Ok(time)
}

/// What is asked for the data files of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// files.json, and the catalog where that does not tell.
    Lists,
    /// Its catalogs as well.
    Catalogs,
}

struct Work<'a> {
    ask: Ask,
    repository: &'a Repository,
    options: &'a GcOptions,
    look: LookInto<'a>,
    /// The versions whose files are in `needed`, or were when the plan was made.
    live: BTreeSet<VersionId>,
    needed: KeySet,
    /// The parents of the versions whose records have been read.
    parents: BTreeMap<VersionId, Vec<VersionId>>,
}

impl<'a> Work<'a> {
    fn new(
        repository: &'a Repository,
        options: &'a GcOptions,
        look: LookInto<'a>,
        live: BTreeSet<VersionId>,
        ask: Ask,
    ) -> Self {
        Self { ask, repository, options, look, live, needed: KeySet::default(), parents: BTreeMap::new() }
    }

    /// Reads refs and versions, and adds what those need that were not live before, until there are none.
    async fn look(&mut self) -> Result<(Folders, Refs), RepoError> {
        let store = self.repository.store();
        loop {
            // In this order: a version is there before a ref leads to it.
            let refs = list_refs(store).await?;
            let folders = list_folders(store).await?;
            let held: BTreeSet<VersionId> = refs.refs.values().copied().collect();
            let live = |(id, folder): (VersionId, &Folder)| {
                (!folder.is_marked() || held.contains(&id)).then_some((id, folder.is_marked()))
            };
            let new: Vec<(VersionId, bool)> =
                folders.complete().filter_map(live).filter(|(id, _)| !self.live.contains(id)).collect();
            if new.is_empty() {
                self.require_named(&folders, &refs).await?;
                return Ok((folders, refs));
            }
            self.live.extend(new.iter().map(|(id, _)| *id));
            self.need(new).await?;
        }
    }

    /// Makes sure that what a ref or another version names has its record. A version that lost it is not one that was
    /// never finished, and what it needs is not known.
    async fn require_named(&mut self, folders: &Folders, refs: &Refs) -> Result<(), RepoError> {
        let store = self.repository.store();
        let held = refs.refs.iter().map(|(name, id)| (*id, name.to_string()));
        let mut named: BTreeMap<VersionId, String> = held.collect();
        let is_complete = |id: &VersionId| folders.by_id.get(id).is_some_and(Folder::is_complete);
        // Taken away or not, as each had its parents before it.
        let unread = folders.complete().map(|(id, _)| id).filter(|id| !self.parents.contains_key(id));
        let read = read_records(store, unread).await?;
        self.parents.extend(read.into_iter().map(|(id, record)| (id, record.parents)));
        for (id, parents) in &self.parents {
            named.extend(parents.iter().map(|parent| (*parent, layout::version_json(*id))));
        }
        for (id, by) in named.into_iter().filter(|(id, _)| !is_complete(id)) {
            // It may have come while the folders were listed.
            read_record(store, id).await.map_err(|error| error.named_by(&by))?;
        }
        Ok(())
    }

    /// Adds the data files of versions.
    async fn need(&mut self, versions: Vec<(VersionId, bool)>) -> Result<(), RepoError> {
        let (repository, look, ask) = (self.repository, self.look, self.ask);
        let at_once = match ask {
            Ask::Lists => CONCURRENT,
            Ask::Catalogs => CATALOGS,
        };
        let mut all = stream::iter(versions)
            .map(|(id, marked)| async move {
                let store = repository.store();
                let files = async {
                    let record = read_record(store, id).await?;
                    let data_dir = &repository.settings().data_dir;
                    let files = match ask {
                        Ask::Lists => vec![version_files(store, data_dir, &record, look).await?],
                        Ask::Catalogs => every_list(store, data_dir, &record, look).await?,
                    };
                    Ok::<_, RepoError>((id, record.parents, files))
                };
                match files.await {
                    Ok(files) => Ok(Some(files)),
                    Err(_) if marked => Ok(None),
                    // Expired since it was listed.
                    Err(_) if read_mark(store, id).await?.is_some() => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(at_once);
        while let Some(files) = all.try_next().await? {
            let Some((id, parents, files)) = files else { continue };
            self.parents.insert(id, parents);
            for (key, _) in files.iter().flat_map(Files::iter) {
                self.needed.insert(key);
            }
        }
        Ok(())
    }

    /// Whether the folder is of a version that never got its record, and that nobody waits for.
    fn is_unfinished(&self, folders: &Folders, refs: &Refs, id: VersionId) -> bool {
        let complete = folders.by_id.get(&id).is_some_and(Folder::is_complete);
        let held = refs.refs.values().any(|version| *version == id);
        !complete && !held && !self.options.versions.contains(&id)
    }
}
