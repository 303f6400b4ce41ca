//! Reading objects in pieces, so that memory stays flat however many clients read however slowly.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Store;
use crate::store::StoreError;

/// A piece while there is memory to spare: large, because each is a request to the store.
const LARGE: u64 = 2 << 20;
/// A piece when there is none.
const SMALL: u64 = 128 << 10;
/// How many large pieces may be in memory at the same time: 64 MiB.
const LARGE_PIECES: usize = 32;

/// The memory for pieces that are on their way to clients.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_PIECES)))
    }
}

/// A large piece; its memory is free again when the last of it has been sent.
struct Piece {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Budget {
    /// The bytes of a range as the body of an answer. The first piece has been read when this returns.
    ///
    /// # Errors
    /// When the first piece cannot be read. If a later one cannot, `cut` is told, and the connection ends before the body
    /// does.
    pub(super) async fn body(
        &self,
        store: &Arc<dyn Store>,
        key: &str,
        range: Range<u64>,
        cut: impl Fn(&StoreError) + Send + 'static,
    ) -> Result<Body, StoreError> {
        let first = self.piece(store.as_ref(), key, range.clone()).await?;
        let at = range.start.saturating_add(first.len() as u64);
        if at >= range.end {
            return Ok(Body::from(first));
        }
        let rest = (self.clone(), Arc::clone(store), key.to_owned(), at..range.end);
        let rest = stream::try_unfold(rest, |(budget, store, key, range)| async move {
            if range.is_empty() {
                return Ok(None);
            }
            let piece = budget.piece(store.as_ref(), &key, range.clone()).await?;
            let after = range.start.saturating_add(piece.len() as u64)..range.end;
            Ok::<_, StoreError>(Some((piece, (budget, store, key, after))))
        });
        let rest = rest.inspect_err(move |error| cut(error));
        Ok(Body::from_stream(stream::once(async { Ok(first) }).chain(rest)))
    }

    /// The first bytes of a range.
    async fn piece(&self, store: &dyn Store, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let length = range.end.saturating_sub(range.start);
        if length == 0 {
            return Ok(Bytes::new());
        }
        let permit = match length > SMALL {
            true => Arc::clone(&self.0).try_acquire_owned().ok(),
            false => None,
        };
        let length = length.min(if permit.is_some() { LARGE } else { SMALL });
        let bytes = store.get_range(key, range.start..range.start.saturating_add(length)).await?;
        if bytes.len() as u64 != length {
            let source = "it became shorter while it was read".into();
            return Err(StoreError::Failed { key: key.to_owned(), action: "read", source });
        }
        Ok(match permit {
            Some(permit) => Bytes::from_owner(Piece { bytes, _permit: permit }),
            None => bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn pieces_add_up_and_their_memory_is_given_back() {
        let memory = MemoryStore::new();
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        memory.put("a", crate::store::Body::Bytes(bytes.clone().into())).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(memory);
        let budget = Budget(Arc::new(Semaphore::new(1)));
        for range in [0..5_000_000, 0..10, 7..3_000_000, 4_999_999..5_000_000, 3..3] {
            let body = budget.body(&store, "a", range.clone(), |_| {}).await.unwrap();
            // A second reader finds no memory to spare, and is served all the same.
            let other = budget.body(&store, "a", range.clone(), |_| {}).await.unwrap();
            let at = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            for body in [other, body] {
                assert_eq!(body.collect().await.unwrap().to_bytes(), bytes[at.clone()]);
            }
            assert_eq!(budget.0.available_permits(), 1);
        }
        assert!(budget.body(&store, "a", 0..5_000_001, |_| {}).await.unwrap().collect().await.is_err());
        assert!(budget.body(&store, "b", 0..1, |_| {}).await.is_err());
    }
}
