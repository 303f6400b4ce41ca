//! The part of the contract that is about files of this machine.

use std::sync::Arc;

use fdl::store::{Body, FilePut, FileToPut, Store, StoreError};
use tempfile::TempDir;

use super::{REFUSED, WRITTEN, keys, put, text};

pub async fn streams_large_files(store: Arc<dyn Store>) {
    let folder = TempDir::new().unwrap();
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    let content: Vec<u8> = (0..20 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&source, &content).unwrap();
    let key = "data/main/t/large.parquet";
    store.put(key, Body::File(source)).await.unwrap();
    assert_eq!(store.head(key).await.unwrap().size, 20 << 20);
    assert_eq!(store.download(key, &copy, u64::MAX).await.unwrap(), 20 << 20);
    assert!(std::fs::read(&copy).unwrap() == content);
    let tail = store.get_range(key, (20 << 20) - 3..u64::MAX).await.unwrap();
    assert!(content.ends_with(&tail) && tail.len() == 3);
}

/// A small file, and one that is sent in parts.
pub async fn writes_a_file_only_where_nothing_is(store: Arc<dyn Store>) {
    let folder = TempDir::new().unwrap();
    for (name, size) in [("small", 10_usize), ("large", (9 << 20) + 7)] {
        let key = format!("data/main/t/k=a%2Fb/{name} 町.parquet");
        let file = |byte: u8| {
            let path = folder.path().join(format!("{name} {byte}"));
            std::fs::write(&path, vec![byte; size]).unwrap();
            path
        };
        let (first, second) = (file(1), file(2));
        assert_eq!(store.put_file_if_absent(&key, &first).await.unwrap(), WRITTEN);
        assert_eq!(store.put_file_if_absent(&key, &second).await.unwrap(), REFUSED);
        assert!(store.get(&key).await.unwrap().bytes == vec![1; size]);
        store.delete(&key).await.unwrap();
        assert_eq!(store.put_file_if_absent(&key, &second).await.unwrap(), WRITTEN);
        assert!(store.get(&key).await.unwrap().bytes == vec![2; size]);
    }
}

pub async fn puts_files_once(store: Arc<dyn Store>) {
    let folder = TempDir::new().unwrap();
    let key = |number| format!("data/main/t/{number} 町.parquet");
    let files: Vec<_> = (0..40)
        .map(|number| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, "x".repeat(number)).unwrap();
            FileToPut { key: key(number), size: number as u64, path }
        })
        .collect();
    put(&*store, &key(3), "longer").await;
    let expected: Vec<_> =
        (0..40).map(|number| if number == 3 { FilePut::There { size: 6 } } else { FilePut::Written }).collect();
    assert_eq!(store.put_files(&files).await.unwrap(), expected);
    assert_eq!(keys(&*store, "data/").await.len(), 40);
    assert_eq!(text(&*store, &key(3)).await, "longer");
    assert_eq!(text(&*store, &key(7)).await, "xxxxxxx");
    let again = store.put_files(&files).await.unwrap();
    assert!(again.iter().all(|put| matches!(put, FilePut::There { .. })), "{again:?}");
    assert!(store.put_files(&[]).await.unwrap().is_empty());

    let absent = FileToPut { key: "data/b".to_owned(), size: 1, path: folder.path().join("absent") };
    let error = store.put_files(&[absent]).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
}
