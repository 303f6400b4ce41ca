//! Starting and stopping a host.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use chrono::{DateTime, Utc};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::Store;
use super::answer::Refusal;
use super::counters::Stats;
use super::dispatch::handle;
use super::meter::Meter;
use super::options::{HostError, HostOptions};
use super::peers::{Connection, Peers};
use super::shared::Shared;

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// The most header lines of a request.
const MAX_HEADERS: usize = 100;
/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts hosts.
#[derive(Debug, Clone, Copy)]
pub struct Host;

/// A host that serves until it is stopped or dropped.
#[derive(Debug)]
pub struct RunningHost {
    shared: Arc<Shared>,
    address: SocketAddr,
    since: DateTime<Utc>,
    stop: watch::Sender<bool>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Host {
    /// Serves a store on an address, in tasks of the given runtime. Listens when this returns.
    ///
    /// There need not be a repository yet: whoever holds the write token can start one.
    ///
    /// # Errors
    /// [`HostError::Listen`] when the address makes no sense or is taken.
    pub fn start(store: Arc<dyn Store>, options: HostOptions, runtime: &Handle) -> Result<RunningHost, HostError> {
        let failed = |source| HostError::Listen { address: options.address.clone(), source };
        let _in_runtime = runtime.enter();
        let (listener, address) = listen(&options.address).map_err(failed)?;
        let since = options.clock.now();
        let shared = Arc::new(Shared::new(store, options));
        let (stop, stopping) = watch::channel(false);
        let serving = runtime.spawn(serve(listener, Arc::clone(&shared), stopping));
        Ok(RunningHost { shared, address, since, stop, serving: Mutex::new(Some(serving)) })
    }
}

impl RunningHost {
    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL by which this machine reaches it.
    #[must_use]
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("http://{address}")
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats(self.since)
    }

    /// Takes no more requests, waits for those under way as long as [`Limits::grace`](super::Limits::grace) says, ends
    /// the others, and returns what the host has done. Nothing more happens when it has been stopped before.
    pub async fn stop(&self) -> Stats {
        self.stop.send_replace(true);
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(serving) = serving {
            // It ends by itself within the grace period; an error means that the runtime ended it.
            drop(serving.await);
        }
        self.stats()
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        // The listener and every connection belong to this task. A ref that is just being moved has a task of its own.
        if let Some(serving) = self.serving.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            serving.abort();
        }
    }
}

fn listen(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, address))
}

/// Takes connections until told to stop, then waits for those under way.
async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stopping: watch::Receiver<bool>) {
    let limits = shared.options.limits;
    let peers = Peers::new(limits);
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let accepted = listener.accept().await;
            if accepted.is_ok() {
                peers.room().await;
            }
            accepted
        };
        let accepted = tokio::select! {
            next = next => next,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, from)) = accepted else {
            // The client is gone again, or the system has no room.
            peers.make_room();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        match peers.admit(from.ip()) {
            Some(place) => {
                connections.spawn(connection(stream, from, place, Arc::clone(&shared), stopping.clone()));
            }
            None => turn_away(&stream, from, &shared),
        }
    }
    drop(listener);
    let under_way = async {
        while connections.join_next().await.is_some() {}
        drop(shared.steps.write().await);
    };
    drop(tokio::time::timeout(limits.grace, under_way).await);
    connections.shutdown().await;
}

/// Serves one connection. How it ends is of no interest: the client knows.
async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    place: Arc<Connection>,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
) {
    let limits = shared.options.limits;
    // Without it, the end of an answer may wait for the client's acknowledgement of its beginning.
    drop(stream.set_nodelay(true));
    let io = TokioIo::new(Meter::new(stream, Arc::clone(&shared.counters), limits.idle, Arc::clone(&place)));
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, arrived) = (Arc::clone(&shared), place.arrived());
        async move { Ok::<_, Infallible>(handle(shared, from, arrived, request.map(Body::new)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = place.closed() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}

/// Tells a client that its address has its share of connections, with a request under way on each.
fn turn_away(stream: &TcpStream, from: SocketAddr, shared: &Shared) {
    let refusal = Refusal::busy("your address has its share of the connections to this host");
    let id = shared.log(format_args!("{from} {}", refusal.told()));
    let (code, message) = (refusal.code, &refusal.message);
    let body = format!("{{\"error\":\"{code}\",\"message\":\"{message}\",\"id\":\"{id}\"}}\n");
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close";
    // What does not fit into the socket's buffer at once is not worth waiting for.
    drop(stream.try_write(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()));
}
