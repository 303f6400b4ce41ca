//! What a folder promises beyond the contract of all stores: it leads nowhere else, and tells files from leftovers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fdl::store::{Body, ConditionalWrite, ETag, FolderStore, Store, StoreError, open};
use futures::TryStreamExt;
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
        assert!(is_bad_key(&store.get(key).await), "{key}");
        assert!(is_bad_key(&store.get_range(key, 0..1).await), "{key}");
        assert!(is_bad_key(&store.head(key).await), "{key}");
        assert!(is_bad_key(&store.settle(key).await), "{key}");
        assert!(is_bad_key(&store.download(key, &target).await), "{key}");
        assert!(is_bad_key(&store.put(key, body("x")).await), "{key}");
        assert!(is_bad_key(&store.put_if_absent(key, x()).await), "{key}");
        assert!(is_bad_key(&store.put_if_unchanged(key, x(), &etag).await), "{key}");
        assert!(is_bad_key(&store.delete(key).await), "{key}");
        assert!(is_bad_key(&store.delete_if_unchanged(key, &etag).await), "{key}");
    }
    for prefix in ["", "out/", "up/outside/"] {
        assert!(is_bad_key(&keys(&store, prefix).await), "{prefix}");
    }
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!target.exists());
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
