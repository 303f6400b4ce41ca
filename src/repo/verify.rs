//! Looking at the signatures of versions (docs/format.md section 15).

use std::sync::Arc;

use futures::future::join;
use futures::{Stream, stream};

use crate::format::{FormatError, Record, RefKind, Status, Trust, Verdict, VersionId, judge, layout};
use crate::store::{Object, Store, StoreError};

use super::error::RepoError;
use super::read::get_optional;
use super::resolve::Walk;

/// How far back the version that was verified last is looked for.
const FURTHEST: usize = 10_000;

/// A version whose signature was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The version.
    pub version: VersionId,
    /// Its record, as it was signed; nothing when it cannot be read.
    pub record: Option<Record>,
    /// What came of it.
    pub verdict: Verdict,
}

/// Looks at the signature of one version. Two object reads at the same time.
///
/// A damaged record is a verdict and no error: it is not what was signed.
///
/// # Errors
/// [`RepoError::NoSuchVersion`], [`RepoError::UnsupportedVersion`], those of the store.
pub async fn check_version(store: &dyn Store, id: VersionId, trust: &Trust) -> Result<Checked, RepoError> {
    let key = layout::signature(id);
    let (record, signature) = join(get_optional(store, &layout::version_json(id)), get_optional(store, &key)).await;
    let Some(Object { bytes, .. }) = record? else {
        return Err(RepoError::NoSuchVersion { id });
    };
    let signature = match signature {
        Ok(signature) => signature.map(|object| object.bytes),
        // Where listing is not allowed, S3 denies access to keys that are not there.
        Err(StoreError::Permission { .. }) => None,
        // No signature is so long, and none is a link: a bad one.
        Err(StoreError::TooLarge { .. } | StoreError::NotRegular { .. }) => Some(bytes::Bytes::new()),
        Err(error) => return Err(error.into()),
    };
    check_bytes(id, &bytes, signature.as_deref(), trust)
}

/// Looks at the signature of a version whose files are at hand.
///
/// # Errors
/// [`RepoError::UnsupportedVersion`].
pub fn check_bytes(
    id: VersionId,
    record: &[u8],
    signature: Option<&[u8]>,
    trust: &Trust,
) -> Result<Checked, RepoError> {
    match Record::parse(id, record) {
        Ok(parsed) => {
            let verdict = judge(record, &parsed, signature, trust);
            Ok(Checked { version: id, record: Some(parsed), verdict })
        }
        Err(error @ FormatError::UnsupportedVersion { .. }) => Err(error.into()),
        Err(error) => Ok(damaged(id, error.to_string())),
    }
}

/// A version and those before it, newest first. A version is read when it is asked for and not before.
///
/// The stream ends after a version that is bad and without a record, as nothing says what came before it: one whose record
/// cannot be read or is missing, or one that the history has led to already. It ends with an error when `start` itself is
/// missing ([`RepoError::NoSuchVersion`]), and with those of [`check_version`].
pub fn check_history(
    store: Arc<dyn Store>,
    start: VersionId,
    trust: Arc<Trust>,
) -> impl Stream<Item = Result<Checked, RepoError>> + Send + 'static {
    stream::try_unfold((Walk::new(start), None), move |(mut walk, previous): (Walk, Option<Checked>)| {
        let (store, trust) = (Arc::clone(&store), Arc::clone(&trust));
        async move {
            // Only now, so that a circle does not take the version before it away.
            let checked = match previous {
                None => Some(check_version(store.as_ref(), start, &trust).await?),
                Some(child) => next(store.as_ref(), &mut walk, &child, &trust).await?,
            };
            Ok(checked.map(|checked| (checked.clone(), (walk, Some(checked)))))
        }
    })
}

/// The parent of the version where the walk stands; nothing when there is none.
async fn next(
    store: &dyn Store,
    walk: &mut Walk,
    child: &Checked,
    trust: &Trust,
) -> Result<Option<Checked>, RepoError> {
    let Some(parent) = child.record.as_ref().and_then(Record::parent) else {
        return Ok(None);
    };
    let checked = match walk.to(Some(parent)) {
        Ok(_) => check_version(store, parent, trust).await.map_err(|error| walk.missing(error)),
        Err(error) => Err(error),
    };
    match checked {
        Err(error @ RepoError::Corrupt { .. }) => Ok(Some(damaged(parent, error.to_string()))),
        checked => checked.map(Some),
    }
}

fn damaged(version: VersionId, why: String) -> Checked {
    let verdict = Verdict { status: Status::Bad, signer: None, key: None, note: Some(why) };
    Checked { version, record: None, verdict }
}

/// Where a ref went from a version that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Movement {
    /// It holds it still, or leads to it.
    Forward,
    /// It leads elsewhere.
    Back,
    /// What it leads to cannot be told, since this version, on the way, is not good.
    Unproved(Box<Checked>),
    /// It was not met within this many versions.
    TooFar(usize),
}

/// Whether a ref that held `before`, which was good then, may hold `now`: a tag never moves, and a branch moves forward
/// only (docs/format.md section 8). Reads one record after the other from `now` on, ten thousand at the most.
///
/// The name of a parent counts in a record that is good. In another, which anybody may have written, it counts only
/// where `now` was made after `before` by their IDs, the first of which its own signature covers: a forger could then
/// not have taken the reader back.
///
/// # Errors
/// [`RepoError::UnsupportedVersion`], those of the store.
pub async fn moved(
    store: &dyn Store,
    kind: RefKind,
    before: VersionId,
    now: &Checked,
    trust: &Trust,
) -> Result<Movement, RepoError> {
    if now.version == before {
        return Ok(Movement::Forward);
    }
    if kind == RefKind::Tag {
        return Ok(Movement::Back);
    }
    let (mut walk, mut at, mut doubtful) = (Walk::new(now.version), now.clone(), None);
    for _ in 0..FURTHEST {
        if at.verdict.status != Status::Good && doubtful.is_none() {
            doubtful = Some(at.clone());
        }
        let Some(record) = &at.record else {
            return Ok(Movement::Unproved(Box::new(doubtful.unwrap_or(at))));
        };
        if record.parent() == Some(before) {
            return Ok(match doubtful {
                Some(doubtful) if !is_later(now.version, before) => Movement::Unproved(Box::new(doubtful)),
                _ => Movement::Forward,
            });
        }
        match next(store, &mut walk, &at, trust).await? {
            Some(parent) => at = parent,
            None => return Ok(Movement::Back),
        }
    }
    Ok(Movement::TooFar(FURTHEST))
}

/// Whether an ID says that it was made after another. Only those of UUIDs of version 7 do.
fn is_later(id: VersionId, than: VersionId) -> bool {
    let tells = |id: VersionId| id.uuid().get_version_num() == 7;
    tells(id) && tells(than) && id > than
}
