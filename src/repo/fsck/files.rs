//! Data files against one listing, and catalogs against their records and lists.

use futures::StreamExt;

use crate::format::{Files, Record, VersionId, layout};

use super::super::catalog::{fetch_catalog, named_by};
use super::super::error::RepoError;
use super::super::folders::Folder;
use super::super::key_set::KeySet;
use super::Scene;
use super::finding::{self, Code, Finding, Repairs};
use super::structure::stray_catalog;
use super::version::Look;

/// How the names of catalogs and databases end.
const DATABASES: [&str; 4] = [".duckdb", ".ducklake", ".duckdb.wal", ".ducklake.wal"];

/// Which data files are there, in 32 bytes each.
#[derive(Default)]
pub(super) struct DataFiles {
    there: KeySet,
    sized: KeySet,
    told: KeySet,
    /// What is neither a file nor a folder: nothing is known of what lies behind it.
    odd: Vec<String>,
}

impl DataFiles {
    /// Compares what a version names with what is there. Each file is told of once.
    pub(super) fn check(&mut self, id: VersionId, files: &Files, repairs: &Repairs) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (key, size) in files.iter() {
            if self.sized.contains_sized(key, size) || !self.told.insert(key) || self.is_behind(key) {
                continue;
            }
            findings.push(match self.there.contains(key) {
                true => {
                    let problem = format!("it does not have the {size} bytes that version {id} names");
                    Finding::error(Code::Size, key, problem).mended_by(repairs.replace())
                }
                false => {
                    let problem = format!("it is missing, but version {id} names it");
                    Finding::error(Code::Missing, key, problem).mended_by(repairs.bring_back())
                }
            });
        }
        findings
    }
}

impl DataFiles {
    fn is_behind(&self, key: &str) -> bool {
        self.odd
            .iter()
            .any(|odd| key.strip_prefix(odd.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

impl Scene<'_> {
    /// Lists the data folder; with `all` everything, to find what lies where nothing may be.
    pub(super) async fn list_data(&mut self, all: bool) -> Result<DataFiles, RepoError> {
        let mut data = DataFiles::default();
        let folder = self.data_dir.as_str().to_owned();
        let mut listing = self.store.list(if all { "" } else { &folder });
        let (mut strays, mut strange) = (Vec::new(), Vec::new());
        while let Some(meta) = listing.next().await {
            let meta = match meta {
                Ok(meta) => meta,
                Err(error) => {
                    let finding = finding::odd(error)?;
                    data.odd.push(finding.object.clone());
                    // The listings before have told of these.
                    if !finding.object.starts_with(layout::VERSIONS) && !finding.object.starts_with(layout::REFS) {
                        strange.push(finding);
                    }
                    continue;
                }
            };
            if meta.key.starts_with(&folder) {
                data.there.insert(&meta.key);
                data.sized.insert_sized(&meta.key, meta.size);
            } else if is_stray(&meta.key) {
                strays.push(meta.key);
            }
        }
        drop(listing);
        self.findings.extend(strays.into_iter().map(stray_catalog));
        // Those of the format's own files have been told of by whoever read them.
        let told: Vec<String> = self.findings.iter().map(|finding| finding.object.clone()).collect();
        self.findings.extend(strange.into_iter().filter(|finding| !told.contains(&finding.object)));
        Ok(data)
    }

    /// Every catalog of a version has its hash, and names the files that files.json names.
    pub(super) async fn catalogs_read(
        &self,
        record: &Record,
        folder: &Folder,
        look: &mut Look,
    ) -> Result<(), RepoError> {
        // The others are held against what files.json or the main one names.
        for catalog in record.all_catalogs() {
            let name = catalog.name();
            // What is missing, cut off or read with changes has been told of.
            let told = |part: &super::super::folders::Part| catalog.size.is_some_and(|size| size != part.size);
            if folder.part(name).is_none_or(told) || folder.has(&format!("{name}{}", layout::WAL)) {
                continue;
            }
            let file = match fetch_catalog(self.store, record, &catalog, self.look.scratch).await {
                Ok(file) => file,
                Err(RepoError::Corrupt { object, why }) => {
                    look.findings.push(Finding::error(Code::Hash, object, why).mended_by(self.repairs.replace()));
                    continue;
                }
                Err(RepoError::Expired { .. } | RepoError::Withdrawn { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(hook) = self.look.files else {
                continue;
            };
            match (named_by(hook, &catalog, &self.data_dir, &file), &look.files) {
                (Ok(named), Some(listed)) if named.by_key() != listed.by_key() => {
                    let problem = format!("it does not name the files that {name} names");
                    look.findings.push(Finding::error(Code::Files, layout::files(record.id), problem));
                }
                (Ok(named), None) => look.files = Some(named),
                (Ok(_), Some(_)) => {}
                (Err(error), _) => {
                    let problem = match error {
                        RepoError::Corrupt { why, .. } => why,
                        error => error.to_string(),
                    };
                    look.findings.push(Finding::error(Code::Unreadable, &catalog.key, problem));
                }
            }
        }
        Ok(())
    }
}

/// Whether it is a catalog or database where none may be. `ducklake.duckdb` at the root is told of at every depth.
fn is_stray(key: &str) -> bool {
    let known = key.starts_with(layout::VERSIONS) || key.starts_with(layout::SOURCES) || key == layout::CATALOG;
    !known && DATABASES.iter().any(|end| key.ends_with(end))
}
