//! What operations cost, in requests and in round trips.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::{Files, RefName, Revision, VersionId};
use fdl::repo::{
    CatalogTarget, DataSource, Expected, LocalVersion, LogOptions, Push, Repository, log, open_version, publish,
};
use fdl::store::log::Request;
use fdl::store::{LoggedStore, MemoryStore, Verb};
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt};
use support::{Bench, Reads, Turns, repository, write_data};

/// A repository whose `main` has this many versions, and a log of what is asked of it.
fn logged(bench: &Bench, versions: usize) -> (Arc<MemoryStore>, Arc<LoggedStore>, Vec<LocalVersion>) {
    let store = repository(bench);
    let chain = bench.chain(None, versions);
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    let logged = Arc::new(LoggedStore::new(Arc::new(Turns(store.clone()))));
    (store, logged, chain)
}

fn object_reads(store: &LoggedStore) -> usize {
    store.count(Verb::Get) + store.count(Verb::GetRange) + store.count(Verb::Download)
}

/// `depth verb key` of each request, with the ID of a version shortened.
fn told(store: &LoggedStore, id: VersionId) -> Vec<String> {
    let told = |request: &Request| {
        let key = request.key.replace(&id.to_string(), "ID");
        format!("{} {:?} {key}", request.depth, request.verb)
    };
    let mut lines: Vec<String> = store.requests().iter().map(told).collect();
    lines.sort();
    lines
}

#[test]
fn a_reader_that_names_a_branch_reads_four_objects_two_after_one_another() {
    let bench = Bench::new(1);
    let (_, store, _) = logged(&bench, 3);
    for revision in ["main", "refs/heads/main"] {
        store.clear();
        let revision: Revision = revision.parse().unwrap();
        let (_, resolved) = block_on(Repository::open_at(store.clone(), &revision)).unwrap();
        let target = bench.path().join("catalog");
        let target = CatalogTarget { reader: &Reads(&["1.0"]), path: &target, max_size: 1 << 20 };
        block_on(open_version(store.as_ref(), &resolved, Some(target))).unwrap();
        assert_eq!((object_reads(&store), store.depth()), (4, 2), "{:#?}", store.requests());
        assert_eq!(store.writes(), 0);
    }
}

#[test]
fn a_catalog_larger_than_allowed_is_refused_by_name_and_size() {
    let bench = Bench::new(2);
    let (_, store, chain) = logged(&bench, 1);
    let target = bench.path().join("catalog");
    let resolved = fdl::repo::Resolved::of_version(chain[0].id());
    let small = CatalogTarget { reader: &Reads(&["1.0"]), path: &target, max_size: 3 };
    let error = block_on(open_version(store.as_ref(), &resolved, Some(small))).unwrap_err().to_string();
    let size = chain[0].record.size.unwrap();
    assert!(error.contains("ducklake.duckdb") && error.contains(&format!("{size} bytes")), "{error}");
    assert!(!target.exists());
}

#[test]
fn a_push_of_one_version_takes_seven_round_trips() {
    let bench = Bench::new(3);
    let (_, store, chain) = logged(&bench, 1);
    let base = chain[0].id();
    let next = [bench.version(Some(base), &[])];
    let repository = block_on(Repository::open(store.clone())).unwrap();
    store.clear();
    let push = Push {
        reference: RefName::branch("main").unwrap(),
        expected: Expected::Exactly(base),
        chain: &next,
        base: None,
        base_files: None,
        data: DataSource::InPlace,
    };
    block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap();
    assert_eq!(
        told(&store, next[0].id()),
        [
            "1 Get refs/heads/main",
            "2 PutIfAbsent versions/ID/dataset.json",
            "2 PutIfAbsent versions/ID/ducklake.duckdb",
            "2 PutIfAbsent versions/ID/files.json",
            "3 PutIfAbsent versions/ID/version.json",
            "4 PutIfUnchanged refs/heads/main",
            "5 Get HEAD",
            "5 Get refs.json",
            "5 List refs/",
            "6 Get refs/heads/main",
            "7 PutIfUnchanged refs.json",
        ]
    );
    // Again: nothing but a look at the ref, and at refs.json.
    store.clear();
    block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap();
    assert_eq!((store.total(), store.writes()), (5, 0));
}

#[test]
fn only_new_data_files_are_settled_all_at_once() {
    let bench = Bench::new(4);
    let (memory, store, chain) = logged(&bench, 2);
    let base = &chain[1];
    let keys: Vec<String> = (0..10).map(|n| format!("data/main/t/new-{n}.parquet")).collect();
    let data: Vec<(&str, u64)> = base.files.iter().chain(keys.iter().map(|key| (key.as_str(), 5))).collect();
    let next = [bench.version(Some(base.id()), &data)];
    write_data(&memory, &next);
    let repository = block_on(Repository::open(store.clone())).unwrap();
    let mut push = Push {
        reference: RefName::branch("main").unwrap(),
        expected: Expected::Exactly(base.id()),
        chain: &next,
        base: None,
        base_files: Some(&base.files),
        data: DataSource::InPlace,
    };
    store.clear();
    let report = block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap();
    assert_eq!((report.files_uploaded, report.bytes_uploaded, report.files_skipped), (10, 50, 2));
    assert_eq!((store.count(Verb::Settle), store.depth()), (10, 8));
    // Without the list of the base it is read: two more requests, after one another.
    let more = [bench.version(Some(next[0].id()), &data)];
    push.chain = &more;
    push.expected = Expected::Exactly(next[0].id());
    push.base_files = None;
    store.clear();
    let report = block_on(publish(&repository, &push, bench.clock.as_ref())).unwrap();
    assert_eq!((report.files_uploaded, report.files_skipped), (0, 12));
    assert_eq!((store.count(Verb::Settle), store.depth()), (0, 9));
}

#[test]
fn a_conflict_is_found_before_anything_is_written() {
    let bench = Bench::new(5);
    let (_, store, chain) = logged(&bench, 2);
    let base = chain[0].id();
    let next = [bench.version(Some(base), &[])];
    let files = Files::new(Vec::new());
    let repository = block_on(Repository::open(store.clone())).unwrap();
    store.clear();
    let push = Push {
        reference: RefName::branch("main").unwrap(),
        expected: Expected::Exactly(base),
        chain: &next,
        base: None,
        base_files: Some(&files),
        data: DataSource::InPlace,
    };
    assert!(block_on(publish(&repository, &push, bench.clock.as_ref())).is_err());
    assert_eq!(told(&store, next[0].id()), ["1 Get refs/heads/main", "2 Head versions/ID/version.json"]);
}

#[test]
fn a_log_reads_no_more_than_it_tells() {
    let bench = Bench::new(6);
    let (_, store, chain) = logged(&bench, 10);
    let last = chain[9].id();
    let options = LogOptions { max_count: Some(3), ..LogOptions::default() };
    let entries: Vec<_> = block_on(log(store.clone(), last, options).try_collect()).unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!((object_reads(&store), store.total(), store.depth()), (3, 9, 3));
    store.clear();
    let first = block_on(log(store.clone(), last, LogOptions::default()).boxed().next());
    assert_eq!(first.unwrap().unwrap().record.id, last);
    assert_eq!(object_reads(&store), 1);
}

#[test]
fn init_and_a_second_init() {
    let bench = Bench::new(7);
    let store = LoggedStore::new(Arc::new(Turns(Arc::new(MemoryStore::new()))));
    block_on(bench.init(&store));
    assert_eq!((store.total(), store.depth()), (13, 9), "{:#?}", store.requests());
    store.clear();
    block_on(bench.init(&store));
    let written = store.requests().into_iter().filter(|r| r.verb.is_write());
    assert!(written.clone().all(|r| r.outcome == fdl::store::log::Outcome::Refused));
}
