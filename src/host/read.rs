//! GET and HEAD.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::format::{Code, Revision, VersionId, layout};
use crate::repo::{read_mark, resolve};
use crate::store::{Object, ObjectMeta, StoreError};

use super::answer::{FDL_VERSION, Refusal, empty};
use super::conditions::{if_match_holds, if_none_match_holds, if_range_holds, tag_of, tag_of_meta};
use super::range::{Wanted, wanted};
use super::shared::Shared;
use super::target::{Target, VersionPart};

/// How long a reader may keep an answer (docs/format.md section 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// A ref may move the next moment.
    Not,
    /// Asked for again each time.
    Asking,
    /// Never changes.
    Forever,
}

/// An object as it is served.
#[derive(Debug)]
struct Found {
    key: String,
    size: u64,
    tag: String,
    modified: Option<DateTime<Utc>>,
    /// The content, where it has been read already.
    whole: Option<Bytes>,
}

/// Answers a GET or HEAD of what a path names.
pub(super) async fn object(shared: &Arc<Shared>, parts: &Parts, target: Target) -> Result<Response, Refusal> {
    let (found, keep) = match target {
        Target::Root => return Err(Refusal::not_found("list of objects")),
        Target::Latest => return latest(shared, parts).await,
        Target::Settings => (changing(shared, parts, layout::FDL_JSON).await?, Keep::Asking),
        Target::Head => (changing(shared, parts, layout::HEAD).await?, Keep::Not),
        Target::RefsJson => (changing(shared, parts, layout::REFS_JSON).await?, Keep::Not),
        Target::Ref(name) => (changing(shared, parts, name.key()).await?, Keep::Not),
        Target::Version(key, VersionPart::Mark) => (changing(shared, parts, &key).await?, Keep::Asking),
        Target::Version(key, VersionPart::Other) => (lasting(shared, vec![key]).await?, Keep::Asking),
        Target::Version(key, VersionPart::Catalog | VersionPart::Text) | Target::Source(key, _) => {
            (lasting(shared, vec![key]).await?, Keep::Forever)
        }
        Target::Data(path) => {
            let keys = path.keys(shared.data_dir().await?)?;
            (lasting(shared, keys).await?, Keep::Forever)
        }
    };
    respond(shared, parts, found, keep).await
}

/// A small object that may change: read whole, so that its tag is that of the bytes sent.
async fn changing(shared: &Shared, parts: &Parts, key: &str) -> Result<Found, Refusal> {
    let read = async { shared.store().get(key).await };
    // Only whoever asks about the object, and not for it, wants to know when it was written.
    let meta = async {
        match parts.method == Method::HEAD {
            true => shared.store().head(key).await.ok(),
            false => None,
        }
    };
    let (object, meta) = futures::future::join(read, meta).await;
    let Object { bytes, etag } = object.map_err(|error| Refusal::unread(&error))?;
    Ok(Found {
        key: key.to_owned(),
        size: bytes.len() as u64,
        tag: tag_of(&etag),
        modified: meta.map(|meta| meta.last_modified),
        whole: Some(bytes),
    })
}

/// An object that is written once, under the first of these keys that has one.
async fn lasting(shared: &Shared, keys: Vec<String>) -> Result<Found, Refusal> {
    let mut first = None;
    for key in keys {
        match shared.store().head(&key).await {
            Ok(meta) => {
                let (size, modified) = (meta.size, Some(meta.last_modified));
                let tag = tag_of_meta(&ObjectMeta { key: key.clone(), ..meta });
                return Ok(Found { key, size, tag, modified, whole: None });
            }
            Err(error @ (StoreError::NotFound { .. } | StoreError::BadKey { .. } | StoreError::NotRegular { .. })) => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(Refusal::unread(&error)),
        }
    }
    Err(first.map_or_else(|| Refusal::internal("no key to look under"), |error| Refusal::unread(&error)))
}

/// The catalog of HEAD's version, for readers that know only DuckLake.
async fn latest(shared: &Arc<Shared>, parts: &Parts) -> Result<Response, Refusal> {
    let store = shared.store();
    shared.data_dir().await?;
    let resolved = resolve(store, &Revision::HEAD).await.map_err(Refusal::repository)?;
    let id = resolved.version().map_err(Refusal::repository)?;
    check_live(shared, id).await?;
    let found = match lasting(shared, vec![layout::catalog(id)]).await {
        Ok(found) => found,
        Err(refusal) => {
            // Whoever takes a version away marks it first.
            check_live(shared, id).await?;
            return Err(refusal);
        }
    };
    let mut response = respond(shared, parts, found, Keep::Asking).await?;
    set(response.headers_mut(), FDL_VERSION, &id.to_string());
    Ok(response)
}

async fn check_live(shared: &Shared, id: VersionId) -> Result<(), Refusal> {
    match read_mark(shared.store(), id).await.map_err(Refusal::repository)? {
        None => Ok(()),
        Some(mark) => Err(Refusal::marked(id, mark)),
    }
}

/// The answer with an object, or with what the client wants of it.
async fn respond(shared: &Arc<Shared>, parts: &Parts, found: Found, keep: Keep) -> Result<Response, Refusal> {
    let headers = &parts.headers;
    if !if_match_holds(headers, Some(&found.tag)) {
        return Err(Refusal::precondition(format!("{} has another state", found.key)));
    }
    if !if_none_match_holds(headers, Some(&found.tag)) {
        let mut response = empty(StatusCode::NOT_MODIFIED);
        describe(response.headers_mut(), shared, &found, keep);
        return Ok(response);
    }
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let range = range.filter(|_| parts.method == Method::GET && if_range_holds(headers, &found.tag));
    let size = found.size;
    let (status, range) = match wanted(range, size) {
        Wanted::Whole => (StatusCode::OK, 0..size),
        Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Wanted::Unsatisfiable => {
            let message = format!("{} has only {size} bytes", found.key);
            let refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, Code::BadArgument, message);
            return Err(refusal.with(header::CONTENT_RANGE, &format!("bytes */{size}")));
        }
    };
    let body = match &found.whole {
        _ if parts.method == Method::HEAD => Body::empty(),
        Some(bytes) => {
            let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            Body::from(bytes.slice(at(range.start)..at(range.end)))
        }
        None => {
            let (told, path) = (Arc::clone(shared), parts.uri.path().to_owned());
            let cut = move |error: &StoreError| {
                // The head of the answer has gone, so nobody gets the ID.
                told.log(format_args!("GET {path} cut short: {}", Refusal::unread(error).told()));
            };
            let body = shared.budget.body(&shared.store, &found.key, range.clone(), cut).await;
            body.map_err(|error| Refusal::unread(&error))?
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let answer = response.headers_mut();
    describe(answer, shared, &found, keep);
    set(answer, header::CONTENT_TYPE, content_type(&found.key));
    set(answer, header::CONTENT_LENGTH, &range.end.saturating_sub(range.start).to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        let last = range.end.saturating_sub(1);
        set(answer, header::CONTENT_RANGE, &format!("bytes {}-{last}/{size}", range.start));
    }
    Ok(response)
}

/// What is said of an object with or without its content.
fn describe(answer: &mut HeaderMap, shared: &Shared, found: &Found, keep: Keep) {
    set(answer, header::ETAG, &found.tag);
    set(answer, header::ACCEPT_RANGES, "bytes");
    if let Some(modified) = found.modified {
        set(answer, header::LAST_MODIFIED, &httpdate::fmt_http_date(modified.into()));
    }
    let keep = match (keep, shared.access.is_public()) {
        (Keep::Not, _) => "no-store",
        (Keep::Asking, _) => "no-cache",
        (Keep::Forever, true) => "public, max-age=31536000, immutable",
        // A cache on the way must not give to others what was read with a token.
        (Keep::Forever, false) => "private, max-age=31536000, immutable",
    };
    set(answer, header::CACHE_CONTROL, keep);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The content type by the key. Never one that a browser runs as a page.
fn content_type(key: &str) -> &'static str {
    let name = key.rsplit('/').next().unwrap_or(key);
    match name.rsplit_once('.') {
        _ if key == layout::HEAD || key.starts_with(layout::REFS) => "text/plain; charset=utf-8",
        Some((_, "json")) => "application/json",
        Some((_, "parquet")) => "application/vnd.apache.parquet",
        _ => "application/octet-stream",
    }
}
