//! What must be true of a version before a ref may lead to it (docs/format.md section 14).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::format::{AllowedSigners, Catalog, Code, DataDir, Files, Record, Sha256, Status, Trust, VersionId, layout};
use crate::repo::{Checked, RepoError, check_version, fetch_catalog, named_by, read_mark};
use crate::store::{Object, StoreError};

use super::answer::Refusal;
use super::dispatch::panic_text;
use super::shared::Shared;
use super::version::check_signature;

/// The most data files that the versions of one push may name.
const MOST: usize = 2_000_000;
/// How many data files are asked for at the same time.
const CONCURRENT: usize = 16;

/// The file names of a version: what refers to it in a message, and whether it must be there.
struct Described {
    key: String,
    hash: Option<Sha256>,
    required: bool,
}

/// A check under way.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub(super) shared: &'a Shared,
    pub(super) data_dir: &'a DataDir,
    /// The place of the check, held by whatever goes on when the check itself is given up.
    pub(super) place: &'a Arc<OwnedSemaphorePermit>,
}

/// Checks that versions are whole: everything their records vouch for is there with its hash, and every data file with
/// its size. `records` are those of a push, newest first.
///
/// Where the host has a list of signers, one of them must have signed each version. Nothing of any version is opened before
/// that is known. The newest must be readable. One before it may have been taken away by now; its files are not looked for then.
///
/// # Errors
/// 409 with what is wrong.
pub(super) async fn complete(check: Check<'_>, records: &[Record]) -> Result<(), Refusal> {
    let shared = check.shared;
    if let Some(signers) = &shared.options.allowed_signers {
        signed(shared, signers, records).await?;
    }
    let mut data = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        let mark = read_mark(shared.store(), record.id).await.map_err(Refusal::of_push)?;
        match mark {
            Some(mark) if at == 0 => return Err(Refusal::marked(record.id, mark).failed_check()),
            Some(_) => continue,
            None => {}
        }
        check_signature(shared, record, None).await?;
        for (key, size) in version(check, record).await?.iter() {
            match data.insert(key.to_owned(), size) {
                Some(before) if before != size => {
                    return Err(Refusal::corrupt(key, "two versions of the push name it with different sizes"));
                }
                _ => {}
            }
            if data.len() > MOST {
                let message = format!("the versions of the push name more than {MOST} files");
                return Err(Refusal::conflict(Code::BadArgument, message));
            }
        }
    }
    stream::iter(data)
        .map(|(key, size)| async move { data_file(shared, &key, size).await })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

/// Checks that one of these signers has signed each version.
async fn signed(shared: &Shared, signers: &AllowedSigners, records: &[Record]) -> Result<(), Refusal> {
    let trust = Trust { allowed: signers.clone(), ..Trust::default() };
    for record in records {
        let checked = check_version(shared.store(), record.id, &trust).await.map_err(Refusal::of_push)?;
        // The bytes that were signed are those that the rest of the check goes by.
        if checked.verdict.status != Status::Good || checked.record.as_ref() != Some(record) {
            return Err(untrusted(record.id, &checked));
        }
    }
    Ok(())
}

fn untrusted(id: VersionId, checked: &Checked) -> Refusal {
    let why = match checked.verdict.status {
        Status::Unsigned => "it is not signed",
        Status::Bad => "its signature does not fit it",
        Status::UnknownSigner | Status::Good => {
            "its signature is by nobody whom this host lists, or not in the author's name"
        }
    };
    let message = format!("version {id} is not taken: {why}, and this host takes what one of its signers has signed");
    let note = checked.verdict.note.as_deref().unwrap_or("no note");
    let key = checked.verdict.key.as_deref().unwrap_or("no key");
    Refusal::conflict(Code::Untrusted, message).because(format_args!("{note} ({key})"))
}

/// Checks the files in the folder of a version. Returns the data files that it names.
async fn version(check: Check<'_>, record: &Record) -> Result<Files, Refusal> {
    let Check { shared, data_dir, .. } = check;
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
        known = match (known, catalog(check, record, one).await?) {
            (Some(known), Some(named)) if known.by_key() != named.by_key() => {
                return Err(Refusal::corrupt(&files.key, &format!("it does not name the files that {key} names")));
            }
            (None, named) => named,
            (known, _) => known,
        };
    }
    known.ok_or_else(|| Refusal::corrupt(&files.key, "it is missing, and this host does not look into catalogs"))
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
async fn catalog(check: Check<'_>, record: &Record, catalog: Catalog) -> Result<Option<Files>, Refusal> {
    let Check { shared, data_dir, place } = check;
    let key = &catalog.key;
    let meta = shared.store().head(key).await.map_err(|error| missing(key, &error))?;
    if let Some(size) = catalog.size.filter(|size| *size != meta.size) {
        return Err(Refusal::corrupt(key, &format!("it has {} bytes, not {size} as version.json says", meta.size)));
    }
    if meta.size > shared.options.max_catalog {
        let most = shared.options.max_catalog;
        let message = format!("{key} has {} bytes, and {most} are the most that is looked into here", meta.size);
        return Err(Refusal::conflict(Code::BadArgument, message));
    }
    let (store, scratch, list) = (Arc::clone(&shared.store), shared.spool(), shared.options.catalog_files.clone());
    let (runtime, data_dir, record) = (Handle::current(), data_dir.clone(), record.clone());
    let (place, limit, key) = (Arc::clone(place), shared.options.limits.check, catalog.key.clone());
    // Hashing and DuckDB may block, and go on when nobody waits any more: then they keep their place.
    let looked = tokio::task::spawn_blocking(move || {
        let _place = place;
        let fetched = timeout(limit, fetch_catalog(store.as_ref(), &record, &catalog, &scratch));
        let file = runtime.block_on(fetched).map_err(|_| took_too_long(limit))?.map_err(Refusal::of_push)?;
        let named = list.map(|list| named_by(list.as_ref(), &catalog, &data_dir, &file)).transpose();
        named.map_err(|error| unlisted(&catalog.key, error))
    });
    looked.await.unwrap_or_else(|ended| {
        let cause = ended.try_into_panic().map(|panic| panic_text(panic.as_ref()));
        Err(Refusal::internal(cause.unwrap_or_else(|ended| format!("{key}: {ended}"))))
    })
}

/// What a catalog that could not be looked into comes to. DuckDB may have put anything into its words, the content of a
/// file of this machine too, and a catalog may have it for the name of a file.
fn unlisted(key: &str, error: RepoError) -> Refusal {
    let (code, why) = match &error {
        RepoError::Format(_) => (Code::BadPath, "it names a file that is not a path inside the repository's data"),
        _ => (Code::Corrupt, "this host could not read the files that it names"),
    };
    Refusal::conflict(code, format!("{key}: {why}")).because(error)
}

/// 503: the check of a push was given up.
pub(super) fn took_too_long(limit: Duration) -> Refusal {
    let message = format!("the check of the push was given up after {} seconds", limit.as_secs());
    Refusal::busy(message).with(header::RETRY_AFTER, "60")
}

/// A data file that a version of the push names.
async fn data_file(shared: &Shared, key: &str, size: u64) -> Result<(), Refusal> {
    let found = shared.store().head(key).await.map_err(|error| missing(key, &error))?.size;
    match found == size {
        true => Ok(()),
        false => Err(Refusal::corrupt(key, &format!("it has {found} bytes, not {size}"))),
    }
}

fn missing(key: &str, error: &StoreError) -> Refusal {
    match error {
        StoreError::NotFound { .. } | StoreError::BadKey { .. } | StoreError::NotRegular { .. } => {
            Refusal::corrupt(key, "it is missing, but the push names it")
        }
        error => Refusal::unwritten(error),
    }
}

fn other_hash(key: &str) -> Refusal {
    Refusal::corrupt(key, "its sha256 is not the one in version.json")
}
