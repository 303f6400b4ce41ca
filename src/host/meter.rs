//! A connection that counts its bytes, and ends when its client no longer takes what it asked for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::counters::Counters;
use super::peers::Connection;

/// A connection. A write that makes no progress for `idle` fails; reads are timed by whoever waits for them.
#[derive(Debug)]
pub(super) struct Meter {
    stream: TcpStream,
    counters: Arc<Counters>,
    idle: Duration,
    /// Told whether bytes wait for the client to take them.
    place: Arc<Connection>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Meter {
    pub(super) fn new(stream: TcpStream, counters: Arc<Counters>, idle: Duration, place: Arc<Connection>) -> Self {
        Self { stream, counters, idle, place, stalled: None }
    }

    /// Counts what was written, or gives up on a client that takes nothing.
    fn wrote(&mut self, context: &mut Context<'_>, answer: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = answer {
            if self.stalled.take().is_some() {
                self.place.unsent(false);
            }
            if let Ok(count) = written {
                Counters::add(&self.counters.bytes_out, count);
            }
            return Poll::Ready(written);
        }
        let idle = self.idle;
        if self.stalled.is_none() {
            self.place.unsent(true);
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Meter {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        Counters::add(&this.counters.bytes_in, buffer.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Meter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let answer = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(context, answer)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let answer = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.wrote(context, answer)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
