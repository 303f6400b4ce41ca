//! Stops after every single write, and answers that are lost (docs/format.md section 9).
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::Utc;
use fdl::format::{RefName, VersionId};
use fdl::repo::{
    Expected, InitOptions, LocalVersion, PushOutcome, RepoError, Repository, create_tag, delete_ref, init, list_refs,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::{FaultStore, LoggedStore, MemoryStore, Store, Verb};
use futures::FutureExt;
use futures::executor::block_on;
use support::{Bench, read_everything, refs_json, repository, write_data};

fn main_branch() -> RefName {
    RefName::branch("main").unwrap()
}

fn fork(store: &MemoryStore) -> Arc<MemoryStore> {
    Arc::new(store.fork(Utc::now))
}

/// A repository whose `main` holds a version.
fn with_a_version(bench: &Bench) -> (Arc<MemoryStore>, VersionId) {
    let store = repository(bench);
    let first = bench.chain(None, 1);
    write_data(&store, &first);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &first)).unwrap();
    (store, first[0].id())
}

/// What holds between the stop and the second try: `main` is where it was or at the last version, and all can be read.
fn assert_safe(store: &MemoryStore, before: Option<VersionId>, last: VersionId) {
    let refs = read_everything(store);
    let main = refs.get(&main_branch()).copied();
    assert!(main == before || main == Some(last), "main is at {main:?}");
}

fn stop_a_push_everywhere(bench: &Bench, start: &MemoryStore, before: Option<VersionId>, chain: &[LocalVersion]) {
    let last = chain.last().unwrap().id();
    let expected = before.map_or(Expected::Absent, Expected::Exactly);
    let logged = Arc::new(LoggedStore::new(fork(start)));
    block_on(bench.push(logged.clone(), "main", expected, chain)).unwrap();
    let writes = logged.writes();
    assert!(writes >= 3 * chain.len() + 2);
    for n in 1..=writes {
        for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
            let store = fork(start);
            let stopped = block_on(bench.push(Arc::new(stop(store.clone(), n)), "main", expected, chain));
            match stopped {
                // The ref has been written and its answer was heard: only refs.json is left.
                Ok(report) => {
                    assert_eq!(n, writes);
                    assert_eq!(report.outcome, PushOutcome::Pushed);
                    assert!(report.notes[0].contains("refs.json"), "{:?}", report.notes);
                }
                Err(RepoError::Conflict { .. }) => panic!("a stop is no conflict"),
                Err(_) => {}
            }
            assert_safe(&store, before, last);
            let again = block_on(bench.push(store.clone(), "main", expected, chain)).unwrap();
            assert_eq!(again.new, Some(last));
            assert_eq!(read_everything(&store), BTreeMap::from([(main_branch(), last)]));
            assert_eq!(refs_json(&store), BTreeMap::from([(main_branch(), last)]), "after a stop at write {n}");
        }
    }
}

#[test]
fn a_push_stopped_at_any_write_is_finished_by_the_next() {
    let bench = Bench::new(1);
    let (store, before) = with_a_version(&bench);
    let chain = bench.chain(Some(before), 2);
    write_data(&store, &chain);
    stop_a_push_everywhere(&bench, &store, Some(before), &chain);
}

#[test]
fn the_first_push_stopped_at_any_write_is_finished_by_the_next() {
    let bench = Bench::new(2);
    let store = repository(&bench);
    let chain = bench.chain(None, 1);
    write_data(&store, &chain);
    stop_a_push_everywhere(&bench, &store, None, &chain);
}

#[test]
fn a_push_stopped_at_any_request_changes_nothing_it_should_not() {
    let bench = Bench::new(3);
    let (start, before) = with_a_version(&bench);
    let chain = bench.chain(Some(before), 1);
    write_data(&start, &chain);
    for n in 1.. {
        let store = fork(&start);
        let rule = move |call: Call<'_>| if call.number == n { Fault::Stop } else { Fault::None };
        let faulty = Arc::new(FaultStore::new(store.clone(), rule));
        let result = block_on(bench.push(faulty.clone(), "main", Expected::Exactly(before), &chain));
        assert!(!matches!(result, Err(RepoError::Conflict { .. })), "request {n}");
        assert_safe(&store, Some(before), chain[0].id());
        if !faulty.is_stopped() {
            return;
        }
    }
}

#[test]
fn init_stopped_at_any_write_is_finished_by_the_next() {
    let bench = Bench::new(4);
    let begin = |store: Arc<dyn Store>| {
        let options = InitOptions::new(main_branch());
        block_on(init(store.as_ref(), options, bench.random.as_ref()))
    };
    let logged = Arc::new(LoggedStore::new(Arc::new(MemoryStore::new())));
    begin(logged.clone()).unwrap();
    for n in 1..=logged.writes() {
        for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
            let store = Arc::new(MemoryStore::new());
            assert!(begin(Arc::new(stop(store.clone(), n))).is_err());
            let settings = block_on(Repository::open(store.clone())).ok().map(|there| there.settings().clone());
            let done = begin(store.clone()).unwrap();
            assert_eq!(done.created, settings.is_none(), "write {n}");
            assert!(settings.is_none_or(|settings| settings == done.settings), "the first settings stay");
            assert_eq!(block_on(list_refs(store.as_ref())).unwrap().head, main_branch());
            assert_eq!(refs_json(&store), BTreeMap::new());
        }
    }
}

#[test]
fn tags_and_deletions_stopped_at_any_write_can_be_done_again() {
    let bench = Bench::new(5);
    let (start, version) = with_a_version(&bench);
    let tag = RefName::tag("v1").unwrap();
    for n in 1..=2 {
        for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
            let store = fork(&start);
            drop(block_on(create_tag(&stop(store.clone(), n), &tag, version)));
            match block_on(create_tag(store.as_ref(), &tag, version)) {
                Ok(_) => assert_eq!(refs_json(&store).get(&tag), Some(&version)),
                Err(RepoError::Exists { version: held, .. }) => assert_eq!(held, version),
                Err(error) => panic!("{error}"),
            }
            drop(block_on(delete_ref(&stop(store.clone(), n), &tag)));
            match block_on(delete_ref(store.as_ref(), &tag)) {
                Ok(_) => assert_eq!(refs_json(&store).get(&tag), None),
                Err(RepoError::NoSuchRef { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            assert_eq!(read_everything(&store), BTreeMap::from([(main_branch(), version)]));
        }
    }
}

/// Pushes one version while the writes of the ref are subject to a fault; `reads` says whether the ref can be read back.
fn push_with(fault: Fault, reads: bool, first: bool) -> (Arc<MemoryStore>, VersionId, Result<PushOutcome, RepoError>) {
    let bench = Bench::new(6);
    let (store, expected, chain) = match first {
        true => (repository(&bench), Expected::Absent, bench.chain(None, 1)),
        false => {
            let (store, before) = with_a_version(&bench);
            (store, Expected::Exactly(before), bench.chain(Some(before), 1))
        }
    };
    write_data(&store, &chain);
    let written = AtomicBool::new(false);
    let rule = move |call: Call<'_>| match (call.key == "refs/heads/main", call.verb.is_write()) {
        (true, true) => {
            written.store(true, Ordering::Relaxed);
            fault
        }
        (true, false) if !reads && written.load(Ordering::Relaxed) => Fault::Fail,
        _ => Fault::None,
    };
    let faulty = Arc::new(FaultStore::new(store.clone(), rule));
    let result = block_on(bench.push(faulty, "main", expected, &chain)).map(|report| report.outcome);
    read_everything(&store);
    (store, chain[0].id(), result)
}

#[test]
fn a_lost_answer_is_read_back_and_is_a_success() {
    for fault in [Fault::LoseAnswer, Fault::LoseAnswerAndRefuse] {
        for first in [true, false] {
            let (store, id, result) = push_with(fault, true, first);
            assert_eq!(result.unwrap(), PushOutcome::Pushed, "{fault:?}");
            assert_eq!(refs_json(&store).get(&main_branch()), Some(&id));
        }
    }
}

#[test]
fn an_outcome_that_cannot_be_known_is_neither_success_nor_conflict() {
    for fault in [Fault::LoseAnswer, Fault::LoseAnswerAndRefuse, Fault::Fail] {
        for first in [true, false] {
            let (store, id, result) = push_with(fault, false, first);
            let Err(RepoError::UnknownOutcome { version, .. }) = result else {
                panic!("{fault:?}: {result:?}");
            };
            assert_eq!(version, Some(id));
            // Nothing is deleted.
            assert!(store.contents().contains_key(&format!("versions/{id}/version.json")));
        }
    }
}

#[test]
fn a_ref_write_that_fails_is_no_success() {
    for first in [true, false] {
        let (_, _, result) = push_with(Fault::Fail, true, first);
        assert!(matches!(result, Err(RepoError::UnknownOutcome { .. })), "{result:?}");
        let (_, _, result) = push_with(Fault::Deny, true, first);
        assert!(matches!(result, Err(RepoError::Store(_))), "{result:?}");
    }
}

#[test]
fn a_version_that_landed_and_was_built_upon_is_a_success() {
    let bench = Arc::new(Bench::new(7));
    let (store, before) = with_a_version(&bench);
    let ours = bench.chain(Some(before), 1);
    let theirs = bench.chain(Some(ours[0].id()), 1);
    write_data(&store, &ours);
    write_data(&store, &theirs);
    let (landed, built) = (ours[0].id(), theirs[0].id());
    let lost = AtomicBool::new(false);
    let (other, below) = (bench.clone(), store.clone());
    let rule = move |call: Call<'_>| {
        if call.key != "refs/heads/main" {
            return Fault::None;
        }
        if call.verb == Verb::PutIfUnchanged {
            lost.store(true, Ordering::Relaxed);
            return Fault::LoseAnswerAndRefuse;
        }
        // Before the ref is read back, somebody else pushes on top. A store in memory never waits.
        if lost.swap(false, Ordering::Relaxed) {
            let push = other.push(below.clone(), "main", Expected::Exactly(landed), &theirs);
            push.now_or_never().unwrap().unwrap();
        }
        Fault::None
    };
    let faulty = Arc::new(FaultStore::new(store.clone(), rule));
    let report = block_on(bench.push(faulty, "main", Expected::Exactly(before), &ours)).unwrap();
    assert_eq!((report.outcome, report.new), (PushOutcome::Pushed, Some(landed)));
    assert!(report.notes[0].contains(&built.to_string()), "{:?}", report.notes);
    // Asked again, it still is no conflict.
    let report = block_on(bench.push(store.clone(), "main", Expected::Exactly(before), &ours)).unwrap();
    assert_eq!((report.outcome, report.new), (PushOutcome::UpToDate, Some(built)));
    assert_eq!(read_everything(&store)[&main_branch()], built);
}
