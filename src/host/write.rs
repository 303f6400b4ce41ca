//! PUT of objects: written once, never replaced (docs/format.md section 14).

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;

use crate::format::{Code, Expired, Settings, Sha256, VersionId, layout, parse_head};
use crate::repo::refresh_refs_json;
use crate::store::{ConditionalWrite, Object, StoreError};

use super::answer::{Refusal, empty};
use super::conditions::{if_match_holds, if_none_match_holds, tag_of, tag_of_meta};
use super::dispatch::written;
use super::reference;
use super::shared::Shared;
use super::target::{Target, VersionPart};
use super::upload::{Spooled, Upload};
use super::version;

/// The longest fdl.json or HEAD, in bytes.
const SETTINGS_LIMIT: u64 = 1 << 20;
/// The longest version.json, in bytes: all those of a push are read when a ref is moved.
const RECORD_LIMIT: u64 = 16 << 20;
/// The longest files.json or dataset.json, in bytes: they are read whole when a ref is moved.
const TEXT_LIMIT: u64 = 256 << 20;
/// The longest signature, in bytes. One with the longest key that there is has a few thousand.
const SIGNATURE_LIMIT: u64 = 64 << 10;
/// Why a mark is refused.
const TAKES_AWAY: &str = "only the host's owner takes versions away";
/// How much of two contents is compared at a time, in bytes.
const COMPARED: u64 = 1 << 20;

/// Answers a PUT of what a path names.
pub(super) async fn object(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    target: Target,
    upload: &mut Upload,
) -> Result<Response, Refusal> {
    match target {
        Target::Settings => settings(shared, headers, upload).await,
        Target::Head => head(shared, headers, upload).await,
        Target::Ref(name) => reference::put(shared, headers, name, upload).await,
        Target::Version(key, part @ (VersionPart::Catalog | VersionPart::Text)) => {
            shared.data_dir().await?;
            upload.limit_to(match part {
                VersionPart::Catalog => shared.options.max_catalog,
                _ if key.ends_with(layout::SIGNATURE) => SIGNATURE_LIMIT,
                _ if key.ends_with(layout::VERSION_JSON) => RECORD_LIMIT,
                _ => TEXT_LIMIT,
            });
            let (id, _) = layout::in_version(&key).ok_or_else(|| Refusal::not_found(&key))?;
            once(shared, headers, &key, Kind::OfVersion(id), upload).await
        }
        Target::Source(key, hash) => {
            shared.data_dir().await?;
            once(shared, headers, &key, Kind::Source(hash), upload).await
        }
        Target::Data(path) => {
            let key = path.key(shared.data_dir().await?)?;
            once(shared, headers, key, Kind::Data, upload).await
        }
        Target::RefsJson => {
            // Whoever wants to write it has seen that it lags.
            bring_up_to_date(shared).await;
            Err(Refusal::forbidden("the host itself writes refs.json"))
        }
        Target::Version(key, VersionPart::Mark) => mark(shared, headers, &key, upload).await,
        Target::Version(_, VersionPart::Other) => {
            Err(Refusal::forbidden("only files of the format are written into the folder of a version"))
        }
        Target::Root | Target::Latest => Err(Refusal::method("GET, HEAD, OPTIONS")),
    }
}

/// The mark of a version that is not here, which a copy brings before the record (docs/format.md section 12). Whoever
/// could mark one that is here could take it away.
async fn mark(shared: &Shared, headers: &HeaderMap, key: &str, upload: &mut Upload) -> Result<Response, Refusal> {
    shared.data_dir().await?;
    let (id, _) = layout::in_version(key).ok_or_else(|| Refusal::not_found(key))?;
    let record = layout::version_json(id);
    require_absent(shared, &record).await?;
    let bytes = upload.small(SETTINGS_LIMIT).await?;
    if Expired::parse_id(&bytes) != Some(id) {
        return Err(Refusal::bad_request("it is not the mark of this version"));
    }
    // No record comes between the look and the mark.
    let _lock = shared.locks.take(&record).await;
    require_absent(shared, &record).await?;
    create(shared, headers, key, bytes, TAKES_AWAY).await
}

async fn require_absent(shared: &Shared, record: &str) -> Result<(), Refusal> {
    match shared.store().head(record).await {
        Err(StoreError::NotFound { .. }) => Ok(()),
        Ok(_) => Err(Refusal::forbidden(TAKES_AWAY)),
        Err(error) => Err(Refusal::unread(&error)),
    }
}

/// What an object that is written once is.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A data file, which is checked with the versions that name it.
    Data,
    /// A source file, whose name is its hash.
    Source(Sha256),
    /// A file in the folder of a version.
    OfVersion(VersionId),
}

/// An object that is written once: 201 when it is new, 200 when it is there with the same bytes, 409 with others.
async fn once(
    shared: &Shared,
    headers: &HeaderMap,
    key: &str,
    kind: Kind,
    upload: &mut Upload,
) -> Result<Response, Refusal> {
    let there = size_there(shared, headers, key).await?;
    if there.zip(upload.declared()).is_some_and(|(size, declared)| size != declared) {
        return Err(different(key));
    }
    let sent = upload.spool(shared).await?;
    if let Kind::Source(hash) = kind {
        check_hash(&sent, hash).await?;
    }
    let lock = match kind {
        Kind::OfVersion(id) => version::locked_with(id, key),
        Kind::Data | Kind::Source(_) => key.to_owned(),
    };
    let _lock = shared.locks.take(&lock).await;
    // Again, as it may have come since. What is there is not written anew, whatever the store makes of its conditions.
    if let Some(size) = size_there(shared, headers, key).await? {
        return compare(shared, key, size, &sent).await;
    }
    if let Kind::OfVersion(id) = kind {
        version::check_new(shared, id, key, &sent).await?;
    }
    let write = match &sent {
        Spooled::Small(bytes) => shared.store().put_if_absent(key, bytes.clone()).await,
        Spooled::File(file, _) => shared.store().put_file_if_absent(key, file.path()).await,
    };
    match write.map_err(|error| Refusal::unwritten(&error))? {
        ConditionalWrite::Written => Ok(empty(written(true))),
        // Somebody else's who does not come by this host, or our own, the answer to which was lost.
        ConditionalWrite::Refused => match size_there(shared, headers, key).await? {
            Some(size) => compare(shared, key, size, &sent).await,
            None => Err(different(key)),
        },
    }
}

/// The answer where something is there already: 200 for the same bytes.
async fn compare(shared: &Shared, key: &str, size: u64, sent: &Spooled) -> Result<Response, Refusal> {
    match size == sent.size() && is_same(shared, key, sent).await? {
        true => Ok(empty(written(false))),
        false => Err(different(key)),
    }
}

/// The size of the object that is there, once the conditions of the request hold for it.
async fn size_there(shared: &Shared, headers: &HeaderMap, key: &str) -> Result<Option<u64>, Refusal> {
    let meta = match shared.store().head(key).await {
        Ok(meta) => Some(meta),
        Err(StoreError::NotFound { .. }) => None,
        Err(error @ StoreError::Permission { .. }) => return Err(Refusal::unwritten(&error)),
        Err(error) => return Err(Refusal::unread(&error)),
    };
    let tag = meta.as_ref().map(tag_of_meta);
    check_conditions(headers, key, tag.as_deref())?;
    Ok(meta.map(|meta| meta.size))
}

/// 412 unless the conditions of a write hold.
pub(super) fn check_conditions(headers: &HeaderMap, key: &str, tag: Option<&str>) -> Result<(), Refusal> {
    let holds = if_match_holds(headers, tag) && if_none_match_holds(headers, tag);
    let now = match tag {
        Some(_) => "is there, in another state than the request says",
        None => "is not there",
    };
    holds.then_some(()).ok_or_else(|| Refusal::precondition(format!("{key} {now}")))
}

fn different(key: &str) -> Refusal {
    Refusal::conflict(Code::Exists, format!("{key} is there already with other bytes, and is never replaced"))
}

/// Whether the object has the bytes that were sent; the sizes are the same.
async fn is_same(shared: &Shared, key: &str, sent: &Spooled) -> Result<bool, Refusal> {
    let size = sent.size();
    let mut at = 0;
    while at < size {
        let end = at.saturating_add(COMPARED).min(size);
        let there = shared.store().get_range(key, at..end).await.map_err(|error| Refusal::unread(&error))?;
        if there != sent.range(at..end).await? {
            return Ok(false);
        }
        at = end;
    }
    Ok(true)
}

async fn check_hash(sent: &Spooled, hash: Sha256) -> Result<(), Refusal> {
    let found = sent.sha256().await?;
    match found == hash {
        true => Ok(()),
        false => Err(Refusal::bad_request(format!("a source file is named by its sha256, which is {found}"))),
    }
}

/// fdl.json: created once. Its owner changes it where it is.
async fn settings(shared: &Arc<Shared>, headers: &HeaderMap, upload: &mut Upload) -> Result<Response, Refusal> {
    let key = layout::FDL_JSON;
    let bytes = upload.small(SETTINGS_LIMIT).await?;
    Settings::parse(&bytes).map_err(|error| Refusal::format(&error))?;
    create(shared, headers, key, bytes, "fdl.json is changed by the host's owner only").await
}

/// HEAD: created once, when a repository is started.
async fn head(shared: &Arc<Shared>, headers: &HeaderMap, upload: &mut Upload) -> Result<Response, Refusal> {
    let bytes = upload.small(SETTINGS_LIMIT).await?;
    parse_head(&bytes).map_err(|error| Refusal::format(&error))?;
    shared.data_dir().await?;
    let response = create(shared, headers, layout::HEAD, bytes, "HEAD is changed by the host's owner only").await?;
    bring_up_to_date(shared).await;
    Ok(response)
}

/// Writes refs.json. It may lag: the next change of a ref writes it as well.
async fn bring_up_to_date(shared: &Shared) {
    let store = Arc::clone(&shared.store);
    drop(shared.to_the_end(async move { Ok(refresh_refs_json(store.as_ref(), None).await.is_ok()) }).await);
}

/// Writes a small object where there is none.
async fn create(
    shared: &Shared,
    headers: &HeaderMap,
    key: &str,
    bytes: Bytes,
    otherwise: &str,
) -> Result<Response, Refusal> {
    let there = match shared.store().get(key).await {
        Ok(object) => Some(object),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(Refusal::unwritten(&error)),
    };
    let tag = there.as_ref().map(|object| tag_of(&object.etag));
    check_conditions(headers, key, tag.as_deref())?;
    match there {
        Some(Object { bytes: old, .. }) if old == bytes => Ok(empty(written(false))),
        Some(_) => Err(Refusal::forbidden(otherwise)),
        None => match shared.store().put_if_absent(key, bytes).await {
            Ok(ConditionalWrite::Written) => Ok(empty(written(true))),
            Ok(ConditionalWrite::Refused) => Err(Refusal::precondition(format!("{key} has just been made"))),
            Err(error) => Err(Refusal::unwritten(&error)),
        },
    }
}
