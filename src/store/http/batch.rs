//! Uploads by the batch: the host says which files it has and where the others go (format.md section 14).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};
use url::Url;

use super::HttpStore;
use super::fault::{unanswered, unwritten};
use super::request::{Ask, TOO_SHORT};
use crate::store::net::{Content, NetError, content_type, failed, tidy};
use crate::store::{AT_ONCE, FilePut, FileToPut, Store, StoreError, key, put_file};

/// How many files a request asks for.
const BATCH: usize = 1000;
/// The longest answer that is read, in bytes: some 16 KiB for each file.
const MOST: usize = 16 << 20;
/// How often a file's URL is renewed.
const RENEWALS: usize = 3;

#[derive(Serialize)]
struct Request<'a> {
    files: Vec<Wanted<'a>>,
}

#[derive(Serialize)]
struct Wanted<'a> {
    key: &'a str,
    size: u64,
    content_type: &'a str,
}

#[derive(Deserialize)]
struct Response {
    files: Vec<Answered>,
}

#[derive(Deserialize)]
struct Answered {
    key: String,
    #[serde(default)]
    exists: bool,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    expires: Option<DateTime<Utc>>,
    status: Option<u16>,
    message: Option<String>,
}

/// What the host says of one file.
enum Way {
    /// It has it.
    There,
    /// It goes to a URL.
    To(Grant),
    /// It goes through the host: it gives no URL for it, or none that can be used from here.
    Host,
    /// The host does not take it.
    No(StoreError),
}

/// A URL for one upload. Not to be shown: whoever knows it may write.
struct Grant {
    url: Url,
    headers: HeaderMap,
    expires: Option<DateTime<Utc>>,
}

impl Grant {
    fn is_usable(&self, now: DateTime<Utc>) -> bool {
        self.expires.is_none_or(|expires| (expires - now).to_std().is_ok_and(|left| left >= TOO_SHORT))
    }
}

/// [`Store::put_files`](crate::store::Store::put_files) of a host: by the batch where it knows that, else one by one.
pub(super) async fn put_files(store: &HttpStore, files: &[FileToPut]) -> Result<Vec<FilePut>, StoreError> {
    let mut done = Vec::with_capacity(files.len());
    for file in files {
        key::check(&file.key)?;
    }
    for chunk in files.chunks(BATCH) {
        // URLs do not last, so a batch is sent before the next is asked for.
        let ways = ask(store, chunk).await?;
        let jobs: Vec<_> = match ways {
            Some(ways) => chunk.iter().cloned().zip(ways.into_iter().map(Some)).collect(),
            None => chunk.iter().cloned().map(|file| (file, None)).collect(),
        };
        let sent = stream::iter(jobs).map(|(file, way)| async move {
            match way {
                Some(way) => put(store, &file, way).await,
                None => put_file(store, file).await,
            }
        });
        done.extend(sent.buffered(AT_ONCE).try_collect::<Vec<_>>().await?);
    }
    Ok(done)
}

/// Asks what is to become of files: one way for each, in their order. None when the host knows no batches.
async fn ask(store: &HttpStore, files: &[FileToPut]) -> Result<Option<Vec<Way>>, StoreError> {
    let Some(first) = files.first() else { return Ok(Some(Vec::new())) };
    let url = store.server.root.batch().filter(|_| !store.no_batches.load(Ordering::Relaxed));
    let Some(url) = url else { return Ok(None) };
    let wanted =
        files.iter().map(|file| Wanted { key: &file.key, size: file.size, content_type: content_type(&file.key) });
    let request = Request { files: wanted.collect() };
    let json = serde_json::to_vec(&request).map_err(|error| failed(&first.key, "write", error))?;
    let mut ask = Ask::new(Method::POST, url);
    ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ask.content = Content::Bytes(vec![json.into()]);
    let unheard = |error| unanswered(&first.key, "write", error);
    let mut incoming = store.server.send(ask).await.map_err(unheard)?;
    match incoming.status() {
        status if status.is_success() => {}
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            store.no_batches.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        _ => return Err(unwritten(&first.key, "write", store.server.answer(incoming).await)),
    }
    let content = incoming.content(MOST).await.map_err(unheard)?;
    // The error names a place in the answer and nothing that stands there.
    let odd = |error: serde_json::Error| {
        failed(
            &first.key,
            "write",
            format!("the answer to ?batch is none (at line {}, column {})", error.line(), error.column()),
        )
    };
    let response: Response = serde_json::from_slice(&content).map_err(odd)?;
    let mut answers: BTreeMap<String, Answered> =
        response.files.into_iter().map(|file| (file.key.clone(), file)).collect();
    let way =
        |file: &FileToPut| answers.remove(&file.key).map_or(Way::Host, |answered| way(store, &file.key, answered));
    Ok(Some(files.iter().map(way).collect()))
}

fn way(store: &HttpStore, key: &str, answered: Answered) -> Way {
    if answered.exists {
        return Way::There;
    }
    if let Some(url) = &answered.url {
        let odd = |why| Way::No(failed(key, "write", why));
        let Some(url) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
            return odd("the host gave an upload URL that is none");
        };
        if !store.server.root.is_as_safe(&url) || store.no_uploads.load(Ordering::Relaxed) {
            return Way::Host;
        }
        let Some(headers) = headers(&answered.headers) else {
            return odd("the host gave a header for an upload that is none");
        };
        return Way::To(Grant { url, headers, expires: answered.expires });
    }
    match answered.status {
        None | Some(413) => Way::Host,
        Some(status) => {
            let reason =
                answered.message.map(|message| tidy(&message)).unwrap_or_else(|| format!("the host answered {status}"));
            Way::No(StoreError::Rejected { key: key.to_owned(), status, code: None, reason })
        }
    }
}

/// The headers for an upload, exactly. Those two follow from the URL and the file.
fn headers(given: &BTreeMap<String, String>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        if name != HOST && name != CONTENT_LENGTH {
            headers.append(name, HeaderValue::from_str(value).ok()?);
        }
    }
    Some(headers)
}

/// Sends one file the way that the host said, and asks for another URL when that one is about to end or has ended.
async fn put(store: &HttpStore, file: &FileToPut, mut way: Way) -> Result<FilePut, StoreError> {
    let mut refused = None;
    for renewal in 0..=RENEWALS {
        let grant = match way {
            Way::There => return Ok(FilePut::There { size: file.size }),
            Way::No(error) => return Err(error),
            Way::Host => return through_host(store, file).await,
            Way::To(grant) => grant,
        };
        // A host whose URLs all end within a minute still means them to be used.
        if grant.is_usable(Utc::now()) || renewal == RENEWALS {
            let Grant { url, headers, .. } = grant;
            let incoming = match store.server.send_to(url, headers, content(file)).await {
                Ok(incoming) => incoming,
                // Nothing was sent. It may be a place that only the host can reach.
                Err(NetError::Connect(_)) => {
                    store.no_uploads.store(true, Ordering::Relaxed);
                    return through_host(store, file).await;
                }
                Err(error) => return Err(unanswered(&file.key, "write", error)),
            };
            match incoming.status() {
                status if status.is_success() => return Ok(FilePut::Written),
                status @ StatusCode::FORBIDDEN => refused = Some((status, incoming.into_answer().await.code)),
                // It is there by now, or another upload of it is under way. Our own, when its answer was lost.
                status @ (StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT) => {
                    match store.head(&file.key).await {
                        Ok(meta) => return Ok(FilePut::There { size: meta.size }),
                        Err(StoreError::NotFound { .. }) => refused = Some((status, incoming.into_answer().await.code)),
                        Err(error) => return Err(error),
                    }
                }
                status => {
                    let code = incoming.into_answer().await.code;
                    return Err(failed(&file.key, "write", upload_refused(status, code)));
                }
            }
        }
        if renewal < RENEWALS {
            let again = ask(store, std::slice::from_ref(file)).await?;
            way = again.and_then(|ways| ways.into_iter().next()).unwrap_or(Way::Host);
        } else {
            break;
        }
    }
    let (status, code) = refused.unwrap_or((StatusCode::FORBIDDEN, None));
    let source = upload_refused(status, code);
    match status {
        StatusCode::FORBIDDEN => {
            Err(StoreError::Permission { key: file.key.clone(), action: "write", source: source.into() })
        }
        _ => Err(failed(&file.key, "write", source)),
    }
}

async fn through_host(store: &HttpStore, file: &FileToPut) -> Result<FilePut, StoreError> {
    store.write(&file.key, content(file)).await?;
    Ok(FilePut::Written)
}

/// Without what the storage says in its own words, which may show parts of the URL.
fn upload_refused(status: StatusCode, code: Option<String>) -> String {
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    format!("the place for uploads that the host named answered {status}{code}")
}

fn content(file: &FileToPut) -> Content {
    Content::File { path: file.path.clone(), size: file.size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_tls_is_not_for_a_host_with_tls() {
        let answered = |url: &str| Answered {
            key: "k".to_owned(),
            exists: false,
            url: Some(url.to_owned()),
            headers: BTreeMap::new(),
            expires: None,
            status: None,
            message: None,
        };
        let store = HttpStore::open("https://example.org/lake", Some("")).unwrap();
        assert!(matches!(way(&store, "k", answered("https://s3/x")), Way::To(_)));
        assert!(matches!(way(&store, "k", answered("http://s3/x")), Way::Host));
        assert!(matches!(way(&store, "k", answered("ftp://s3/x")), Way::No(_)));
        let plain = HttpStore::open("http://example.org/lake", Some("")).unwrap();
        assert!(matches!(way(&plain, "k", answered("http://s3/x")), Way::To(_)));
    }
}
