//! Reading an object through connections that break: on from the byte that was reached, as long as it is the same object.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

use super::{NetError, failed};
use crate::format::layout;
use crate::store::local::{local_error, temp_in};
use crate::store::{ETag, Object, StoreError};

/// How often in a row reading on may fail without a byte in between.
const TRIES: u32 = 5;
/// The wait before reading on.
const WAIT: Duration = Duration::from_millis(300);
/// The most of a range that is read into memory. What has no bound, catalogs and data files, goes to files.
const MOST: u64 = 1 << 30;
/// How often an object is asked for at the most, however little comes each time.
const MOST_OPENS: u32 = 1000;
/// What an object may take beside its bytes, and how many of those come in a second at the least. A server that lets them
/// drip holds up nobody for longer.
const PATIENCE: Duration = Duration::from_secs(180);
const SLOWEST: u64 = 4 << 10;

/// Which bytes of an object are asked for.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Part<'a> {
    /// The first one.
    pub(in crate::store) start: u64,
    /// The one behind the last; `u64::MAX` for all that follow.
    pub(in crate::store) end: u64,
    /// Only if the object still has this state.
    pub(in crate::store) etag: Option<&'a str>,
}

impl Part<'_> {
    /// The whole object.
    pub(in crate::store) fn is_whole(&self) -> bool {
        self.start == 0 && self.end == u64::MAX
    }
}

/// An answer with content.
pub(in crate::store) struct Opened {
    /// The state of the object, as the store names it.
    pub(in crate::store) etag: Option<String>,
    /// Which byte of the object the content begins with; before the one asked for where a server ignores ranges.
    pub(in crate::store) offset: u64,
    /// The content.
    pub(in crate::store) body: BoxStream<'static, Result<Bytes, NetError>>,
}

/// A store whose objects are read over a network.
#[async_trait]
pub(in crate::store) trait Reader: Send + Sync {
    /// Asks for a part; none when it begins at the object's end or behind it.
    async fn open(&self, key: &str, part: Part<'_>) -> Result<Option<Opened>, StoreError>;
}

/// Where bytes go.
#[async_trait]
trait Sink: Send {
    async fn write(&mut self, key: &str, bytes: Bytes) -> Result<(), StoreError>;
}

/// Reads a part into a sink. Returns the object's state and how many bytes there were.
async fn pour(
    reader: &dyn Reader,
    key: &str,
    range: Range<u64>,
    sink: &mut dyn Sink,
) -> Result<(Option<String>, u64), StoreError> {
    let mut at = range.start;
    let mut etag: Option<String> = None;
    let (mut tries, mut opens) = (0, 0);
    loop {
        opens += 1;
        let part = Part { start: at, end: range.end, etag: etag.as_deref() };
        let Some(mut opened) = reader.open(key, part).await? else {
            return Ok((etag, at - range.start));
        };
        if at > range.start && (etag.is_none() || etag != opened.etag) {
            return Err(failed(key, "read", "it changed while it was read"));
        }
        etag = opened.etag.take();
        let mut offset = opened.offset;
        let error = loop {
            let bytes = match opened.body.next().await {
                None => return Ok((etag, at - range.start)),
                Some(Err(error)) => break error,
                Some(Ok(bytes)) => bytes,
            };
            let wanted = wanted(&bytes, offset, at..range.end);
            offset = offset.saturating_add(bytes.len() as u64);
            if !wanted.is_empty() {
                at += wanted.len() as u64;
                tries = 0;
                sink.write(key, wanted).await?;
            }
            if at >= range.end {
                return Ok((etag, at - range.start));
            }
        };
        tries += 1;
        // Without a state to hold on to, what follows might be of another object.
        if tries >= TRIES || opens >= MOST_OPENS || (etag.is_none() && at > range.start) {
            return Err(failed(key, "read", error));
        }
        tokio::time::sleep(WAIT * tries).await;
    }
}

/// Gives up what takes longer than so many bytes may.
async fn patiently<T>(
    key: &str,
    most: u64,
    read: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let patience = PATIENCE.saturating_add(Duration::from_secs(most / SLOWEST));
    let read = tokio::time::timeout(patience, read).await;
    read.unwrap_or_else(|_| Err(failed(key, "read", NetError::Slow(patience))))
}

/// The bytes of `range` in a piece that begins at `offset`.
fn wanted(bytes: &Bytes, offset: u64, range: Range<u64>) -> Bytes {
    let cut = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
    let (start, end) = (cut(range.start), cut(range.end));
    bytes.slice(start.min(end)..end)
}

/// Bytes in memory, at the most so many.
struct Memory {
    bytes: Vec<u8>,
    most: u64,
}

#[async_trait]
impl Sink for Memory {
    async fn write(&mut self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        require_size(key, (self.bytes.len() as u64).saturating_add(bytes.len() as u64), self.most)?;
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }
}

struct ToFile<'a> {
    file: BufWriter<File>,
    target: &'a Path,
    size: u64,
    most: u64,
}

#[async_trait]
impl Sink for ToFile<'_> {
    async fn write(&mut self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.size = self.size.saturating_add(bytes.len() as u64);
        require_size(key, self.size, self.most)?;
        self.file.write_all(&bytes).await.map_err(|error| local_error(self.target, "write", error))
    }
}

fn require_size(key: &str, size: u64, limit: u64) -> Result<(), StoreError> {
    match size > limit {
        true => Err(StoreError::TooLarge { key: key.to_owned(), limit }),
        false => Ok(()),
    }
}

/// [`Store::get`](crate::store::Store::get) of a reader: an object whose server names no state gets a name that no
/// server knows, made of its content.
pub(in crate::store) async fn get(reader: &dyn Reader, key: &str) -> Result<Object, StoreError> {
    let most = layout::limit(key);
    let mut memory = Memory { bytes: Vec::new(), most };
    let (etag, _) = patiently(key, most, pour(reader, key, 0..u64::MAX, &mut memory)).await?;
    let bytes = Bytes::from(memory.bytes);
    let etag = match etag {
        Some(etag) => ETag(etag),
        None => ETag(format!("{UNNAMED}{}", ETag::of_content(&bytes).0)),
    };
    Ok(Object { bytes, etag })
}

/// How the states begin that no server knows.
const UNNAMED: &str = "content-sha256:";

/// Whether a state can be sent in a condition.
pub(in crate::store) fn is_named(etag: &ETag) -> bool {
    !etag.0.starts_with(UNNAMED)
}

/// [`Store::get_range`](crate::store::Store::get_range) of a reader, for ranges that are not empty.
pub(in crate::store) async fn get_range(
    reader: &dyn Reader,
    key: &str,
    range: Range<u64>,
) -> Result<Bytes, StoreError> {
    let mut memory = Memory { bytes: Vec::new(), most: MOST };
    pour(reader, key, range, &mut memory).await?;
    Ok(memory.bytes.into())
}

/// [`Store::download`](crate::store::Store::download) of a reader.
pub(in crate::store) async fn download(
    reader: &dyn Reader,
    key: &str,
    target: &Path,
    most: u64,
) -> Result<u64, StoreError> {
    let local = |error| local_error(target, "write", error);
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let temp = temp_in(folder).map_err(local)?;
    let file = BufWriter::with_capacity(1 << 20, File::from_std(temp.reopen().map_err(local)?));
    let mut sink = ToFile { file, target, size: 0, most };
    let (_, size) = patiently(key, most, pour(reader, key, 0..u64::MAX, &mut sink)).await?;
    sink.file.flush().await.map_err(local)?;
    drop(sink);
    temp.persist(target).map_err(|error| local(error.error))?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::stream;

    use super::*;

    /// Gives a few bytes at each try, then breaks.
    struct Breaking {
        content: &'static [u8],
        each: usize,
        etag: Option<&'static str>,
        changed_at: u64,
        ranges: bool,
        opened: Mutex<Vec<u64>>,
    }

    #[async_trait]
    impl Reader for Breaking {
        async fn open(&self, _: &str, part: Part<'_>) -> Result<Option<Opened>, StoreError> {
            self.opened.lock().unwrap().push(part.start);
            let offset = if self.ranges { part.start } else { 0 };
            let rest = &self.content[usize::try_from(offset).unwrap()..];
            let given = usize::try_from(part.start - offset).unwrap() + self.each;
            let mut pieces = vec![Ok(Bytes::from_static(&rest[..given.min(rest.len())]))];
            if given < rest.len() {
                pieces.push(Err(NetError::Broken("test".to_owned())));
            }
            let etag = if part.start >= self.changed_at { Some("other") } else { self.etag };
            Ok(Some(Opened { etag: etag.map(str::to_owned), offset, body: stream::iter(pieces).boxed() }))
        }
    }

    fn reader() -> Breaking {
        let (content, etag) = (b"0123456789".as_slice(), Some("e"));
        Breaking { content, each: 4, etag, changed_at: 99, ranges: true, opened: Mutex::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_on_where_it_stopped() {
        for ranges in [true, false] {
            let reader = Breaking { ranges, ..reader() };
            let object = get(&reader, "k").await.unwrap();
            assert_eq!((&object.bytes[..], object.etag.0.as_str()), (b"0123456789".as_slice(), "e"));
            assert_eq!(*reader.opened.lock().unwrap(), [0, 4, 8]);
            assert_eq!(get_range(&reader, "k", 1..7).await.unwrap(), &b"123456"[..]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_mix_two_objects() {
        let unnamed = || Breaking { etag: None, ..reader() };
        for reader in [Breaking { changed_at: 4, ..reader() }, unnamed()] {
            assert!(matches!(get(&reader, "k").await, Err(StoreError::Failed { .. })));
        }
        let whole = Breaking { each: 10, ..unnamed() };
        assert!(!is_named(&get(&whole, "k").await.unwrap().etag));
    }

    /// Gives a byte now and then, for ever.
    struct Dripping(Duration);

    #[async_trait]
    impl Reader for Dripping {
        async fn open(&self, _: &str, part: Part<'_>) -> Result<Option<Opened>, StoreError> {
            let wait = self.0;
            let body = stream::repeat(()).then(move |()| async move {
                tokio::time::sleep(wait).await;
                Ok(Bytes::from_static(b"x"))
            });
            Ok(Some(Opened { etag: Some("e".to_owned()), offset: part.start, body: body.boxed() }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn neither_an_endless_nor_a_dripping_answer_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        for key in ["HEAD", "refs/heads/main"] {
            let error = get(&Dripping(Duration::ZERO), key).await.unwrap_err();
            assert!(matches!(error, StoreError::TooLarge { limit: 4096, .. }), "{error:?}");
            let error = get(&Dripping(Duration::from_secs(50)), key).await.unwrap_err();
            assert!(error.to_string().contains("not whole after 181 s"), "{error}");
        }
        let error = download(&Dripping(Duration::ZERO), "k", &target, 10).await.unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { limit: 10, .. }), "{error:?}");
        let error = download(&Dripping(Duration::from_secs(50)), "k", &target, 10_000).await.unwrap_err();
        assert!(error.to_string().contains("not whole"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_when_nothing_comes() {
        let reader = Breaking { each: 0, ..reader() };
        assert!(matches!(get(&reader, "k").await, Err(StoreError::Failed { .. })));
        assert_eq!(reader.opened.lock().unwrap().len(), 5);
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        assert!(download(&reader, "k", &target, u64::MAX).await.is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
