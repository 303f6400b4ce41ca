//! A share of the host for each peer: of the connections that are open, and of the requests that run.
//!
//! A connection counts for little until the head of a request has arrived on it. Where there is no room for another one,
//! the one that has waited longest for a request is closed, so that whoever opens many and says nothing keeps nobody out.
//! A request that has arrived waits for a slot, of which a peer has half at the most.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::options::Limits;

/// The connections of a host.
#[derive(Debug)]
pub(super) struct Peers {
    limits: Limits,
    state: Mutex<State>,
    slots: Arc<Semaphore>,
    /// Told when a connection has gone, or waits for a request.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Counts up with every event, so that it tells which came first.
    turn: u64,
    open: HashMap<u64, Open>,
    peers: HashMap<IpAddr, Peer>,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    /// The turn since which it waits for a request; nothing while one is under way.
    idle: Option<u64>,
    /// Whether the end of an answer still waits for the client to take it.
    unsent: bool,
    close: Arc<Notify>,
}

#[derive(Debug)]
struct Peer {
    connections: usize,
    slots: Arc<Semaphore>,
}

/// A connection that is open. Its place is free again when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Peers>,
    id: u64,
    close: Arc<Notify>,
    slots: Arc<Semaphore>,
}

/// A request that has arrived on a connection, until all of its answer has been taken.
#[derive(Debug)]
pub(super) struct Arrived {
    connection: Arc<Connection>,
    slots: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

/// Half of what there is, for one peer.
fn share(of: usize) -> usize {
    of.div_ceil(2).max(1)
}

/// The peer of an address: behind IPv6 everybody has a network of many addresses.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

impl Peers {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(limits.requests.max(1)));
        Arc::new(Self { limits, state: Mutex::default(), slots, room: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn most(&self) -> usize {
        self.limits.connections.max(1)
    }

    /// Waits until another connection can be taken: while all are busy, others wait to be accepted.
    pub(super) async fn room(&self) {
        while !self.state().has_room(self.most()) {
            self.room.notified().await;
        }
    }

    /// Takes a connection. Nothing when its peer has its share already, and a request under way on each.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Connection>> {
        let peer = peer_of(address);
        let mut state = self.state();
        if state.connections_of(peer) >= share(self.most()) && !state.close_idle(Some(peer)) {
            return None;
        }
        if state.open.len() >= self.most() && !state.close_idle(None) {
            return None;
        }
        let close = Arc::new(Notify::new());
        let (id, requests) = (state.next_turn(), share(self.limits.requests.max(1)));
        let of_peer = state
            .peers
            .entry(peer)
            .or_insert_with(|| Peer { connections: 0, slots: Arc::new(Semaphore::new(requests)) });
        of_peer.connections += 1;
        let slots = Arc::clone(&of_peer.slots);
        state.open.insert(id, Open { peer, idle: Some(id), unsent: false, close: Arc::clone(&close) });
        Some(Arc::new(Connection { all: Arc::clone(self), id, close, slots }))
    }

    /// Closes the connection that has waited longest for a request, as the system has no room for more.
    pub(super) fn make_room(&self) {
        self.state().close_idle(None);
    }
}

impl State {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn connections_of(&self, peer: IpAddr) -> usize {
        self.peers.get(&peer).map_or(0, |peer| peer.connections)
    }

    fn has_room(&self, most: usize) -> bool {
        self.open.len() < most || self.open.values().any(|open| open.waits().is_some())
    }

    /// Closes the connection that has waited longest for a request, of one peer or of whichever has the most. No when none
    /// waits.
    fn close_idle(&mut self, of: Option<IpAddr>) -> bool {
        let idle = self.open.iter().filter(|(_, open)| of.is_none_or(|peer| open.peer == peer));
        let idle = idle.filter_map(|(id, open)| open.waits().map(|since| (*id, open.peer, since)));
        let worst = idle.max_by_key(|(_, peer, since)| (self.connections_of(*peer), std::cmp::Reverse(*since)));
        let Some((id, ..)) = worst else { return false };
        if let Some(open) = self.remove(id) {
            open.close.notify_one();
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        if let Some(peer) = self.peers.get_mut(&open.peer) {
            peer.connections -= 1;
            if peer.connections == 0 {
                self.peers.remove(&open.peer);
            }
        }
        Some(open)
    }
}

impl Open {
    /// The turn since which nothing but another request is waited for.
    fn waits(&self) -> Option<u64> {
        self.idle.filter(|_| !self.unsent)
    }
}

impl Connection {
    /// Says whether bytes wait for the client to take them.
    pub(super) fn unsent(&self, unsent: bool) {
        if let Some(open) = self.all.state().open.get_mut(&self.id) {
            open.unsent = unsent;
        }
        self.all.room.notify_one();
    }

    /// Ends when the connection is to make room for another one.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Says that the head of a request has arrived.
    pub(super) fn arrived(self: &Arc<Self>) -> Arrived {
        if let Some(open) = self.all.state().open.get_mut(&self.id) {
            open.idle = None;
        }
        Arrived { connection: Arc::clone(self), slots: None }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.state().remove(self.id);
        self.all.room.notify_one();
    }
}

impl Arrived {
    /// Waits for a slot. No when there is none for as long as a client is given for a head.
    pub(super) async fn slot(&mut self) -> bool {
        let (own, all) = (Arc::clone(&self.connection.slots), Arc::clone(&self.connection.all.slots));
        let both = async { Some((own.acquire_owned().await.ok()?, all.acquire_owned().await.ok()?)) };
        self.slots = tokio::time::timeout(self.connection.all.limits.head, both).await.ok().flatten();
        self.slots.is_some()
    }

    /// The body of the answer, with which the request ends.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Body::new(Sent { body, _arrived: self })
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        let all = &self.connection.all;
        let mut state = all.state();
        let turn = state.next_turn();
        if let Some(open) = state.open.get_mut(&self.connection.id) {
            open.idle = Some(turn);
        }
        drop(state);
        all.room.notify_one();
    }
}

/// A body that keeps a request going until it is dropped.
#[derive(Debug)]
struct Sent {
    body: Body,
    _arrived: Arrived,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peers(connections: usize, requests: usize) -> Arc<Peers> {
        Peers::new(Limits { connections, requests, head: Duration::from_millis(20), ..Limits::default() })
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn the_connection_that_waits_longest_makes_room_within_its_peer() {
        let peers = peers(8, 8);
        let mut mine: Vec<_> = (0..4).map(|_| peers.admit(address(1)).unwrap()).collect();
        let other = peers.admit(address(2)).unwrap();
        let busy = mine[0].arrived();
        for round in 0..100 {
            let more = peers.admit(address(1)).unwrap();
            // The first is busy, so the one after it has waited longest.
            tokio::time::timeout(Duration::from_secs(5), mine[1].closed()).await.unwrap();
            drop(mine.remove(1));
            mine.push(more);
            assert_eq!(peers.state().open.len(), 5, "{round}");
        }
        // Nor is one that still takes an answer.
        mine[1].unsent(true);
        let more = peers.admit(address(1)).unwrap();
        tokio::time::timeout(Duration::from_secs(5), mine[2].closed()).await.unwrap();
        drop(mine.remove(2));
        mine.push(more);
        mine[1].unsent(false);
        let still = tokio::time::timeout(Duration::from_millis(5), other.closed()).await;
        assert!(still.is_err(), "nobody else's is closed");
        drop(busy);
        let all_busy: Vec<_> = mine.iter().map(Connection::arrived).collect();
        assert!(peers.admit(address(1)).is_none());
        let third = peers.admit(address(3)).unwrap();
        drop((all_busy, mine, other, third));
        assert!(peers.state().open.is_empty() && peers.state().peers.is_empty());
    }

    #[tokio::test]
    async fn a_peer_has_half_of_the_slots() {
        let peers = peers(100, 4);
        let connect = |last| peers.admit(address(last)).unwrap();
        let mut held = Vec::new();
        for (last, gets) in [(1, true), (1, true), (1, false), (2, true), (2, true), (3, false)] {
            let mut arrived = connect(last).arrived();
            assert_eq!(arrived.slot().await, gets, "{last}");
            held.push(arrived);
        }
        held.remove(0);
        let mut third = connect(3).arrived();
        assert!(third.slot().await);
    }

    #[tokio::test]
    async fn while_all_are_busy_others_wait() {
        let peers = peers(1, 1);
        let first = peers.admit(address(1)).unwrap();
        peers.room().await;
        let busy = first.arrived();
        assert!(tokio::time::timeout(Duration::from_millis(5), peers.room()).await.is_err());
        let gone = async { drop((busy, first)) };
        tokio::join!(peers.room(), gone);
        peers.admit(address(2)).unwrap();
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let peer = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8:0:0:ffff::2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), address(1));
    }
}
