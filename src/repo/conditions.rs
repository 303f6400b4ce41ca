//! Whether a store keeps the conditions of writes (docs/format.md section 13). One that does not lets the last of two
//! writers win in silence, so it is refused before anything of it can be lost.

use futures::future::{join, try_join};

use crate::format::{layout, parse_head};
use crate::store::{ConditionalWrite, ETag, Object, Patience, Store, StoreError};

use super::error::RepoError;

/// The conditions of writes that the store ignores, by the names of their headers. Changes nothing: writes that must be
/// refused are tried on HEAD, with the content it has.
///
/// # Errors
/// Those of the store, [`RepoError::Corrupt`] when HEAD is damaged.
pub async fn ignored_conditions(store: &dyn Store) -> Result<Vec<&'static str>, RepoError> {
    let (fdl, head) = try_join(store.get(layout::FDL_JSON), store.get(layout::HEAD)).await?;
    parse_head(&head.bytes)?;
    // The state of another object is well formed and wrong.
    Ok(try_on(store, layout::HEAD, head, Some(fdl.etag)).await?)
}

/// Refuses a store that ignores conditions, by what it does with writes to its HEAD. Gives whether it could be tried: where
/// this caller may not write HEAD, or it cannot be read, nothing is known.
///
/// # Errors
/// [`RepoError::NoConditions`].
pub async fn require_conditions(store: &dyn Store) -> Result<bool, RepoError> {
    // The folder store compares and writes under a lock of its own.
    if store.local_root().is_some() {
        return Ok(true);
    }
    match ignored_conditions(store).await {
        Ok(ignored) => refuse(store, ignored).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// [`require_conditions`] by another object than HEAD, which must be there.
///
/// # Errors
/// [`RepoError::NoConditions`].
pub(super) async fn require_conditions_at(store: &dyn Store, key: &str) -> Result<(), RepoError> {
    if store.local_root().is_some() {
        return Ok(());
    }
    let Ok(object) = store.get(key).await else {
        return Ok(());
    };
    let wrong = another(&object.etag);
    match try_on(store, key, object, wrong).await {
        Ok(ignored) => refuse(store, ignored),
        Err(_) => Ok(()),
    }
}

fn refuse(store: &dyn Store, ignored: Vec<&'static str>) -> Result<(), RepoError> {
    match ignored.is_empty() {
        true => Ok(()),
        false => Err(RepoError::NoConditions { location: store.location().to_owned(), ignored }),
    }
}

/// Writes an object anew, with the content it has, on conditions that do not hold.
async fn try_on(
    store: &dyn Store,
    key: &str,
    object: Object,
    wrong: Option<ETag>,
) -> Result<Vec<&'static str>, StoreError> {
    let Object { bytes, etag } = object;
    let absent = until_answered(store, async || store.put_if_absent(key, bytes.clone()).await);
    let unchanged = async {
        match &wrong {
            Some(wrong) if *wrong != etag => {
                until_answered(store, async || store.put_if_unchanged(key, bytes.clone(), wrong).await).await
            }
            // It gives all objects the same state.
            Some(_) => Ok(ConditionalWrite::Written),
            None => Ok(ConditionalWrite::Refused),
        }
    };
    let (absent, unchanged) = join(absent, unchanged).await;
    let tried = [("If-None-Match", absent?), ("If-Match", unchanged?)];
    Ok(tried.into_iter().filter(|(_, write)| *write == ConditionalWrite::Written).map(|(name, _)| name).collect())
}

/// A state that looks like this one and is another; none where there is no digit to change.
fn another(etag: &ETag) -> Option<ETag> {
    let (at, digit) = etag.0.char_indices().rev().find(|(_, c)| c.is_ascii_hexdigit())?;
    let other = if digit == '0' { "1" } else { "0" };
    let mut text = etag.0.clone();
    text.replace_range(at..at + 1, other);
    Some(ETag(text))
}

/// The answer to a write that changes nothing, whether or not it is carried out.
async fn until_answered(
    store: &dyn Store,
    write: impl AsyncFn() -> Result<ConditionalWrite, StoreError>,
) -> Result<ConditionalWrite, StoreError> {
    let mut patience = Patience::with(store);
    loop {
        match write().await {
            Err(error) if error.may_have_happened() && patience.wait().await => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_state_is_as_well_formed() {
        for (etag, other) in [("\"0a\"", "\"00\""), ("\"a0\"", "\"a1\""), ("\"5-3\"", "\"5-0\"")] {
            assert_eq!(another(&ETag(etag.to_owned())), Some(ETag(other.to_owned())));
        }
        assert_eq!(another(&ETag("\"xyz\"".to_owned())), None);
    }
}
