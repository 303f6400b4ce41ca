//! Copies of a repository: whole, up to date, never ahead of their source.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fdl::format::{Clock, RefName, Sha256, VersionId, layout};
use fdl::repo::{
    CloneError, CloneOptions, Cloned, Depth, ExpireOptions, FsckOptions, LookInto, RepoError, Repository, clone,
    create_branch, create_tag, fsck, plan_expire, run_expire,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::{
    Body, ConditionalWrite, ETag, FaultStore, FolderStore, LoggedStore, MemoryStore, Object, ObjectMeta, Store,
    StoreError,
};
use futures::StreamExt;
use futures::executor::block_on;
use futures::stream::{self, BoxStream};
use support::{Bench, Careless, fork, push_new, read_everything, repository_with_clock};

const ALL: CloneOptions = CloneOptions { refs: Vec::new(), sources: true, unknown: true };

fn look(bench: &Bench) -> LookInto<'_> {
    LookInto { scratch: bench.path(), files: None }
}

fn put(store: &MemoryStore, key: &str, text: impl Into<String>) {
    block_on(store.put(key, Body::Bytes(text.into().into()))).unwrap();
}

async fn copy_with(
    bench: &Bench,
    source: Arc<dyn Store>,
    target: &dyn Store,
    options: &CloneOptions,
) -> Result<Cloned, CloneError> {
    let source = Repository::open(source).await?;
    clone(&source, target, options, look(bench)).await
}

fn copy(bench: &Bench, source: &Arc<MemoryStore>, target: &dyn Store) -> Result<Cloned, CloneError> {
    block_on(copy_with(bench, source.clone(), target, &ALL))
}

fn expire(bench: &Bench, store: &MemoryStore, versions: &[VersionId]) {
    let options = ExpireOptions { versions: versions.to_vec(), ..ExpireOptions::default() };
    let now = bench.clock.now();
    let plan = block_on(plan_expire(store, &options, now)).unwrap();
    block_on(run_expire(store, plan, None, now)).unwrap();
}

fn assert_sound(bench: &Bench, store: &dyn Store) {
    let options = FsckOptions { depth: Depth::Files, reference: None };
    assert_eq!(block_on(fsck(store, &options, look(bench))).unwrap().findings, []);
}

/// What a copy should hold: everything but garbage, a host's own refs, and half of a version.
fn copied(store: &MemoryStore, garbage: &[&str]) -> BTreeMap<String, Bytes> {
    store.contents().into_iter().filter(|(key, _)| !garbage.contains(&key.as_str())).collect()
}

/// Branches, a tag, an expired version, source files and files that nobody knows.
fn scene(bench: &Bench) -> (Arc<MemoryStore>, Vec<VersionId>) {
    let store = repository_with_clock(bench);
    let main = push_new(bench, &store, "main", 3);
    block_on(create_branch(store.as_ref(), &RefName::branch("dev/x").unwrap(), main[1])).unwrap();
    push_new(bench, &store, "dev/x", 2);
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), main[1])).unwrap();
    expire(bench, &store, &main[..1]);
    let note = format!("{}note.txt", layout::version(main[1]));
    for (key, text) in [("README.md", "read me"), ("sources/abc", "the source"), (&note, "kept")] {
        put(&store, key, text);
    }
    (store, main)
}

#[test]
fn a_copy_holds_the_same_and_the_next_call_finds_nothing_to_do() {
    let bench = Bench::new(1);
    let (store, _) = scene(&bench);
    let garbage = ["data/main/t/garbage", "versions/x/y", "refs/requests/1", "deep/er/file"];
    garbage.iter().for_each(|key| put(&store, key, "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10"));
    let target = MemoryStore::new();
    let done = copy(&bench, &store, &target).unwrap();
    let expected = copied(&store, &garbage);
    let differ: Vec<&String> =
        expected.keys().filter(|key| target.contents().get(*key) != expected.get(*key)).collect();
    // The source's refs.json names the request, and that is the host's own business.
    assert_eq!(differ, Vec::<&String>::new());
    assert_eq!(target.contents().len(), expected.len());
    // All but refs.json, which the copy makes for itself.
    assert_eq!((done.objects_copied, done.objects_skipped), (expected.len() as u64 - 1, 0));
    assert!(done.bytes_copied > 100 && done.notes.is_empty());
    assert_eq!(done.refs, read_everything(&target));
    assert_sound(&bench, &target);
    let logged = LoggedStore::new(Arc::new(target));
    let again = copy(&bench, &store, &logged).unwrap();
    assert_eq!((again.objects_copied, again.bytes_copied), (0, 0));
    // Nothing is asked of a version that is there, whatever became of it.
    let of_versions = logged.requests().into_iter().filter(|request| request.key.starts_with("versions/0"));
    assert_eq!(of_versions.map(|request| request.key).collect::<Vec<_>>(), Vec::<String>::new());
    let left: Vec<_> = std::fs::read_dir(bench.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".fdl-")), "copies are removed");
}

#[test]
fn an_update_brings_what_is_new_and_takes_away_what_the_source_took_away() {
    let bench = Bench::new(2);
    let (store, main) = scene(&bench);
    let target = MemoryStore::new();
    copy(&bench, &store, &target).unwrap();
    let new = push_new(&bench, &store, "main", 1);
    expire(&bench, &store, &[main[2]]);
    let logged = LoggedStore::new(Arc::new(target));
    let done = block_on(copy_with(&bench, store.clone(), &logged, &ALL)).unwrap();
    // A data file, four objects of a version, a ref, a mark.
    assert_eq!(done.objects_copied, 7);
    assert_eq!(done.refs[&RefName::branch("main").unwrap()], new[0]);
    assert_sound(&bench, &logged);
    let key = layout::catalog(main[2]);
    assert!(block_on(logged.head(&key)).is_err());
}

#[test]
fn what_a_ref_of_the_copy_holds_is_not_taken_away_but_told() {
    let bench = Bench::new(3);
    let (store, main) = scene(&bench);
    let target = MemoryStore::new();
    copy(&bench, &store, &target).unwrap();
    block_on(create_tag(&target, &RefName::tag("ours").unwrap(), main[2])).unwrap();
    push_new(&bench, &store, "main", 1);
    expire(&bench, &store, &[main[2]]);
    let done = copy(&bench, &store, &target).unwrap();
    assert_eq!(done.notes.len(), 1);
    assert!(done.notes[0].contains("refs/tags/ours"), "{:?}", done.notes);
    assert!(read_everything(&target).contains_key(&RefName::tag("ours").unwrap()));
}

#[test]
fn a_copy_that_diverged_or_is_another_repository_is_refused_before_anything_is_written() {
    let bench = Bench::new(4);
    let (store, main) = scene(&bench);
    let start = Arc::new(MemoryStore::new());
    copy(&bench, &store, start.as_ref()).unwrap();
    let ahead = fork(&bench, &start);
    let theirs = push_new(&bench, &ahead, "main", 1);
    // As long as nobody pushes to the source, the copy is ahead and no more: a backup brings back what was lost.
    let lost = format!("{}dataset.json", layout::version(main[1]));
    block_on(ahead.delete(&lost)).unwrap();
    let done = copy(&bench, &store, ahead.as_ref()).unwrap();
    assert!(done.notes.iter().any(|note| note.contains("refs/heads/main of the copy is ahead")), "{:?}", done.notes);
    assert_eq!(done.refs, read_everything(&ahead));
    assert_eq!(done.refs[&RefName::branch("main").unwrap()], theirs[0]);
    assert!(ahead.contents().contains_key(&lost));
    for branch in ["main", "dev/x"] {
        push_new(&bench, &store, branch, 1);
    }
    let tagged = fork(&bench, &start);
    put(&tagged, "refs/tags/v1", main[2].to_string());
    for (target, name, held) in [(ahead, "refs/heads/main", theirs[0]), (tagged, "refs/tags/v1", main[2])] {
        let before = target.contents();
        match copy(&bench, &store, target.as_ref()) {
            Err(CloneError::Diverged { reference, theirs, .. }) => {
                assert_eq!((reference.full(), theirs), (name, held));
            }
            other => unreachable!("{other:?}"),
        }
        assert_eq!(target.contents(), before);
    }
    let other = repository_with_clock(&bench);
    let before = other.contents();
    assert!(matches!(copy(&bench, &store, other.as_ref()), Err(CloneError::OtherRepository { what: "id", .. })));
    assert_eq!(other.contents(), before);
}

#[test]
fn chosen_refs_bring_only_what_they_need() {
    let bench = Bench::new(5);
    let (store, main) = scene(&bench);
    let options = |names: &[&str]| CloneOptions {
        refs: names.iter().map(|name| (*name).to_owned()).collect(),
        sources: false,
        unknown: false,
    };
    let target = MemoryStore::new();
    let done = block_on(copy_with(&bench, store.clone(), &target, &options(&["v1"]))).unwrap();
    assert_eq!(done.refs, BTreeMap::from([(RefName::tag("v1").unwrap(), main[1])]));
    let contents = target.contents();
    let ids: BTreeSet<VersionId> =
        contents.keys().filter_map(|key| layout::in_version(key)).map(|(id, _)| id).collect();
    assert_eq!(ids, main[..2].iter().copied().collect());
    assert_eq!(contents.keys().filter(|key| key.starts_with("data/")).count(), 2);
    assert!(!contents.contains_key("sources/abc") && !contents.contains_key("README.md"));
    assert_sound(&bench, &target);
    // A branch of its own becomes the default branch.
    let target = MemoryStore::new();
    block_on(copy_with(&bench, store.clone(), &target, &options(&["refs/heads/dev/x"]))).unwrap();
    assert_eq!(&target.contents()["HEAD"][..], b"ref: refs/heads/dev/x\n");
    assert_sound(&bench, &target);
    // The rest later.
    copy(&bench, &store, &target).unwrap();
    assert_eq!(read_everything(&target), read_everything(&store));
    let nothing = block_on(copy_with(&bench, store.clone(), &target, &options(&["x"])));
    assert!(matches!(nothing, Err(CloneError::Repo(RepoError::NoSuchRef { .. }))));
}

#[test]
fn damage_in_the_source_does_not_spread() {
    let bench = Bench::new(6);
    let (start, main) = scene(&bench);
    for key in [layout::catalog(main[1]), layout::dataset(main[1]), layout::files(main[1])] {
        let store = fork(&bench, &start);
        put(&store, &key, "damaged");
        let result = copy(&bench, &store, &MemoryStore::new());
        assert!(
            matches!(&result, Err(CloneError::Repo(RepoError::Corrupt { object, .. })) if *object == key),
            "{result:?}"
        );
    }
    for damage in [Some("another size"), None] {
        let store = fork(&bench, &start);
        let needed = read_needed(&store, main[1]);
        match damage {
            Some(text) => put(&store, &needed, text),
            None => block_on(store.delete(&needed)).unwrap(),
        }
        let target = MemoryStore::new();
        let result = copy(&bench, &store, &target);
        assert!(matches!(&result, Err(CloneError::Repo(RepoError::Corrupt { object, .. })) if *object == needed));
        assert!(!target.contents().contains_key("fdl.json"), "no repository is begun that is not whole");
    }
    // What the copy lost is brought back.
    let target = MemoryStore::new();
    copy(&bench, &start, &target).unwrap();
    for key in [read_needed(&start, main[1]), layout::catalog(main[1]), layout::version_json(main[2])] {
        block_on(target.delete(&key)).unwrap();
        assert_eq!(copy(&bench, &start, &target).unwrap().objects_copied, 1);
        assert_sound(&bench, &target);
    }
}

/// A data file that a version names.
fn read_needed(store: &MemoryStore, id: VersionId) -> String {
    let bytes = block_on(store.get(&layout::files(id))).unwrap().bytes;
    let files = fdl::format::Files::parse(&bytes, &fdl::format::DataDir::default()).unwrap();
    files.iter().next().unwrap().0.to_owned()
}

#[test]
fn stopped_at_any_write_the_copy_is_safe_and_the_next_call_finishes() {
    let bench = Bench::new(7);
    let (store, main) = scene(&bench);
    let old = Arc::new(MemoryStore::new());
    copy(&bench, &store, old.as_ref()).unwrap();
    let before = read_everything(&old);
    push_new(&bench, &store, "main", 2);
    push_new(&bench, &store, "dev/x", 1);
    expire(&bench, &store, &main[2..]);
    let now = read_everything(&store);
    for start in [Arc::new(MemoryStore::new()), old] {
        let logged = Arc::new(LoggedStore::new(fork(&bench, &start)));
        copy(&bench, &store, logged.as_ref()).unwrap();
        let whole = fork(&bench, &start);
        copy(&bench, &store, whole.as_ref()).unwrap();
        assert_sound(&bench, whole.as_ref());
        for n in 1..=logged.writes() {
            for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
                let target = fork(&bench, &start);
                drop(copy(&bench, &store, &stop(target.clone(), n)));
                if target.contents().contains_key("fdl.json") {
                    for (name, held) in read_everything(&target) {
                        assert!([before.get(&name), now.get(&name)].contains(&Some(&held)), "{name} after write {n}");
                    }
                }
                copy(&bench, &store, target.as_ref()).unwrap();
                assert!(target.contents() == whole.contents(), "after a stop at write {n}");
            }
        }
    }
}

#[test]
fn lost_answers_are_read_back() {
    let bench = Bench::new(8);
    let (store, _) = scene(&bench);
    for fault in [Fault::LoseAnswer, Fault::LoseAnswerAndRefuse] {
        let target = Arc::new(MemoryStore::new());
        let rule = move |call: Call<'_>| match call.verb.is_write() && call.key.starts_with("refs/") {
            true => fault,
            false => Fault::None,
        };
        copy(&bench, &store, &FaultStore::new(target.clone(), rule)).unwrap();
        assert_eq!(target.contents(), store.contents());
    }
}

/// A store that cannot list, as a plain HTTP server.
#[derive(Debug)]
struct Unlisted(Arc<MemoryStore>);

#[async_trait]
impl Store for Unlisted {
    fn location(&self) -> &str {
        self.0.location()
    }
    fn list(&self, _: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let error = StoreError::Unsupported { store: "a plain HTTP server", action: "list objects" };
        stream::iter([Err(error)]).boxed()
    }
    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        self.0.get(key).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.0.get_range(key, range).await
    }
    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        self.0.download(key, target, most).await
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.head(key).await
    }
    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.0.put(key, body).await
    }
    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.0.put_if_absent(key, bytes).await
    }
    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.0.put_if_unchanged(key, bytes, etag).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.0.delete(key).await
    }
    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.0.delete_if_unchanged(key, etag).await
    }
}

#[test]
fn where_a_store_cannot_list_its_refs_lead_the_way() {
    let bench = Bench::new(10);
    let (store, main) = scene(&bench);
    let unlisted: Arc<dyn Store> = Arc::new(Unlisted(store.clone()));
    let target = Arc::new(MemoryStore::new());
    let done = block_on(copy_with(&bench, unlisted.clone(), target.as_ref(), &ALL)).unwrap();
    assert_eq!(done.notes, Vec::<String>::new());
    assert!(!target.contents().contains_key("sources/abc"), "no version names it, so nothing leads to it");
    assert_sound(&bench, target.as_ref());
    assert_eq!(read_everything(&target), read_everything(&store));
    assert!(target.contents().contains_key(&layout::expired(main[0])));
    // The other way round, twice, with something new in between.
    let target = Arc::new(MemoryStore::new());
    let through = Unlisted(target.clone());
    // A host takes nothing that the format does not know.
    let known = |store: &MemoryStore| {
        let mut all = store.contents();
        all.retain(|key, _| !key.ends_with("README.md") && !key.ends_with("note.txt"));
        all
    };
    let notes = copy(&bench, &store, &through).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("stayed behind")), "{notes:?}");
    assert_eq!(known(&target).keys().collect::<Vec<_>>(), known(&store).keys().collect::<Vec<_>>());
    assert!(target.contents() == known(&store));
    assert_eq!(copy(&bench, &store, &through).unwrap().objects_copied, 0);
    push_new(&bench, &store, "main", 1);
    assert_eq!(copy(&bench, &store, &through).unwrap().objects_copied, 6);
    assert!(target.contents() == known(&store));
    // What the source takes away later stays there, and whoever copies hears of it.
    expire(&bench, &store, &[main[2]]);
    let notes = copy(&bench, &store, &through).unwrap().notes;
    let told = format!("1 versions that the source has taken away, {} the first", main[2]);
    assert!(notes.iter().any(|note| note.contains(&told)), "{notes:?}");
    assert!(!target.contents().contains_key(&layout::expired(main[2])));
}

/// What the format does not know may change, and is nobody's damage.
#[test]
fn another_readme_of_the_copy_stays() {
    let bench = Bench::new(12);
    let (store, _) = scene(&bench);
    let target = MemoryStore::new();
    assert_eq!(copy(&bench, &store, &target).unwrap().notes, Vec::<String>::new());
    put(&store, "README.md", "read this");
    push_new(&bench, &store, "main", 1);
    let notes = copy(&bench, &store, &target).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].starts_with("README.md: "), "{notes:?}");
    assert_eq!(target.contents()["README.md"], "read me");
    assert_eq!(read_everything(&target), read_everything(&store));
}

/// Files of any size, from and to a folder.
#[tokio::test]
async fn folders_and_large_catalogs() {
    let bench = Bench::new(9);
    let folder = bench.version_folder(None, &[("data/main/t/町 1.parquet", 5)]);
    let catalog = vec![7; 9 << 20];
    let record = std::fs::read_to_string(folder.join("version.json")).unwrap();
    let small = std::fs::read(folder.join("ducklake.duckdb")).unwrap();
    let record = record
        .replace(&Sha256::of(&small).to_string(), &Sha256::of(&catalog).to_string())
        .replace(&format!("\"size\": {}", small.len()), &format!("\"size\": {}", catalog.len()));
    std::fs::write(folder.join("version.json"), record).unwrap();
    std::fs::write(folder.join("ducklake.duckdb"), &catalog).unwrap();
    let version = fdl::repo::LocalVersion::load(&folder, &fdl::format::DataDir::default()).unwrap();
    let at = |name: &str| FolderStore::open(bench.path().join(name).to_str().unwrap()).unwrap();
    let first: Arc<dyn Store> = Arc::new(at("first"));
    bench.init(first.as_ref()).await;
    first.put("data/main/t/町 1.parquet", Body::Bytes("xxxxx".into())).await.unwrap();
    bench.push(first.clone(), "main", fdl::repo::Expected::Absent, &[version]).await.unwrap();
    let memory = Arc::new(MemoryStore::new());
    copy_with(&bench, first.clone(), memory.as_ref(), &ALL).await.unwrap();
    let last: Arc<dyn Store> = Arc::new(at("last"));
    let done = copy_with(&bench, memory.clone(), last.as_ref(), &ALL).await.unwrap();
    assert!(done.bytes_copied > 9 << 20);
    let options = FsckOptions { depth: Depth::Files, reference: None };
    for store in [&first, &last] {
        assert_eq!(fsck(store.as_ref(), &options, look(&bench)).await.unwrap().findings, []);
    }
    for key in memory.contents().keys() {
        assert_eq!(first.get(key).await.unwrap().bytes, last.get(key).await.unwrap().bytes, "{key}");
    }
}

#[test]
fn a_store_that_ignores_conditions_gets_no_refs() {
    let bench = Bench::new(40);
    let store = repository_with_clock(&bench);
    push_new(&bench, &store, "main", 2);
    let new = Arc::new(MemoryStore::new());
    let there = Arc::new(MemoryStore::new());
    copy(&bench, &store, there.as_ref()).unwrap();
    push_new(&bench, &store, "main", 1);
    for target in [new, there] {
        let refs = || target.contents().into_iter().filter(|(key, _)| key.starts_with("refs")).collect::<Vec<_>>();
        let before = refs();
        let error = copy(&bench, &store, &Careless(target.clone())).unwrap_err();
        assert!(matches!(error, CloneError::Repo(RepoError::NoConditions { .. })), "{error}");
        assert_eq!(refs(), before);
    }
}
