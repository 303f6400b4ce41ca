//! A repository behind a URL. Reading needs a server that answers GET, nothing more; writing needs a host (format.md
//! section 14).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::OnceCell;

use super::local::local_error;
use super::net::{self, Content, Incoming, Opened, Part, Reader, Repeat, Retry, content_type, failed};
use super::{Body, ConditionalWrite, ETag, FilePut, FileToPut, Object, ObjectMeta, Store, StoreError, key};
use fault::{NAME, refusal, unanswered, unread, unwritten};
use page::{Page, Pages};
use request::{Ask, Server, Token};
use root::Root;

mod batch;
mod fault;
mod page;
mod request;
mod root;

/// The file that every repository has.
const FDL_JSON: &str = "fdl.json";
/// The variable of the environment that holds a token.
const TOKEN: &str = "FDL_TOKEN";

/// A [`Store`] behind a URL. It cannot be listed.
///
/// Needs tokio's runtime, and the same one for all of its life.
#[derive(Debug, Clone)]
pub struct HttpStore {
    server: Arc<Server>,
    /// Whether the server was found to know no batches of uploads.
    no_batches: Arc<AtomicBool>,
    /// Whether the place that its upload URLs lead to was found to be out of reach.
    no_uploads: Arc<AtomicBool>,
    /// What it answers for what is not there.
    pages: Arc<Pages>,
    /// Whether it answers HEAD for what is there, once that is known.
    heads: Arc<OnceCell<bool>>,
}

impl HttpStore {
    /// Opens `http://host/path` or `https://host/path`. Without a token the one in `FDL_TOKEN` is used; an empty one says
    /// anonymous on purpose. Nothing is sent. Proxies are taken from the environment.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadLocation`] for what is no such URL, or holds a password, `?` or `#`; [`StoreError::Failed`] with
    /// action `open` for what is no token.
    pub fn open(location: &str, token: Option<&str>) -> Result<Self, StoreError> {
        Self::open_with(location, token, Retry::default())
    }

    /// [`HttpStore::open`] with other rules for trying again.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn open_with(location: &str, token: Option<&str>, retry: Retry) -> Result<Self, StoreError> {
        Self::open_with_headers(location, token, &[], retry)
    }

    /// [`HttpStore::open_with`] headers of the caller's own, which go where the token goes.
    ///
    /// # Errors
    ///
    /// The same, and [`StoreError::Failed`] with action `open` for what is no header.
    pub fn open_with_headers(
        location: &str,
        token: Option<&str>,
        headers: &[(String, String)],
        retry: Retry,
    ) -> Result<Self, StoreError> {
        let root = Root::parse(location)?;
        let token = match token {
            Some(token) => token.to_owned(),
            None => std::env::var(TOKEN).unwrap_or_default(),
        };
        let token = Some(token).filter(|token| !token.is_empty()).map(|token| Token::new(&token)).transpose();
        let token = token.map_err(|why| failed(root.as_str(), "open", why))?;
        let shown = root.as_str().to_owned();
        let headers = own_headers(headers).map_err(|why| failed(&shown, "open", why))?;
        let server = Server::new(root, token, headers, retry).map_err(|error| failed(&shown, "open", error))?;
        Ok(Self {
            server: Arc::new(server),
            no_batches: Arc::default(),
            no_uploads: Arc::default(),
            pages: Arc::default(),
            heads: Arc::default(),
        })
    }

    fn ask(&self, method: Method, key: &str) -> Result<Ask, StoreError> {
        Ok(Ask::new(method, self.server.root.object(key)?))
    }

    async fn send(&self, key: &str, action: &'static str, ask: Ask) -> Result<Incoming, StoreError> {
        self.server.send(ask).await.map_err(|error| unanswered(key, action, error))
    }

    async fn write(&self, key: &str, content: Content) -> Result<(), StoreError> {
        let mut ask = self.ask(Method::PUT, key)?;
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(key)));
        ask.content = content;
        let incoming = self.send(key, "write", ask).await?;
        match incoming.status().is_success() {
            true => Ok(()),
            false => Err(unwritten(key, "write", self.server.answer(incoming).await)),
        }
    }

    /// Sends a write on condition. `replaces` is whether the object has to be there.
    async fn on_condition(
        &self,
        key: &str,
        action: &'static str,
        replaces: bool,
        mut ask: Ask,
    ) -> Result<ConditionalWrite, StoreError> {
        ask.repeat = Repeat::Refuses;
        let incoming = self.send(key, action, ask).await?;
        match incoming.status().is_success() {
            true => Ok(ConditionalWrite::Written),
            false => refusal(key, action, replaces, self.server.answer(incoming).await),
        }
    }

    /// What the server answers for a name like this one that nobody can have.
    async fn page(&self, key: &str) -> Result<Option<Page>, StoreError> {
        let ask = async {
            let nobody = page::nobody(key);
            match net::get(self, &nobody).await {
                Ok(object) => Ok(Some(Page { size: object.bytes.len() as u64 })),
                Err(StoreError::NotFound { .. } | StoreError::Permission { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.pages.ask(key, ask).await
    }

    /// Whether an answer of this size is the page of a server that has nothing at the key.
    async fn is_page(&self, key: &str, incoming: &Incoming, size: Option<u64>) -> Result<bool, StoreError> {
        if page::is_text(key) || !page::calls_itself_page(incoming) {
            return Ok(false);
        }
        let page = self.page(key).await?;
        Ok(page.is_some_and(|page| size.is_none_or(|size| size == page.size)))
    }

    /// Whether a HEAD is answered for what is there: some servers say to every one that there is nothing, or that it is
    /// not allowed. Asked once, for the file that every repository has.
    async fn answers_head(&self) -> Result<bool, StoreError> {
        let ask = async || {
            let incoming = self.send(FDL_JSON, "read", self.ask(Method::HEAD, FDL_JSON)?).await?;
            Ok(incoming.status().is_success())
        };
        self.heads.get_or_try_init(ask).await.copied()
    }

    /// What `head` gives, from a server that has no HEAD or tells no size in it: out of a GET of the first byte.
    async fn first_byte(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let mut ask = self.ask(Method::GET, key)?;
        ask.headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        let incoming = self.send(key, "read", ask).await?;
        let size = match incoming.status() {
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                incoming.header(CONTENT_RANGE).and_then(|range| range.rsplit_once('/')?.1.parse().ok())
            }
            status if status.is_success() => size_of(&incoming),
            _ => return Err(unread(key, self.server.answer(incoming).await)),
        };
        let size = match size {
            Some(size) => size,
            // Sent in a form of its own (gzip), or in pieces.
            None if page::is_text(key) => net::get(self, key).await?.bytes.len() as u64,
            None => return Err(failed(key, "read", "the server does not say how large it is")),
        };
        Ok(meta(key, size, &incoming))
    }
}

/// Headers of the caller's own. An error names none: their values are secret.
fn own_headers(given: &[(String, String)]) -> Result<http::HeaderMap, &'static str> {
    let mut headers = http::HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "an extra header has a name that is none")?;
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| "an extra header holds a character that cannot be part of one")?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn size_of(incoming: &Incoming) -> Option<u64> {
    incoming.header(CONTENT_LENGTH)?.parse().ok()
}

/// The state of an object, where the server names one that a condition can hold on to. A weak one cannot.
fn state_of(incoming: &Incoming) -> Option<String> {
    let state = incoming.header(ETAG)?;
    (!state.starts_with("W/") && !state.is_empty()).then(|| state.to_owned())
}

fn meta(key: &str, size: u64, incoming: &Incoming) -> ObjectMeta {
    let time = |name| DateTime::parse_from_rfc2822(incoming.header(name)?).ok().map(|time| time.to_utc());
    // Whoever asks how old it is must not take it for older than it is.
    let last_modified = time(LAST_MODIFIED).or_else(|| time(DATE)).unwrap_or_else(Utc::now);
    ObjectMeta { key: key.to_owned(), size, last_modified, etag: state_of(incoming).map(ETag) }
}

/// The byte that the content of a partial answer begins with.
fn offset_of(incoming: &Incoming) -> Option<u64> {
    let range = incoming.header(CONTENT_RANGE)?.trim().strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}

#[async_trait]
impl Reader for HttpStore {
    async fn open(&self, key: &str, part: Part<'_>) -> Result<Option<Opened>, StoreError> {
        let mut ask = self.ask(Method::GET, key)?;
        if !part.is_whole() {
            let range = match part.end.checked_sub(1) {
                Some(last) if part.end < u64::MAX / 2 => format!("bytes={}-{last}", part.start),
                _ => format!("bytes={}-", part.start),
            };
            ask.headers.insert(RANGE, header(key, "read", &range)?);
        }
        if let Some(state) = part.etag {
            // Another object is sent whole, and found out by its state.
            ask.headers.insert(IF_RANGE, header(key, "read", state)?);
        }
        let incoming = self.send(key, "read", ask).await?;
        let may_be_page = incoming.status() == StatusCode::OK && key != page::nobody(key);
        if may_be_page && self.is_page(key, &incoming, size_of(&incoming)).await? {
            return Err(StoreError::NotFound { key: key.to_owned() });
        }
        let offset = match incoming.status() {
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(None),
            StatusCode::PARTIAL_CONTENT => offset_of(&incoming).filter(|offset| *offset <= part.start),
            status if status.is_success() => Some(0),
            _ => return Err(unread(key, self.server.answer(incoming).await)),
        };
        let offset = offset.ok_or_else(|| failed(key, "read", "the answer is another range than was asked for"))?;
        let etag = state_of(&incoming);
        let body = stream::unfold(Some(incoming), |incoming| async {
            let mut incoming = incoming?;
            match incoming.chunk().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(incoming))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Some(Opened { etag, offset, body: body.boxed() }))
    }
}

/// A header of ours, or one that came from the server before.
fn header(key: &str, action: &'static str, value: &str) -> Result<HeaderValue, StoreError> {
    HeaderValue::from_str(value).map_err(|error| failed(key, action, error))
}

#[async_trait]
impl Store for HttpStore {
    fn location(&self) -> &str {
        self.server.root.as_str()
    }

    fn retry(&self) -> Option<Retry> {
        Some(self.server.retry)
    }

    fn oddity(&self) -> Option<&'static str> {
        self.pages.were_met().then_some("its server answers 200 with a page for what is not there")
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        let object = net::get(self, key).await?;
        match page::is_odd(key, &object.bytes) && self.page(key).await?.is_some() {
            true => Err(StoreError::NotFound { key: key.to_owned() }),
            false => Ok(object),
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.is_empty() {
            return self.head(key).await.map(|_| Bytes::new());
        }
        net::get_range(self, key, range).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        net::download(self, key, target, most).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        if self.heads.get() == Some(&false) {
            return self.first_byte(key).await;
        }
        let incoming = self.send(key, "read", self.ask(Method::HEAD, key)?).await?;
        match incoming.status() {
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => self.first_byte(key).await,
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND if !self.answers_head().await? => self.first_byte(key).await,
            status if status.is_success() => {
                // The first to know wins, and they agree.
                let _known = self.heads.set(true);
                if page::is_text(key) && page::calls_itself_page(&incoming) {
                    // Only its content tells.
                    self.get(key).await?;
                }
                match size_of(&incoming) {
                    size if self.is_page(key, &incoming, size).await? => {
                        Err(StoreError::NotFound { key: key.to_owned() })
                    }
                    Some(size) => Ok(meta(key, size, &incoming)),
                    None => self.first_byte(key).await,
                }
            }
            _ => Err(unread(key, self.server.answer(incoming).await)),
        }
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        key::check(key)?;
        let content = match body {
            Body::Bytes(bytes) => bytes.into(),
            Body::File(path) => match tokio::fs::metadata(&path).await {
                Ok(meta) => Content::File { size: meta.len(), path },
                Err(error) => return Err(local_error(&path, "read", error)),
            },
        };
        self.write(key, content).await
    }

    async fn put_files(&self, files: &[FileToPut]) -> Result<Vec<FilePut>, StoreError> {
        batch::put_files(self, files).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        let mut ask = self.ask(Method::PUT, key)?;
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(key)));
        ask.headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        ask.content = bytes.into();
        self.on_condition(key, "write", false, ask).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let mut ask = self.ask(Method::PUT, key)?;
        let Some(state) = condition(etag)? else { return Ok(ConditionalWrite::Refused) };
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(key)));
        ask.headers.insert(IF_MATCH, state);
        ask.content = bytes.into();
        self.on_condition(key, "write", true, ask).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let error = match key::check_prefix(prefix) {
            Ok(()) => StoreError::Unsupported { store: NAME, action: "list objects" },
            Err(error) => error,
        };
        stream::iter([Err(error)]).boxed()
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let incoming = self.send(key, "delete", self.ask(Method::DELETE, key)?).await?;
        match incoming.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(unwritten(key, "delete", self.server.answer(incoming).await)),
        }
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let mut ask = self.ask(Method::DELETE, key)?;
        let Some(state) = condition(etag)? else { return Ok(ConditionalWrite::Refused) };
        ask.headers.insert(IF_MATCH, state);
        self.on_condition(key, "delete", true, ask).await
    }
}

/// A state as a condition; none when no server ever gave it.
fn condition(etag: &ETag) -> Result<Option<HeaderValue>, StoreError> {
    match net::is_named(etag) {
        true => Ok(HeaderValue::from_str(&etag.0).ok()),
        false => Err(StoreError::Unsupported {
            store: NAME,
            action: "replace an object on condition: its answers name no state (a strong ETag)",
        }),
    }
}
