//! Failures that pass: whatever happens once to any one write, landed or not, the call goes well. What stays is told as it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::RefName;
use fdl::repo::{Expected, InitOptions, PushOutcome, RepoError, create_branch, create_tag, delete_ref, init};
use fdl::store::fault::{Call, Fault};
use fdl::store::{FaultStore, MemoryStore, Store, StoreError, Verb};
use futures::executor::block_on;
use support::{Bench, push_new, read_everything, refs_json, repository, write_data};

/// What can happen to one write.
const ONCE: [Fault; 4] = [Fault::Fail, Fault::Refuse, Fault::LoseAnswer, Fault::LoseAnswerAndRefuse];

/// Runs a call once for each of its writes and each fault. The call is given the store that fails, and what is below it.
fn at_each_write(begin: impl Fn() -> Arc<MemoryStore>, call: impl Fn(Arc<dyn Store>, &Arc<MemoryStore>, &str)) {
    let below = begin();
    let watched = Arc::new(FaultStore::stop_at_write(below.clone(), 0));
    call(watched.clone(), &below, "no fault");
    let writes = watched.writes();
    assert!(writes > 1);
    for n in 1..=writes {
        for fault in ONCE {
            let below = begin();
            let rule = move |call: Call<'_>| if call.write == Some(n) { fault } else { Fault::None };
            let faulty = Arc::new(FaultStore::new(below.clone(), rule));
            call(faulty, &below, &format!("{fault:?} at write {n}"));
        }
    }
}

fn main_branch() -> RefName {
    RefName::branch("main").unwrap()
}

#[test]
fn a_push() {
    let bench = Bench::new(1);
    let store = repository(&bench);
    let base = push_new(&bench, &store, "main", 1)[0];
    let first = bench.version(Some(base), &[("data/main/t/a.parquet", 3)]);
    let chain = [first.clone(), bench.version(Some(first.id()), &[("data/main/t/b.parquet", 4)])];
    write_data(&store, &chain);
    let last = chain[1].id();
    at_each_write(
        || Arc::new(store.fork(chrono::Utc::now)),
        |faulty, below, what| {
            let report = block_on(bench.push(faulty, "main", Expected::Exactly(base), &chain)).unwrap();
            assert_eq!((report.outcome, report.new), (PushOutcome::Pushed, Some(last)), "{what}");
            assert_eq!(report.notes, Vec::<String>::new(), "{what}");
            assert_eq!(read_everything(below)[&main_branch()], last, "{what}");
            assert_eq!(refs_json(below)[&main_branch()], last, "{what}");
        },
    );
}

#[test]
fn an_init() {
    let bench = Bench::new(2);
    at_each_write(
        || Arc::new(MemoryStore::new()),
        |faulty, below, what| {
            let begun =
                block_on(init(faulty.as_ref(), InitOptions::new(main_branch()), bench.random.as_ref())).unwrap();
            assert!(begun.created, "{what}");
            assert_eq!(below.contents().into_keys().collect::<Vec<_>>(), ["HEAD", "fdl.json", "refs.json"], "{what}");
            let again = block_on(init(below.as_ref(), InitOptions::new(main_branch()), bench.random.as_ref())).unwrap();
            assert_eq!((again.created, again.settings), (false, begun.settings), "{what}");
        },
    );
}

#[test]
fn branches_tags_and_their_end() {
    let bench = Bench::new(3);
    let store = repository(&bench);
    let ids = push_new(&bench, &store, "main", 2);
    let (dev, tag) = (RefName::branch("dev").unwrap(), RefName::tag("v1").unwrap());
    at_each_write(
        || Arc::new(store.fork(chrono::Utc::now)),
        |faulty, below, what| {
            let made = block_on(create_branch(faulty.as_ref(), &dev, ids[0])).unwrap();
            assert_eq!(made.notes, Vec::<String>::new(), "{what}");
            block_on(create_tag(faulty.as_ref(), &tag, ids[1])).unwrap();
            assert_eq!((refs_json(below)[&dev], refs_json(below)[&tag]), (ids[0], ids[1]), "{what}");
            for name in [&dev, &tag] {
                block_on(delete_ref(faulty.as_ref(), name)).unwrap();
                assert_eq!(refs_json(below).get(name), None, "{what}");
            }
            assert_eq!(read_everything(below).into_keys().collect::<Vec<_>>(), [main_branch()], "{what}");
        },
    );
}

/// A store in which the writes of these keys fail for ever.
fn broken(below: &Arc<MemoryStore>, fault: Fault, of: fn(Call<'_>) -> bool) -> Arc<FaultStore> {
    let rule = move |call: Call<'_>| if call.verb.is_write() && of(call) { fault } else { Fault::None };
    Arc::new(FaultStore::new(below.clone(), rule))
}

#[test]
fn what_stays_is_told_as_it_is() {
    let bench = Bench::new(4);
    let store = repository(&bench);
    let base = push_new(&bench, &store, "main", 1)[0];
    let next = [bench.version(Some(base), &[])];
    let id = next[0].id();
    let push = |store: Arc<FaultStore>| {
        let error = block_on(bench.push(store, "main", Expected::Exactly(base), &next)).unwrap_err();
        let text = error.to_string();
        assert!(!text.contains("Some(") && !text.contains("None"), "{text}");
        (error, text)
    };
    let of_record = |call: Call<'_>| call.key.ends_with("/version.json");
    let record = format!("versions/{id}/version.json");
    let fork = || Arc::new(store.fork(chrono::Utc::now));

    // It fails each time: nothing was written, and nothing is said that is not so.
    let (error, text) = push(broken(&fork(), Fault::Fail, of_record));
    assert!(matches!(error, RepoError::Store(StoreError::Failed { .. })), "{error:?}");
    assert!(text.starts_with(&format!("could not write {record}")), "{text}");
    // It is refused each time, though nothing is there.
    let (error, text) = push(broken(&fork(), Fault::Refuse, of_record));
    assert!(matches!(error, RepoError::Store(StoreError::Rejected { status: 409, .. })), "{error:?}");
    assert!(text.contains("nothing is there") && !text.contains("does not exist"), "{text}");
    // It may be there, and cannot be read.
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        let below = fork();
        let rule = move |call: Call<'_>| match (of_record(call), call.verb) {
            (true, Verb::PutIfAbsent) => fault,
            (true, _) => Fault::Fail,
            _ => Fault::None,
        };
        let (error, text) = push(Arc::new(FaultStore::new(below.clone(), rule)));
        assert!(matches!(error, RepoError::UnknownWrite { .. }), "{error:?}");
        assert!(text.starts_with(&format!("it is not known whether {record} was written: ")), "{text}");
        assert_eq!(read_everything(&below)[&main_branch()], base);
    }
    // The ref.
    let of_ref = |call: Call<'_>| call.key.starts_with("refs/");
    let (error, text) = push(broken(&fork(), Fault::Fail, of_ref));
    assert!(matches!(error, RepoError::UnknownOutcome { .. }), "{error:?}");
    assert!(text.contains(&format!("whether refs/heads/main was moved to {id}: could not write")), "{text}");
    let (error, _) = push(broken(&fork(), Fault::Refuse, of_ref));
    assert!(matches!(error, RepoError::Rejected { .. }), "{error:?}");

    let (tag, below) = (RefName::tag("t1").unwrap(), fork());
    let error = block_on(create_tag(broken(&below, Fault::Fail, of_ref).as_ref(), &tag, base)).unwrap_err();
    let told = format!("it is not known whether refs/tags/t1 was moved to {base}: could not write refs/tags/t1");
    assert!(error.to_string().starts_with(&told), "{error}");
    let error = block_on(create_tag(broken(&below, Fault::Deny, of_ref).as_ref(), &tag, base)).unwrap_err();
    assert!(matches!(error, RepoError::Store(StoreError::Permission { .. })), "{error:?}");
    block_on(create_tag(below.as_ref(), &tag, base)).unwrap();
    let error = block_on(delete_ref(broken(&below, Fault::Fail, of_ref).as_ref(), &tag)).unwrap_err();
    assert!(error.to_string().starts_with("it is not known whether refs/tags/t1 was deleted: could not"), "{error}");
    let error = block_on(delete_ref(broken(&below, Fault::Refuse, of_ref).as_ref(), &tag)).unwrap_err();
    assert!(matches!(error, RepoError::Rejected { .. }), "{error:?}");

    let empty = Arc::new(MemoryStore::new());
    let faulty = broken(&empty, Fault::Refuse, |call| call.key == "fdl.json");
    let error = block_on(init(faulty.as_ref(), InitOptions::new(main_branch()), bench.random.as_ref())).unwrap_err();
    assert!(error.to_string().contains("fdl.json was turned down"), "{error}");
}

#[test]
fn a_tag_that_somebody_else_made_meanwhile_is_theirs() {
    let bench = Bench::new(5);
    let store = repository(&bench);
    let ids = push_new(&bench, &store, "main", 2);
    let tag = RefName::tag("v1").unwrap();
    for (theirs, taken) in [(ids[1], true), (ids[0], false)] {
        let below = Arc::new(store.fork(chrono::Utc::now));
        let (inner, name) = (below.clone(), tag.clone());
        let rule = move |call: Call<'_>| {
            if call.key == name.key() && call.verb == Verb::PutIfAbsent {
                std::thread::scope(|scope| {
                    scope.spawn(|| block_on(create_tag(inner.as_ref(), &name, theirs)).unwrap()).join().unwrap()
                });
                return Fault::Fail;
            }
            Fault::None
        };
        let made = block_on(create_tag(&FaultStore::new(below, rule), &tag, ids[0]));
        assert_eq!(matches!(made, Err(RepoError::Exists { version, .. }) if version == theirs), taken, "{made:?}");
    }
}
