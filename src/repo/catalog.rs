//! Looking into catalogs, for which the caller has the means and this layer has not.

use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::format::{Catalog, DataDir, Files, FormatError, Record, Sha256, layout};
use crate::store::{Store, StoreError};

use super::error::RepoError;
use super::read::{download_catalog, get_optional};

/// Lists the data files that a catalog file names, or says in a sentence why it cannot.
pub type CatalogFiles<'a> = dyn Fn(&Path) -> Result<Files, String> + Send + Sync + 'a;

/// How to look into a catalog.
#[derive(Clone, Copy)]
pub struct LookInto<'a> {
    /// A folder of this machine for copies of catalogs and data files. Each is removed when it is done with.
    pub scratch: &'a Path,
    /// Lists the data files that a catalog names. Without it, what only a catalog can tell is an error.
    pub files: Option<&'a CatalogFiles<'a>>,
}

impl std::fmt::Debug for LookInto<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LookInto").field("scratch", &self.scratch).field("files", &self.files.is_some()).finish()
    }
}

/// An object as a file of this machine.
#[derive(Debug)]
pub enum OnDisk {
    /// It is in the repository's folder.
    InPlace(PathBuf),
    /// A copy, removed when dropped.
    Copy(TempPath),
}

impl AsRef<Path> for OnDisk {
    fn as_ref(&self) -> &Path {
        match self {
            Self::InPlace(path) => path,
            Self::Copy(path) => path,
        }
    }
}

/// A name for a copy that nothing else has.
pub(super) fn scratch_file(scratch: &Path) -> Result<TempPath, RepoError> {
    let made = tempfile::Builder::new().prefix("fdl-").tempfile_in(scratch);
    Ok(made.map_err(|source| RepoError::Local { path: scratch.to_owned(), source })?.into_temp_path())
}

/// A catalog as a file of this machine, with the hash of the record.
///
/// # Errors
/// [`RepoError::Corrupt`] when it is missing or has another hash; [`RepoError::Expired`] and [`RepoError::Withdrawn`]
/// when it has gone away.
pub async fn fetch_catalog(
    store: &dyn Store,
    record: &Record,
    catalog: &Catalog,
    scratch: &Path,
) -> Result<OnDisk, RepoError> {
    if let Some(root) = store.local_root() {
        let path = root.join(&catalog.key);
        return match Sha256::of_file(&path) {
            Ok((found, _)) if found == catalog.sha256 => Ok(OnDisk::InPlace(path)),
            Ok((found, _)) => {
                let why = format!("its sha256 is {found}, not {}", catalog.sha256);
                Err(RepoError::corrupt(&catalog.key, why))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(match super::read::read_mark(store, record.id).await? {
                    Some(mark) => RepoError::marked(record.id, mark),
                    None => RepoError::corrupt(&catalog.key, "it is missing"),
                })
            }
            Err(source) => Err(RepoError::Local { path, source }),
        };
    }
    let copy = scratch_file(scratch)?;
    download_catalog(store, record.id, catalog, &copy).await?;
    Ok(OnDisk::Copy(copy))
}

/// Refuses a catalog beside which a write-ahead log lies, for whoever has DuckDB read it where it is: DuckDB applies one
/// also to what it attaches read-only, over HTTP and S3 as well. One question and no object read.
///
/// # Errors
/// [`RepoError::WriteAheadLog`]; those of the store.
pub async fn require_no_wal(store: &dyn Store, catalog: &Catalog) -> Result<(), RepoError> {
    let object = format!("{}{}", catalog.key, layout::WAL);
    match store.head(&object).await {
        Ok(_) => Err(RepoError::WriteAheadLog { object }),
        // Where listing is not allowed, S3 denies access to keys that are not there; DuckDB is then denied it as well.
        Err(StoreError::NotFound { .. } | StoreError::Permission { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a catalog itself names, every path checked.
///
/// # Errors
/// [`RepoError::Corrupt`] when it cannot be looked into, [`RepoError::Format`] for a path that leaves the data folder.
pub fn named_by(
    files: &CatalogFiles<'_>,
    catalog: &Catalog,
    data_dir: &DataDir,
    file: &OnDisk,
) -> Result<Files, RepoError> {
    let named = files(file.as_ref()).map_err(|why| RepoError::corrupt(&catalog.key, why))?;
    named.check(data_dir)?;
    Ok(named)
}

/// The data files of a version: from files.json where the record vouches for it, else from the catalog
/// (docs/format.md section 5).
///
/// # Errors
/// [`RepoError::Corrupt`] when neither can tell; [`RepoError::Format`] for a path that leaves the data folder.
pub(super) async fn version_files(
    store: &dyn Store,
    data_dir: &DataDir,
    record: &Record,
    look: LookInto<'_>,
) -> Result<Files, RepoError> {
    let key = layout::files(record.id);
    if let (Some(hash), Some(object)) = (record.files_sha256, get_optional(store, &key).await?)
        && Sha256::of(&object.bytes) == hash
    {
        match Files::parse(&object.bytes, data_dir) {
            Ok(files) => return Ok(files),
            Err(error @ FormatError::BadPath { .. }) => return Err(error.into()),
            Err(_) => {}
        }
    }
    let Some(hook) = look.files else {
        let why = "it is missing or not the one of version.json, and the catalog cannot be looked into here";
        return Err(RepoError::corrupt(key, why));
    };
    let catalog = record.main_catalog();
    let file = fetch_catalog(store, record, &catalog, look.scratch).await?;
    named_by(hook, &catalog, data_dir, &file)
}
