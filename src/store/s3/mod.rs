//! A repository in a bucket of S3, or of a service that speaks the same.
//!
//! Requests are signed and answers read by `object_store`; they are sent by our own client (`service`). What is asked of a
//! service: `If-None-Match: *` and `If-Match` on PUT, listings of version 2, and uploads in parts.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path as S3Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

use super::net::{self, Opened, Part, Reader, Retry, content_type, failed, hopeless};
use super::{Body, ConditionalWrite, ETag, Object, ObjectMeta, Store, StoreError, key};
use bucket::{Bucket, Door};
use fault::{Condition, Who, fault, refusal, unwritten};
use location::Location;
use service::Cause;
use settings::Machine;
use upload::{Again, Budget, Upload};

mod bucket;
mod complete;
mod fault;
mod list;
mod location;
mod options;
mod presign;
mod profile;
mod service;
mod settings;
mod sweep;
mod upload;

pub use options::{S3Keys, S3Options, S3Session};
pub use presign::PresignedPut;

/// A [`Store`] in a bucket.
///
/// Needs tokio's runtime, and the same one for all of its life.
#[derive(Debug, Clone)]
pub struct S3Store {
    door: Arc<Door>,
    location: Arc<str>,
    budget: Budget,
}

impl S3Store {
    /// Opens `s3://bucket/prefix`. What `options` leave open is taken from the environment and the files that AWS tools
    /// share (format.md section 13). Nothing is sent: whether there is such a bucket shows in the first request.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadLocation`] for what is no location of this kind, [`StoreError::Failed`] with action `open` when
    /// options or environment make no sense.
    pub fn open(location: &str, options: &S3Options) -> Result<Self, StoreError> {
        Self::open_with(location, options, Retry::default())
    }

    /// [`S3Store::open`] with other rules for trying again.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn open_with(location: &str, options: &S3Options, retry: Retry) -> Result<Self, StoreError> {
        let parsed = Location::parse(location)?;
        let printed: Arc<str> = parsed.print().into();
        let machine =
            Machine { variable: &|name| std::env::var(name).ok(), file: &|path| std::fs::read_to_string(path).ok() };
        let settings = settings::settle(options, &machine).map_err(|why| failed(&printed, "open", why))?;
        let metadata = machine.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let door = Door::new(parsed, settings, metadata, retry).map_err(|error| failed(&printed, "open", error))?;
        Ok(Self { door: Arc::new(door), location: printed, budget: Budget::new() })
    }

    /// What was found out about the bucket, for a DuckDB secret of the same scope.
    ///
    /// # Errors
    ///
    /// [`StoreError::Permission`] or [`StoreError::Failed`] when there should be credentials and none can be had.
    pub async fn session(&self) -> Result<S3Session, StoreError> {
        let bucket = self.bucket("", "open").await?;
        bucket.session().await.map_err(|cause| fault(&self.location, "open", cause, bucket.who()))
    }

    /// Where the service is; none for AWS itself.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.door.endpoint()
    }

    async fn bucket(&self, key: &str, action: &'static str) -> Result<Arc<Bucket>, StoreError> {
        let who = Who { anonymous: false, bucket: &self.door.location.bucket };
        self.door.bucket().await.map_err(|cause| fault(key, action, cause, who))
    }

    /// Where an object is in the bucket. Nothing is encoded: DuckDB finds it by the same name.
    fn path(&self, key: &str) -> Result<S3Path, StoreError> {
        key::check(key)?;
        let path = format!("{}{key}", self.door.location.prefix);
        S3Path::parse(path).map_err(|_| StoreError::BadKey { key: key.to_owned(), why: "S3 does not take such a name" })
    }

    async fn put_on_condition(
        &self,
        key: &str,
        bytes: Bytes,
        condition: Condition,
        mode: PutMode,
    ) -> Result<ConditionalWrite, StoreError> {
        let path = self.path(key)?;
        let bucket = self.bucket(key, "write").await?;
        let options = PutOptions { mode, attributes: attributes(key), ..PutOptions::default() };
        match bucket.s3.put_opts(&path, bytes.into(), options).await {
            Ok(_) => Ok(ConditionalWrite::Written),
            Err(error) => refusal(key, condition, Cause::of(error), bucket.who()),
        }
    }

    async fn delete_chunk(&self, keys: Vec<String>) -> Vec<Result<String, StoreError>> {
        let mut results = Vec::with_capacity(keys.len());
        let mut good = Vec::with_capacity(keys.len());
        for key in keys {
            match self.path(&key) {
                Ok(path) => good.push((key, path)),
                Err(error) => results.push(Err(error)),
            }
        }
        let Some((first, _)) = good.first() else { return results };
        let bucket = match self.bucket(first, "delete").await {
            Ok(bucket) => bucket,
            Err(error) => {
                results.push(Err(error));
                return results;
            }
        };
        let mut again = Again::new();
        let answers = loop {
            let paths: Vec<_> = good.iter().map(|(_, path)| Ok(path.clone())).collect();
            let answers: Vec<_> = bucket.s3.delete_stream(stream::iter(paths).boxed()).collect().await;
            if answers.len() == good.len() {
                break Ok(answers);
            }
            // One error for all of them.
            match answers.into_iter().find_map(Result::err).map(Cause::of) {
                Some(cause) if again.wait(&cause).await => {}
                cause => break Err(cause),
            }
        };
        match answers {
            Ok(answers) => results.extend(good.into_iter().zip(answers).map(|((key, _), answer)| match answer {
                Ok(_) => Ok(key),
                Err(error) => Err(undeleted(&key, Cause::of(error), bucket.who())),
            })),
            Err(Some(cause)) => results.push(Err(undeleted(first, cause, bucket.who()))),
            Err(None) => {
                results.push(Err(failed(first, "delete", "the answer names fewer objects than were asked for")))
            }
        }
        results
    }
}

/// Why one of many keys was not deleted: the answer to all of them was a success, so its reason is in the text.
fn undeleted(key: &str, cause: Cause, who: Who<'_>) -> StoreError {
    match cause {
        Cause::Other(error) if error.to_string().contains("AccessDenied") => {
            StoreError::Permission { key: key.to_owned(), action: "delete", source: Box::new(error) }
        }
        cause => fault(key, "delete", cause, who),
    }
}

fn attributes(key: &str) -> Attributes {
    Attributes::from_iter([(Attribute::ContentType, content_type(key))])
}

fn meta(key: &str, meta: object_store::ObjectMeta) -> ObjectMeta {
    ObjectMeta { key: key.to_owned(), size: meta.size, last_modified: meta.last_modified, etag: meta.e_tag.map(ETag) }
}

#[async_trait]
impl Reader for S3Store {
    async fn open(&self, key: &str, part: Part<'_>) -> Result<Option<Opened>, StoreError> {
        let path = self.path(key)?;
        let bucket = self.bucket(key, "read").await?;
        let range = match (part.is_whole(), part.end) {
            (true, _) => None,
            (false, end) if end > u64::MAX / 2 => Some(GetRange::Offset(part.start)),
            (false, end) => Some(GetRange::Bounded(part.start..end)),
        };
        let options = GetOptions { range, if_match: part.etag.map(str::to_owned), ..GetOptions::default() };
        match bucket.s3.get_opts(&path, options).await {
            Ok(result) => {
                let (etag, offset) = (result.meta.e_tag.clone(), result.range.start);
                let body = result.into_stream().map_err(|error| match Cause::of(error) {
                    Cause::Net(error) => error,
                    Cause::Answer(answer) => net::NetError::Broken(answer.to_string()),
                    Cause::Other(error) => net::NetError::Broken(error.to_string()),
                });
                Ok(Some(Opened { etag, offset, body: body.boxed() }))
            }
            Err(error) => match Cause::of(error) {
                cause if cause.status().is_some_and(|status| status.as_u16() == 416) => Ok(None),
                cause if part.etag.is_some() && cause.status().is_some_and(|status| status.as_u16() == 412) => {
                    Err(failed(key, "read", "it changed while it was read"))
                }
                cause => Err(fault(key, "read", cause, bucket.who())),
            },
        }
    }
}

#[async_trait]
impl Store for S3Store {
    fn location(&self) -> &str {
        &self.location
    }

    fn retry(&self) -> Option<Retry> {
        Some(self.door.retry)
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        net::get(self, key).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.is_empty() {
            return self.head(key).await.map(|_| Bytes::new());
        }
        net::get_range(self, key, range).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        net::download(self, key, target, most).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let path = self.path(key)?;
        let bucket = self.bucket(key, "read").await?;
        match bucket.s3.head(&path).await {
            Ok(found) => Ok(meta(key, found)),
            Err(error) => Err(fault(key, "read", Cause::of(error), bucket.who())),
        }
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        let target = self.path(key)?;
        let bucket = self.bucket(key, "write").await?;
        match body {
            Body::Bytes(bytes) => {
                let options = PutOptions { attributes: attributes(key), ..PutOptions::default() };
                let put = bucket.s3.put_opts(&target, bytes.into(), options).await;
                put.map(drop).map_err(|error| unwritten(key, Cause::of(error), bucket.who()))
            }
            Body::File(path) => {
                let (budget, attributes) = (&self.budget, attributes(key));
                let upload = Upload { bucket: &bucket, budget, key, target: &target, attributes, only_new: false };
                upload.send(&path).await.map(drop)
            }
        }
    }

    async fn put_file_if_absent(&self, key: &str, path: &Path) -> Result<ConditionalWrite, StoreError> {
        let target = self.path(key)?;
        let bucket = self.bucket(key, "write").await?;
        let (budget, attributes) = (&self.budget, attributes(key));
        Upload { bucket: &bucket, budget, key, target: &target, attributes, only_new: true }.send(path).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.put_on_condition(key, bytes, Condition::Absent, PutMode::Create).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        key::check(key)?;
        if !net::is_named(etag) {
            return Err(StoreError::Unsupported {
                store: "this S3 service",
                action: "replace an object on condition: its answers name no state (ETag)",
            });
        }
        // What cannot be in a header was never given out as a state.
        if http::HeaderValue::from_str(&etag.0).is_err() {
            return Ok(ConditionalWrite::Refused);
        }
        let version = UpdateVersion { e_tag: Some(etag.0.clone()), version: None };
        self.put_on_condition(key, bytes, Condition::Unchanged, PutMode::Update(version)).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let prefix = prefix.to_owned();
        let listing = async move {
            key::check_prefix(&prefix)?;
            let bucket = self.bucket(&prefix, "list").await?;
            let (anonymous, name) = (bucket.who().anonymous, bucket.who().bucket.to_owned());
            let objects = list::list(bucket, self.door.location.prefix.clone(), &prefix);
            Ok(objects.map_err(move |cause| match fault(&prefix, "list", cause, Who { anonymous, bucket: &name }) {
                StoreError::NotFound { key } => hopeless(&key, "list", format!("the bucket {name} was not found")),
                error => error,
            }))
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn sweep(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let bucket = self.bucket("", "delete").await?;
        let swept = sweep::sweep(&bucket, &self.door.location.prefix, before).await;
        swept.map_err(|cause| fault(&self.location, "delete", cause, bucket.who()))
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.path(key)?;
        let bucket = self.bucket(key, "delete").await?;
        // One by one: not every service deletes many, and `object_store` would ask for that.
        match bucket.ask(http::Method::DELETE, path.as_ref(), &[]).await {
            Ok(_) => Ok(()),
            Err(cause) => match fault(key, "delete", cause, bucket.who()) {
                StoreError::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Compares, then deletes: few services delete on condition. Whoever replaces the object between the two loses it.
    /// Only refs are deleted so, and one that is moved in the very moment of its deletion may be gone as well.
    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        match self.get(key).await {
            Ok(object) if object.etag == *etag => {}
            Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(ConditionalWrite::Refused),
            Err(error) => return Err(error),
        }
        self.delete(key).await?;
        Ok(ConditionalWrite::Written)
    }

    /// 1,000 keys a request.
    fn delete_all<'a>(&'a self, keys: BoxStream<'a, String>) -> BoxStream<'a, Result<String, StoreError>> {
        const AT_ONCE: usize = 4;
        keys.chunks(1000).map(move |chunk| self.delete_chunk(chunk)).buffered(AT_ONCE).flat_map(stream::iter).boxed()
    }
}
