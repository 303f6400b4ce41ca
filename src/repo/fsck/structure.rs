//! Settings, HEAD, refs, refs.json, and how the versions hang together.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};

use crate::format::{RefKind, RefName, RefsJson, Settings, VersionId, layout};
use crate::store::StoreError;

use super::super::CONCURRENT;
use super::super::error::RepoError;
use super::super::folders::list_folders_but;
use super::super::read::{get_optional, read_head, read_record, read_ref};
use super::Scene;
use super::finding::{self, Code, Finding};

impl Scene<'_> {
    /// Everything but what is in the folders of single versions.
    pub(super) async fn structure(&mut self, only: Option<&RefName>) -> Result<(), RepoError> {
        let head = self.settings_and_head().await?;
        self.read_refs().await?;
        // After the refs: a version is there before a ref leads to it.
        let mut strange = Vec::new();
        self.folders = list_folders_but(self.store, &mut |error| {
            strange.push(finding::odd(error)?);
            Ok(())
        })
        .await?;
        self.findings.append(&mut strange);
        self.read_all_records().await?;
        match only {
            Some(name) => {
                let version = self.refs.get(name).copied();
                let damaged = self.findings.iter().any(|finding| finding.object == name.key());
                if version.is_none() && !damaged {
                    return Err(RepoError::NoSuchRef { name: name.to_string() });
                }
                self.choose_history(version);
                self.refs.retain(|other, _| other == name);
                let key = |finding: &Finding| finding.object.starts_with(layout::REFS) && finding.object != name.key();
                self.findings.retain(|finding| !key(finding));
            }
            None => {
                self.chosen = self.folders.by_id.keys().copied().collect();
                self.check_refs_json(head).await?;
                for stray in std::mem::take(&mut self.folders.strays) {
                    self.find(Finding::warning(Code::Stray, stray, "it is in no version's folder"));
                }
                if self.store_has(layout::CATALOG).await? {
                    self.find(stray_catalog(layout::CATALOG));
                }
            }
        }
        self.check_held();
        self.check_parents();
        Ok(())
    }

    async fn settings_and_head(&mut self) -> Result<Option<RefName>, RepoError> {
        let fdl = self.small(layout::FDL_JSON).await?;
        let head_there = self.store_has(layout::HEAD).await?;
        match fdl {
            None => {}
            Some(Some(object)) => {
                if let Some(settings) = self.found(Settings::parse(&object.bytes).map_err(RepoError::from))? {
                    self.data_dir = settings.data_dir;
                }
            }
            Some(None) if head_there => {
                let repair = self.repairs.bring_back();
                self.find(Finding::error(Code::Missing, layout::FDL_JSON, "it is missing").mended_by(repair));
            }
            Some(None) => {
                let (location, oddity) = (self.store.location().to_owned(), self.store.oddity());
                return Err(RepoError::NotARepository { location, oddity });
            }
        }
        if !head_there {
            // What is wrong with it is told by whoever compares it.
            let refs_json = get_optional(self.store, layout::REFS_JSON).await.ok().flatten();
            let repair = match refs_json.and_then(|object| RefsJson::parse(&object.bytes).ok()) {
                Some(said) => self.repairs.head(&said.head),
                None => self.repairs.bring_back(),
            };
            self.find(Finding::error(Code::Missing, layout::HEAD, "it is missing").mended_by(repair));
            return Ok(None);
        }
        let head = read_head(self.store).await;
        self.found(head)
    }

    async fn store_has(&self, key: &str) -> Result<bool, StoreError> {
        match self.store.head(key).await {
            // Something is there.
            Ok(_) | Err(StoreError::NotRegular { .. }) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn read_refs(&mut self) -> Result<(), RepoError> {
        let store = self.store;
        let mut listing = store.list(layout::REFS);
        let mut names = Vec::new();
        while let Some(meta) = listing.next().await {
            let key = match meta {
                Ok(meta) => meta.key,
                Err(error) => {
                    self.findings.push(finding::odd(error)?);
                    continue;
                }
            };
            match RefName::parse(&key) {
                Ok(name) => names.push(name),
                Err(error) => self.find(Finding::warning(Code::Stray, key, error.to_string())),
            }
        }
        names.sort();
        for name in &names {
            if let Some(by) = names.iter().find(|by| by.conflicts_with(name) && *by < name) {
                self.find(Finding::error(Code::Stray, name.key(), format!("{by} cannot be beside it")));
            }
        }
        let read: Vec<_> = stream::iter(names)
            .map(|name| async move { (name.clone(), read_ref(store, &name).await) })
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        for (name, held) in read {
            if let Some(Some(held)) = self.found(held)? {
                self.refs.insert(name, held.version);
            }
        }
        Ok(())
    }

    async fn read_all_records(&mut self) -> Result<(), RepoError> {
        let store = self.store;
        let ids: Vec<VersionId> = self.folders.complete().map(|(id, _)| id).collect();
        let read: Vec<_> = stream::iter(ids)
            .map(|id| async move { (id, read_record(store, id).await) })
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        for (id, record) in read {
            // One that is gone since the listing was never finished, and gc took it.
            if matches!(record, Err(RepoError::NoSuchVersion { .. })) {
                self.folders.by_id.remove(&id);
            } else if let Some(record) = self.found(record)? {
                self.records.insert(id, record);
            }
        }
        Ok(())
    }

    fn choose_history(&mut self, from: Option<VersionId>) {
        let mut next = from;
        while let Some(id) = next {
            if !self.chosen.insert(id) {
                break;
            }
            next = self.records.get(&id).and_then(crate::format::Record::parent);
        }
    }

    async fn check_refs_json(&mut self, head: Option<RefName>) -> Result<(), RepoError> {
        let repair = self.repairs.init();
        let lag = |why: &str| Finding::warning(Code::Lag, layout::REFS_JSON, why).mended_by(repair.clone());
        let object = match self.small(layout::REFS_JSON).await? {
            Some(Some(object)) => object,
            Some(None) => {
                self.find(lag("it is missing"));
                return Ok(());
            }
            None => return Ok(()),
        };
        match RefsJson::parse(&object.bytes) {
            Err(error) => {
                let finding = Finding::error(Code::Unreadable, layout::REFS_JSON, error.to_string());
                self.find(finding.mended_by(repair));
            }
            Ok(said) => {
                if said.refs != self.refs {
                    self.find(lag(&self.differs(&said)));
                } else if head.as_ref().is_some_and(|head| *head != said.head) {
                    self.find(lag("it names another HEAD"));
                }
                self.check_lost(&said, head.as_ref());
            }
        }
        Ok(())
    }

    /// Which ref refs.json does not say the truth about.
    fn differs(&self, said: &RefsJson) -> String {
        let names: BTreeSet<&RefName> = said.refs.keys().chain(self.refs.keys()).collect();
        let held = |refs: &BTreeMap<RefName, VersionId>, name: &RefName| match refs.get(name) {
            Some(id) => id.to_string(),
            None => "nothing".to_owned(),
        };
        let differ = |name: &&RefName| said.refs.get(*name) != self.refs.get(*name);
        let list = names
            .into_iter()
            .filter(differ)
            .map(|name| format!("{name} holds {}, and it says {}", held(&self.refs, name), held(&said.refs, name)));
        list.take(3).collect::<Vec<_>>().join("; ")
    }

    /// What refs.json names and nobody else does has been deleted, or has been lost.
    fn check_lost(&mut self, said: &RefsJson, head: Option<&RefName>) {
        let there = |name: &RefName| self.refs.contains_key(name);
        let mut lost = Vec::new();
        if let Some(head) = head.filter(|head| **head != said.head && !there(head) && there(&said.head)) {
            let problem = format!("it names {head}, which is not there, and refs.json names {}", said.head);
            lost.push(Finding::error(Code::Missing, layout::HEAD, problem).mended_by(self.repairs.replace()));
        }
        for (name, id) in &said.refs {
            let damaged = self.findings.iter().any(|finding| finding.object == name.key());
            if there(name) || damaged || name.kind() == RefKind::Request || !self.records.contains_key(id) {
                continue;
            }
            let problem =
                format!("it is not there, and refs.json says that it holds {id}: it was deleted, or was lost");
            let finding = match head == Some(name) {
                true => Finding::error(Code::Missing, name.key(), problem),
                false => Finding::warning(Code::Missing, name.key(), problem),
            };
            lost.push(finding.mended_by(self.repairs.make_ref(name, *id)));
        }
        self.findings.append(&mut lost);
    }

    /// What every ref holds is there and may be read.
    fn check_held(&mut self) {
        for (name, id) in self.refs.clone() {
            let folder = self.folders.by_id.get(&id);
            if !folder.is_some_and(super::super::folders::Folder::is_complete) {
                let problem = format!("it holds {id}, a version that is not there");
                self.find(Finding::error(Code::Missing, name.key(), problem).mended_by(self.repairs.replace()));
            } else if folder.is_some_and(super::super::folders::Folder::is_marked) {
                let problem = format!("it holds {id}, a version that has been taken away");
                self.find(
                    Finding::error(Code::HeldExpired, name.key(), problem).mended_by(self.repairs.delete_ref(&name)),
                );
            }
        }
    }

    fn check_parents(&mut self) {
        let parents: BTreeMap<VersionId, Vec<VersionId>> =
            self.records.iter().map(|(id, record)| (*id, record.parents.clone())).collect();
        let mut ends: BTreeSet<VersionId> = BTreeSet::new();
        for id in self.chosen.clone() {
            let key = || layout::version_json(id);
            let Some(named) = parents.get(&id) else { continue };
            if named.len() > 1 {
                self.find(Finding::error(Code::Parent, key(), "it names more than one parent"));
            }
            for parent in named {
                if !self.folders.by_id.get(parent).is_some_and(super::super::folders::Folder::is_complete) {
                    let problem = format!("its parent {parent} is not there");
                    self.find(Finding::error(Code::Parent, key(), problem).mended_by(self.repairs.bring_back()));
                }
            }
            // Each version is walked over once: a walk ends where an earlier one has been.
            let (mut path, mut next) = (BTreeSet::new(), Some(id));
            while let Some(at) = next.filter(|at| !ends.contains(at)) {
                if !path.insert(at) {
                    self.find(Finding::error(Code::Parent, layout::version_json(at), "its parents lead in a circle"));
                    break;
                }
                next = parents.get(&at).and_then(|named| named.first().copied());
            }
            ends.append(&mut path);
        }
    }
}

/// A catalog outside `versions/` (docs/format.md section 1).
pub(super) fn stray_catalog(key: impl Into<String>) -> Finding {
    Finding::warning(Code::Stray, key, "a catalog or database outside the folders of versions: move it elsewhere")
}
