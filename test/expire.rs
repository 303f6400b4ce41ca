//! Which versions expire, and that readers are safe meanwhile (docs/format.md section 12).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use fdl::format::{Clock, Reason, RefName, VersionId, layout};
use fdl::repo::{
    ExpireAction, ExpireOptions, ExpireRow, RepoError, create_branch, create_tag, delete_ref, plan_expire, read_live,
    read_mark, read_record, run_expire,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::{FaultStore, LoggedStore, MemoryStore, Store};
use futures::FutureExt;
use futures::executor::block_on;
use support::{Bench, fork, push_new, read_everything, read_version, repository_with_clock};

const DAY: i64 = 86_400;

fn keep_last(count: u64) -> ExpireOptions {
    ExpireOptions { keep_last: Some(count), ..ExpireOptions::default() }
}

fn older_than(days: i64) -> ExpireOptions {
    ExpireOptions { older_than: Some(TimeDelta::days(days)), ..ExpireOptions::default() }
}

fn plan(store: &dyn Store, options: &ExpireOptions, now: DateTime<Utc>) -> Vec<(VersionId, ExpireAction)> {
    let rows = block_on(plan_expire(store, options, now)).unwrap().rows;
    rows.into_iter().map(|row| (row.version, row.action)).collect()
}

fn run(store: &dyn Store, options: &ExpireOptions, now: DateTime<Utc>) -> Result<Vec<ExpireRow>, RepoError> {
    let plan = block_on(plan_expire(store, options, now))?;
    block_on(run_expire(store, plan, Some("spring cleaning"), now))
}

/// Ten versions of `main`, one a day, with a tag at the third and a branch `dev` of two more at the fifth.
fn scene(bench: &Bench) -> (Arc<MemoryStore>, Vec<VersionId>, Vec<VersionId>) {
    let store = repository_with_clock(bench);
    let mut main = Vec::new();
    for _ in 0..10 {
        main.extend(push_new(bench, &store, "main", 1));
        bench.clock.advance(DAY);
    }
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), main[2])).unwrap();
    block_on(create_branch(store.as_ref(), &RefName::branch("dev").unwrap(), main[4])).unwrap();
    let dev = push_new(bench, &store, "dev", 2);
    (store, main, dev)
}

#[test]
fn the_rules_say_which_versions_expire() {
    let bench = Bench::new(1);
    let (store, main, dev) = scene(&bench);
    let now = bench.clock.now();
    let tag = RefName::tag("v1").unwrap();
    let held = |ids: &[VersionId]| -> Vec<(VersionId, ExpireAction)> {
        let action = |id: &VersionId| match *id == main[2] {
            true => ExpireAction::HeldBy(tag.clone()),
            false => ExpireAction::Expire,
        };
        ids.iter().map(|id| (*id, action(id))).collect()
    };
    let before = store.contents();
    // The last four of dev reach back to the fourth of main.
    assert_eq!(plan(store.as_ref(), &keep_last(4), now), held(&[&main[..3], &main[5..6]].concat()));
    let none: [(VersionId, ExpireAction); 0] = [];
    assert_eq!(plan(store.as_ref(), &keep_last(20), now), none);
    assert_eq!(plan(store.as_ref(), &ExpireOptions::default(), now), none);
    assert_eq!(plan(store.as_ref(), &older_than(5), now), held(&main[..6]));
    // Both rules: only what breaks both.
    let both = ExpireOptions { older_than: Some(TimeDelta::days(8)), ..keep_last(4) };
    assert_eq!(plan(store.as_ref(), &both, now), held(&main[..3]));
    // Along one ref alone.
    let dev_name = RefName::branch("dev").unwrap();
    let of_dev = ExpireOptions { reference: Some(dev_name.clone()), ..keep_last(1) };
    let ids = [&main[..5], &dev[..1]].concat();
    assert_eq!(plan(store.as_ref(), &of_dev, now), held(&ids));
    let nowhere = ExpireOptions { reference: Some(RefName::branch("x").unwrap()), ..keep_last(1) };
    assert!(matches!(block_on(plan_expire(store.as_ref(), &nowhere, now)), Err(RepoError::NoSuchRef { .. })));
    // By their IDs.
    let by_id = ExpireOptions { versions: vec![dev[0], dev[1]], ..ExpireOptions::default() };
    let expected = [(dev[0], ExpireAction::Expire), (dev[1], ExpireAction::HeldBy(dev_name))];
    assert_eq!(plan(store.as_ref(), &by_id, now), expected);
    let unknown = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap();
    let by_id = ExpireOptions { versions: vec![unknown], ..ExpireOptions::default() };
    assert!(matches!(block_on(plan_expire(store.as_ref(), &by_id, now)), Err(RepoError::NoSuchVersion { .. })));
    assert_eq!(store.contents(), before, "a plan changes nothing");
}

#[test]
fn what_expires_keeps_its_record_and_loses_its_catalog() {
    let bench = Bench::new(2);
    let (store, main, dev) = scene(&bench);
    let rows = run(store.as_ref(), &keep_last(2), bench.clock.now()).unwrap();
    let gone: Vec<&ExpireRow> = rows.iter().filter(|row| row.done).collect();
    assert_eq!(gone.len(), 7);
    assert!(gone.iter().all(|row| row.bytes > 0 && row.created.is_some()));
    for row in gone {
        let record = block_on(read_record(store.as_ref(), row.version)).unwrap();
        assert_eq!(record.size, Some(row.bytes));
        let mark = block_on(read_mark(store.as_ref(), row.version)).unwrap().unwrap();
        assert_eq!((mark.reason, mark.message.as_deref()), (Some(Reason::Retention), Some("spring cleaning")));
        let live = block_on(read_live(store.as_ref(), row.version));
        assert!(matches!(live, Err(RepoError::Expired { .. })));
        let contents = store.contents();
        assert!(contents.contains_key(&layout::files(row.version)));
        assert!(contents.contains_key(&layout::dataset(row.version)));
        assert!(!contents.contains_key(&layout::catalog(row.version)));
    }
    read_everything(&store);
    for id in [main[2], main[8], main[9], dev[0], dev[1]] {
        read_version(&store, id);
    }
    // Again there is nothing left to do.
    let after = store.contents();
    let rows = run(store.as_ref(), &keep_last(2), bench.clock.now()).unwrap();
    assert!(rows.iter().filter(|row| row.action == ExpireAction::AlreadyExpired).all(|row| row.bytes == 0));
    assert_eq!(store.contents(), after);
}

#[test]
fn what_no_ref_leads_to_expires_by_age_and_only_once_it_has_settled() {
    let bench = Bench::new(3);
    let (store, main, dev) = scene(&bench);
    block_on(delete_ref(store.as_ref(), &RefName::branch("dev").unwrap())).unwrap();
    let actions = |options: &ExpireOptions| plan(store.as_ref(), options, bench.clock.now());
    assert!(!actions(&keep_last(1)).iter().any(|(id, _)| dev.contains(id)));
    bench.clock.advance(2 * DAY);
    assert!(actions(&older_than(1)).contains(&(dev[0], ExpireAction::Unsettled)));
    bench.clock.advance(6 * DAY);
    assert!(actions(&older_than(1)).contains(&(dev[0], ExpireAction::Expire)));
    assert!(actions(&older_than(1)).contains(&(main[9], ExpireAction::HeldBy(RefName::branch("main").unwrap()))));
}

#[test]
fn a_ref_that_appears_since_the_plan_wins() {
    let bench = Bench::new(4);
    let (store, main, _) = scene(&bench);
    let now = bench.clock.now();
    let name = RefName::tag("late").unwrap();
    // Before the call.
    let early = fork(&bench, &store);
    let plan = block_on(plan_expire(early.as_ref(), &keep_last(2), now)).unwrap();
    block_on(create_tag(early.as_ref(), &name, main[5])).unwrap();
    let rows = block_on(run_expire(early.as_ref(), plan, None, now)).unwrap();
    let row = rows.iter().find(|row| row.version == main[5]).unwrap();
    assert_eq!((&row.action, row.done, row.bytes), (&ExpireAction::HeldBy(name.clone()), false, 0));
    read_everything(&early);
    // Just before its mark is written: at every request of the call.
    for at in 1.. {
        let store = fork(&bench, &store);
        let plan = block_on(plan_expire(store.as_ref(), &keep_last(2), now)).unwrap();
        let (below, tag, id) = (store.clone(), name.clone(), main[5]);
        let rule = move |call: Call<'_>| {
            if call.number == at {
                drop(create_tag(below.as_ref(), &tag, id).now_or_never());
            }
            Fault::None
        };
        let between = FaultStore::new(store.clone(), rule);
        let rows = block_on(run_expire(&between, plan, None, now)).unwrap();
        let tagged = read_everything(&store).contains_key(&name);
        let row = rows.iter().find(|row| row.version == main[5]).unwrap();
        assert_eq!(tagged, !row.done, "request {at}");
        if row.done {
            assert!(at > 4);
            return;
        }
    }
}

#[test]
fn stopped_at_any_write_readers_are_safe_and_the_next_call_finishes() {
    let bench = Bench::new(5);
    let (start, main, _) = scene(&bench);
    let now = bench.clock.now();
    let logged = LoggedStore::new(fork(&bench, &start));
    run(&logged, &keep_last(2), now).unwrap();
    let writes = logged.writes();
    assert_eq!(writes, 2 * 7);
    let done = fork(&bench, &start);
    run(done.as_ref(), &keep_last(2), now).unwrap();
    for n in 1..=writes {
        for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
            let store = fork(&bench, &start);
            assert!(run(&stop(store.clone(), n), &keep_last(2), now).is_err());
            read_everything(&store);
            for id in &main {
                // Either it is marked, or it can be read.
                match block_on(read_live(store.as_ref(), *id)) {
                    Ok(_) => read_version(&store, *id),
                    Err(RepoError::Expired { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            run(store.as_ref(), &keep_last(2), now).unwrap();
            assert_eq!(store.contents(), done.contents(), "after a stop at write {n}");
        }
    }
}
