//! The writes of a push (docs/format.md section 9, steps 1 to 4).

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{DataDir, Files, StoredFile, layout};
use crate::store::{FilePut, FileToPut, Patience, Store, StoreError};

use super::super::CONCURRENT;
use super::super::error::RepoError;
use super::super::write::{Content, Put, write_new};
use super::local::{LocalFile, LocalVersion};

/// A catalog up to this many bytes is sent out of memory; a larger one is streamed.
const SMALL: u64 = 8 << 20;

/// Where the new data files of a push are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSource {
    /// In the repository: DuckDB wrote them there.
    InPlace,
    /// In a folder of this machine that stands for the data folder.
    Folder(PathBuf),
}

/// What became of the data files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) skipped: u64,
    /// When the oldest of the files that were in place was written.
    pub(super) oldest: Option<DateTime<Utc>>,
}

/// The data files that these versions name and `base` does not, each once, and how many the others are.
pub(super) fn new_files(chain: &[LocalVersion], base: Option<&Files>) -> Result<(Vec<StoredFile>, u64), RepoError> {
    let known = base.map(Files::by_key).unwrap_or_default();
    let mut sizes = BTreeMap::new();
    for (key, size) in chain.iter().flat_map(|version| version.files.iter()) {
        let before = sizes.insert(key, size).or(known.get(key).copied());
        if before.is_some_and(|before| before != size) {
            return Err(RepoError::corrupt(key, "two versions name it with different sizes"));
        }
    }
    let all = sizes.len();
    let new: Vec<StoredFile> = sizes
        .into_iter()
        .filter(|(key, _)| !known.contains_key(key))
        .map(|(key, size)| StoredFile { key: key.to_owned(), size })
        .collect();
    let kept = all.saturating_sub(new.len());
    Ok((new, u64::try_from(kept).unwrap_or(u64::MAX)))
}

/// Step 1: every new data file is in the repository, durable, and has its size.
pub(super) async fn data_files(
    store: &dyn Store,
    data_dir: &DataDir,
    source: &DataSource,
    files: &[StoredFile],
) -> Result<Sent, RepoError> {
    match source {
        DataSource::InPlace => settle(store, files).await,
        DataSource::Folder(folder) => upload(store, data_dir, folder, files).await,
    }
}

async fn settle(store: &dyn Store, files: &[StoredFile]) -> Result<Sent, RepoError> {
    stream::iter(files.iter().cloned())
        .map(|file| async move {
            let settled = store.settle(&file.key).await;
            let written = settled.as_ref().ok().map(|meta| meta.last_modified);
            check_size(&file, settled.map(|meta| meta.size))?;
            Ok((file.size, written))
        })
        .buffer_unordered(CONCURRENT)
        .try_fold(Sent::default(), |all, (size, written)| async move {
            let oldest = [all.oldest, written].into_iter().flatten().min();
            Ok(Sent { oldest, ..all.and_sent(size) })
        })
        .await
}

/// Sends the data files that are in a folder of this machine, unless they are there already.
async fn upload(
    store: &dyn Store,
    data_dir: &DataDir,
    folder: &std::path::Path,
    files: &[StoredFile],
) -> Result<Sent, RepoError> {
    let mut here = Vec::new();
    let mut elsewhere = Vec::new();
    for file in files {
        data_dir.check(&file.key)?;
        let path = folder.join(file.key.strip_prefix(data_dir.as_str()).unwrap_or_default());
        match std::fs::metadata(&path) {
            Ok(meta) => {
                check_size(file, Ok(meta.len()))?;
                here.push(FileToPut { key: file.key.clone(), size: file.size, path });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => elsewhere.push(file.clone()),
            Err(source) => return Err(RepoError::Local { path, source }),
        }
    }
    // An earlier push may have brought what is not here any more.
    still_there(store, &elsewhere).await?;
    put(store, &here, Sent { skipped: elsewhere.len() as u64, ..Sent::default() }).await
}

/// Sends the files that the versions were made from, each once.
pub(super) async fn sources(store: &dyn Store, chain: &[LocalVersion], sent: Sent) -> Result<Sent, RepoError> {
    let sources = chain.iter().flat_map(|version| &version.sources);
    let by_key: BTreeMap<&str, &LocalFile> = sources.map(|source| (source.key.as_str(), source)).collect();
    let files = by_key.into_values();
    let files = files.map(|file| FileToPut { key: file.key.clone(), size: file.size, path: file.path.clone() });
    put(store, &files.collect::<Vec<_>>(), sent).await
}

/// Sends files that are never replaced, and adds to what was sent before.
async fn put(store: &dyn Store, files: &[FileToPut], sent: Sent) -> Result<Sent, RepoError> {
    let mut all = sent;
    if files.is_empty() {
        return Ok(all);
    }
    let mut patience = Patience::with(store);
    let put = loop {
        match store.put_files(files).await {
            // What did land is there the next time.
            Err(error) if error.may_have_happened() && patience.wait().await => {}
            put => break put?,
        }
    };
    for (file, put) in files.iter().zip(put) {
        all = match put {
            FilePut::Written => all.and_sent(file.size),
            FilePut::There { size } => {
                check_size(&StoredFile { key: file.key.clone(), size: file.size }, Ok(size))?;
                Sent { skipped: all.skipped + 1, ..all }
            }
        };
    }
    Ok(all)
}

impl Sent {
    fn and_sent(self, size: u64) -> Self {
        Self { files: self.files + 1, bytes: self.bytes.saturating_add(size), ..self }
    }
}

/// Checks again that every new data file is there.
pub(super) async fn still_there(store: &dyn Store, files: &[StoredFile]) -> Result<(), RepoError> {
    stream::iter(files.iter().cloned())
        .map(|file| async move { check_size(&file, store.head(&file.key).await.map(|meta| meta.size)) })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

fn check_size(file: &StoredFile, found: Result<u64, StoreError>) -> Result<(), RepoError> {
    match found {
        Ok(size) if size == file.size => Ok(()),
        Ok(size) => {
            let why = format!("it has {size} bytes, not {}", file.size);
            Err(RepoError::corrupt(&file.key, why))
        }
        Err(StoreError::NotFound { .. }) => {
            Err(RepoError::corrupt(&file.key, "it is missing, but the version to be pushed names it"))
        }
        Err(error) => Err(error.into()),
    }
}

/// One object of a version folder that is to be written.
enum Part<'a> {
    Catalog(&'a LocalFile),
    Small(String, Bytes),
}

/// Steps 2 and 3: everything of the versions but their records. None of these files names another, so they are begun
/// in the order of the steps and run together.
pub(super) async fn contents(store: &dyn Store, chain: &[LocalVersion]) -> Result<(), RepoError> {
    let catalogs = chain.iter().flat_map(|version| &version.catalogs).map(Part::Catalog);
    let descriptions = chain.iter().flat_map(|version| {
        [
            Part::Small(layout::dataset(version.id()), version.dataset_bytes.clone()),
            Part::Small(layout::files(version.id()), version.files_bytes.clone()),
        ]
    });
    let parts: Vec<Part<'_>> = catalogs.chain(descriptions).collect();
    stream::iter(parts)
        .map(|part| async move {
            match part {
                Part::Catalog(catalog) => {
                    let content = match catalog.size <= SMALL {
                        true => Content::Bytes(catalog.read()?),
                        false => Content::File { path: &catalog.path, size: catalog.size },
                    };
                    write_once(store, &catalog.key, content).await
                }
                Part::Small(key, bytes) => write_once(store, &key, Content::Bytes(bytes)).await,
            }
        })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

/// Step 4: the records, oldest first, because each names the one before. A signature goes before its record, which is
/// the last file of its folder.
pub(super) async fn records(store: &dyn Store, chain: &[LocalVersion]) -> Result<(), RepoError> {
    for version in chain {
        if let Some(signature) = &version.signature {
            write_once(store, &layout::signature(version.id()), Content::Bytes(signature.clone())).await?;
        }
        let key = layout::version_json(version.id());
        write_once(store, &key, Content::Bytes(version.record_bytes.clone())).await?;
    }
    Ok(())
}

/// Writes an object of a version folder. One that is there must have the same bytes: an earlier push was stopped.
async fn write_once(store: &dyn Store, key: &str, content: Content<'_>) -> Result<(), RepoError> {
    match write_new(store, key, &content).await? {
        Put::Written | Put::Same => Ok(()),
        Put::Other => Err(different(key)),
    }
}

fn different(key: &str) -> RepoError {
    RepoError::corrupt(key, "it is there already with other bytes, and is never replaced")
}
