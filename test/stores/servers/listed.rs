//! An HTTP store that can be listed: a test looks into the server's memory, so that the contract of all stores holds.

use std::ops::Range;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use fdl::store::{
    Body, ConditionalWrite, ETag, FilePut, FileToPut, HttpStore, Object, ObjectMeta, Store, StoreError, key,
};
use futures::stream::{self, BoxStream, StreamExt};

use super::objects::{Objects, key_of};
use super::server::{Reply, Seen, Server};

#[derive(Debug)]
pub struct Listed {
    pub http: HttpStore,
    pub objects: Objects,
}

/// A server of objects at `/root dir`, and a store of it.
pub async fn listed() -> (Server, Listed) {
    let objects = Objects::default();
    let app = {
        let objects = objects.clone();
        move |seen: &Seen| match key_of(&seen.path, "/root%20dir") {
            Some(key) => objects.answer(&key, seen, super::objects::Faults::default()),
            None => Reply::new(404),
        }
    };
    let server = Server::start(app).await;
    let http = HttpStore::open(&format!("{}/root dir/", server.url), Some("")).unwrap();
    (server, Listed { http, objects })
}

#[async_trait]
impl Store for Listed {
    fn location(&self) -> &str {
        self.http.location()
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        self.http.get(key).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.http.get_range(key, range).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        self.http.download(key, target, most).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.http.head(key).await
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.http.put(key, body).await
    }

    async fn put_files(&self, files: &[FileToPut]) -> Result<Vec<FilePut>, StoreError> {
        self.http.put_files(files).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.http.put_if_absent(key, bytes).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.http.put_if_unchanged(key, bytes, etag).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        if let Err(error) = key::check_prefix(prefix) {
            return stream::iter([Err(error)]).boxed();
        }
        let objects = self.objects.all().into_iter().filter(|(key, _)| key.starts_with(prefix));
        let metas: Vec<_> = objects
            .map(|(key, (bytes, last_modified))| {
                Ok(ObjectMeta { key, size: bytes.len() as u64, last_modified, etag: None })
            })
            .collect();
        stream::iter(metas).boxed()
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.http.delete(key).await
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.http.delete_if_unchanged(key, etag).await
    }
}
