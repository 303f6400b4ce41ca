//! What is good, bad, unknown and unsigned, and what becomes of signatures in a repository (docs/format.md section 15).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::{
    AllowedSigners, Clock, DataDir, NAMESPACE, Record, RefKind, RefName, Signature, SignatureFault, Status, Trust,
    Verdict, VersionId, judge, layout,
};
use fdl::repo::{
    Checked, Expected, ExpireOptions, GcOptions, LocalVersion, Movement, RepoError, Repository, WithdrawOptions,
    check_history, check_version, create_branch, create_tag, plan_expire, plan_gc, plan_withdraw, run_expire, run_gc,
    run_withdraw,
};
use fdl::store::{Body, LoggedStore, MemoryStore, Store, Verb};
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt};
use ssh_key::private::Ed25519Keypair;
use ssh_key::{HashAlg, LineEnding, PrivateKey};
use support::{Bench, push_new, repository_with_clock, write_data};

const AIKO: &str = "aiko@example.org";

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

fn sign_for(key: &PrivateKey, namespace: &str, bytes: &[u8]) -> Vec<u8> {
    key.sign(namespace, HashAlg::Sha512, bytes).unwrap().to_pem(LineEnding::LF).unwrap().into_bytes()
}

fn sign(key: &PrivateKey, bytes: &[u8]) -> Vec<u8> {
    sign_for(key, NAMESPACE, bytes)
}

/// Trust in one key for one pattern of names.
fn trust(name: &str, key: &PrivateKey) -> Trust {
    let line = format!("{name} {}", key.public_key().to_openssh().unwrap());
    Trust { allowed: AllowedSigners::parse(&line, &chrono::Utc).unwrap(), ..Trust::default() }
}

/// The folder of a version, signed when there is a key.
fn folder(bench: &Bench, parent: Option<VersionId>, key: Option<&PrivateKey>) -> std::path::PathBuf {
    let folder = bench.version_folder(parent, &[("data/main/t/a", 3)]);
    if let Some(key) = key {
        let record = std::fs::read(folder.join(layout::VERSION_JSON)).unwrap();
        std::fs::write(folder.join(layout::SIGNATURE), sign(key, &record)).unwrap();
    }
    folder
}

fn load(folder: &std::path::Path) -> Result<LocalVersion, RepoError> {
    LocalVersion::load(folder, &DataDir::default())
}

/// A repository whose main holds one version for each key, the oldest first.
fn scene(bench: &Bench, keys: &[Option<&PrivateKey>]) -> (Arc<MemoryStore>, Vec<VersionId>) {
    let store = repository_with_clock(bench);
    let mut chain: Vec<LocalVersion> = Vec::new();
    for key in keys {
        chain.push(load(&folder(bench, chain.last().map(LocalVersion::id), *key)).unwrap());
    }
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    let ids = chain.iter().map(LocalVersion::id).collect();
    (store, ids)
}

fn put(store: &dyn Store, key: &str, bytes: impl Into<bytes::Bytes>) {
    block_on(store.put(key, Body::Bytes(bytes.into()))).unwrap();
}

fn get(store: &dyn Store, key: &str) -> Vec<u8> {
    block_on(store.get(key)).unwrap().bytes.to_vec()
}

fn history(store: &Arc<MemoryStore>, from: VersionId, trust: &Trust) -> Result<Vec<(VersionId, Status)>, RepoError> {
    let checked: Vec<Checked> =
        block_on(check_history(store.clone(), from, Arc::new(trust.clone())).try_collect::<Vec<_>>())?;
    Ok(checked.into_iter().map(|checked| (checked.version, checked.verdict.status)).collect())
}

#[test]
fn what_openssh_made() {
    let bytes = include_bytes!("signatures/version.json");
    let record = Record::parse("019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap(), bytes).unwrap();
    let allowed = AllowedSigners::parse(include_str!("signatures/allowed_signers"), &chrono::Utc).unwrap();
    let trust = Trust { allowed, ..Trust::default() };
    let judged = |signature: &[u8]| judge(bytes, &record, Some(signature), &trust);
    assert_eq!(
        judged(include_bytes!("signatures/rsa-sha256.sig")),
        Verdict {
            status: Status::Good,
            signer: Some("a@x.org".to_owned()),
            key: Some("SHA256:EtQZcTUHO6XTimMpIY/l4/GkS/xy7egryVORHYvZAEU".to_owned()),
            note: None,
        }
    );
    // The same key has signed it, but by way of SHA-1.
    let verdict = judged(include_bytes!("signatures/rsa-sha1.sig"));
    assert_eq!((verdict.status, verdict.key), (Status::Bad, None));
    assert!(verdict.note.unwrap().contains("not an SSH signature that is accepted"));
}

#[test]
fn every_verdict() {
    let bytes = include_bytes!("signatures/version.json");
    let record = Record::parse("019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap(), bytes).unwrap();
    let (aiko, mallory) = (key(1), key(2));
    let good = sign(&aiko, bytes);
    let judged = |signature: Option<&[u8]>, trust: &Trust| {
        let verdict = judge(bytes, &record, signature, trust);
        assert_eq!(verdict.signer.as_deref(), Some("a@x.org"));
        (verdict.status, verdict.note.unwrap_or_default())
    };
    let trusting = trust("a@x.org", &aiko);
    assert_eq!(judged(Some(&good), &trusting), (Status::Good, String::new()));
    assert_eq!(judged(None, &trusting), (Status::Unsigned, String::new()));
    for (signature, trust, status, says) in [
        (good.clone(), trust("b@x.org", &aiko), Status::UnknownSigner, "allowed for b@x.org, not for a@x.org"),
        (good.clone(), Trust::default(), Status::UnknownSigner, "not among the allowed signers"),
        (sign(&mallory, bytes), trusting.clone(), Status::UnknownSigner, "not among the allowed signers"),
        (sign_for(&aiko, "file", bytes), trusting.clone(), Status::Bad, "namespace \"file\""),
        (sign(&aiko, b"{}"), trusting.clone(), Status::Bad, "does not fit"),
        (b"nonsense".to_vec(), trusting.clone(), Status::Bad, "not armored"),
    ] {
        let (found, note) = judged(Some(&signature), &trust);
        assert!(found == status && note.contains(says), "{found} {note}");
    }
    // What fdl.json lists is told and not believed.
    let listed =
        AllowedSigners::of_lines([&format!("a@x.org {}", aiko.public_key().to_openssh().unwrap())], &chrono::Utc);
    let (status, note) = judged(Some(&good), &Trust { listed, ..Trust::default() });
    assert!(status == Status::UnknownSigner && note.contains("fdl.json lists it for a@x.org"), "{note}");
    // Nobody's name.
    let nobody = Record { author: None, ..record.clone() };
    let verdict = judge(bytes, &nobody, Some(&good), &trust("*", &aiko));
    assert_eq!((verdict.status, verdict.signer), (Status::UnknownSigner, None));
}

#[test]
fn every_byte_counts() {
    let bytes = include_bytes!("signatures/version.json");
    let signature = sign(&key(1), bytes);
    let parsed = Signature::parse(&signature).unwrap();
    parsed.check(bytes).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        assert_eq!(parsed.check(&changed), Err(SignatureFault::DoesNotFit), "{at}");
    }
    // Whatever letter of the armor is another, something is wrong.
    for at in 0..signature.len() {
        let mut changed = signature.clone();
        changed[at] = if changed[at] == b'B' { b'C' } else { b'B' };
        let checked = Signature::parse(&changed).and_then(|changed| changed.check(bytes));
        assert!(checked.is_err(), "{at}");
    }
}

#[test]
fn a_push_brings_the_signature_just_before_the_record() {
    let bench = Bench::new(1);
    let (aiko, store) = (key(1), repository_with_clock(&bench));
    let folder = folder(&bench, None, Some(&aiko));
    let version = load(&folder).unwrap();
    write_data(&store, std::slice::from_ref(&version));
    let logged = Arc::new(LoggedStore::new(store.clone()));
    block_on(bench.push(logged.clone(), "main", Expected::Absent, std::slice::from_ref(&version))).unwrap();
    let written: Vec<String> =
        logged.requests().into_iter().filter(|one| one.verb == Verb::PutIfAbsent).map(|one| one.key).collect();
    let at = |key: String| written.iter().position(|one| *one == key).unwrap();
    assert_eq!(at(layout::signature(version.id())) + 1, at(layout::version_json(version.id())));
    assert_eq!(history(&store, version.id(), &trust(AIKO, &aiko)).unwrap(), [(version.id(), Status::Good)]);
    // One that does not fit is not sent.
    for wrong in
        [sign(&aiko, b"{}"), sign_for(&aiko, "file", &std::fs::read(folder.join("version.json")).unwrap()), Vec::new()]
    {
        std::fs::write(folder.join(layout::SIGNATURE), wrong).unwrap();
        assert!(matches!(load(&folder), Err(RepoError::Corrupt { .. })));
    }
}

#[test]
fn a_history_is_read_as_far_as_it_is_asked_for() {
    let bench = Bench::new(2);
    let (aiko, mallory) = (key(1), key(2));
    let (store, ids) = scene(&bench, &[Some(&aiko), None, Some(&mallory), Some(&aiko)]);
    let trusting = trust(AIKO, &aiko);
    let statuses = [Status::Good, Status::UnknownSigner, Status::Unsigned, Status::Good];
    let expected: Vec<_> = ids.iter().rev().copied().zip(statuses).collect();
    assert_eq!(history(&store, ids[3], &trusting).unwrap(), expected);
    let logged = Arc::new(LoggedStore::new(store.clone()));
    let two = check_history(logged.clone(), ids[3], Arc::new(trusting.clone())).take(2);
    assert_eq!(block_on(two.try_collect::<Vec<_>>()).unwrap().len(), 2);
    assert_eq!((logged.count(Verb::Get), logged.total()), (4, 4));
    // A record that cannot be read is bad, and nothing is known of what came before it.
    put(store.as_ref(), &layout::version_json(ids[2]), "{");
    assert_eq!(history(&store, ids[3], &trusting).unwrap(), [(ids[3], Status::Good), (ids[2], Status::Bad)]);
    // So is one that says it is another version.
    put(store.as_ref(), &layout::version_json(ids[2]), get(store.as_ref(), &layout::version_json(ids[1])));
    assert_eq!(history(&store, ids[2], &trusting).unwrap(), [(ids[2], Status::Bad)]);
    // So is one that is missing, and one that came before.
    block_on(store.delete(&layout::version_json(ids[2]))).unwrap();
    assert_eq!(history(&store, ids[3], &trusting).unwrap(), [(ids[3], Status::Good), (ids[2], Status::Bad)]);
    forge_parent(&store, ids[1], ids[1]);
    assert_eq!(history(&store, ids[1], &trusting).unwrap(), [(ids[1], Status::Unsigned), (ids[1], Status::Bad)]);
    assert!(matches!(history(&store, ids[2], &trusting), Err(RepoError::NoSuchVersion { .. })));
}

/// What `moved` says of a ref: the movement, and the version that is not good.
fn moved(
    store: &Arc<MemoryStore>,
    kind: RefKind,
    before: VersionId,
    now: VersionId,
    trust: &Trust,
) -> (&'static str, Option<VersionId>) {
    let checked = block_on(check_version(store.as_ref(), now, trust)).unwrap();
    match block_on(fdl::repo::moved(store.as_ref(), kind, before, &checked, trust)).unwrap() {
        Movement::Forward => ("forward", None),
        Movement::Back => ("back", None),
        Movement::Unproved(checked) => ("unproved", Some(checked.version)),
        Movement::TooFar(_) => ("too far", None),
    }
}

#[test]
fn forward_and_not() {
    let bench = Bench::new(3);
    let aiko = key(1);
    let (store, ids) = scene(&bench, &[Some(&aiko), Some(&aiko), Some(&aiko)]);
    block_on(create_branch(store.as_ref(), &RefName::branch("beside").unwrap(), ids[0])).unwrap();
    let beside = push_new(&bench, &store, "beside", 2);
    let trusting = trust(AIKO, &aiko);
    let at = |kind, before, now| moved(&store, kind, before, now, &trusting).0;
    for (before, now, movement) in [
        (ids[0], ids[0], "forward"),
        (ids[0], ids[2], "forward"),
        // Unsigned, and made later.
        (ids[0], beside[1], "forward"),
        (ids[2], ids[0], "back"),
        (ids[1], beside[1], "back"),
        (beside[0], ids[2], "back"),
    ] {
        assert_eq!(at(RefKind::Branch, before, now), movement);
        assert_eq!(at(RefKind::Tag, before, now), if before == now { "forward" } else { "back" });
    }
    // Damage ends the way.
    put(store.as_ref(), &layout::version_json(ids[1]), "{");
    assert_eq!(moved(&store, RefKind::Branch, ids[0], ids[2], &trusting), ("unproved", Some(ids[1])));
    block_on(store.delete(&layout::version_json(ids[1]))).unwrap();
    assert_eq!(moved(&store, RefKind::Branch, ids[0], ids[2], &trusting), ("unproved", Some(ids[1])));
}

/// Gives a version another parent, as somebody can who may write to the store.
fn forge_parent(store: &MemoryStore, id: VersionId, parent: VersionId) {
    let record = Record::parse(id, &get(store, &layout::version_json(id))).unwrap();
    let forged = Record { parents: vec![parent], ..record };
    put(store, &layout::version_json(id), forged.print().unwrap());
}

#[test]
fn a_record_that_is_not_good_vouches_for_no_way_back() {
    let bench = Bench::new(6);
    let (aiko, mallory) = (key(1), key(2));
    let trusting = trust(AIKO, &aiko);
    let keys = [Some(&aiko), Some(&aiko), Some(&aiko)];
    // v3 was verified, and main holds v2 again: the forged v1 says that it builds on v3.
    let (store, ids) = scene(&bench, &keys);
    forge_parent(&store, ids[0], ids[2]);
    let said = || moved(&store, RefKind::Branch, ids[2], ids[1], &trusting);
    assert_eq!(said(), ("unproved", Some(ids[0])));
    for signature in [sign(&mallory, &get(store.as_ref(), &layout::version_json(ids[0]))), sign(&aiko, b"{}")] {
        put(store.as_ref(), &layout::signature(ids[0]), signature);
        assert_eq!(said(), ("unproved", Some(ids[0])));
    }
    block_on(store.delete(&layout::signature(ids[0]))).unwrap();
    assert_eq!(said(), ("unproved", Some(ids[0])));
    // Signed by somebody trusted it counts, whatever the IDs say of clocks.
    put(store.as_ref(), &layout::signature(ids[0]), sign(&aiko, &get(store.as_ref(), &layout::version_json(ids[0]))));
    assert_eq!(said(), ("forward", None));
    // The record that was verified is the one that counts, and not one that is read anew.
    let checked = block_on(check_version(store.as_ref(), ids[1], &trusting)).unwrap();
    forge_parent(&store, ids[0], ids[1]);
    forge_parent(&store, ids[1], ids[2]);
    let moved = block_on(fdl::repo::moved(store.as_ref(), RefKind::Branch, ids[2], &checked, &trusting)).unwrap();
    assert!(matches!(moved, Movement::Unproved(_)), "{moved:?}");
}

#[test]
fn an_unsigned_version_on_the_way_forward() {
    let bench = Bench::new(7);
    let aiko = key(1);
    let trusting = trust(AIKO, &aiko);
    let (store, ids) = scene(&bench, &[Some(&aiko), None, Some(&aiko), Some(&aiko)]);
    assert_eq!(moved(&store, RefKind::Branch, ids[0], ids[3], &trusting), ("forward", None));
    // It leads elsewhere.
    let beside = bench.chain(None, 1)[0].id();
    assert_eq!(moved(&store, RefKind::Branch, beside, ids[3], &trusting).0, "back");
}

#[test]
fn a_way_that_is_too_long() {
    let bench = Bench::new(8);
    let store = repository_with_clock(&bench);
    let id = |number: usize| -> VersionId { format!("019a3c4d-0000-7000-8000-{number:012x}").parse().unwrap() };
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for number in 0..=10_001 {
        let parents = if number == 0 { String::new() } else { format!("\"{}\"", id(number - 1)) };
        let record = format!(r#"{{"fdl": "0.1", "id": "{}", "parents": [{parents}], "sha256": "{hash}"}}"#, id(number));
        put(store.as_ref(), &layout::version_json(id(number)), record);
    }
    let nobody = Trust::default();
    assert_eq!(moved(&store, RefKind::Branch, id(1), id(10_001), &nobody).0, "forward");
    assert_eq!(moved(&store, RefKind::Branch, id(0), id(10_001), &nobody).0, "too far");
}

#[test]
fn housekeeping_leaves_signatures_alone() {
    let bench = Bench::new(4);
    let aiko = key(1);
    let (store, ids) = scene(&bench, &[Some(&aiko), Some(&aiko), Some(&aiko)]);
    let look = bench.look();
    let later = |days| bench.clock.now() + chrono::TimeDelta::days(days);
    let options = ExpireOptions { versions: vec![ids[0]], ..ExpireOptions::default() };
    let plan = block_on(plan_expire(store.as_ref(), &options, later(1))).unwrap();
    block_on(run_expire(store.as_ref(), plan, None, later(1))).unwrap();
    let repository = block_on(Repository::open(store.clone())).unwrap();
    let options = WithdrawOptions { versions: vec![ids[1]], ..WithdrawOptions::default() };
    let plan = block_on(plan_withdraw(&repository, &options, look)).unwrap();
    block_on(run_withdraw(&repository, plan, None, look, later(1))).unwrap();
    // A push that was stopped between a signature and its record is not finished, and goes.
    let stopped = bench.chain(Some(ids[2]), 1)[0].id();
    put(store.as_ref(), &layout::signature(stopped), sign(&aiko, b"{}"));
    bench.clock.advance(86_400 * 30);
    let options = GcOptions { grace: chrono::TimeDelta::days(7), ..GcOptions::default() };
    let plan = block_on(plan_gc(&repository, &options, look, bench.clock.now())).unwrap();
    block_on(run_gc(&repository, plan, &options, look, bench.random.as_ref())).unwrap();
    let expected: Vec<_> = ids.iter().rev().map(|id| (*id, Status::Good)).collect();
    assert_eq!(history(&store, ids[2], &trust(AIKO, &aiko)).unwrap(), expected);
    assert!(!store.contents().contains_key(&layout::signature(stopped)));
}

#[test]
fn a_version_of_a_tag() {
    let bench = Bench::new(5);
    let aiko = key(1);
    let (store, ids) = scene(&bench, &[Some(&aiko)]);
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), ids[0])).unwrap();
    let checked = block_on(check_version(store.as_ref(), ids[0], &trust(AIKO, &aiko))).unwrap();
    assert_eq!(
        checked.record,
        Some(Record::parse(ids[0], &get(store.as_ref(), &layout::version_json(ids[0]))).unwrap())
    );
    assert_eq!(checked.verdict.status.to_string(), "good");
}
