//! A version as it lies beside a working catalog, checked before anything of it is sent.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::format::{
    DataDir, Dataset, Files, FormatError, Record, Sha256, Signature, SourceFile, VersionId, layout, read_small,
};

use super::super::error::RepoError;

/// A version in a folder of this machine that is named by its ID and laid out as in the repository. Every file in it
/// has the hash of the record, every data file lies under the data folder, and a signature fits the record.
#[derive(Debug, Clone)]
pub struct LocalVersion {
    /// The record.
    pub record: Record,
    /// What the version holds.
    pub dataset: Dataset,
    /// Its data files.
    pub files: Files,
    /// The catalogs, with the key each is to have.
    pub(super) catalogs: Vec<LocalFile>,
    /// The files it was made from, with the key each is to have.
    pub(super) sources: Vec<LocalFile>,
    pub(super) record_bytes: Bytes,
    pub(super) dataset_bytes: Bytes,
    pub(super) files_bytes: Bytes,
    pub(super) signature: Option<Bytes>,
}

/// A file of a version in a folder of this machine.
#[derive(Debug, Clone)]
pub(super) struct LocalFile {
    pub(super) key: String,
    pub(super) path: PathBuf,
    pub(super) sha256: Sha256,
    pub(super) size: u64,
}

impl LocalVersion {
    /// Reads and checks the version in a folder. Hashes every file, so it takes as long as reading them.
    ///
    /// # Errors
    /// [`RepoError::Corrupt`] when something is missing or not as the record says, [`RepoError::Format`] for a data file
    /// outside the data folder, [`RepoError::Local`] when a file cannot be read.
    pub fn load(folder: &Path, data_dir: &DataDir) -> Result<Self, RepoError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let id: VersionId = name.parse()?;
        let file = |name: &str| folder.join(name);

        let record_bytes = read(&file(layout::VERSION_JSON))?;
        let record = Record::parse(id, &record_bytes)?;
        if record.parents.len() > 1 {
            let why = "it has more than one parent";
            return Err(RepoError::corrupt(shown(&file(layout::VERSION_JSON)), why));
        }

        let dataset_path = file(layout::DATASET_JSON);
        let dataset_bytes = read_hashed(&dataset_path, record.dataset_sha256)?;
        let dataset = Dataset::parse(&dataset_bytes).map_err(at(&dataset_path))?;

        let files_path = file(layout::FILES_JSON);
        let files_bytes = read_hashed(&files_path, record.files_sha256)?;
        let files = Files::parse(&files_bytes, data_dir).map_err(at(&files_path))?;

        let catalogs = record
            .all_catalogs()
            .map(|catalog| {
                let path = file(catalog.name());
                local_file(catalog.key, path, catalog.sha256, catalog.size)
            })
            .collect::<Result<_, _>>()?;
        let source = |source: &SourceFile| {
            let key = source.key();
            local_file(key.clone(), file(&key), source.sha256, Some(source.size))
        };
        let sources = record.sources.iter().map(source).collect::<Result<_, _>>()?;

        let signature = signature(&file(layout::SIGNATURE), &record_bytes)?;
        Ok(Self { record, dataset, files, catalogs, sources, record_bytes, dataset_bytes, files_bytes, signature })
    }

    /// The version's ID.
    #[must_use]
    pub fn id(&self) -> VersionId {
        self.record.id
    }
}

impl LocalFile {
    /// The bytes that are to be sent, checked once more: they may have changed since the version was read.
    pub(super) fn read(&self) -> Result<Bytes, RepoError> {
        read_hashed(&self.path, Some(self.sha256))
    }
}

/// Checks that each version builds on the one before it.
pub(super) fn check_chain(chain: &[LocalVersion]) -> Result<(), RepoError> {
    for (before, after) in chain.iter().zip(chain.iter().skip(1)) {
        if after.record.parent() != Some(before.id()) {
            let why = format!("its parent is not {}, the version before it", before.id());
            return Err(RepoError::corrupt(layout::version_json(after.id()), why));
        }
    }
    Ok(())
}

fn local_file(key: String, path: PathBuf, expected: Sha256, recorded: Option<u64>) -> Result<LocalFile, RepoError> {
    let (sha256, size) = Sha256::of_file(&path).map_err(|error| local(&path, error))?;
    check_hash(&path, sha256, expected)?;
    if recorded.is_some_and(|recorded| recorded != size) {
        let why = format!("it has {size} bytes, not as its record says");
        return Err(RepoError::corrupt(shown(&path), why));
    }
    Ok(LocalFile { key, path, sha256, size })
}

/// The signature, where there is one. Published, a wrong one could never be replaced.
fn signature(path: &Path, record: &[u8]) -> Result<Option<Bytes>, RepoError> {
    let bytes: Bytes = match read_small(path) {
        Ok(bytes) => bytes.into(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(local(path, source)),
    };
    let checked = Signature::parse(&bytes).and_then(|signature| signature.check(record));
    checked.map_err(|fault| RepoError::corrupt(shown(path), fault.to_string()))?;
    Ok(Some(bytes))
}

fn read(path: &Path) -> Result<Bytes, RepoError> {
    let bytes = read_small(path).map_err(|error| local(path, error))?;
    Ok(bytes.into())
}

fn read_hashed(path: &Path, expected: Option<Sha256>) -> Result<Bytes, RepoError> {
    let bytes = read(path)?;
    let expected = expected.ok_or_else(|| RepoError::corrupt(shown(path), "the record does not hold its sha256"))?;
    check_hash(path, Sha256::of(&bytes), expected)?;
    Ok(bytes)
}

fn check_hash(path: &Path, found: Sha256, expected: Sha256) -> Result<(), RepoError> {
    if found == expected {
        return Ok(());
    }
    let why = format!("its sha256 is {found}, not {expected} as its record says");
    Err(RepoError::corrupt(shown(path), why))
}

/// What a file that is gone or cannot be read comes to: a version without all of its files is damaged.
fn local(path: &Path, source: io::Error) -> RepoError {
    if source.kind() == io::ErrorKind::NotFound {
        return RepoError::corrupt(shown(path), "it is missing");
    }
    let path = path.to_owned();
    RepoError::Local { path, source }
}

/// An error that names the file by its path; one that names a data file stays.
fn at(path: &Path) -> impl FnOnce(FormatError) -> RepoError {
    let object = shown(path);
    move |error| match RepoError::from(error) {
        RepoError::Corrupt { why, .. } => RepoError::Corrupt { object, why },
        other => other,
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
