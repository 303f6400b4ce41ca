//! What the target of a copy has of the versions that are to be copied.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{Reason, VersionId, layout};
use crate::store::Store;

use super::super::CONCURRENT;
use super::super::error::RepoError;
use super::super::folders::{Folder, list_folders};
use super::super::read::{get_optional, read_mark};
use super::{choose, optional_listing};

/// The target, as it was before anything was copied.
pub(super) struct Target<'a> {
    pub(super) store: &'a dyn Store,
    /// Whether it can list; if not, it is a host.
    pub(super) lists: bool,
    folders: BTreeMap<VersionId, Folder>,
}

impl<'a> Target<'a> {
    /// Lists the folders of versions, or looks for each of these.
    pub(super) async fn look(store: &'a dyn Store, versions: &[choose::Version]) -> Result<Self, RepoError> {
        if let Some(listed) = optional_listing(list_folders(store).await)? {
            return Ok(Self { store, lists: true, folders: listed.by_id });
        }
        let folders = stream::iter(versions)
            .map(|version| async move {
                let id = version.record.id;
                let record = get_optional(store, &layout::version_json(id)).await?;
                let marked = get_optional(store, &layout::expired(id)).await?.is_some();
                // One with its record is whole; what is not is sent again and refused where it is there.
                Ok::<_, RepoError>((id, Folder::supposed(record.is_some().then_some(&version.record), marked)))
            })
            .buffer_unordered(CONCURRENT)
            .try_collect()
            .await?;
        Ok(Self { store, lists: false, folders })
    }

    /// What is in the folder of a version.
    pub(super) fn folder(&self, id: VersionId) -> Folder {
        self.folders.get(&id).cloned().unwrap_or_default()
    }

    /// Whether it has taken the version away.
    pub(super) fn has_taken_away(&self, id: VersionId) -> bool {
        self.folders.get(&id).is_some_and(Folder::is_marked)
    }

    /// Whether it has withdrawn the version.
    pub(super) async fn has_withdrawn(&self, id: VersionId) -> Result<bool, RepoError> {
        Ok(self.has_taken_away(id) && is_withdrawn(self.store, id).await?)
    }
}

/// Whether a store has the mark of a withdrawn version.
pub(super) async fn is_withdrawn(store: &dyn Store, id: VersionId) -> Result<bool, RepoError> {
    Ok(read_mark(store, id).await?.and_then(|mark| mark.reason) == Some(Reason::Withdrawn))
}
