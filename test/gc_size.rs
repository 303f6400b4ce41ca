//! The time and memory that gc takes where there is much: 1,000,000 data files and 2,000 versions. Run it by hand:
//! `cargo test --release --test gc_size -- --ignored --nocapture`.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails; a measurement is told")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use fdl::format::{Clock, DataDir, DataFile, Files, Sha256, TableFiles, VersionId, layout};
use fdl::repo::{GcOptions, LookInto, Repository, plan_gc};
use fdl::store::{Body, ConditionalWrite, ETag, MemoryStore, Object, ObjectMeta, Store, StoreError};
use futures::StreamExt;
use futures::executor::block_on;
use futures::stream::{self, BoxStream};
use support::{Bench, push_new, repository_with_clock};

const DATA_FILES: usize = 1_000_000;
const VERSIONS: usize = 2_000;
/// Each version names this many data files: half of them its own, half those of the version before.
const NAMED: usize = 2 * DATA_FILES / VERSIONS;

fn key(number: usize) -> String {
    format!("data/main/measurements/day=2026-11-29/ducklake-019a3c4e-7c1b-7d3a-9a55-{number:012x}.parquet")
}

/// A repository that makes its objects up when they are asked for, so that all memory is that of gc. One data file of a
/// thousand is named by no version.
#[derive(Debug)]
struct MadeUp {
    real: Arc<MemoryStore>,
    ids: Vec<VersionId>,
    then: DateTime<Utc>,
}

impl MadeUp {
    fn files(at: usize) -> Vec<u8> {
        let first = at * NAMED / 2;
        let file =
            |number: usize| DataFile { path: key(number % DATA_FILES), rows: 1000, bytes: 65_536, deletes: None };
        let files = (first..first + NAMED).filter(|number| number % 1000 != 0).map(file).collect();
        let table = TableFiles { schema: "main".to_owned(), table: "measurements".to_owned(), files };
        Files::new(vec![table]).print().unwrap()
    }

    fn made_up(&self, key: &str) -> Option<Vec<u8>> {
        let (id, name) = layout::in_version(key)?;
        let at = self.ids.binary_search(&id).ok()?;
        let files = Self::files(at);
        match name {
            // The catalog is the list itself, so that looking into it takes no DuckDB.
            layout::FILES_JSON | layout::CATALOG => Some(files),
            layout::VERSION_JSON => {
                let hash = Sha256::of(&files);
                Some(format!(r#"{{"fdl": "0.1", "id": "{id}", "sha256": "{hash}", "files_sha256": "{hash}"}}"#).into())
            }
            _ => None,
        }
    }
}

#[async_trait]
impl Store for MadeUp {
    fn location(&self) -> &str {
        "made up"
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        match self.made_up(key) {
            Some(bytes) => Ok(Object { etag: ETag(String::new()), bytes: bytes.into() }),
            None => self.real.get(key).await,
        }
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let meta = |key| Ok(ObjectMeta { key, size: 65_536, last_modified: self.then, etag: None });
        match prefix {
            "data/" => stream::iter(0..DATA_FILES).map(move |number| meta(key(number))).boxed(),
            layout::VERSIONS => {
                let keys = self.ids.iter().flat_map(|id| [layout::version_json(*id), layout::files(*id)]);
                stream::iter(keys).map(meta).boxed()
            }
            other => self.real.list(other),
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.real.get_range(key, range).await
    }
    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        match self.made_up(key) {
            Some(bytes) => {
                std::fs::write(target, &bytes).unwrap();
                Ok(bytes.len() as u64)
            }
            None => self.real.download(key, target, most).await,
        }
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.real.head(key).await
    }
    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.real.put(key, body).await
    }
    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.real.put_if_absent(key, bytes).await
    }
    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.real.put_if_unchanged(key, bytes, etag).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.real.delete(key).await
    }
    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.real.delete_if_unchanged(key, etag).await
    }
}

/// A figure of this process in kB: `VmHWM` is the most memory it ever had.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "takes more than a minute without optimisation"]
fn a_million_data_files_in_flat_memory() {
    let bench = Bench::new(1);
    let real = repository_with_clock(&bench);
    let mut ids: Vec<VersionId> = bench.chain(None, 1).iter().map(fdl::repo::LocalVersion::id).collect();
    while ids.len() < VERSIONS {
        let next = u128::from_be_bytes(*ids.last().unwrap().uuid().as_bytes()) + 1;
        let uuid = uuid::Uuid::from_u128(next);
        ids.push(uuid.to_string().parse().unwrap());
    }
    push_new(&bench, &real, "main", 1);
    let held = block_on(fdl::repo::list_refs(real.as_ref())).unwrap();
    ids.extend(held.refs.values());
    let then = bench.clock.now();
    bench.clock.advance(30 * 86_400);
    let repository = block_on(Repository::open(Arc::new(MadeUp { real, ids, then }))).unwrap();
    let options = GcOptions { grace: TimeDelta::days(7), ..GcOptions::default() };
    let (began, before) = (Instant::now(), memory("VmRSS"));
    let hook = |catalog: &Path| {
        let text = std::fs::read(catalog).map_err(|error| error.to_string())?;
        match text.starts_with(b"{") {
            true => Files::parse(&text, &DataDir::default()).map_err(|error| error.to_string()),
            false => (bench.look().files.unwrap())(catalog),
        }
    };
    let look = LookInto { scratch: bench.path(), files: Some(&hook) };
    let plan = block_on(plan_gc(&repository, &options, look, bench.clock.now())).unwrap();
    let (took, peak) = (began.elapsed(), memory("VmHWM") - before);
    eprintln!("{DATA_FILES} data files, {VERSIONS} versions: {took:.1?}, {} MB more at the peak", peak / 1024);
    assert_eq!(plan.rows.len(), DATA_FILES / 1000);
    assert!(peak < 256 * 1024, "{peak} kB");
}
