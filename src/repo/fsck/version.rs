//! What lies in the folder of a version (docs/format.md sections 3 to 5, 7 and 12).

use futures::future::join;
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{
    Dataset, Expired, Files, FormatError, Reason, Record, Sha256, Signature, SignatureFault, VersionId, layout,
};

use crate::store::{Object, Store, StoreError};

use super::super::error::RepoError;
use super::super::folders::{Folder, is_wal};
use super::super::read::{get_optional, read_mark};
use super::Scene;
use super::files::DataFiles;
use super::finding::{self, Code, Finding, Repairs};

/// How many versions are looked at at a time. Each may have a catalog and its list of files in hand.
const AT_ONCE: usize = 8;

impl Scene<'_> {
    /// Looks at each chosen version, and with `data` at its files.
    pub(super) async fn versions(&mut self, mut data: Option<DataFiles>) -> Result<(), RepoError> {
        let scene = &*self;
        let deep = data.is_some();
        let mut looks =
            stream::iter(scene.chosen.iter().copied()).map(|id| scene.version(id, deep)).buffer_unordered(AT_ONCE);
        let mut all = Vec::new();
        while let Some(Look { id, mut findings, files }) = looks.try_next().await? {
            if let (Some(data), Some(files)) = (&mut data, &files) {
                findings.extend(data.check(id, files, &scene.repairs));
            }
            // What is taken away while it is looked at is no damage.
            let marked = scene.folders.by_id.get(&id).is_some_and(Folder::is_marked);
            if findings.is_empty() || marked || !is_marked_now(scene.store, id).await? {
                all.append(&mut findings);
            }
        }
        drop(looks);
        self.findings.append(&mut all);
        Ok(())
    }

    async fn version(&self, id: VersionId, deep: bool) -> Result<Look, RepoError> {
        let mut look = Look { id, findings: Vec::new(), files: None };
        let Some(folder) = self.folders.by_id.get(&id) else {
            return Ok(look);
        };
        if !folder.is_complete() {
            look.findings.push(match self.named_by(id) {
                Some(by) => {
                    let problem = format!("it is missing, but {by} names the version");
                    let finding = Finding::error(Code::Missing, layout::version_json(id), problem);
                    finding.mended_by(self.repairs.bring_back())
                }
                None => {
                    let problem = "it has no version.json: its push was stopped, or is under way";
                    let finding = Finding::warning(Code::Unfinished, layout::version(id), problem);
                    finding.mended_by(self.repairs.gc())
                }
            });
            return Ok(look);
        }
        let Some(record) = self.records.get(&id) else {
            return Ok(look);
        };
        let mark = match folder.is_marked() {
            true => Some(self.mark(id, &mut look).await?),
            false => None,
        };
        self.signature(record, folder, &mut look).await?;
        self.dataset(record, folder, mark.as_ref(), &mut look).await?;
        self.files_json(record, folder, mark.as_ref(), &mut look).await?;
        match mark {
            Some(mark) => {
                self.taken_away(id, folder, &mark, &mut look);
                if mark.reason == Some(Reason::Withdrawn) {
                    // Whatever is half there: only the withdrawal goes on, and no copy brings anything back.
                    for finding in &mut look.findings {
                        finding.repair = Some(self.repairs.withdraw(id));
                    }
                }
            }
            None => {
                self.catalogs_listed(record, folder, &mut look);
                if deep {
                    self.catalogs_read(record, folder, &mut look).await?;
                }
            }
        }
        Ok(look)
    }

    /// The ref or the record that names a version. One that is named was finished once.
    fn named_by(&self, id: VersionId) -> Option<String> {
        let reference = self.refs.iter().find(|(_, held)| **held == id).map(|(name, _)| name.to_string());
        let child = || self.records.values().find(|record| record.parents.contains(&id));
        reference.or_else(|| child().map(|record| layout::version_json(record.id)))
    }

    async fn mark(&self, id: VersionId, look: &mut Look) -> Result<Expired, RepoError> {
        let key = layout::expired(id);
        // One that goes on for too long says nothing that is known.
        let object = match get_optional(self.store, &key).await {
            Err(StoreError::TooLarge { .. } | StoreError::NotRegular { .. }) => None,
            object => object?,
        };
        let bytes = object.map(|object| object.bytes).unwrap_or_default();
        let mark = Expired::parse(&bytes);
        let problem = match (mark.reason, Expired::parse_id(&bytes)) {
            (None, _) => "it says no reason that is known; the version counts as taken away all the same",
            (_, Some(other)) if other != id => {
                "it is the mark of another version; this one counts as taken away all the same"
            }
            _ => return Ok(mark),
        };
        look.findings.push(Finding::warning(Code::Unreadable, key, problem));
        Ok(mark)
    }

    /// Of a version that was taken away the catalogs are gone, and of a withdrawn one files.json too.
    fn taken_away(&self, id: VersionId, folder: &Folder, mark: &Expired, look: &mut Look) {
        let withdrawn = mark.reason == Some(Reason::Withdrawn);
        let listed = folder.part(layout::FILES_JSON).filter(|_| withdrawn);
        let repair = match withdrawn {
            true => self.repairs.withdraw(id),
            false => self.repairs.expire(id),
        };
        for part in folder.catalogs().chain(listed) {
            let key = format!("{}{}", layout::version(id), part.name);
            let problem = "it is still there, though its version has been taken away";
            look.findings.push(Finding::warning(Code::Unfinished, key, problem).mended_by(repair.clone()));
        }
    }

    /// A signature can be read and fits the record, whoever made it.
    async fn signature(&self, record: &Record, folder: &Folder, look: &mut Look) -> Result<(), RepoError> {
        if !folder.has(layout::SIGNATURE) {
            return Ok(());
        }
        let (key, of) = (layout::signature(record.id), layout::version_json(record.id));
        let (signature, signed) = join(get_optional(self.store, &key), get_optional(self.store, &of)).await;
        let mut told = |object: Result<Option<Object>, StoreError>| look.read(object, &self.repairs);
        let (Some(signature), Some(signed)) = (told(signature)?, told(signed)?) else {
            return Ok(());
        };
        let fault = Signature::parse(&signature.bytes).and_then(|signature| signature.check(&signed.bytes)).err();
        let code = match &fault {
            // That this program cannot check it says nothing of the repository.
            None | Some(SignatureFault::Unsupported(_)) => return Ok(()),
            Some(SignatureFault::Unreadable(_)) => Code::Unreadable,
            Some(SignatureFault::OtherNamespace(_) | SignatureFault::DoesNotFit) => Code::Signature,
        };
        let problem = fault.map(|fault| fault.to_string()).unwrap_or_default();
        look.findings.push(Finding::error(code, key, problem).mended_by(self.repairs.replace()));
        Ok(())
    }

    async fn dataset(
        &self,
        record: &Record,
        folder: &Folder,
        mark: Option<&Expired>,
        look: &mut Look,
    ) -> Result<(), RepoError> {
        let key = layout::dataset(record.id);
        // Of a withdrawn version it goes when it holds texts.
        let needed = mark.is_none_or(|mark| mark.reason != Some(Reason::Withdrawn));
        let bytes = self.described(&key, folder.has(layout::DATASET_JSON), record.dataset_sha256, needed, look).await?;
        if let Some(Err(error)) = bytes.map(|bytes| Dataset::parse(&bytes)) {
            look.unreadable(&key, &error, &self.repairs);
        }
        Ok(())
    }

    async fn files_json(
        &self,
        record: &Record,
        folder: &Folder,
        mark: Option<&Expired>,
        look: &mut Look,
    ) -> Result<(), RepoError> {
        let key = layout::files(record.id);
        let needed = mark.is_none_or(|mark| mark.reason == Some(Reason::Retention));
        let there = folder.has(layout::FILES_JSON);
        let bytes = self.described(&key, there, record.files_sha256, needed, look).await?;
        match bytes.map(|bytes| Files::parse(&bytes, &self.data_dir)) {
            Some(Ok(files)) => look.files = Some(files).filter(|_| mark.is_none()),
            Some(Err(error)) => look.unreadable(&key, &error, &self.repairs),
            None => {}
        }
        Ok(())
    }

    /// A small file that the record vouches for; nothing when it is not there or not the right one.
    async fn described(
        &self,
        key: &str,
        there: bool,
        hash: Option<Sha256>,
        needed: bool,
        look: &mut Look,
    ) -> Result<Option<bytes::Bytes>, RepoError> {
        let object = match there {
            true => {
                let told = look.findings.len();
                let object = look.read(get_optional(self.store, key).await, &self.repairs)?;
                if look.findings.len() > told {
                    return Ok(None);
                }
                object
            }
            false => None,
        };
        let Some(object) = object else {
            if hash.is_some() && needed {
                let finding = Finding::error(Code::Missing, key, "it is missing, but version.json names it");
                look.findings.push(finding.mended_by(self.repairs.bring_back()));
            }
            return Ok(None);
        };
        if hash.is_some_and(|hash| Sha256::of(&object.bytes) != hash) {
            let finding = Finding::error(Code::Hash, key, "its sha256 is not the one in version.json");
            look.findings.push(finding.mended_by(self.repairs.replace()));
            return Ok(None);
        }
        Ok(Some(object.bytes))
    }

    /// The catalogs are there with their sizes, as far as the listing tells.
    fn catalogs_listed(&self, record: &Record, folder: &Folder, look: &mut Look) {
        for catalog in record.all_catalogs() {
            let (part, key) = (folder.part(catalog.name()), catalog.key.clone());
            match (part, catalog.size) {
                (None, _) => {
                    let finding = Finding::error(Code::Missing, key, "it is missing, but version.json names it");
                    look.findings.push(finding.mended_by(self.repairs.bring_back()));
                }
                (Some(part), Some(size)) if part.size != size => {
                    let problem = format!("it has {} bytes, not {size} as version.json says", part.size);
                    look.findings.push(Finding::error(Code::Size, key, problem).mended_by(self.repairs.replace()));
                }
                (Some(_), _) => {}
            }
        }
        for part in folder.catalogs().filter(|part| record.hash_of(&part.name).is_none()) {
            let key = format!("{}{}", layout::version(record.id), part.name);
            look.findings.push(match is_wal(&part.name) {
                true => {
                    let problem = "DuckDB reads a catalog with the changes in such a file beside it";
                    Finding::error(Code::Stray, key, problem).mended_by(self.repairs.look_again())
                }
                false => Finding::warning(Code::Stray, key, "version.json does not name it"),
            });
        }
    }
}

/// What was found of one version.
pub(super) struct Look {
    pub(super) id: VersionId,
    pub(super) findings: Vec<Finding>,
    /// Its data files, where they are known and it can be read.
    pub(super) files: Option<Files>,
}

/// Whether a version has been taken away by now. A mark that is no file is told of elsewhere.
async fn is_marked_now(store: &dyn Store, id: VersionId) -> Result<bool, RepoError> {
    match read_mark(store, id).await {
        Ok(mark) => Ok(mark.is_some()),
        Err(RepoError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Look {
    /// What was read, or nothing and a finding.
    fn read(
        &mut self,
        object: Result<Option<Object>, StoreError>,
        repairs: &Repairs,
    ) -> Result<Option<Object>, RepoError> {
        match object.map_err(RepoError::from) {
            Ok(object) => Ok(object),
            Err(error) => {
                self.findings.push(finding::finding(error, repairs)?);
                Ok(None)
            }
        }
    }

    pub(super) fn unreadable(&mut self, key: &str, error: &FormatError, repairs: &Repairs) {
        self.findings.push(Finding::error(Code::Unreadable, key, error.to_string()).mended_by(repairs.replace()));
    }
}
