//! What a folder promises beyond the contract of all stores: it leads nowhere else, and tells files from leftovers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fdl::store::{Body, ConditionalWrite, ETag, FolderStore, ObjectMeta, Store, StoreError, open};
use futures::{StreamExt, TryStreamExt};
use tempfile::TempDir;

fn store(root: &Path) -> FolderStore {
    FolderStore::open(root.to_str().unwrap()).unwrap()
}

fn temp() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

fn body(text: &'static str) -> Body {
    Body::Bytes(Bytes::from_static(text.as_bytes()))
}

async fn keys(store: &FolderStore, prefix: &str) -> Result<Vec<String>, StoreError> {
    let mut keys: Vec<_> = store.list(prefix).map_ok(|meta| meta.key).try_collect().await?;
    keys.sort();
    Ok(keys)
}

fn is_bad_key<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::BadKey { .. }))
}

fn is_not_regular<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::NotRegular { .. }))
}

#[tokio::test]
async fn opens_paths_and_urls() {
    let (_folder, path) = temp();
    let root = path.join("a b%c/データ");
    let url = format!("file://{}/a%20b%25c/%E3%83%87%E3%83%BC%E3%82%BF/", path.display());
    let localhost = url.replacen("file://", "FILE://localhost", 1);
    for location in [root.to_str().unwrap(), &format!("{}/./", root.display()), &url, &localhost] {
        let store = open(location).unwrap();
        assert_eq!(store.location(), root.to_str().unwrap(), "{location}");
        assert_eq!(store.local_root(), Some(root.as_path()));
    }
    assert!(!root.exists(), "opening makes nothing");
    store(&root).put("fdl.json", body("{}")).await.unwrap();
    assert!(root.join("fdl.json").is_file());

    let here = std::env::current_dir().unwrap().canonicalize().unwrap();
    assert_eq!(open("some/where").unwrap().location(), here.join("some/where").to_str().unwrap());
    assert_eq!(open(".").unwrap().location(), here.to_str().unwrap());
}

#[test]
fn says_why_a_location_is_none() {
    let (_folder, path) = temp();
    fs::write(path.join("file"), "").unwrap();
    symlink(path.join("nowhere"), path.join("dangling")).unwrap();
    let under = |name: &str| path.join(name).to_str().unwrap().to_owned();
    for location in [
        String::new(),
        under("file"),
        under("file/below"),
        under("dangling"),
        under("dangling/below"),
        under("absent/../x"),
        "file://elsewhere/x".to_owned(),
        "file:///x?y".to_owned(),
        "file:///x#y".to_owned(),
    ] {
        let error = FolderStore::open(&location).err();
        assert!(matches!(error, Some(StoreError::BadLocation { .. })), "{location:?}: {error:?}");
    }
}

#[tokio::test]
async fn the_root_may_be_a_link() {
    let (_folder, path) = temp();
    fs::create_dir(path.join("real")).unwrap();
    symlink(path.join("real"), path.join("link")).unwrap();
    let store = store(&path.join("link/repository"));
    assert_eq!(store.location(), path.join("real/repository").to_str().unwrap());
    store.put("a", body("x")).await.unwrap();
    assert!(path.join("real/repository/a").is_file());
}

#[tokio::test]
async fn no_link_leads_anywhere() {
    let (_folder, path) = temp();
    let (root, outside) = (path.join("root"), path.join("outside"));
    let store = store(&root);
    store.put("kept", body("x")).await.unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, root.join("out")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink(outside.join("secret"), root.join("file")).unwrap();
    symlink(outside.join("new"), root.join("dangling")).unwrap();
    symlink("kept", root.join("inside")).unwrap();
    let target = path.join("copy");
    let etag = ETag::of_content(b"secret");

    for key in ["out/secret", "out/new", "out/new/deep", "up/outside/secret", "file", "dangling", "inside"] {
        let x = || Bytes::from_static(b"x");
        assert!(is_not_regular(&store.get(key).await), "{key}");
        assert!(is_not_regular(&store.get_range(key, 0..1).await), "{key}");
        assert!(is_not_regular(&store.head(key).await), "{key}");
        assert!(is_not_regular(&store.settle(key).await), "{key}");
        assert!(is_not_regular(&store.download(key, &target, u64::MAX).await), "{key}");
        assert!(is_not_regular(&store.put(key, body("x")).await), "{key}");
        assert!(is_not_regular(&store.put_if_absent(key, x()).await), "{key}");
        assert!(is_not_regular(&store.put_if_unchanged(key, x(), &etag).await), "{key}");
        assert!(is_not_regular(&store.delete(key).await), "{key}");
        assert!(is_not_regular(&store.delete_if_unchanged(key, &etag).await), "{key}");
    }
    for prefix in ["", "out/", "up/outside/"] {
        assert!(is_not_regular(&keys(&store, prefix).await), "{prefix}");
    }
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!target.exists());
}

/// What is a pipe, a device or a socket is no object, and nobody waits for it.
#[tokio::test]
async fn nothing_but_regular_files_is_opened() {
    let (_folder, root) = temp();
    let store = store(&root);
    store.put("data/kept", body("x")).await.unwrap();
    let made = std::process::Command::new("mkfifo").arg(root.join("data/pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(root.join("data/socket")).unwrap();
    let (target, etag) = (root.join("copy"), ETag::of_content(b""));
    for (key, what) in [("data/pipe", "a pipe"), ("data/socket", "a socket"), ("data/pipe/below", "a pipe")] {
        let requests = async {
            let x = || Bytes::from_static(b"x");
            let error = store.get(key).await.unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert!(is_not_regular(&store.get_range(key, 0..1).await), "{key}");
            assert!(is_not_regular(&store.head(key).await), "{key}");
            assert!(is_not_regular(&store.settle(key).await), "{key}");
            assert!(is_not_regular(&store.download(key, &target, 9).await), "{key}");
            assert!(is_not_regular(&store.put(key, body("x")).await), "{key}");
            assert!(is_not_regular(&store.put_if_absent(key, x()).await), "{key}");
            assert!(is_not_regular(&store.put_if_unchanged(key, x(), &etag).await), "{key}");
            assert!(is_not_regular(&store.delete(key).await), "{key}");
            assert!(is_not_regular(&store.check_regular(&[key.to_owned()]).await), "{key}");
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), requests).await.unwrap();
    }
    // A listing tells of each and goes on.
    let listed: Vec<Result<ObjectMeta, StoreError>> = store.list("").collect().await;
    let (there, odd): (Vec<_>, Vec<_>) = listed.into_iter().partition(Result::is_ok);
    assert_eq!(there.into_iter().map(|meta| meta.unwrap().key).collect::<Vec<_>>(), ["data/kept"]);
    let mut odd: Vec<String> = odd.into_iter().map(|error| error.unwrap_err().to_string()).collect();
    odd.sort();
    assert_eq!(odd, ["data/pipe is no regular file (a pipe)", "data/socket is no regular file (a socket)"]);
    assert!(!target.exists());
}

/// The folder of a catalog is swapped for a link, and back, all the time: what is read is the object or an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_comes_and_goes_is_never_followed() {
    let (_folder, path) = temp();
    let (root, outside) = (path.join("root"), path.join("outside"));
    let store = store(&root);
    store.put("a/b/file", body("inside")).await.unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::write(outside.join("b/file"), "outside").unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (stopped, here) = (stop.clone(), root.clone());
    let swapping = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            fs::rename(here.join("a"), here.join("away")).unwrap();
            symlink(&outside, here.join("a")).unwrap();
            fs::remove_file(here.join("a")).unwrap();
            fs::rename(here.join("away"), here.join("a")).unwrap();
        }
    });
    let (mut read, mut refused) = (0, 0);
    for round in 0..3000 {
        let bytes = match round % 2 {
            0 => store.get("a/b/file").await.map(|object| object.bytes),
            _ => store.get_range("a/b/file", 0..100).await,
        };
        match bytes {
            Ok(bytes) => {
                assert_eq!(bytes, "inside");
                read += 1;
            }
            Err(StoreError::NotRegular { .. } | StoreError::NotFound { .. } | StoreError::Failed { .. }) => {
                refused += 1
            }
            Err(error) => panic!("{error:?}"),
        }
        let listed: Vec<Result<ObjectMeta, StoreError>> = store.list("a/").collect().await;
        assert!(listed.into_iter().flatten().all(|meta| meta.size == 6));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}

#[tokio::test]
async fn no_more_is_read_than_an_object_may_have() {
    let (_folder, root) = temp();
    let store = store(&root);
    // As a hostile writer makes it: no space is taken, and 8 GB would be read.
    let huge = |key: &str| {
        let path = root.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(8 << 30).unwrap();
    };
    let id = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";
    for key in ["fdl.json", "HEAD", "refs/heads/main", "refs.json", "README.md"]
        .map(str::to_owned)
        .into_iter()
        .chain(["version.json", "version.json.sig", "expired.json"].map(|name| format!("versions/{id}/{name}")))
    {
        huge(&key);
        let error = store.get(&key).await.unwrap_err();
        let limit = fdl::format::layout::limit(&key);
        assert!(matches!(error, StoreError::TooLarge { limit: found, .. } if found == limit), "{key}: {error:?}");
    }
    let target = root.join("copy");
    let error = store.download("fdl.json", &target, 1000).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { limit: 1000, .. }), "{error:?}");
    assert!(!target.exists());
    assert_eq!(
        fs::read_dir(&root)
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".fdl-") })
            .count(),
        0
    );
}

#[tokio::test]
async fn leftovers_and_strangers_are_no_objects() {
    let (_folder, root) = temp();
    let store = store(&root);
    store.put("data/x", body("x")).await.unwrap();
    // Makes the lock file.
    store.delete("data/x").await.unwrap();
    store.put("data/y", body("y")).await.unwrap();
    fs::write(root.join("data/.fdl-0123456789abcdef.tmp"), "half").unwrap();
    fs::write(root.join("back\\slash"), "no key").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    assert!(root.join(".fdl-lock").exists());
    assert_eq!(keys(&store, "").await.unwrap(), ["data/y"]);
}

#[tokio::test]
async fn sweeps_up_after_killed_writers() {
    let (_folder, root) = temp();
    let store = store(&root);
    store.put("data/t/x", body("x")).await.unwrap();
    store.put("data/t/x", body("y")).await.unwrap();
    let leftover = root.join("data/t/.fdl-0123456789abcdef.tmp");
    fs::write(&leftover, "12345").unwrap();
    let touched = fs::metadata(&leftover).unwrap().modified().unwrap().into();
    assert_eq!(store.sweep(touched).await.unwrap(), 0);
    assert!(leftover.exists());
    assert_eq!(store.sweep(touched + chrono::TimeDelta::seconds(1)).await.unwrap(), 5);
    assert!(!leftover.exists() && root.join(".fdl-lock").exists());
    assert_eq!(keys(&store, "").await.unwrap(), ["data/t/x"]);
}

#[tokio::test]
async fn folders_of_refs_go_when_they_are_empty() {
    let (_folder, root) = temp();
    let store = store(&root);
    for key in ["refs/heads/a/b/c", "refs/heads/a/d", "refs/tags/t", "data/s/t/x"] {
        store.put(key, body("x")).await.unwrap();
    }
    store.delete("refs/heads/a/b/c").await.unwrap();
    assert!(!root.join("refs/heads/a/b").exists());
    assert!(root.join("refs/heads/a/d").exists());
    for key in ["refs/heads/a/d", "refs/tags/t", "data/s/t/x"] {
        store.delete(key).await.unwrap();
    }
    for (folder, stays) in [("refs/heads/a", false), ("refs/heads", true), ("refs/tags", true), ("data/s/t", true)] {
        assert_eq!(root.join(folder).exists(), stays, "{folder}");
    }
}

#[tokio::test]
async fn an_object_and_a_folder_cannot_share_a_name() {
    let (_folder, root) = temp();
    let store = store(&root);
    let x = || Bytes::from_static(b"x");
    store.put("refs/heads/a", body("x")).await.unwrap();
    store.put("refs/heads/b/c", body("x")).await.unwrap();
    for key in ["refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/b"] {
        assert!(is_bad_key(&store.put(key, body("x")).await), "{key}");
        assert!(is_bad_key(&store.put_if_absent(key, x()).await), "{key}");
    }
    assert_eq!(keys(&store, "").await.unwrap(), ["refs/heads/a", "refs/heads/b/c"]);
}

#[tokio::test]
async fn what_a_killed_delete_left_is_in_nobodys_way() {
    let (_folder, root) = temp();
    let leftover = root.join("refs/heads/a/b/c/.fdl-0123456789abcdef.tmp");
    fs::create_dir_all(leftover.parent().unwrap()).unwrap();
    let file = fs::File::create(&leftover).unwrap();
    let store = store(&root);
    let create = || store.put_if_absent("refs/heads/a", Bytes::from_static(b"x"));
    assert!(is_bad_key(&create().await), "its writer may still be at it");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    file.set_modified(long_ago).unwrap();
    assert_eq!(create().await.unwrap(), ConditionalWrite::Written);
}

#[tokio::test]
async fn folders_come_and_go_under_writers() {
    let (_folder, root) = temp();
    let store = store(&root);
    let tasks = (0..8).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = format!("refs/heads/shared/{number}");
            for _ in 0..50 {
                let written = store.put_if_absent(&key, Bytes::from_static(b"x")).await.unwrap();
                assert_eq!(written, ConditionalWrite::Written);
                store.delete(&key).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(keys(&store, "").await.unwrap(), [""; 0]);
    assert!(!root.join("refs/heads/shared").exists());
}

#[tokio::test]
async fn objects_have_the_permissions_of_any_file() {
    let (_folder, root) = temp();
    fs::write(root.join("any"), "").unwrap();
    let store = store(&root);
    store.put("a", body("x")).await.unwrap();
    store.put_if_absent("b", Bytes::new()).await.unwrap();
    let mode = |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode();
    assert_eq!((mode("a"), mode("b")), (mode("any"), mode("any")));
}

#[tokio::test]
async fn says_when_it_may_not_write() {
    let (_folder, path) = temp();
    let root = path.join("root");
    let store = store(&root);
    store.put("a", body("x")).await.unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o555)).unwrap();
    let privileged = fs::write(root.join("probe"), "").is_ok();
    if !privileged {
        for answer in [store.put("a", body("y")).await, store.put("b/c", body("y")).await, store.delete("a").await] {
            assert!(matches!(answer, Err(StoreError::Permission { .. })), "{answer:?}");
        }
        assert_eq!(store.get("a").await.unwrap().bytes, "x");
    }
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_name_too_long_is_a_bad_key() {
    let (_folder, root) = temp();
    let store = store(&root);
    let key = format!("data/{}", "x".repeat(300));
    assert!(is_bad_key(&store.put(&key, body("x")).await));
    assert!(is_bad_key(&store.put_if_absent(&key, Bytes::new()).await));
}
