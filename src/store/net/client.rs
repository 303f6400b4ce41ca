//! The client: one connection pool for each store, no redirects, and timeouts that watch progress.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::body::{Content, Pulse};
use super::retry::{Repeat, Retry};
use super::{Answer, USER_AGENT};

/// How long a connection may take to come about, name and TLS included.
const CONNECT: Duration = Duration::from_secs(10);
/// How long nothing may move in either direction.
const IDLE: Duration = Duration::from_secs(60);
/// How long a server may think about a write on condition: a host looks for every data file before it moves a ref.
const THINK: Duration = Duration::from_secs(300);
/// How long an unused connection is kept. Servers close theirs after a minute or more.
const KEEP: Duration = Duration::from_secs(30);

/// Why there is no answer. Names no URL: those of uploads are secret.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::store) enum NetError {
    /// No connection came about, so nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    /// Nothing moved for so long. The request may have been carried out.
    #[error("nothing was sent or received for {} s", .0.as_secs())]
    Idle(Duration),
    /// It went on for too long, although something moved.
    #[error("it was not whole after {} s", .0.as_secs())]
    Slow(Duration),
    /// The connection broke. The request may have been carried out.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// What was to be sent could not be read.
    #[error("could not read what was to be sent: {0}")]
    Body(String),
    /// The request could not be made.
    #[error("no such request can be made: {0}")]
    Request(String),
}

/// A request that can be sent more than once.
#[derive(Debug, Clone)]
pub(in crate::store) struct Outgoing {
    pub(in crate::store) method: Method,
    pub(in crate::store) url: Url,
    pub(in crate::store) headers: HeaderMap,
    pub(in crate::store) content: Content,
}

/// Sends requests. Redirects are never followed.
#[derive(Debug, Clone)]
pub(in crate::store) struct Client {
    http: reqwest::Client,
    retry: Retry,
    idle: Duration,
}

impl Client {
    /// A client with connections of its own. Proxies are taken from the environment.
    pub(in crate::store) fn new(retry: Retry) -> Result<Self, NetError> {
        Self::build(retry, reqwest::Client::builder().connect_timeout(CONNECT), IDLE)
    }

    /// A client for what is in this machine's own network and answers at once or not at all: no proxy, few tries.
    pub(in crate::store) fn nearby() -> Result<Self, NetError> {
        let retry = Retry { tries: 2, connect_tries: 1, total: Duration::from_secs(3), ..Retry::default() };
        let builder = reqwest::Client::builder().connect_timeout(Duration::from_secs(1)).no_proxy();
        Self::build(retry, builder, Duration::from_secs(2))
    }

    fn build(retry: Retry, builder: reqwest::ClientBuilder, idle: Duration) -> Result<Self, NetError> {
        // Once a process; a second time says that it is there already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = builder
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .pool_idle_timeout(KEEP)
            .tcp_keepalive(KEEP)
            .build()
            .map_err(|error| NetError::Request(chain(error)))?;
        Ok(Self { http, retry, idle })
    }

    /// Sends a request, again where that may help. An answer of any status is an answer.
    pub(in crate::store) async fn send(&self, request: &Outgoing, repeat: Repeat) -> Result<Incoming, NetError> {
        self.retry.run(repeat, || self.send_once(request, repeat)).await
    }

    /// The same client with another patience.
    pub(in crate::store) fn with_retry(&self, retry: Retry) -> Self {
        Self { retry, ..self.clone() }
    }

    async fn send_once(&self, request: &Outgoing, repeat: Repeat) -> Result<Incoming, NetError> {
        let (body, pulse) = request.content.open().await?;
        let mut outgoing = reqwest::Request::new(request.method.clone(), request.url.clone());
        *outgoing.headers_mut() = request.headers.clone();
        *outgoing.body_mut() = body.map(reqwest::Body::wrap);
        let patience = match repeat {
            Repeat::Same => self.idle,
            Repeat::Refuses => self.idle.max(THINK),
        };
        let response = watch(self.http.execute(outgoing), &pulse, patience).await;
        let response = response.map_err(|error| with_tls_in_mind(error, &request.url))?;
        Ok(Incoming { response, idle: self.idle })
    }
}

/// Waits for the head of an answer for as long as something moves.
async fn watch(
    request: impl Future<Output = Result<reqwest::Response, reqwest::Error>>,
    pulse: &Pulse,
    patience: Duration,
) -> Result<reqwest::Response, NetError> {
    tokio::pin!(request);
    loop {
        let left = patience.saturating_sub(pulse.quiet());
        if left.is_zero() {
            return Err(NetError::Idle(patience));
        }
        match tokio::time::timeout(left, &mut request).await {
            Ok(answer) => return answer.map_err(|error| net_error(error, pulse.broken())),
            // Meanwhile something may have moved.
            Err(_) => continue,
        }
    }
}

fn net_error(error: reqwest::Error, body: Option<String>) -> NetError {
    match body {
        Some(why) => NetError::Body(why),
        None if error.is_connect() => NetError::Connect(chain(error)),
        None if error.is_builder() => NetError::Request(chain(error)),
        None => NetError::Broken(chain(error)),
    }
}

/// Says so when one side speaks TLS and the other does not: the most common cause of a connection that ends at once.
fn with_tls_in_mind(error: NetError, url: &Url) -> NetError {
    let host = url.host_str().unwrap_or_default();
    let place = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    match error {
        // Rustls: what came is no message of TLS.
        NetError::Connect(text) if url.scheme() == "https" && text.contains("corrupt message") => {
            NetError::Connect(format!("{text}: {place} does not speak TLS, so its address begins with http://"))
        }
        NetError::Broken(text) if url.scheme() == "http" && text.contains("invalid HTTP version") => {
            NetError::Broken(format!("{text}: {place} may speak TLS, so that its address begins with https://"))
        }
        error => error,
    }
}

/// An error and its causes in one line, without the URL.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// An answer whose content is still to come.
#[derive(Debug)]
pub(in crate::store) struct Incoming {
    response: reqwest::Response,
    idle: Duration,
}

impl Incoming {
    pub(in crate::store) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(in crate::store) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// A header as text.
    pub(in crate::store) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// The next piece of the content; none at its end.
    pub(in crate::store) async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        match tokio::time::timeout(self.idle, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(NetError::Broken(chain(error))),
            Err(_) => Err(NetError::Idle(self.idle)),
        }
    }

    /// The content, cut after `most` bytes.
    pub(in crate::store) async fn content(&mut self, most: usize) -> Result<Vec<u8>, NetError> {
        let read = async {
            let mut content = Vec::new();
            while content.len() < most {
                let Some(chunk) = self.chunk().await? else { break };
                content.extend_from_slice(&chunk);
            }
            content.truncate(most);
            Ok(content)
        };
        // However little comes at a time.
        tokio::time::timeout(THINK, read).await.unwrap_or(Err(NetError::Slow(THINK)))
    }

    /// What an answer that is no success says, with the reason in its content where there is one.
    pub(in crate::store) async fn into_answer(mut self) -> Answer {
        const MOST: usize = 64 << 10;
        let content = self.content(MOST).await.unwrap_or_default();
        Answer::new(self.status(), self.headers(), &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_for_as_long_as_something_moves() {
        let began = tokio::time::Instant::now();
        let pulse = Pulse::new();
        let moving = pulse.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                moving.moved();
            }
        });
        let error = watch(std::future::pending(), &pulse, IDLE).await.unwrap_err();
        assert!(matches!(error, NetError::Idle(_)), "{error:?}");
        assert_eq!(began.elapsed().as_secs(), 10 * 50 + 60);
    }
}
