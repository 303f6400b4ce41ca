//! What is withdrawn leaves nothing behind, and what others read stays (docs/format.md section 12).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::{Clock, DataDir, Reason, RefName, Sha256, VersionId, layout};
use fdl::repo::{
    CloneError, CloneOptions, Cloned, Code, Depth, Expected, ExpireOptions, FsckOptions, LocalVersion, LookInto,
    RepoError, Repository, WithdrawAction, WithdrawError, WithdrawOptions, WithdrawRow, clone, create_branch,
    create_tag, delete_ref, fsck, list_refs, plan_expire, plan_withdraw, read_mark, run_expire, run_withdraw,
};
use fdl::store::{Body, FaultStore, LoggedStore, MemoryStore, Store};
use futures::executor::block_on;
use support::{Bench, fork, read_everything, read_version, refs_json, repository_with_clock};

const SECRET: &str = "data/main/people/name=Aiko/secret.parquet";
const OPEN: &str = "data/main/towns/open.parquet";

fn look(bench: &Bench) -> LookInto<'_> {
    bench.look()
}

/// A version whose only table has this name. The catalogs of those with `SECRET` hold a statistic of it, and all of them
/// were made from one file.
fn version(bench: &Bench, parent: Option<VersionId>, table: &str, data: &[(&str, u64)]) -> LocalVersion {
    let folder = bench.version_folder(parent, data);
    let file = |name: &str| folder.join(name);
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let mut record = read("version.json");
    let mut change = |name: &str, new: String| {
        let (old, new_hash) = (Sha256::of(read(name).as_bytes()), Sha256::of(new.as_bytes()));
        record = record.replace(&old.to_string(), &new_hash.to_string());
        if name == layout::CATALOG {
            record = record.replace(&format!("\"size\": {}", read(name).len()), &format!("\"size\": {}", new.len()));
        }
        std::fs::write(file(name), new).unwrap();
    };
    change("files.json", read("files.json").replace("\"table\": \"t\"", &format!("\"table\": \"{table}\"")));
    if data.iter().any(|(key, _)| *key == SECRET) {
        let view = r#"{"name": "v", "kind": "view", "sql": "SELECT * FROM people WHERE name = 'Aiko'"}"#;
        let schemas = format!(r#""schemas": [{{"name": "main", "tables": [{view}]}}]"#);
        let dataset = read("dataset.json");
        let (start, rest) = dataset.split_once("\"schemas\": []").unwrap();
        change("dataset.json", format!("{start}{schemas}{rest}"));
        change(layout::CATALOG, format!("{} min = Aiko", read(layout::CATALOG)));
    }
    if data.iter().any(|(key, _)| *key == SECRET) {
        let source = "Aiko, as she was before";
        let hash = Sha256::of(source.as_bytes());
        let named =
            format!(r#", "sources": [{{"name": "people.csv", "sha256": "{hash}", "size": {}}}]}}"#, source.len());
        record = format!("{}{named}", record.trim_end().trim_end_matches('}'));
        std::fs::create_dir(file("sources")).unwrap();
        std::fs::write(file(&layout::source(hash)), source).unwrap();
    }
    std::fs::write(file("version.json"), record).unwrap();
    LocalVersion::load(&folder, &DataDir::default()).unwrap()
}

/// Five versions: the second to fourth hold the secret, the third past retention; a tag at the second.
fn scene(bench: &Bench) -> (Arc<MemoryStore>, Vec<VersionId>) {
    let store = repository_with_clock(bench);
    let mut chain: Vec<LocalVersion> = Vec::new();
    let both: [(&str, u64); 2] = [(SECRET, 10), (OPEN, 4)];
    let plans =
        [("towns", &both[1..]), ("people", &both), ("people", &both), ("people", &both[..1]), ("towns", &both[1..])];
    for (table, data) in plans {
        let parent = chain.last().map(LocalVersion::id);
        chain.push(version(bench, parent, table, data));
    }
    block_on(store.put(SECRET, Body::Bytes("Aiko Tanak".into()))).unwrap();
    block_on(store.put(OPEN, Body::Bytes("open".into()))).unwrap();
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    assert_eq!(store.contents().keys().filter(|key| key.starts_with(layout::SOURCES)).count(), 1);
    let ids: Vec<VersionId> = chain.iter().map(LocalVersion::id).collect();
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), ids[1])).unwrap();
    block_on(create_tag(store.as_ref(), &RefName::tag("clean").unwrap(), ids[0])).unwrap();
    let options = ExpireOptions { versions: vec![ids[2]], ..ExpireOptions::default() };
    let plan = block_on(plan_expire(store.as_ref(), &options, bench.clock.now())).unwrap();
    block_on(run_expire(store.as_ref(), plan, None, bench.clock.now())).unwrap();
    (store, ids)
}

fn by_file() -> WithdrawOptions {
    WithdrawOptions { files: vec![SECRET.to_owned()], ..WithdrawOptions::default() }
}

fn run(bench: &Bench, store: Arc<dyn Store>, options: &WithdrawOptions) -> Result<Vec<WithdrawRow>, WithdrawError> {
    let repository = block_on(Repository::open(store))?;
    let plan = block_on(plan_withdraw(&repository, options, look(bench)))?;
    block_on(run_withdraw(&repository, plan, Some("asked for"), look(bench), bench.clock.now()))
}

/// No object of the repository holds the value, in its content or in its key.
fn assert_clean(store: &MemoryStore) {
    for (key, bytes) in store.contents() {
        let text = String::from_utf8_lossy(&bytes).replace("Aiko <aiko@example.org>", "");
        assert!(!key.contains("Aiko") && !text.contains("Aiko"), "{key}");
    }
}

#[test]
fn by_file_by_version_or_by_table_nothing_of_it_is_left() {
    let bench = Bench::new(1);
    let (start, ids) = scene(&bench);
    let tables =
        WithdrawOptions { tables: vec![("main".to_owned(), "people".to_owned())], ..WithdrawOptions::default() };
    let versions = WithdrawOptions { versions: ids[1..4].to_vec(), ..WithdrawOptions::default() };
    for (options, refused) in [(by_file(), 0), (tables, 1), (versions, 1)] {
        let store = fork(&bench, &start);
        let repository = block_on(Repository::open(store.clone())).unwrap();
        let before = store.contents();
        let plan = block_on(plan_withdraw(&repository, &options, look(&bench)));
        if refused == 1 && !options.tables.is_empty() {
            // A file of the table is read by the head under another name.
            assert!(matches!(plan, Err(WithdrawError::Held(_))), "{plan:?}");
            continue;
        }
        let plan = plan.unwrap();
        assert_eq!(plan.versions, ids[1..4].iter().copied().collect());
        assert_eq!(store.contents(), before, "a plan changes nothing");
        let rows = run(&bench, store.clone(), &options).unwrap();
        let kept: Vec<_> = rows.iter().filter(|row| !row.done).collect();
        assert_eq!(kept.len(), refused);
        assert!(kept.iter().all(|row| row.object == OPEN && matches!(row.action, WithdrawAction::KeepFile { .. })));
        assert_clean(&store);
        for id in &ids[1..4] {
            let mark = block_on(read_mark(store.as_ref(), *id)).unwrap().unwrap();
            assert_eq!((mark.reason, mark.message.as_deref()), (Some(Reason::Withdrawn), Some("asked for")));
            // It held the query of a view; the first version's, which held none, stays.
            assert!(!store.contents().contains_key(&layout::dataset(*id)));
        }
        read_version(&store, ids[0]);
        let refs = read_everything(&store);
        assert_eq!(refs.len(), 2);
        assert_eq!(refs_json(&store), refs);
        let options = FsckOptions { depth: Depth::Files, reference: None };
        let findings = block_on(fsck(store.as_ref(), &options, look(&bench))).unwrap().findings;
        assert!(findings.iter().all(|finding| finding.code != Code::Unfinished), "{findings:?}");
        assert_eq!(findings, []);
        let again = run(&bench, store, &by_file()).unwrap();
        let again: Vec<_> = again.iter().map(|row| (row.object.as_str(), &row.action)).collect();
        assert_eq!(again, [(SECRET, &WithdrawAction::Nothing)]);
    }
}

#[test]
fn a_table_that_only_old_versions_have() {
    let bench = Bench::new(2);
    let store = repository_with_clock(&bench);
    let first = version(&bench, None, "people", &[(SECRET, 10)]);
    let second = version(&bench, Some(first.id()), "towns", &[(OPEN, 4)]);
    block_on(store.put(SECRET, Body::Bytes("Aiko Tanak".into()))).unwrap();
    block_on(store.put(OPEN, Body::Bytes("open".into()))).unwrap();
    let chain = [first, second];
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    let of = |table: &str| WithdrawOptions {
        tables: vec![("main".to_owned(), table.to_owned())],
        ..WithdrawOptions::default()
    };
    let held = run(&bench, store.clone(), &of("towns"));
    assert!(matches!(held, Err(WithdrawError::Held(heads)) if heads[0].1 == chain[1].id()));
    let nothing = run(&bench, store.clone(), &of("nothing")).unwrap();
    assert!(matches!(&nothing[..], [row] if row.object == "main.nothing" && row.action == WithdrawAction::Nothing));
    assert!(run(&bench, store.clone(), &of("people")).unwrap().iter().all(|row| row.done));
    assert_clean(&store);
    read_everything(&store);
}

#[test]
fn heads_and_bad_questions_are_refused() {
    let bench = Bench::new(3);
    let (store, ids) = scene(&bench);
    let dev = RefName::branch("dev").unwrap();
    block_on(create_branch(store.as_ref(), &dev, ids[3])).unwrap();
    let before = store.contents();
    match run(&bench, store.clone(), &by_file()) {
        Err(error @ WithdrawError::Held(_)) => assert!(error.to_string().contains("refs/heads/dev (at ")),
        other => unreachable!("{other:?}"),
    }
    let unknown = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap();
    let bad = WithdrawOptions { versions: vec![unknown], ..WithdrawOptions::default() };
    let error = run(&bench, store.clone(), &bad).unwrap_err();
    assert!(matches!(error, WithdrawError::Repo(RepoError::NoSuchVersion { .. })));
    for key in ["fdl.json", "data/../fdl.json", "versions/x", "/etc/passwd"] {
        let bad = WithdrawOptions { files: vec![key.to_owned()], ..WithdrawOptions::default() };
        let error = run(&bench, store.clone(), &bad).unwrap_err();
        assert!(matches!(error, WithdrawError::Repo(RepoError::Format(_))), "{key}");
    }
    assert_eq!(store.contents(), before);
}

#[test]
fn what_appears_since_the_plan_is_refused() {
    let bench = Bench::new(4);
    let (start, ids) = scene(&bench);
    for branch in ["main", "dev"] {
        let store = fork(&bench, &start);
        let repository = block_on(Repository::open(store.clone())).unwrap();
        let plan = block_on(plan_withdraw(&repository, &by_file(), look(&bench))).unwrap();
        if branch == "dev" {
            block_on(create_branch(store.as_ref(), &RefName::branch("dev").unwrap(), ids[1])).unwrap();
        } else {
            let again = version(&bench, Some(ids[4]), "people", &[(SECRET, 10)]);
            block_on(bench.push(store.clone(), "main", Expected::Exactly(ids[4]), &[again])).unwrap();
        }
        let before = store.contents();
        let result = block_on(run_withdraw(&repository, plan, None, look(&bench), bench.clock.now()));
        assert!(matches!(result, Err(WithdrawError::Held(_) | WithdrawError::Appeared(_))), "{result:?}");
        assert_eq!(store.contents(), before);
    }
}

/// A data file is gone only when every version that names it has its mark, and nobody is told to bring anything back.
fn assert_never_undone(bench: &Bench, store: &MemoryStore, versions: &[VersionId]) {
    let mark = |id: &VersionId| block_on(read_mark(store, *id)).unwrap().and_then(|mark| mark.reason);
    if !store.contents().contains_key(SECRET) {
        assert!(versions.iter().all(|id| mark(id) == Some(Reason::Withdrawn)));
    }
    let depth = FsckOptions { depth: Depth::Files, reference: None };
    let withdrawn: Vec<&VersionId> = versions.iter().filter(|id| mark(id) == Some(Reason::Withdrawn)).collect();
    for finding in block_on(fsck(store, &depth, look(bench))).unwrap().findings {
        let repair = finding.repair.clone().unwrap_or_default();
        assert!(!repair.contains("fdl_clone"), "{finding:?}");
        if withdrawn.iter().any(|id| finding.object.starts_with(&layout::version(**id))) {
            assert!(repair.contains("fdl_withdraw"), "{finding:?}");
        }
    }
}

#[test]
fn stopped_at_any_write_heads_can_be_read_and_the_next_call_finishes() {
    let bench = Bench::new(5);
    let (start, ids) = scene(&bench);
    let versions = WithdrawOptions { versions: ids[1..4].to_vec(), ..WithdrawOptions::default() };
    for options in [by_file(), versions] {
        let logged = Arc::new(LoggedStore::new(fork(&bench, &start)));
        run(&bench, logged.clone(), &options).unwrap();
        let writes = logged.writes();
        assert!(writes > 10);
        for n in 1..=writes {
            for stop in [FaultStore::stop_at_write, FaultStore::stop_after_write] {
                let store = fork(&bench, &start);
                drop(run(&bench, Arc::new(stop(store.clone(), n)), &options));
                assert_never_undone(&bench, &store, &ids[1..4]);
                // Refs to what is withdrawn go first; what the others hold can be read at every moment.
                let refs = block_on(list_refs(store.as_ref())).unwrap().refs;
                refs.values().filter(|id| !ids[1..4].contains(id)).for_each(|id| read_version(&store, *id));
                if let Some(tagged) = refs.get(&RefName::tag("v1").unwrap()) {
                    read_version(&store, *tagged);
                }
                run(&bench, store.clone(), &options).unwrap();
                assert_clean(&store);
                assert_eq!(refs_json(&store), read_everything(&store), "after a stop at write {n}");
                let depth = FsckOptions { depth: Depth::Files, reference: None };
                assert_eq!(block_on(fsck(store.as_ref(), &depth, look(&bench))).unwrap().findings, []);
            }
        }
    }
}

fn copy(bench: &Bench, source: &Arc<MemoryStore>, target: &dyn Store) -> Result<Cloned, CloneError> {
    let source = block_on(Repository::open(source.clone())).unwrap();
    block_on(clone(&source, target, &CloneOptions { refs: Vec::new(), sources: true, unknown: false }, look(bench)))
}

#[test]
fn a_copy_follows_and_keeps_nothing_of_it_stopped_at_any_write() {
    let bench = Bench::new(6);
    let (source, ids) = scene(&bench);
    let copied = fork(&bench, &MemoryStore::new());
    copy(&bench, &source, copied.as_ref()).unwrap();
    run(&bench, source.clone(), &by_file()).unwrap();
    // What a ref of the copy holds stays, and its owner is told.
    let held = fork(&bench, &copied);
    let notes = copy(&bench, &source, held.as_ref()).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("refs/tags/v1") && note.contains("delete it")), "{notes:?}");
    read_version(&held, ids[1]);
    block_on(delete_ref(copied.as_ref(), &RefName::tag("v1").unwrap())).unwrap();
    let logged = LoggedStore::new(fork(&bench, &copied));
    let notes = copy(&bench, &source, &logged).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("has been withdrawn")), "{notes:?}");
    for n in 1..=logged.writes() {
        let target = fork(&bench, &copied);
        drop(copy(&bench, &source, &FaultStore::stop_at_write(target.clone(), n)));
        let again = copy(&bench, &source, target.as_ref()).unwrap();
        assert_clean(&target);
        assert_eq!(again.refs, read_everything(&target));
        let depth = FsckOptions { depth: Depth::Files, reference: None };
        assert_eq!(block_on(fsck(target.as_ref(), &depth, look(&bench))).unwrap().findings, []);
        assert_eq!(copy(&bench, &source, target.as_ref()).unwrap().objects_copied, 0);
    }
}

#[test]
fn an_older_copy_brings_nothing_of_it_back() {
    let bench = Bench::new(7);
    let (store, _) = scene(&bench);
    let backup = fork(&bench, &MemoryStore::new());
    copy(&bench, &store, backup.as_ref()).unwrap();
    run(&bench, store.clone(), &by_file()).unwrap();
    let before = store.contents();
    let done = copy(&bench, &backup, store.as_ref()).unwrap();
    assert_eq!(store.contents(), before);
    assert_clean(&store);
    assert!(done.notes.iter().any(|note| note.contains("refs/tags/v1 is not copied")), "{:?}", done.notes);
    assert_eq!(done.refs, read_everything(&store));
}

#[test]
fn the_list_of_deleted_rows_goes_with_the_file_that_it_names() {
    let bench = Bench::new(8);
    let (store, ids) = scene(&bench);
    // As version() makes it, but with a list of deleted rows beside the secret file.
    let deletes = "data/main/people/Aiko-delete.parquet";
    let data = [(SECRET, 10), (deletes, 4)];
    let folder = bench.version_folder(Some(ids[4]), &data);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let old = read("files.json");
    let mut files: serde_json::Value = serde_json::from_str(&old).unwrap();
    let listed = files["tables"][0]["files"].as_array_mut().unwrap();
    let list = listed.pop().unwrap();
    listed[0]["deletes"] = list;
    let new = serde_json::to_string_pretty(&files).unwrap() + "\n";
    let record =
        read("version.json").replace(&Sha256::of(old.as_bytes()).to_string(), &Sha256::of(new.as_bytes()).to_string());
    std::fs::write(folder.join("files.json"), new).unwrap();
    std::fs::write(folder.join("version.json"), record).unwrap();
    let partly = LocalVersion::load(&folder, &DataDir::default()).unwrap();
    block_on(store.put(deletes, Body::Bytes("Aiko".into()))).unwrap();
    let clean = version(&bench, Some(partly.id()), "towns", &[(OPEN, 4)]);
    block_on(bench.push(store.clone(), "main", Expected::Exactly(ids[4]), &[partly, clean])).unwrap();
    run(&bench, store.clone(), &by_file()).unwrap();
    assert!(!store.contents().contains_key(deletes));
    assert_clean(&store);
}

#[test]
fn what_a_stopped_push_has_left_is_told() {
    let bench = Bench::new(9);
    let (store, ids) = scene(&bench);
    let unfinished = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";
    let list = block_on(store.get(&layout::files(ids[1]))).unwrap().bytes;
    block_on(store.put(&format!("versions/{unfinished}/files.json"), Body::Bytes(list))).unwrap();
    let rows = run(&bench, store, &by_file()).unwrap();
    let left: Vec<_> = rows.iter().filter(|row| !row.done).map(|row| (row.object.as_str(), &row.action)).collect();
    assert_eq!(left, [(format!("versions/{unfinished}/").as_str(), &WithdrawAction::LeaveUnfinished)]);
}
