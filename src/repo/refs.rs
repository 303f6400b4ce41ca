//! All refs, and refs.json (docs/format.md section 6).

use std::collections::{BTreeMap, BTreeSet};

use futures::future::{join, join3};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Map;

use crate::format::{RefName, RefsJson, VersionId, layout};
use crate::store::{ConditionalWrite, Object, Patience, Store, StoreError};

use super::CONCURRENT;
use super::error::RepoError;
use super::read::{get_optional, read_head, read_ref};

/// How often refs.json is tried again when others write it at the same time.
const ATTEMPTS: usize = 8;

/// Every ref of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refs {
    /// The default branch.
    pub head: RefName,
    /// What each ref holds, sorted by name.
    pub refs: BTreeMap<RefName, VersionId>,
    /// Keys under `refs/` that are no refs, such as names that another program allows.
    pub ignored: Vec<String>,
}

impl Refs {
    /// The refs that hold each version.
    #[must_use]
    pub fn by_version(&self) -> BTreeMap<VersionId, Vec<RefName>> {
        let mut names = BTreeMap::<_, Vec<_>>::new();
        for (name, version) in &self.refs {
            names.entry(*version).or_default().push(name.clone());
        }
        names
    }
}

/// Reads HEAD and every ref afresh. Where the store cannot list, refs.json says which refs there are.
///
/// # Errors
/// [`RepoError::Corrupt`] when HEAD or a ref is damaged.
pub async fn list_refs(store: &dyn Store) -> Result<Refs, RepoError> {
    let (head, keys) = join(read_head(store), listed(store, layout::REFS)).await;
    let head = head?;
    let Listed { mut names, ignored } = match keys? {
        Some(listed) => listed,
        None => known_names(store).await?,
    };
    names.insert(head.clone());
    let refs = read_all(store, names).await?;
    Ok(Refs { head, refs, ignored })
}

/// Looks for a ref that cannot exist beside this one.
pub(super) async fn check_free(store: &dyn Store, name: &RefName) -> Result<(), RepoError> {
    let listed = match listed(store, name.kind().folder()).await? {
        Some(listed) => listed,
        None => known_names(store).await?,
    };
    match listed.names.into_iter().find(|by| by.conflicts_with(name)) {
        Some(by) => Err(RepoError::NameTaken { reference: name.clone(), by }),
        None => Ok(()),
    }
}

#[derive(Debug, Default)]
struct Listed {
    names: BTreeSet<RefName>,
    ignored: Vec<String>,
}

/// The names of the refs in a folder; nothing when the store cannot list.
async fn listed(store: &dyn Store, folder: &str) -> Result<Option<Listed>, RepoError> {
    let found = store
        .list(folder)
        .try_fold(Listed::default(), |mut found, meta| async move {
            match RefName::parse(&meta.key) {
                Ok(name) => drop(found.names.insert(name)),
                Err(_) => found.ignored.push(meta.key),
            }
            Ok(found)
        })
        .await;
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Unsupported { .. } | StoreError::Permission { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The names of the refs in refs.json.
async fn known_names(store: &dyn Store) -> Result<Listed, RepoError> {
    let names = match get_optional(store, layout::REFS_JSON).await? {
        Some(object) => RefsJson::parse(&object.bytes)?.refs.into_keys().collect(),
        None => BTreeSet::new(),
    };
    let ignored = Vec::new();
    Ok(Listed { names, ignored })
}

/// What each of these refs holds; one that is gone is left out.
async fn read_all(store: &dyn Store, names: BTreeSet<RefName>) -> Result<BTreeMap<RefName, VersionId>, RepoError> {
    stream::iter(names)
        .map(|name| async move {
            let held = read_ref(store, &name).await?;
            Ok(held.map(|held| (name, held.version)))
        })
        .buffer_unordered(CONCURRENT)
        .try_filter_map(|held| async move { Ok(held) })
        .try_collect()
        .await
}

/// What became of refs.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefsJsonWrite {
    /// It was written.
    Written,
    /// It was right already.
    Current,
    /// This caller may not write it: a host that moves refs itself writes it too (docs/format.md section 14).
    LeftToHost,
}

/// Brings refs.json up to date after `touched` has changed, from a fresh read of HEAD and every ref.
///
/// It is written on condition that nobody else wrote it since before the refs were read, so a later change is never
/// replaced by an earlier one. Fields that this program does not know are kept.
///
/// # Errors
/// Those of [`list_refs`] and of the store. The refs themselves are right all the same.
pub async fn refresh_refs_json(store: &dyn Store, touched: Option<&RefName>) -> Result<RefsJsonWrite, RepoError> {
    let mut patience = Patience::with(store);
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        match try_refresh(store, touched).await {
            Ok(Some(write)) => return Ok(write),
            // Somebody else was faster, or another write was under way.
            Ok(None) => drop(patience.wait().await),
            // The answer may have been lost; the next fresh read tells.
            Err(RepoError::Store(error @ StoreError::Failed { .. })) => {
                if !patience.wait().await {
                    return Err(error.into());
                }
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Err(RepoError::corrupt(layout::REFS_JSON, "others write it faster than it can be read")),
    }
}

/// One attempt; nothing when somebody else wrote in between.
async fn try_refresh(store: &dyn Store, touched: Option<&RefName>) -> Result<Option<RefsJsonWrite>, RepoError> {
    // The three reads may run together: a ref made after the listing is named by the refs.json that was read, or else
    // its writer replaces refs.json later and the condition below does not hold.
    let (keys, before, head) =
        join3(listed(store, layout::REFS), get_optional(store, layout::REFS_JSON), read_head(store)).await;
    let (before, head) = (before?, head?);
    // A damaged refs.json is replaced.
    let old = before.as_ref().and_then(|object| RefsJson::parse(&object.bytes).ok());
    let mut names = keys?.unwrap_or_default().names;
    names.insert(head.clone());
    names.extend(touched.cloned());
    names.extend(old.iter().flat_map(|old| old.refs.keys().cloned()));
    let new = RefsJson { head, refs: read_all(store, names).await?, other: old.map_or_else(Map::new, |old| old.other) }
        .print()?;
    let write = match before {
        Some(Object { bytes, .. }) if bytes == new => return Ok(Some(RefsJsonWrite::Current)),
        Some(Object { etag, .. }) => store.put_if_unchanged(layout::REFS_JSON, new.into(), &etag).await,
        None => store.put_if_absent(layout::REFS_JSON, new.into()).await,
    };
    match write {
        Ok(ConditionalWrite::Written) => Ok(Some(RefsJsonWrite::Written)),
        Ok(ConditionalWrite::Refused) => Ok(None),
        Err(StoreError::Permission { .. }) => Ok(Some(RefsJsonWrite::LeftToHost)),
        Err(error) => Err(error.into()),
    }
}
