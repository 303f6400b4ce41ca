//! What the check of a push may cost and tell, who must have signed, and a push of several versions to a host that takes one
//! at a time.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
#[expect(dead_code, reason = "each test uses a part of it")]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use client::scene::Scene;
use client::{Answer, Client, MAIN, NEW, RUNTIME, get, options, put, serve, version_files};
use fdl::format::{AllowedSigners, Files, NAMESPACE, RefName, layout};
use fdl::host::{HostOptions, Limits, LogLine};
use fdl::repo::{
    CloneOptions, DataSource, Expected, LocalVersion, LookInto, Push, PushOutcome, PushReport, RepoError, Repository,
    clone, list_refs, publish,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::{FaultStore, HttpStore, MemoryStore, Store, StoreError};
use serde_json::json;
use ssh_key::private::Ed25519Keypair;
use ssh_key::{HashAlg, LineEnding, PrivateKey};
use support::{Bench, read_everything, repository, write_data};

/// The lines that a host has logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn line(&self) -> Arc<LogLine> {
        let lines = self.0.clone();
        Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()))
    }

    /// The only line with the ID of an answer.
    fn of(&self, answer: &Answer) -> String {
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let lines: Vec<String> = self.0.lock().unwrap().iter().filter(|line| line.contains(&id)).cloned().collect();
        assert_eq!(lines.len(), 1, "{id}: {lines:?}");
        lines[0].clone()
    }
}

type Hook = dyn Fn(&Path) -> Result<Files, String> + Send + Sync;

fn with_hook(
    limits: Limits,
    log: &Log,
    hook: impl Fn(&Path) -> Result<Files, String> + Send + Sync + 'static,
) -> Scene {
    let hook: Arc<Hook> = Arc::new(hook);
    Scene::new(HostOptions { catalog_files: Some(hook), limits, log: Some(log.line()), ..options(false) })
}

#[test]
fn a_client_is_told_nothing_that_duckdb_or_the_system_said() {
    const HOSTILE: &str = "IO Error: /srv/private/lake: root:x:0:0\nFDL-OK \u{1b}[31m<script>";
    let log = Log::default();
    let refuses = with_hook(Limits::default(), &log, |_| Err(HOSTILE.to_owned()));
    let panics = with_hook(Limits::default(), &log, |_| panic!("{HOSTILE}"));
    for (scene, refusal) in [(refuses, (409, "FDL-CORRUPT")), (panics, (500, "FDL-STORE"))] {
        let answer = scene.push();
        assert_eq!(answer.refusal(), (refusal.0, refusal.1.to_owned()));
        for word in ["private", "root", "script", "\u{1b}", "IO Error"] {
            assert!(!answer.text().contains(word), "{answer:?}");
        }
        assert!(answer.message().contains(answer.json()["id"].as_str().unwrap()), "{answer:?}");
        let line = log.of(&answer);
        assert!(line.contains("root:x:0:0\\nFDL-OK \\u{1b}[31m") && line.contains("PUT /refs/heads/main"), "{line}");
        assert_eq!(scene.client.get("/HEAD", &[]).status, 200);
    }
    // What the store said.
    let store = FaultStore::new(repository(&Bench::new(1)), |call: Call<'_>| match call.key {
        "data/main/t/x.parquet" => Fault::Fail,
        "data/main/t/y.parquet" => Fault::Deny,
        _ => Fault::None,
    });
    let client = serve(Arc::new(store), HostOptions { log: Some(log.line()), ..options(true) });
    let reader = "Authorization: Bearer read";
    for (path, status) in [("/data/main/t/x.parquet", 503), ("/data/main/t/y.parquet", 403)] {
        let answer = client.get(path, &[reader]);
        assert!(answer.status == status && !answer.text().contains("a fault that the test asked for"), "{answer:?}");
        assert!(log.of(&answer).contains("a fault that the test asked for"), "{}", log.of(&answer));
    }
    // Every answer that is no success, once, and no token.
    let before = log.0.lock().unwrap().len();
    let answers = [
        client.get("/HEAD", &["Authorization: Bearer s3cret"]),
        client.get("/../x?token=s3cret", &[reader]),
        client.get("/README", &[reader]),
        client.send("POST", "/HEAD", &[reader], b"s3cret"),
        client.put("/fdl.json", &[], b"s3cret"),
    ];
    for answer in &answers {
        assert!((400..500).contains(&answer.status) && !answer.text().contains("s3cret"), "{answer:?}");
        log.of(answer);
    }
    assert_eq!(client.get("/HEAD", &[reader]).status, 200);
    let lines = log.0.lock().unwrap();
    assert_eq!(lines.len() - before, answers.len());
    assert!(!lines.iter().any(|line| line.contains("s3cret") || line.contains("Bearer")), "{lines:?}");
}

#[test]
fn a_check_that_does_not_end_keeps_its_own_place_and_no_other() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (waits, looked) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = looked.clone();
    let soon = Duration::from_millis(300);
    let limits = Limits { checks: 1, check: soon, check_wait: soon, ..Limits::default() };
    let log = Log::default();
    let scene = with_hook(limits, &log, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut open = waits.0.lock().unwrap();
        while !*open {
            open = waits.1.wait(open).unwrap();
        }
        Err("no catalog".to_owned())
    });
    let given_up = scene.push();
    assert_eq!((given_up.refusal(), given_up.header("retry-after")), ((503, "FDL-STORE".to_owned()), "60"));
    assert!(given_up.message().contains("given up"), "{given_up:?}");
    // DuckDB goes on, so its place is taken: others are told so, and no second one is begun.
    for _ in 0..3 {
        let busy = scene.push();
        assert_eq!((busy.refusal(), busy.header("retry-after")), ((503, "FDL-STORE".to_owned()), "1"));
        assert!(busy.message().contains("checking other pushes"), "{busy:?}");
    }
    assert_eq!(looked.load(Ordering::SeqCst), 1);
    // Whatever is no check is done as ever.
    assert_eq!(scene.client.get(&format!("/{}", layout::catalog(scene.first)), &[]).status, 200);
    assert_eq!(scene.client.put("/data/main/t/more.parquet", &[], &vec![b'x'; 3_000_000]).status, 201);
    assert_eq!(get(&scene.store, MAIN).unwrap().trim(), scene.first.to_string());
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let mut answer = scene.push();
    for _ in 0..50 {
        if answer.status != 503 {
            break;
        }
        answer = scene.push();
    }
    assert_eq!(answer.refusal(), (409, "FDL-CORRUPT".to_owned()));
}

#[test]
fn a_catalog_that_is_too_large_is_not_looked_into() {
    let looked = Arc::new(AtomicUsize::new(0));
    let counted = looked.clone();
    let hook: Arc<Hook> = Arc::new(move |_: &Path| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(String::new())
    });
    let scene = Scene::new(HostOptions { max_catalog: 20, catalog_files: Some(hook), ..options(false) });
    let answer = scene.push();
    let words = format!("{} has 51 bytes, and 20 are the most", layout::catalog(scene.second));
    assert!(answer.status == 409 && answer.message().contains(&words), "{answer:?}");
    assert_eq!(looked.load(Ordering::SeqCst), 0);
    let chain = scene.bench.chain(None, 1);
    let path = format!("/{}", layout::catalog(chain[0].id()));
    assert_eq!(scene.client.put(&path, &[NEW], &[b'x'; 21]).status, 413);
    assert_eq!(scene.client.put(&path, &[NEW], &[b'x'; 20]).status, 201);
}

fn sign(seed: u8, bytes: &[u8]) -> Vec<u8> {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]));
    key.sign(NAMESPACE, HashAlg::Sha512, bytes).unwrap().to_pem(LineEnding::LF).unwrap().into_bytes()
}

/// Signs a version that is in the store.
fn sign_version(scene: &Scene, seed: u8, id: fdl::format::VersionId) {
    let record = get(&scene.store, &layout::version_json(id)).unwrap();
    put(&scene.store, &layout::signature(id), sign(seed, record.as_bytes()));
}

#[test]
fn a_host_with_signers_opens_nothing_that_none_of_them_has_signed() {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[1; 32]));
    let line = |who: &str| format!("{who} {}", key.public_key().to_openssh().unwrap());
    let signers = |who: &str| Some(AllowedSigners::parse(&line(who), &chrono::Utc).unwrap());
    let (looked, log) = (Arc::new(AtomicUsize::new(0)), Log::default());
    let scene = |who: &str| {
        let counted = looked.clone();
        let known = Arc::new(Mutex::new(None::<Files>));
        let given = known.clone();
        let hook: Arc<Hook> = Arc::new(move |_: &Path| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(given.lock().unwrap().clone().unwrap())
        });
        let options = HostOptions {
            allowed_signers: signers(who),
            catalog_files: Some(hook),
            log: Some(log.line()),
            ..options(false)
        };
        let scene = Scene::new(options);
        *known.lock().unwrap() = Some(scene.version.files.clone());
        scene
    };
    let one = scene("aiko@example.org");
    let refused = |scene: &Scene, words: &str| {
        for answer in [scene.push(), scene.client.put_ref("refs/heads/new", NEW, scene.second)] {
            assert_eq!(answer.refusal(), (409, "FDL-UNTRUSTED".to_owned()), "{answer:?}");
            assert!(answer.message().contains(words), "{answer:?}");
            log.of(&answer);
        }
        assert_eq!(looked.load(Ordering::SeqCst), 0, "nothing was opened");
        assert_eq!(get(&scene.store, MAIN).unwrap().trim(), scene.first.to_string());
    };
    refused(&one, "it is not signed");
    sign_version(&one, 2, one.second);
    refused(&one, "by nobody whom this host lists");
    put(&one.store, &layout::signature(one.second), sign(1, b"another record"));
    refused(&one, "does not fit");
    let other = scene("mallory@example.org");
    sign_version(&other, 1, other.second);
    refused(&other, "not in the author's name");
    sign_version(&one, 1, one.second);
    assert_eq!(one.push().status, 200);
    assert_eq!(looked.load(Ordering::SeqCst), 1);
    // One in the middle that nobody signed.
    let middle = one.version(Some(one.second));
    let last = one.version(Some(middle));
    sign_version(&one, 1, last);
    assert_eq!(one.client.put_ref("refs/heads/new", NEW, last).refusal(), (409, "FDL-UNTRUSTED".to_owned()));
    // What is published already is no business of a new ref.
    assert_eq!(one.client.put_ref("refs/tags/v1", NEW, one.first).status, 201);
}

/// A push over HTTP of versions whose data files are there.
fn push_by_http(
    bench: &Bench,
    client: &Client,
    expected: Expected,
    chain: &[LocalVersion],
) -> Result<PushReport, RepoError> {
    let store: Arc<dyn Store> = Arc::new(HttpStore::open(&client.host.url(), Some("write")).unwrap());
    RUNTIME.block_on(bench.push(store, "main", expected, chain))
}

#[test]
fn a_push_of_several_versions_moves_the_branch_to_one_after_the_other() {
    let scene = Scene::new(options(false));
    let moves = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicUsize::new(usize::MAX));
    let (seen, most) = (moves.clone(), stop.clone());
    let store = FaultStore::new(scene.store.clone(), move |call: Call<'_>| match (call.key, call.write) {
        (MAIN, Some(_)) => {
            let mut seen = seen.lock().unwrap();
            if seen.len() >= most.load(Ordering::SeqCst) {
                return Fault::Deny;
            }
            seen.push(call.number);
            Fault::None
        }
        _ => Fault::None,
    });
    let client = serve(Arc::new(store), options(false));
    let chain = scene.bench.chain(Some(scene.first), 3);
    write_data(&scene.store, &chain);
    let expected = Expected::Exactly(scene.first);
    // Stopped after the first.
    stop.store(1, Ordering::SeqCst);
    let stopped = push_by_http(&scene.bench, &client, expected, &chain);
    assert!(stopped.is_err(), "{stopped:?}");
    assert_eq!(get(&scene.store, MAIN).unwrap().trim(), chain[0].id().to_string());
    read_everything(&scene.store);
    // The next push goes on.
    stop.store(usize::MAX, Ordering::SeqCst);
    let report = push_by_http(&scene.bench, &client, expected, &chain).unwrap();
    assert_eq!((report.outcome, report.new), (PushOutcome::Pushed, Some(chain[2].id())));
    assert_eq!(moves.lock().unwrap().len(), 3);
    let again = push_by_http(&scene.bench, &client, expected, &chain).unwrap();
    assert_eq!(again.outcome, PushOutcome::UpToDate);
    read_everything(&scene.store);
}

#[test]
fn another_branch_is_brought_forward_over_published_versions() {
    let scene = Scene::new(options(false));
    let chain = scene.bench.chain(Some(scene.first), 4);
    write_data(&scene.store, &chain);
    push_by_http(&scene.bench, &scene.client, Expected::Exactly(scene.first), &chain).unwrap();
    assert_eq!(scene.client.put_ref("refs/heads/dev", NEW, scene.first).status, 201);
    let store: Arc<dyn Store> = Arc::new(HttpStore::open(&scene.client.host.url(), Some("write")).unwrap());
    let push = async {
        let repository = Repository::open(store).await.unwrap();
        let push = Push {
            reference: RefName::branch("dev").unwrap(),
            expected: Expected::Exactly(scene.first),
            chain: &[],
            base: Some(chain[3].id()),
            base_files: None,
            data: DataSource::InPlace,
        };
        publish(&repository, &push, scene.bench.clock.as_ref()).await
    };
    assert_eq!(RUNTIME.block_on(push).unwrap().outcome, PushOutcome::Pushed);
    assert_eq!(get(&scene.store, "refs/heads/dev").unwrap().trim(), chain[3].id().to_string());
}

#[test]
fn a_push_of_several_versions_that_somebody_overtakes_is_a_conflict() {
    let scene = Scene::new(options(false));
    let chain = scene.bench.chain(Some(scene.first), 2);
    write_data(&scene.store, &chain);
    let theirs = scene.version(Some(chain[0].id()));
    let behind = scene.store.clone();
    let first = format!("{}\n", chain[0].id());
    // Right after the first step, somebody builds on it.
    let store = FaultStore::new(scene.store.clone(), move |call: Call<'_>| {
        if call.key == MAIN && call.write.is_none() && get(&behind, MAIN).as_deref() == Some(&first) {
            put(&behind, MAIN, format!("{theirs}\n"));
        }
        Fault::None
    });
    let client = serve(Arc::new(store), options(false));
    let pushed = push_by_http(&scene.bench, &client, Expected::Exactly(scene.first), &chain);
    assert!(matches!(&pushed, Err(RepoError::Conflict { now: Some(now), .. }) if *now == theirs), "{pushed:?}");
    assert_eq!(get(&scene.store, MAIN).unwrap().trim(), theirs.to_string());
}

#[test]
fn a_version_that_the_host_refuses_for_itself_is_no_reason_for_steps() {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[1; 32])).public_key().to_openssh().unwrap();
    let signers = AllowedSigners::parse(&format!("aiko@example.org {key}"), &chrono::Utc).unwrap();
    let scene = Scene::new(HostOptions { allowed_signers: Some(signers), ..options(false) });
    let chain = scene.bench.chain(Some(scene.first), 2);
    write_data(&scene.store, &chain);
    let pushed = push_by_http(&scene.bench, &scene.client, Expected::Exactly(scene.first), &chain[..1]);
    let Err(RepoError::Store(StoreError::Rejected { status: 409, code, .. })) = &pushed else { panic!("{pushed:?}") };
    assert_eq!(code.as_deref(), Some("FDL-UNTRUSTED"));
    assert_eq!(get(&scene.store, MAIN).unwrap().trim(), scene.first.to_string());
}

#[test]
fn a_copy_behind_a_host_is_brought_up_to_date_by_steps() {
    let bench = Bench::new(4);
    let source = repository(&bench);
    let mut expected = Expected::Absent;
    let mut last = None;
    let mirror = Arc::new(MemoryStore::new());
    let client = serve(mirror.clone(), options(false));
    let mut all = Vec::new();
    for round in 0..3 {
        let chain = bench.chain(last, 3);
        write_data(&source, &chain);
        RUNTIME.block_on(bench.push(source.clone(), "main", expected, &chain)).unwrap();
        last = Some(chain[2].id());
        expected = Expected::Exactly(chain[2].id());
        all.extend(chain.iter().map(LocalVersion::id));
        if round == 1 {
            // A gap in the history: no branch can be moved there.
            let mark = json!({"fdl": "0.1", "id": all[4], "reason": "retention"});
            put(&source, &layout::expired(all[4]), mark.to_string());
        }
        let target = HttpStore::open(&client.host.url(), Some("write")).unwrap();
        let copy = async {
            let repository = Repository::open(source.clone() as Arc<dyn Store>).await.unwrap();
            let options = CloneOptions { refs: Vec::new(), sources: true, unknown: false };
            clone(&repository, &target, &options, LookInto { scratch: bench.path(), files: None }).await
        };
        RUNTIME.block_on(copy).unwrap();
        assert_eq!(get(&mirror, MAIN).unwrap().trim(), last.unwrap().to_string());
        let refs = RUNTIME.block_on(list_refs(mirror.as_ref())).unwrap().refs;
        assert_eq!(refs.len(), 1);
        read_everything(&mirror);
    }
}

#[test]
fn records_of_a_push_have_a_limit() {
    let scene = Scene::new(options(false));
    let chain = scene.bench.chain(Some(scene.first), 1);
    let (key, record) = version_files(scene.bench.path(), &chain[0]).pop().unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    record["message"] = json!("x".repeat(70 << 20));
    assert_eq!(scene.client.put(&format!("/{key}"), &[NEW], record.to_string().as_bytes()).status, 413);
    put(&scene.store, &key, record.to_string());
    let answer = scene.client.put_ref(MAIN, &scene.client.unchanged(MAIN), chain[0].id());
    assert!(answer.status == 409 && answer.message().contains("more than 1048576 bytes"), "{answer:?}");
}
