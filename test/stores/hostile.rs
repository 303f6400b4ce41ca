//! Servers that never come to an end: answers, pages and headers without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fdl::store::{HttpStore, S3Options, S3Store, Store, StoreError};
use futures::TryStreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::servers::objects::Faults;
use crate::servers::s3::{S3, quick};
use crate::servers::server::{Act, Reply};

/// A server that answers every GET with these headers and content that never ends, and counts what it could send.
async fn endless(headers: &'static str) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let sent = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut request = [0; 4096];
                drop(connection.read(&mut request).await);
                let head = format!("HTTP/1.1 200 OK\r\n{headers}");
                if connection.write_all(head.as_bytes()).await.is_err() {
                    return;
                }
                let piece = [b'1'; 1 << 16];
                while connection.write_all(&piece).await.is_ok() {
                    sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    (url, sent)
}

const CONTENT: &str =
    "Content-Length: 8200000000\r\nETag: \"e\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n";

fn s3(url: &str) -> S3Store {
    let options = S3Options {
        access_key_id: Some("key".to_owned()),
        secret_access_key: Some("hush".to_owned()),
        endpoint: Some(url.to_owned()),
        region: Some("lab-1".to_owned()),
        ..S3Options::default()
    };
    S3Store::open_with("s3://lake/x", &options, quick()).unwrap()
}

#[tokio::test]
async fn no_more_is_read_than_an_object_may_have() {
    let (url, sent) = endless(CONTENT).await;
    let http: Arc<dyn Store> = Arc::new(HttpStore::open_with(&url, Some(""), quick()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("catalog");
    let id = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";
    for store in [http, Arc::new(s3(&url))] {
        let names = ["version.json", "version.json.sig", "expired.json"].map(|name| format!("versions/{id}/{name}"));
        for key in ["fdl.json", "HEAD", "refs/heads/main"].map(str::to_owned).into_iter().chain(names) {
            let error = store.get(&key).await.unwrap_err();
            assert!(matches!(error, StoreError::TooLarge { .. }), "{key}: {error:?}");
        }
        let error = store.download("versions/x/ducklake.duckdb", &target, 1000).await.unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { limit: 1000, .. }), "{error:?}");
        assert!(!target.exists());
    }
    // What was under way when a connection was closed is sent in vain.
    let megabytes = sent.load(Ordering::Relaxed) >> 20;
    assert!(megabytes < 256, "{megabytes} MB");
}

#[tokio::test]
async fn headers_without_end_are_an_error() {
    let (url, _) = endless("X-Long: ").await;
    let once = fdl::store::Retry { tries: 1, ..quick() };
    let store = HttpStore::open_with(&url, Some(""), once).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), store.get("fdl.json")).await.unwrap();
    assert!(matches!(answer, Err(StoreError::Failed { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_listing_that_goes_in_a_circle_or_never_ends_is_an_error() {
    for circle in [true, false] {
        let s3 = S3::start(Faults::default()).await;
        let pages = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&pages);
        s3.server.rule(move |_| {
            let page = counted.fetch_add(1, Ordering::Relaxed);
            let token = if circle { page % 3 } else { page };
            let xml = format!(
                "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>\
                 </ListBucketResult>"
            );
            Act::Say(Reply::new(200).with("Content-Type", "application/xml").body(xml))
        });
        let store = s3.open("x");
        let listed = tokio::time::timeout(Duration::from_secs(60), store.list("").try_collect::<Vec<_>>()).await;
        let error = listed.unwrap().unwrap_err();
        assert!(error.to_string().contains("no end"), "{error}");
        assert!(pages.load(Ordering::Relaxed) < 1100);
    }
}
