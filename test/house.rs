//! Random histories that also expire, gc, withdraw and clone, with stops at any write: after every step a repository and its copy
//! are sound (docs/format.md section 12).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::TimeDelta;
use fdl::format::{Clock, RefKind, RefName, VersionId};
use fdl::repo::{
    CloneError, CloneOptions, Code, Depth, Expected, ExpireOptions, Finding, FsckOptions, GcOptions, Level, LookInto,
    RepoError, Repository, WithdrawError, WithdrawOptions, clone, create_branch, create_tag, delete_ref, fsck,
    plan_expire, plan_gc, plan_withdraw, read_live, read_mark, run_expire, run_gc, run_withdraw,
};
use fdl::store::{FaultStore, MemoryStore, Store};
use futures::executor::block_on;
use proptest::prelude::*;
use support::{Bench, push_new, read_everything, read_version, repository_with_clock, write_data};

const DAY: i64 = 86_400;

/// What keeps house does; `stop` is the write at which a first try stops, if it makes so many.
#[derive(Debug, Clone)]
enum Step {
    Push { branch: &'static str, count: usize },
    HalfPush { stop: usize },
    Branch { at: usize },
    Tag { name: usize, at: usize },
    DeleteBranch,
    Expire { keep_last: Option<u64>, older_than: Option<i64>, stop: usize },
    Gc { stop: usize },
    Clone { stop: usize },
    Withdraw { at: usize, stop: usize },
    Wait { days: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    let branch = prop::sample::select(vec!["main", "dev"]);
    prop_oneof![
        4 => (branch, 1..4usize).prop_map(|(branch, count)| Step::Push { branch, count }),
        1 => (1..8usize).prop_map(|stop| Step::HalfPush { stop }),
        1 => (0..50usize).prop_map(|at| Step::Branch { at }),
        1 => (0..4usize, 0..50usize).prop_map(|(name, at)| Step::Tag { name, at }),
        1 => Just(Step::DeleteBranch),
        3 => (prop::option::of(1..4u64), prop::option::of(0..20i64), 0..12usize)
            .prop_map(|(keep_last, older_than, stop)| Step::Expire { keep_last, older_than, stop }),
        3 => (0..8usize).prop_map(|stop| Step::Gc { stop }),
        2 => (0..30usize).prop_map(|stop| Step::Clone { stop }),
        1 => (0..50usize, 0..12usize).prop_map(|(at, stop)| Step::Withdraw { at, stop }),
        3 => (1..12i64).prop_map(|days| Step::Wait { days }),
    ]
}

struct World {
    bench: Bench,
    store: Arc<MemoryStore>,
    mirror: Arc<MemoryStore>,
    refs: BTreeMap<RefName, VersionId>,
    versions: Vec<VersionId>,
    expired: BTreeSet<VersionId>,
    withdrawn: BTreeSet<VersionId>,
}

fn dev() -> RefName {
    RefName::branch("dev").unwrap()
}

impl World {
    fn new() -> Self {
        let bench = Bench::new(1);
        let store = repository_with_clock(&bench);
        let (refs, versions) = (BTreeMap::new(), Vec::new());
        let (expired, withdrawn) = (BTreeSet::new(), BTreeSet::new());
        Self { bench, store, mirror: Arc::default(), refs, versions, expired, withdrawn }
    }

    fn look(&self) -> LookInto<'_> {
        self.bench.look()
    }

    fn some_live(&self, at: usize) -> Option<VersionId> {
        let live: Vec<_> = self.versions.iter().filter(|id| !self.expired.contains(id)).collect();
        live.get(at % live.len().max(1)).map(|id| **id)
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Push { branch, count } => {
                let new = push_new(&self.bench, &self.store, branch, count);
                self.refs.insert(RefName::branch(branch).unwrap(), *new.last().unwrap());
                self.versions.extend(new);
            }
            Step::HalfPush { stop } => {
                let chain = self.bench.chain(None, 1);
                write_data(&self.store, &chain);
                let faulty = Arc::new(FaultStore::stop_at_write(self.store.clone(), stop.min(4)));
                assert!(block_on(self.bench.push(faulty, "half", Expected::Absent, &chain)).is_err());
            }
            Step::Branch { at } => {
                if let (Some(id), false) = (self.some_live(at), self.refs.contains_key(&dev())) {
                    block_on(create_branch(self.store.as_ref(), &dev(), id)).unwrap();
                    self.refs.insert(dev(), id);
                }
            }
            Step::Tag { name, at } => {
                let name = RefName::tag(&format!("v{name}")).unwrap();
                if let (Some(id), false) = (self.some_live(at), self.refs.contains_key(&name)) {
                    block_on(create_tag(self.store.as_ref(), &name, id)).unwrap();
                    self.refs.insert(name, id);
                }
            }
            Step::DeleteBranch => {
                if self.refs.remove(&dev()).is_some() {
                    block_on(delete_ref(self.store.as_ref(), &dev())).unwrap();
                }
            }
            Step::Expire { keep_last, older_than, stop } => self.expire(keep_last, older_than, stop),
            Step::Gc { stop } => self.gc(stop),
            Step::Clone { stop } => self.clone(stop),
            Step::Withdraw { at, stop } => self.withdraw(at, stop),
            Step::Wait { days } => self.bench.clock.advance(days * DAY),
        }
        self.check();
    }

    /// Does something twice: stopped at a write, and then whole.
    fn twice<T, E>(&self, stop: usize, what: impl Fn(Arc<dyn Store>) -> Result<T, E>) -> Result<T, E> {
        if stop > 0 {
            drop(what(Arc::new(FaultStore::stop_at_write(self.store.clone(), stop))));
            read_everything(&self.store);
        }
        what(self.store.clone())
    }

    fn expire(&mut self, keep_last: Option<u64>, older_than: Option<i64>, stop: usize) {
        let options =
            ExpireOptions { keep_last, older_than: older_than.map(TimeDelta::days), ..ExpireOptions::default() };
        let now = self.bench.clock.now();
        let rows = self.twice(stop, |store| {
            let plan = block_on(plan_expire(store.as_ref(), &options, now))?;
            block_on(run_expire(store.as_ref(), plan, None, now))
        });
        self.expired.extend(rows.unwrap().iter().filter(|row| row.done).map(|row| row.version));
        assert!(self.refs.values().all(|id| !self.expired.contains(id)));
    }

    fn gc(&self, stop: usize) {
        let (now, options) = (self.bench.clock.now(), GcOptions::default());
        let rows = self.twice(stop, |store| {
            let repository = block_on(Repository::open(store))?;
            let plan = block_on(plan_gc(&repository, &options, self.look(), now))?;
            block_on(run_gc(&repository, plan, &options, self.look(), self.bench.random.as_ref()))
        });
        assert!(rows.unwrap().iter().all(|row| row.done), "nobody else is at work");
    }

    fn clone(&mut self, stop: usize) {
        let options = CloneOptions { refs: Vec::new(), sources: true, unknown: false };
        let source = block_on(Repository::open(self.store.clone())).unwrap();
        if stop > 0 {
            let faulty = FaultStore::stop_at_write(self.mirror.clone(), stop);
            drop(block_on(clone(&source, &faulty, &options, self.look())));
        }
        match block_on(clone(&source, self.mirror.as_ref(), &options, self.look())) {
            Ok(done) => assert_eq!(done.refs, self.refs),
            // The branch was deleted and begun anew elsewhere.
            Err(CloneError::Diverged { reference, .. }) => {
                assert_eq!(reference, dev());
                self.mirror = Arc::default();
            }
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Withdraws a version, and with it the tags that hold it.
    fn withdraw(&mut self, at: usize, stop: usize) {
        let Some(id) = self.some_live(at) else {
            return;
        };
        let options = WithdrawOptions { versions: vec![id], ..WithdrawOptions::default() };
        let now = self.bench.clock.now();
        let run = |store: Arc<dyn Store>| {
            let repository = block_on(Repository::open(store))?;
            let plan = block_on(plan_withdraw(&repository, &options, self.look()))?;
            block_on(run_withdraw(&repository, plan, None, self.look(), now))
        };
        let head = self.refs.iter().any(|(name, held)| *held == id && name.kind() == RefKind::Branch);
        if head {
            assert!(matches!(run(self.store.clone()), Err(WithdrawError::Held(_))));
            return;
        }
        if stop > 0 {
            drop(run(Arc::new(FaultStore::stop_at_write(self.store.clone(), stop))));
        }
        run(self.store.clone()).unwrap();
        self.refs.retain(|_, held| *held != id);
        self.withdrawn.insert(id);
        self.expired.insert(id);
        // A copy keeps tags that the source has deleted, and says so; here it begins anew.
        self.mirror = Arc::default();
    }

    fn check(&self) {
        assert_eq!(read_everything(&self.store), self.refs);
        for id in &self.versions {
            match self.expired.contains(id) {
                false => read_version(&self.store, *id),
                true => {
                    let live = block_on(read_live(self.store.as_ref(), *id));
                    match self.withdrawn.contains(id) {
                        true => assert!(matches!(live, Err(RepoError::Withdrawn { .. }))),
                        false => assert!(matches!(live, Err(RepoError::Expired { .. }))),
                    }
                    assert!(block_on(read_mark(self.store.as_ref(), *id)).unwrap().is_some());
                }
            }
        }
        self.check_sound(&self.store);
        if block_on(Repository::open(self.mirror.clone())).is_ok() {
            self.check_sound(&self.mirror);
        }
    }

    fn check_sound(&self, store: &MemoryStore) {
        let options = FsckOptions { depth: Depth::Files, reference: None };
        let findings = block_on(fsck(store, &options, self.look())).unwrap().findings;
        // A push that was stopped leaves a folder without a record.
        let half = |finding: &Finding| finding.level == Level::Warning && finding.code == Code::Unfinished;
        let bad: Vec<&Finding> = findings.iter().filter(|finding| !half(finding)).collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_house_that_is_kept_stays_sound(steps in prop::collection::vec(step(), 1..25)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
    }
}
