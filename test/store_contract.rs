//! One contract for every store: what `Store` promises, whatever is behind it.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

// One program for all tests of stores: they share their servers.
#[path = "stores/batch.rs"]
mod batch;
#[path = "stores/files.rs"]
mod files;
#[path = "stores/hostile.rs"]
mod hostile;
#[path = "stores/http.rs"]
mod http_store;
#[path = "stores/pages.rs"]
mod pages;
#[path = "stores/passing.rs"]
mod passing;
#[path = "stores/s3.rs"]
mod s3_store;
#[path = "stores/servers/mod.rs"]
mod servers;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use bytes::Bytes;
use fdl::store::{Body, ConditionalWrite, ETag, FolderStore, MemoryStore, Store, StoreError};
use files::{puts_files_once, streams_large_files, writes_a_file_only_where_nothing_is};
use futures::{StreamExt, TryStreamExt};
use servers::listed::listed;
use servers::moto;
use servers::objects::Faults;
use servers::s3::S3;
use tempfile::TempDir;

/// A store that is empty, and what it needs to stay; none when the parts for it are not there.
type FreshStore = Option<Fresh>;

struct Fresh {
    store: Arc<dyn Store>,
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

async fn memory() -> FreshStore {
    Some(Fresh { store: Arc::new(MemoryStore::new()), _kept: None })
}

async fn folder() -> FreshStore {
    let folder = TempDir::new().unwrap();
    // One that does not exist: the first write makes it.
    let root = folder.path().join("my data/répertoire");
    Some(Fresh { store: Arc::new(FolderStore::open(root.to_str().unwrap()).unwrap()), _kept: Some(Box::new(folder)) })
}

async fn s3() -> FreshStore {
    let store = moto::bucket("lake/with a prefix/日本").await?;
    Some(Fresh { store: Arc::new(store), _kept: None })
}

async fn s3_root() -> FreshStore {
    let store = moto::bucket("").await?;
    Some(Fresh { store: Arc::new(store), _kept: None })
}

async fn scripted_s3() -> FreshStore {
    let s3 = S3::start(Faults::default()).await;
    Some(Fresh { store: Arc::new(s3.open("a b/c")), _kept: Some(Box::new(s3)) })
}

async fn http() -> FreshStore {
    let (server, store) = listed().await;
    Some(Fresh { store: Arc::new(store), _kept: Some(Box::new(server)) })
}

/// Each promise is one test of each store.
macro_rules! contract {
    ($store:ident: $($promise:ident)*) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $promise() {
                    let Some(fresh) = super::$store().await else { return };
                    super::$promise(std::sync::Arc::clone(&fresh.store)).await;
                }
            )*
        }
    };
    ($store:ident) => {
        contract! { $store:
            gives_what_was_put
            replaces_what_is_there
            cuts_ranges_at_the_end
            knows_size_and_time
            lists_what_is_under_a_prefix
            takes_keys_in_any_language
            creates_only_once
            replaces_only_what_is_unchanged
            an_etag_names_the_content
            lets_one_creator_win
            lets_one_replacer_win
            deletes
            deletes_only_what_is_unchanged
            says_what_is_absent
            refuses_bad_keys
            streams_large_files
            writes_a_file_only_where_nothing_is
            keeps_a_failed_put_from_sight
            downloads
            settles
            deletes_many
            puts_files_once
        }
    };
}

contract!(memory);
contract!(folder);
contract!(s3);
contract!(s3_root);
contract!(scripted_s3);
contract!(http);

const WRITTEN: ConditionalWrite = ConditionalWrite::Written;
const REFUSED: ConditionalWrite = ConditionalWrite::Refused;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn put(store: &dyn Store, key: &str, text: &str) {
    store.put(key, Body::Bytes(bytes(text))).await.unwrap();
}

async fn text(store: &dyn Store, key: &str) -> String {
    let object = store.get(key).await.unwrap();
    String::from_utf8(object.bytes.to_vec()).unwrap()
}

async fn keys(store: &dyn Store, prefix: &str) -> BTreeSet<String> {
    let objects = store.list(prefix).map_ok(|meta| meta.key);
    objects.try_collect().await.unwrap()
}

fn set<const N: usize>(keys: [&str; N]) -> BTreeSet<String> {
    keys.map(str::to_owned).into()
}

async fn gives_what_was_put(store: Arc<dyn Store>) {
    put(&*store, "refs/heads/main", "one").await;
    put(&*store, "empty", "").await;
    assert_eq!(text(&*store, "refs/heads/main").await, "one");
    assert_eq!(text(&*store, "empty").await, "");
}

async fn replaces_what_is_there(store: Arc<dyn Store>) {
    put(&*store, "a", "a longer text").await;
    put(&*store, "a", "short").await;
    assert_eq!(text(&*store, "a").await, "short");
    assert_eq!(keys(&*store, "").await, set(["a"]));
}

async fn cuts_ranges_at_the_end(store: Arc<dyn Store>) {
    put(&*store, "digits", "0123456789").await;
    put(&*store, "empty", "").await;
    for (range, expected) in [
        (0..10, "0123456789"),
        (2..5, "234"),
        (8..20, "89"),
        (9..10, "9"),
        (0..u64::MAX, "0123456789"),
        (3..3, ""),
        (10..12, ""),
        (50..60, ""),
    ] {
        let read = store.get_range("digits", range.clone()).await.unwrap();
        assert_eq!(read, bytes(expected), "{range:?}");
    }
    assert_eq!(store.get_range("empty", 0..4).await.unwrap(), bytes(""));
}

async fn knows_size_and_time(store: Arc<dyn Store>) {
    let before = chrono::Utc::now();
    put(&*store, "data/x", "12345").await;
    let after = chrono::Utc::now();
    let listed: Vec<_> = store.list("data/").try_collect().await.unwrap();
    for meta in [store.head("data/x").await.unwrap(), listed.first().expect("an entry").clone()] {
        assert_eq!((meta.key.as_str(), meta.size), ("data/x", 5));
        // Stores and file systems keep coarser times than the clock.
        let slack = chrono::TimeDelta::seconds(2);
        assert!(before - slack <= meta.last_modified && meta.last_modified <= after + slack);
    }
}

async fn lists_what_is_under_a_prefix(store: Arc<dyn Store>) {
    assert_eq!(keys(&*store, "").await, set([]));
    for key in ["fdl.json", "refs/heads/a/b", "refs/heads/c", "refs/tags/t", "refsx", "refs.json"] {
        put(&*store, key, "x").await;
    }
    assert_eq!(keys(&*store, "").await.len(), 6);
    assert_eq!(keys(&*store, "refs/").await, set(["refs/heads/a/b", "refs/heads/c", "refs/tags/t"]));
    assert_eq!(keys(&*store, "refs/heads/a/").await, set(["refs/heads/a/b"]));
    assert_eq!(keys(&*store, "refs/heads/c/").await, set([]));
    assert_eq!(keys(&*store, "versions/").await, set([]));
    for prefix in ["/", "../", "refs", "refs//"] {
        let listed: Result<Vec<_>, _> = store.list(prefix).try_collect().await;
        assert!(matches!(listed, Err(StoreError::BadKey { .. })), "{prefix}");
    }
}

async fn takes_keys_in_any_language(store: Arc<dyn Store>) {
    let odd = [
        "data/Main/Städte & Dörfer/ducklake-1.parquet",
        "data/日本/町/年=2026/ファイル.parquet",
        "data/it's \"quoted\"/100%/x",
        "data/percent/%2F%20%/x",
        "data/signs/a+b?c#d;e:f|g*h<i>j~k`l{m}n[o]p^q$r!s@t,u",
        "data/emoji/🦆",
        "data/ leading and trailing /x ",
        "data/..dots../...",
        "data/.hidden/x",
    ];
    for key in odd {
        put(&*store, key, key).await;
    }
    for key in odd {
        assert_eq!(text(&*store, key).await, key);
        assert_eq!(store.head(key).await.unwrap().key, key);
    }
    assert_eq!(keys(&*store, "data/").await, set(odd));
    assert_eq!(keys(&*store, "data/日本/町/").await, set([odd[1]]));
    for key in odd {
        let now = store.get(key).await.unwrap();
        assert_eq!(store.put_if_absent(key, bytes("")).await.unwrap(), REFUSED, "{key}");
        assert_eq!(store.put_if_unchanged(key, bytes(""), &now.etag).await.unwrap(), WRITTEN, "{key}");
        store.delete(key).await.unwrap();
    }
    assert_eq!(keys(&*store, "").await, set([]));
}

async fn creates_only_once(store: Arc<dyn Store>) {
    let key = "refs/heads/main";
    assert_eq!(store.put_if_absent(key, bytes("one")).await.unwrap(), WRITTEN);
    assert_eq!(store.put_if_absent(key, bytes("two")).await.unwrap(), REFUSED);
    assert_eq!(store.put_if_absent(key, bytes("one")).await.unwrap(), REFUSED);
    assert_eq!(text(&*store, key).await, "one");
    store.delete(key).await.unwrap();
    assert_eq!(store.put_if_absent(key, bytes("three")).await.unwrap(), WRITTEN);
    assert_eq!(text(&*store, key).await, "three");
}

async fn replaces_only_what_is_unchanged(store: Arc<dyn Store>) {
    let key = "refs/heads/main";
    let never = ETag("never".to_owned());
    assert_eq!(store.put_if_unchanged(key, bytes("x"), &never).await.unwrap(), REFUSED);
    assert_eq!(keys(&*store, "").await, set([]));

    put(&*store, key, "one").await;
    let one = store.get(key).await.unwrap().etag;
    assert_eq!(store.put_if_unchanged(key, bytes("x"), &never).await.unwrap(), REFUSED);
    assert_eq!(store.put_if_unchanged(key, bytes("two"), &one).await.unwrap(), WRITTEN);
    assert_eq!(store.put_if_unchanged(key, bytes("three"), &one).await.unwrap(), REFUSED);
    assert_eq!(text(&*store, key).await, "two");

    let two = store.get(key).await.unwrap().etag;
    store.delete(key).await.unwrap();
    assert_eq!(store.put_if_unchanged(key, bytes("x"), &two).await.unwrap(), REFUSED);
    assert_eq!(keys(&*store, "").await, set([]));
}

async fn an_etag_names_the_content(store: Arc<dyn Store>) {
    put(&*store, "a", "one").await;
    let first = store.get("a").await.unwrap().etag;
    assert_eq!(store.get("a").await.unwrap().etag, first);
    // Same size, and within the resolution of any clock.
    put(&*store, "a", "two").await;
    assert_ne!(store.get("a").await.unwrap().etag, first);
    for meta in [store.head("a").await.unwrap(), store.settle("a").await.unwrap()] {
        if let Some(etag) = meta.etag {
            assert_eq!(etag, store.get("a").await.unwrap().etag);
        }
    }
}

async fn lets_one_creator_win(store: Arc<dyn Store>) {
    for round in 0..20 {
        let key = format!("versions/{round}/version.json");
        let winners =
            race(&store, &key, |store, key, me| async move { store.put_if_absent(&key, bytes(&me)).await.unwrap() });
        let winners = winners.await;
        assert_eq!(winners, vec![text(&*store, &key).await], "round {round}");
    }
}

async fn lets_one_replacer_win(store: Arc<dyn Store>) {
    let key = "refs/heads/main";
    put(&*store, key, "start").await;
    for round in 0..20 {
        let etag = store.get(key).await.unwrap().etag;
        let winners = race(&store, key, move |store, key, me| {
            let etag = etag.clone();
            async move {
                let content = bytes(&format!("{round} {me}"));
                store.put_if_unchanged(&key, content, &etag).await.unwrap()
            }
        });
        let winners: Vec<_> = winners.await.iter().map(|me| format!("{round} {me}")).collect();
        assert_eq!(winners, vec![text(&*store, key).await], "round {round}");
    }
}

/// Eight tasks that try the same at the same time. Gives those who won.
async fn race<F, Fut>(store: &Arc<dyn Store>, key: &str, attempt: F) -> Vec<String>
where
    F: Fn(Arc<dyn Store>, String, String) -> Fut,
    Fut: Future<Output = ConditionalWrite> + Send + 'static,
{
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let me = format!("writer {number}");
            let attempt = attempt(Arc::clone(store), key.to_owned(), me.clone());
            tokio::spawn(async move { (attempt.await, me) })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        if let (ConditionalWrite::Written, me) = task.await.unwrap() {
            winners.push(me);
        }
    }
    winners
}

async fn deletes(store: Arc<dyn Store>) {
    put(&*store, "data/a", "x").await;
    put(&*store, "data/b", "x").await;
    store.delete("data/a").await.unwrap();
    store.delete("data/a").await.unwrap();
    store.delete("never/there").await.unwrap();
    // A folder is no object.
    store.delete("data").await.unwrap();
    assert_eq!(keys(&*store, "").await, set(["data/b"]));
}

async fn deletes_only_what_is_unchanged(store: Arc<dyn Store>) {
    let key = "refs/heads/a/b";
    put(&*store, key, "one").await;
    let one = store.get(key).await.unwrap().etag;
    put(&*store, key, "two").await;
    assert_eq!(store.delete_if_unchanged(key, &one).await.unwrap(), REFUSED);
    assert_eq!(text(&*store, key).await, "two");
    let two = store.get(key).await.unwrap().etag;
    assert_eq!(store.delete_if_unchanged(key, &two).await.unwrap(), WRITTEN);
    assert_eq!(store.delete_if_unchanged(key, &two).await.unwrap(), REFUSED);
    // The name of the folder is free again.
    assert_eq!(store.put_if_absent("refs/heads/a", bytes("x")).await.unwrap(), WRITTEN);
    assert_eq!(keys(&*store, "refs/").await, set(["refs/heads/a"]));
}

async fn says_what_is_absent(store: Arc<dyn Store>) {
    let target = TempDir::new().unwrap();
    let file = target.path().join("file");
    for round in 0..2 {
        for key in ["absent", "absent/too", "data", "data/x/behind an object"] {
            let errors = [
                store.get(key).await.err(),
                store.get_range(key, 0..1).await.err(),
                store.head(key).await.err(),
                store.settle(key).await.err(),
                store.download(key, &file, u64::MAX).await.err(),
            ];
            for error in errors {
                let absent = matches!(&error, Some(StoreError::NotFound { key: named }) if named == key);
                assert!(absent, "{round} {key}: {error:?}");
            }
        }
        put(&*store, "data/x", "x").await;
    }
    assert!(!file.exists());
}

async fn refuses_bad_keys(store: Arc<dyn Store>) {
    let target = TempDir::new().unwrap();
    let file = target.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let etag = ETag("x".to_owned());
    for key in ["", "/", "/tmp/x", "a/", "a//b", "./a", "../a", "a/../../b", "a\\b", "a\0b", "a\nb", ".fdl-lock"] {
        let x = || bytes("x");
        let errors = [
            store.get(key).await.err(),
            store.get_range(key, 0..1).await.err(),
            store.head(key).await.err(),
            store.settle(key).await.err(),
            store.download(key, &file, u64::MAX).await.err(),
            store.put(key, Body::Bytes(x())).await.err(),
            store.put_if_absent(key, x()).await.err(),
            store.put_if_unchanged(key, x(), &etag).await.err(),
            store.delete(key).await.err(),
            store.delete_if_unchanged(key, &etag).await.err(),
        ];
        for error in errors {
            assert!(matches!(error, Some(StoreError::BadKey { .. })), "{key:?}: {error:?}");
        }
    }
    assert_eq!(keys(&*store, "").await, set([]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

async fn keeps_a_failed_put_from_sight(store: Arc<dyn Store>) {
    put(&*store, "a", "kept").await;
    let absent = std::path::PathBuf::from("/never/there");
    for key in ["a", "b"] {
        let error = store.put(key, Body::File(absent.clone())).await.unwrap_err();
        // Not `NotFound`, which would speak of the object.
        assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    }
    assert_eq!(text(&*store, "a").await, "kept");
    assert_eq!(keys(&*store, "").await, set(["a"]));
}

async fn downloads(store: Arc<dyn Store>) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "what was there before").unwrap();
    put(&*store, "a", "new").await;
    assert_eq!(store.download("a", &file, u64::MAX).await.unwrap(), 3);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    let nowhere = folder.path().join("absent/file");
    let error = store.download("a", &nowhere, u64::MAX).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

async fn settles(store: Arc<dyn Store>) {
    put(&*store, "data/main/t/x.parquet", "12345").await;
    let meta = store.settle("data/main/t/x.parquet").await.unwrap();
    assert_eq!((meta.key.as_str(), meta.size), ("data/main/t/x.parquet", 5));
}

async fn deletes_many(store: Arc<dyn Store>) {
    let names: Vec<_> = (0..1100).map(|number| format!("data/main/t & <u>/{number:04} 町.parquet")).collect();
    put(&*store, "kept", "x").await;
    let some = names.iter().step_by(100);
    for name in some.clone() {
        put(&*store, name, "x").await;
    }
    let asked = futures::stream::iter(names.clone()).boxed();
    let gone: Vec<String> = store.delete_all(asked).try_collect().await.unwrap();
    assert_eq!(gone, names);
    assert_eq!(keys(&*store, "").await, set(["kept"]));

    let asked = futures::stream::iter(["kept".to_owned(), "../kept".to_owned(), "absent".to_owned()]).boxed();
    let answers: Vec<_> = store.delete_all(asked).collect().await;
    let errors: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(matches!(errors[..], [StoreError::BadKey { .. }]), "{errors:?}");
    assert_eq!(keys(&*store, "").await, set([]));
}
