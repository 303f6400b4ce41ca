//! Looking into catalogs, for which the caller has the means and this layer has not.

use std::path::Path;

use tempfile::TempPath;

use crate::format::{Catalog, DataDir, Files, FormatError, Record, Sha256, layout};
use crate::store::Store;

use super::error::RepoError;
use super::read::{download_catalog, get_sound};

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

/// A name for a copy that nothing else has. In the folder of a repository it is one that no listing shows and the store
/// sweeps up.
pub(super) fn scratch_file(scratch: &Path) -> Result<TempPath, RepoError> {
    let made = tempfile::Builder::new().prefix(".fdl-").suffix(".tmp").tempfile_in(scratch);
    Ok(made.map_err(|source| RepoError::Local { path: scratch.to_owned(), source })?.into_temp_path())
}

/// A copy of a catalog, with the hash of the record; removed when dropped. Always a copy, also of one in a folder: what
/// lies in the repository can be replaced between a look at it and the next.
///
/// # Errors
/// [`RepoError::Corrupt`] when it is missing, no regular file, of another size or hash; [`RepoError::TooLarge`] above
/// [`layout::MAX_CATALOG`]; [`RepoError::Expired`] and [`RepoError::Withdrawn`] when it has gone away.
pub async fn fetch_catalog(
    store: &dyn Store,
    record: &Record,
    catalog: &Catalog,
    scratch: &Path,
) -> Result<TempPath, RepoError> {
    let copy = scratch_file(scratch)?;
    download_catalog(store, record.id, catalog, &copy, layout::MAX_CATALOG).await?;
    Ok(copy)
}

/// Refuses a repository in a folder whose data folder, or one of these data files, is a symbolic link or anything but a
/// folder or file: DuckDB opens data files by their paths and follows whatever it finds. What is missing is no error.
///
/// # Errors
/// [`RepoError::Corrupt`] for the first such thing.
pub async fn require_inside(store: &dyn Store, data_dir: &DataDir, files: Option<&Files>) -> Result<(), RepoError> {
    // Of a key in the data folder the folder is looked at.
    let mut keys = vec![format!("{data_dir}fdl")];
    keys.extend(files.into_iter().flat_map(Files::iter).map(|(key, _)| key.to_owned()));
    Ok(store.check_regular(&keys).await?)
}

/// What a catalog itself names, every path checked.
///
/// # Errors
/// [`RepoError::Corrupt`] when it cannot be looked into, [`RepoError::Format`] for a path that leaves the data folder.
pub fn named_by(
    files: &CatalogFiles<'_>,
    catalog: &Catalog,
    data_dir: &DataDir,
    file: &Path,
) -> Result<Files, RepoError> {
    let named = files(file).map_err(|why| RepoError::corrupt(&catalog.key, why))?;
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
    match vouched(store, data_dir, record).await? {
        Some(files) => Ok(files),
        None => {
            let why = "it is missing or not the one of version.json, and the catalog cannot be looked into here";
            in_catalog(store, data_dir, record, &record.main_catalog(), look, why).await
        }
    }
}

/// What a version names by files.json, where the record vouches for it, and by each of its catalogs: one list where they
/// agree. Whoever deletes data files asks this: a reader follows the catalog, and a record may vouch for a files.json
/// that leaves files out.
///
/// # Errors
/// [`RepoError::Corrupt`] when a catalog cannot be looked into; [`RepoError::Format`] for a path that leaves the data
/// folder.
pub(super) async fn every_list(
    store: &dyn Store,
    data_dir: &DataDir,
    record: &Record,
    look: LookInto<'_>,
) -> Result<Vec<Files>, RepoError> {
    let mut lists: Vec<Files> = vouched(store, data_dir, record).await?.into_iter().collect();
    for catalog in record.all_catalogs() {
        let why =
            "the catalogs of the version cannot be looked into here, and files.json alone does not tell what they name";
        let named = in_catalog(store, data_dir, record, &catalog, look, why).await?;
        if !lists.iter().any(|list| list.by_key() == named.by_key() && list.tables() == named.tables()) {
            lists.push(named);
        }
    }
    Ok(lists)
}

/// What a catalog names; `why` it cannot be looked into where the caller has no means.
async fn in_catalog(
    store: &dyn Store,
    data_dir: &DataDir,
    record: &Record,
    catalog: &Catalog,
    look: LookInto<'_>,
    why: &str,
) -> Result<Files, RepoError> {
    let hook = look.files.ok_or_else(|| RepoError::corrupt(layout::files(record.id), why))?;
    let file = fetch_catalog(store, record, catalog, look.scratch).await?;
    named_by(hook, catalog, data_dir, &file)
}

/// files.json, where it is there, can be read and the record vouches for it.
pub(super) async fn vouched(
    store: &dyn Store,
    data_dir: &DataDir,
    record: &Record,
) -> Result<Option<Files>, RepoError> {
    match (record.files_sha256, get_sound(store, &layout::files(record.id)).await?) {
        (Some(hash), Some(object)) if Sha256::of(&object.bytes) == hash => {
            match Files::parse(&object.bytes, data_dir) {
                Ok(files) => Ok(Some(files)),
                Err(error @ FormatError::BadPath { .. }) => Err(error.into()),
                Err(_) => Ok(None),
            }
        }
        _ => Ok(None),
    }
}
