//! PUT of a file into the folder of a version (docs/format.md section 14).
//!
//! While the record is on its way anything of the format is taken, once. With the record the folder is closed: it vouches
//! for everything else in it, so only what it names is taken, as it names it. With a mark nothing comes back.

use axum::http::StatusCode;
use bytes::Bytes;
use futures::future::join;

use crate::format::{
    Code, Expired, Reason, Record, Signature, SignatureFault, Status, Trust, VersionId, judge, layout,
};
use crate::repo::read_mark;
use crate::store::StoreError;

use super::answer::Refusal;
use super::shared::Shared;
use super::upload::Spooled;

/// The key whose lock a writer of a file holds. A signature and its record are looked at together.
pub(super) fn locked_with(id: VersionId, key: &str) -> String {
    match key.ends_with(layout::SIGNATURE) {
        true => layout::version_json(id),
        false => key.to_owned(),
    }
}

/// Whether a file that is not there may be written, under its lock.
///
/// # Errors
/// 400 for a record or a signature that is none, 409 for what the folder does not take any more.
pub(super) async fn check_new(shared: &Shared, id: VersionId, key: &str, sent: &Spooled) -> Result<(), Refusal> {
    let (name, record_key) = (key.strip_prefix(&layout::version(id)).unwrap_or_default(), layout::version_json(id));
    if name == layout::VERSION_JSON {
        return check_record(shared, id, sent).await;
    }
    let (record, mark) = join(read(shared, &record_key), read_mark(shared.store(), id)).await;
    let (record, mark) = (record?, mark.map_err(Refusal::of_push)?);
    if let Some(mark) = mark {
        return check_marked(id, name, mark, record.is_some());
    }
    let Some(record) = record else {
        return check_before_record(name, sent).await;
    };
    if name == layout::SIGNATURE {
        let message = format!("{record_key} is there already, and a signature is written before its record");
        return Err(Refusal::conflict(Code::Exists, message));
    }
    let record = Record::parse(id, &record).map_err(|error| Refusal::format(&error).failed_check())?;
    match record.hash_of(name) {
        Some(hash) if sent.sha256().await? == hash => Ok(()),
        Some(_) => Err(Refusal::corrupt(key, "its sha256 is not the one in version.json")),
        None => {
            let message = format!("{key} is not taken: {record_key} is there already, and does not name it");
            Err(Refusal::conflict(Code::Exists, message))
        }
    }
}

/// The record comes last, and what signs it is there.
async fn check_record(shared: &Shared, id: VersionId, sent: &Spooled) -> Result<(), Refusal> {
    let bytes = sent.range(0..sent.size()).await?;
    let record = Record::parse(id, &bytes).map_err(|error| Refusal::format(&error))?;
    check_signature(shared, &record, Some(bytes)).await
}

/// That no wrong signature lies beside a record, which is in the store or about to come (docs/format.md section 15).
/// Whose it is, is for readers to judge.
///
/// # Errors
/// 409 naming the signature.
pub(super) async fn check_signature(shared: &Shared, record: &Record, bytes: Option<Bytes>) -> Result<(), Refusal> {
    let key = layout::signature(record.id);
    let Some(signature) = read(shared, &key).await? else {
        return Ok(());
    };
    let bytes = match bytes {
        Some(bytes) => bytes,
        None => read(shared, &layout::version_json(record.id)).await?.unwrap_or_default(),
    };
    let verdict = judge(&bytes, record, Some(&signature), &Trust::default());
    match verdict.status {
        Status::Bad => Err(Refusal::corrupt(&key, &verdict.note.unwrap_or_default())),
        Status::Good | Status::UnknownSigner | Status::Unsigned => Ok(()),
    }
}

/// What comes before the record is checked with it, and with the ref.
async fn check_before_record(name: &str, sent: &Spooled) -> Result<(), Refusal> {
    if name != layout::SIGNATURE {
        return Ok(());
    }
    let unreadable = |fault: SignatureFault| Refusal::new(StatusCode::BAD_REQUEST, Code::Corrupt, fault.to_string());
    Signature::parse(&sent.range(0..sent.size()).await?).map(drop).map_err(unreadable)
}

/// A copy brings the mark first and then what is left of such a version, the record last.
fn check_marked(id: VersionId, name: &str, mark: Expired, is_complete: bool) -> Result<(), Refusal> {
    let left = match name {
        layout::DATASET_JSON | layout::SIGNATURE => true,
        // Its paths may hold what was withdrawn.
        layout::FILES_JSON => mark.reason == Some(Reason::Retention),
        _ => false,
    };
    match left && !is_complete {
        true => Ok(()),
        false => Err(Refusal::marked(id, mark).failed_check()),
    }
}

/// The bytes of an object; nothing when it is not there.
async fn read(shared: &Shared, key: &str) -> Result<Option<Bytes>, Refusal> {
    match shared.store().get(key).await {
        Ok(object) => Ok(Some(object.bytes)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(Refusal::unwritten(&error)),
    }
}
