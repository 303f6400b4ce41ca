//! The history of a version.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::channel::oneshot;
use futures::future::join4;
use futures::{Stream, StreamExt, stream};

use crate::format::{Dataset, Expired, Reason, Record, RefName, Totals, VersionId, layout};
use crate::store::{Store, StoreError};

use super::CONCURRENT;
use super::ahead::{Ahead, Source};
use super::error::RepoError;
use super::folders::Folder;
use super::read::{get_sound, read_mark, verified};
use super::resolve::Walk;

/// What a log is to tell.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// The most entries; all when none is given.
    pub max_count: Option<usize>,
    /// Whether each entry tells its totals, from dataset.json.
    pub totals: bool,
    /// The refs that hold each version (see [`Refs::by_version`](super::Refs::by_version)).
    pub refs: BTreeMap<VersionId, Vec<RefName>>,
}

/// A version in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its record.
    pub record: Record,
    /// Whether it can be read.
    pub state: State,
    /// The refs that hold it.
    pub refs: Vec<RefName>,
    /// Whether a signature lies beside its record. Whose it is, and whether it is good, is not looked at.
    pub signed: bool,
    /// Its totals, when asked for and dataset.json is there and unharmed.
    pub totals: Option<Totals>,
}

/// Whether a version can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It can.
    Live,
    /// It is past retention, or marked for a reason that is not known.
    Expired(Expired),
    /// It held data that must not be published.
    Withdrawn(Expired),
}

impl State {
    /// The state of a version with this mark.
    #[must_use]
    pub fn of(mark: Option<Expired>) -> Self {
        match mark {
            None => Self::Live,
            Some(mark) if mark.reason == Some(Reason::Withdrawn) => Self::Withdrawn(mark),
            Some(mark) => Self::Expired(mark),
        }
    }

    /// The mark, if there is one.
    #[must_use]
    pub fn mark(&self) -> Option<&Expired> {
        match self {
            Self::Live => None,
            Self::Expired(mark) | Self::Withdrawn(mark) => Some(mark),
        }
    }
}

/// A version and those before it, newest first; expired ones stay in the log. The next versions are read while the ones
/// before are asked for, a few at a time: no more than `max_count` in all, and where fewer are asked for, some are read that
/// nobody asks for.
///
/// A store that lists says after the first few which versions there are, and what lies beside their records; of what is
/// not there nothing is asked. Elsewhere a history of `n` versions takes some `n` round trips, as only a record names the one before.
///
/// The stream ends with an error when a version is damaged: [`RepoError::Corrupt`] for a parent that is missing or a
/// chain that leads in a circle, [`RepoError::NoSuchVersion`] when `start` itself is missing.
pub fn log(
    store: Arc<dyn Store>,
    start: VersionId,
    options: LogOptions,
) -> impl Stream<Item = Result<LogEntry, RepoError>> + Send + 'static {
    let left = options.max_count.unwrap_or(usize::MAX);
    let options = Arc::new(options);
    let ahead = Ahead::new(Source::Shared(Arc::clone(&store)));
    let walking = Walking { walk: Walk::new(start), ahead, left, record: None, ended: left == 0 };
    stream::unfold(walking, |mut walking| async move { walking.next().await.map(|found| (found, walking)) })
        .map(move |found| {
            let (store, options) = (Arc::clone(&store), Arc::clone(&options));
            async move { entry(store.as_ref(), found?, &options).await }
        })
        .buffered(CONCURRENT)
}

/// A walk that gives a version as soon as it knows of it, and its record when it goes on.
struct Walking {
    walk: Walk,
    ahead: Ahead<'static>,
    left: usize,
    /// Whoever waits for the record of the version where the walk stands.
    record: Option<oneshot::Sender<Result<Record, RepoError>>>,
    ended: bool,
}

/// A version, its record about to come.
struct Found {
    id: VersionId,
    record: oneshot::Receiver<Result<Record, RepoError>>,
    folder: Option<Beside>,
}

/// What lies beside a record.
#[derive(Debug, Clone, Copy)]
struct Beside {
    mark: bool,
    dataset: bool,
    signature: bool,
}

impl Beside {
    fn in_folder(folder: &Folder) -> Self {
        Self {
            mark: folder.is_marked(),
            dataset: folder.has(layout::DATASET_JSON),
            signature: folder.has(layout::SIGNATURE),
        }
    }
}

impl Walking {
    async fn next(&mut self) -> Option<Result<Found, RepoError>> {
        if self.ended {
            return None;
        }
        if let Some(waiting) = self.record.take() {
            let read = self.ahead.record(self.walk.at, self.left.saturating_add(1)).await;
            let read = read.map_err(|error| self.walk.missing(error));
            let parent = read.as_ref().ok().and_then(Record::parent);
            // Nobody waits when the log was dropped.
            drop(waiting.send(read));
            match self.walk.to(parent.filter(|_| self.left > 0)) {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    return None;
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        self.left = self.left.saturating_sub(1);
        let (sender, record) = oneshot::channel();
        self.record = Some(sender);
        let id = self.walk.at;
        Some(Ok(Found { id, record, folder: self.ahead.folder(id).map(Beside::in_folder) }))
    }
}

async fn entry(store: &dyn Store, found: Found, options: &LogOptions) -> Result<LogEntry, RepoError> {
    let Found { id, record, folder } = found;
    let (mark, dataset, signature) =
        folder.map_or((true, true, None), |beside| (beside.mark, beside.dataset, Some(beside.signature)));
    let mark = async {
        match mark {
            true => read_mark(store, id).await,
            false => Ok(None),
        }
    };
    let dataset = async {
        match options.totals && dataset {
            true => get_sound(store, &layout::dataset(id)).await,
            false => Ok(None),
        }
    };
    let signed = async {
        if let Some(there) = signature {
            return Ok(there);
        }
        match store.head(&layout::signature(id)).await {
            // Something is there; fdl_verify tells what.
            Ok(_) | Err(StoreError::NotRegular { .. }) => Ok(true),
            // Where listing is not allowed, S3 denies access to keys that are not there.
            Err(StoreError::NotFound { .. } | StoreError::Permission { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let (record, mark, dataset, signed) = join4(record, mark, dataset, signed).await;
    // The walk sends it before it ends.
    let record = record.unwrap_or(Err(RepoError::NoSuchVersion { id }))?;
    let dataset = verified(dataset?, record.dataset_sha256);
    Ok(LogEntry {
        state: State::of(mark?),
        signed: signed?,
        refs: options.refs.get(&id).cloned().unwrap_or_default(),
        totals: dataset.and_then(|bytes| Dataset::parse(&bytes).ok()).map(|dataset| dataset.totals),
        record,
    })
}
