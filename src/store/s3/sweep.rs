//! Uploads in parts that were begun and never ended: no listing shows them, and they are paid for.

use chrono::{DateTime, Utc};
use http::Method;
use serde::Deserialize;

use super::bucket::Bucket;
use super::list::{Pages, decode, read_page};
use super::service::Cause;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Uploads {
    #[serde(default)]
    upload: Vec<Begun>,
    encoding_type: Option<String>,
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Begun {
    key: String,
    upload_id: String,
    initiated: DateTime<Utc>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parts {
    #[serde(default)]
    part: Vec<Sent>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sent {
    size: u64,
}

/// Takes back the uploads under `prefix` that were begun before a time. Returns what that frees, of each upload the first
/// 1,000 parts counted.
pub(super) async fn sweep(bucket: &Bucket, prefix: &str, before: DateTime<Utc>) -> Result<u64, Cause> {
    let mut freed = 0_u64;
    let (mut markers, mut pages) = (None, Pages::new());
    loop {
        let mut query = vec![("encoding-type", "url"), ("prefix", prefix), ("uploads", "")];
        if let Some((key, upload)) = &markers {
            query.extend([("key-marker", String::as_str(key)), ("upload-id-marker", String::as_str(upload))]);
        }
        let page: Uploads = read_page(bucket, "", &query).await?;
        let encoding = page.encoding_type.as_deref();
        let is_empty = page.upload.is_empty();
        for upload in page.upload {
            let Some(key) = decode(upload.key, encoding) else { continue };
            if upload.initiated < before && key.starts_with(prefix) {
                freed = freed.saturating_add(take_back(bucket, &key, &upload.upload_id).await?);
            }
        }
        markers = match (page.is_truncated, page.next_key_marker, page.next_upload_id_marker) {
            (true, Some(key), Some(upload)) => decode(key, encoding).map(|key| (key, upload)),
            _ => None,
        };
        let Some((key, upload)) = &markers else { return Ok(freed) };
        pages.turn(Some(&format!("{key}\n{upload}")), is_empty)?;
    }
}

async fn take_back(bucket: &Bucket, key: &str, upload: &str) -> Result<u64, Cause> {
    let gone = |cause: Cause| match cause.status().is_some_and(|status| status.as_u16() == 404) {
        // Somebody was faster.
        true => Ok(0),
        false => Err(cause),
    };
    let parts: Parts = match read_page(bucket, key, &[("uploadId", upload)]).await {
        Ok(parts) => parts,
        Err(cause) => return gone(cause),
    };
    let size = parts.part.iter().map(|part| part.size).sum();
    match bucket.ask(Method::DELETE, key, &[("uploadId", upload)]).await {
        Ok(_) => Ok(size),
        Err(cause) => gone(cause),
    }
}
