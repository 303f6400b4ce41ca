//! Versions with catalogs in more than one DuckLake format: pushed, read, damaged, taken away.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::future::poll_fn;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use fdl::format::{CatalogEntry, Clock, DataDir, Record, Sha256, VersionId, layout};
use fdl::repo::{
    CatalogTarget, Expected, ExpireOptions, LocalVersion, RepoError, Resolved, open_version, plan_expire, read_record,
    run_expire,
};
use fdl::store::{Body, ConditionalWrite, ETag, MemoryStore, Object, ObjectMeta, Store, StoreError};
use futures::executor::block_on;
use futures::stream::BoxStream;
use support::{Bench, Reads, repository};

const NEITHER: Reads = Reads(&["9.9"]);
const OLD: Reads = Reads(&["0.3"]);
const NEW: Reads = Reads(&["1.0"]);
const BOTH: Reads = Reads(&["0.3", "1.0"]);

/// The folder of a version whose ducklake.duckdb is in 1.0 and that has a catalog in 0.3.
fn folder(bench: &Bench, parent: Option<VersionId>) -> std::path::PathBuf {
    let folder = bench.version_folder(parent, &[]);
    let id: VersionId = folder.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let mut record = Record::parse(id, &fs::read(folder.join(layout::VERSION_JSON)).unwrap()).unwrap();
    let catalog = format!("the old catalog of {id}");
    fs::create_dir(folder.join(layout::CATALOGS)).unwrap();
    fs::write(folder.join("catalogs/0.3.duckdb"), &catalog).unwrap();
    let entry = CatalogEntry { sha256: Sha256::of(catalog.as_bytes()), size: Some(catalog.len() as u64) };
    record.catalogs.insert("0.3".to_owned(), entry);
    fs::write(folder.join(layout::VERSION_JSON), record.print().unwrap()).unwrap();
    folder
}

/// A repository with two such versions on `main`.
fn published(bench: &Bench) -> (Arc<MemoryStore>, Vec<VersionId>) {
    let store = repository(bench);
    let first = LocalVersion::load(&folder(bench, None), &DataDir::default()).unwrap();
    let second = LocalVersion::load(&folder(bench, Some(first.id())), &DataDir::default()).unwrap();
    let ids = vec![first.id(), second.id()];
    block_on(bench.push(store.clone(), "main", Expected::Absent, &[first, second])).unwrap();
    (store, ids)
}

fn read(bench: &Bench, store: &MemoryStore, id: VersionId, reader: &Reads, max_size: u64) -> Result<String, RepoError> {
    let path = bench.path().join("catalog");
    let target = CatalogTarget { reader, path: &path, max_size };
    block_on(open_version(store, &Resolved::of_version(id), Some(target)))?;
    Ok(fs::read_to_string(&path).unwrap())
}

#[test]
fn each_reader_gets_the_newest_that_it_reads() {
    let bench = Bench::new(1);
    let (store, ids) = published(&bench);
    for id in ids {
        assert_eq!(read(&bench, &store, id, &OLD, 1000).unwrap(), format!("the old catalog of {id}"));
        for reader in [NEW, BOTH] {
            assert_eq!(read(&bench, &store, id, &reader, 1000).unwrap(), format!("the catalog of {id}"));
        }
        let error = read(&bench, &store, id, &OLD, 3).unwrap_err();
        assert!(matches!(error, RepoError::TooLarge { size: Some(_), limit: 3, .. }), "{error:?}");
        let error = read(&bench, &store, id, &NEITHER, 1000).unwrap_err();
        assert!(matches!(&error, RepoError::OtherFormats { formats, .. } if formats == &["1.0", "0.3"]), "{error}");
        assert!(
            error.to_string().ends_with("is published in DuckLake 1.0 and 0.3, and this reader reads 9.9"),
            "{error}"
        );
    }
}

/// A store whose downloads of ducklake.duckdb are still under way when everything else has been answered.
#[derive(Debug)]
struct Slow(Arc<MemoryStore>, Mutex<Option<PathBuf>>);

#[async_trait]
impl Store for Slow {
    fn location(&self) -> &str {
        self.0.location()
    }
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        self.0.list(prefix)
    }
    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        let mut asked = false;
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.0.get(key).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.0.get_range(key, range).await
    }
    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        if key.ends_with(layout::CATALOG) {
            *self.1.lock().unwrap() = Some(target.to_owned());
            std::future::pending::<()>().await;
        }
        self.0.download(key, target, most).await
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.head(key).await
    }
    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.0.put(key, body).await
    }
    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.0.put_if_absent(key, bytes).await
    }
    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.0.put_if_unchanged(key, bytes, etag).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.0.delete(key).await
    }
    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.0.delete_if_unchanged(key, etag).await
    }
}

#[test]
fn a_download_that_nobody_waits_for_writes_over_nothing() {
    let bench = Bench::new(9);
    let (store, ids) = published(&bench);
    let slow = Slow(store, Mutex::new(None));
    let path = bench.path().join("catalog");
    let target = CatalogTarget { reader: &OLD, path: &path, max_size: 1000 };
    block_on(open_version(&slow, &Resolved::of_version(ids[0]), Some(target))).unwrap();
    let late = slow.1.lock().unwrap().take().expect("it is asked for beside the record");
    fs::write(late, "what comes late").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("the old catalog of {}", ids[0]));
}

#[test]
fn a_damaged_one_stops_the_reader_who_needs_it() {
    let bench = Bench::new(2);
    let (store, ids) = published(&bench);
    let key = layout::other_catalog(ids[0], "0.3");
    block_on(store.put(&key, Body::Bytes("other".into()))).unwrap();
    for _ in 0..2 {
        let error = read(&bench, &store, ids[0], &OLD, 1000).unwrap_err();
        assert!(matches!(&error, RepoError::Corrupt { object, .. } if object == &key), "{error}");
        assert!(read(&bench, &store, ids[0], &NEW, 1000).is_ok());
        block_on(store.delete(&key)).unwrap();
    }
}

#[test]
fn a_version_without_a_catalog_that_its_record_names_is_not_pushed() {
    let bench = Bench::new(3);
    for damage in [|path: &std::path::Path| fs::remove_file(path), |path: &std::path::Path| fs::write(path, "other")] {
        let folder = folder(&bench, None);
        damage(&folder.join("catalogs/0.3.duckdb")).unwrap();
        let error = LocalVersion::load(&folder, &DataDir::default()).unwrap_err();
        assert!(matches!(&error, RepoError::Corrupt { object, .. } if object.ends_with("0.3.duckdb")), "{error}");
    }
}

#[test]
fn they_go_with_the_version() {
    let bench = Bench::new(4);
    let (store, ids) = published(&bench);
    let options = ExpireOptions { versions: vec![ids[0]], ..ExpireOptions::default() };
    let plan = block_on(plan_expire(store.as_ref(), &options, bench.clock.now())).unwrap();
    block_on(run_expire(store.as_ref(), plan, None, bench.clock.now())).unwrap();
    for key in [layout::catalog(ids[0]), layout::other_catalog(ids[0], "0.3")] {
        assert!(block_on(store.get(&key)).is_err(), "{key}");
    }
    assert_eq!(block_on(read_record(store.as_ref(), ids[0])).unwrap().catalogs.len(), 1);
    assert!(block_on(store.get(&layout::other_catalog(ids[1], "0.3"))).is_ok());
}
