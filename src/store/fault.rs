//! A wrapper that makes requests fail, so that tests can stop an operation anywhere and lose any answer.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};

use super::{Body, ConditionalWrite, ETag, Object, ObjectMeta, Retry, Store, StoreError, Verb};

/// A request that is about to be passed on.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// What is asked.
    pub verb: Verb,
    /// The key, or the prefix of a listing.
    pub key: &'a str,
    /// Its number among all requests, from 1.
    pub number: usize,
    /// Its number among the writes, from 1, when it is one ([`Verb::is_write`]).
    pub write: Option<usize>,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on, and so is its answer.
    None,
    /// It is not done; the answer is [`StoreError::Failed`].
    Fail,
    /// It is not done; the answer is [`StoreError::Permission`].
    Deny,
    /// It is done, and the answer is [`StoreError::Failed`]: the connection broke on the way back.
    LoseAnswer,
    /// A conditional write is done, and the answer is `Refused` all the same: the first answer was lost, and the client
    /// below asked again by itself. Any other request: as `LoseAnswer`.
    LoseAnswerAndRefuse,
    /// A conditional write is not done, and the answer is `Refused` all the same: another write was under way, or a proxy
    /// was in the way (S3's 409). Any other request: as `Fail`.
    Refuse,
    /// It and everything after it is not done and fails: the process was killed, or the network is gone.
    Stop,
    /// It is done, its answer is lost, and everything after it fails.
    StopAfter,
}

type Rule = Box<dyn Fn(Call<'_>) -> Fault + Send + Sync>;

/// A store that passes requests on to another one unless its rule says otherwise. Nothing is random.
///
/// What was written so far is in the wrapped store, which can be read directly or wrapped anew to try again.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    rule: Rule,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: usize,
    writes: usize,
    stopped: bool,
}

/// The cause of an error that a [`FaultStore`] made up.
#[derive(Debug, thiserror::Error)]
#[error("a fault that the test asked for: {0:?}")]
pub struct Injected(pub Fault);

impl FaultStore {
    /// Wraps a store; `rule` says what becomes of each request. It is not asked any more once it has said to stop.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, rule: impl Fn(Call<'_>) -> Fault + Send + Sync + 'static) -> Self {
        Self { inner, rule: Box::new(rule), state: Mutex::default() }
    }

    /// The `n`th write, from 1, is not done, and everything after it fails. `n` = 0: no fault at all.
    #[must_use]
    pub fn stop_at_write(inner: Arc<dyn Store>, n: usize) -> Self {
        Self::new(inner, move |call| if call.write == Some(n) { Fault::Stop } else { Fault::None })
    }

    /// The `n`th write, from 1, is done but its answer is lost, and everything after it fails. `n` = 0: no fault at all.
    #[must_use]
    pub fn stop_after_write(inner: Arc<dyn Store>, n: usize) -> Self {
        Self::new(inner, move |call| if call.write == Some(n) { Fault::StopAfter } else { Fault::None })
    }

    /// Every answer to a request of this kind is lost; the request is done.
    #[must_use]
    pub fn lose_answers(inner: Arc<dyn Store>, verb: Verb) -> Self {
        Self::new(inner, move |call| if call.verb == verb { Fault::LoseAnswer } else { Fault::None })
    }

    /// Writes are done, and nothing can be read or listed.
    #[must_use]
    pub fn refuse_reads(inner: Arc<dyn Store>) -> Self {
        Self::new(inner, |call| if call.verb.is_write() { Fault::None } else { Fault::Deny })
    }

    /// How many writes were asked for so far, failed ones included: how many places there are to stop at.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.state().writes
    }

    /// Whether a stop has come.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, verb: Verb, key: &str) -> Fault {
        let mut state = self.state();
        state.requests += 1;
        if verb.is_write() {
            state.writes += 1;
        }
        if state.stopped {
            return Fault::Stop;
        }
        let fault =
            (self.rule)(Call { verb, key, number: state.requests, write: verb.is_write().then_some(state.writes) });
        state.stopped = matches!(fault, Fault::Stop | Fault::StopAfter);
        fault
    }

    async fn faulty<T>(
        &self,
        verb: Verb,
        key: &str,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let fault = self.fault(verb, key);
        match fault {
            Fault::None => request.await,
            Fault::Fail | Fault::Deny | Fault::Refuse | Fault::Stop => Err(error(verb, key, fault)),
            Fault::LoseAnswer | Fault::LoseAnswerAndRefuse | Fault::StopAfter => {
                // Whatever it came to, nobody learns of it.
                drop(request.await);
                Err(error(verb, key, fault))
            }
        }
    }

    async fn faulty_condition(
        &self,
        verb: Verb,
        key: &str,
        request: impl Future<Output = Result<ConditionalWrite, StoreError>> + Send,
    ) -> Result<ConditionalWrite, StoreError> {
        match self.faulty(verb, key, request).await {
            Err(error) if matches!(injected(&error), Some(Fault::LoseAnswerAndRefuse | Fault::Refuse)) => {
                Ok(ConditionalWrite::Refused)
            }
            answer => answer,
        }
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("FaultStore");
        debug.field("inner", &self.inner).field("state", &self.state()).finish_non_exhaustive()
    }
}

fn error(verb: Verb, key: &str, fault: Fault) -> StoreError {
    let (key, action, source) = (key.to_owned(), verb.action(), Box::new(Injected(fault)));
    match fault {
        Fault::Deny => StoreError::Permission { key, action, source },
        _ => StoreError::Failed { key, action, source },
    }
}

fn injected(error: &StoreError) -> Option<Fault> {
    match error {
        StoreError::Failed { source, .. } => source.downcast_ref().map(|Injected(fault)| *fault),
        _ => None,
    }
}

#[async_trait]
impl Store for FaultStore {
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
        self.faulty(Verb::Get, key, self.inner.get(key)).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.faulty(Verb::GetRange, key, self.inner.get_range(key, range)).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        self.faulty(Verb::Download, key, self.inner.download(key, target, most)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.faulty(Verb::Head, key, self.inner.head(key)).await
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.faulty(Verb::Put, key, self.inner.put(key, body)).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        let request = self.inner.put_if_absent(key, bytes);
        self.faulty_condition(Verb::PutIfAbsent, key, request).await
    }

    async fn put_file_if_absent(&self, key: &str, path: &Path) -> Result<ConditionalWrite, StoreError> {
        let request = self.inner.put_file_if_absent(key, path);
        self.faulty_condition(Verb::PutIfAbsent, key, request).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let request = self.inner.put_if_unchanged(key, bytes, etag);
        self.faulty_condition(Verb::PutIfUnchanged, key, request).await
    }

    async fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.faulty(Verb::Settle, key, self.inner.settle(key)).await
    }

    async fn check_regular(&self, keys: &[String]) -> Result<(), StoreError> {
        self.inner.check_regular(keys).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let inner = self.inner.list(prefix);
        let prefix = prefix.to_owned();
        stream::once(async move {
            match self.fault(Verb::List, &prefix) {
                Fault::None => inner,
                fault => stream::iter([Err(error(Verb::List, &prefix, fault))]).boxed(),
            }
        })
        .flatten()
        .boxed()
    }

    async fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        self.faulty(Verb::Sweep, "", self.inner.sweep(before)).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.faulty(Verb::Delete, key, self.inner.delete(key)).await
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        let request = self.inner.delete_if_unchanged(key, etag);
        self.faulty_condition(Verb::DeleteIfUnchanged, key, request).await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use futures::executor::block_on;

    use super::*;
    use crate::store::MemoryStore;

    async fn write(store: &dyn Store, key: &str) -> bool {
        store.put(key, Body::Bytes(Bytes::new())).await.is_ok()
    }

    fn keys(store: &MemoryStore) -> Vec<String> {
        store.contents().into_keys().collect()
    }

    #[test]
    fn stops_before_or_after_a_write() {
        for (n, lost, answered, written) in [
            (0, false, 3, vec!["a", "b", "c"]),
            (1, false, 0, vec![]),
            (2, false, 1, vec!["a"]),
            (2, true, 1, vec!["a", "b"]),
            (4, true, 3, vec!["a", "b", "c"]),
        ] {
            let inner = Arc::new(MemoryStore::new());
            let stop = if lost { FaultStore::stop_after_write } else { FaultStore::stop_at_write };
            let store = stop(inner.clone(), n);
            block_on(async {
                let mut done = 0;
                for key in ["a", "b", "c"] {
                    // Reads are no writes.
                    let read = store.head("a").await;
                    assert_eq!(matches!(read, Err(StoreError::Failed { .. })), store.is_stopped());
                    done += usize::from(write(&store, key).await);
                }
                assert_eq!(done, answered, "{n} {lost}");
            });
            assert_eq!(keys(&inner), written, "{n} {lost}");
            assert_eq!((store.writes(), store.is_stopped()), (3, (1..=3).contains(&n)));
        }
    }

    #[test]
    fn loses_the_answer_of_a_conditional_write() {
        let inner = Arc::new(MemoryStore::new());
        let create = |store: FaultStore, key| block_on(async move { store.put_if_absent(key, Bytes::new()).await });
        let lost = create(FaultStore::lose_answers(inner.clone(), Verb::PutIfAbsent), "a");
        assert!(matches!(lost, Err(StoreError::Failed { .. })));
        let refused = create(FaultStore::new(inner.clone(), |_| Fault::LoseAnswerAndRefuse), "b");
        assert_eq!(refused.unwrap(), ConditionalWrite::Refused);
        assert_eq!(keys(&inner), ["a", "b"]);
    }

    #[test]
    fn refuses_reads_and_whatever_the_rule_names() {
        let inner = Arc::new(MemoryStore::new());
        let blind = FaultStore::refuse_reads(inner.clone());
        let chosen = FaultStore::new(inner, |call| match call {
            Call { verb: Verb::Get, key: "a", .. } => Fault::Fail,
            Call { number: 3, .. } => Fault::Deny,
            _ => Fault::None,
        });
        block_on(async {
            assert!(write(&blind, "a").await);
            assert!(matches!(blind.get("a").await, Err(StoreError::Permission { action: "read", .. })));
            let listed: Result<Vec<_>, _> = blind.list("").try_collect().await;
            assert!(matches!(listed, Err(StoreError::Permission { action: "list", .. })));
            assert!(matches!(chosen.get("a").await, Err(StoreError::Failed { .. })));
            assert!(chosen.head("a").await.is_ok());
            assert!(matches!(chosen.head("a").await, Err(StoreError::Permission { .. })));
            assert_eq!(chosen.list("").try_collect::<Vec<_>>().await.unwrap().len(), 1);
        });
    }
}
