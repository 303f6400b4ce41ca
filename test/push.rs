//! What a push checks, refuses and leaves alone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::{DataDir, FormatError, RefName, layout};
use fdl::repo::{DataSource, Expected, LocalVersion, Push, PushOutcome, RepoError, Repository, publish};
use fdl::store::fault::{Call, Fault};
use fdl::store::{Body, FaultStore, MemoryStore, Store};
use futures::executor::block_on;
use support::{Bench, Careless, read_everything, repository, write_data};

fn main_branch() -> RefName {
    RefName::branch("main").unwrap()
}

/// A repository whose `main` has this many versions.
fn with_versions(bench: &Bench, count: usize) -> (Arc<MemoryStore>, Vec<LocalVersion>) {
    let store = repository(bench);
    let chain = bench.chain(None, count);
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    (store, chain)
}

fn put(store: &MemoryStore, key: &str, text: impl Into<String>) {
    block_on(store.put(key, Body::Bytes(text.into().into()))).unwrap();
}

fn text(store: &MemoryStore, key: &str) -> String {
    String::from_utf8(block_on(store.get(key)).unwrap().bytes.to_vec()).unwrap()
}

#[test]
fn a_local_version_is_checked_before_it_is_pushed() {
    let bench = Bench::new(8);
    let data = DataDir::default();
    let file = [("data/main/t/a.parquet", 3)];
    for name in ["ducklake.duckdb", "dataset.json", "files.json", "version.json"] {
        let folder = bench.version_folder(None, &file);
        assert!(LocalVersion::load(&folder, &data).is_ok());
        let mut bytes = std::fs::read(folder.join(name)).unwrap();
        bytes[5] ^= 1;
        std::fs::write(folder.join(name), bytes).unwrap();
        let changed = LocalVersion::load(&folder, &data);
        assert!(matches!(changed, Err(RepoError::Corrupt { .. } | RepoError::UnsupportedVersion { .. })), "{name}");
        std::fs::remove_file(folder.join(name)).unwrap();
        assert!(matches!(LocalVersion::load(&folder, &data), Err(RepoError::Corrupt { .. })), "{name}");
    }
    // Under another name, and with data files elsewhere.
    let folder = bench.version_folder(None, &file);
    let elsewhere = bench.path().join("019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10");
    std::fs::rename(&folder, &elsewhere).unwrap();
    assert!(matches!(LocalVersion::load(&elsewhere, &data), Err(RepoError::Corrupt { .. })));
    for path in ["data/../fdl.json", "/etc/passwd", "versions/x", "s3://other/x"] {
        let folder = bench.version_folder(None, &[(path, 3)]);
        let error = LocalVersion::load(&folder, &data).unwrap_err();
        assert!(matches!(error, RepoError::Format(FormatError::BadPath { .. })), "{error}");
    }
}

#[test]
fn nothing_is_published_without_its_data_files() {
    let bench = Bench::new(9);
    let (store, chain) = with_versions(&bench, 1);
    let base = chain[0].id();
    let next = bench.chain(Some(base), 1);
    let push = || block_on(bench.push(store.clone(), "main", Expected::Exactly(base), &next));
    let before = store.contents();
    assert!(matches!(push(), Err(RepoError::Corrupt { .. })), "missing");
    put(&store, next[0].files.iter().next().unwrap().0, "longer than it should be");
    assert!(matches!(push(), Err(RepoError::Corrupt { .. })), "of another size");
    assert_eq!(store.contents().len(), before.len() + 1, "nothing else was written");
    write_data(&store, &next);
    assert_eq!(push().unwrap().outcome, PushOutcome::Pushed);
}

#[test]
fn a_push_that_takes_long_looks_at_its_data_files_again() {
    let bench = Arc::new(Bench::new(10));
    let (store, chain) = with_versions(&bench, 1);
    let base = chain[0].id();
    let next = bench.chain(Some(base), 1);
    for (seconds, lost) in [(7200, true), (60, false)] {
        let store = Arc::new(store.fork(chrono::Utc::now));
        write_data(&store, &next);
        let (clock, below) = (bench.clock.clone(), store.clone());
        let key = next[0].files.iter().next().unwrap().0.to_owned();
        // The data file is swept away while the record is written.
        let slow = FaultStore::new(store.clone(), move |call: Call<'_>| {
            if call.key.ends_with("version.json") && call.verb.is_write() {
                clock.advance(seconds);
                drop(futures::FutureExt::now_or_never(below.delete(&key)));
            }
            Fault::None
        });
        let result = block_on(bench.push(Arc::new(slow), "main", Expected::Exactly(base), &next));
        assert_eq!(result.is_err(), lost, "{result:?}");
        if lost {
            assert_eq!(read_everything(&store)[&main_branch()], base);
        }
    }
}

#[test]
fn what_is_written_once_is_never_replaced() {
    let bench = Bench::new(11);
    let (store, chain) = with_versions(&bench, 1);
    let base = chain[0].id();
    for key in [layout::catalog, layout::dataset, layout::files, layout::version_json] {
        let store = Arc::new(store.fork(chrono::Utc::now));
        let next = bench.chain(Some(base), 1);
        write_data(&store, &next);
        let key = key(next[0].id());
        put(&store, &key, "something else");
        let result = block_on(bench.push(store.clone(), "main", Expected::Exactly(base), &next));
        assert!(matches!(&result, Err(RepoError::Corrupt { object, .. }) if *object == key), "{result:?}");
        assert_eq!(text(&store, &key), "something else");
        assert_eq!(read_everything(&store)[&main_branch()], base);
    }
}

#[test]
fn data_files_are_sent_from_a_folder_once() {
    let bench = Bench::new(12);
    let store = repository(&bench);
    let data = bench.path().join("data");
    std::fs::create_dir_all(data.join("main/t")).unwrap();
    std::fs::write(data.join("main/t/a b.parquet"), "abc").unwrap();
    let chain = [bench.version(None, &[("data/main/t/a b.parquet", 3), ("data/main/t/there.parquet", 3)])];
    put(&store, "data/main/t/there.parquet", "xyz");
    let repository = block_on(Repository::open(store.clone())).unwrap();
    let push = Push {
        reference: main_branch(),
        expected: Expected::Absent,
        chain: &chain,
        base: None,
        base_files: None,
        data: DataSource::Folder(data.clone()),
    };
    let report = block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap();
    assert_eq!((report.files_uploaded, report.bytes_uploaded, report.files_skipped), (1, 3, 1));
    assert_eq!(text(&store, "data/main/t/a b.parquet"), "abc");
    let next = [bench.version(Some(chain[0].id()), &[("data/main/t/missing.parquet", 3)])];
    let push = Push { chain: &next, expected: Expected::Exactly(chain[0].id()), ..push };
    let error = block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap_err();
    assert!(matches!(error, RepoError::Corrupt { .. }), "{error}");
}

#[test]
fn a_large_catalog_is_streamed_and_survives_a_stop() {
    let bench = Bench::new(13);
    let store = repository(&bench);
    let folder = bench.version_folder(None, &[]);
    let catalog = vec![7; 9 << 20];
    let record = std::fs::read_to_string(folder.join("version.json")).unwrap();
    let old = std::fs::read(folder.join("ducklake.duckdb")).unwrap();
    let hash = |bytes: &[u8]| fdl::format::Sha256::of(bytes).to_string();
    let record = record
        .replace(&hash(&old), &hash(&catalog))
        .replace(&format!("\"size\": {}", old.len()), &format!("\"size\": {}", catalog.len()));
    std::fs::write(folder.join("version.json"), record).unwrap();
    std::fs::write(folder.join("ducklake.duckdb"), &catalog).unwrap();
    let chain = [LocalVersion::load(&folder, &DataDir::default()).unwrap()];
    // Two writes try the store.
    let stopped = Arc::new(FaultStore::stop_after_write(store.clone(), 6));
    assert!(block_on(bench.push(stopped, "main", Expected::Absent, &chain)).is_err());
    assert!(store.contents().contains_key(&layout::version_json(chain[0].id())));
    // What lies there and is another is never replaced, also when it has the same size.
    let key = layout::catalog(chain[0].id());
    let put = |bytes: &[u8]| block_on(store.put(&key, Body::Bytes(bytes.to_vec().into()))).unwrap();
    for other in [vec![8; 9 << 20], vec![7; (9 << 20) + 1]] {
        put(&other);
        block_on(store.delete(&layout::version_json(chain[0].id()))).unwrap();
        let error = block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap_err();
        assert!(matches!(&error, RepoError::Corrupt { object, .. } if *object == key), "{error}");
        assert!(store.contents()[&key] == other);
    }
    put(&catalog);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    assert_eq!(read_everything(&store)[&main_branch()], chain[0].id());
}

#[test]
fn a_branch_moves_only_forward_and_only_a_branch() {
    let bench = Bench::new(14);
    let (store, chain) = with_versions(&bench, 2);
    let (old, new) = (chain[0].id(), chain[1].id());
    // Built on the old version, though the caller says it knows of the new one.
    let side = bench.chain(Some(old), 1);
    write_data(&store, &side);
    for expected in [Expected::Exactly(old), Expected::Exactly(new), Expected::Absent] {
        let result = block_on(bench.push(store.clone(), "main", expected, &side));
        assert!(matches!(result, Err(RepoError::Conflict { now, .. }) if now == Some(new)), "{result:?}");
    }
    let broken = [side[0].clone(), bench.version(None, &[])];
    let result = block_on(bench.push(store.clone(), "main", Expected::Exactly(new), &broken));
    assert!(matches!(result, Err(RepoError::Corrupt { .. })));
    let repository = block_on(Repository::open(store.clone())).unwrap();
    let push = Push {
        reference: RefName::tag("v1").unwrap(),
        expected: Expected::Absent,
        chain: &side,
        base: None,
        base_files: None,
        data: DataSource::InPlace,
    };
    let result = block_on(publish(&repository, &push, bench.clock.as_ref()));
    assert!(matches!(result, Err(RepoError::WrongKind { .. })));
    // A new branch may begin anywhere that can still be read.
    block_on(bench.push(store.clone(), "side", Expected::Absent, &side)).unwrap();
    put(&store, &layout::expired(old), "{}");
    let late = bench.chain(Some(old), 1);
    write_data(&store, &late);
    let result = block_on(bench.push(store.clone(), "late", Expected::Absent, &late));
    assert!(matches!(result, Err(RepoError::Expired { .. })));
}

#[test]
fn a_longer_chain_follows_one_that_landed_unheard() {
    let bench = Bench::new(15);
    let (store, chain) = with_versions(&bench, 1);
    let base = chain[0].id();
    let more = bench.chain(Some(base), 2);
    write_data(&store, &more);
    block_on(bench.push(store.clone(), "main", Expected::Exactly(base), &more[..1])).unwrap();
    let report = block_on(bench.push(store.clone(), "main", Expected::Exactly(base), &more)).unwrap();
    assert_eq!((report.versions, report.files_uploaded), (1, 1));
    assert_eq!(read_everything(&store)[&main_branch()], more[1].id());
}

#[test]
fn a_data_file_that_is_old_enough_for_a_gc_is_looked_at_again_before_the_ref_moves() {
    for (age, lost) in [(60, false), (2 * 86_400, true)] {
        let bench = Bench::new(20);
        let store = support::repository_with_clock(&bench);
        let chain = bench.chain(None, 1);
        write_data(&store, &chain);
        bench.clock.advance(age);
        // The gc of somebody else takes the file while the version is being written.
        let (inner, key) = (store.clone(), chain[0].files.iter().next().unwrap().0.to_owned());
        let rule = move |call: Call<'_>| {
            if call.verb.is_write() && call.key.ends_with("version.json") {
                std::thread::scope(|scope| scope.spawn(|| block_on(inner.delete(&key)).unwrap()).join().unwrap());
            }
            Fault::None
        };
        let faulty = Arc::new(FaultStore::new(store.clone(), rule));
        let pushed = block_on(bench.push(faulty, "main", Expected::Absent, &chain));
        assert_eq!(matches!(pushed, Err(RepoError::Corrupt { .. })), lost, "{pushed:?}");
        // A young file no gc takes, so looking again would be a round trip for nothing.
        assert_eq!(store.contents().contains_key("refs/heads/main"), !lost);
    }
}

#[test]
fn a_store_that_ignores_conditions_is_not_pushed_to() {
    let bench = Bench::new(21);
    let (store, chain) = with_versions(&bench, 1);
    let base = chain[0].id();
    let next = bench.chain(Some(base), 1);
    write_data(&store, &next);
    let before = store.contents();
    let careless = Arc::new(Careless(store.clone()));
    let error = block_on(bench.push(careless.clone(), "main", Expected::Exactly(base), &next)).unwrap_err();
    assert!(matches!(error, RepoError::NoConditions { .. }), "{error}");
    assert!(error.to_string().contains("memory:careless"), "{error}");
    assert_eq!(store.contents(), before, "nothing was written");
    // Found good a while ago, by whoever calls: it is not tried again.
    let repository = block_on(Repository::open(careless)).unwrap().with_kept_conditions(true);
    let push = Push {
        reference: main_branch(),
        expected: Expected::Exactly(base),
        chain: &next,
        base: None,
        base_files: None,
        data: DataSource::InPlace,
    };
    assert!(!block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap().conditions_kept);
    let more = bench.chain(Some(next[0].id()), 1);
    write_data(&store, &more);
    let report = block_on(bench.push(store, "main", Expected::Exactly(next[0].id()), &more)).unwrap();
    assert!(report.conditions_kept);
}
