//! Taking old versions away (docs/format.md section 12): the mark first, then the catalogs. The record, dataset.json
//! and files.json stay, so the log still tells of the version; its data files are the business of gc.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{Expired, Reason, Record, RefKind, RefName, Timestamp, VersionId, layout};
use crate::store::{ConditionalWrite, Store};

use super::CONCURRENT;
use super::error::RepoError;
use super::folders::{Folders, history, list_folders, read_records};
use super::refs::{Refs, list_refs};

/// A version that no ref leads to may belong to a push that is under way, or to one whose ref a host moves later. By
/// rule (not by its ID) it expires only when its record was written this long ago.
const SETTLED: TimeDelta = TimeDelta::days(7);

/// How many versions are marked between two looks at the refs.
const AT_ONCE: usize = 64;

/// Which versions are to expire: those in `versions`, and those that break every rule that is given. Without a rule and
/// without versions, none.
#[derive(Debug, Clone, Default)]
pub struct ExpireOptions {
    /// The last so many versions of each branch, expired ones among them, stay; of `reference` alone when that is given.
    pub keep_last: Option<u64>,
    /// Versions made after this long before now stay.
    pub older_than: Option<TimeDelta>,
    /// Versions that expire whatever the rules say.
    pub versions: Vec<VersionId>,
    /// Only the history of this ref is looked at. Without it, that of every ref, and with `older_than` also versions
    /// that no ref leads to.
    pub reference: Option<RefName>,
}

/// What becomes of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpireAction {
    /// It expires.
    Expire,
    /// It stays: this ref points at it.
    HeldBy(RefName),
    /// It stays: no ref leads to it and it is younger than a week, so it may be about to be published.
    Unsettled,
    /// It has a mark already. Its catalogs go, where a stopped call left them.
    AlreadyExpired,
}

impl fmt::Display for ExpireAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expire => f.write_str("expire"),
            Self::HeldBy(name) => write!(f, "keep: {name} holds it"),
            Self::Unsettled => f.write_str("keep: it is new, and may be about to be published"),
            Self::AlreadyExpired => f.write_str("already expired"),
        }
    }
}

/// A version that the rules hit, or that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpireRow {
    /// The version.
    pub version: VersionId,
    /// When it was made, where its record says so.
    pub created: Option<Timestamp>,
    /// What becomes of it.
    pub action: ExpireAction,
    /// The bytes that its catalogs free. Zero for a version that stays.
    pub bytes: u64,
    /// Whether it has been done.
    pub done: bool,
    /// The keys of its catalogs.
    catalogs: Vec<String>,
}

/// What is to be done, oldest version first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpirePlan {
    /// A row for each version that the rules hit.
    pub rows: Vec<ExpireRow>,
}

/// Says which versions would expire. Writes nothing. One listing, and one read of each record.
///
/// # Errors
/// [`RepoError::NoSuchVersion`] and [`RepoError::NoSuchRef`] for what the options name; [`RepoError::Corrupt`] when a
/// record is missing or damaged; those of the store where it cannot list.
pub async fn plan_expire(
    store: &dyn Store,
    options: &ExpireOptions,
    now: DateTime<Utc>,
) -> Result<ExpirePlan, RepoError> {
    let (folders, refs) = try_join(list_folders(store), list_refs(store)).await?;
    let records = read_records(store, folders.complete().map(|(id, _)| id)).await?;
    Ok(ExpirePlan { rows: Scene { folders, refs, records }.rows(options, now)? })
}

/// What a plan is made from.
struct Scene {
    folders: Folders,
    refs: Refs,
    records: BTreeMap<VersionId, Record>,
}

impl Scene {
    fn rows(&self, options: &ExpireOptions, now: DateTime<Utc>) -> Result<Vec<ExpireRow>, RepoError> {
        let reachable = self.reachable()?;
        let mut hit = self.hit_by_rule(options, &reachable, now)?;
        for id in &options.versions {
            match self.records.contains_key(id) {
                true => drop(hit.insert(*id)),
                false => return Err(RepoError::NoSuchVersion { id: *id }),
            }
        }
        let holders = self.refs.by_version();
        Ok(hit
            .into_iter()
            .map(|id| {
                let holder = holders.get(&id).and_then(|names| names.first());
                let by_rule = !options.versions.contains(&id);
                self.row(id, holder, by_rule && !reachable.contains(&id), now)
            })
            .collect())
    }

    fn row(&self, id: VersionId, holder: Option<&RefName>, hidden: bool, now: DateTime<Utc>) -> ExpireRow {
        let folder = self.folders.by_id.get(&id).cloned().unwrap_or_default();
        let recent = |id| self.written(id).is_none_or(|written| now - written < SETTLED);
        let action = match holder {
            Some(name) => ExpireAction::HeldBy(name.clone()),
            None if folder.is_marked() => ExpireAction::AlreadyExpired,
            None if hidden && recent(id) => ExpireAction::Unsettled,
            None => ExpireAction::Expire,
        };
        let goes = matches!(action, ExpireAction::Expire | ExpireAction::AlreadyExpired);
        let catalogs = || folder.catalogs().filter(|_| goes);
        ExpireRow {
            version: id,
            created: self.records.get(&id).and_then(|record| record.created),
            action,
            bytes: catalogs().map(|part| part.size).sum(),
            done: false,
            catalogs: catalogs().map(|part| format!("{}{}", layout::version(id), part.name)).collect(),
        }
    }

    /// When the record of a version was written, by the store's clock.
    fn written(&self, id: VersionId) -> Option<DateTime<Utc>> {
        Some(self.folders.by_id.get(&id)?.part(layout::VERSION_JSON)?.written)
    }

    fn reachable(&self) -> Result<BTreeSet<VersionId>, RepoError> {
        let mut reachable = BTreeSet::new();
        for (name, version) in &self.refs.refs {
            reachable.extend(history(&self.records, *version, name)?);
        }
        Ok(reachable)
    }

    fn hit_by_rule(
        &self,
        options: &ExpireOptions,
        reachable: &BTreeSet<VersionId>,
        now: DateTime<Utc>,
    ) -> Result<BTreeSet<VersionId>, RepoError> {
        let mut kept = BTreeSet::new();
        let mut pool: BTreeSet<VersionId> = match options.older_than {
            Some(_) => self.records.keys().copied().collect(),
            None => reachable.clone(),
        };
        let keep = usize::try_from(options.keep_last.unwrap_or(0)).unwrap_or(usize::MAX);
        if let Some(name) = &options.reference {
            let version = self.refs.refs.get(name).ok_or_else(|| RepoError::NoSuchRef { name: name.to_string() })?;
            let chain = history(&self.records, *version, name)?;
            kept.extend(chain.iter().take(keep).copied());
            pool = chain.into_iter().collect();
        } else {
            for (name, version) in self.refs.refs.iter().filter(|(name, _)| name.kind() == RefKind::Branch) {
                kept.extend(history(&self.records, *version, name)?.into_iter().take(keep));
            }
        }
        if options.keep_last.is_none() && options.older_than.is_none() {
            pool.clear();
        }
        let before = options.older_than.map(|age| now.checked_sub_signed(age).unwrap_or(DateTime::<Utc>::MIN_UTC));
        pool.retain(|id| !kept.contains(id) && before.is_none_or(|before| self.made(*id) < Some(before)));
        Ok(pool)
    }

    /// When a version was made: as its record says, else when that was written.
    fn made(&self, id: VersionId) -> Option<DateTime<Utc>> {
        let created = self.records.get(&id).and_then(|record| record.created).map(Timestamp::utc);
        created.or_else(|| self.written(id))
    }
}

/// Carries a plan out. Gives its rows as they are now: a version that a ref has come to point at stays.
///
/// Stopped at any point, the same call with a fresh plan finishes it. `message` becomes part of the marks.
///
/// # Errors
/// Those of the store. What was done until then stays done.
pub async fn run_expire(
    store: &dyn Store,
    plan: ExpirePlan,
    message: Option<&str>,
    now: DateTime<Utc>,
) -> Result<Vec<ExpireRow>, RepoError> {
    let mark =
        Expired { reason: Some(Reason::Retention), at: Some(Timestamp::new(now)), message: message.map(str::to_owned) };
    let mut rows = plan.rows;
    for chunk in rows.chunks_mut(AT_ONCE) {
        keep_held(chunk, &list_refs(store).await?);
        let new = chunk.iter().filter(|row| row.action == ExpireAction::Expire).map(|row| row.version);
        let marked = put_marks(store, new.collect(), &mark).await?;
        // Whoever made a ref before the mark was there could not know of it; the version can still be given back.
        let held = keep_held(chunk, &list_refs(store).await?);
        for id in held.intersection(&marked) {
            store.delete(&layout::expired(*id)).await?;
        }
        let catalogs: Vec<String> = chunk.iter().flat_map(|row| row.catalogs.iter().cloned()).collect();
        store.delete_all(stream::iter(catalogs).boxed()).try_for_each(|_| async { Ok(()) }).await?;
        for row in chunk.iter_mut() {
            row.done = matches!(row.action, ExpireAction::Expire | ExpireAction::AlreadyExpired);
        }
    }
    Ok(rows)
}

/// Writes the mark of each version. Gives those that had none before.
async fn put_marks(
    store: &dyn Store,
    versions: Vec<VersionId>,
    mark: &Expired,
) -> Result<BTreeSet<VersionId>, RepoError> {
    stream::iter(versions)
        .map(|id| async move {
            let written = store.put_if_absent(&layout::expired(id), mark.print(id)?.into()).await?;
            Ok::<_, RepoError>((written == ConditionalWrite::Written).then_some(id))
        })
        .buffer_unordered(CONCURRENT)
        .try_filter_map(|id| async move { Ok(id) })
        .try_collect()
        .await
}

/// Leaves alone what a ref points at now. Gives those versions.
fn keep_held(rows: &mut [ExpireRow], refs: &Refs) -> BTreeSet<VersionId> {
    let holders = refs.by_version();
    let mut held = BTreeSet::new();
    for row in rows {
        if let Some(name) = holders.get(&row.version).and_then(|names| names.first()) {
            held.insert(row.version);
            row.action = ExpireAction::HeldBy(name.clone());
            row.bytes = 0;
            row.catalogs.clear();
        }
    }
    held
}
