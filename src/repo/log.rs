//! The history of a version.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join4;
use futures::{Stream, stream};

use crate::format::{Dataset, Expired, Reason, Record, RefName, Totals, VersionId, layout};
use crate::store::{Store, StoreError};

use super::error::RepoError;
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

/// A version and those before it, newest first. A version is read when it is asked for and not before; expired ones stay
/// in the log.
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
    stream::try_unfold((Walk::new(start), None, left), move |(mut walk, previous, left)| {
        let (store, options) = (Arc::clone(&store), Arc::clone(&options));
        async move {
            let Some(left) = left.checked_sub(1) else {
                return Ok(None);
            };
            // Only now, so that a circle does not take the entry before it away.
            if let Some(Previous(parent)) = previous
                && !walk.to(parent)?
            {
                return Ok(None);
            }
            let entry = entry(store.as_ref(), &walk, &options).await?;
            let previous = Some(Previous(entry.record.parent()));
            Ok(Some((entry, (walk, previous, left))))
        }
    })
}

/// The parent of the entry before.
struct Previous(Option<VersionId>);

async fn entry(store: &dyn Store, walk: &Walk, options: &LogOptions) -> Result<LogEntry, RepoError> {
    let dataset = async {
        match options.totals {
            true => get_sound(store, &layout::dataset(walk.at)).await,
            false => Ok(None),
        }
    };
    let signed = async {
        match store.head(&layout::signature(walk.at)).await {
            // Something is there; fdl_verify tells what.
            Ok(_) | Err(StoreError::NotRegular { .. }) => Ok(true),
            // Where listing is not allowed, S3 denies access to keys that are not there.
            Err(StoreError::NotFound { .. } | StoreError::Permission { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let (record, mark, dataset, signed) = join4(walk.record(store), read_mark(store, walk.at), dataset, signed).await;
    let record = record?;
    let dataset = verified(dataset?, record.dataset_sha256);
    Ok(LogEntry {
        state: State::of(mark?),
        signed: signed?,
        refs: options.refs.get(&walk.at).cloned().unwrap_or_default(),
        totals: dataset.and_then(|bytes| Dataset::parse(&bytes).ok()).map(|dataset| dataset.totals),
        record,
    })
}
