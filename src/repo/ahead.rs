//! Reading the records of a history ahead of the walk, where the store says which versions there are.
//!
//! Only a record tells the parent of its version, so a walk costs one round trip a version. But IDs begin with the time they
//! were made at, and so a version's history is among those that are older: they are read side by side, the next ones first.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;

use crate::format::{Record, VersionId};
use crate::store::Store;

use super::CONCURRENT;
use super::error::RepoError;
use super::folders::{Folder, Folders, list_folders};
use super::read::read_record;

/// How many records are read before versions are listed: most walks end sooner.
const BEFORE_LISTING: usize = 2;
/// How many more must be wanted.
const WORTH_LISTING: usize = 4;

/// What came of reading a record.
type Read = (VersionId, Result<Record, RepoError>);

/// The records of a history, one after the other, newest first.
pub(super) struct Ahead<'a> {
    source: Source<'a>,
    listing: Listing<'a>,
    /// How many records were asked for.
    asked: usize,
    /// The versions that may be asked for and are not begun.
    waiting: BTreeSet<VersionId>,
    under_way: FuturesUnordered<BoxFuture<'a, Read>>,
    begun: BTreeSet<VersionId>,
    read: BTreeMap<VersionId, Result<Record, RepoError>>,
}

/// Where records are read from.
#[derive(Clone)]
pub(super) enum Source<'a> {
    /// For as long as somebody else keeps it.
    Borrowed(&'a dyn Store),
    /// For as long as it takes.
    Shared(Arc<dyn Store>),
}

/// What is known of the versions there are.
enum Listing<'a> {
    /// It was not asked for yet.
    Later,
    UnderWay(BoxFuture<'a, Option<Folders>>),
    Done(Folders),
    /// The store cannot list, or has all files at hand.
    Never,
}

impl<'a> Source<'a> {
    fn is_local(&self) -> bool {
        match self {
            Self::Borrowed(store) => store.local_root().is_some(),
            Self::Shared(store) => store.local_root().is_some(),
        }
    }

    fn list(&self) -> BoxFuture<'a, Option<Folders>> {
        match self.clone() {
            Self::Borrowed(store) => Box::pin(async move { list_folders(store).await.ok() }),
            Self::Shared(store) => Box::pin(async move { list_folders(store.as_ref()).await.ok() }),
        }
    }

    fn fetch(&self, id: VersionId) -> BoxFuture<'a, Read> {
        match self.clone() {
            Self::Borrowed(store) => Box::pin(async move { (id, read_record(store, id).await) }),
            Self::Shared(store) => Box::pin(async move { (id, read_record(store.as_ref(), id).await) }),
        }
    }
}

impl<'a> Ahead<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        let listing = if source.is_local() { Listing::Never } else { Listing::Later };
        Self {
            source,
            listing,
            asked: 0,
            waiting: BTreeSet::new(),
            under_way: FuturesUnordered::new(),
            begun: BTreeSet::new(),
            read: BTreeMap::new(),
        }
    }

    /// The record of a version, of which its parents may be asked for next: `wanted` in all. Some of them are read meanwhile.
    pub(super) async fn record(&mut self, id: VersionId, wanted: usize) -> Result<Record, RepoError> {
        if matches!(self.listing, Listing::Later) && self.asked >= BEFORE_LISTING && wanted >= WORTH_LISTING {
            self.listing = Listing::UnderWay(self.source.list());
        }
        self.asked += 1;
        loop {
            let mut listing = match std::mem::replace(&mut self.listing, Listing::Never) {
                Listing::UnderWay(listing) => listing,
                other => {
                    self.listing = other;
                    return self.read(id, wanted).await;
                }
            };
            let read = match select(pin!(self.read(id, wanted)), &mut listing).await {
                Either::Left((read, _)) => Either::Left(read),
                Either::Right((listed, _)) => Either::Right(listed),
            };
            match read {
                Either::Left(read) => {
                    self.listing = Listing::UnderWay(listing);
                    return read;
                }
                Either::Right(Some(folders)) => {
                    self.waiting.extend(folders.complete().map(|(id, _)| id));
                    self.listing = Listing::Done(folders);
                }
                Either::Right(None) => {}
            }
        }
    }

    /// What lies in the folder of a version, where that is known.
    pub(super) fn folder(&self, id: VersionId) -> Option<&Folder> {
        match &self.listing {
            Listing::Done(folders) => folders.by_id.get(&id),
            Listing::Later | Listing::UnderWay(_) | Listing::Never => None,
        }
    }

    /// Nothing is lost when this is dropped: what is under way stays so.
    async fn read(&mut self, id: VersionId, wanted: usize) -> Result<Record, RepoError> {
        loop {
            if let Some(read) = self.read.remove(&id) {
                self.begun.remove(&id);
                return read;
            }
            self.begin(id);
            while self.under_way.len() < CONCURRENT.min(wanted) {
                let Some(next) = self.waiting.range(..id).next_back().copied() else { break };
                self.begin(next);
            }
            if let Some((id, read)) = self.under_way.next().await {
                self.read.insert(id, read);
            }
        }
    }

    fn begin(&mut self, id: VersionId) {
        self.waiting.remove(&id);
        if self.begun.insert(id) {
            self.under_way.push(self.source.fetch(id));
        }
    }
}
