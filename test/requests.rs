//! What operations cost, in requests and in round trips.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::{Files, RefName, Revision, VersionId};
use fdl::repo::{
    CatalogTarget, DataSource, Expected, LocalVersion, LogOptions, Push, Repository, State, log, open_version, publish,
    resolve,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::log::Request;
use fdl::store::{FaultStore, LoggedStore, MemoryStore, Verb};
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt};
use support::{Bench, Reads, Turns, push_new, repository, write_data};

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
    let repository = block_on(Repository::open(store.clone())).unwrap().with_kept_conditions(true);
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
fn a_push_to_a_store_that_nobody_tried_takes_two_round_trips_more() {
    let bench = Bench::new(8);
    let (_, store, chain) = logged(&bench, 1);
    let next = [bench.version(Some(chain[0].id()), &[])];
    store.clear();
    let report = block_on(bench.push(store.clone(), "main", Expected::Exactly(chain[0].id()), &next)).unwrap();
    assert!(report.conditions_kept);
    let tried = told(&store, next[0].id());
    for line in ["3 Get HEAD", "3 Get fdl.json", "4 PutIfAbsent HEAD", "4 PutIfUnchanged HEAD"] {
        assert!(tried.iter().any(|told| told == line), "{line}: {tried:#?}");
    }
    // Opening takes one.
    assert_eq!(store.depth(), 1 + 7 + 2);
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
    let repository = block_on(Repository::open(store.clone())).unwrap().with_kept_conditions(true);
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
    let repository = block_on(Repository::open(store.clone())).unwrap().with_kept_conditions(true);
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

/// The IDs that a log tells, and what it cost: requests and round trips.
fn told_by_log(store: &Arc<LoggedStore>, start: VersionId, max_count: Option<usize>) -> (Vec<VersionId>, usize, usize) {
    store.clear();
    let options = LogOptions { max_count, totals: true, ..LogOptions::default() };
    let entries: Vec<_> = block_on(log(store.clone(), start, options).try_collect()).unwrap();
    assert!(entries.iter().all(|entry| entry.totals.is_some() && entry.state == State::Live && !entry.signed));
    (entries.iter().map(|entry| entry.record.id).collect(), store.total(), store.depth())
}

/// A store that does not list, such as a web server.
fn unlisted(memory: &Arc<MemoryStore>) -> Arc<LoggedStore> {
    let rule = |call: Call<'_>| if call.verb == Verb::List { Fault::Deny } else { Fault::None };
    Arc::new(LoggedStore::new(Arc::new(FaultStore::new(Arc::new(Turns(memory.clone())), rule))))
}

#[test]
fn a_log_of_many_versions_takes_few_round_trips_where_they_are_listed() {
    let bench = Bench::new(6);
    let (memory, store, chain) = logged(&bench, 313);
    let ids: Vec<VersionId> = chain.iter().rev().map(LocalVersion::id).collect();
    // Others' versions are in between, as on other branches.
    push_new(&bench, &memory, "dev", 40);
    let (told, requests, depth) = told_by_log(&store, ids[0], None);
    assert_eq!(told, ids);
    assert!(requests < 313 * 2 + 60 && depth < 60, "{requests} requests, {depth} deep");
    let (told, requests, depth) = told_by_log(&store, ids[0], Some(10));
    assert_eq!(told, ids[..10]);
    assert!(requests < 50 && depth <= 8, "{requests} requests, {depth} deep");
}

#[test]
fn a_log_where_nothing_is_listed_takes_a_round_trip_a_version() {
    let bench = Bench::new(16);
    let (memory, _, chain) = logged(&bench, 100);
    let ids: Vec<VersionId> = chain.iter().rev().map(LocalVersion::id).collect();
    let store = unlisted(&memory);
    let (told, requests, depth) = told_by_log(&store, ids[0], None);
    assert_eq!(told, ids);
    // A record, a mark, dataset.json and a signature of each.
    assert!(requests <= 401 && depth <= 103, "{requests} requests, {depth} deep");
}

#[test]
fn a_log_reads_no_more_than_it_tells() {
    let bench = Bench::new(26);
    let (memory, store, chain) = logged(&bench, 40);
    let last = chain[39].id();
    for store in [store, unlisted(&memory)] {
        let (told, requests, depth) = told_by_log(&store, last, Some(3));
        assert_eq!(told.len(), 3);
        assert_eq!((object_reads(&store), requests, depth), (6, 12, 3));
        // Of one that is dropped early a few are under way.
        store.clear();
        let first = block_on(log(store.clone(), last, LogOptions::default()).boxed().next());
        assert_eq!(first.unwrap().unwrap().record.id, last);
        assert!(object_reads(&store) <= 2 && store.total() <= 7, "{:#?}", store.requests());
    }
}

#[test]
fn going_back_reads_ahead_too() {
    let bench = Bench::new(27);
    let (_, store, chain) = logged(&bench, 200);
    let revision: Revision = "main~199".parse().unwrap();
    let resolved = block_on(resolve(store.as_ref(), &revision)).unwrap();
    assert_eq!(resolved.version, Some(chain[0].id()));
    assert!(store.depth() < 40, "{}", store.depth());
}

#[test]
fn init_and_a_second_init() {
    let bench = Bench::new(7);
    let store = LoggedStore::new(Arc::new(Turns(Arc::new(MemoryStore::new()))));
    block_on(bench.init(&store));
    assert_eq!((store.total(), store.depth()), (13, 8), "{:#?}", store.requests());
    store.clear();
    block_on(bench.init(&store));
    let written = store.requests().into_iter().filter(|r| r.verb.is_write());
    assert!(written.clone().all(|r| r.outcome == fdl::store::log::Outcome::Refused));
}
