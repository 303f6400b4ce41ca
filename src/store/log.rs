//! A wrapper that writes down every request, so that tests can say what an operation costs.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};

use super::{Body, ConditionalWrite, ETag, Object, ObjectMeta, Retry, Store, StoreError, Verb};

/// One request, as the wrapped store saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What was asked.
    pub verb: Verb,
    /// The key, or the prefix of a listing.
    pub key: String,
    /// Bytes of content sent or received: 0 for `head` and its like, for a listing, for a delete, and for what failed.
    pub bytes: u64,
    /// How many requests one after the other led to this one, itself included (see [`LoggedStore::depth`]).
    pub depth: usize,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Not yet, or never: its future or stream was dropped.
    Pending,
    /// It was done.
    Done,
    /// A conditional write whose condition did not hold.
    Refused,
    /// There was no such object.
    NotFound,
    /// Any other error.
    Failed,
}

/// A store that passes every request on to another one and writes it down.
///
/// Requests are those of the trait: a listing that an object store answers in several pages counts once.
pub struct LoggedStore {
    inner: Arc<dyn Store>,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<Request>,
    /// How many requests were forgotten before the first of `requests`.
    forgotten: usize,
    /// The depth of the deepest request that has ended.
    ended_depth: usize,
}

/// The number of a request since the store was made.
#[derive(Clone, Copy)]
struct Ticket(usize);

impl LoggedStore {
    /// Wraps a store; the log begins empty.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, log: Mutex::default() }
    }

    /// The requests so far, in the order in which they began.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.log().requests.clone()
    }

    /// How many requests of one kind there were.
    #[must_use]
    pub fn count(&self, verb: Verb) -> usize {
        self.log().requests.iter().filter(|request| request.verb == verb).count()
    }

    /// How many requests there were that change something, whatever came of them.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.log().requests.iter().filter(|request| request.verb.is_write()).count()
    }

    /// How many requests there were.
    #[must_use]
    pub fn total(&self) -> usize {
        self.log().requests.len()
    }

    /// The longest chain of requests one after the other: what the operation takes in round trips, however many
    /// requests run at the same time.
    ///
    /// The depth of a request is 1 + the greatest depth of all requests that had ended when it began, whether or not it
    /// needed their answers. Requests that begin before any of them ends therefore share one depth. The depth of the log
    /// is that of its deepest request; 0 when it is empty.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.log().requests.iter().map(|request| request.depth).max().unwrap_or(0)
    }

    /// Forgets everything, so that the next request has depth 1. What is under way is not written down any more.
    pub fn clear(&self) {
        let mut log = self.log();
        log.forgotten += log.requests.len();
        log.requests.clear();
        log.ended_depth = 0;
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, verb: Verb, key: &str) -> Ticket {
        let mut log = self.log();
        let depth = log.ended_depth + 1;
        log.requests.push(Request { verb, key: key.to_owned(), bytes: 0, depth, outcome: Outcome::Pending });
        Ticket(log.forgotten + log.requests.len() - 1)
    }

    fn end(&self, Ticket(number): Ticket, outcome: Outcome, bytes: u64) {
        let mut log = self.log();
        let index = number.checked_sub(log.forgotten);
        let Some(request) = index.and_then(|index| log.requests.get_mut(index)) else {
            return;
        };
        request.outcome = outcome;
        request.bytes = bytes;
        let depth = request.depth;
        log.ended_depth = log.ended_depth.max(depth);
    }

    /// Writes down one request: `bytes` says how much content moved when it went well.
    async fn logged<T: Answer>(
        &self,
        verb: Verb,
        key: &str,
        request: impl Future<Output = Result<T, StoreError>> + Send,
        bytes: impl FnOnce(&T) -> u64 + Send,
    ) -> Result<T, StoreError> {
        let ticket = self.begin(verb, key);
        let answer = request.await;
        let moved = answer.as_ref().map_or(0, bytes);
        self.end(ticket, outcome_of(&answer), moved);
        answer
    }
}

impl fmt::Debug for LoggedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedStore").field("inner", &self.inner).field("requests", &self.total()).finish()
    }
}

/// What a store answers: only conditional writes can be refused.
trait Answer {
    fn is_refusal(&self) -> bool {
        false
    }
}

impl Answer for () {}
impl Answer for u64 {}
impl Answer for Bytes {}
impl Answer for Object {}
impl Answer for ObjectMeta {}
impl Answer for ConditionalWrite {
    fn is_refusal(&self) -> bool {
        *self == ConditionalWrite::Refused
    }
}

fn outcome_of<T: Answer>(answer: &Result<T, StoreError>) -> Outcome {
    match answer {
        Ok(answer) if answer.is_refusal() => Outcome::Refused,
        Ok(_) => Outcome::Done,
        Err(StoreError::NotFound { .. }) => Outcome::NotFound,
        Err(_) => Outcome::Failed,
    }
}

#[async_trait]
impl Store for LoggedStore {
    fn location(&self) -> &str {
        self.inner.location()
    }

    fn local_root(&self) -> Option<&Path> {
        self.inner.local_root()
    }

    fn retry(&self) -> Option<Retry> {
        self.inner.retry()
    }

    fn oddity(&self) -> Option<&'static str> {
        self.inner.oddity()
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        let request = self.inner.get(key);
        self.logged(Verb::Get, key, request, |object| object.bytes.len() as u64).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let request = self.inner.get_range(key, range);
        self.logged(Verb::GetRange, key, request, |bytes| bytes.len() as u64).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        let request = self.inner.download(key, target, most);
        self.logged(Verb::Download, key, request, |size| *size).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.logged(Verb::Head, key, self.inner.head(key), |_| 0).await
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        let size = match &body {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(path) => std::fs::metadata(path).map_or(0, |file| file.len()),
        };
        self.logged(Verb::Put, key, self.inner.put(key, body), |()| size).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        let size = bytes.len() as u64;
        let request = self.inner.put_if_absent(key, bytes);
        self.logged(Verb::PutIfAbsent, key, request, |_| size).await
    }

    async fn put_file_if_absent(&self, key: &str, path: &Path) -> Result<ConditionalWrite, StoreError> {
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        self.logged(Verb::PutIfAbsent, key, self.inner.put_file_if_absent(key, path), |_| size).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let size = bytes.len() as u64;
        let request = self.inner.put_if_unchanged(key, bytes, etag);
        self.logged(Verb::PutIfUnchanged, key, request, |_| size).await
    }

    async fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.logged(Verb::Settle, key, self.inner.settle(key), |_| 0).await
    }

    async fn check_regular(&self, keys: &[String]) -> Result<(), StoreError> {
        self.inner.check_regular(keys).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let inner = self.inner.list(prefix);
        let prefix = prefix.to_owned();
        // The request begins when the stream is first polled and ends when the stream does.
        stream::once(async move {
            let ticket = self.begin(Verb::List, &prefix);
            let entries = inner.map(Some).chain(stream::iter([None]));
            entries.scan(Outcome::Done, move |outcome, entry| {
                match &entry {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => *outcome = Outcome::Failed,
                    None => self.end(ticket, *outcome, 0),
                }
                std::future::ready(entry)
            })
        })
        .flatten()
        .boxed()
    }

    async fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        self.logged(Verb::Sweep, "", self.inner.sweep(before), |_| 0).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.logged(Verb::Delete, key, self.inner.delete(key), |()| 0).await
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let request = self.inner.delete_if_unchanged(key, etag);
        self.logged(Verb::DeleteIfUnchanged, key, request, |_| 0).await
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::future::{join, pending};
    use futures::{FutureExt, TryStreamExt};

    use super::*;
    use crate::store::MemoryStore;

    fn logged() -> LoggedStore {
        LoggedStore::new(Arc::new(MemoryStore::new()))
    }

    #[test]
    fn writes_down_what_was_asked_and_what_came_of_it() {
        let store = logged();
        block_on(async {
            store.put("a", Body::Bytes(Bytes::from_static(b"12345"))).await.unwrap();
            store.put_if_absent("a", Bytes::from_static(b"12")).await.unwrap();
            store.get_range("a", 1..3).await.unwrap();
            store.head("b").await.unwrap_err();
            store.delete("/").await.unwrap_err();
            store.list("").try_collect::<Vec<_>>().await.unwrap();
        });
        let lines: Vec<_> =
            store.requests().into_iter().map(|r| (r.verb, r.key, r.bytes, r.depth, r.outcome)).collect();
        let expected = [
            (Verb::Put, "a", 5, 1, Outcome::Done),
            (Verb::PutIfAbsent, "a", 2, 2, Outcome::Refused),
            (Verb::GetRange, "a", 2, 3, Outcome::Done),
            (Verb::Head, "b", 0, 4, Outcome::NotFound),
            (Verb::Delete, "/", 0, 5, Outcome::Failed),
            (Verb::List, "", 0, 6, Outcome::Done),
        ];
        assert_eq!(
            lines,
            expected.map(|(verb, key, bytes, depth, outcome)| (verb, key.to_owned(), bytes, depth, outcome))
        );
        assert_eq!((store.count(Verb::Head), store.writes(), store.total()), (1, 3, 6));
        store.clear();
        assert_eq!((store.depth(), store.total()), (0, 0));
    }

    #[test]
    fn what_runs_at_the_same_time_has_one_depth() {
        let store = logged();
        let slow = |key| store.logged(Verb::Get, key, tokio::task::yield_now().map(Ok), |()| 0);
        block_on(async {
            join(slow("a"), slow("b")).await.0.unwrap();
            join(slow("c"), slow("d")).await.0.unwrap();
            // One chain of two beside one of one.
            join(async { (slow("e").await, slow("f").await) }, slow("g")).await.1.unwrap();
        });
        let depths: String = store.requests().iter().map(|r| format!("{}{} ", r.key, r.depth)).collect();
        assert_eq!(depths, "a1 b1 c2 d2 e3 g3 f4 ");
        assert_eq!(store.depth(), 4);
    }

    #[test]
    fn what_is_dropped_stays_pending_and_what_was_forgotten_stays_so() {
        let store = logged();
        let never = || store.logged(Verb::Get, "never", pending::<Result<(), _>>(), |()| 0);
        assert!(never().now_or_never().is_none());
        let outcomes: Vec<_> = store.requests().iter().map(|r| r.outcome).collect();
        assert_eq!(outcomes, [Outcome::Pending]);

        let late = store.begin(Verb::Get, "late");
        store.clear();
        store.begin(Verb::Get, "next");
        store.end(late, Outcome::Done, 7);
        let outcomes: Vec<_> = store.requests().iter().map(|r| (r.bytes, r.depth, r.outcome)).collect();
        assert_eq!(outcomes, [(0, 1, Outcome::Pending)]);
    }
}
