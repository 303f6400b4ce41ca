//! Reading HEAD, refs and versions (docs/format.md section 10).

use std::cmp::Reverse;
use std::path::Path;
use std::pin::pin;

use futures::future::{Either, join, select};

use crate::format::{
    Catalog, DataDir, Dataset, Expired, Files, FormatError, Record, RefName, Sha256, VersionId, format_release, layout,
    parse_head, parse_ref,
};
use crate::store::{ETag, Object, Store, StoreError};

use super::catalog::scratch_file;
use super::error::RepoError;
use super::resolve::Resolved;

/// What a ref holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The version.
    pub version: VersionId,
    /// The state of the ref's file that was read, for a write on condition.
    pub etag: ETag,
}

/// Whoever reads catalogs: this layer does not.
pub trait CatalogReader: std::fmt::Debug {
    /// What it reads, for people: `this session's DuckLake reads 1.0`.
    fn describe(&self) -> String;
    /// Whether it reads a DuckLake format.
    fn reads(&self, format: &str) -> bool;
}

/// Which catalog a reader wants, and where.
#[derive(Debug, Clone, Copy)]
pub struct CatalogTarget<'a> {
    /// Who reads it.
    pub reader: &'a dyn CatalogReader,
    /// The file it becomes.
    pub path: &'a Path,
    /// A catalog larger than this many bytes is refused.
    pub max_size: u64,
}

/// A version that may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its record.
    pub record: Record,
}

/// The object, or nothing when there is none.
pub(super) async fn get_optional(store: &dyn Store, key: &str) -> Result<Option<Object>, StoreError> {
    match store.get(key).await {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The object, or nothing when there is none or it is damaged in a way that shows without reading it: no regular file, or
/// longer than it may be. For what a reader can do without.
pub(super) async fn get_sound(store: &dyn Store, key: &str) -> Result<Option<Object>, StoreError> {
    match get_optional(store, key).await {
        Err(StoreError::TooLarge { .. } | StoreError::NotRegular { .. }) => Ok(None),
        object => object,
    }
}

/// The default branch.
///
/// # Errors
/// [`RepoError::Corrupt`] when HEAD is missing or damaged.
pub async fn read_head(store: &dyn Store) -> Result<RefName, RepoError> {
    match get_optional(store, layout::HEAD).await? {
        Some(object) => Ok(parse_head(&object.bytes)?),
        None => Err(RepoError::corrupt(layout::HEAD, "it is missing")),
    }
}

/// What a ref holds now; nothing when there is no such ref.
///
/// # Errors
/// [`RepoError::Corrupt`] when its content is no version ID.
pub async fn read_ref(store: &dyn Store, name: &RefName) -> Result<Option<Held>, RepoError> {
    let Some(Object { bytes, etag }) = get_optional(store, name.key()).await? else {
        return Ok(None);
    };
    let version = parse_ref(name.key(), &bytes)?;
    Ok(Some(Held { version, etag }))
}

/// The record of a version, expired or not.
///
/// # Errors
/// [`RepoError::NoSuchVersion`], [`RepoError::UnsupportedVersion`], [`RepoError::Corrupt`].
pub async fn read_record(store: &dyn Store, id: VersionId) -> Result<Record, RepoError> {
    match get_optional(store, &layout::version_json(id)).await? {
        Some(object) => Ok(Record::parse(id, &object.bytes)?),
        None => Err(RepoError::NoSuchVersion { id }),
    }
}

/// The mark of a version past retention or withdrawn. Reads an object only when there is a mark.
///
/// # Errors
/// Those of the store. A store that may not list can deny an absent key: that is taken for "no mark" only if the
/// catalog can be read.
pub async fn read_mark(store: &dyn Store, id: VersionId) -> Result<Option<Expired>, RepoError> {
    let key = layout::expired(id);
    match store.head(&key).await {
        // It is there, so it stops the reader, whether or not it can be read.
        Ok(_) => Ok(Some(match store.get(&key).await {
            Ok(object) => Expired::parse(&object.bytes),
            // A server that answers anything to a HEAD.
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(_) => Expired::default(),
        })),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(denied @ StoreError::Permission { .. }) => match store.head(&layout::catalog(id)).await {
            Ok(_) => Ok(None),
            Err(_) => Err(denied.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// The record of a version that may be read: its ID and major version fit, and it has no mark.
///
/// # Errors
/// [`RepoError::NoSuchVersion`], [`RepoError::UnsupportedVersion`], [`RepoError::Corrupt`], [`RepoError::Expired`],
/// [`RepoError::Withdrawn`].
pub async fn read_live(store: &dyn Store, id: VersionId) -> Result<Record, RepoError> {
    let (record, mark) = join(read_record(store, id), read_mark(store, id)).await;
    match (record, mark) {
        (Err(error @ RepoError::UnsupportedVersion { .. }), _) => Err(error),
        (_, Ok(Some(mark))) => Err(RepoError::marked(id, mark)),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(record), Ok(None)) => Ok(record),
    }
}

/// Opens the version that a revision came to. With a target its catalog has been copied there, and has the hash of the
/// record.
///
/// # Errors
/// [`RepoError::Unborn`] when there is no version yet, otherwise those of [`read_live`], [`readable_catalog`] and
/// [`download_catalog`].
pub async fn open_version(
    store: &dyn Store,
    resolved: &Resolved,
    target: Option<CatalogTarget<'_>>,
) -> Result<Opened, RepoError> {
    let id = resolved.version()?;
    let opened = match target {
        None => read_live(store, id).await.map(|record| Opened { record }),
        Some(target) => open_with_catalog(store, id, target).await,
    };
    opened.map_err(|error| match &resolved.reference {
        Some(reference) => error.named_by(reference),
        None => error,
    })
}

/// ducklake.duckdb is asked for together with the record, which then may say that the reader needs another. Where the
/// record is at hand at once there is nothing to win by that.
///
/// It goes into a file of its own: a download that is not waited for may write for a while, and never over a catalog that
/// was found right.
async fn open_with_catalog(store: &dyn Store, id: VersionId, target: CatalogTarget<'_>) -> Result<Opened, RepoError> {
    if store.local_root().is_some() {
        let record = read_live(store, id).await?;
        let catalog = readable_catalog(&record, target.reader)?;
        download_catalog(store, id, &catalog, target.path, target.max_size).await?;
        return Ok(Opened { record });
    }
    let folder = target.path.parent().unwrap_or(Path::new("."));
    let own = scratch_file(folder)?;
    let key = layout::catalog(id);
    let record = pin!(read_live(store, id));
    let download = pin!(store.download(&key, &own, target.max_size));
    let (record, download) = match select(record, download).await {
        Either::Left((record, download)) => (record?, Either::Left(download)),
        Either::Right((downloaded, record)) => (record.await?, Either::Right(downloaded)),
    };
    let catalog = readable_catalog(&record, target.reader)?;
    require_allowed(&catalog, target.max_size)?;
    let downloaded = match download {
        Either::Right(downloaded) if catalog.key == key => downloaded,
        Either::Left(download) if catalog.key == key => download.await,
        _ => {
            download_catalog(store, id, &catalog, target.path, target.max_size).await?;
            return Ok(Opened { record });
        }
    };
    arrived(store, id, &catalog, &own, target.max_size, downloaded).await?;
    std::fs::rename(&own, target.path).map_err(|source| RepoError::Local { path: target.path.to_owned(), source })?;
    Ok(Opened { record })
}

/// Copies a catalog of a version into a file and checks its size and hash. No more than a byte behind the size that the
/// record gives, or behind `max_size`, is read.
///
/// # Errors
/// [`RepoError::Corrupt`] when the catalog is missing, no regular file, longer than the record says or has another hash
/// (the file is removed then), [`RepoError::TooLarge`] when it has more than `max_size` bytes, [`RepoError::Expired`] or
/// [`RepoError::Withdrawn`] when it went away meanwhile.
pub async fn download_catalog(
    store: &dyn Store,
    id: VersionId,
    catalog: &Catalog,
    target: &Path,
    max_size: u64,
) -> Result<(), RepoError> {
    require_allowed(catalog, max_size)?;
    let downloaded = store.download(&catalog.key, target, catalog.size.unwrap_or(max_size)).await;
    arrived(store, id, catalog, target, max_size, downloaded).await
}

/// Refuses a catalog that says itself that it is too large.
fn require_allowed(catalog: &Catalog, limit: u64) -> Result<(), RepoError> {
    match catalog.size {
        Some(size) if size > limit => Err(RepoError::TooLarge { object: catalog.key.clone(), size: Some(size), limit }),
        _ => Ok(()),
    }
}

/// Judges a download.
async fn arrived(
    store: &dyn Store,
    id: VersionId,
    catalog: &Catalog,
    target: &Path,
    max_size: u64,
    downloaded: Result<u64, StoreError>,
) -> Result<(), RepoError> {
    let other_size =
        |size| RepoError::corrupt(&catalog.key, format!("it is not the {size} bytes that version.json says"));
    match downloaded {
        Ok(found) => {
            if let Some(size) = catalog.size.filter(|size| *size != found) {
                drop(std::fs::remove_file(target));
                return Err(other_size(size));
            }
        }
        Err(StoreError::TooLarge { .. }) => {
            return Err(match catalog.size {
                Some(size) => other_size(size),
                None => RepoError::TooLarge { object: catalog.key.clone(), size: None, limit: max_size },
            });
        }
        // Whoever takes a version away marks it first.
        Err(StoreError::NotFound { .. }) => {
            return Err(match read_mark(store, id).await? {
                Some(mark) => RepoError::marked(id, mark),
                None => RepoError::corrupt(&catalog.key, "it is missing"),
            });
        }
        Err(error) => return Err(error.into()),
    }
    let (sha256, _) = Sha256::of_file(target).map_err(|source| RepoError::Local { path: target.to_owned(), source })?;
    if sha256 == catalog.sha256 {
        return Ok(());
    }
    // What is not the version's catalog must not be found by anybody later.
    drop(std::fs::remove_file(target));
    let why = format!("its sha256 is {sha256}, not {}", catalog.sha256);
    Err(RepoError::corrupt(&catalog.key, why))
}

/// The catalog of the newest DuckLake format that the reader reads; a record that names no format is taken to be readable
/// (docs/format.md section 10).
///
/// # Errors
/// [`RepoError::OtherFormats`] when there is none.
pub fn readable_catalog(record: &Record, reader: &dyn CatalogReader) -> Result<Catalog, RepoError> {
    let Some(own) = record.ducklake.as_deref() else {
        return Ok(record.main_catalog());
    };
    let mut catalogs: Vec<_> = record.other_catalogs().chain([(own, record.main_catalog())]).collect();
    catalogs.sort_by_key(|(format, _)| Reverse(format_release(format)));
    let readable = catalogs.into_iter().find(|(format, _)| reader.reads(format));
    readable.map(|(_, catalog)| catalog).ok_or_else(|| RepoError::OtherFormats {
        id: record.id,
        formats: record.formats().map(str::to_owned).collect(),
        reader: reader.describe(),
    })
}

/// The data files of a version; nothing when files.json is missing, damaged or not the one of the record. Whoever needs
/// them then opens the catalog (docs/format.md section 5).
///
/// # Errors
/// Those of the store, and [`RepoError::Format`] for a path that leaves the data folder.
pub async fn read_files(store: &dyn Store, data_dir: &DataDir, record: &Record) -> Result<Option<Files>, RepoError> {
    let object = get_sound(store, &layout::files(record.id)).await?;
    let Some(bytes) = verified(object, record.files_sha256) else {
        return Ok(None);
    };
    match Files::parse(&bytes, data_dir) {
        Ok(files) => Ok(Some(files)),
        Err(error @ FormatError::BadPath { .. }) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// The description of a version; nothing when dataset.json is missing, damaged or not the one of the record.
///
/// # Errors
/// Those of the store.
pub async fn read_dataset(store: &dyn Store, record: &Record) -> Result<Option<Dataset>, RepoError> {
    let object = get_sound(store, &layout::dataset(record.id)).await?;
    Ok(verified(object, record.dataset_sha256).and_then(|bytes| Dataset::parse(&bytes).ok()))
}

/// The bytes if they have the hash. A record without one vouches for nothing, and the bytes are taken as they are.
pub(super) fn verified(object: Option<Object>, hash: Option<Sha256>) -> Option<bytes::Bytes> {
    let bytes = object?.bytes;
    let good = hash.is_none_or(|hash| Sha256::of(&bytes) == hash);
    good.then_some(bytes)
}
