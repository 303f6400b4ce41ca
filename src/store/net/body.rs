//! What is sent: it can be sent again from its first byte, is never in memory whole when it is a file, and shows that it
//! moves, so that a slow upload is told from one that hangs.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::NetError;

/// How much is handed to the connection at once: progress is seen in these steps.
const STEP: usize = 64 << 10;

/// The content of a request.
#[derive(Debug, Clone)]
pub(in crate::store) enum Content {
    /// None.
    Empty,
    /// Bytes in memory, in the order in which they are sent.
    Bytes(Vec<Bytes>),
    /// A file of this machine, which must have this size.
    File {
        /// Where it is.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(vec![bytes])
    }
}

impl Content {
    /// A body of its own for each try, and the pulse that it shows.
    pub(super) async fn open(&self) -> Result<(Option<Upload>, Pulse), NetError> {
        let pulse = Pulse::new();
        let (left, source) = match self {
            Self::Empty => return Ok((None, pulse)),
            Self::Bytes(parts) => {
                let size = parts.iter().map(|part| part.len() as u64).sum();
                (size, Feed::Bytes(parts.iter().cloned().collect()))
            }
            Self::File { path, size } => {
                let unreadable = |error: io::Error| NetError::Body(format!("{}: {error}", path.display()));
                let file = File::open(path).await.map_err(unreadable)?;
                let now = file.metadata().await.map_err(unreadable)?.len();
                if now != *size {
                    return Err(NetError::Body(format!("{} has {now} bytes now, not {size}", path.display())));
                }
                (*size, Feed::File(file))
            }
        };
        Ok((Some(Upload { source, left, pulse: pulse.clone() }), pulse))
    }
}

/// When a request last moved, and why its body ended early.
#[derive(Debug, Clone)]
pub(super) struct Pulse(Arc<Mutex<Beat>>);

#[derive(Debug)]
struct Beat {
    last: Instant,
    broken: Option<String>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Beat { last: Instant::now(), broken: None })))
    }

    fn beat(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something moved.
    pub(super) fn moved(&self) {
        self.beat().last = Instant::now();
    }

    /// For how long nothing has moved.
    pub(super) fn quiet(&self) -> Duration {
        self.beat().last.elapsed()
    }

    /// Why the body could not be read, if it could not.
    pub(super) fn broken(&self) -> Option<String> {
        self.beat().broken.clone()
    }
}

/// The body of one try.
#[derive(Debug)]
pub(super) struct Upload {
    source: Feed,
    left: u64,
    pulse: Pulse,
}

#[derive(Debug)]
enum Feed {
    Bytes(VecDeque<Bytes>),
    File(File),
}

impl Upload {
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        match &mut self.source {
            Feed::Bytes(parts) => {
                let step = match parts.front_mut() {
                    Some(part) if part.len() > STEP => part.split_to(STEP),
                    _ => parts.pop_front().unwrap_or_default(),
                };
                Poll::Ready(Ok(step))
            }
            Feed::File(file) => {
                let mut buffer = vec![0; STEP.min(usize::try_from(self.left).unwrap_or(STEP))];
                let mut read = ReadBuf::new(&mut buffer);
                ready!(Pin::new(file).poll_read(context, &mut read))?;
                let filled = read.filled().len();
                buffer.truncate(filled);
                match filled {
                    0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    _ => Poll::Ready(Ok(buffer.into())),
                }
            }
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        while this.left > 0 {
            match ready!(this.poll_step(context)) {
                // An empty part.
                Ok(step) if step.is_empty() => {}
                Ok(step) => {
                    this.left = this.left.saturating_sub(step.len() as u64);
                    this.pulse.moved();
                    return Poll::Ready(Some(Ok(Frame::data(step))));
                }
                Err(error) => {
                    this.pulse.beat().broken = Some(error.to_string());
                    this.left = 0;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    /// Exact, so that a Content-Length is sent: upload URLs take nothing else.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn send(content: &Content) -> (u64, usize, Vec<u8>) {
        let (body, _) = content.open().await.unwrap();
        let mut body = body.unwrap();
        let announced = body.size_hint().exact().unwrap();
        let (mut steps, mut sent) = (0, Vec::new());
        while let Some(frame) = body.frame().await {
            steps += 1;
            sent.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        assert!(body.is_end_stream());
        (announced, steps, sent)
    }

    #[tokio::test]
    async fn sends_the_same_each_time_in_steps() {
        let all: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, &all).unwrap();
        let parts =
            vec![Bytes::new(), Bytes::copy_from_slice(&all[..150_000]), Bytes::copy_from_slice(&all[150_000..])];
        for content in [Content::Bytes(parts), Content::File { path: path.clone(), size: 200_000 }] {
            for _ in 0..2 {
                let (announced, steps, sent) = send(&content).await;
                assert_eq!(announced, 200_000);
                assert!(steps >= 4 && sent == all, "{steps}");
            }
        }
    }

    #[tokio::test]
    async fn a_file_of_another_size_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for content in ["", "longer than before"] {
            std::fs::write(&path, content).unwrap();
            let error = Content::File { path: path.clone(), size: 3 }.open().await.unwrap_err();
            assert!(matches!(error, NetError::Body(_)), "{error:?}");
        }
    }
}
