//! The host as a reader and a browser see it: paths, ranges, conditions, caching, tokens.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
#[expect(dead_code, reason = "each test uses a part of it")]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use client::{Client, get, options, put, serve, write_version};
use fdl::format::{Expired, Reason, VersionId, layout};
use fdl::store::{FolderStore, MemoryStore, Store};
use futures::executor::block_on;
use support::{Bench, repository};

/// A host whose `main` has one version; the version names one data file of 3 bytes.
fn published() -> (Arc<MemoryStore>, Client, VersionId) {
    let bench = Bench::new(1);
    let store = repository(&bench);
    let id = write_version(&store, bench.path(), &bench.chain(None, 1)[0]);
    put(&store, "refs/heads/main", format!("{id}\n"));
    let client = serve(store.clone(), options(false));
    (store, client, id)
}

#[test]
fn every_key_is_a_path_with_its_own_rules_for_caches() {
    let (store, client, id) = published();
    let data = store.contents().into_keys().find(|key| key.starts_with("data/")).unwrap();
    put(&store, &layout::expired(id), "{}");
    put(&store, &format!("versions/{id}/README.md"), "hello");
    let (once, asking, not) = ("public, max-age=31536000, immutable", "no-cache", "no-store");
    for (key, keep, content_type) in [
        ("fdl.json", asking, "application/json"),
        ("HEAD", not, "text/plain; charset=utf-8"),
        ("refs.json", not, "application/json"),
        ("refs/heads/main", not, "text/plain; charset=utf-8"),
        (&layout::version_json(id), once, "application/json"),
        (&layout::dataset(id), once, "application/json"),
        (&layout::files(id), once, "application/json"),
        (&layout::catalog(id), once, "application/octet-stream"),
        (&layout::expired(id), asking, "application/json"),
        (&format!("versions/{id}/README.md"), asking, "application/octet-stream"),
        (&data, once, "application/vnd.apache.parquet"),
    ] {
        let answer = client.get(&format!("/{key}"), &[]);
        assert_eq!((answer.status, Some(answer.text())), (200, get(&store, key).as_deref()), "{key}");
        assert_eq!(answer.header("cache-control"), keep, "{key}");
        assert_eq!(answer.header("content-type"), content_type, "{key}");
        assert_eq!(answer.header("accept-ranges"), "bytes");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let tag = answer.header("etag");
        assert!(tag.starts_with('"') && tag.len() > 40, "{key}: {tag}");
        let head = client.send("HEAD", &format!("/{key}"), &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0), "{key}");
        assert_eq!(head.header("content-length"), answer.body.len().to_string(), "{key}");
        assert_eq!(head.header("etag"), tag, "{key}");
        assert!(head.header("last-modified").ends_with(" GMT"), "{key}");
        let again = client.get(&format!("/{key}"), &[&format!("If-None-Match: \"x\", W/{tag}")]);
        assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, tag), "{key}");
        assert_eq!(again.header("cache-control"), keep, "{key}");
        assert_eq!(client.get(&format!("/{key}"), &["If-Match: \"x\""]).status, 412, "{key}");
    }
}

#[test]
fn nothing_outside_the_layout_is_ever_served() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("lake");
    let secret = folder.path().join("secret");
    std::fs::create_dir_all(root.join("data/main")).unwrap();
    std::fs::create_dir_all(root.join("refs/heads")).unwrap();
    std::fs::write(&secret, "secret").unwrap();
    std::fs::write(root.join("fdl.json"), r#"{"fdl": "0.1"}"#).unwrap();
    std::fs::write(root.join("README.md"), "secret").unwrap();
    std::fs::write(root.join(".fdl-lock"), "secret").unwrap();
    std::fs::write(root.join("data/main/.fdl-half.tmp"), "secret").unwrap();
    std::fs::write(root.join("data/main/a.parquet"), "data").unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, root.join("data/link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("data/folder")).unwrap();
        std::os::unix::fs::symlink(&secret, root.join("refs/heads/link")).unwrap();
    }
    let store: Arc<dyn Store> = Arc::new(FolderStore::open(root.to_str().unwrap()).unwrap());
    let client = serve(store, options(false));
    assert_eq!(client.get("/data/main/a.parquet", &[]).text(), "data");
    assert_eq!(client.get("/data/%6dain/a%2Eparquet", &[]).text(), "data");
    let absolute = format!("/{}", secret.display());
    for path in [
        "/",
        "/README.md",
        "/.fdl-lock",
        "/data",
        "/data/",
        "/data/main",
        "/data/main/",
        "/data/main/.fdl-half.tmp",
        "/refs",
        "/refs/",
        "/refs/heads",
        "/refs/heads/",
        "/refs/heads/link",
        "/versions",
        "/versions/",
        "/data/link",
        "/data/folder/secret",
        "/../secret",
        "/data/../../secret",
        "/data/../../../secret",
        "/%2e%2e/secret",
        "/data/%2e%2e/%2e%2e/secret",
        "/data/..%2f..%2fsecret",
        "/data/%2E%2E%2F%2E%2E%2Fsecret",
        "/data/..%5c..%5csecret",
        "/data/..\\..\\secret",
        "/data/%252e%252e/%252e%252e/secret",
        "/data/%25252e%25252e/secret",
        "/data/..%252fsecret",
        "/data/k=..%2F..%2F..%2Fsecret",
        "/data/%c0%ae%c0%ae/secret",
        "/data/%uff0e/secret",
        "/data/main/a.parquet%00",
        "/data/main/a.parquet%00.json",
        "/data/main//a.parquet",
        "//data/main/a.parquet",
        "/./fdl.json",
        "/data/./main/a.parquet",
        "/fdl.json/",
        "/fdl.json/..",
        "/data/main/a.parquet/",
        "/data/main/a.parquet/x",
        "/file:///etc/passwd",
        "/data/%",
        "/data/%2",
        "/data/%zz",
        "/data/%ff",
        "/data/%0d%0aX: y",
        "/DATA/main/a.parquet",
        "/refs/heads/../../fdl.json",
        &absolute,
        &format!("/data/{}", "a/".repeat(600)),
    ] {
        for method in ["GET", "HEAD"] {
            let answer =
                client.raw(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
            let text = String::from_utf8_lossy(&answer);
            let (status, _) = text.split_once("\r\n").unwrap();
            assert!(status.contains(" 404 ") || status.contains(" 400 "), "{method} {path}: {status}");
            let body = text.split_once("\r\n\r\n").unwrap().1;
            assert!(!body.contains("secret\n") && body != "secret", "{method} {path}: {body}");
        }
        let put = client.put(path, &[], b"mine");
        assert!((400..500).contains(&put.status), "PUT {path}: {}", put.status);
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert!(!root.join("versions").exists());
}

#[test]
fn partition_values_are_found_by_the_names_readers_put_together() {
    let (store, client, _) = published();
    for (key, paths) in [
        ("data/main/p/k=b%2Fc/x.parquet", vec!["/data/main/p/k=b%252Fc/x.parquet", "/data/main/p/k=b%2Fc/x.parquet"]),
        ("data/main/p/k=a%5Cb/x.parquet", vec!["/data/main/p/k=a%255Cb/x.parquet", "/data/main/p/k=a%5Cb/x.parquet"]),
        ("data/main/p/k=a%20b/x.parquet", vec!["/data/main/p/k=a%2520b/x.parquet", "/data/main/p/k=a%20b/x.parquet"]),
        (
            "data/町/k=%E7%94%BA/x.parquet",
            vec!["/data/町/k=%E7%94%BA/x.parquet", "/data/%E7%94%BA/k=%E7%94%BA/x.parquet"],
        ),
        (
            "data/main/k=1=2/a b+c.parquet",
            vec!["/data/main/k=1=2/a%20b+c.parquet", "/data/main/k%3D1=2/a%20b+c.parquet"],
        ),
    ] {
        put(&store, key, key);
        for path in paths {
            let answer = client.get(path, &["Range: bytes=0-99"]);
            assert_eq!((answer.status, answer.text()), (206, key), "{path}");
            assert_eq!(client.send("HEAD", path, &[], b"").status, 200, "{path}");
        }
    }
    // The key by the rules of URLs wins.
    put(&store, "data/main/p/k=b/c/x.parquet", "other");
    assert_eq!(client.get("/data/main/p/k=b%2Fc/x.parquet", &[]).text(), "other");
}

#[test]
fn ranges() {
    let (store, client, _) = published();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    put(&store, "data/main/t/big.parquet", bytes.clone());
    put(&store, "data/main/t/empty.parquet", "");
    let path = "/data/main/t/big.parquet";
    for (range, part) in [
        ("bytes=0-0", Some(0..1)),
        ("bytes=100-199", Some(100..200)),
        ("bytes=2999990-", Some(2_999_990..3_000_000)),
        ("bytes=2999990-9999999", Some(2_999_990..3_000_000)),
        ("bytes=-10", Some(2_999_990..3_000_000)),
        ("bytes=-9999999", Some(0..3_000_000)),
        ("bytes=1-", Some(1..3_000_000)),
        // Several ranges, and what is none: all of it.
        ("bytes=0-1,5-6", None),
        ("bytes=9-1", None),
        ("lines=1-2", None),
    ] {
        let answer = client.get(path, &[&format!("Range: {range}")]);
        let (status, part) = part.map_or((200, 0..bytes.len()), |part| (206, part));
        assert_eq!(answer.status, status, "{range}");
        assert_eq!(answer.header("content-length"), part.len().to_string(), "{range}");
        if status == 206 {
            let expected = format!("bytes {}-{}/3000000", part.start, part.end - 1);
            assert_eq!(answer.header("content-range"), expected);
        }
        assert!(answer.body == bytes[part], "{range}");
    }
    for (path, range, size) in [
        (path, "bytes=3000000-", 3_000_000),
        (path, "bytes=3000000-3000001", 3_000_000),
        (path, "bytes=-0", 3_000_000),
        ("/data/main/t/empty.parquet", "bytes=0-", 0),
        ("/HEAD", "bytes=100-", 21),
    ] {
        let answer = client.get(path, &[&format!("Range: {range}")]);
        assert_eq!(
            (answer.status, answer.header("content-range")),
            (416, format!("bytes */{size}").as_str()),
            "{range}"
        );
    }
    assert_eq!(client.get("/data/main/t/empty.parquet", &[]).status, 200);
    assert_eq!(client.get("/HEAD", &["Range: bytes=5-8"]).text(), "refs");
    // A range of what it was when the tag was given, or all of what it is now.
    let tag = client.send("HEAD", path, &["Range: bytes=0-1"], b"");
    assert_eq!((tag.status, tag.header("content-length")), (200, "3000000"));
    let if_range = |tag: &str| client.get(path, &["Range: bytes=0-1", &format!("If-Range: {tag}")]).status;
    assert_eq!((if_range(tag.header("etag")), if_range("\"x\"")), (206, 200));
}

#[test]
fn a_browser_may_read_and_only_read() {
    let (_, client, _) = published();
    let asked = ["Origin: https://example.org", "Access-Control-Request-Method: GET"];
    let preflight = client.send("OPTIONS", "/data/main/t/x.parquet", &asked, b"");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), "*");
    assert_eq!(preflight.header("access-control-allow-methods"), "GET, HEAD, OPTIONS");
    for name in ["Range", "If-None-Match", "Authorization"] {
        assert!(preflight.header("access-control-allow-headers").contains(name), "{name}");
    }
    let origin = ["Origin: https://example.org"];
    for (path, status) in [("/HEAD", 200), ("/data/none", 404), ("/data/%2e%2e/x", 400)] {
        let answer = client.get(path, &origin);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        for name in ["Content-Range", "ETag", "FDL-Version", "Accept-Ranges", "Content-Length"] {
            assert!(answer.header("access-control-expose-headers").contains(name), "{name}");
        }
    }
    assert_eq!(client.send("OPTIONS", "*", &[], b"").status, 204);
    assert_eq!(client.send("OPTIONS", "/../x", &[], b"").status, 400);
}

#[test]
fn methods() {
    let (store, client, _) = published();
    let before = store.contents();
    let writer = [client::WRITER];
    for (method, path, status) in [
        ("POST", "/", 405),
        ("POST", "/?batch=1", 405),
        ("POST", "/HEAD", 405),
        ("PATCH", "/HEAD", 405),
        ("TRACE", "/HEAD", 405),
        ("PROPFIND", "/", 405),
        ("CONNECT", "x:80", 400),
        ("PUT", "/", 405),
        ("PUT", "/ducklake.duckdb", 405),
        ("DELETE", "/HEAD", 403),
        ("DELETE", "/fdl.json", 403),
        ("DELETE", "/refs/heads/main", 403),
        ("DELETE", "/data/main/t/x.parquet", 403),
    ] {
        let answer = client.send(method, path, &writer, b"");
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("allow").is_empty(), status != 405, "{method} {path}");
    }
    assert_eq!(store.contents(), before);
}

#[test]
fn the_catalog_of_the_default_branch() {
    let bench = Bench::new(2);
    let store = Arc::new(MemoryStore::new());
    let client = serve(store.clone(), options(false));
    let latest = |headers: &[&str]| client.get("/ducklake.duckdb", headers);
    assert_eq!(latest(&[]).refusal(), (404, "FDL-NOT-A-REPOSITORY".to_owned()));
    block_on(bench.init(store.as_ref()));
    assert_eq!(latest(&[]).refusal(), (404, "FDL-NOT-FOUND".to_owned()));
    let chain = bench.chain(None, 2);
    let ids: Vec<VersionId> = chain.iter().map(|version| write_version(&store, bench.path(), version)).collect();
    let mut tags = Vec::new();
    for id in &ids {
        put(&store, "refs/heads/main", format!("{id}\n"));
        let answer = latest(&[]);
        assert_eq!((answer.status, answer.text()), (200, format!("the catalog of {id}").as_str()));
        assert_eq!(answer.header("fdl-version"), id.to_string());
        assert_eq!(answer.header("cache-control"), "no-cache");
        let part = latest(&["Range: bytes=4-10"]);
        assert_eq!((part.status, part.text(), part.header("fdl-version")), (206, "catalog", id.to_string().as_str()));
        tags.push(answer.header("etag").to_owned());
    }
    assert_ne!(tags[0], tags[1], "a reader notices that it is another version");
    assert_eq!(latest(&[&format!("If-None-Match: {}", tags[1])]).status, 304);
    let mark = Expired { reason: Some(Reason::Withdrawn), at: None, message: Some("names".to_owned()) };
    put(&store, &layout::expired(ids[1]), mark.print(ids[1]).unwrap());
    let answer = latest(&[]);
    assert_eq!(answer.refusal(), (410, "FDL-WITHDRAWN".to_owned()));
    assert!(answer.message().contains("names") && answer.header("cache-control") == "no-store", "{answer:?}");
    put(&store, &layout::expired(ids[1]), "{}");
    assert_eq!(latest(&[]).refusal(), (410, "FDL-EXPIRED".to_owned()));
}

#[test]
fn tokens() {
    let (store, open, id) = published();
    let closed = serve(store.clone(), options(true));
    let silent = serve(store.clone(), fdl::host::HostOptions::new("127.0.0.1:0"));
    let key = format!("/{}", layout::catalog(id));
    let statuses = |token: &str, method: &str, path: &str, body: &[u8]| {
        let headers = if token.is_empty() { vec![] } else { vec![token] };
        let status = |client: &Client| client.send(method, path, &headers, body).status;
        [status(&open), status(&closed), status(&silent)]
    };
    let same = store.contents()[&layout::catalog(id)].clone();
    for (token, read, write) in [
        ("", [200, 401, 200], [401, 401, 403]),
        ("Authorization: Bearer read", [200, 200, 200], [401, 403, 403]),
        ("Authorization: Bearer write", [200, 200, 200], [200, 200, 403]),
        ("Authorization: Bearer writ", [200, 401, 200], [401, 401, 403]),
        ("Authorization: Bearer write1", [200, 401, 200], [401, 401, 403]),
        ("Authorization: Basic d3JpdGU=", [200, 401, 200], [401, 401, 403]),
    ] {
        assert_eq!(statuses(token, "GET", "/HEAD", b""), read, "{token}");
        assert_eq!(statuses(token, "HEAD", &key, b""), read, "{token}");
        assert_eq!(statuses(token, "PUT", &key, &same), write, "{token}");
        let batch = write.map(|status| if status == 200 { 200 } else { status });
        assert_eq!(statuses(token, "POST", "/?batch", br#"{"files": []}"#), batch, "{token}");
    }
    let answer = closed.get("/HEAD", &["Authorization: Bearer secret"]);
    assert!(answer.header("www-authenticate").starts_with("Bearer realm=\"fdl\""), "{answer:?}");
    assert!(!answer.text().contains("secret"));
    // A browser asks without a token; what was read with one is not for others.
    assert_eq!(closed.send("OPTIONS", "/HEAD", &[], b"").status, 204);
    let kept = closed.get(&key, &["Authorization: Bearer read"]);
    assert_eq!(kept.header("cache-control"), "private, max-age=31536000, immutable");
}
