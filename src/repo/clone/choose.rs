//! What of a repository is to be copied.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;

use crate::format::{Record, RefKind, RefName, Sha256, VersionId, layout};
use crate::store::{Store, StoreError};

use super::super::error::RepoError;
use super::super::folders::{Folder, is_catalog, is_wal, list_folders, read_records};
use super::super::open::Repository;
use super::super::read::{read_mark, read_record};
use super::super::refs::list_refs;
use super::{CloneOptions, is_hidden, oldest_first, optional_listing};

/// What is to be copied.
pub(super) struct Chosen {
    /// The default branch that the copy gets when it is new.
    pub(super) head: RefName,
    /// The refs.
    pub(super) refs: BTreeMap<RefName, VersionId>,
    /// The versions, parents first.
    pub(super) versions: Vec<Version>,
    /// Keys at the root that the format does not know and that come along (docs/format.md section 1).
    pub(super) extras: Vec<String>,
    /// Keys that the format does not know and that stay behind.
    pub(super) left: Vec<String>,
}

/// A version of the source.
pub(super) struct Version {
    pub(super) record: Record,
    /// Whether it has been taken away.
    pub(super) marked: bool,
    /// The names in its folder, with sizes where they are known.
    pub(super) parts: Vec<(String, Option<u64>)>,
}

pub(super) async fn choose(source: &Repository, options: &CloneOptions) -> Result<Chosen, RepoError> {
    let store = source.store();
    let all = list_refs(store).await?;
    let mut refs: BTreeMap<RefName, VersionId> =
        all.refs.into_iter().filter(|(name, _)| name.kind() != RefKind::Request).collect();
    let mut head = all.head;
    if !options.refs.is_empty() {
        for wanted in &options.refs {
            if !refs.keys().any(|name| is(name, wanted)) {
                return Err(RepoError::NoSuchRef { name: wanted.clone() });
            }
        }
        refs.retain(|name, _| options.refs.iter().any(|wanted| is(name, wanted)));
        let branch = refs.keys().find(|name| name.kind() == RefKind::Branch);
        head = branch.filter(|_| !refs.contains_key(&head)).cloned().unwrap_or(head);
    }
    // After the refs: a version is there before a ref leads to it.
    let folders = optional_listing(list_folders(store).await)?;
    let mut records = match (&folders, options.refs.is_empty()) {
        (Some(folders), true) => read_records(store, folders.complete().map(|(id, _)| id)).await?,
        _ => histories(store, &refs).await?,
    };
    let (mut versions, mut left) = (Vec::with_capacity(records.len()), Vec::new());
    for record in oldest_first(&mut records) {
        let folder = folders.as_ref().and_then(|folders| folders.by_id.get(&record.id));
        versions.push(match folder {
            Some(folder) => {
                let stays = |name: &str| !is_known(&record, name) && (is_hidden(name) || !options.unknown);
                // A write-ahead log is no part of a version, and would change what is read of the copy.
                let named = folder.0.iter().map(|part| part.name.as_str()).filter(|name| stays(name) && !is_wal(name));
                left.extend(named.map(|name| format!("{}{name}", layout::version(record.id))));
                let parts = listed(folder, stays);
                Version { record, marked: folder.is_marked(), parts }
            }
            None => asked(store, record).await?,
        });
    }
    let mut extras = match options.refs.is_empty() && folders.is_some() {
        true => extras(source).await?,
        false => Vec::new(),
    };
    let stay = extras.extract_if(.., |key| is_hidden(key) || !options.unknown);
    left.extend(stay);
    Ok(Chosen { head, refs, versions, extras, left })
}

/// What is said of files that stayed behind.
pub(super) fn told(left: Vec<String>, unknown: bool) -> Vec<String> {
    let (hidden, plain): (Vec<String>, Vec<String>) = left.into_iter().partition(|key| is_hidden(key));
    let mut notes = Vec::new();
    let named = |keys: &[String]| {
        let first = keys.first().map(|key| key.chars().take(80).collect::<String>()).unwrap_or_default();
        match keys.len() {
            1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    };
    if !plain.is_empty() && !unknown {
        notes.push(format!(
            "{} stayed behind: the format does not name such files, and unknown := true copies them",
            named(&plain)
        ));
    }
    if !hidden.is_empty() {
        notes.push(format!("{} stayed behind: files whose names begin with a dot are never copied", named(&hidden)));
    }
    notes
}

/// Whether the format has such a file in the folder of this version.
pub(super) fn is_known(record: &Record, name: &str) -> bool {
    const TEXTS: [&str; 6] = [
        layout::VERSION_JSON,
        layout::SIGNATURE,
        layout::DATASET_JSON,
        layout::FILES_JSON,
        layout::EXPIRED_JSON,
        layout::CATALOG,
    ];
    TEXTS.contains(&name) || layout::catalog_format(name).is_some_and(|format| record.catalogs.contains_key(format))
}

/// Whether it is the key of a source file: its name is a hash.
pub(super) fn is_source(key: &str) -> bool {
    key.strip_prefix(layout::SOURCES).is_some_and(|name| name.parse::<Sha256>().is_ok())
}

fn is(name: &RefName, wanted: &str) -> bool {
    name.short() == wanted || name.full() == wanted
}

/// The records of what refs lead to.
async fn histories(
    store: &dyn Store,
    refs: &BTreeMap<RefName, VersionId>,
) -> Result<BTreeMap<VersionId, Record>, RepoError> {
    let mut records: BTreeMap<VersionId, Record> = BTreeMap::new();
    for (name, version) in refs {
        let (mut next, mut by) = (Some(*version), name.to_string());
        while let Some(id) = next.filter(|id| !records.contains_key(id)) {
            let record = read_record(store, id).await.map_err(|error| error.named_by(&by))?;
            next = record.parent();
            by = layout::version_json(id);
            records.insert(id, record);
        }
    }
    Ok(records)
}

/// The names in a folder that come along, with their sizes.
fn listed(folder: &Folder, stays: impl Fn(&str) -> bool) -> Vec<(String, Option<u64>)> {
    // The catalogs of a version that has been taken away are about to go.
    let gone = |name: &str| is_wal(name) || (folder.is_marked() && is_catalog(name)) || stays(name);
    let parts = folder.0.iter().filter(|part| !gone(&part.name));
    parts.map(|part| (part.name.clone(), Some(part.size))).collect()
}

/// What a folder that cannot be listed should hold.
async fn asked(store: &dyn Store, record: Record) -> Result<Version, RepoError> {
    let id = record.id;
    let mark = read_mark(store, id).await?;
    let marked = mark.is_some();
    let mut names: BTreeSet<String> = BTreeSet::new();
    if marked {
        names.insert(layout::EXPIRED_JSON.to_owned());
    } else {
        names.insert(layout::CATALOG.to_owned());
        names.extend(record.catalogs.keys().map(|format| layout::catalog_name(format)));
    }
    for (name, hash) in [(layout::DATASET_JSON, record.dataset_sha256), (layout::FILES_JSON, record.files_sha256)] {
        if hash.is_some() && (!marked || has(store, &format!("{}{name}", layout::version(id))).await?) {
            names.insert(name.to_owned());
        }
    }
    if has(store, &layout::signature(id)).await? {
        names.insert(layout::SIGNATURE.to_owned());
    }
    names.insert(layout::VERSION_JSON.to_owned());
    let parts = names.into_iter().map(|name| (name, None)).collect();
    Ok(Version { record, marked, parts })
}

pub(super) async fn has(store: &dyn Store, key: &str) -> Result<bool, StoreError> {
    match store.head(key).await {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. } | StoreError::Permission { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Files at the root that the format does not know. A page about the repository is made anew where it is wanted.
async fn extras(source: &Repository) -> Result<Vec<String>, RepoError> {
    let own = [layout::FDL_JSON, layout::HEAD, layout::REFS_JSON, layout::CATALOG, "index.html"];
    let keys = source.store().list("").try_filter_map(|meta| async move {
        let extra = !meta.key.contains('/') && !own.contains(&meta.key.as_str());
        Ok(extra.then_some(meta.key))
    });
    Ok(keys.try_collect().await?)
}
