//! Random histories against a plain model, and writers that race (docs/format.md sections 8 and 9).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use fdl::format::{RefKind, RefName, VersionId};
use fdl::repo::{
    Expected, LocalVersion, LogOptions, PushOutcome, PushReport, RefsJsonWrite, RepoError, create_branch, create_tag,
    delete_ref, log, refresh_refs_json, resolve,
};
use fdl::store::{MemoryStore, Store};
use futures::TryStreamExt;
use futures::executor::block_on;
use proptest::prelude::*;
use support::{Bench, Turns, interleave, read_everything, refs_json, repository, write_data};

/// `dev` and `dev/x` cannot both exist.
const NAMES: [&str; 4] = ["main", "dev", "dev/x", "v1"];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.as_slice())
}

/// What a writer may do.
#[derive(Debug, Clone)]
enum Step {
    /// Pushes versions built on what the branch holds, or on an older version.
    Push {
        branch: &'static str,
        length: usize,
        stale: bool,
    },
    /// Two writers push to branches at the same time.
    Race {
        branches: [&'static str; 2],
        schedule: Vec<usize>,
    },
    Branch {
        name: &'static str,
        at: usize,
    },
    Tag {
        name: &'static str,
        at: usize,
    },
    Delete {
        name: &'static str,
        tag: bool,
    },
    Log {
        at: usize,
        max_count: usize,
    },
    Resolve {
        name: &'static str,
        back: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let push = (name(), 1..3usize, prop::bool::weighted(0.2));
    prop_oneof![
        4 => push.prop_map(|(branch, length, stale)| Step::Push { branch, length, stale }),
        2 => ([name(), name()], prop::collection::vec(0..2usize, 0..60))
            .prop_map(|(branches, schedule)| Step::Race { branches, schedule }),
        1 => (name(), 0..50usize).prop_map(|(name, at)| Step::Branch { name, at }),
        1 => (name(), 0..50usize).prop_map(|(name, at)| Step::Tag { name, at }),
        1 => (name(), any::<bool>()).prop_map(|(name, tag)| Step::Delete { name, tag }),
        1 => (0..50usize, 0..5usize).prop_map(|(at, max_count)| Step::Log { at, max_count }),
        1 => (name(), 0..4u32).prop_map(|(name, back)| Step::Resolve { name, back }),
    ]
}

/// What a repository is, without any of how it is kept.
#[derive(Debug, Default)]
struct Model {
    refs: BTreeMap<RefName, VersionId>,
    parents: BTreeMap<VersionId, Option<VersionId>>,
}

impl Model {
    fn history(&self, from: VersionId) -> Vec<VersionId> {
        std::iter::successors(Some(from), |id| self.parents[id]).collect()
    }

    fn some_version(&self, at: usize) -> Option<VersionId> {
        self.parents.keys().nth(at % self.parents.len().max(1)).copied()
    }

    fn is_free(&self, name: &RefName) -> bool {
        !self.refs.keys().any(|other| other.conflicts_with(name))
    }

    fn pushed(&mut self, branch: &RefName, chain: &[LocalVersion]) {
        self.parents.extend(chain.iter().map(|version| (version.id(), version.record.parent())));
        self.refs.insert(branch.clone(), chain.last().unwrap().id());
    }
}

/// A repository beside its model.
struct World {
    bench: Bench,
    store: Arc<MemoryStore>,
    model: Model,
}

impl World {
    fn new() -> Self {
        let bench = Bench::new(1);
        let store = repository(&bench);
        Self { bench, store, model: Model::default() }
    }

    fn chain(&self, parent: Option<VersionId>, length: usize) -> Vec<LocalVersion> {
        let chain = self.bench.chain(parent, length);
        write_data(&self.store, &chain);
        chain
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Push { branch, length, stale } => self.push(branch, length, stale),
            Step::Race { branches, schedule } => self.race(branches, &schedule),
            Step::Branch { name, at } => self.create(RefName::branch(name).unwrap(), at),
            Step::Tag { name, at } => self.create(RefName::tag(name).unwrap(), at),
            Step::Delete { name, tag } => self.delete(name, tag),
            Step::Log { at, max_count } => self.log(at, max_count),
            Step::Resolve { name, back } => self.resolve(name, back),
        }
        assert_eq!(read_everything(&self.store), self.model.refs);
        assert_eq!(refs_json(&self.store), self.model.refs);
    }

    fn push(&mut self, branch: &str, length: usize, stale: bool) {
        let reference = RefName::branch(branch).unwrap();
        let held = self.model.refs.get(&reference).copied();
        let base = match (held, stale) {
            (Some(held), true) => self.model.parents[&held],
            _ => held,
        };
        let chain = self.chain(base, length);
        let expected = base.map_or(Expected::Absent, Expected::Exactly);
        let before = self.store.contents();
        let result = block_on(self.bench.push(self.store.clone(), branch, expected, &chain));
        if base != held {
            assert!(matches!(result, Err(RepoError::Conflict { now, .. }) if now == held));
            assert_eq!(self.store.contents(), before, "a conflict that could be seen writes nothing");
            return;
        }
        if held.is_none() && !self.model.is_free(&reference) {
            assert!(matches!(result, Err(RepoError::NameTaken { .. })));
            return;
        }
        let report = result.unwrap();
        assert_eq!((report.outcome, report.old, report.versions), (PushOutcome::Pushed, held, length));
        self.model.pushed(&reference, &chain);
        // The same again is no news.
        let again = block_on(self.bench.push(self.store.clone(), branch, expected, &chain)).unwrap();
        assert_eq!((again.outcome, again.new), (PushOutcome::UpToDate, report.new));
    }

    fn race(&mut self, branches: [&str; 2], schedule: &[usize]) {
        let references = branches.map(|branch| RefName::branch(branch).unwrap());
        let [a, b] = &references;
        let new = references.iter().any(|name| !self.model.refs.contains_key(name) && !self.model.is_free(name));
        if new || a.conflicts_with(b) {
            return;
        }
        let held = references.each_ref().map(|name| self.model.refs.get(name).copied());
        let chains = held.map(|held| self.chain(held, 1));
        let turns: Arc<dyn Store> = Arc::new(Turns(self.store.clone()));
        let writers = branches.iter().zip(held).zip(&chains).map(|((branch, held), chain)| {
            let expected = held.map_or(Expected::Absent, Expected::Exactly);
            let push = self.bench.push(turns.clone(), branch, expected, chain);
            Box::pin(push) as Pin<Box<dyn Future<Output = Result<PushReport, RepoError>>>>
        });
        // At every moment, whatever a ref holds can be read.
        let results = interleave(writers.collect(), schedule, || drop(read_everything(&self.store)));
        let landed: Vec<usize> = (0..2).filter(|writer| results[*writer].is_ok()).collect();
        if a == b {
            assert_eq!(landed.len(), 1, "{results:?}");
            let winner = landed[0];
            let won = chains[winner][0].id();
            let lost = results[1 - winner].as_ref().unwrap_err();
            assert!(matches!(lost, RepoError::Conflict { now, .. } if *now == Some(won)), "{lost}");
        } else {
            assert_eq!(landed.len(), 2, "{results:?}");
        }
        for writer in landed {
            assert!(results[writer].as_ref().unwrap().notes.is_empty(), "{results:?}");
            self.model.pushed(&references[writer], &chains[writer]);
        }
    }

    fn create(&mut self, name: RefName, at: usize) {
        let Some(version) = self.model.some_version(at) else {
            return;
        };
        let result = match name.kind() {
            RefKind::Tag => block_on(create_tag(self.store.as_ref(), &name, version)),
            _ => block_on(create_branch(self.store.as_ref(), &name, version)),
        };
        match self.model.refs.get(&name) {
            Some(held) => assert!(matches!(result, Err(RepoError::Exists { version, .. }) if version == *held)),
            None if !self.model.is_free(&name) => assert!(matches!(result, Err(RepoError::NameTaken { .. }))),
            None => {
                assert_eq!(result.unwrap().version, version);
                self.model.refs.insert(name, version);
            }
        }
    }

    fn delete(&mut self, name: &str, tag: bool) {
        let kind = if tag { RefKind::Tag } else { RefKind::Branch };
        let name = RefName::new(kind, name).unwrap();
        let result = block_on(delete_ref(self.store.as_ref(), &name));
        if name.full() == "refs/heads/main" {
            assert!(matches!(result, Err(RepoError::DefaultBranch { .. })));
            return;
        }
        match self.model.refs.remove(&name) {
            Some(version) => assert_eq!(result.unwrap().version, version),
            None => assert!(matches!(result, Err(RepoError::NoSuchRef { .. }))),
        }
    }

    fn log(&self, at: usize, max_count: usize) {
        let Some(version) = self.model.some_version(at) else {
            return;
        };
        let options = LogOptions { max_count: Some(max_count), totals: true, ..LogOptions::default() };
        let entries: Vec<_> = block_on(log(self.store.clone(), version, options).try_collect()).unwrap();
        let told: Vec<VersionId> = entries.iter().map(|entry| entry.record.id).collect();
        let history = self.model.history(version);
        assert_eq!(told, history[..max_count.min(history.len())]);
        assert!(entries.iter().all(|entry| entry.totals.is_some()));
    }

    fn resolve(&self, name: &str, back: u32) {
        let revision = format!("{name}~{back}").parse().unwrap();
        let result = block_on(resolve(self.store.as_ref(), &revision));
        let branch = self.model.refs.get(&RefName::branch(name).unwrap());
        let tag = self.model.refs.get(&RefName::tag(name).unwrap());
        match (branch, tag) {
            (Some(_), Some(_)) => assert!(matches!(result, Err(RepoError::AmbiguousName { .. }))),
            (Some(held), None) | (None, Some(held)) => {
                match self.model.history(*held).get(usize::try_from(back).unwrap()) {
                    Some(id) => assert_eq!(result.unwrap().version, Some(*id)),
                    None => assert!(matches!(result, Err(RepoError::NoSuchAncestor { .. }))),
                }
            }
            (None, None) if name == "main" && back == 0 => assert_eq!(result.unwrap().version, None),
            (None, None) if name == "main" => assert!(matches!(result, Err(RepoError::Unborn { .. }))),
            (None, None) => assert!(matches!(result, Err(RepoError::NoSuchRef { .. }))),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_repository_does_what_its_model_does(steps in prop::collection::vec(step(), 1..25)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
    }
}

/// Pushes one version to `main`, again and again on what it holds then, until it lands.
async fn until_it_lands(bench: &Bench, memory: &MemoryStore, store: Arc<dyn Store>) -> VersionId {
    loop {
        let held = resolve(store.as_ref(), &"main".parse().unwrap()).await.unwrap().version;
        let chain = bench.chain(held, 1);
        write_data(memory, &chain);
        let expected = held.map_or(Expected::Absent, Expected::Exactly);
        match bench.push(store.clone(), "main", expected, &chain).await {
            Ok(report) => return report.new.unwrap(),
            Err(RepoError::Conflict { .. }) => {}
            Err(error) => unreachable!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_many_writers_that_retry_all_land(schedule in prop::collection::vec(0..6usize, 0..400)) {
        let bench = Bench::new(2);
        let store = repository(&bench);
        let turns: Arc<dyn Store> = Arc::new(Turns(store.clone()));
        let writers = (0..6).map(|_| {
            let writer = until_it_lands(&bench, &store, turns.clone());
            Box::pin(writer) as Pin<Box<dyn Future<Output = VersionId>>>
        });
        let mut landed = interleave(writers.collect(), &schedule, || {});
        let refs = read_everything(&store);
        // refs.json may lag when many write it at the same time; one more push or a refresh mends it.
        block_on(refresh_refs_json(store.as_ref(), None)).unwrap();
        prop_assert_eq!(refs_json(&store), refs.clone());
        prop_assert_eq!(block_on(refresh_refs_json(store.as_ref(), None)).unwrap(), RefsJsonWrite::Current);
        let last = refs[&RefName::branch("main").unwrap()];
        let entries: Vec<_> = block_on(log(store.clone(), last, LogOptions::default()).try_collect()).unwrap();
        let mut told: Vec<VersionId> = entries.iter().map(|entry| entry.record.id).collect();
        told.sort();
        landed.sort();
        prop_assert_eq!(told, landed);
    }
}
