//! Taking away versions that hold what must not be published (docs/format.md section 12).
//!
//! The tags first; then the mark of every version, so that one whose withdrawal was stopped is never taken for damaged and
//! brought back; then the data files, at once and without a grace period; then version by version the catalogs (they hold
//! statistics of columns) and, last in its folder, files.json (paths hold partition values), which tells the next call what
//! is left to do when this one is stopped.
//!
//! What a version reads is what its files.json and its catalogs name: a record can vouch for a files.json that leaves files
//! out.
//!
//! version.json stays, and dataset.json where it holds names alone. What the versions were made from goes with the data
//! files.

mod run;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{DataDir, Dataset, Expired, Files, Reason, Record, RefKind, RefName, Table, VersionId, layout};
use crate::store::{Store, StoreError};

use super::CONCURRENT;
use super::catalog::{LookInto, every_list, vouched};
use super::error::RepoError;
use super::folders::{Folder, Folders, list_folders, read_records};
use super::open::Repository;
use super::read::{get_optional, get_sound, read_mark};
use super::refs::{Refs, list_refs};

pub use run::run_withdraw;

/// What is to be taken away.
#[derive(Debug, Clone, Default)]
pub struct WithdrawOptions {
    /// Keys of data files: with them goes every version that names one.
    pub files: Vec<String>,
    /// Versions: with them go the data files that only they read.
    pub versions: Vec<VersionId>,
    /// Tables, by schema and name: with them goes every version that has one.
    pub tables: Vec<(String, String)>,
}

/// A step. The order of the variants is the order of the work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WithdrawAction {
    /// Deletes the tag.
    DeleteTag,
    /// Writes the mark.
    Mark,
    /// Deletes the data file, or a file that the version was made from.
    DeleteFile,
    /// The file stays: a version that is not withdrawn names it too.
    KeepFile {
        /// That version.
        by: VersionId,
    },
    /// Deletes a catalog, or the list of data files.
    DeletePart,
    /// Nothing is done: it has no record, so that it is a push which was stopped or is under way, and it may hold what is
    /// withdrawn.
    LeaveUnfinished,
    /// Nothing: no version names what was asked for, any more or at all.
    Nothing,
}

impl fmt::Display for WithdrawAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteTag => f.write_str("delete the tag"),
            Self::DeleteFile => f.write_str("delete the file"),
            Self::KeepFile { by } => write!(f, "refused: version {by} names it too; withdraw that as well"),
            Self::Mark => f.write_str("mark as withdrawn"),
            Self::DeletePart => f.write_str("delete"),
            Self::LeaveUnfinished => {
                f.write_str("left: a push that was not finished; fdl_gc deletes it, with a short grace at once")
            }
            Self::Nothing => f.write_str("nothing: no version names it"),
        }
    }
}

/// An object, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithdrawRow {
    /// The number of the step, from 1.
    pub step: u64,
    /// The key of the object; of a table that no version has, its name.
    pub object: String,
    /// What becomes of it.
    pub action: WithdrawAction,
    /// The bytes that it frees.
    pub bytes: u64,
    /// Whether it has been done.
    pub done: bool,
}

/// What is to be done, in its order.
#[derive(Debug)]
pub struct WithdrawPlan {
    /// The steps.
    pub rows: Vec<WithdrawRow>,
    /// The versions that are taken away.
    pub versions: BTreeSet<VersionId>,
    /// All versions there were.
    known: BTreeSet<VersionId>,
    tags: Vec<RefName>,
}

/// Why nothing can be taken away.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawError {
    /// Branches still hold the data at their heads. Push versions without it to them, or delete them, first.
    #[error("{} still hold{} the data", names(.0), if .0.len() == 1 { "s" } else { "" })]
    Held(Vec<(RefName, VersionId)>),
    /// Something was pushed since the plan that reads a file which was to be deleted. Nothing has been done.
    #[error("version {0} has appeared and reads the data too")]
    Appeared(VersionId),
    /// Anything else.
    #[error(transparent)]
    Repo(#[from] RepoError),
}

impl From<StoreError> for WithdrawError {
    fn from(error: StoreError) -> Self {
        Self::Repo(error.into())
    }
}

fn names(heads: &[(RefName, VersionId)]) -> String {
    heads.iter().map(|(name, id)| format!("{name} (at {id})")).collect::<Vec<_>>().join(", ")
}

/// Says what would be taken away. Writes nothing. Reads the list of data files and the catalogs of every version.
///
/// # Errors
/// [`WithdrawError::Held`]; [`RepoError::NoSuchVersion`]; [`RepoError::Format`] for a key that is no data file;
/// [`RepoError::Corrupt`] when a version that can be read does not tell what it reads.
pub async fn plan_withdraw(
    repository: &Repository,
    options: &WithdrawOptions,
    look: LookInto<'_>,
) -> Result<WithdrawPlan, WithdrawError> {
    plan(repository.store(), &repository.settings().data_dir, options, look).await
}

/// Withdraws versions in a store of which one is not sure that it holds a whole repository: a copy. Their marks are there.
pub(super) async fn withdraw_in(
    store: &dyn Store,
    data_dir: &DataDir,
    options: &WithdrawOptions,
    look: LookInto<'_>,
) -> Result<Vec<WithdrawRow>, WithdrawError> {
    let plan = plan(store, data_dir, options, look).await?;
    run::run(store, data_dir, plan, &Expired::default(), look).await
}

async fn plan(
    store: &dyn Store,
    data_dir: &DataDir,
    options: &WithdrawOptions,
    look: LookInto<'_>,
) -> Result<WithdrawPlan, WithdrawError> {
    for key in &options.files {
        data_dir.check(key).map_err(RepoError::from)?;
    }
    let refs = list_refs(store).await?;
    let folders = list_folders(store).await?;
    let records = read_records(store, folders.complete().map(|(id, _)| id)).await?;
    if let Some(id) = options.versions.iter().find(|id| !records.contains_key(id)) {
        return Err(RepoError::NoSuchVersion { id: *id }.into());
    }
    let mut scene = Scene {
        store,
        data_dir,
        look,
        refs,
        folders,
        records,
        withdrawn: BTreeSet::new(),
        data: BTreeMap::new(),
        nowhere: BTreeSet::new(),
        agreeing: BTreeSet::new(),
    };
    scene.find(options).await?;
    let readers = scene.readers().await?;
    scene.check_heads(options, &readers).await?;
    let rows = scene.rows(&readers).await?;
    let tags = scene.tags();
    let known = scene.records.keys().copied().collect();
    Ok(WithdrawPlan { rows, versions: scene.withdrawn, known, tags })
}

struct Scene<'a> {
    store: &'a dyn Store,
    data_dir: &'a DataDir,
    look: LookInto<'a>,
    refs: Refs,
    folders: Folders,
    records: BTreeMap<VersionId, Record>,
    withdrawn: BTreeSet<VersionId>,
    /// The data files that are to go, with their sizes.
    data: BTreeMap<String, u64>,
    /// What was asked for and is named by no version.
    nowhere: BTreeSet<String>,
    /// The versions whose files.json names what their catalogs name.
    agreeing: BTreeSet<VersionId>,
}

/// How many versions' catalogs are in hand at a time.
const CATALOGS: usize = 4;

/// What a version reads; of one that was taken away, what its files.json and its catalogs still tell.
async fn named(
    store: &dyn Store,
    data_dir: &DataDir,
    look: LookInto<'_>,
    record: &Record,
    folder: &Folder,
) -> Result<Vec<Files>, RepoError> {
    let marked = folder.is_marked();
    if !marked || folder.catalogs().next().is_some() {
        match every_list(store, data_dir, record, look).await {
            Ok(lists) => return Ok(lists),
            Err(error @ RepoError::Store(_)) => return Err(error),
            Err(_) if marked => {}
            Err(error) => match read_mark(store, record.id).await? {
                Some(_) => {}
                None => return Err(error),
            },
        }
    }
    match vouched(store, data_dir, record).await {
        Ok(list) => Ok(list.into_iter().collect()),
        Err(error @ RepoError::Store(_)) => Err(error),
        Err(_) => Ok(Vec::new()),
    }
}

/// Whether the description of a version has texts by its authors in it, which may tell of rows: queries of views and
/// comments. One that cannot be read may.
async fn says_more_than_names(store: &dyn Store, id: VersionId) -> Result<bool, RepoError> {
    let object = match get_optional(store, &layout::dataset(id)).await {
        Ok(Some(object)) => object,
        Ok(None) => return Ok(false),
        Err(StoreError::TooLarge { .. } | StoreError::NotRegular { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let Ok(dataset) = Dataset::parse(&object.bytes) else {
        return Ok(true);
    };
    let mut tables = dataset.schemas.iter().flat_map(|schema| &schema.tables);
    let comments =
        |table: &Table| table.comment.is_some() || table.columns.iter().any(|column| column.comment.is_some());
    Ok(dataset.schemas.iter().any(|schema| schema.comment.is_some())
        || tables.any(|table| table.sql.is_some() || comments(table)))
}

impl Scene<'_> {
    fn is_marked(&self, id: VersionId) -> bool {
        self.folders.by_id.get(&id).is_some_and(Folder::is_marked)
    }

    /// Calls `f` with each list of what a version reads, a few versions at a time. Gives those that have one list.
    async fn each(&self, mut f: impl FnMut(VersionId, &Files)) -> Result<BTreeSet<VersionId>, RepoError> {
        let (store, data_dir, look) = (self.store, self.data_dir, self.look);
        let nothing = Folder::default();
        let mut all = stream::iter(self.records.values())
            .map(|record| {
                let folder = self.folders.by_id.get(&record.id).unwrap_or(&nothing);
                async move {
                    let listed = match self.agreeing.contains(&record.id) {
                        true => vouched(store, data_dir, record).await?,
                        false => None,
                    };
                    Ok::<_, RepoError>((
                        record.id,
                        match listed {
                            Some(files) => vec![files],
                            None => named(store, data_dir, look, record, folder).await?,
                        },
                    ))
                }
            })
            .buffer_unordered(CATALOGS);
        let mut agreeing = BTreeSet::new();
        while let Some((id, lists)) = all.try_next().await? {
            lists.iter().for_each(|files| f(id, files));
            if lists.len() == 1 {
                agreeing.insert(id);
            }
        }
        Ok(agreeing)
    }

    /// Finds the versions and the data files.
    async fn find(&mut self, options: &WithdrawOptions) -> Result<(), RepoError> {
        let mut withdrawn: BTreeSet<VersionId> = options.versions.iter().copied().collect();
        let mut data: BTreeMap<String, u64> = options.files.iter().map(|key| (key.clone(), 0)).collect();
        let shown = |(schema, name): &(String, String)| format!("{schema}.{name}");
        let mut nowhere: BTreeSet<String> =
            options.files.iter().cloned().chain(options.tables.iter().map(shown)).collect();
        let agreeing = self
            .each(|id, files| {
                let whole = options.versions.contains(&id);
                for table in &files.tables {
                    let wanted =
                        options.tables.iter().find(|(schema, name)| *schema == table.schema && *name == table.table);
                    if let Some(wanted) = wanted {
                        withdrawn.insert(id);
                        nowhere.remove(&shown(wanted));
                    }
                    for file in &table.files {
                        // A list of deleted rows names its data file by the whole path, which may hold partition values.
                        let with_it = whole || wanted.is_some() || options.files.contains(&file.path);
                        let deletes = file.deletes.as_ref().map(|deletes| (&deletes.path, deletes.bytes));
                        for (key, size) in std::iter::once((&file.path, file.bytes)).chain(deletes) {
                            if options.files.contains(key) {
                                withdrawn.insert(id);
                                nowhere.remove(key);
                                data.insert(key.clone(), size);
                            } else if with_it {
                                data.insert(key.clone(), size);
                            }
                        }
                    }
                }
            })
            .await?;
        (self.withdrawn, self.data, self.nowhere, self.agreeing) = (withdrawn, data, nowhere, agreeing);
        Ok(())
    }

    /// The versions that stay and read a data file that is to go: one for each file, a head where one does.
    async fn readers(&self) -> Result<BTreeMap<String, BTreeSet<VersionId>>, RepoError> {
        let mut readers: BTreeMap<String, BTreeSet<VersionId>> = BTreeMap::new();
        self.each(|id, files| {
            if self.is_marked(id) || self.withdrawn.contains(&id) {
                return;
            }
            for (key, _) in files.iter().filter(|(key, _)| self.data.contains_key(*key)) {
                readers.entry(key.to_owned()).or_default().insert(id);
            }
        })
        .await?;
        Ok(readers)
    }

    /// The heads of branches are free of the data: of the versions, and of the files of tables under any name.
    async fn check_heads(
        &self,
        options: &WithdrawOptions,
        readers: &BTreeMap<String, BTreeSet<VersionId>>,
    ) -> Result<(), WithdrawError> {
        let mut held: BTreeSet<VersionId> = self.withdrawn.clone();
        // A table that was renamed has its files still.
        if options.versions.is_empty() {
            held.extend(readers.values().flatten());
        }
        let heads = self.refs.refs.iter().filter(|(name, id)| name.kind() == RefKind::Branch && held.contains(id));
        let heads: Vec<_> = heads.map(|(name, id)| (name.clone(), *id)).collect();
        match heads.is_empty() {
            true => Ok(()),
            false => Err(WithdrawError::Held(heads)),
        }
    }

    /// The refs that are no branches and hold what goes.
    fn tags(&self) -> Vec<RefName> {
        let tags =
            self.refs.refs.iter().filter(|(name, id)| name.kind() != RefKind::Branch && self.withdrawn.contains(id));
        tags.map(|(name, _)| name.clone()).collect()
    }

    async fn rows(&self, readers: &BTreeMap<String, BTreeSet<VersionId>>) -> Result<Vec<WithdrawRow>, RepoError> {
        let store = self.store;
        let row = |object, action, bytes| WithdrawRow { step: 0, object, action, bytes, done: false };
        let mut rows: Vec<WithdrawRow> =
            self.tags().into_iter().map(|name| row(name.key().to_owned(), WithdrawAction::DeleteTag, 0)).collect();
        for id in &self.withdrawn {
            if self.mark(*id).await?.and_then(|mark| mark.reason) != Some(Reason::Withdrawn) {
                rows.push(row(layout::expired(*id), WithdrawAction::Mark, 0));
            }
        }
        let there: Vec<Option<(&String, u64)>> = stream::iter(self.data.keys())
            .map(|key| async move {
                match store.head(key).await {
                    Ok(meta) => Ok(Some((key, meta.size))),
                    Err(StoreError::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffered(CONCURRENT)
            .try_collect()
            .await?;
        for (key, size) in there.into_iter().flatten() {
            rows.push(match readers.get(key).and_then(|ids| ids.first()) {
                Some(by) => row(key.clone(), WithdrawAction::KeepFile { by: *by }, 0),
                None => row(key.clone(), WithdrawAction::DeleteFile, size),
            });
        }
        rows.extend(self.sources().await?.into_iter().map(|(key, action, bytes)| row(key, action, bytes)));
        for id in &self.withdrawn {
            let folder = self.folders.by_id.get(id).cloned().unwrap_or_default();
            let says_more = says_more_than_names(store, *id).await?;
            let texts = folder.part(layout::DATASET_JSON).filter(|_| says_more);
            // The list last: it tells a later call which versions are not finished.
            let list = folder.part(layout::FILES_JSON);
            for part in folder.catalogs().chain(texts).chain(list) {
                rows.push(row(format!("{}{}", layout::version(*id), part.name), WithdrawAction::DeletePart, part.size));
            }
        }
        for key in self.unfinished().await? {
            rows.push(row(key, WithdrawAction::LeaveUnfinished, 0));
        }
        let found: BTreeSet<&str> = rows.iter().map(|row| row.object.as_str()).collect();
        let nothing = self.nowhere.iter().filter(|asked| !found.contains(asked.as_str()));
        let nothing: Vec<_> = nothing.map(|asked| row(asked.clone(), WithdrawAction::Nothing, 0)).collect();
        rows.extend(nothing);
        for (step, row) in (1..).zip(&mut rows) {
            row.step = step;
        }
        Ok(rows)
    }

    /// The folders without a record that name a data file which is to go, or do not tell what they name.
    async fn unfinished(&self) -> Result<Vec<String>, RepoError> {
        let mut unfinished = Vec::new();
        for (id, _) in self.folders.by_id.iter().filter(|(_, folder)| !folder.is_complete()) {
            let files = match get_sound(self.store, &layout::files(*id)).await? {
                Some(object) => Files::parse(&object.bytes, self.data_dir).ok(),
                None => None,
            };
            if files.is_none_or(|files| files.iter().any(|(key, _)| self.data.contains_key(key))) {
                unfinished.push(layout::version(*id));
            }
        }
        Ok(unfinished)
    }

    async fn mark(&self, id: VersionId) -> Result<Option<Expired>, RepoError> {
        match self.is_marked(id) {
            true => read_mark(self.store, id).await,
            false => Ok(None),
        }
    }
}
