//! Servers that answer 200 with a page for what is not there, as hosts of single-page applications do.

use std::sync::Arc;

use fdl::format::{RefName, Revision, layout};
use fdl::repo::{
    CloneOptions, Expected, LogOptions, LookInto, RepoError, Repository, State, clone, list_refs, log, open_version,
};
use fdl::store::{HttpStore, MemoryStore, Store, StoreError};
use futures::TryStreamExt;

use crate::servers::objects::{Faults, Objects, key_of};
use crate::servers::s3::quick;
use crate::servers::server::{Reply, Seen, Server};
use crate::support::{Bench, write_data};

/// A repository of two versions and a tag at the second, as it is on the server's disk.
async fn published() -> (Objects, Vec<fdl::format::VersionId>) {
    let bench = Bench::new(1);
    let store = Arc::new(MemoryStore::new());
    bench.init(store.as_ref()).await;
    let chain = bench.chain(None, 2);
    write_data(&store, &chain);
    bench.push(store.clone(), "main", Expected::Absent, &chain).await.unwrap();
    let last = chain.last().unwrap().id();
    fdl::repo::create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), last).await.unwrap();
    let objects = Objects::default();
    for (key, bytes) in store.contents() {
        objects.put(&key, bytes);
    }
    (objects, chain.iter().map(|version| version.id()).collect())
}

/// What it says in the place of 404.
fn page(kind: &'static str) -> Reply {
    match kind {
        "json" => Reply::new(200).with("Content-Type", "application/json").body(r#"{"error": "not found"}"#),
        "plain" => Reply::new(200).body("<!doctype html><title>An application</title>"),
        kind => Reply::new(200).with("Content-Type", kind).body("<!doctype html><title>An application</title>"),
    }
}

async fn serve(objects: &Objects, kind: &'static str) -> (Server, Arc<HttpStore>) {
    let objects = objects.clone();
    let server = Server::start(move |seen: &Seen| {
        let reply = objects.answer(&key_of(&seen.path, "/r").unwrap(), seen, Faults::default());
        if reply.status == 404 { page(kind) } else { reply }
    })
    .await;
    let store = Arc::new(HttpStore::open_with(&format!("{}/r", server.url), Some(""), quick()).unwrap());
    (server, store)
}

#[tokio::test]
async fn a_page_is_no_mark_no_tag_no_signature_and_no_object() {
    let (objects, ids) = published().await;
    for kind in ["text/html; charset=utf-8", "text/html", "plain", "json"] {
        let (server, store) = serve(&objects, kind).await;
        for name in ["main", "refs/heads/main", "v1", "main~1"] {
            let revision: Revision = name.parse().unwrap();
            let (_, resolved) = Repository::open_at(store.clone(), &revision).await.unwrap();
            open_version(store.as_ref(), &resolved, None)
                .await
                .unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        }
        let entries: Vec<_> = log(store.clone(), ids[1], LogOptions::default()).try_collect().await.unwrap();
        assert!(entries.iter().all(|entry| entry.state == State::Live), "{kind}");
        if kind.contains("html") {
            assert!(entries.iter().all(|entry| !entry.signed), "{kind}");
            assert!(store.oddity().is_some());
        }
        let probes = server.take_log().iter().filter(|seen| seen.path.contains("--fdl")).count();
        assert!(probes <= 2, "{kind}: {probes} probes");
        if kind != "json" {
            let absent = store.get("versions/x/version.json").await;
            assert!(matches!(absent, Err(StoreError::NotFound { .. })), "{kind}: {absent:?}");
        }
    }
}

#[tokio::test]
async fn a_catalog_that_is_gone_is_not_there() {
    let (objects, ids) = published().await;
    let (_server, store) = serve(&objects, "text/html").await;
    let folder = tempfile::tempdir().unwrap();
    for key in ["versions/x/ducklake.duckdb", "data/main/t/x.parquet"] {
        assert!(matches!(store.head(key).await, Err(StoreError::NotFound { .. })), "{key}");
        let download = store.download(key, &folder.path().join("x"), 1 << 20).await;
        assert!(matches!(download, Err(StoreError::NotFound { .. })), "{download:?}");
    }
    // One that is there and is called a page all the same is one.
    objects.put("data/main/t/x.parquet", "a longer content than that of the page, whatever it is called: it is one");
    let (server, store) = serve(&objects, "text/html").await;
    let called = objects.clone();
    server.rule(move |seen| {
        let key = key_of(&seen.path, "/r").unwrap();
        let reply = called.answer(&key, seen, Faults::default());
        match reply.status {
            404 => crate::servers::server::Act::Pass,
            _ => crate::servers::server::Act::Say(reply.with("Content-Type", "text/html")),
        }
    });
    assert!(store.head("data/main/t/x.parquet").await.is_ok());
    assert!(store.get(&layout::version_json(ids[0])).await.is_ok());
    assert!(store.head(&layout::version_json(ids[0])).await.is_ok());
}

#[tokio::test]
async fn where_there_is_no_repository_the_server_is_named() {
    let (_server, store) = serve(&Objects::default(), "text/html").await;
    let error = Repository::open(store).await.unwrap_err();
    assert!(matches!(error, RepoError::NotARepository { .. }), "{error:?}");
    assert!(error.to_string().contains("answers 200 with a page"), "{error}");
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_still_stops_a_reader_where_the_server_is_honest() {
    let (objects, ids) = published().await;
    objects.put(&layout::expired(ids[1]), "<html>what is this");
    let answer = move |seen: &Seen| objects.answer(&key_of(&seen.path, "/r").unwrap(), seen, Faults::default());
    let server = Server::start(answer).await;
    let store = Arc::new(HttpStore::open_with(&format!("{}/r", server.url), Some(""), quick()).unwrap());
    let resolved = fdl::repo::Resolved::of_version(ids[1]);
    let opened = open_version(store.as_ref(), &resolved, None).await;
    assert!(matches!(opened, Err(RepoError::Expired { .. })), "{opened:?}");
    assert_eq!(store.oddity(), None);
}

#[tokio::test]
async fn nothing_that_cannot_be_read_is_copied() {
    let (objects, ids) = published().await;
    let copy = async |store: Arc<HttpStore>| {
        let (target, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let source = Repository::open(store).await.unwrap();
        let look = LookInto { scratch: folder.path(), files: None };
        clone(&source, &target, &CloneOptions { refs: Vec::new(), sources: true, unknown: false }, look).await.unwrap();
        target
    };
    for kind in ["text/html", "plain", "json"] {
        let (_server, store) = serve(&objects, kind).await;
        let target = copy(store).await;
        let strange = target.contents().into_iter().find(|(_, bytes)| {
            let text = String::from_utf8_lossy(bytes);
            text.contains("doctype") || text.contains("not found")
        });
        assert_eq!(strange, None, "{kind}");
        assert_eq!(list_refs(&target).await.unwrap().refs.len(), 2, "{kind}");
    }
    // Nor from a server that has such files: the copy gets a plain mark, and no signature.
    objects.put(&layout::expired(ids[0]), "no mark");
    objects.put(&layout::signature(ids[1]), "no signature");
    let answer = move |seen: &Seen| objects.answer(&key_of(&seen.path, "/r").unwrap(), seen, Faults::default());
    let server = Server::start(answer).await;
    let store = Arc::new(HttpStore::open_with(&format!("{}/r", server.url), Some(""), quick()).unwrap());
    let target = copy(store).await.contents();
    assert!(String::from_utf8_lossy(&target[&layout::expired(ids[0])]).contains("\"fdl\""));
    assert!(!target.contains_key(&layout::signature(ids[1])));
}
