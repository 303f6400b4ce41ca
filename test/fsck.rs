//! Damage of every kind is found at the depth that should find it, and what is sound gives no finding.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fdl::format::{CatalogEntry, Clock, DataDir, Files, Record, RefName, Sha256, VersionId, layout};
use fdl::repo::{
    Code, Depth, Expected, ExpireOptions, Finding, FsckOptions, Level, LookInto, RepoError, create_branch, create_tag,
    fsck, plan_expire, run_expire,
};
use fdl::store::{Body, LoggedStore, MemoryStore, Store, Verb};
use futures::executor::block_on;
use support::{Bench, fork, push_new, repository, repository_with_clock, write_data};

fn look(bench: &Bench) -> LookInto<'_> {
    LookInto { scratch: bench.path(), files: None }
}

fn at(depth: Depth) -> FsckOptions {
    FsckOptions { depth, reference: None }
}

fn check(bench: &Bench, store: &dyn Store, depth: Depth) -> Vec<Finding> {
    block_on(fsck(store, &at(depth), look(bench))).unwrap().findings
}

fn codes(findings: &[Finding]) -> Vec<(Level, Code, &str)> {
    findings.iter().map(|finding| (finding.level, finding.code, finding.object.as_str())).collect()
}

fn get(store: &MemoryStore, key: &str) -> Bytes {
    block_on(store.get(key)).unwrap().bytes
}

fn put(store: &MemoryStore, key: &str, bytes: impl Into<Bytes>) {
    block_on(store.put(key, Body::Bytes(bytes.into()))).unwrap();
}

/// Three versions of `main` and a tag, each with data files of other sizes, the second with a catalog in another format.
fn scene(bench: &Bench) -> (Arc<MemoryStore>, Vec<VersionId>) {
    let store = repository_with_clock(bench);
    let first = bench.version(None, &[("data/main/t/a", 3)]);
    let second = bench.version(Some(first.id()), &[("data/main/t/a", 3), ("data/main/t/町", 40)]);
    let third = bench.version(Some(second.id()), &[("data/main/t/町", 40), ("data/main/t/c", 5)]);
    let chain = [first, second, third];
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    let ids: Vec<VersionId> = chain.iter().map(fdl::repo::LocalVersion::id).collect();
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), ids[0])).unwrap();
    let key = layout::version_json(ids[1]);
    let mut record = Record::parse(ids[1], &get(&store, &key)).unwrap();
    let catalog = b"in the format of before";
    let entry = CatalogEntry { sha256: Sha256::of(catalog), size: Some(catalog.len() as u64) };
    record.catalogs.insert("0.3".to_owned(), entry);
    put(&store, &layout::other_catalog(ids[1], "0.3"), catalog.as_slice());
    put(&store, &key, record.print().unwrap());
    (store, ids)
}

#[test]
fn what_is_sound_gives_no_finding() {
    let bench = Bench::new(1);
    let empty = repository(&bench);
    assert_eq!(check(&bench, empty.as_ref(), Depth::Files), []);
    let (store, ids) = scene(&bench);
    block_on(create_branch(store.as_ref(), &RefName::branch("a/b").unwrap(), ids[0])).unwrap();
    push_new(&bench, &store, "a/b", 2);
    for key in ["README.md", "sources/abc", "data/main/t/garbage", &format!("{}note.txt", layout::version(ids[0]))] {
        put(&store, key, "kept");
    }
    let now = bench.clock.now();
    let options = ExpireOptions { keep_last: Some(1), ..ExpireOptions::default() };
    let plan = block_on(plan_expire(store.as_ref(), &options, now)).unwrap();
    assert!(block_on(run_expire(store.as_ref(), plan, None, now)).unwrap().iter().any(|row| row.done));
    for depth in [Depth::Structure, Depth::Files] {
        assert_eq!(check(&bench, store.as_ref(), depth), []);
    }
    let live = block_on(fsck(store.as_ref(), &at(Depth::Files), look(&bench))).unwrap().live;
    let live: Vec<VersionId> = live.iter().map(|record| record.id).collect();
    assert_eq!((live.len(), live.contains(&ids[0]), live.contains(&ids[1])), (3, true, false));
}

/// What a bit flip in the middle of an object would not always show: the flip is in its first byte.
fn damages(store: &MemoryStore, key: &str) -> Vec<(&'static str, Arc<MemoryStore>)> {
    let contents = store.contents();
    let bytes = contents[key].clone();
    let damaged = |with: Option<Bytes>| {
        let other = Arc::new(store.fork(chrono::Utc::now));
        match with {
            Some(bytes) => put(&other, key, bytes),
            None => block_on(other.delete(key)).unwrap(),
        }
        other
    };
    let mut flipped = bytes.to_vec();
    flipped[0] ^= 1;
    let mut all = vec![
        ("removed", damaged(None)),
        ("truncated", damaged(Some(bytes.slice(..bytes.len() / 2)))),
        ("emptied", damaged(Some(Bytes::new()))),
        ("flipped", damaged(Some(flipped.into()))),
    ];
    let name = |key: &str| match layout::in_version(key) {
        Some((_, name)) => name.to_owned(),
        None => key.split('/').next().unwrap().to_owned(),
    };
    let other = contents.iter().find(|(other, with)| name(other) == name(key) && **with != bytes);
    if let Some((other, with)) = other {
        let swapped = damaged(Some(with.clone()));
        put(&swapped, other, bytes);
        all.push(("swapped", swapped));
    }
    all
}

#[test]
fn every_object_damaged_in_every_way_is_found_at_its_depth() {
    let bench = Bench::new(2);
    let (store, _) = scene(&bench);
    let mut found = BTreeMap::new();
    for key in store.contents().keys() {
        for (how, damaged) in damages(&store, key) {
            let structure = check(&bench, damaged.as_ref(), Depth::Structure);
            let files = check(&bench, damaged.as_ref(), Depth::Files);
            let (data, catalog) = (key.starts_with("data/"), key.ends_with(".duckdb"));
            let at_structure = !(data || catalog && matches!(how, "flipped" | "swapped"));
            assert_eq!(at_structure, !structure.is_empty(), "{key} {how}: {structure:?}");
            // Bits of data files are the business of the depth of content.
            let at_files = !(data && how == "flipped");
            assert_eq!(at_files, !files.is_empty(), "{key} {how}");
            assert!(structure.iter().all(|finding| files.contains(finding)), "{key} {how}: {files:?}");
            *found.entry(how).or_insert(0) += usize::from(at_files);
        }
    }
    assert!(found.values().all(|count| *count >= 9), "{found:?}");
}

#[test]
fn findings_name_the_object_and_what_mends_it() {
    let bench = Bench::new(3);
    let (start, ids) = scene(&bench);
    let damage = |with: &dyn Fn(&MemoryStore)| {
        let store = fork(&bench, &start);
        with(&store);
        check(&bench, store.as_ref(), Depth::Files)
    };
    let remove = |key: &str| {
        let key = key.to_owned();
        move |store: &MemoryStore| block_on(store.delete(&key)).unwrap()
    };
    let missing = damage(&remove("data/main/t/c"));
    assert_eq!(codes(&missing), [(Level::Error, Code::Missing, "data/main/t/c")]);
    assert!(missing[0].problem.contains(&ids[2].to_string()), "{missing:?}");
    assert!(missing[0].repair.as_ref().unwrap().contains("fdl_clone"));

    let marked = damage(&|store: &MemoryStore| put(store, &layout::expired(ids[0]), "?"));
    let (mark, catalog) = (layout::expired(ids[0]), layout::catalog(ids[0]));
    let expected = [
        (Level::Error, Code::HeldExpired, "refs/tags/v1"),
        (Level::Warning, Code::Unfinished, catalog.as_str()),
        (Level::Warning, Code::Unreadable, mark.as_str()),
    ];
    assert_eq!(codes(&marked), expected);
    let repairs: Vec<&str> = marked.iter().filter_map(|finding| finding.repair.as_deref()).collect();
    let expire = format!("CALL fdl_expire('memory:', versions := ['{}'], dry_run := false)", ids[0]);
    assert_eq!(repairs, ["CALL fdl_delete_ref('memory:', ref := 'refs/tags/v1')", &expire]);

    let parent = damage(&remove(&layout::version_json(ids[1])));
    let (lost, child) = (layout::version_json(ids[1]), layout::version_json(ids[2]));
    let expected = [(Level::Error, Code::Missing, lost.as_str()), (Level::Error, Code::Parent, child.as_str())];
    assert_eq!(codes(&parent), expected);

    let circle = damage(&|store: &MemoryStore| {
        let key = layout::version_json(ids[0]);
        let text = String::from_utf8(get(store, &key).to_vec()).unwrap();
        put(store, &key, text.replace("\"parents\": []", &format!("\"parents\": [\"{}\"]", ids[2])));
    });
    assert_eq!(circle.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::Parent]);

    let lag = damage(&|store: &MemoryStore| put(store, "refs/tags/late", ids[1].to_string()));
    assert_eq!(codes(&lag), [(Level::Warning, Code::Lag, "refs.json")]);

    let strays = ["ducklake.duckdb", "lake.ducklake", "refs/heads/UP", "versions/x", "versions/y/version.json"];
    let stray = damage(&|store: &MemoryStore| strays.iter().for_each(|key| put(store, key, "x")));
    assert_eq!(codes(&stray), strays.map(|key| (Level::Warning, Code::Stray, key)));

    let path = damage(&|store: &MemoryStore| {
        let key = layout::files(ids[2]);
        let text = String::from_utf8(get(store, &key).to_vec()).unwrap().replace("data/main/t/c", "data/../../c");
        let record = String::from_utf8(get(store, &layout::version_json(ids[2])).to_vec()).unwrap();
        let hash = |text: &[u8]| Sha256::of(text).to_string();
        let record = record.replace(&hash(&get(store, &key)), &hash(text.as_bytes()));
        put(store, &key, text);
        put(store, &layout::version_json(ids[2]), record);
    });
    let files = layout::files(ids[2]);
    assert_eq!(codes(&path), [(Level::Error, Code::Unreadable, files.as_str())]);
}

#[test]
fn a_catalog_that_names_other_files_is_found() {
    let bench = Bench::new(4);
    let (store, ids) = scene(&bench);
    let mut lists: BTreeMap<Vec<u8>, Files> = ids
        .iter()
        .map(|id| {
            let files = Files::parse(&get(&store, &layout::files(*id)), &DataDir::default()).unwrap();
            (get(&store, &layout::catalog(*id)).to_vec(), files)
        })
        .collect();
    let older = get(&store, &layout::other_catalog(ids[1], "0.3")).to_vec();
    lists.insert(older.clone(), lists[get(&store, &layout::catalog(ids[1])).as_ref()].clone());
    let hook = |path: &Path| Ok(lists[&std::fs::read(path).unwrap()].clone());
    // The catalog in the other format alone.
    let forgetful = |path: &Path| match std::fs::read(path).unwrap() {
        bytes if bytes == older => Ok(Files::new(Vec::new())),
        bytes => Ok(lists[&bytes].clone()),
    };
    let wrong = |_: &Path| Ok(Files::new(Vec::new()));
    let broken = |_: &Path| Err("it is no catalog".to_owned());
    let with = |hook| LookInto { scratch: bench.path(), files: Some(hook) };
    let run = |look| block_on(fsck(store.as_ref(), &at(Depth::Files), look)).unwrap().findings;
    assert_eq!(run(with(&hook)), []);
    let found = run(with(&forgetful));
    let problem = "it does not name the files that catalogs/0.3.duckdb names";
    assert_eq!((found.len(), found[0].object.clone()), (1, layout::files(ids[1])));
    assert_eq!((found[0].code, found[0].problem.as_str()), (Code::Files, problem));
    let found = run(with(&wrong));
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|finding| finding.code == Code::Files && finding.object.ends_with("files.json")));
    let found = run(with(&broken));
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|finding| finding.problem == "it is no catalog"));
    let left: Vec<_> = std::fs::read_dir(bench.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".fdl-")), "copies are removed");
}

#[test]
fn one_ref_alone() {
    let bench = Bench::new(5);
    let (store, ids) = scene(&bench);
    block_on(store.delete(&layout::dataset(ids[2]))).unwrap();
    put(&store, "refs/heads/broken", "x");
    let options = |name| FsckOptions { depth: Depth::Files, reference: Some(name) };
    let run = |name| block_on(fsck(store.as_ref(), &options(name), look(&bench)));
    assert_eq!(run(RefName::tag("v1").unwrap()).unwrap().findings, []);
    let main = run(RefName::branch("main").unwrap()).unwrap();
    assert_eq!((main.findings.len(), main.live.len()), (1, 3));
    assert_eq!(run(RefName::branch("broken").unwrap()).unwrap().findings.len(), 1);
    assert!(matches!(run(RefName::branch("x").unwrap()), Err(RepoError::NoSuchRef { .. })));
    let nothing = block_on(fsck(&MemoryStore::new(), &at(Depth::Files), look(&bench)));
    assert!(matches!(nothing, Err(RepoError::NotARepository { .. })));
}

#[test]
fn one_listing_and_no_question_for_a_data_file() {
    let bench = Bench::new(6);
    let (store, _) = scene(&bench);
    let logged = LoggedStore::new(store);
    assert_eq!(check(&bench, &logged, Depth::Files), []);
    let requests = logged.requests();
    assert!(!requests.iter().any(|request| request.key.starts_with("data/")));
    // refs/, versions/, and everything once.
    assert_eq!(logged.count(Verb::List), 3);
    assert_eq!(logged.count(Verb::Download), 4);
    assert_eq!(logged.writes(), 0);
}
