//! Looking at the signatures of versions (docs/format.md section 15).

use std::sync::Arc;

use futures::future::join;
use futures::{Stream, stream};

use crate::format::{FormatError, Record, RefKind, RefName, Status, Trust, Verdict, VersionId, judge, layout};
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
        Err(error) => {
            let verdict = Verdict { status: Status::Bad, signer: None, key: None, note: Some(error.to_string()) };
            Ok(Checked { version: id, record: None, verdict })
        }
    }
}

/// A version and those before it, newest first. A version is read when it is asked for and not before.
///
/// The stream ends after a version whose record cannot be read, which is bad, as nothing says what came before it. It
/// ends with an error when a version is missing: [`RepoError::Corrupt`] for a parent, [`RepoError::NoSuchVersion`] for
/// `start` itself.
pub fn check_history(
    store: Arc<dyn Store>,
    start: VersionId,
    trust: Arc<Trust>,
) -> impl Stream<Item = Result<Checked, RepoError>> + Send + 'static {
    stream::try_unfold((Walk::new(start), None), move |(mut walk, previous)| {
        let (store, trust) = (Arc::clone(&store), Arc::clone(&trust));
        async move {
            // Only now, so that a circle does not take the version before it away.
            if let Some(parent) = previous
                && !walk.to(parent)?
            {
                return Ok(None);
            }
            let checked = check_version(store.as_ref(), walk.at, &trust).await.map_err(|error| walk.missing(error))?;
            let parent = checked.record.as_ref().and_then(Record::parent);
            Ok(Some((checked, (walk, Some(parent)))))
        }
    })
}

/// Whether a ref that held `before` may hold `now`: a tag never moves, and a branch moves forward only (docs/format.md
/// section 8). Reads one record after the other, ten thousand at the most.
///
/// # Errors
/// [`RepoError::Corrupt`] where the history is damaged; those of the store.
pub async fn moved_forward(
    store: &dyn Store,
    reference: &RefName,
    before: VersionId,
    now: VersionId,
) -> Result<bool, RepoError> {
    if now == before || reference.kind() == RefKind::Tag {
        return Ok(now == before);
    }
    let mut walk = Walk::new(now);
    for _ in 0..FURTHEST {
        let record = walk.record(store).await?;
        if !walk.to(record.parent())? {
            return Ok(false);
        }
        if walk.at == before {
            return Ok(true);
        }
    }
    Ok(false)
}
