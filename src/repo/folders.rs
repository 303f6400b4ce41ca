//! The folders of all versions, from one listing, and the records in them.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{Record, RefName, VersionId, layout};
use crate::store::{Store, StoreError};

use super::CONCURRENT;
use super::error::RepoError;
use super::read::read_record;

/// An object in the folder of a version.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Its name in the folder: `version.json`, `catalogs/0.3.duckdb`.
    pub(super) name: String,
    /// Its size in bytes.
    pub(super) size: u64,
    /// When it was written, by the store's clock.
    pub(super) written: DateTime<Utc>,
}

/// What lies in the folder of a version.
#[derive(Debug, Clone, Default)]
pub(super) struct Folder(pub(super) Vec<Part>);

impl Folder {
    /// What the folder of a version is taken to hold where nothing can be listed: with its record it is whole. Without sizes.
    pub(super) fn supposed(record: Option<&Record>, marked: bool) -> Self {
        let mut names: Vec<String> = Vec::new();
        if let Some(record) = record {
            let texts =
                [layout::VERSION_JSON, layout::SIGNATURE, layout::DATASET_JSON, layout::FILES_JSON, layout::CATALOG];
            names.extend(texts.map(str::to_owned));
            names.extend(record.catalogs.keys().map(|format| layout::catalog_name(format)));
        }
        names.extend(marked.then(|| layout::EXPIRED_JSON.to_owned()));
        let part = |name| Part { name, size: 0, written: DateTime::<Utc>::MIN_UTC };
        Self(names.into_iter().map(part).collect())
    }

    pub(super) fn part(&self, name: &str) -> Option<&Part> {
        self.0.iter().find(|part| part.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.part(name).is_some()
    }

    /// Whether it is a version: the record is written last (docs/format.md section 9).
    pub(super) fn is_complete(&self) -> bool {
        self.has(layout::VERSION_JSON)
    }

    /// Whether the version is past retention or withdrawn.
    pub(super) fn is_marked(&self) -> bool {
        self.has(layout::EXPIRED_JSON)
    }

    /// The catalog, and those in other formats.
    pub(super) fn catalogs(&self) -> impl Iterator<Item = &Part> {
        self.0.iter().filter(|part| is_catalog(&part.name))
    }
}

/// Whether an object of this name in the folder of a version goes when the version expires.
pub(super) fn is_catalog(name: &str) -> bool {
    name == layout::CATALOG || name.starts_with(layout::CATALOGS) || is_wal(name)
}

/// Whether it is named as a write-ahead log, which is no part of a version.
pub(super) fn is_wal(name: &str) -> bool {
    name.ends_with(layout::WAL)
}

/// The folders of all versions.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// What lies in the folder of each version, complete or not.
    pub(super) by_id: BTreeMap<VersionId, Folder>,
    /// Keys under `versions/` that are in no version's folder.
    pub(super) strays: Vec<String>,
}

impl Folders {
    /// The versions that have a record.
    pub(super) fn complete(&self) -> impl Iterator<Item = (VersionId, &Folder)> {
        self.by_id.iter().filter(|(_, folder)| folder.is_complete()).map(|(id, folder)| (*id, folder))
    }
}

/// Lists `versions/` once.
///
/// # Errors
/// Those of the store; [`StoreError::Unsupported`](crate::store::StoreError::Unsupported) where it cannot list.
pub(super) async fn list_folders(store: &dyn Store) -> Result<Folders, RepoError> {
    list_folders_but(store, &mut |error| Err(error.into())).await
}

/// [`list_folders`], where the caller says what an error among the objects means.
pub(super) async fn list_folders_but(
    store: &dyn Store,
    odd: &mut (dyn FnMut(StoreError) -> Result<(), RepoError> + Send),
) -> Result<Folders, RepoError> {
    let mut folders = Folders::default();
    let mut listing = store.list(layout::VERSIONS);
    while let Some(meta) = listing.next().await {
        let meta = match meta {
            Ok(meta) => meta,
            Err(error) => {
                odd(error)?;
                continue;
            }
        };
        match layout::in_version(&meta.key) {
            Some((id, name)) => {
                let part = Part { name: name.to_owned(), size: meta.size, written: meta.last_modified };
                folders.by_id.entry(id).or_default().0.push(part);
            }
            None => folders.strays.push(meta.key),
        }
    }
    Ok(folders)
}

/// The records of versions that are there.
///
/// # Errors
/// [`RepoError::Corrupt`] and [`RepoError::UnsupportedVersion`] for the first that cannot be read.
pub(super) async fn read_records(
    store: &dyn Store,
    ids: impl IntoIterator<Item = VersionId>,
) -> Result<BTreeMap<VersionId, Record>, RepoError> {
    let ids: Vec<VersionId> = ids.into_iter().collect();
    stream::iter(ids)
        .map(|id| async move { Ok((id, read_record(store, id).await?)) })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

/// A version and those before it, newest first.
///
/// # Errors
/// [`RepoError::Corrupt`] when one of them is missing (`by` says who names the first) or they lead in a circle.
pub(super) fn history(
    records: &BTreeMap<VersionId, Record>,
    from: VersionId,
    by: &RefName,
) -> Result<Vec<VersionId>, RepoError> {
    let mut seen = BTreeSet::new();
    let mut history = Vec::new();
    let mut next = Some(from);
    while let Some(id) = next {
        let Some(record) = records.get(&id) else {
            let missing = RepoError::NoSuchVersion { id };
            return Err(match history.last() {
                Some(child) => missing.named_by(layout::version_json(*child)),
                None => missing.named_by(by),
            });
        };
        if !seen.insert(id) {
            return Err(RepoError::corrupt(layout::version_json(id), "its parents lead in a circle"));
        }
        history.push(id);
        next = record.parent();
    }
    Ok(history)
}
