//! Pushing over HTTP: a push by hand, each check of it, races, refs.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use client::scene::Scene;
use client::{Client, MAIN, NEW, get, options, put, serve, version_files};
use fdl::format::{DataDir, Files, RefName, RefsJson, Sha256, layout};
use fdl::host::{HostOptions, MoveRefs};
use fdl::repo::{LocalVersion, list_refs, read_files, read_live};
use fdl::store::fault::{Call, Fault};
use fdl::store::{FaultStore, FolderStore, MemoryStore, Store};
use serde_json::json;
use support::{Bench, read_everything};

fn holds(store: &MemoryStore, name: &str) -> Option<String> {
    get(store, name).map(|text| text.trim().to_owned())
}

/// Sends the files of a version in the order of a push.
fn send(client: &Client, bench: &Bench, version: &LocalVersion) {
    for (key, size) in version.files.iter() {
        assert!(
            [200, 201]
                .contains(&client.put(&format!("/{key}"), &[], &vec![b'x'; usize::try_from(size).unwrap()]).status)
        );
    }
    for (key, bytes) in version_files(bench.path(), version) {
        assert_eq!(client.put(&format!("/{key}"), &[NEW], &bytes).status, 201, "{key}");
    }
}

#[test]
fn a_repository_is_started_and_pushed_to_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let folder_store = FolderStore::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(folder_store)];
    for store in stores {
        let bench = Bench::new(3);
        let client = serve(store.clone(), options(false));
        let fdl = br#"{"fdl": "0.1", "id": "5f0c8a52-6d3e-4f8e-9b1a-2c7d4e9f0a13"}"#;
        let early = client.put("/data/main/t/x.parquet", &[], b"x");
        assert_eq!(early.refusal(), (404, "FDL-NOT-A-REPOSITORY".to_owned()));
        assert_eq!(client.put("/fdl.json", &[NEW], b"{}").refusal(), (400, "FDL-CORRUPT".to_owned()));
        assert_eq!(client.put("/fdl.json", &[NEW], fdl).status, 201);
        assert_eq!(client.put("/fdl.json", &[NEW], fdl).status, 412);
        assert_eq!(client.put("/fdl.json", &[], fdl).status, 200);
        assert_eq!(client.put("/fdl.json", &[], br#"{"fdl": "0.1"}"#).status, 403);
        assert_eq!(client.put("/HEAD", &[NEW], b"ref: refs/tags/x\n").refusal().0, 400);
        assert_eq!(client.put("/HEAD", &[NEW], b"ref: refs/heads/main\n").status, 201);
        assert_eq!(client.put("/HEAD", &[NEW], b"ref: refs/heads/main\n").status, 412);
        assert_eq!(client.put("/HEAD", &["If-Match: \"x\""], b"ref: refs/heads/main\n").status, 412);
        assert_eq!(client.put("/HEAD", &[], b"ref: refs/heads/other\n").status, 403);
        assert_eq!(client.get("/refs.json", &[]).json()["head"], MAIN, "the host writes it");

        let chain = bench.chain(None, 3);
        send(&client, &bench, &chain[0]);
        let answer = client.put_ref(MAIN, NEW, chain[0].id());
        assert_eq!(answer.status, 201, "{answer:?}");
        let tag = client.get("/refs/heads/main", &[]).header("etag").to_owned();
        assert_eq!(answer.header("etag"), tag);
        // One version after the other, and the last once more, as when an answer was lost.
        send(&client, &bench, &chain[1]);
        send(&client, &bench, &chain[2]);
        for version in [1, 2, 2] {
            assert_eq!(client.put_ref(MAIN, &client.unchanged(MAIN), chain[version].id()).status, 200);
        }
        assert_eq!(client.put_ref(MAIN, &format!("If-Match: {tag}"), chain[2].id()).status, 412);
        let head = client.get("/ducklake.duckdb", &[]);
        assert_eq!(head.header("fdl-version"), chain[2].id().to_string());
        let refs = RefsJson::parse(&client.get("/refs.json", &[]).body).unwrap().refs;
        assert_eq!(refs, BTreeMap::from([(RefName::branch("main").unwrap(), chain[2].id())]));
        // What is there can be read completely.
        let read = async {
            let refs = list_refs(store.as_ref()).await.unwrap().refs;
            let record = read_live(store.as_ref(), refs[&RefName::branch("main").unwrap()]).await.unwrap();
            let files = read_files(store.as_ref(), &DataDir::default(), &record).await.unwrap().unwrap();
            for (key, size) in files.iter() {
                assert_eq!(store.head(key).await.unwrap().size, size);
            }
            files.iter().count()
        };
        assert_eq!(client::RUNTIME.block_on(read), 3);
    }
}

/// What is done to a version before the ref is written, and the code and the words of the answer.
type Broken = (&'static str, fn(&Scene), &'static str, &'static str);

fn remove(scene: &Scene, key: &str) {
    futures::executor::block_on(scene.store.delete(key)).unwrap();
}

/// Changes a field of the second version's record.
fn edit(scene: &Scene, change: impl FnOnce(&mut serde_json::Value)) {
    let key = layout::version_json(scene.second);
    let mut record = serde_json::from_str(&get(&scene.store, &key).unwrap()).unwrap();
    change(&mut record);
    put(&scene.store, &key, record.to_string());
}

/// Replaces files.json, with the hash in the record.
fn list(scene: &Scene, path: &str, bytes: u64) {
    let files = json!({"fdl": "0.1", "tables": [{"schema": "main", "table": "t",
        "files": [{"path": path, "rows": 1, "bytes": bytes}]}]});
    let text = files.to_string();
    let hash = fdl::format::Sha256::of(text.as_bytes()).to_string();
    put(&scene.store, &layout::files(scene.second), text);
    edit(scene, |record| record["files_sha256"] = hash.into());
}

const BROKEN: &[Broken] = &[
    ("no record", |s| remove(s, &layout::version_json(s.second)), "FDL-NOT-FOUND", "no version.json"),
    ("damaged record", |s| put(&s.store, &layout::version_json(s.second), "{"), "FDL-CORRUPT", "version.json"),
    ("another ID", |s| edit(s, |r| r["id"] = s.first.to_string().into()), "FDL-CORRUPT", "record of version"),
    ("a later format", |s| edit(s, |r| r["fdl"] = "1.0".into()), "FDL-UNSUPPORTED-VERSION", "1.0"),
    ("no parent", |s| edit(s, |r| r["parents"] = json!([])), "FDL-CONFLICT", "does not build on"),
    ("two parents", |s| edit(s, |r| r["parents"] = json!([s.first, s.first])), "FDL-CORRUPT", "more than one parent"),
    ("itself as parent", |s| edit(s, |r| r["parents"] = json!([s.second])), "FDL-CONFLICT", "do not end"),
    ("no catalog", |s| remove(s, &layout::catalog(s.second)), "FDL-CORRUPT", "ducklake.duckdb: it is missing"),
    ("short catalog", |s| put(&s.store, &layout::catalog(s.second), "x"), "FDL-CORRUPT", "it has 1 bytes"),
    (
        "other catalog",
        |s| put(&s.store, &layout::catalog(s.second), format!("the catalog of {}", s.first)),
        "FDL-CORRUPT",
        "ducklake.duckdb: its sha256",
    ),
    (
        "missing second catalog",
        |s| edit(s, |r| r["catalogs"] = json!({"0.3": {"sha256": r["sha256"]}})),
        "FDL-CORRUPT",
        "catalogs/0.3.duckdb: it is missing",
    ),
    ("no dataset", |s| remove(s, &layout::dataset(s.second)), "FDL-CORRUPT", "dataset.json: it is missing"),
    ("other dataset", |s| put(&s.store, &layout::dataset(s.second), "{}"), "FDL-CORRUPT", "dataset.json: its sha256"),
    ("no files.json", |s| remove(s, &layout::files(s.second)), "FDL-CORRUPT", "files.json: it is missing"),
    ("other files.json", |s| put(&s.store, &layout::files(s.second), "{}"), "FDL-CORRUPT", "files.json: its sha256"),
    (
        "no list at all",
        |s| {
            remove(s, &layout::files(s.second));
            edit(s, |r| drop(r.as_object_mut().unwrap().remove("files_sha256")));
        },
        "FDL-CORRUPT",
        "does not look into catalogs",
    ),
    (
        "a wrong signature",
        |s| put(&s.store, &layout::signature(s.second), include_str!("signatures/rsa-sha256.sig")),
        "FDL-CORRUPT",
        "version.json.sig: the signature",
    ),
    (
        "a signature that is none",
        |s| put(&s.store, &layout::signature(s.second), "rubbish"),
        "FDL-CORRUPT",
        "version.json.sig: version.json.sig is not",
    ),
    ("a path that leaves", |s| list(s, "data/../fdl.json", 1), "FDL-BAD-PATH", "not a path inside"),
    ("a path elsewhere", |s| list(s, "https://example.org/data/x", 1), "FDL-BAD-PATH", "not a path inside"),
    ("no data file", |s| remove(s, &s.data_key()), "FDL-CORRUPT", "it is missing, but the push names it"),
    ("short data file", |s| put(&s.store, &s.data_key(), "x"), "FDL-CORRUPT", "it has 1 bytes, not 3"),
    ("expired", |s| put(&s.store, &layout::expired(s.second), "{}"), "FDL-EXPIRED", "has expired"),
    (
        "withdrawn",
        |s| put(&s.store, &layout::expired(s.second), r#"{"reason": "withdrawn"}"#),
        "FDL-WITHDRAWN",
        "has been withdrawn",
    ),
];

#[test]
fn a_ref_moves_only_to_a_version_that_passes_every_check() {
    for (what, damage, code, words) in BROKEN {
        let scene = Scene::new(options(false));
        damage(&scene);
        let answer = scene.push();
        assert_eq!(answer.refusal(), (409, (*code).to_owned()), "{what}: {answer:?}");
        assert!(answer.message().contains(words), "{what}: {}", answer.message());
        assert_eq!(holds(&scene.store, MAIN), Some(scene.first.to_string()), "{what}");
        // A new branch and a tag are no way around it.
        if !matches!(*what, "no parent" | "itself as parent") {
            for name in ["refs/heads/new", "refs/tags/v1"] {
                let answer = scene.client.put_ref(name, NEW, scene.second);
                assert_eq!(answer.refusal(), (409, (*code).to_owned()), "{what}: {answer:?}");
                assert_eq!(holds(&scene.store, name), None, "{what}");
            }
        }
    }
    let scene = Scene::new(options(false));
    assert_eq!(scene.push().status, 200);
    read_everything(&scene.store);
}

#[test]
fn a_version_in_the_middle_is_checked_as_well() {
    let scene = Scene::new(options(false));
    let third = scene.version(Some(scene.second));
    put(&scene.store, &layout::catalog(scene.second), "x");
    assert_eq!(scene.client.put_ref("refs/heads/new", NEW, third).refusal(), (409, "FDL-CORRUPT".to_owned()));
    let push = || scene.client.put_ref(MAIN, &scene.client.unchanged(MAIN), third);
    assert_eq!(push().refusal(), (409, "FDL-CONFLICT".to_owned()));
    // Taken away meanwhile: then it is no longer read, and no branch can be moved to it.
    put(&scene.store, &layout::expired(scene.second), "{}");
    assert_eq!(push().status, 200);
}

#[test]
fn a_branch_moves_to_a_child_of_what_it_holds() {
    let scene = Scene::new(options(false));
    let third = scene.version(Some(scene.second));
    let move_to = |id| scene.client.put_ref(MAIN, &scene.client.unchanged(MAIN), id);
    let answer = move_to(third);
    assert_eq!((answer.refusal(), &answer.json()["reason"]), ((409, "FDL-CONFLICT".to_owned()), &json!("not-a-child")));
    for id in [scene.first, scene.second] {
        assert!(answer.message().contains(&id.to_string()), "{}", answer.message());
    }
    assert_eq!(holds(&scene.store, MAIN), Some(scene.first.to_string()));
    for id in [scene.second, third] {
        assert_eq!(move_to(id).status, 200);
    }
    let back = move_to(scene.second);
    assert_eq!((back.refusal(), &back.json()["reason"]), ((409, "FDL-CONFLICT".to_owned()), &json!("not-a-child")));
}

#[test]
fn a_ref_is_written_on_condition() {
    let scene = Scene::new(options(false));
    for name in [MAIN, "refs/heads/new", "refs/tags/v1"] {
        for id in [scene.first, scene.second] {
            let answer = scene.client.put_ref(name, "", id);
            assert_eq!(answer.refusal(), (428, "FDL-BAD-ARGUMENT".to_owned()), "{name}");
            assert!(answer.message().contains("If-Match"), "{}", answer.message());
        }
        let condition = if name == MAIN { scene.client.unchanged(MAIN) } else { NEW.to_owned() };
        assert!([200, 201].contains(&scene.client.put_ref(name, &condition, scene.second).status), "{name}");
    }
}

#[test]
fn a_name_that_is_taken_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let folder_store: Arc<dyn Store> = Arc::new(FolderStore::open(folder.path().to_str().unwrap()).unwrap());
    for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, folder_store] {
        let bench = Bench::new(1);
        client::RUNTIME.block_on(bench.init(store.as_ref()));
        let client = serve(store, options(false));
        let chain = bench.chain(None, 1);
        send(&client, &bench, &chain[0]);
        let id = chain[0].id();
        assert_eq!(client.put_ref("refs/heads/a/b", NEW, id).status, 201);
        for name in ["refs/heads/a", "refs/heads/a/b/c"] {
            assert_eq!(client.put_ref(name, NEW, id).refusal(), (409, "FDL-EXISTS".to_owned()), "{name}");
        }
        let folder = client.put_ref("refs/heads/a", "If-Match: *", id);
        assert_eq!(folder.refusal(), (412, "FDL-CONFLICT".to_owned()));
    }
}

#[test]
fn branches_only_move_forward_and_one_of_two_writers_wins() {
    let scene = Scene::new(options(false));
    let old = scene.client.unchanged(MAIN);
    let other = scene.version(Some(scene.first));
    assert_eq!(scene.client.put_ref(MAIN, NEW, scene.second).refusal(), (412, "FDL-CONFLICT".to_owned()));
    assert_eq!(scene.client.put_ref(MAIN, "If-Match: \"x\"", scene.second).status, 412);
    assert_eq!(scene.client.put_ref("refs/heads/none", "If-Match: *", scene.second).status, 412);
    assert_eq!(scene.client.put(&format!("/{MAIN}"), &[NEW], b"nonsense").refusal().0, 400);
    assert_eq!(scene.client.put(&format!("/{MAIN}"), &[NEW], &[b'a'; 5000]).status, 413);
    // Both saw the same state, and both versions pass the checks.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let push = |id| {
            scope.spawn({
                let (client, old) = (&scene.client, &old);
                move || client.put_ref(MAIN, old, id).status
            })
        };
        let both = [push(scene.second), push(other)];
        both.map(|writer| writer.join().unwrap()).to_vec()
    });
    let (won, winner) = if statuses[0] == 200 { (statuses[1], scene.second) } else { (statuses[0], other) };
    assert_eq!((statuses.iter().filter(|status| **status == 200).count(), won), (1, 412), "{statuses:?}");
    assert_eq!(holds(&scene.store, MAIN), Some(winner.to_string()));
    let loser = if winner == other { scene.second } else { other };
    // Whatever the condition, the parents tell; and nothing goes back.
    for id in [loser, scene.first] {
        let answer = scene.client.put_ref(MAIN, "If-Match: *", id);
        assert_eq!(answer.refusal(), (409, "FDL-CONFLICT".to_owned()));
        assert!(answer.message().contains(&winner.to_string()), "{}", answer.message());
    }
    read_everything(&scene.store);
}

#[test]
fn a_writer_that_is_overtaken_during_the_checks_learns_it() {
    let scene = Scene::new(options(false));
    let other = scene.version(Some(scene.first));
    let behind = scene.store.clone();
    let store = FaultStore::new(scene.store.clone(), move |call: Call<'_>| {
        if call.key == MAIN && call.write.is_some() {
            put(&behind, MAIN, format!("{other}\n"));
        }
        Fault::None
    });
    let client = serve(Arc::new(store), options(false));
    for condition in [client.unchanged(MAIN), "If-Match: *".to_owned()] {
        put(&scene.store, MAIN, format!("{}\n", scene.first));
        assert_eq!(client.put_ref(MAIN, &condition, scene.second).refusal(), (412, "FDL-CONFLICT".to_owned()));
        assert_eq!(holds(&scene.store, MAIN), Some(other.to_string()));
    }
}

#[test]
fn an_answer_of_the_store_that_is_lost_is_no_refusal() {
    let scene = Scene::new(options(false));
    let store = FaultStore::new(scene.store.clone(), |call: Call<'_>| match (call.key, call.write) {
        (MAIN, Some(_)) => Fault::LoseAnswer,
        ("refs/heads/down", Some(_)) => Fault::Fail,
        _ => Fault::None,
    });
    let client = serve(Arc::new(store), options(false));
    assert_eq!(client.put_ref(MAIN, &client.unchanged(MAIN), scene.second).status, 200);
    assert_eq!(holds(&scene.store, MAIN), Some(scene.second.to_string()));
    assert_eq!(client.put_ref("refs/heads/down", NEW, scene.second).refusal(), (503, "FDL-STORE".to_owned()));
}

#[test]
fn making_and_deleting_refs() {
    let scene = Scene::new(options(false));
    let client = &scene.client;
    assert_eq!(scene.push().status, 200);
    // Versions that are published already: nothing but their records is read again.
    put(&scene.store, &layout::dataset(scene.first), "damaged long ago");
    assert_eq!(client.put_ref("refs/heads/a/b", NEW, scene.first).status, 201);
    assert_eq!(client.put_ref("refs/tags/v1", NEW, scene.first).status, 201);
    assert_eq!(client.put_ref("refs/tags/v1", &client.unchanged("refs/tags/v1"), scene.first).status, 200);
    let moved = client.put_ref("refs/tags/v1", &client.unchanged("refs/tags/v1"), scene.second);
    assert_eq!(moved.refusal(), (409, "FDL-EXISTS".to_owned()));
    for name in ["refs/heads/a", "refs/heads/a/b/c"] {
        assert_eq!(client.put_ref(name, NEW, scene.first).refusal(), (409, "FDL-EXISTS".to_owned()), "{name}");
    }
    assert_eq!(client.put_ref("refs/requests/1", NEW, scene.first).status, 403);
    assert_eq!(client.put_ref("refs/heads/A", NEW, scene.first).refusal(), (400, "FDL-BAD-NAME".to_owned()));
    put(&scene.store, &layout::expired(scene.first), "{}");
    assert_eq!(client.put_ref("refs/heads/gone", NEW, scene.first).refusal(), (409, "FDL-EXPIRED".to_owned()));
    let refs_json = || client.get("/refs.json", &[]).json()["refs"].clone();
    assert_eq!(refs_json().as_object().unwrap().len(), 3);

    let delete = |name: &str, headers: &[&str]| {
        client.send("DELETE", &format!("/{name}"), &[&[client::WRITER], headers].concat(), b"").status
    };
    assert_eq!(client.send("DELETE", "/refs/tags/v1", &[], b"").status, 401);
    assert_eq!(delete("refs/tags/v1", &["If-Match: \"x\""]), 412);
    assert_eq!(delete("refs/tags/v1", &[&client.unchanged("refs/tags/v1")]), 204);
    assert_eq!(delete("refs/tags/v1", &[]), 404);
    assert_eq!(delete("refs/heads/a/b", &[]), 204);
    assert_eq!(delete(MAIN, &[]), 403);
    assert_eq!(refs_json(), json!({MAIN: scene.second}));
}

#[test]
fn a_version_that_no_ref_leads_to_is_checked_up_to_what_is_published() {
    let scene = Scene::new(options(false));
    // second is on main's first; third on second; neither is published.
    let third = scene.version(Some(scene.second));
    let catalog = get(&scene.store, &layout::catalog(scene.second)).unwrap();
    put(&scene.store, &layout::catalog(scene.second), "x");
    assert_eq!(scene.client.put_ref("refs/heads/new", NEW, third).refusal(), (409, "FDL-CORRUPT".to_owned()));
    put(&scene.store, &layout::catalog(scene.second), catalog);
    put(&scene.store, &layout::catalog(scene.first), "published, so no business of this push");
    assert_eq!(scene.client.put_ref("refs/heads/new", NEW, third).status, 201);
}

#[test]
fn a_host_that_lets_nobody_move_refs() {
    let scene = Scene::new(HostOptions { move_refs: MoveRefs::Nobody, ..options(false) });
    let next = scene.bench.chain(Some(scene.second), 1);
    send(&scene.client, &scene.bench, &next[0]);
    assert_eq!(scene.push().refusal(), (403, "FDL-PERMISSION".to_owned()));
    assert_eq!(scene.client.put_ref("refs/tags/v1", NEW, scene.first).status, 403);
    assert_eq!(scene.client.send("DELETE", "/refs/tags/v1", &[client::WRITER], b"").status, 403);
    assert_eq!(holds(&scene.store, MAIN), Some(scene.first.to_string()));
}

#[test]
fn the_host_writes_refs_json_and_keeps_it_right() {
    let scene = Scene::new(options(false));
    put(&scene.store, layout::REFS_JSON, r#"{"head": "refs/heads/main", "refs": {}}"#);
    let answer = scene.client.put("/refs.json", &[&scene.client.unchanged("refs.json")], b"{}");
    assert_eq!(answer.refusal(), (403, "FDL-PERMISSION".to_owned()));
    let refs = scene.client.get("/refs.json", &[]).json();
    assert_eq!(refs, json!({"head": MAIN, "refs": {MAIN: scene.first}}), "the writer saw that it lagged");
}

#[test]
fn a_host_that_looks_into_catalogs_compares_their_own_list() {
    let lists = |change: fn(&mut Files) -> Result<(), String>| {
        let store = Arc::new(std::sync::Mutex::new(None::<Files>));
        let given = store.clone();
        let options = HostOptions {
            catalog_files: Some(Arc::new(move |path| {
                assert!(std::fs::read_to_string(path).unwrap().starts_with("the catalog of "));
                let mut files = given.lock().unwrap().clone().unwrap();
                change(&mut files).map(|()| files)
            })),
            ..options(false)
        };
        let scene = Scene::new(options);
        *store.lock().unwrap() = Some(scene.version.files.clone());
        scene
    };
    let same = lists(|_| Ok(()));
    assert_eq!(same.push().status, 200);
    let without = lists(|_| Ok(()));
    remove(&without, &layout::files(without.second));
    edit(&without, |record| drop(record.as_object_mut().unwrap().remove("files_sha256")));
    assert_eq!(without.push().status, 200, "files.json is not needed then");
    for (words, change) in [
        (
            "does not name the files",
            (|files| {
                files.tables[0].files.pop();
                Ok(())
            }) as fn(&mut Files) -> _,
        ),
        ("does not name the files", |files| {
            files.tables[0].files[0].bytes += 1;
            Ok(())
        }),
        ("not a path inside", |files| {
            files.tables[0].files[0].path = "/etc/passwd".to_owned();
            Ok(())
        }),
        ("could not read the files that it names", |_| Err("root:x:0:0 in /etc/passwd".to_owned())),
    ] {
        let scene = lists(change);
        let answer = scene.push();
        assert!(answer.status == 409 && answer.message().contains(words), "{words}: {answer:?}");
        assert!(!answer.text().contains("passwd"), "{answer:?}");
        assert_eq!(holds(&scene.store, MAIN), Some(scene.first.to_string()));
    }
    // A panic there is one 500.
    let scene = lists(|_| panic!("on purpose"));
    assert_eq!(scene.push().status, 500);
    assert_eq!(scene.client.get("/HEAD", &[]).status, 200);
}

#[test]
fn a_host_compares_the_list_of_every_catalog() {
    const OLDER: &str = "a catalog in another format";
    let push = |forget: bool| {
        let known = Arc::new(std::sync::Mutex::new(None::<Files>));
        let given = known.clone();
        let options = HostOptions {
            catalog_files: Some(Arc::new(move |path| {
                match std::fs::read_to_string(path).unwrap() == OLDER && forget {
                    true => Ok(Files::new(Vec::new())),
                    false => Ok(given.lock().unwrap().clone().unwrap()),
                }
            })),
            ..options(false)
        };
        let scene = Scene::new(options);
        *known.lock().unwrap() = Some(scene.version.files.clone());
        put(&scene.store, &layout::other_catalog(scene.second, "0.3"), OLDER);
        let sha256 = Sha256::of(OLDER.as_bytes()).to_string();
        edit(&scene, |record| record["catalogs"] = json!({"0.3": {"sha256": sha256, "size": OLDER.len()}}));
        scene.push()
    };
    assert_eq!(push(false).status, 200);
    let answer = push(true);
    let words = "catalogs/0.3.duckdb names";
    assert!(answer.status == 409 && answer.message().contains(words), "{answer:?}");
}
