//! What all requests of a host share.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore};

use crate::format::{DataDir, Settings, layout};
use crate::store::StoreError;

use super::Store;
use super::access::Access;
use super::answer::Refusal;
use super::budget::Budget;
use super::counters::Counters;
use super::key_locks::KeyLocks;
use super::log;
use super::options::HostOptions;

/// How many pushes wait for their check at the same time.
const WAITING: usize = 16;

/// What all requests of a host share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) options: HostOptions,
    pub(super) access: Access,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: Budget,
    pub(super) locks: KeyLocks,
    /// The places of checks.
    checks: Arc<Semaphore>,
    /// The places of pushes that wait for one.
    pushes: Semaphore,
    /// Held for reading by whatever must not be cut short when its client goes away or the host stops.
    pub(super) steps: Arc<RwLock<()>>,
    data_dir: OnceLock<DataDir>,
}

impl Shared {
    pub(super) fn new(store: Arc<dyn Store>, options: HostOptions) -> Self {
        let checks = options.limits.checks.max(1);
        let access = Access { read: options.read_token.clone(), write: options.write_token.clone() };
        Self {
            store,
            options,
            access,
            counters: Arc::default(),
            budget: Budget::default(),
            locks: KeyLocks::default(),
            checks: Arc::new(Semaphore::new(checks)),
            pushes: Semaphore::new(WAITING),
            steps: Arc::default(),
            data_dir: OnceLock::new(),
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The data folder that fdl.json names. Read once: it never changes.
    ///
    /// # Errors
    /// 404 while there is no repository.
    pub(super) async fn data_dir(&self) -> Result<&DataDir, Refusal> {
        if let Some(data_dir) = self.data_dir.get() {
            return Ok(data_dir);
        }
        let object = match self.store.get(layout::FDL_JSON).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Err(Refusal::no_repository()),
            Err(error) => return Err(Refusal::unread(&error)),
        };
        let settings = Settings::parse(&object.bytes).map_err(|error| Refusal::repository(error.into()))?;
        Ok(self.data_dir.get_or_init(|| settings.data_dir))
    }

    /// The folder for bodies and copies of catalogs. Where it is the repository's own, files in it have names that no listing shows and that
    /// the store sweeps, should this process be killed.
    pub(super) fn spool(&self) -> PathBuf {
        let own = self.options.spool.clone();
        let root = || self.store.local_root().filter(|root| root.is_dir()).map(std::path::Path::to_owned);
        own.or_else(root).unwrap_or_else(std::env::temp_dir)
    }

    /// A place among the checks, which whatever works for a check holds until it has ended.
    ///
    /// # Errors
    /// 503 when there is none for some time, or when many wait already: each of them has a slot that others need.
    pub(super) async fn check_place(&self) -> Result<Arc<OwnedSemaphorePermit>, Refusal> {
        let busy = || Refusal::busy("the host is checking other pushes");
        let _waiting = self.pushes.try_acquire().map_err(|_| busy())?;
        let place = Arc::clone(&self.checks).acquire_owned();
        match tokio::time::timeout(self.options.limits.check_wait, place).await {
            Ok(Ok(place)) => Ok(Arc::new(place)),
            _ => Err(busy()),
        }
    }

    /// Tells the log of a request that was not done. Returns the ID that the client gets too.
    pub(super) fn log(&self, about: fmt::Arguments<'_>) -> String {
        let id = log::new_id();
        if let Some(line) = &self.options.log {
            log::write(line.as_ref(), self.options.clock.as_ref(), &id, about);
        }
        id
    }

    /// Carries something out to its end, even if the client goes away meanwhile.
    pub(super) async fn to_the_end<T: Send + 'static>(
        &self,
        step: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        let held = Arc::clone(&self.steps).read_owned().await;
        let step = tokio::spawn(async move {
            let _held = held;
            step.await
        });
        step.await.unwrap_or_else(|error| Err(Refusal::internal(error)))
    }
}
