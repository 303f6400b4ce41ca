//! Uploads by the batch (format.md section 14).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use fdl::store::{FilePut, FileToPut, HttpStore, Store, StoreError};
use serde_json::{Value, json};

use crate::servers::objects::{Faults, Objects, key_of};
use crate::servers::s3::{error, quick};
use crate::servers::server::{Act, Reply, Seen, Server};

/// A host with batches, and the storage that its URLs lead to.
struct Host {
    server: Server,
    storage: Server,
    objects: Objects,
    store: HttpStore,
}

type Answer = dyn Fn(&Value, &str) -> Value + Send + Sync;

/// `answer` says what becomes of a file, given the URL of the storage; the default of format.md otherwise.
async fn host(answer: impl Fn(&Value, &str) -> Value + Send + Sync + 'static) -> Host {
    let objects = Objects::default();
    let app = |objects: Objects, root: &'static str| {
        move |seen: &Seen| objects.answer(&key_of(&seen.path, root).unwrap(), seen, Faults::default())
    };
    let storage = Server::start(app(objects.clone(), "/store")).await;
    let through = app(objects.clone(), "/r");
    let base = storage.url.clone();
    let answer: Arc<Answer> = Arc::new(answer);
    let server = Server::start(move |seen| match seen.query.as_str() {
        "batch" => {
            assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/r/"));
            let asked: Value = serde_json::from_slice(&seen.body).unwrap();
            let files = asked.get("files").and_then(Value::as_array).unwrap();
            assert!(files.len() <= 1000);
            let answers: Vec<_> = files.iter().map(|file| answer(file, &base)).collect();
            Reply::new(200).body(json!({ "files": answers, "more": 1 }).to_string())
        }
        _ => through(seen),
    })
    .await;
    let store = HttpStore::open_with(&format!("{}/r", server.url), Some("hush-token"), quick()).unwrap();
    Host { server, storage, objects, store }
}

fn to_storage(file: &Value, storage: &str, expires: DateTime<Utc>) -> Value {
    let key = file["key"].as_str().unwrap();
    json!({
        "key": key,
        "url": format!("{storage}/store/{key}?X-Signature=hush-signature"),
        "headers": { "Content-Type": file["content_type"], "x-amz-meta-fdl": "1", "Host": "ignored" },
        "expires": expires.to_rfc3339(),
    })
}

fn soon() -> DateTime<Utc> {
    Utc::now() + TimeDelta::minutes(15)
}

fn files(folder: &Path, count: usize) -> Vec<FileToPut> {
    (0..count)
        .map(|number| {
            let path = folder.join(number.to_string());
            std::fs::write(&path, format!("file {number}")).unwrap();
            let size = std::fs::metadata(&path).unwrap().len();
            FileToPut { key: format!("data/main/t/{number}.parquet"), size, path }
        })
        .collect()
}

#[tokio::test]
async fn uploads_go_where_the_host_says() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 40);
    let host = host(|file, storage| match file["key"].as_str().unwrap() {
        "data/main/t/3.parquet" => json!({ "key": file["key"], "exists": true }),
        "data/main/t/4.parquet" => json!({ "key": file["key"], "status": 413 }),
        "data/main/t/5.parquet" => json!({ "key": "something else" }),
        _ => to_storage(file, storage, soon()),
    })
    .await;
    let put = host.store.put_files(&files).await.unwrap();
    for (number, put) in put.iter().enumerate() {
        let expected = if number == 3 { FilePut::There { size: files[3].size } } else { FilePut::Written };
        assert_eq!(*put, expected, "{number}");
    }
    assert_eq!(host.objects.all().len(), 39);
    assert_eq!(host.objects.get("data/main/t/39.parquet").unwrap().0, "file 39");

    let uploads = host.storage.take_log();
    assert_eq!(uploads.len(), 37);
    for seen in &uploads {
        assert_eq!(seen.header("authorization"), None, "the token is for the host alone");
        assert_eq!(seen.header("content-type"), Some("application/vnd.apache.parquet"));
        assert_eq!(seen.header("x-amz-meta-fdl"), Some("1"));
        assert_ne!(seen.header("host"), Some("ignored"));
        assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()));
    }
    let asked = host.server.take_log();
    let through: Vec<_> = asked.iter().filter(|seen| seen.method == "PUT").map(|seen| seen.path.as_str()).collect();
    assert_eq!((asked.len(), through.len()), (3, 2));
    let first: Value = serde_json::from_slice(&asked[0].body).unwrap();
    let expected = json!({ "key": files[0].key, "size": 6, "content_type": "application/vnd.apache.parquet" });
    assert_eq!(first["files"][0], expected);
    assert_eq!(asked[0].header("authorization"), Some("Bearer hush-token"));
}

#[tokio::test]
async fn asks_for_a_thousand_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 2001);
    let host = host(|file, _| json!({ "key": file["key"], "exists": true })).await;
    let put = host.store.put_files(&files).await.unwrap();
    assert_eq!(put.len(), 2001);
    assert_eq!(host.server.take_log().len(), 3);
    assert!(host.store.put_files(&[]).await.unwrap().is_empty());
    assert!(host.server.take_log().is_empty());
}

#[tokio::test]
async fn a_host_without_batches_gets_everything_itself() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 5);
    for status in [404, 405, 501] {
        let host = host(|_, _| Value::Null).await;
        host.server.rule(move |seen| if seen.method == "POST" { Act::Say(Reply::new(status)) } else { Act::Pass });
        host.objects.put("data/main/t/2.parquet", "there");
        let put = host.store.put_files(&files).await.unwrap();
        assert_eq!(put[2], FilePut::There { size: 5 });
        assert_eq!(host.objects.all().len(), 5);
        host.store.put_files(&files).await.unwrap();
        let asked = host.server.take_log();
        assert_eq!(asked.iter().filter(|seen| seen.method == "POST").count(), 1, "it is asked once");
    }
}

#[tokio::test]
async fn a_url_is_renewed_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 1);
    let times = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&times);
    let host = host(move |file, storage| {
        let expires = match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Utc::now() + TimeDelta::seconds(59),
            _ => soon(),
        };
        to_storage(file, storage, expires)
    })
    .await;
    assert_eq!(host.store.put_files(&files).await.unwrap(), [FilePut::Written]);
    assert_eq!((host.server.take_log().len(), host.storage.take_log().len()), (2, 1));

    host.storage.next(1, |_| true, Act::Say(error(403, "AccessDenied")));
    assert_eq!(host.store.put_files(&files).await.unwrap(), [FilePut::Written]);
    assert_eq!((host.server.take_log().len(), host.storage.take_log().len()), (2, 2));

    // Not for ever, and without showing the URL.
    host.storage.rule(|_| Act::Say(error(403, "SignatureDoesNotMatch")));
    let refused = host.store.put_files(&files).await.unwrap_err();
    assert!(matches!(refused, StoreError::Permission { .. }), "{refused:?}");
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains("SignatureDoesNotMatch") && !shown.contains("hush"), "{shown}");
    assert_eq!(host.server.take_log().len(), 4);

    // URLs that never last a minute are used all the same.
    times.store(0, Ordering::Relaxed);
    let short = self::host(|file, storage| to_storage(file, storage, Utc::now() + TimeDelta::seconds(20))).await;
    assert_eq!(short.store.put_files(&files).await.unwrap(), [FilePut::Written]);
}

#[tokio::test]
async fn what_is_there_by_the_time_of_the_upload_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 1);
    let host = host(|file, storage| to_storage(file, storage, soon())).await;
    for (content, size) in [("file x", 6), ("another", 7)] {
        for status in [412, 409] {
            let objects = host.objects.clone();
            host.storage.rule(move |seen| {
                objects.put("data/main/t/0.parquet", content);
                assert_eq!(seen.method, "PUT");
                Act::Say(error(status, "PreconditionFailed"))
            });
            // Whoever sent it knows what size it should have.
            assert_eq!(host.store.put_files(&files).await.unwrap(), [FilePut::There { size }]);
            assert_eq!(host.objects.get("data/main/t/0.parquet").unwrap().0, content);
        }
    }
    host.server.take_log();

    // Somebody else's upload came to nothing: another try. Not for ever.
    let host = self::host(|file, storage| to_storage(file, storage, soon())).await;
    host.storage.next(2, |_| true, Act::Say(error(409, "ConditionalRequestConflict")));
    assert_eq!(host.store.put_files(&files).await.unwrap(), [FilePut::Written]);
    host.storage.rule(|_| Act::Say(error(409, "ConditionalRequestConflict")));
    let other = FileToPut { key: "data/main/t/1.parquet".to_owned(), ..files[0].clone() };
    let refused = host.store.put_files(&[other]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Failed { .. }), "{refused:?}");
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains("ConditionalRequestConflict") && !shown.contains("hush"), "{shown}");
}

#[tokio::test]
async fn a_place_for_uploads_that_is_out_of_reach_is_passed_by() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 20);
    // A port that nobody listens on.
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let host = host(move |file, _| to_storage(file, &format!("http://{closed}"), soon())).await;
    let put = host.store.put_files(&files).await.unwrap();
    assert_eq!(put, vec![FilePut::Written; 20]);
    assert_eq!(host.objects.all().len(), 20);
    // It is not tried again.
    let began = std::time::Instant::now();
    host.store.put_files(&self::files(folder.path(), 40)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    let puts = host.server.take_log().iter().filter(|seen| seen.method == "PUT").count();
    assert_eq!(puts, 60, "through the host");
}

#[tokio::test]
async fn says_why_a_file_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 1);
    let host = host(|file, _| json!({ "key": file["key"], "status": 409, "message": "not\nhere" })).await;
    match host.store.put_files(&files).await.unwrap_err() {
        StoreError::Rejected { status, reason, .. } => assert_eq!((status, reason.as_str()), (409, "not here")),
        error => panic!("{error:?}"),
    }
    host.server.rule(|_| Act::Say(Reply::new(403).body(r#"{"error":"no","message":"read only"}"#)));
    let denied = host.store.put_files(&files).await.unwrap_err();
    assert!(matches!(denied, StoreError::Permission { .. }), "{denied:?}");
    for answer in ["", "{}", "[]", r#"{"files":[{"key":"hush","url":3}]}"#] {
        host.server.rule(move |_| Act::Say(Reply::new(200).body(answer)));
        let odd = host.store.put_files(&files).await.unwrap_err();
        assert!(matches!(odd, StoreError::Failed { .. }) && !format!("{odd} {odd:?}").contains("hush"), "{odd:?}");
    }
    for url in ["ftp://hush/", "hush", "file:///hush"] {
        let host = self::host(move |file, _| json!({ "key": file["key"], "url": url })).await;
        let odd = host.store.put_files(&files).await.unwrap_err();
        assert!(matches!(odd, StoreError::Failed { .. }) && !format!("{odd} {odd:?}").contains("hush"), "{odd:?}");
    }
}

#[tokio::test]
async fn an_upload_does_not_follow_redirects_and_survives_lost_answers() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 1);
    let host = host(|file, storage| to_storage(file, storage, soon())).await;
    for act in [Act::Drop, Act::Lose, Act::Say(error(503, "SlowDown"))] {
        host.storage.next(2, |_| true, act);
        assert_eq!(host.store.put_files(&files).await.unwrap(), [FilePut::Written]);
        assert!(host.storage.take_log().iter().all(|seen| seen.body == "file 0"));
    }
    let elsewhere = format!("{}/r/stolen", host.server.url);
    host.storage.rule(move |_| Act::Say(Reply::new(307).with("Location", &elsewhere)));
    host.server.take_log();
    assert!(matches!(host.store.put_files(&files).await, Err(StoreError::Failed { .. })));
    assert_eq!(host.server.take_log().len(), 1);
}

#[tokio::test]
async fn sixteen_are_under_way_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), 64);
    let host = host(|file, storage| to_storage(file, storage, soon())).await;
    host.storage.rule(|_| Act::Late(Duration::from_millis(100)));
    host.store.put_files(&files).await.unwrap();
    let mut by_depth = BTreeMap::new();
    for seen in host.storage.take_log() {
        *by_depth.entry(seen.depth).or_insert(0) += 1;
    }
    assert!(by_depth.values().all(|count| *count <= 16) && by_depth.len() <= 8, "{by_depth:?}");
    let most = Mutex::new(by_depth.values().copied().max());
    assert_eq!(*most.lock().unwrap(), Some(16));
}
