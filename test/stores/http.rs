//! What a store behind a URL promises beyond the contract of all stores.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fdl::store::{Body, ConditionalWrite, HttpStore, Store, StoreError};
use futures::TryStreamExt;

use crate::servers::listed::listed;
use crate::servers::objects::{Faults, Objects, key_of};
use crate::servers::s3::quick;
use crate::servers::server::{Act, Reply, Seen, Server};

const TOKEN: &str = "hush-token";

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn any(_: &Seen) -> bool {
    true
}

fn open(url: &str) -> HttpStore {
    HttpStore::open_with(url, Some(TOKEN), quick()).unwrap()
}

/// A server of objects at `/r`.
async fn host() -> (Server, Objects, HttpStore) {
    let objects = Objects::default();
    let app = {
        let objects = objects.clone();
        move |seen: &Seen| objects.answer(&key_of(&seen.path, "/r").unwrap(), seen, Faults::default())
    };
    let server = Server::start(app).await;
    let store = open(&format!("{}/r", server.url));
    (server, objects, store)
}

fn json(status: u16, text: &'static str) -> Reply {
    Reply::new(status).with("Content-Type", "application/json").body(text)
}

#[tokio::test]
async fn sends_the_token_and_its_own_name() {
    let (server, objects, store) = host().await;
    objects.put("refs/heads/main", "x");
    store.get("refs/heads/main").await.unwrap();
    store.put("a b/日本.json", Body::Bytes(bytes("{}"))).await.unwrap();
    let log = server.take_log();
    for seen in &log {
        assert_eq!(seen.header("authorization"), Some("Bearer hush-token"));
        assert!(seen.header("user-agent").unwrap().starts_with("fdl-duckdb/"));
    }
    assert_eq!(log[1].path, "/r/a%20b/%E6%97%A5%E6%9C%AC.json");
    assert_eq!(log[1].header("content-type"), Some("application/json"));

    let anonymous = HttpStore::open(&format!("{}/r", server.url), Some("")).unwrap();
    anonymous.get("refs/heads/main").await.unwrap();
    assert_eq!(server.take_log()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_redirect_never_carries_the_token_elsewhere() {
    let (server, objects, store) = host().await;
    let (other, other_objects, _) = host().await;
    let elsewhere = format!("{}/r/moved?sig=hush", other.url);
    for status in [301, 302, 303, 307, 308] {
        other_objects.put("moved", "there");
        let reply = Reply::new(status).with("Location", &elsewhere);
        server.next(1, any, Act::Say(reply));
        assert_eq!(store.get("a").await.unwrap().bytes, bytes("there"));
        let seen = other.take_log();
        assert_eq!((seen.len(), seen[0].header("authorization")), (1, None));
    }
    // On the same origin it goes along, but not back to it from elsewhere.
    objects.put("b", "here");
    server.next(1, any, Act::Say(Reply::new(302).with("Location", "/r/b")));
    server.take_log();
    assert_eq!(store.get("a").await.unwrap().bytes, bytes("here"));
    assert!(server.take_log().iter().all(|seen| seen.header("authorization").is_some()));
    server.next(1, any, Act::Say(Reply::new(302).with("Location", &elsewhere)));
    other.next(1, any, Act::Say(Reply::new(302).with("Location", format!("{}/r/b", server.url))));
    assert_eq!(store.get("a").await.unwrap().bytes, bytes("here"));
    assert_eq!(server.take_log().last().unwrap().header("authorization"), None);

    // Writes are not sent elsewhere, and nothing goes round for ever.
    let reply = Reply::new(307).with("Location", &elsewhere);
    server.rule(move |_| Act::Say(reply.clone()));
    other.take_log();
    let error = store.put("a", Body::Bytes(bytes("x"))).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }) && !error.to_string().contains("hush"), "{error}");
    assert!(other.take_log().is_empty());
    server.rule(|_| Act::Say(Reply::new(302).with("Location", "/r/a")));
    assert!(store.get("a").await.is_err());
    server.rule(|_| Act::Say(Reply::new(302).with("Location", "ftp://hush/")));
    assert!(!store.get("a").await.unwrap_err().to_string().contains("hush"));
}

#[tokio::test]
async fn keeps_the_reason_of_a_host() {
    let (server, objects, store) = host().await;
    objects.put("refs/heads/main", "one");
    let etag = store.get("refs/heads/main").await.unwrap().etag;
    server.take_log();
    server.next(1, any, Act::Say(json(409, r#"{"error":"incomplete","message":"data/main/t/x.parquet is missing"}"#)));
    match store.put_if_unchanged("refs/heads/main", bytes("two"), &etag).await.unwrap_err() {
        StoreError::Rejected { key, status, reason, .. } => {
            assert_eq!((key.as_str(), status), ("refs/heads/main", 409));
            assert_eq!(reason, "data/main/t/x.parquet is missing (incomplete)");
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(server.take_log().len(), 1);

    let reply = json(403, r#"{"error":"read-only","message":"your hush-token may not write"}"#);
    server.next(1, any, Act::Say(reply));
    let StoreError::Permission { source, .. } = store.put_if_absent("refs/heads/b", bytes("x")).await.unwrap_err()
    else {
        panic!()
    };
    assert!(source.to_string().contains("may not write") && !source.to_string().contains("hush"), "{source}");
    for (status, action) in [(401, "read"), (403, "read")] {
        server.next(1, any, Act::Say(Reply::new(status)));
        let error = store.get("a").await.unwrap_err();
        assert!(matches!(error, StoreError::Permission { action: now, .. } if now == action), "{error:?}");
    }
}

#[tokio::test]
async fn the_lost_answer_of_a_write_on_condition_is_an_error() {
    let (server, objects, store) = host().await;
    server.next(1, any, Act::Lose);
    let lost = store.put_if_absent("refs/heads/main", bytes("one")).await.unwrap_err();
    assert!(matches!(lost, StoreError::Failed { .. }), "{lost:?}");
    assert_eq!(server.take_log().len(), 1);
    assert_eq!(objects.get("refs/heads/main").unwrap().0, bytes("one"));
    let etag = store.get("refs/heads/main").await.unwrap().etag;
    server.take_log();
    for act in [Act::Lose, Act::Say(Reply::new(502))] {
        server.next(1, any, act);
        assert!(matches!(store.delete_if_unchanged("refs/heads/main", &etag).await, Err(StoreError::Failed { .. })));
        assert_eq!(server.take_log().len(), 1);
    }
    for act in [Act::Lose, Act::Drop, Act::Say(Reply::new(500)), Act::Say(Reply::new(429))] {
        server.next(2, any, act);
        store.put("a", Body::Bytes(bytes("x"))).await.unwrap();
        assert_eq!(server.take_log().len(), 3);
    }
}

#[tokio::test]
async fn waits_as_long_as_it_is_asked_to() {
    let (server, objects, store) = host().await;
    objects.put("a", "x");
    server.next(1, any, Act::Say(Reply::new(429).with("Retry-After", 1)));
    let began = Instant::now();
    store.get("a").await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    // Longer than fdl waits at all: the answer is given as it is.
    server.rule(|_| Act::Say(Reply::new(503).with("Retry-After", 3600)));
    server.take_log();
    assert!(matches!(store.get("a").await, Err(StoreError::Failed { .. })));
    assert_eq!(server.take_log().len(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_waited_for_long() {
    let (server, _, store) = host().await;
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let error = store.put_if_absent("a", bytes("x")).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }) && began.elapsed() < Duration::from_secs(5), "{error}");
}

#[tokio::test]
async fn reads_on_after_a_connection_broke() {
    let (server, objects, store) = host().await;
    let content: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    objects.put("a", content.clone());
    server.next(3, any, Act::Cut(400_000));
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    assert_eq!(store.download("a", &target, u64::MAX).await.unwrap(), 2_000_000);
    assert!(std::fs::read(&target).unwrap() == content);
    let log = server.take_log();
    assert_eq!((log.len(), log[3].header("range")), (4, Some("bytes=1200000-")));

    let mut times = 0;
    server.rule(move |_| {
        times += 1;
        if times == 1 { Act::Cut(400_000) } else { Act::Say(Reply::new(200).with("ETag", "\"other\"").body("other")) }
    });
    let error = store.get("a").await.unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
}

/// A server that knows GET and nothing else: no ranges, no states, no HEAD.
fn plain(objects: &Objects) -> impl Fn(&Seen) -> Reply + Send + Sync + use<> {
    let objects = objects.clone();
    move |seen| match (seen.method.as_str(), objects.get(&key_of(&seen.path, "").unwrap())) {
        ("GET", Some((bytes, _))) => Reply::new(200).body(bytes),
        ("GET", None) => Reply::new(404).body("<html>no</html>"),
        _ => Reply::new(501),
    }
}

#[tokio::test]
async fn reading_needs_get_alone() {
    let objects = Objects::default();
    let server = Server::start(plain(&objects)).await;
    let store = open(&server.url);
    objects.put("a", "0123456789");
    let read = store.get("a").await.unwrap();
    assert_eq!(read.bytes, bytes("0123456789"));
    assert_eq!(store.head("a").await.unwrap().size, 10);
    for (range, expected) in [(2..5, "234"), (8..20, "89"), (50..60, ""), (3..3, "")] {
        assert_eq!(store.get_range("a", range.clone()).await.unwrap(), bytes(expected), "{range:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(store.download("a", &folder.path().join("x"), u64::MAX).await.unwrap(), 10);
    assert!(matches!(store.head("b").await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.list("").try_collect::<Vec<_>>().await, Err(StoreError::Unsupported { .. })));

    let writes = [
        store.put("a", Body::Bytes(bytes("x"))).await.err(),
        store.put_if_absent("b", bytes("x")).await.err(),
        store.put_if_unchanged("a", bytes("x"), &read.etag).await.err(),
        store.delete("a").await.err(),
    ];
    for error in writes {
        assert!(matches!(error, Some(StoreError::Unsupported { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn knows_the_size_of_an_empty_object_without_head() {
    let (server, objects, store) = host().await;
    objects.put("empty", "");
    objects.put("a", "12345");
    server.rule(|seen| if seen.method == "HEAD" { Act::Say(Reply::new(405)) } else { Act::Pass });
    assert_eq!(store.head("empty").await.unwrap().size, 0);
    assert_eq!(store.head("a").await.unwrap().size, 5);
    assert!(matches!(store.head("absent").await, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn a_weak_state_is_none() {
    let server = Server::start(|_| Reply::new(200).with("ETag", "W/\"1\"").body("x")).await;
    let store = open(&server.url);
    let object = store.get("a").await.unwrap();
    let error = store.put_if_unchanged("a", bytes("y"), &object.etag).await.unwrap_err();
    assert!(matches!(error, StoreError::Unsupported { .. }), "{error:?}");
    assert_eq!(store.head("a").await.unwrap().etag, None);
}

#[tokio::test]
async fn a_file_is_streamed_with_its_size_and_sent_again_from_its_first_byte() {
    let (server, objects, store) = host().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &content).unwrap();
    server.next(2, any, Act::Drop);
    store.put("data/main/t/x.parquet", Body::File(path)).await.unwrap();
    let log = server.take_log();
    assert_eq!(log.len(), 3);
    assert!(log.iter().all(|seen| seen.body == content && seen.header("content-length") == Some("4000000")));
    assert_eq!(log[0].header("content-type"), Some("application/vnd.apache.parquet"));
    assert!(objects.get("data/main/t/x.parquet").unwrap().0 == content);
}

#[tokio::test]
async fn shows_no_token() {
    let (server, _, store) = host().await;
    let shown = Arc::<Mutex<String>>::default();
    server.rule(|seen| Act::Say(Reply::new(500).body(seen.header("authorization").unwrap().to_owned())));
    for error in [store.get("a").await.unwrap_err(), store.put_if_absent("a", bytes("x")).await.unwrap_err()] {
        shown.lock().unwrap().push_str(&format!("{error} {error:?} "));
    }
    shown.lock().unwrap().push_str(&format!("{store:?} {}", store.location()));
    assert!(!shown.lock().unwrap().contains("hush"), "{}", shown.lock().unwrap());
    let error = HttpStore::open("http://h", Some("hush token")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
}

#[tokio::test]
async fn a_lost_race_is_a_refusal() {
    let (server, store) = listed().await;
    assert_eq!(store.put_if_absent("a", bytes("one")).await.unwrap(), ConditionalWrite::Written);
    server.next(1, any, Act::Say(json(412, r#"{"error":"moved","message":"somebody was faster"}"#)));
    assert_eq!(store.put_if_absent("b", bytes("x")).await.unwrap(), ConditionalWrite::Refused);
}

/// As nginx does it: the answer comes when the head has been read, and the content is not.
#[tokio::test]
async fn hears_a_server_that_does_not_want_the_rest() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let store = open(&format!("http://{}/r", listener.local_addr().unwrap()));
    let server = tokio::spawn(async move {
        let mut times = 0;
        while let Ok((mut connection, _)) = listener.accept().await {
            times += 1;
            let mut buffer = vec![0; 4096];
            let read = connection.read(&mut buffer).await.unwrap();
            assert!(read > 0 && times == 1);
            let answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            connection.write_all(answer.as_bytes()).await.unwrap();
            connection.shutdown().await.unwrap();
            // What is on its way is thrown away for a while.
            drop(
                tokio::time::timeout(
                    Duration::from_millis(200),
                    tokio::io::copy(&mut connection, &mut tokio::io::sink()),
                )
                .await,
            );
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; 50 << 20]).unwrap();
    let error = store.put("data/x", Body::File(path)).await.unwrap_err();
    assert!(matches!(error, StoreError::Rejected { status: 413, .. }), "{error:?}");
    server.abort();
}

#[tokio::test]
async fn a_server_that_answers_no_head_is_asked_by_get() {
    for status in [403, 404, 405, 501] {
        let (server, objects, store) = host().await;
        objects.put("fdl.json", "{}");
        objects.put("data/a", "12345");
        objects.put("data/empty", "");
        server.rule(move |seen| if seen.method == "HEAD" { Act::Say(Reply::new(status)) } else { Act::Pass });
        assert_eq!(store.head("data/a").await.unwrap().size, 5, "{status}");
        assert_eq!(store.head("data/empty").await.unwrap().size, 0, "{status}");
        assert!(matches!(store.head("data/absent").await, Err(StoreError::NotFound { .. })), "{status}");
        let heads = server.take_log().iter().filter(|seen| seen.method == "HEAD").count();
        assert!(heads <= 3, "{status}: {heads}");
    }
    // One that does is believed, after one more question at the most.
    let (server, objects, store) = host().await;
    objects.put("fdl.json", "{}");
    for key in ["a", "b", "c"] {
        assert!(matches!(store.head(key).await, Err(StoreError::NotFound { .. })));
    }
    assert_eq!(server.take_log().len(), 4);
}

#[tokio::test]
async fn reads_what_comes_in_gzip() {
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x4a\x4b\xc9\x51\xb2\x52\x50\x32\xd0\x33\x54\xaa\x05\x00\xc1\x1b\xc7\x3b\x0e\x00\x00\x00";
    let server =
        Server::start(|_| Reply::new(200).with("Content-Encoding", "gzip").with("ETag", "\"z\"").body(GZIP)).await;
    let store = open(&server.url);
    let object = store.get("fdl.json").await.unwrap();
    assert_eq!(object.bytes, bytes(r#"{"fdl": "0.1"}"#));
    assert_eq!(store.head("fdl.json").await.unwrap().size, 14);
    assert!(server.take_log().iter().all(|seen| seen.header("accept-encoding") == Some("identity")));
}

#[tokio::test]
async fn headers_of_the_caller_go_where_the_token_goes() {
    let (server, objects, _) = host().await;
    let (other, other_objects, _) = host().await;
    objects.put("a/b", "x");
    other_objects.put("moved", "there");
    let own = [("Authorization".to_owned(), "Basic aHVzaA==".to_owned()), ("X-Key".to_owned(), "hush".to_owned())];
    let store = HttpStore::open_with_headers(&format!("{}/r", server.url), Some(""), &own, quick()).unwrap();
    // A redirect by a relative address stays here.
    server.next(1, |seen| seen.path == "/r/a/c", Act::Say(Reply::new(302).with("Location", "b")));
    assert_eq!(store.get("a/c").await.unwrap().bytes, bytes("x"));
    for seen in server.take_log() {
        assert_eq!((seen.header("authorization"), seen.header("x-key")), (Some("Basic aHVzaA=="), Some("hush")));
    }
    server.next(1, any, Act::Say(Reply::new(302).with("Location", format!("{}/r/moved", other.url))));
    assert_eq!(store.get("a/b").await.unwrap().bytes, bytes("there"));
    let seen = &other.take_log()[0];
    assert_eq!((seen.header("authorization"), seen.header("x-key")), (None, None));
    assert!(!format!("{store:?}").contains("hush"));
    // A user and a password in the place of a token.
    let store = HttpStore::open_with(&format!("{}/r", server.url), Some("Basic dTpw"), quick()).unwrap();
    server.take_log();
    store.get("a/b").await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(server.take_log()[0].header("authorization"), Some("Basic dTpw"));
    for odd in [("X Y", "v"), ("X", "hush\n")] {
        let error = HttpStore::open_with_headers(&server.url, None, &[(odd.0.to_owned(), odd.1.to_owned())], quick());
        assert!(!format!("{:?}", error.unwrap_err()).contains("hush"));
    }
}

#[tokio::test]
async fn says_when_a_server_speaks_no_tls() {
    let server = Server::start(|_| Reply::new(200)).await;
    let store = open(&server.url.replace("http://", "https://"));
    let error = store.get("a").await.unwrap_err().to_string();
    assert!(error.contains("does not speak TLS") && error.contains("http://"), "{error}");
}

#[tokio::test]
async fn says_how_long_a_server_wants_to_be_left_alone() {
    let (server, _, store) = host().await;
    server.rule(|_| Act::Say(Reply::new(503).with("Retry-After", 3600)));
    let error = store.get("a").await.unwrap_err().to_string();
    assert!(error.contains("asks to try again in 3600 s"), "{error}");
}
