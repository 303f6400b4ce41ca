//! Moving a branch version by version, for a host that takes no more at a time: one that demands of each version that its
//! parent is what the branch holds (docs/format.md section 14).

use crate::format::{Code, VersionId};
use crate::store::{Store, StoreError};

use super::ahead::{Ahead, Source};
use super::error::RepoError;
use super::read::read_mark;
use super::resolve::Walk;

/// Whether a host refused a move because the version is no child of what the branch holds: 409 with that code, or with
/// none, as the reason of a host is its own. A host that refuses the version itself gives another code.
pub(super) fn are_asked_for(error: &StoreError) -> bool {
    let asks = |code: &Option<String>| code.as_deref().is_none_or(|code| code == Code::Conflict.as_str());
    matches!(error, StoreError::Rejected { status: 409, code, .. } if asks(code))
}

/// The versions to move a branch to, one after the other, from `held` to `new`: those between them, but for what has been
/// taken away, and `new`. Nothing when the way is one step, or does not lead there. Reads two objects a version.
///
/// # Errors
/// [`RepoError::Corrupt`] for a history with a gap or a circle, and those of the store.
pub(super) async fn between(
    store: &dyn Store,
    held: Option<VersionId>,
    new: VersionId,
) -> Result<Vec<VersionId>, RepoError> {
    let (mut walk, mut ahead) = (Walk::new(new), Ahead::new(Source::Borrowed(store)));
    let mut steps = vec![new];
    loop {
        let record = ahead.record(walk.at, usize::MAX).await.map_err(|error| walk.missing(error))?;
        if !walk.to(record.parent())? {
            // A branch that is new begins with the first version.
            if held.is_some() {
                return Ok(Vec::new());
            }
            break;
        }
        if Some(walk.at) == held {
            break;
        }
        if read_mark(store, walk.at).await?.is_none() {
            steps.push(walk.at);
        }
    }
    steps.reverse();
    Ok(if steps.len() > 1 { steps } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_steps() {
        for (status, code, asks) in [
            (409, Some("FDL-CONFLICT"), true),
            (409, None, true),
            (409, Some("FDL-CORRUPT"), false),
            (409, Some("FDL-UNTRUSTED"), false),
            (400, None, false),
            (413, Some("FDL-CONFLICT"), false),
        ] {
            let (key, reason, code) = ("refs/heads/main".to_owned(), "no".to_owned(), code.map(str::to_owned));
            assert_eq!(are_asked_for(&StoreError::Rejected { key, status, code, reason }), asks, "{status}");
        }
        assert!(!are_asked_for(&StoreError::NotFound { key: "k".to_owned() }));
    }
}
