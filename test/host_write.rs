//! Bringing objects over HTTP: written once, and how a batch says to send them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
#[expect(dead_code, reason = "each test uses a part of it")]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::scene::Scene;
use client::{Client, NEW, RUNTIME, options, serve};
use fdl::format::layout;
use fdl::host::{HostOptions, UploadUrl, UploadUrls};
use fdl::store::StoreError;
use serde_json::json;

#[test]
fn objects_are_written_once() {
    let scene = Scene::new(options(false));
    let (client, id) = (&scene.client, scene.bench.chain(None, 1)[0].id());
    let big: Vec<u8> = (0..2_500_000_u32).map(|at| u8::try_from(at % 249).unwrap()).collect();
    let mut other = big.clone();
    other[2_400_000] ^= 1;
    let source = fdl::format::Sha256::of(b"small");
    for (key, bytes, another) in [
        ("data/main/t/small.parquet", b"small".as_slice(), b"other".as_slice()),
        ("data/main/t/big.parquet", &big, &other),
        ("data/main/t/k=a%2Fb/x.parquet", b"", b"x"),
        (&layout::catalog(id), &big, b"x"),
        (&layout::version_json(id), b"small", b"other"),
        (&layout::signature(id), b"small", b"other"),
        (&layout::other_catalog(id, "0.3"), b"small", b"other"),
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
    assert_eq!(client.put(&format!("/sources/{}", fdl::format::Sha256::of(b"x")), &[], b"small").refusal().0, 400);
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
    let source = format!("sources/{}", fdl::format::Sha256::of(b"x"));
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
