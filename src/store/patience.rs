//! How long to go on with a store that fails: for whoever can tell what became of a write, and so may ask once more.

use std::time::Instant;

use super::{Retry, Store};

/// How often a request to a store that is not behind a network is made at most.
const TRIES: u32 = 4;

/// What is left of the time and the tries that something may take. It begins when it is made.
#[derive(Debug)]
pub struct Patience {
    retry: Option<Retry>,
    began: Instant,
    tries: u32,
}

impl Patience {
    /// As much as the store asks for ([`Store::retry`]).
    #[must_use]
    pub fn with(store: &dyn Store) -> Self {
        Self { retry: store.retry(), began: Instant::now(), tries: 1 }
    }

    /// Waits before the next try. No when there is to be none.
    pub async fn wait(&mut self) -> bool {
        let tries = self.tries;
        self.tries = tries.saturating_add(1);
        let Some(retry) = &self.retry else {
            return tries < TRIES;
        };
        match retry.wait_after(tries, self.began.elapsed(), None, fastrand::f64()) {
            Some(wait) => {
                tokio::time::sleep(wait).await;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn a_store_in_memory_is_asked_a_few_times_at_once() {
        let mut patience = Patience::with(&MemoryStore::new());
        let waited: Vec<bool> = (0..4).map(|_| futures::executor::block_on(patience.wait())).collect();
        assert_eq!(waited, [true, true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_behind_a_network_is_asked_as_its_rules_say() {
        let retry = Retry { tries: 3, first_wait: Duration::from_secs(1), ..Retry::default() };
        let mut patience = Patience { retry: Some(retry), began: Instant::now(), tries: 1 };
        let began = tokio::time::Instant::now();
        assert!(patience.wait().await && patience.wait().await && !patience.wait().await);
        let waited = began.elapsed().as_secs_f64();
        assert!((1.5..3.1).contains(&waited), "{waited}");
    }
}
