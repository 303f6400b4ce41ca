//! Large files: in parts, a few at a time, in bounded memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use object_store::multipart::{MultipartStore, PartId};
use object_store::{Attributes, MultipartId, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bucket::Bucket;
use super::complete::complete_new;
use super::fault::{Condition, fault, refusal};
use super::service::Cause;
use crate::store::local::local_error;
use crate::store::net::failed;
use crate::store::{ConditionalWrite, StoreError};

/// The size of a part, and of the largest file that is sent in one request.
const PART: u64 = 8 << 20;
/// How many parts a file may have.
const MOST_PARTS: u64 = 10_000;
/// How many parts of one file are under way at a time.
const AT_ONCE: usize = 4;
/// How much of all files together is in memory, in MiB: half of what fdl may take.
const BUDGET: u32 = 128;
const MIB: u64 = 1 << 20;

/// The memory that uploads share.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET as usize)))
    }

    /// Waits until there is room for so many bytes. More than the whole budget takes all of it.
    async fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let mib = u32::try_from(bytes.div_ceil(MIB)).unwrap_or(BUDGET).clamp(1, BUDGET);
        // Never closed.
        Arc::clone(&self.0).acquire_many_owned(mib).await.ok()
    }
}

/// One file that is sent to one key.
pub(super) struct Upload<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) budget: &'a Budget,
    pub(super) key: &'a str,
    pub(super) target: &'a object_store::path::Path,
    pub(super) attributes: Attributes,
    /// Whether it is refused where something is at the key.
    pub(super) only_new: bool,
}

impl Upload<'_> {
    fn fault(&self, error: object_store::Error) -> StoreError {
        fault(self.key, "write", Cause::of(error), self.bucket.who())
    }

    /// What a refused condition comes to, and any other failure.
    fn refusal(&self, cause: Cause) -> Result<ConditionalWrite, StoreError> {
        refusal(self.key, Condition::Absent, cause, self.bucket.who())
    }

    /// Sends a file.
    pub(super) async fn send(&self, path: &Path) -> Result<ConditionalWrite, StoreError> {
        let local = |error| local_error(path, "read", error);
        let file = File::open(path).await.map_err(local)?;
        let meta = file.metadata().await.map_err(local)?;
        if !meta.is_file() {
            return Err(failed(&path.display().to_string(), "read", "it is no file"));
        }
        let mut source = FileParts { file: BufReader::new(file), path: path.to_owned() };
        match meta.len() {
            size if size <= PART => {
                let permit = self.budget.take(size).await;
                let bytes = source.next(size).await?;
                let mode = if self.only_new { PutMode::Create } else { PutMode::Overwrite };
                let options = PutOptions { mode, attributes: self.attributes.clone(), ..PutOptions::default() };
                let sent = self.bucket.s3.put_opts(self.target, bytes.into(), options).await;
                drop(permit);
                match sent {
                    Ok(_) => Ok(ConditionalWrite::Written),
                    Err(error) if self.only_new => self.refusal(Cause::of(error)),
                    Err(error) => Err(self.fault(error)),
                }
            }
            size => self.send_parts(&mut source, size).await,
        }
    }

    async fn send_parts(&self, source: &mut FileParts, size: u64) -> Result<ConditionalWrite, StoreError> {
        // A large file is not sent to be refused at its end.
        if self.only_new && self.is_there().await? {
            return Ok(ConditionalWrite::Refused);
        }
        let options = PutMultipartOptions { attributes: self.attributes.clone(), ..PutMultipartOptions::default() };
        let upload = self.bucket.s3.create_multipart_opts(self.target, options).await;
        let upload = upload.map_err(|error| self.fault(error))?;
        let sent = match self.parts(&upload, source, size).await {
            Ok(parts) => self.complete(&upload, parts, size).await,
            Err(error) => Err(error),
        };
        if !matches!(sent, Ok(ConditionalWrite::Written)) {
            // What cannot be taken back now is taken back by a sweep, or by the bucket's own rules.
            drop(self.bucket.s3.abort_multipart(self.target, &upload).await);
        }
        sent
    }

    async fn parts(&self, upload: &MultipartId, source: &mut FileParts, size: u64) -> Result<Vec<PartId>, StoreError> {
        let most = size.div_ceil(MOST_PARTS).next_multiple_of(MIB).max(PART);
        let mut under_way = FuturesUnordered::new();
        let mut done = Vec::new();
        let mut left = size;
        while left > 0 {
            if under_way.len() >= AT_ONCE {
                done.extend(under_way.try_next().await?);
            }
            let length = left.min(most);
            let permit = loop {
                // Parts that wait for room must not keep others from ending.
                tokio::select! {
                    permit = self.budget.take(length) => break permit,
                    Some(part) = under_way.next(), if !under_way.is_empty() => done.push(part?),
                }
            };
            let bytes = source.next(length).await?;
            left -= length;
            let number = under_way.len() + done.len();
            under_way.push(async move {
                let sent = self.bucket.s3.put_part(self.target, upload, number, bytes.into()).await;
                drop(permit);
                sent.map(|part| (number, part)).map_err(|error| self.fault(error))
            });
        }
        while let Some(part) = under_way.try_next().await? {
            done.push(part);
        }
        done.sort_unstable_by_key(|(number, _)| *number);
        Ok(done.into_iter().map(|(_, part)| part).collect())
    }

    /// Whether there is an object, as far as the service says.
    async fn is_there(&self) -> Result<bool, StoreError> {
        match self.bucket.s3.head(self.target).await {
            Ok(_) => Ok(true),
            Err(error) => match fault(self.key, "read", Cause::of(error), self.bucket.who()) {
                // Where listing is not allowed, S3 denies access to keys that are not there.
                StoreError::NotFound { .. } | StoreError::Permission { .. } => Ok(false),
                error => Err(error),
            },
        }
    }

    /// Puts the parts together. A new object is looked for first in any case: a service may not know the condition of
    /// this request, and say so or pass over it. Nearly as good, as only what comes after the look is replaced there.
    ///
    /// The answer may be lost, and then a second request finds no upload any more.
    async fn complete(
        &self,
        upload: &MultipartId,
        parts: Vec<PartId>,
        size: u64,
    ) -> Result<ConditionalWrite, StoreError> {
        if self.only_new && self.is_there().await? {
            return Ok(ConditionalWrite::Refused);
        }
        let mut again = Again::new();
        let mut on_condition = self.only_new;
        let cause = loop {
            let completed = match on_condition {
                true => complete_new(self.bucket, self.target.as_ref(), upload, &parts).await,
                false => {
                    let completed = self.bucket.s3.complete_multipart(self.target, upload, parts.clone()).await;
                    completed.map(drop).map_err(Cause::of)
                }
            };
            match completed {
                Ok(()) => return Ok(ConditionalWrite::Written),
                // It knows the condition of a PUT alone.
                Err(cause) if on_condition && is_unknown(&cause) => on_condition = false,
                Err(cause) if again.wait(&cause).await => {}
                Err(cause) => break cause,
            }
        };
        match self.bucket.s3.head(self.target).await {
            // Somebody else's, perhaps: whoever asked looks at it.
            Ok(_) if self.only_new => Ok(ConditionalWrite::Refused),
            // The key of a large file names its content or its version, so this is ours.
            Ok(meta) if meta.size == size => Ok(ConditionalWrite::Written),
            _ => match fault(self.key, "write", cause, self.bucket.who()) {
                // Would speak of the object.
                StoreError::NotFound { key } => Err(failed(&key, "write", "the upload was ended by somebody else")),
                error => Err(error),
            },
        }
    }
}

/// A few more tries of a request that S3 may answer with 200 and then, in the content, with an error that passes.
pub(super) struct Again(Duration);

impl Again {
    pub(super) fn new() -> Self {
        Self(Duration::from_millis(500))
    }

    /// Waits, when another try may help.
    pub(super) async fn wait(&mut self, cause: &Cause) -> bool {
        let passes = match cause {
            Cause::Other(error) => passes(error),
            Cause::Answer(answer) => answer.status.is_success() && answer.is(&["InternalError", "SlowDown"]),
            Cause::Net(_) => false,
        };
        let may_help = passes && self.0 < Duration::from_secs(8);
        if may_help {
            tokio::time::sleep(self.0).await;
            self.0 *= 2;
        }
        may_help
    }
}

/// Whether a service does not know what it was asked.
fn is_unknown(cause: &Cause) -> bool {
    let Cause::Answer(answer) = cause else { return false };
    answer.status == StatusCode::NOT_IMPLEMENTED || answer.is(&["NotImplemented"])
}

fn passes(error: &object_store::Error) -> bool {
    let text = error.to_string();
    text.contains("InternalError") || text.contains("SlowDown")
}

/// A file that is read from its first byte to its last.
struct FileParts {
    file: BufReader<File>,
    path: PathBuf,
}

impl FileParts {
    /// The next part, which is as long as this.
    async fn next(&mut self, length: u64) -> Result<Bytes, StoreError> {
        let local = |error| local_error(&self.path, "read", error);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let mut bytes = BytesMut::with_capacity(size);
        while bytes.len() < size {
            let left = (size - bytes.len()) as u64;
            let read = (&mut self.file).take(left).read_buf(&mut bytes).await.map_err(local)?;
            if read == 0 {
                return Err(failed(&self.path.display().to_string(), "read", "it became shorter while it was read"));
            }
        }
        Ok(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn uploads_share_their_memory() {
        let budget = Budget::new();
        let whole = budget.take(u64::MAX).await.unwrap();
        assert_eq!(budget.0.available_permits(), 0);
        drop(whole);
        let _one = budget.take(1).await.unwrap();
        let _part = budget.take(PART).await.unwrap();
        assert_eq!(budget.0.available_permits(), 128 - 1 - 8);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_again_after_an_error_that_passes() {
        let cause = |text: &'static str| Cause::of(object_store::Error::Generic { store: "S3", source: text.into() });
        let mut again = Again::new();
        assert!(!again.wait(&cause("AccessDenied")).await);
        let mut tries = 0;
        while again.wait(&cause("SlowDown")).await {
            tries += 1;
        }
        assert_eq!(tries, 4);
    }
}
