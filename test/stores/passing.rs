//! Failures that pass, over a network: what docs/s3.md lists as tried again ends no init, no push and no tag, whether or not
//! the write had been done.

use std::sync::Arc;

use fdl::format::RefName;
use fdl::repo::{Expected, create_tag, delete_ref, list_refs};
use fdl::store::{HttpStore, Store};

use crate::servers::objects::{Faults, Objects, key_of};
use crate::servers::s3::{S3, error, quick};
use crate::servers::server::{Act, Reply, Seen, Server};
use crate::support::Bench;

/// What can become of a PUT or a DELETE, once.
fn acts() -> Vec<Act> {
    let said = [408, 429, 499, 500, 502, 503, 504, 520].map(|status| Act::Say(Reply::new(status)));
    said.into_iter().chain([Act::Drop, Act::Lose]).collect()
}

/// Begins a repository, pushes a version, makes a tag and deletes it.
async fn live_through(store: Arc<dyn Store>, what: &str) {
    let bench = Bench::new(1);
    bench.init(store.as_ref()).await;
    let chain = [bench.version(None, &[])];
    let report = bench.push(store.clone(), "main", Expected::Absent, &chain).await;
    assert!(report.as_ref().is_ok_and(|report| report.notes.is_empty()), "{what}: {report:?}");
    let tag = RefName::tag("v1").unwrap();
    let version = chain.first().unwrap().id();
    let made = create_tag(store.as_ref(), &tag, version).await;
    assert!(made.is_ok(), "{what}: {made:?}");
    assert_eq!(list_refs(store.as_ref()).await.unwrap().refs.len(), 2, "{what}");
    let deleted = delete_ref(store.as_ref(), &tag).await;
    assert!(deleted.is_ok(), "{what}: {deleted:?}");
    assert_eq!(list_refs(store.as_ref()).await.unwrap().refs.len(), 1, "{what}");
}

/// The `n`th write meets this fate, and the next try with it where that is more than once.
fn at_write(server: &Server, n: usize, times: usize, act: Act) {
    let mut writes = 0;
    server.rule(move |seen| {
        if seen.method != "PUT" && seen.method != "DELETE" {
            return Act::Pass;
        }
        writes += 1;
        if (n..n + times).contains(&writes) { act.clone() } else { Act::Pass }
    });
}

/// Every write meets what may and what may not have been carried out; other statuses are met by one write each.
fn writes_to_try(act: &Act, number: usize, writes: usize) -> std::ops::RangeInclusive<usize> {
    let one = number % writes + 1;
    match act {
        Act::Say(reply) if !matches!(reply.status, 409 | 500) => one..=one,
        _ => 1..=writes,
    }
}

fn count_writes(log: &[Seen]) -> usize {
    log.iter().filter(|seen| seen.method == "PUT" || seen.method == "DELETE").count()
}

#[tokio::test]
async fn over_http() {
    let start = async || {
        let objects = Objects::default();
        let answer = move |seen: &Seen| objects.answer(&key_of(&seen.path, "/r").unwrap(), seen, Faults::default());
        let server = Server::start(answer).await;
        let store = HttpStore::open_with(&format!("{}/r", server.url), Some(""), quick()).unwrap();
        (server, Arc::new(store))
    };
    let (server, store) = start().await;
    live_through(store, "no fault").await;
    let writes = count_writes(&server.take_log());
    assert!(writes > 10);
    // A 409 without a reason: storage behind the server.
    let acts = acts().into_iter().chain([Act::Say(Reply::new(409))]);
    for (number, act) in acts.enumerate() {
        for n in writes_to_try(&act, number, writes) {
            let (server, store) = start().await;
            at_write(&server, n, 1 + number % 2, act.clone());
            live_through(store, &format!("{act:?} at write {n}")).await;
        }
    }
}

#[tokio::test]
async fn in_s3() {
    let s3 = S3::start(Faults::default()).await;
    live_through(Arc::new(s3.open("x")), "no fault").await;
    let writes = count_writes(&s3.server.take_log());
    assert!(writes > 10);
    let codes = [(409, "ConditionalRequestConflict"), (409, "OperationAborted"), (503, "SlowDown")];
    let acts = acts().into_iter().chain(codes.map(|(status, code)| Act::Say(error(status, code))));
    for (number, act) in acts.enumerate() {
        for n in writes_to_try(&act, number, writes) {
            let s3 = S3::start(Faults::default()).await;
            at_write(&s3.server, n, 1 + number % 2, act.clone());
            live_through(Arc::new(s3.open("x")), &format!("{act:?} at write {n}")).await;
        }
    }
}
