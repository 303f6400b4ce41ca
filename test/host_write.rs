//! Bringing objects over HTTP: written once, and how a batch says to send them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
#[expect(dead_code, reason = "each test uses a part of it")]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use client::scene::Scene;
use client::{Client, NEW, RUNTIME, get, options, put, serve, version_files};
use fdl::format::{CatalogEntry, NAMESPACE, Record, Sha256, layout};
use fdl::host::{HostOptions, UploadUrl, UploadUrls};
use fdl::repo::LocalVersion;
use fdl::store::fault::Fault;
use fdl::store::{FaultStore, Store, StoreError};
use futures::executor::block_on;
use serde_json::json;
use ssh_key::private::Ed25519Keypair;
use ssh_key::{HashAlg, LineEnding, PrivateKey};

#[test]
fn objects_are_written_once() {
    let scene = Scene::new(options(false));
    let version = &scene.bench.chain(None, 1)[0];
    let (client, id, record) = (&scene.client, version.id(), record_of(&scene, version));
    let big: Vec<u8> = (0..2_500_000_u32).map(|at| u8::try_from(at % 249).unwrap()).collect();
    let mut other = big.clone();
    other[2_400_000] ^= 1;
    let source = Sha256::of(b"small");
    for (key, bytes, another) in [
        ("data/main/t/small.parquet", b"small".as_slice(), b"other".as_slice()),
        ("data/main/t/big.parquet", &big, &other),
        ("data/main/t/k=a%2Fb/x.parquet", b"", b"x"),
        (&layout::catalog(id), &big, b"x"),
        (&layout::other_catalog(id, "0.3"), b"small", b"other"),
        (&layout::signature(id), &sign(1, &record), &sign(2, &record)),
        (&layout::version_json(id), &record, b"other"),
    ] {
        let path = format!("/{}", key.replace('%', "%25"));
        assert_eq!(client.put(&path, &["If-Match: *"], bytes).status, 412, "{key}");
        assert_eq!(client.put(&path, &[NEW], bytes).status, 201, "{key}");
        assert_eq!(client.put(&path, &[NEW], bytes).status, 412, "{key}");
        assert_eq!(client.put(&path, &[], bytes).status, 200, "{key}");
        assert_eq!(client.put(&path, &[], another).refusal(), (409, "FDL-EXISTS".to_owned()), "{key}");
        assert!(scene.store.contents()[key] == bytes, "{key}");
    }
    assert_eq!(client.put(&format!("/sources/{source}"), &[], b"small").status, 201);
    assert_eq!(client.put(&format!("/sources/{}", Sha256::of(b"x")), &[], b"small").refusal().0, 400);
    let signature = layout::signature(scene.bench.chain(None, 1)[0].id());
    assert_eq!(client.put(&format!("/{signature}"), &[NEW], &vec![b'x'; (64 << 10) + 1]).status, 413);
    assert_eq!(client.put(&format!("/versions/{id}/README.md"), &[], b"x").status, 403);
    // A copy brings the mark of a version that is not here; what is here is its owner's to take away.
    let (absent, there) = ("019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10", &id.to_string());
    let mark = |id: &str| format!("{{\"fdl\": \"0.1\", \"id\": \"{id}\", \"reason\": \"retention\"}}").into_bytes();
    let path = |id: &str| format!("/versions/{id}/expired.json");
    assert_eq!(client.put(&path(absent), &[], b"x").status, 400);
    assert_eq!(client.put(&path(absent), &[], &mark(there)).status, 400);
    assert_eq!(client.put(&path(absent), &[], &mark(absent)).status, 201);
    assert_eq!(client.put(&path(absent), &[], &mark(absent)).status, 200);
    assert_eq!(client.put(&path(there), &[], &mark(there)).status, 403);
    // Many writers of one key: one content.
    std::thread::scope(|scope| {
        let write =
            |at: u8| scope.spawn(move || client.put("/data/main/t/race.parquet", &[], &vec![at; 1_500_000]).status);
        let statuses: Vec<u16> =
            (0..6).map(write).collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 5, "{statuses:?}");
    });
}

/// A signature by a key of this number.
fn sign(key: u8, bytes: &[u8]) -> Vec<u8> {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[key; 32]));
    key.sign(NAMESPACE, HashAlg::Sha512, bytes).unwrap().to_pem(LineEnding::LF).unwrap().into_bytes()
}

/// The bytes of version.json.
fn record_of(scene: &Scene, version: &LocalVersion) -> Vec<u8> {
    version_files(scene.bench.path(), version).pop().unwrap().1
}

/// The second version with a catalog in another format, complete and not published.
fn with_other_catalog(scene: &Scene) -> Vec<(String, Vec<u8>)> {
    let id = scene.second;
    let mut record = Record::parse(id, get(&scene.store, &layout::version_json(id)).unwrap().as_bytes()).unwrap();
    let other = (layout::other_catalog(id, "0.3"), b"in another format".to_vec());
    record.catalogs.insert("0.3".to_owned(), CatalogEntry { sha256: Sha256::of(&other.1), size: None });
    put(&scene.store, &other.0, other.1.clone());
    put(&scene.store, &layout::version_json(id), record.print().unwrap());
    let mut files = version_files(scene.bench.path(), &scene.version);
    files.retain(|(key, _)| !key.ends_with(layout::VERSION_JSON));
    files.push(other);
    files
}

#[test]
fn a_folder_with_a_record_takes_what_the_record_names_and_nothing_else() {
    let scene = Scene::new(options(false));
    let (client, id, files) = (&scene.client, scene.second, with_other_catalog(&scene));
    for (key, bytes) in &files {
        let path = format!("/{key}");
        // A push that is repeated.
        assert_eq!(client.put(&path, &[], bytes).status, 200, "{key}");
        assert_eq!(client.put(&path, &[NEW], bytes).status, 412, "{key}");
        // A copy that brings back what was lost.
        block_on(scene.store.delete(key)).unwrap();
        let answer = client.put(&path, &[NEW], b"forged");
        assert_eq!(answer.refusal(), (409, "FDL-CORRUPT".to_owned()), "{key}");
        assert!(answer.message().contains("sha256"), "{}", answer.message());
        assert!(!scene.store.contents().contains_key(key));
        assert_eq!(client.put(&path, &[NEW], bytes).status, 201, "{key}");
        assert_eq!(client.put(&path, &[], b"forged").refusal(), (409, "FDL-EXISTS".to_owned()), "{key}");
    }
    let before = scene.store.contents();
    let record = before[&layout::version_json(id)].clone();
    for (key, bytes, words) in [
        (layout::other_catalog(id, "0.4"), b"not named".to_vec(), "does not name it"),
        (layout::signature(id), sign(1, &record), "written before its record"),
        (layout::version_json(id), b"{}".to_vec(), "never replaced"),
    ] {
        let answer = client.put(&format!("/{key}"), &[], &bytes);
        assert_eq!(answer.refusal(), (409, "FDL-EXISTS".to_owned()), "{key}");
        assert!(answer.message().contains(words), "{}", answer.message());
    }
    assert!(scene.store.contents() == before);
    // A record that cannot be read names nothing.
    block_on(scene.store.delete(&files[0].0)).unwrap();
    put(&scene.store, &layout::version_json(id), "{");
    assert_eq!(client.put(&format!("/{}", files[0].0), &[], &files[0].1).refusal(), (409, "FDL-CORRUPT".to_owned()));
}

#[test]
fn nothing_comes_back_into_the_folder_of_a_version_that_was_taken_away() {
    for reason in ["withdrawn", "retention"] {
        let scene = Scene::new(options(false));
        let (client, id, files) = (&scene.client, scene.second, with_other_catalog(&scene));
        put(&scene.store, &layout::expired(id), format!("{{\"reason\": \"{reason}\"}}"));
        let gone = files.iter().filter(|(key, _)| !key.ends_with(layout::DATASET_JSON));
        gone.clone().for_each(|(key, _)| block_on(scene.store.delete(key)).unwrap());
        let before = scene.store.contents();
        let code = if reason == "withdrawn" { "FDL-WITHDRAWN" } else { "FDL-EXPIRED" };
        for (key, bytes) in gone {
            assert_eq!(client.put(&format!("/{key}"), &[NEW], bytes).refusal(), (409, code.to_owned()), "{key}");
        }
        let signature = sign(1, &before[&layout::version_json(id)]);
        let answer = client.put(&format!("/{}", layout::signature(id)), &[], &signature);
        assert_eq!(answer.refusal(), (409, code.to_owned()));
        // What is there is nothing new.
        for key in [layout::dataset(id), layout::version_json(id)] {
            assert_eq!(client.put(&format!("/{key}"), &[], &before[&key]).status, 200, "{key}");
        }
        assert!(scene.store.contents() == before);
    }
}

#[test]
fn a_copy_brings_a_mark_and_then_what_is_left_of_the_version() {
    for reason in ["withdrawn", "retention"] {
        let scene = Scene::new(options(false));
        let (client, version) = (&scene.client, &scene.bench.chain(None, 1)[0]);
        let id = version.id();
        let mark = format!("{{\"fdl\": \"0.1\", \"id\": \"{id}\", \"reason\": \"{reason}\"}}");
        assert_eq!(client.put(&format!("/{}", layout::expired(id)), &[NEW], mark.as_bytes()).status, 201);
        let signature = (layout::signature(id), sign(1, &record_of(&scene, version)));
        let files = [version_files(scene.bench.path(), version), vec![signature]].concat();
        let (mut records, contents): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|(key, _)| key.ends_with(layout::VERSION_JSON));
        for (key, bytes) in &contents {
            let expected = match key.rsplit('/').next().unwrap() {
                layout::CATALOG => 409,
                layout::FILES_JSON if reason == "withdrawn" => 409,
                _ => 201,
            };
            assert_eq!(client.put(&format!("/{key}"), &[NEW], bytes).status, expected, "{key} {reason}");
        }
        let (key, bytes) = records.remove(0);
        assert_eq!(client.put(&format!("/{key}"), &[NEW], &bytes).status, 201);
        assert_eq!(client.put(&format!("/{key}"), &[], &bytes).status, 200);
    }
}

#[test]
fn a_signature_comes_before_its_record_and_fits_it() {
    let scene = Scene::new(options(false));
    let (client, version) = (&scene.client, &scene.bench.chain(None, 1)[0]);
    let (id, record) = (version.id(), record_of(&scene, version));
    let (signature, key) = (format!("/{}", layout::signature(id)), format!("/{}", layout::version_json(id)));
    assert_eq!(client.put(&signature, &[NEW], b"rubbish").refusal(), (400, "FDL-CORRUPT".to_owned()));
    assert_eq!(client.put(&key, &[NEW], b"rubbish").refusal(), (400, "FDL-CORRUPT".to_owned()));
    assert_eq!(client.put(&signature, &[NEW], &sign(1, b"another record")).status, 201);
    let answer = client.put(&key, &[NEW], &record);
    assert_eq!(answer.refusal(), (409, "FDL-CORRUPT".to_owned()));
    assert!(answer.message().contains("version.json.sig") && answer.message().contains("does not fit"), "{answer:?}");
    assert!(!scene.store.contents().contains_key(&layout::version_json(id)));
    block_on(scene.store.delete(&layout::signature(id))).unwrap();
    assert_eq!(client.put(&signature, &[NEW], &sign(1, &record)).status, 201);
    assert_eq!(client.put(&key, &[NEW], &record).status, 201);
    assert_eq!(client.put(&signature, &[], &sign(1, &record)).status, 200);
    assert_eq!(client.put(&signature, &[], &sign(2, &record)).refusal(), (409, "FDL-EXISTS".to_owned()));
}

#[test]
fn a_signature_and_a_record_that_come_at_once_fit_or_one_is_refused() {
    for _ in 0..20 {
        let scene = Scene::new(options(false));
        let version = &scene.bench.chain(None, 1)[0];
        let (signature, record) = (layout::signature(version.id()), layout::version_json(version.id()));
        let wrong = sign(1, b"another record");
        let (client, bytes) = (&scene.client, record_of(&scene, version));
        let both = [(&signature, wrong.as_slice()), (&record, &bytes)];
        std::thread::scope(|scope| {
            for (key, bytes) in both {
                scope.spawn(move || client.put(&format!("/{key}"), &[NEW], bytes));
            }
        });
        let there = scene.store.contents();
        assert_eq!([signature, record].iter().filter(|key| there.contains_key(*key)).count(), 1);
    }
}

#[test]
fn what_is_there_is_not_written_again() {
    let scene = Scene::new(options(false));
    let (key, big) = ("data/main/t/big.parquet", vec![7; 2_500_000]);
    let writes = Arc::new(AtomicUsize::new(0));
    let seen = writes.clone();
    let store = FaultStore::new(scene.store.clone(), move |call| {
        seen.fetch_add(usize::from(call.key == key && call.write.is_some()), Ordering::Relaxed);
        Fault::None
    });
    let client = serve(Arc::new(store), options(false));
    for (bytes, status) in [(&big, 201), (&big, 200), (&vec![8; 2_500_000], 409)] {
        assert_eq!(client.put(&format!("/{key}"), &[], bytes).status, status);
    }
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    assert!(scene.store.contents()[key] == big);
}

#[test]
fn a_batch_says_how_each_file_is_sent() {
    #[derive(Debug)]
    struct Urls;
    #[async_trait]
    impl UploadUrls for Urls {
        async fn upload_url(&self, key: &str, size: u64) -> Result<Option<UploadUrl>, StoreError> {
            let headers = BTreeMap::from([("content-length".to_owned(), size.to_string())]);
            let expires = "2026-11-29T22:14:03.123Z".parse().unwrap();
            Ok((size != 500).then(|| UploadUrl { url: format!("https://s3/{key}?signed"), headers, expires }))
        }
    }
    let scene = Scene::new(options(false));
    let upload_urls: Option<Arc<dyn UploadUrls>> = Some(Arc::new(Urls));
    let with_urls = serve(scene.store.clone(), HostOptions { upload_urls, max_upload: 6000, ..options(false) });
    let there = scene.data_key();
    let id = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap();
    let (record, catalog) = (layout::version_json(id), layout::catalog(id));
    let source = format!("sources/{}", Sha256::of(b"x"));
    let asked = [
        (there.as_str(), 3),
        (&there, 4),
        ("data/main/t/k=a%2Fb/new.parquet", 50),
        ("data/main/t/too large for the host.parquet", 6001),
        ("data/main/t/too large for a URL.parquet", 500),
        ("data/../fdl.json", 1),
        ("elsewhere/x", 1),
        ("HEAD", 1),
        (&record, 1),
        (&catalog, 1),
        (&source, 1),
    ];
    let files: Vec<_> =
        asked.iter().map(|(key, size)| json!({"key": key, "size": size, "content_type": "a/b"})).collect();
    let question = json!({"files": files}).to_string();
    let ask = |client: &Client, body: &str| client.send("POST", "/?batch", &[client::WRITER], body.as_bytes());
    let plain = [
        json!({"exists": true}),
        json!({"status": 409}),
        json!({"status": 413}),
        json!({"status": 413}),
        json!({"status": 413}),
        json!({"status": 400}),
        json!({"status": 404}),
        json!({"status": 403}),
        // The host reads these itself as they come, or knows their hash.
        json!({"status": 413}),
        json!({"status": 413}),
        json!({"status": 413}),
    ];
    let mut signed = plain.clone();
    signed[2] = json!({"url": "https://s3/data/main/t/k=a%2Fb/new.parquet?signed", "headers": {"content-length": "50"},
        "expires": "2026-11-29T22:14:03.123Z"});
    // Nobody but a writer is told anything, and nobody at all is shown a URL by accident.
    let reader = with_urls.send("POST", "/?batch", &["Authorization: Bearer other"], question.as_bytes());
    assert_eq!((reader.status, reader.text().contains("https://")), (401, false));
    let url = RUNTIME.block_on(Urls.upload_url("data/x", 1)).unwrap().unwrap();
    assert!(!format!("{url:?}").contains("https://"), "{url:?}");
    for (client, expected) in [(&scene.client, plain), (&with_urls, signed)] {
        let answer = ask(client, &question);
        assert_eq!(answer.status, 200, "{answer:?}");
        for ((told, mut expected), (key, _)) in
            answer.json()["files"].as_array().unwrap().iter().zip(expected).zip(asked)
        {
            expected["key"] = key.into();
            assert_eq!(*told, expected);
        }
    }
    let many = |count: usize| json!({"files": vec![json!({"key": "data/x", "size": 1}); count]}).to_string();
    for (body, status) in [
        (many(1000), 200),
        (many(1001), 400),
        ("{}".to_owned(), 400),
        ("nonsense".to_owned(), 400),
        (r#"{"files": [{"key": "data/x", "size": -1}]}"#.to_owned(), 400),
        (" ".repeat(5 << 20), 413),
    ] {
        assert_eq!(ask(&scene.client, &body).status, status, "{} bytes", body.len());
    }
}
