//! The files that versions were made from. A copy may have been made without them.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;

use crate::format::{Record, Sha256, SourceFile, VersionId, layout};
use crate::store::{Store, StoreError};

use super::super::catalog::{LookInto, scratch_file};
use super::super::error::RepoError;
use super::finding::{self, Code, Finding, Repairs};
use super::{Fsck, Scene};

/// Each source that versions name, by its key, with the first version that does.
fn named<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<String, (VersionId, &'a SourceFile)> {
    let mut named = BTreeMap::new();
    for record in records {
        for file in &record.sources {
            named.entry(file.key()).or_insert((record.id, file));
        }
    }
    named
}

impl Scene<'_> {
    /// Compares the sources that versions name with one listing.
    pub(super) async fn sources(&mut self) -> Result<(), RepoError> {
        let marked: BTreeSet<VersionId> =
            self.folders.by_id.iter().filter(|(_, folder)| folder.is_marked()).map(|(id, _)| *id).collect();
        let live =
            self.records.values().filter(|record| self.chosen.contains(&record.id) && !marked.contains(&record.id));
        let named = named(live);
        if named.is_empty() {
            return Ok(());
        }
        let mut there: BTreeMap<String, u64> = BTreeMap::new();
        let mut listing = self.store.list(layout::SOURCES);
        while let Some(meta) = listing.next().await {
            match meta {
                Ok(meta) => drop(there.insert(meta.key, meta.size)),
                Err(error) => {
                    let finding = finding::odd(error)?;
                    match self.findings.iter().any(|told| told.object == finding.object) {
                        true => {}
                        false => self.findings.push(finding),
                    }
                }
            }
        }
        drop(listing);
        // A repository without any is a copy that was made without them.
        let mut findings = Vec::new();
        for (key, (id, file)) in named.iter().filter(|_| !there.is_empty()) {
            match there.get(key) {
                Some(size) if *size == file.size => {}
                Some(_) => {
                    let problem = format!("it does not have the {} bytes that version {id} names", file.size);
                    findings.push(Finding::error(Code::Size, key, problem).mended_by(self.repairs.replace()));
                }
                None => {
                    let problem = format!("it is missing, but version {id} was made from it ({})", file.name);
                    findings.push(Finding::warning(Code::Missing, key, problem).mended_by(self.repairs.bring_back()));
                }
            }
        }
        self.findings.append(&mut findings);
        Ok(())
    }
}

/// Reads every source that live versions name and that is there, for whoever looks at content.
///
/// # Errors
/// Those of the store. What is wrong with a file is a finding.
pub async fn fsck_sources(store: &dyn Store, found: &Fsck, look: LookInto<'_>) -> Result<Vec<Finding>, RepoError> {
    let mut findings = Vec::new();
    for (key, (id, file)) in named(found.live.iter()) {
        let copy = scratch_file(look.scratch)?;
        match store.download(&key, &copy, file.size).await {
            Ok(_) => {}
            // One of another size, or that is no file, has been told of.
            Err(StoreError::NotFound { .. } | StoreError::TooLarge { .. } | StoreError::NotRegular { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
        let read = Sha256::of_file(&copy).map_err(|source| RepoError::Local { path: copy.to_path_buf(), source })?;
        // Another size has been told of.
        if read.0 != file.sha256 && read.1 == file.size {
            let problem = format!("its sha256 is {}, not its name; version {id} was made from it", read.0);
            findings.push(Finding::error(Code::Hash, key, problem).mended_by(Repairs::of(store).replace()));
        }
    }
    Ok(findings)
}
