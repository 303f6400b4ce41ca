//! A small HTTP server for tests: what it answers is an app's, what becomes of each request a rule's, and it writes down
//! what it was asked.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    /// As it was sent: nothing is decoded.
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// How many requests one after the other led to this one, itself included: 1 + the greatest depth of all that had been
    /// answered when it came.
    pub depth: usize,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A value of the query, decoded; empty for a name without one.
    pub fn query(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.query.as_bytes());
        pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    }
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Reply {
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// It is done and answered.
    Pass,
    /// It is not done; this is the answer.
    Say(Reply),
    /// It is not done, and the connection breaks.
    Drop,
    /// It is done, and the connection breaks before the answer.
    Lose,
    /// It is done, and the connection breaks after so many bytes of the answer's content.
    Cut(usize),
    /// It is done after a while.
    Late(Duration),
}

type App = dyn Fn(&Seen) -> Reply + Send + Sync;
type Rule = dyn FnMut(&Seen) -> Act + Send;

pub struct Server {
    /// `http://127.0.0.1:port`
    pub url: String,
    log: Arc<Mutex<Vec<Seen>>>,
    rule: Arc<Mutex<Box<Rule>>>,
    ended: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a test breaks the connection")]
struct Broken;

impl Server {
    pub async fn start(app: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (log, ended) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::<Mutex<usize>>::default());
        let rule: Arc<Mutex<Box<Rule>>> = Arc::new(Mutex::new(Box::new(|_| Act::Pass)));
        let state =
            State { app: Arc::new(app), log: Arc::clone(&log), rule: Arc::clone(&rule), ended: Arc::clone(&ended) };
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let state = state.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let state = state.clone();
                        async move { state.answer(request).await }
                    });
                    let mut server = hyper::server::conn::http1::Builder::new();
                    drop(server.half_close(true).serve_connection(TokioIo::new(connection), service).await);
                });
            }
        });
        Self { url, log, rule, ended, task }
    }

    /// From now on this says what becomes of each request.
    pub fn rule(&self, rule: impl FnMut(&Seen) -> Act + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// The next requests that fit meet this fate, so many of them.
    pub fn next(&self, mut times: usize, fits: impl Fn(&Seen) -> bool + Send + 'static, act: Act) {
        self.rule(move |seen| {
            if times > 0 && fits(seen) {
                times -= 1;
                return act.clone();
            }
            Act::Pass
        });
    }

    /// What it was asked since the last time. The next request has depth 1.
    pub fn take_log(&self) -> Vec<Seen> {
        *self.ended.lock().unwrap() = 0;
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

#[derive(Clone)]
struct State {
    app: Arc<App>,
    log: Arc<Mutex<Vec<Seen>>>,
    rule: Arc<Mutex<Box<Rule>>>,
    ended: Arc<Mutex<usize>>,
}

impl State {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Content>, Broken> {
        let depth = *self.ended.lock().unwrap() + 1;
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let seen = Seen { method: head.method, path, query, headers: head.headers, body, depth };
        self.log.lock().unwrap().push(seen.clone());
        let act = (self.rule.lock().unwrap())(&seen);
        let (reply, cut) = match act {
            Act::Drop => return Err(Broken),
            Act::Say(reply) => (reply, None),
            Act::Pass => ((self.app)(&seen), None),
            Act::Cut(after) => ((self.app)(&seen), Some(after)),
            Act::Lose => {
                drop((self.app)(&seen));
                return Err(Broken);
            }
            Act::Late(wait) => {
                tokio::time::sleep(wait).await;
                ((self.app)(&seen), None)
            }
        };
        {
            let mut ended = self.ended.lock().unwrap();
            *ended = depth.max(*ended);
        }
        let mut response = Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            response = response.header(name, value);
        }
        // The answer to HEAD names the size of what it does not hold.
        let body = if seen.method == Method::HEAD { Bytes::new() } else { reply.body.clone() };
        if seen.method == Method::HEAD && response.headers_ref().unwrap().get("content-length").is_none() {
            response = response.header("content-length", reply.body.len());
        }
        Ok(response
            .body(Content { left: body, cut, pause: Box::pin(tokio::time::sleep(Duration::from_millis(100))) })
            .unwrap())
    }
}

/// The content of an answer, which may break.
struct Content {
    left: Bytes,
    cut: Option<usize>,
    /// What was given out before must have left when the connection breaks.
    pause: Pin<Box<tokio::time::Sleep>>,
}

impl Body for Content {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if this.cut == Some(0) {
            std::task::ready!(this.pause.as_mut().poll(context));
            return Poll::Ready(Some(Err(Broken)));
        }
        if this.left.is_empty() {
            return Poll::Ready(None);
        }
        let step = this.left.len().min(this.cut.unwrap_or(64 << 10));
        this.cut = this.cut.map(|cut| cut - step);
        Poll::Ready(Some(Ok(Frame::data(this.left.split_to(step)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.cut.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}
