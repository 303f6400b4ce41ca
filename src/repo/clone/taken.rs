//! Versions that the source has taken away since they were copied.

use std::collections::BTreeSet;

use crate::format::{Reason, VersionId, layout};
use crate::store::Body;

use super::super::error::RepoError;
use super::super::folders::is_catalog;
use super::super::read::read_mark;
use super::super::refs::list_refs;
use super::super::withdraw::{WithdrawAction, WithdrawError, WithdrawOptions, withdraw_in};
use super::carry::Object;
use super::{CloneError, Work, choose};

impl Work<'_> {
    /// Takes them away from the copy as well, but for those that a ref of the copy holds.
    pub(super) async fn taken_away(&mut self, versions: &[choose::Version]) -> Result<(), CloneError> {
        if !self.target.lists {
            return Ok(self.unheard(versions).await?);
        }
        let marked = versions.iter().filter(|version| version.marked);
        let old: Vec<&choose::Version> =
            marked.filter(|version| self.target.folder(version.record.id).is_complete()).collect();
        if old.is_empty() {
            return Ok(());
        }
        let holders = list_refs(self.target.store).await?.by_version();
        for version in old {
            let id = version.record.id;
            match holders.get(&id).and_then(|names| names.first()) {
                Some(name) => self.done.notes.push(format!(
                    "{name} of the copy holds {id}, which the source has taken away: delete it and clone again"
                )),
                None => self.take_away(version).await?,
            }
        }
        Ok(())
    }

    /// The mark first, so that nobody takes the version for one that is damaged.
    async fn take_away(&mut self, version: &choose::Version) -> Result<(), CloneError> {
        let (id, store) = (version.record.id, self.target.store);
        let folder = self.target.folder(id);
        let kept: BTreeSet<&str> = version.parts.iter().map(|(name, _)| name.as_str()).collect();
        let known = |name: &str| is_catalog(name) || name == layout::FILES_JSON;
        let over: Vec<_> =
            folder.0.iter().filter(|part| known(&part.name) && !kept.contains(part.name.as_str())).collect();
        if over.is_empty() && folder.is_marked() {
            return Ok(());
        }
        let mark = read_mark(self.source.store(), id).await?.unwrap_or_default();
        if mark.reason == Some(Reason::Withdrawn) {
            if !self.target.has_withdrawn(id).await? {
                store.put(&layout::expired(id), Body::Bytes(mark.print(id).map_err(RepoError::from)?.into())).await?;
            }
            return self.withdraw(id).await;
        }
        if !folder.is_marked() {
            self.carrier.carry(vec![Object::plain(&layout::expired(id))]).await?;
        }
        for part in over {
            store.delete(&format!("{}{}", layout::version(id), part.name)).await?;
        }
        Ok(())
    }

    /// Nothing of a withdrawn version may stay in a copy either: its data files and sources go at once.
    async fn withdraw(&mut self, id: VersionId) -> Result<(), CloneError> {
        let options = WithdrawOptions { versions: vec![id], ..WithdrawOptions::default() };
        let data_dir = &self.source.settings().data_dir;
        let rows =
            withdraw_in(self.target.store, data_dir, &options, self.look).await.map_err(|error| match error {
                WithdrawError::Repo(error) => error,
                other => RepoError::corrupt(layout::version(id), other.to_string()),
            })?;
        let kept = rows.iter().filter(|row| matches!(row.action, WithdrawAction::KeepFile { .. })).count();
        let gone = rows.iter().filter(|row| row.action == WithdrawAction::DeleteFile && row.done).count();
        if gone > 0 {
            self.done.notes.push(format!(
                "{id} has been withdrawn: {gone} files of it were deleted from the copy, and {kept} stay that other versions name"
            ));
        }
        Ok(())
    }

    /// A host lets nobody take versions away but its owner, who must hear of it.
    async fn unheard(&mut self, versions: &[choose::Version]) -> Result<(), RepoError> {
        let mut kept = Vec::new();
        for version in versions.iter().filter(|version| version.marked) {
            if read_mark(self.target.store, version.record.id).await?.is_none() {
                kept.push(version.record.id);
            }
        }
        if let Some(first) = kept.first() {
            let count = kept.len();
            self.done.notes.push(format!(
                "the copy still has {count} versions that the source has taken away, {first} the first: its owner must \
                 take them away there"
            ));
        }
        Ok(())
    }
}
