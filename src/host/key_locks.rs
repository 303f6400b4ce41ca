//! One writer of an object at a time, within this host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// A lock for each key that is being written.
#[derive(Debug, Default)]
pub(super) struct KeyLocks {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The right to write a key, given back when dropped.
#[derive(Debug)]
pub(super) struct KeyLock<'a> {
    all: &'a KeyLocks,
    key: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    /// Waits until nobody else writes the key.
    pub(super) async fn take(&self, key: &str) -> KeyLock<'_> {
        let lock = Arc::clone(self.all().entry(key.to_owned()).or_default());
        // Made before the wait, so that a request that goes away while it waits leaves nothing behind.
        let mut lock_of_key = KeyLock { all: self, key: key.to_owned(), held: None };
        lock_of_key.held = Some(lock.lock_owned().await);
        lock_of_key
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut all = self.all.all();
        // The map's own reference is the last one: nobody holds the lock or waits for it.
        if all.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_is_left() {
        let locks = KeyLocks::default();
        let first = locks.take("a").await;
        drop(locks.take("b").await);
        let waits = tokio::time::timeout(Duration::from_millis(20), locks.take("a")).await;
        assert!(waits.is_err());
        drop(first);
        drop(locks.take("a").await);
        assert!(locks.all().is_empty());
    }
}
