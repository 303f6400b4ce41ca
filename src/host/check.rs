//! What must be true of a version before a ref may lead to it (docs/format.md section 14).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;

use crate::format::{Catalog, DataDir, Files, Record, Sha256, layout};
use crate::repo::{RepoError, fetch_catalog, named_by, read_mark};
use crate::store::{Object, StoreError};

use super::answer::Refusal;
use super::shared::Shared;
use super::version::check_signature;

/// How many data files are asked for at the same time.
const CONCURRENT: usize = 16;

/// The file names of a version: what refers to it in a message, and whether it must be there.
struct Described {
    key: String,
    hash: Option<Sha256>,
    required: bool,
}

/// Checks that versions are whole: everything their records vouch for is there with its hash, and every data file with
/// its size. `records` are those of a push, newest first.
///
/// The newest must be readable. One before it may have been taken away by now; its files are not looked for then.
///
/// # Errors
/// 409 with what is wrong.
pub(super) async fn complete(shared: &Shared, data_dir: &DataDir, records: &[Record]) -> Result<(), Refusal> {
    let mut data = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        let mark = read_mark(shared.store(), record.id).await.map_err(Refusal::repository)?;
        match mark {
            Some(mark) if at == 0 => return Err(Refusal::marked(record.id, mark).failed_check()),
            Some(_) => continue,
            None => {}
        }
        check_signature(shared, record, None).await?;
        for (key, size) in version(shared, data_dir, record).await?.iter() {
            match data.insert(key.to_owned(), size) {
                Some(before) if before != size => {
                    return Err(corrupt(key, "two versions of the push name it with different sizes"));
                }
                _ => {}
            }
        }
    }
    stream::iter(data)
        .map(|(key, size)| async move { data_file(shared, &key, size).await })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

/// Checks the files in the folder of a version. Returns the data files that it names.
async fn version(shared: &Shared, data_dir: &DataDir, record: &Record) -> Result<Files, Refusal> {
    let id = record.id;
    let dataset = Described { key: layout::dataset(id), hash: record.dataset_sha256, required: true };
    described(shared, &dataset).await?;
    let files =
        Described { key: layout::files(id), hash: record.files_sha256, required: record.files_sha256.is_some() };
    let listed = match described(shared, &files).await? {
        Some(object) => {
            let parsed = Files::parse(&object.bytes, data_dir);
            Some(parsed.map_err(|error| Refusal::format(&error).failed_check())?)
        }
        None => None,
    };
    let mut known = listed;
    for one in record.all_catalogs() {
        let key = one.key.clone();
        known = match (known, catalog(shared, data_dir, record, one).await?) {
            (Some(known), Some(named)) if known.by_key() != named.by_key() => {
                return Err(corrupt(&files.key, &format!("it does not name the files that {key} names")));
            }
            (None, named) => named,
            (known, _) => known,
        };
    }
    known.ok_or_else(|| corrupt(&files.key, "it is missing, and this host does not look into catalogs"))
}

/// A small file that the record vouches for.
async fn described(shared: &Shared, file: &Described) -> Result<Option<Object>, Refusal> {
    let object = match shared.store().get(&file.key).await {
        Ok(object) => object,
        Err(StoreError::NotFound { .. }) if !file.required => return Ok(None),
        Err(error) => return Err(missing(&file.key, &error)),
    };
    match file.hash {
        Some(hash) if Sha256::of(&object.bytes) != hash => Err(other_hash(&file.key)),
        _ => Ok(Some(object)),
    }
}

/// Checks a catalog against the record's hash and size. Returns the data files that the catalog itself names, where the
/// host can look into it.
async fn catalog(
    shared: &Shared,
    data_dir: &DataDir,
    record: &Record,
    catalog: Catalog,
) -> Result<Option<Files>, Refusal> {
    let key = &catalog.key;
    let meta = shared.store().head(key).await.map_err(|error| missing(key, &error))?;
    if let Some(size) = catalog.size.filter(|size| *size != meta.size) {
        return Err(corrupt(key, &format!("it has {} bytes, not {size} as version.json says", meta.size)));
    }
    let (store, scratch, list) = (Arc::clone(&shared.store), shared.spool(), shared.options.catalog_files.clone());
    let (runtime, data_dir, record) = (Handle::current(), data_dir.clone(), record.clone());
    // Hashing and DuckDB may block.
    let looked = tokio::task::spawn_blocking(move || {
        let file = runtime.block_on(fetch_catalog(store.as_ref(), &record, &catalog, &scratch))?;
        list.map(|list| named_by(list.as_ref(), &catalog, &data_dir, &file)).transpose()
    });
    looked.await.map_err(|_| Refusal::internal())?.map_err(|error| match error {
        RepoError::Store(error) => Refusal::unwritten(&error),
        RepoError::Corrupt { object, why } => corrupt(&object, &why),
        RepoError::Format(error) => Refusal::format(&error).failed_check(),
        error @ RepoError::Local { .. } => Refusal::repository(error),
        error => Refusal::repository(error).failed_check(),
    })
}

/// A data file that a version of the push names.
async fn data_file(shared: &Shared, key: &str, size: u64) -> Result<(), Refusal> {
    let found = shared.store().head(key).await.map_err(|error| missing(key, &error))?.size;
    match found == size {
        true => Ok(()),
        false => Err(corrupt(key, &format!("it has {found} bytes, not {size}"))),
    }
}

fn missing(key: &str, error: &StoreError) -> Refusal {
    match error {
        StoreError::NotFound { .. } | StoreError::BadKey { .. } | StoreError::NotRegular { .. } => {
            corrupt(key, "it is missing, but the push names it")
        }
        error => Refusal::unwritten(error),
    }
}

fn other_hash(key: &str) -> Refusal {
    corrupt(key, "its sha256 is not the one in version.json")
}

fn corrupt(key: &str, why: &str) -> Refusal {
    Refusal::conflict("FDL-CORRUPT", format!("{key}: {why}"))
}
