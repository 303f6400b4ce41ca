//! What gc deletes and what it spares (docs/format.md section 12).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use fdl::format::{Clock, DataDir, Files, RefName, VersionId, layout};
use fdl::repo::{
    Expected, ExpireOptions, GcOptions, GcReason, GcRow, LocalVersion, LookInto, RepoError, Repository, create_tag,
    plan_expire, plan_gc, read_record, read_ref, run_expire, run_gc,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::{Body, FaultStore, LoggedStore, MemoryStore, Store, Verb};
use futures::FutureExt;
use futures::executor::block_on;
use support::{Bench, fork, push_new, read_everything, repository_with_clock, write_data};

const DAY: i64 = 86_400;

fn look(bench: &Bench) -> LookInto<'_> {
    bench.look()
}

fn open(store: Arc<dyn Store>) -> Repository {
    block_on(Repository::open(store)).unwrap()
}

fn put(store: &MemoryStore, key: &str, text: impl Into<String>) {
    block_on(store.put(key, Body::Bytes(text.into().into()))).unwrap();
}

fn planned(bench: &Bench, store: Arc<dyn Store>, options: &GcOptions) -> Vec<GcRow> {
    block_on(plan_gc(&open(store), options, look(bench), bench.clock.now())).unwrap().rows
}

fn paths(rows: &[GcRow]) -> Vec<&str> {
    rows.iter().map(|row| row.path.as_str()).collect()
}

fn run(bench: &Bench, store: Arc<dyn Store>) -> Result<Vec<GcRow>, RepoError> {
    let (repository, options) = (block_on(Repository::open(store))?, GcOptions::default());
    let plan = block_on(plan_gc(&repository, &options, look(bench), bench.clock.now()))?;
    block_on(run_gc(&repository, plan, &options, look(bench), bench.random.as_ref()))
}

fn expire(bench: &Bench, store: &MemoryStore, versions: &[VersionId]) {
    let options = ExpireOptions { versions: versions.to_vec(), ..ExpireOptions::default() };
    let now = bench.clock.now();
    let plan = block_on(plan_expire(store, &options, now)).unwrap();
    block_on(run_expire(store, plan, None, now)).unwrap();
}

fn files_of(store: &MemoryStore, id: VersionId) -> Vec<String> {
    let bytes = block_on(store.get(&layout::files(id))).unwrap().bytes;
    let files = Files::parse(&bytes, &DataDir::default()).unwrap();
    files.iter().map(|(key, _)| key.to_owned()).collect()
}

/// Two chains of `main` and `dev`, the second half of `dev` expired; data that nobody names, a version that was never
/// finished, and things that are none of gc's business. All of it ten days old.
fn scene(bench: &Bench) -> (Arc<MemoryStore>, Vec<String>) {
    let store = repository_with_clock(bench);
    push_new(bench, &store, "main", 2);
    let dev = push_new(bench, &store, "dev", 1);
    let head = push_new(bench, &store, "dev", 1);
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), head[0])).unwrap();
    expire(bench, &store, &dev);
    let unfinished = bench.chain(None, 1)[0].id();
    put(&store, &layout::catalog(unfinished), "half");
    put(&store, &layout::files(unfinished), "{}");
    put(&store, "data/main/t/町 100%.parquet", "orphan");
    for spared in ["sources/abc", "README.md", "versions/readme", "versions/x/y", "refs/other/x"] {
        put(&store, spared, "kept");
    }
    bench.clock.advance(10 * DAY);
    let mut goes = files_of(&store, dev[0]);
    goes.extend([layout::catalog(unfinished), layout::files(unfinished), "data/main/t/町 100%.parquet".to_owned()]);
    goes.sort();
    (store, goes)
}

#[test]
fn what_no_version_needs_goes_and_nothing_else() {
    let bench = Bench::new(1);
    let (store, goes) = scene(&bench);
    let before = store.contents();
    let mut rows = planned(&bench, store.clone(), &GcOptions::default());
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(paths(&rows), goes);
    assert!(rows.iter().all(|row| row.age > TimeDelta::days(9) && row.bytes > 0 && !row.done));
    assert_eq!(store.contents(), before, "a plan changes nothing");
    let rows = run(&bench, store.clone()).unwrap();
    assert!(rows.iter().all(|row| row.done));
    read_everything(&store);
    let after = store.contents();
    let gone: Vec<&String> = before.keys().filter(|key| !after.contains_key(*key)).collect();
    assert_eq!(gone, goes.iter().collect::<Vec<_>>());
    assert_eq!(after.len() + gone.len(), before.len(), "the object that tells the time is gone");
    assert_eq!(run(&bench, store).unwrap(), []);
}

#[test]
fn what_is_young_or_the_callers_own_stays() {
    let bench = Bench::new(2);
    let (store, goes) = scene(&bench);
    let day = |days| GcOptions { grace: TimeDelta::days(days), ..GcOptions::default() };
    assert_eq!(planned(&bench, store.clone(), &day(11)), []);
    assert_eq!(planned(&bench, store.clone(), &day(0)).len(), goes.len());
    // One young file keeps an unfinished folder.
    let unfinished = goes.iter().find(|key| key.starts_with("versions/")).unwrap();
    let (id, _) = layout::in_version(unfinished).unwrap();
    let touched = fork(&bench, &store);
    put(&touched, &layout::dataset(id), "{}");
    let rows = planned(&bench, touched, &GcOptions::default());
    assert!(rows.iter().all(|row| row.reason == GcReason::Unnamed));
    assert_eq!(rows.len(), goes.len() - 2);
    // Versions that are not pushed yet.
    let files = goes.iter().filter(|key| key.starts_with("data/")).cloned().collect();
    let ours = GcOptions { files, versions: [id].into(), ..GcOptions::default() };
    assert_eq!(planned(&bench, store, &ours), []);
}

#[test]
fn a_version_without_a_good_list_is_looked_into_and_one_that_cannot_tell_stops_all() {
    let bench = Bench::new(3);
    let (store, goes) = scene(&bench);
    let main = push_new(&bench, &store, "main", 1)[0];
    bench.clock.advance(10 * DAY);
    for damage in [None, Some("{\"fdl\": \"0.1\", \"tables\": []}")] {
        let store = fork(&bench, &store);
        match damage {
            None => block_on(store.delete(&layout::files(main))).unwrap(),
            Some(text) => put(&store, &layout::files(main), text),
        }
        let (repository, options, now) = (open(store.clone()), GcOptions::default(), bench.clock.now());
        let blind = LookInto { scratch: bench.path(), files: None };
        let blind = block_on(plan_gc(&repository, &options, blind, now));
        assert!(matches!(blind, Err(RepoError::Corrupt { .. })), "{blind:?}");
        let look = bench.look();
        let mut rows = block_on(plan_gc(&repository, &options, look, now)).unwrap().rows;
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(paths(&rows), goes);
        // A catalog that is not the version's is not asked.
        put(&store, &layout::catalog(main), "another");
        let other = block_on(plan_gc(&repository, &options, look, now));
        assert!(matches!(other, Err(RepoError::Corrupt { .. })), "{other:?}");
    }
    put(&store, &layout::version_json(main), "{}");
    let plan = block_on(plan_gc(&open(store.clone()), &GcOptions::default(), look(&bench), bench.clock.now()));
    assert!(matches!(plan, Err(RepoError::Corrupt { .. })), "{plan:?}");
}

/// A version that lost its record is none that was never finished: whoever names it knows that it was there.
#[test]
fn a_lost_record_stops_all() {
    let bench = Bench::new(8);
    let (store, goes) = scene(&bench);
    let dev = block_on(history_of(&store, "dev"));
    let main = block_on(history_of(&store, "main"));
    let before = store.contents();
    // Of a head, of a parent, of one that is expired.
    for id in [main[0], main[1], dev[1]] {
        let store = fork(&bench, &store);
        block_on(store.delete(&layout::version_json(id))).unwrap();
        let error = run(&bench, store.clone()).unwrap_err();
        assert!(
            matches!(&error, RepoError::Corrupt { object, .. } if *object == layout::version_json(id)),
            "{error:?}"
        );
        assert_eq!(store.contents().len() + 1, before.len(), "nothing was deleted");
    }
    assert_eq!(planned(&bench, store, &GcOptions::default()).len(), goes.len());
}

async fn history_of(store: &MemoryStore, branch: &str) -> Vec<VersionId> {
    let mut next = read_ref(store, &RefName::branch(branch).unwrap()).await.unwrap().map(|held| held.version);
    let mut ids = Vec::new();
    while let Some(id) = next {
        ids.push(id);
        next = read_record(store, id).await.unwrap().parent();
    }
    ids
}

/// A push whose data files are old, at every request of the run until it has looked.
#[test]
fn what_a_new_version_needs_stays() {
    let bench = Arc::new(Bench::new(4));
    let (start, _) = scene(&bench);
    let held = read_everything(&start)[&RefName::branch("main").unwrap()];
    let chain = Arc::new(bench.chain(Some(held), 1));
    write_data(&start, &chain);
    bench.clock.advance(10 * DAY);
    for at in 1.. {
        let store = fork(&bench, &start);
        let (repository, options) = (open(store.clone()), GcOptions::default());
        let plan = block_on(plan_gc(&repository, &options, look(&bench), bench.clock.now())).unwrap();
        let ours = |row: &GcRow| chain[0].files.by_key().contains_key(row.path.as_str());
        assert!(plan.rows.iter().any(ours));
        let (below, other, pushed) = (store.clone(), bench.clone(), chain.clone());
        let looked = Arc::new(AtomicBool::new(false));
        let seen = looked.clone();
        let rule = move |call: Call<'_>| {
            if call.number == at {
                let push = other.push(below.clone(), "main", Expected::Exactly(held), &pushed);
                push.now_or_never().unwrap().unwrap();
            }
            if call.number < at && call.verb == Verb::List && call.key == layout::VERSIONS {
                seen.store(true, Ordering::Relaxed);
            }
            Fault::None
        };
        // The first request opens the repository.
        let through = open(Arc::new(FaultStore::new(store.clone(), rule)));
        let rows = block_on(run_gc(&through, plan, &options, look(&bench), bench.random.as_ref())).unwrap();
        if looked.load(Ordering::Relaxed) {
            assert!(at > 5);
            return;
        }
        read_everything(&store);
        assert!(rows.iter().filter(|row| ours(row)).all(|row| row.reason == GcReason::NeededNow && !row.done));
        assert!(rows.iter().filter(|row| !ours(row)).all(|row| row.done));
    }
}

#[test]
fn the_clock_of_the_store_decides() {
    let bench = Bench::new(5);
    let (store, goes) = scene(&bench);
    let repository = open(store.clone());
    let (options, before) = (GcOptions { grace: TimeDelta::days(30), ..GcOptions::default() }, store.contents());
    // This machine believes that it is next year.
    let now: DateTime<Utc> = bench.clock.now() + TimeDelta::days(365);
    let plan = block_on(plan_gc(&repository, &options, look(&bench), now)).unwrap();
    assert_eq!(plan.rows.len(), goes.len());
    let rows = block_on(run_gc(&repository, plan, &options, look(&bench), bench.random.as_ref())).unwrap();
    assert!(rows.iter().all(|row| row.reason == GcReason::Young && !row.done && row.age < TimeDelta::days(11)));
    assert_eq!(store.contents(), before);
}

#[test]
fn stopped_at_any_write_readers_are_safe_and_the_next_call_finishes() {
    let bench = Bench::new(6);
    let (start, goes) = scene(&bench);
    let logged = Arc::new(LoggedStore::new(fork(&bench, &start)));
    run(&bench, logged.clone()).unwrap();
    let writes = logged.writes();
    assert_eq!(writes, goes.len() + 2);
    assert_eq!((logged.count(Verb::List), logged.count(Verb::Sweep)), (7, 1));
    for n in 1..=writes {
        for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
            let store = fork(&bench, &start);
            assert!(run(&bench, Arc::new(stop(store.clone(), n))).is_err());
            read_everything(&store);
            bench.clock.advance(8 * DAY);
            run(&bench, store.clone()).unwrap();
            read_everything(&store);
            let left = store.contents();
            assert!(goes.iter().all(|key| !left.contains_key(key)));
            assert!(!left.keys().any(|key| key.contains("clock")), "after a stop at write {n}");
        }
    }
}

#[test]
fn versions_that_expire_free_what_they_alone_need() {
    let bench = Bench::new(7);
    let store = repository_with_clock(&bench);
    // Each names one file of its own and one that it shares with the other.
    let first = bench.version(None, &[("data/main/t/own-1", 3), ("data/main/t/shared", 3)]);
    let second = bench.version(Some(first.id()), &[("data/main/t/own-2", 3), ("data/main/t/shared", 3)]);
    let chain: [LocalVersion; 2] = [first, second];
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    bench.clock.advance(10 * DAY);
    assert_eq!(run(&bench, store.clone()).unwrap(), []);
    expire(&bench, &store, &[chain[0].id()]);
    let rows = run(&bench, store.clone()).unwrap();
    assert_eq!(paths(&rows), ["data/main/t/own-1"]);
    read_everything(&store);
}
