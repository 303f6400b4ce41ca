//! What somebody who may write a repository can put into it, and what comes of it: lists that leave files out, names that
//! programs take for their settings, links, pipes, files without end (docs/format.md sections 1 and 12).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use fdl::format::{Clock, DataDir, Files, Record, Sha256, Status, Trust, VersionId, layout};
use fdl::repo::{
    CloneError, CloneOptions, Cloned, Code, Depth, Expected, ExpireOptions, Finding, FsckOptions, GcOptions,
    LocalVersion, LogOptions, LookInto, RepoError, Repository, WithdrawAction, WithdrawOptions, check_version, clone,
    fetch_catalog, fsck, log, plan_expire, plan_gc, plan_withdraw, read_files, require_inside, run_expire, run_gc,
    run_withdraw,
};
use fdl::store::{Body, FolderStore, MemoryStore, Store};
use futures::StreamExt;
use futures::executor::block_on;
use support::{Bench, push_new, repository_with_clock, write_data};

const SHOWN: &str = "data/main/t/shown";
const HIDDEN: &str = "data/main/t/left-out";

fn put(store: &MemoryStore, key: &str, bytes: impl Into<bytes::Bytes>) {
    block_on(store.put(key, Body::Bytes(bytes.into()))).unwrap();
}

/// Makes the record of a version vouch for a files.json that leaves a file out, which its catalog names.
fn leave_out(store: &MemoryStore, id: VersionId, key: &str) {
    let bytes = block_on(store.get(&layout::files(id))).unwrap().bytes;
    let mut files = Files::parse(&bytes, &DataDir::default()).unwrap();
    files.tables.iter_mut().for_each(|table| table.files.retain(|file| file.path != key));
    let bytes = files.print().unwrap();
    let record = block_on(store.get(&layout::version_json(id))).unwrap().bytes;
    let mut record = Record::parse(id, &record).unwrap();
    record.files_sha256 = Some(Sha256::of(&bytes));
    put(store, &layout::files(id), bytes);
    put(store, &layout::version_json(id), record.print().unwrap());
}

/// A version whose files.json leaves a file out, and one without that file on top of it.
fn lying(bench: &Bench) -> (Arc<MemoryStore>, Vec<VersionId>) {
    let store = repository_with_clock(bench);
    let first = bench.version(None, &[(SHOWN, 3), (HIDDEN, 3)]);
    let second = bench.version(Some(first.id()), &[(SHOWN, 3)]);
    let chain: [LocalVersion; 2] = [first, second];
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    let ids: Vec<VersionId> = chain.iter().map(LocalVersion::id).collect();
    leave_out(&store, ids[0], HIDDEN);
    bench.clock.advance(10 * 86_400);
    (store, ids)
}

#[test]
fn gc_keeps_what_a_catalog_names_though_no_list_does() {
    let bench = Bench::new(1);
    let (store, ids) = lying(&bench);
    put(&store, "data/main/t/garbage", "x");
    bench.clock.advance(10 * 86_400);
    let (repository, options) = (block_on(Repository::open(store.clone())).unwrap(), GcOptions::default());
    let plan = |look| block_on(plan_gc(&repository, &options, look, bench.clock.now()));
    // Whoever cannot look into catalogs deletes nothing.
    let blind = plan(LookInto { scratch: bench.path(), files: None });
    assert!(matches!(blind, Err(RepoError::Corrupt { .. })), "{blind:?}");
    let planned = plan(bench.look()).unwrap();
    assert_eq!(planned.rows.iter().map(|row| row.path.as_str()).collect::<Vec<_>>(), ["data/main/t/garbage"]);
    block_on(run_gc(&repository, planned, &options, bench.look(), bench.random.as_ref())).unwrap();
    assert!(store.contents().contains_key(HIDDEN) && !store.contents().contains_key("data/main/t/garbage"));
    // A version that comes between the plan and the run.
    let late = bench.version(Some(ids[1]), &[("data/main/t/late", 3), (SHOWN, 3)]);
    write_data(&store, std::slice::from_ref(&late));
    bench.clock.advance(10 * 86_400);
    let planned = plan(bench.look()).unwrap();
    assert_eq!(planned.rows.len(), 1);
    let id = late.id();
    block_on(bench.push(store.clone(), "main", Expected::Exactly(ids[1]), &[late])).unwrap();
    leave_out(&store, id, "data/main/t/late");
    let rows = block_on(run_gc(&repository, planned, &options, bench.look(), bench.random.as_ref())).unwrap();
    assert!(rows.iter().all(|row| !row.done) && store.contents().contains_key("data/main/t/late"));
    // What has expired needs nothing.
    let expire = ExpireOptions { versions: vec![ids[0]], ..ExpireOptions::default() };
    let now = bench.clock.now();
    let planned = block_on(plan_expire(store.as_ref(), &expire, now)).unwrap();
    block_on(run_expire(store.as_ref(), planned, None, now)).unwrap();
    assert_eq!(plan(bench.look()).unwrap().rows[0].path, HIDDEN);
}

#[test]
fn nothing_to_delete_takes_no_catalog() {
    let bench = Bench::new(2);
    let store = repository_with_clock(&bench);
    push_new(&bench, &store, "main", 3);
    bench.clock.advance(10 * 86_400);
    let logged = Arc::new(fdl::store::LoggedStore::new(store));
    let repository = block_on(Repository::open(logged.clone())).unwrap();
    let plan = block_on(plan_gc(&repository, &GcOptions::default(), bench.look(), bench.clock.now())).unwrap();
    assert_eq!((plan.rows.len(), logged.count(fdl::store::Verb::Download)), (0, 0));
}

#[test]
fn a_withdrawal_takes_what_a_catalog_names_and_spares_what_another_reads() {
    let bench = Bench::new(3);
    let (store, ids) = lying(&bench);
    let repository = block_on(Repository::open(store.clone())).unwrap();
    let options = WithdrawOptions { versions: vec![ids[0]], ..WithdrawOptions::default() };
    let run = |options: &WithdrawOptions| {
        let plan = block_on(plan_withdraw(&repository, options, bench.look())).unwrap();
        block_on(run_withdraw(&repository, plan, None, bench.look(), bench.clock.now())).unwrap()
    };
    // A kept version reads the file, though its list does not say so.
    leave_out(&store, ids[1], SHOWN);
    let rows = run(&options);
    assert!(!store.contents().contains_key(HIDDEN) && store.contents().contains_key(SHOWN));
    assert!(rows.iter().any(|row| row.object == SHOWN && row.action == WithdrawAction::KeepFile { by: ids[1] }));
}

const ALL: CloneOptions = CloneOptions { refs: Vec::new(), sources: true, unknown: false };

fn copy(bench: &Bench, source: Arc<dyn Store>, target: &dyn Store, unknown: bool) -> Result<Cloned, CloneError> {
    let source = block_on(Repository::open(source)).unwrap();
    block_on(clone(&source, target, &CloneOptions { unknown, ..ALL }, bench.look()))
}

#[test]
fn a_copy_has_what_the_catalogs_name() {
    let bench = Bench::new(4);
    let (store, _) = lying(&bench);
    let target = MemoryStore::new();
    copy(&bench, store, &target, false).unwrap();
    assert!(target.contents().contains_key(HIDDEN));
}

#[test]
fn a_copy_takes_what_the_format_names_and_never_what_is_hidden() {
    let bench = Bench::new(5);
    let store = repository_with_clock(&bench);
    let id = push_new(&bench, &store, "main", 1)[0];
    let source = format!("sources/{}", Sha256::of(b"a source"));
    put(&store, &source, "a source");
    let format: Vec<String> = store.contents().into_keys().collect();
    let in_version = |name: &str| format!("versions/{id}/{name}");
    let plain =
        ["README.md".to_owned(), in_version("note.txt"), in_version("catalogs/9.9.duckdb"), "sources/x".to_owned()];
    let hidden = [
        ".duckdbrc".to_owned(),
        ".bashrc".to_owned(),
        in_version(".profile"),
        in_version("a/.ssh/authorized_keys"),
        "sources/.ssh/authorized_keys".to_owned(),
    ];
    for key in plain.iter().chain(&hidden) {
        put(&store, key, "evil");
    }
    let target = MemoryStore::new();
    let notes = copy(&bench, store.clone(), &target, false).unwrap().notes;
    assert_eq!(target.contents().into_keys().collect::<Vec<_>>(), format);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("and 3 more stayed behind") && notes[0].contains("unknown := true"), "{notes:?}");
    assert!(notes[1].contains("and 4 more stayed behind") && notes[1].contains("begin with a dot"), "{notes:?}");
    let target = MemoryStore::new();
    let notes = copy(&bench, store.clone(), &target, true).unwrap().notes;
    let mut expected: Vec<String> = format.iter().chain(&plain).cloned().collect();
    expected.sort();
    assert_eq!(target.contents().into_keys().collect::<Vec<_>>(), expected);
    assert_eq!(notes.len(), 1, "{notes:?}");
    // A version that names such a file as its data.
    let evil = bench.version(Some(id), &[("data/main/.ssh/authorized_keys", 4)]);
    write_data(&store, std::slice::from_ref(&evil));
    block_on(bench.push(store.clone(), "main", Expected::Exactly(id), &[evil])).unwrap();
    let target = MemoryStore::new();
    let error = copy(&bench, store, &target, true).unwrap_err();
    assert!(matches!(&error, CloneError::Hidden { key } if key == "data/main/.ssh/authorized_keys"), "{error}");
    assert!(!target.contents().keys().any(|key| key.contains(".ssh") || key == "fdl.json"));
}

fn folder(path: &Path) -> Arc<dyn Store> {
    Arc::new(FolderStore::open(path.to_str().unwrap()).unwrap())
}

/// A repository in a folder with one version on `main`.
async fn in_folder(bench: &Bench, root: &Path) -> (Arc<dyn Store>, LocalVersion) {
    let store = folder(root);
    bench.init(store.as_ref()).await;
    let version = bench.version(None, &[(SHOWN, 3)]);
    store.put(SHOWN, Body::Bytes("xxx".into())).await.unwrap();
    bench.push(store.clone(), "main", Expected::Absent, std::slice::from_ref(&version)).await.unwrap();
    (store, version)
}

#[tokio::test]
async fn a_copy_and_its_source_are_apart() {
    let bench = Bench::new(6);
    let root = bench.path().join("repository");
    let (store, _) = in_folder(&bench, &root).await;
    let repository = Repository::open(store).await.unwrap();
    fs::create_dir(bench.path().join("elsewhere")).unwrap();
    symlink(root.join("data"), bench.path().join("elsewhere/link")).unwrap();
    let url = format!("file://{}/data/copy", root.display());
    let at = |path: &str| bench.path().join(path).to_str().unwrap().to_owned();
    let inside = ["repository", "repository/data/copy", "repository/copy", "elsewhere/link/copy", "."].map(at);
    for target in inside.into_iter().chain([url]) {
        let store = FolderStore::open(&target).unwrap();
        let error = clone(&repository, &store, &ALL, bench.look()).await.unwrap_err();
        assert!(matches!(error, CloneError::Nested { .. }), "{target}: {error}");
    }
    assert!(!root.join("data/copy").exists() && !root.join("copy").exists());
    // A name that only begins alike is another place.
    let beside = FolderStore::open(&at("repository2")).unwrap();
    clone(&repository, &beside, &ALL, bench.look()).await.unwrap();
}

async fn findings(bench: &Bench, store: &dyn Store, depth: Depth) -> Vec<Finding> {
    let options = FsckOptions { depth, reference: None };
    fsck(store, &options, bench.look()).await.unwrap().findings
}

/// Each of these, put where something of a repository was, is found at its place and stops nobody.
#[tokio::test(flavor = "multi_thread")]
async fn links_and_pipes_are_found_and_read_by_nobody() {
    for (number, object) in [
        "data",
        "data/main",
        SHOWN,
        "versions",
        "VERSION/ducklake.duckdb",
        "VERSION/files.json",
        "VERSION/dataset.json",
        "VERSION/version.json",
        "refs/heads",
        "refs/heads/main",
        "refs.json",
        "HEAD",
        "fdl.json",
    ]
    .into_iter()
    .enumerate()
    {
        for pipe in [false, true] {
            let bench = Bench::new(100 + number as u64);
            let root = bench.path().join("repository");
            let (store, version) = in_folder(&bench, &root).await;
            let object = object.replace("VERSION", &format!("versions/{}", version.id()));
            let (path, away) = (root.join(&object), bench.path().join("away"));
            fs::rename(&path, &away).unwrap();
            match pipe {
                true => assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
                false => symlink(&away, &path).unwrap(),
            }
            let look = async {
                for depth in [Depth::Structure, Depth::Files] {
                    let deep = object.starts_with("data/") && depth == Depth::Structure;
                    let found = findings(&bench, store.as_ref(), depth).await;
                    let odd = |finding: &&Finding| finding.object == object && finding.problem.contains("it is no ");
                    let told = found.iter().filter(odd).count();
                    assert_eq!(told, usize::from(!deep), "{object} {depth:?} {pipe}: {found:#?}");
                    let what = if pipe { "a pipe" } else { "a symbolic link" };
                    assert!(found.iter().filter(odd).all(|finding| finding.problem.contains(what)));
                }
                let data = require_inside(store.as_ref(), &DataDir::default(), Some(&version.files)).await;
                assert_eq!(data.is_err(), object.starts_with("data"), "{object}: {data:?}");
                let scratch = tempfile::tempdir().unwrap();
                let catalog = version.record.main_catalog();
                let copy = fetch_catalog(store.as_ref(), &version.record, &catalog, scratch.path()).await;
                match object.ends_with("ducklake.duckdb") || object == "versions" {
                    true => assert!(matches!(copy, Err(RepoError::Corrupt { .. })), "{copy:?}"),
                    // A copy, whatever becomes of the repository afterwards.
                    false => assert!(!copy.unwrap().starts_with(&root)),
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(20), look).await.unwrap();
        }
    }
}

/// A file without end where a small one should be: found, and never read further than it may go.
#[tokio::test]
async fn files_without_end_are_found() {
    let bench = Bench::new(7);
    let root = bench.path().join("repository");
    let (store, version) = in_folder(&bench, &root).await;
    let folder = format!("versions/{}", version.id());
    for object in ["fdl.json", "HEAD", "refs.json", "refs/heads/main"].map(str::to_owned).into_iter().chain(
        ["version.json", "version.json.sig", "dataset.json", "files.json"].map(|name| format!("{folder}/{name}")),
    ) {
        let path = root.join(&object);
        let before = fs::read(&path).ok();
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let found = findings(&bench, store.as_ref(), Depth::Structure).await;
        assert!(
            found.iter().any(|finding| finding.object == object && finding.problem.contains("more than")),
            "{object}: {found:#?}"
        );
        match before {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    assert_eq!(findings(&bench, store.as_ref(), Depth::Files).await, []);
    // What a reader can do without stops nobody, and a signature of that length is a bad one.
    for name in ["dataset.json", "files.json", "version.json.sig"] {
        let path = root.join(&folder).join(name);
        let before = fs::read(&path).ok();
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let entry = log(store.clone(), version.id(), LogOptions { totals: true, ..LogOptions::default() });
        assert!(entry.boxed().next().await.unwrap().is_ok(), "{name}");
        assert_eq!(
            read_files(store.as_ref(), &DataDir::default(), &version.record).await.unwrap().is_some(),
            name != "files.json"
        );
        let verdict = check_version(store.as_ref(), version.id(), &Trust::default()).await.unwrap().verdict;
        let bad = verdict.status == Status::Bad;
        assert_eq!(bad, name.ends_with(".sig"), "{name}: {verdict:?}");
        match before {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    // A catalog that goes on behind the size of its record.
    let catalog = root.join(&folder).join("ducklake.duckdb");
    fs::OpenOptions::new().write(true).open(&catalog).unwrap().set_len(1 << 40).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let copy = fetch_catalog(store.as_ref(), &version.record, &version.record.main_catalog(), scratch.path()).await;
    let error = copy.unwrap_err().to_string();
    assert!(error.contains("bytes that version.json says"), "{error}");
    let found = findings(&bench, store.as_ref(), Depth::Files).await;
    assert_eq!(found.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::Size]);
}
