//! What S3 promises beyond the contract of all stores: what its answers come to, and what is sent again.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use fdl::repo::ignored_conditions;
use fdl::store::s3::S3Keys;
use fdl::store::{Body, ConditionalWrite, ETag, S3Options, S3Store, Store, StoreError, open_with};
use futures::{StreamExt, TryStreamExt};

use crate::servers::moto;
use crate::servers::objects::Faults;
use crate::servers::s3::{S3, error, quick};
use crate::servers::server::{Act, Reply, Seen, Server};

const WRITTEN: ConditionalWrite = ConditionalWrite::Written;
const REFUSED: ConditionalWrite = ConditionalWrite::Refused;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn any(_: &Seen) -> bool {
    true
}

#[tokio::test]
async fn a_conflict_is_a_refusal_and_is_not_sent_again() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    store.put("ref", Body::Bytes(bytes("one"))).await.unwrap();
    let etag = store.get("ref").await.unwrap().etag;
    for reply in [error(409, "ConditionalRequestConflict"), error(412, "PreconditionFailed"), error(404, "NoSuchKey")] {
        s3.server.take_log();
        s3.server.next(1, any, Act::Say(reply));
        assert_eq!(store.put_if_unchanged("ref", bytes("two"), &etag).await.unwrap(), REFUSED);
        assert_eq!(s3.server.take_log().len(), 1);
    }
    s3.server.next(1, any, Act::Say(error(409, "ConditionalRequestConflict")));
    assert_eq!(store.put_if_absent("new", bytes("x")).await.unwrap(), REFUSED);
    s3.server.next(1, any, Act::Say(error(404, "NoSuchBucket")));
    let gone = store.put_if_unchanged("ref", bytes("two"), &etag).await.unwrap_err();
    assert!(gone.to_string().contains("no such bucket as lake"), "{gone}");
    assert_eq!(store.put_if_unchanged("ref", bytes("two"), &etag).await.unwrap(), WRITTEN);
}

#[tokio::test]
async fn the_lost_answer_of_a_write_on_condition_is_an_error() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    s3.server.next(1, any, Act::Lose);
    let lost = store.put_if_absent("ref", bytes("one")).await.unwrap_err();
    assert!(matches!(lost, StoreError::Failed { .. }), "{lost:?}");
    assert_eq!(s3.server.take_log().len(), 1, "a second try would be refused, as if somebody else had won");
    assert_eq!(store.get("ref").await.unwrap().bytes, bytes("one"));

    // An answer that may come after the write is not tried again either.
    s3.server.take_log();
    s3.server.next(1, any, Act::Say(error(500, "InternalError")));
    assert!(matches!(store.put_if_absent("new", bytes("x")).await, Err(StoreError::Failed { .. })));
    assert_eq!(s3.server.take_log().len(), 1);
    // One that says that nothing was done is.
    s3.server.next(1, any, Act::Say(error(503, "SlowDown")));
    assert_eq!(store.put_if_absent("new", bytes("x")).await.unwrap(), WRITTEN);
    assert_eq!(s3.server.take_log().len(), 2);
}

#[tokio::test]
async fn other_requests_are_sent_again() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    for act in [Act::Lose, Act::Drop, Act::Say(error(503, "SlowDown")), Act::Say(error(500, "InternalError"))] {
        s3.server.next(3, any, act.clone());
        store.put("data/a", Body::Bytes(bytes("text"))).await.unwrap();
        s3.server.next(3, any, act.clone());
        assert_eq!(store.get("data/a").await.unwrap().bytes, bytes("text"));
        s3.server.next(3, any, act.clone());
        assert_eq!(store.list("data/").try_collect::<Vec<_>>().await.unwrap().len(), 1);
        s3.server.next(3, any, act);
        store.delete("data/a").await.unwrap();
    }
    s3.server.take_log();
    s3.server.rule(|_| Act::Say(error(503, "SlowDown")));
    let error = store.get("data/a").await.unwrap_err();
    assert!(error.to_string().contains("SlowDown"), "{error}");
    assert_eq!(s3.server.take_log().len(), 10);
}

#[tokio::test]
async fn waits_as_long_as_it_is_asked_to() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    s3.server.next(1, any, Act::Say(error(503, "SlowDown").with("Retry-After", 1)));
    let began = std::time::Instant::now();
    store.put("a", Body::Bytes(bytes("text"))).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn reads_on_after_a_connection_broke() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    let content: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    store.put("a", Body::Bytes(content.clone().into())).await.unwrap();
    s3.server.next(3, any, Act::Cut(400_000));
    s3.server.take_log();
    let read = store.get("a").await.unwrap();
    assert!(read.bytes == content);
    let ranges: Vec<_> = s3.server.take_log().iter().map(|seen| seen.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges.len(), 4);
    assert_eq!((ranges[0].as_deref(), ranges[1].as_deref()), (None, Some("bytes=400000-")));

    // Another object in between is not mixed with the first.
    let mut times = 0;
    let objects = s3.objects.clone();
    s3.server.rule(move |_| {
        times += 1;
        match times {
            1 => Act::Cut(400_000),
            _ => {
                objects.put("x/a", vec![0; 2_000_000]);
                Act::Pass
            }
        }
    });
    let error = store.get("a").await.unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
}

#[tokio::test]
async fn what_may_not_be_seen_is_no_absence() {
    let s3 = S3::start(Faults { hides_absent: true, ..Faults::default() }).await;
    let store = s3.open("x");
    for error in [store.get("a").await.unwrap_err(), store.head("a").await.unwrap_err()] {
        assert!(matches!(error, StoreError::Permission { action: "read", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_found_out() {
    for (ignores_conditions, found) in [(false, vec![]), (true, vec!["If-None-Match", "If-Match"])] {
        let s3 = S3::start(Faults { ignores_conditions, ..Faults::default() }).await;
        let store = s3.open("x");
        s3.objects.put("x/fdl.json", "{}");
        s3.objects.put("x/HEAD", "ref: refs/heads/main\n");
        assert_eq!(ignored_conditions(&store).await.unwrap(), found);
    }
    let s3 = S3::start(Faults::default()).await;
    s3.server.rule(|_| Act::Say(error(501, "NotImplemented")));
    let error = s3.open("x").put_if_absent("a", bytes("x")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unsupported { .. }), "{error:?}");
    assert_eq!(s3.server.take_log().len(), 1);
}

/// A file of three parts, the last one short.
fn large(folder: &tempfile::TempDir) -> (std::path::PathBuf, Vec<u8>) {
    let content: Vec<u8> = (0..(17_u32 << 20) + 5).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = folder.path().join("large");
    std::fs::write(&path, &content).unwrap();
    (path, content)
}

#[tokio::test]
async fn a_part_is_sent_again_from_its_first_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (path, content) = large(&folder);
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    let is_part = |seen: &Seen| seen.query("partNumber").is_some();
    s3.server.next(2, is_part, Act::Drop);
    store.put("data/large", Body::File(path.clone())).await.unwrap();
    assert!(s3.objects.get("x/data/large").unwrap().0 == content);
    assert_eq!(s3.server.take_log().iter().filter(|seen| is_part(seen)).count(), 5);

    // The answer to the last step is lost: the second time there is no such upload.
    let ends = |seen: &Seen| seen.method == "POST" && seen.query("uploadId").is_some();
    s3.server.next(1, ends, Act::Lose);
    store.put("data/other", Body::File(path.clone())).await.unwrap();
    assert!(s3.objects.get("x/data/other").unwrap().0 == content);

    // An error in an answer of 200.
    let inside = error(200, "InternalError");
    s3.server.next(1, ends, Act::Say(inside));
    store.put("data/third", Body::File(path.clone())).await.unwrap();

    // What cannot be ended is taken back.
    s3.server.take_log();
    s3.server.rule(move |seen| {
        if is_part(seen) && seen.method == "PUT" { Act::Say(error(403, "AccessDenied")) } else { Act::Pass }
    });
    let error = store.put("data/fourth", Body::File(path)).await.unwrap_err();
    assert!(matches!(error, StoreError::Permission { .. }), "{error:?}");
    assert_eq!(s3.server.take_log().iter().filter(|seen| seen.method == "DELETE").count(), 1);
    assert!(s3.objects.get("x/data/fourth").is_none());
}

#[tokio::test]
async fn a_large_file_replaces_nothing_that_came_while_it_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (path, content) = large(&folder);
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    let ends = |seen: &Seen| seen.method == "POST" && seen.query("uploadId").is_some();
    let objects = s3.objects.clone();
    s3.server.rule(move |seen| {
        if ends(seen) {
            objects.put("x/data/a", "theirs");
        }
        Act::Pass
    });
    assert_eq!(store.put_file_if_absent("data/a", &path).await.unwrap(), REFUSED);
    assert_eq!(s3.objects.get("x/data/a").unwrap().0, "theirs");
    assert_eq!(s3.server.take_log().iter().filter(|seen| seen.method == "DELETE").count(), 1, "it is taken back");

    // A lost answer looks the same: whoever asked reads back.
    s3.server.next(1, ends, Act::Lose);
    assert_eq!(store.put_file_if_absent("data/b", &path).await.unwrap(), REFUSED);
    assert!(s3.objects.get("x/data/b").unwrap().0 == content);

    // An error in an answer of 200 that passes, and one that does not.
    s3.server.next(1, ends, Act::Say(error(200, "InternalError")));
    assert_eq!(store.put_file_if_absent("data/c", &path).await.unwrap(), WRITTEN);
    assert!(s3.objects.get("x/data/c").unwrap().0 == content);
    s3.server.next(1, ends, Act::Say(error(200, "Odd")));
    let odd = store.put_file_if_absent("data/d", &path).await.unwrap_err();
    assert!(odd.to_string().contains("Odd"), "{odd}");
    s3.server.next(1, ends, Act::Say(Reply::new(200)));
    assert!(matches!(store.put_file_if_absent("data/d", &path).await, Err(StoreError::Failed { .. })));
    assert!(s3.objects.get("x/data/d").is_none());

    // A service that knows the condition of a PUT alone.
    s3.server.rule(move |seen| match ends(seen) && seen.header("if-none-match").is_some() {
        true => Act::Say(error(501, "NotImplemented")),
        false => Act::Pass,
    });
    assert_eq!(store.put_file_if_absent("data/d", &path).await.unwrap(), WRITTEN);
    assert_eq!(store.put_file_if_absent("data/d", &path).await.unwrap(), REFUSED);
}

#[tokio::test]
async fn a_service_that_passes_over_the_condition_of_the_end_is_asked_first() {
    let folder = tempfile::tempdir().unwrap();
    let (path, content) = large(&folder);
    let s3 = S3::start(Faults { ignores_conditions: true, ..Faults::default() }).await;
    let store = s3.open("x");
    assert_eq!(store.put_file_if_absent("data/a", &path).await.unwrap(), WRITTEN);
    assert!(s3.objects.get("x/data/a").unwrap().0 == content);
    // What came while it was sent.
    let objects = s3.objects.clone();
    s3.server.rule(move |seen| {
        if seen.query("partNumber").is_some() {
            objects.put("x/data/b", "theirs");
        }
        Act::Pass
    });
    assert_eq!(store.put_file_if_absent("data/b", &path).await.unwrap(), REFUSED);
    assert_eq!(s3.objects.get("x/data/b").unwrap().0, "theirs");
    // What is there is not sent again to be refused.
    s3.server.take_log();
    assert_eq!(store.put_file_if_absent("data/b", &path).await.unwrap(), REFUSED);
    assert_eq!(s3.server.take_log().iter().filter(|seen| seen.method != "HEAD").count(), 0);
}

#[tokio::test]
async fn lists_page_by_page_and_leaves_out_what_is_no_object_of_ours() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    for number in 0..30 {
        s3.objects.put(&format!("x/data/{number:02}"), "x");
    }
    for odd in ["x/data/", "x//y", "x/data//z", "x/a\nb", "xy/z", "x/data/.fdl-tmp", "x/../z"] {
        s3.objects.put(odd, "x");
    }
    let listed: Vec<_> = store.list("").try_collect().await.unwrap();
    assert_eq!(listed.len(), 30);
    let log = s3.server.take_log();
    assert_eq!((log.len(), log.last().unwrap().depth), (6, 6));
}

#[tokio::test]
async fn deletes_a_thousand_in_one_request() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    let names: Vec<_> = (0..2500).map(|number| format!("data/{number}")).collect();
    names.iter().for_each(|name| s3.objects.put(&format!("x/{name}"), "x"));
    s3.server.next(1, any, Act::Say(error(200, "SlowDown")));
    let gone: Vec<_> = store.delete_all(futures::stream::iter(names.clone()).boxed()).try_collect().await.unwrap();
    assert_eq!(gone, names);
    assert!(s3.objects.all().is_empty());
    assert_eq!(s3.server.take_log().len(), 4);

    let names = ["data/1", "data/locked"].map(str::to_owned);
    let answers: Vec<_> = store.delete_all(futures::stream::iter(names).boxed()).collect().await;
    assert!(
        matches!(&answers[..], [Ok(_), Err(StoreError::Permission { key, .. })] if key == "data/locked"),
        "{answers:?}"
    );
}

#[tokio::test]
async fn shows_no_secret() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    let refused = error(403, "SignatureDoesNotMatch");
    s3.server.rule(move |_| Act::Say(refused.clone()));
    let error = store.get("a").await.unwrap_err();
    let session = store.session().await.unwrap();
    let shown = format!("{error} {error:?} {store:?} {session:?}");
    assert!(shown.contains("SignatureDoesNotMatch") && !shown.contains("hush"), "{shown}");
    let authorization = s3.server.take_log()[0].header("authorization").unwrap().to_owned();
    assert!(authorization.contains("Credential=key/") && !shown.contains(&authorization));
}

#[tokio::test]
async fn says_how_to_reach_the_same_bucket() {
    let s3 = S3::start(Faults::default()).await;
    let session = s3.open("x").session().await.unwrap();
    assert_eq!(Some(format!("http://{}", session.endpoint.unwrap())), s3.options().endpoint);
    assert_eq!((session.region.as_str(), session.path_style, session.use_ssl), ("lab-1", true, false));
    let keys = S3Keys { access_key_id: "key".to_owned(), secret_access_key: "hush".to_owned(), session_token: None };
    assert!(session.keys == Some(keys));
}

#[tokio::test]
async fn asks_without_a_signature_when_there_are_no_credentials() {
    let s3 = S3::start(Faults::default()).await;
    s3.objects.put("x/a", "public");
    let options = fdl::store::OpenOptions {
        s3: S3Options { access_key_id: Some(String::new()), secret_access_key: None, ..s3.options() },
        ..fdl::store::OpenOptions::default()
    };
    let store = open_with("s3://lake/x/", &options).unwrap();
    assert_eq!(store.location(), "s3://lake/x");
    assert_eq!(store.get("a").await.unwrap().bytes, bytes("public"));
    assert!(store.list("").try_collect::<Vec<_>>().await.is_ok());
    let log = s3.server.take_log();
    assert!(log.iter().all(|seen| seen.header("authorization").is_none()));
    assert!(log.iter().all(|seen| seen.header("user-agent").unwrap().starts_with("fdl-duckdb/")));
}

/// Runs one of the tests below again, in a process with this environment.
fn run_again(test: &str, variables: &[(&str, &str)]) {
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("s3_store::{test}"), "--nocapture"])
        .env_remove("AWS_PROFILE")
        .env("HOME", "/nowhere")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_the_credentials_of_an_instance() {
    let s3 = S3::start(Faults::default()).await;
    let service = Server::start(|seen| match seen.path.as_str() {
        "/latest/api/token" => Reply::new(200).body("t"),
        "/latest/meta-data/iam/security-credentials/" => Reply::new(200).body("role"),
        _ => Reply::new(200).body(
            r#"{"AccessKeyId":"INSTANCE","SecretAccessKey":"s","Token":"tok","Expiration":"2126-01-01T00:00:00Z"}"#,
        ),
    })
    .await;
    let variables = [
        ("AWS_ENDPOINT_URL", s3.server.url.as_str()),
        ("AWS_REGION", "lab-1"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url.as_str()),
    ];
    s3.objects.put("x/a", "signed");
    tokio::task::block_in_place(|| run_again("reads_with_what_the_machine_has", &variables));
    let log = s3.server.take_log();
    assert!(log[0].header("authorization").unwrap().contains("Credential=INSTANCE/"));
    assert_eq!(log[0].header("x-amz-security-token"), Some("tok"));

    // A service that never answers does not hold up much.
    service.rule(|_| Act::Late(Duration::from_secs(60)));
    let began = std::time::Instant::now();
    tokio::task::block_in_place(|| run_again("reads_with_what_the_machine_has", &variables));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(s3.server.take_log()[0].header("authorization").is_none());
}

/// Run by the test above in an environment of its own; in any other it does nothing.
#[tokio::test]
async fn reads_with_what_the_machine_has() {
    if std::env::var_os("AWS_EC2_METADATA_SERVICE_ENDPOINT").is_none() {
        return;
    }
    let store = S3Store::open_with("s3://lake/x", &S3Options::default(), quick()).unwrap();
    assert_eq!(store.get("a").await.unwrap().bytes, bytes("signed"));
}

#[tokio::test]
async fn takes_back_uploads_that_nobody_ended() {
    let Some(store) = moto::bucket("lake").await else { return };
    let elsewhere = moto::begin_upload(&store, "other/data/x").await;
    moto::begin_upload(&store, "lake/data/main/a b+c").await;
    // All uploads to this server began in 2010.
    let hour = chrono::TimeDelta::hours(1);
    assert_eq!(store.sweep(chrono::DateTime::UNIX_EPOCH).await.unwrap(), 0);
    assert_eq!(store.sweep(Utc::now() + hour).await.unwrap(), 5);
    assert_eq!(store.sweep(Utc::now() + hour).await.unwrap(), 0);
    assert_eq!(moto::uploads(&store).await, vec![elsewhere]);
}

#[tokio::test]
async fn a_state_that_cannot_be_one_refuses() {
    let s3 = S3::start(Faults::default()).await;
    let store = s3.open("x");
    let odd = ETag("a\nb".to_owned());
    assert_eq!(store.put_if_unchanged("a", bytes("x"), &odd).await.unwrap(), REFUSED);
    assert!(s3.server.take_log().is_empty());
}
