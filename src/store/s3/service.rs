//! `object_store` signs and reads requests of S3; this sends them, by our own client and our own rules for trying again.
//!
//! Its own retries are off: it would send a conditional write again after an answer of 409 and after a connection that
//! broke, and would not hear of Retry-After.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use url::{Host, Url};

use crate::store::net::{Answer, Client, Content, NetError, Outgoing, Repeat};

/// The longest answer that is read of a request which reads no object.
const MOST: u64 = 16 << 20;

/// Gives `object_store` our client.
#[derive(Debug, Clone)]
pub(super) struct Service(Arc<Clients>);

#[derive(Debug)]
struct Clients {
    /// For the bucket.
    far: Client,
    /// For the metadata services of containers and instances, which answer at once or are not there.
    near: Client,
    /// The metadata service, where the environment names another than the usual.
    metadata: Option<Url>,
}

impl Service {
    pub(super) fn new(far: Client, metadata: Option<&str>) -> Result<Self, NetError> {
        let metadata = metadata.and_then(|url| Url::parse(url).ok());
        Ok(Self(Arc::new(Clients { far, near: Client::nearby()?, metadata })))
    }
}

impl HttpConnector for Service {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let unusable = |error| HttpError::new(HttpErrorKind::Unknown, NetError::Request(error));
        let url = Url::parse(&parts.uri.to_string()).map_err(|error| unusable(error.to_string()))?;
        let on_condition = parts.headers.contains_key(IF_MATCH) || parts.headers.contains_key(IF_NONE_MATCH);
        let repeat = match on_condition && parts.method == Method::PUT {
            true => Repeat::Refuses,
            false => Repeat::Same,
        };
        let client = if is_near(&url, self.0.metadata.as_ref()) { &self.0.near } else { &self.0.far };
        // What is no object is read into memory whole.
        let most = if parts.method == Method::GET { u64::MAX } else { MOST };
        let outgoing = Outgoing { method: parts.method, url, headers: parts.headers, content: content(body) };
        let incoming = client.send(&outgoing, repeat).await.map_err(net_error)?;
        let status = incoming.status();
        if !status.is_success() {
            // Our own word for it, whole, in the place of what `object_store` would make of it.
            let answer = incoming.into_answer().await;
            return Err(HttpError::new(HttpErrorKind::Unknown, answer));
        }
        let mut response = http::Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = incoming.headers().clone();
        let (head, ()) = response.into_parts();
        let frames = stream::unfold(Some((incoming, most)), |incoming| async {
            let (mut incoming, left) = incoming?;
            match incoming.chunk().await {
                Ok(Some(bytes)) => match left.checked_sub(bytes.len() as u64) {
                    Some(left) => Some((Ok(Frame::data(bytes)), Some((incoming, left)))),
                    None => Some((Err(net_error(NetError::Broken("the answer has no end".to_owned()))), None)),
                },
                Ok(None) => None,
                Err(error) => Some((Err(net_error(error)), None)),
            }
        });
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(StreamBody::new(SyncStream::new(frames.boxed())))))
    }
}

/// Every request is given out whole, so its body never waits.
fn content(mut body: HttpRequestBody) -> Content {
    let mut parts: Vec<Bytes> = Vec::new();
    while let Some(Some(Ok(frame))) = body.frame().now_or_never() {
        parts.extend(frame.into_data());
    }
    match parts.is_empty() {
        true => Content::Empty,
        false => Content::Bytes(parts),
    }
}

fn net_error(error: NetError) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

/// Whether a request goes to the machine's own network: the link-local addresses of metadata services.
fn is_near(url: &Url, metadata: Option<&Url>) -> bool {
    let usual = match url.host() {
        Some(Host::Ipv4(address)) => address.is_link_local(),
        Some(Host::Ipv6(address)) => address.segments().starts_with(&[0xfd00, 0xec2]),
        _ => false,
    };
    usual || metadata.is_some_and(|metadata| metadata.host() == url.host() && metadata.port() == url.port())
}

/// What stands behind an error of `object_store`.
#[derive(Debug)]
pub(super) enum Cause {
    /// S3 answered, and not well.
    Answer(Answer),
    /// There was no answer.
    Net(NetError),
    /// `object_store` itself.
    Other(object_store::Error),
}

impl Cause {
    pub(super) fn of(error: object_store::Error) -> Self {
        let mut at: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(cause) = at {
            if let Some(answer) = cause.downcast_ref::<Answer>() {
                return Self::Answer(answer.clone());
            }
            if let Some(net) = cause.downcast_ref::<NetError>() {
                return Self::Net(net.clone());
            }
            at = cause.source();
        }
        Self::Other(error)
    }

    /// The status of the answer, if there is one.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answer(answer) => Some(answer.status),
            Self::Net(_) | Self::Other(_) => None,
        }
    }
}

use sync::SyncStream;

/// `object_store` wants bodies that can be shared, and never shares them.
mod sync {
    use std::pin::Pin;
    use std::sync::{Mutex, PoisonError};
    use std::task::{Context, Poll};

    use futures::Stream;
    use futures::stream::BoxStream;

    pub(super) struct SyncStream<T>(Mutex<BoxStream<'static, T>>);

    impl<T> SyncStream<T> {
        pub(super) fn new(stream: BoxStream<'static, T>) -> Self {
            Self(Mutex::new(stream))
        }
    }

    impl<T> Stream for SyncStream<T> {
        type Item = T;

        fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
            self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll_next(context)
        }
    }
}
