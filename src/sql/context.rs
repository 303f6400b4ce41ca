//! What a command works with: the session's database, a runtime for the stores, the clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Runtime};

use super::Error;
use crate::engine::{Engine, Lease};
use crate::format::{SystemClock, SystemRandom, VersionId, VersionIds};

/// Shared by all commands of one database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    clock: SystemClock,
    ids: VersionIds,
    /// The repository and version of each cached catalog that was attached: a file of the cache does not say.
    attached: Mutex<BTreeMap<PathBuf, (String, VersionId)>>,
}

impl Context {
    /// For the database of `engine`.
    ///
    /// # Errors
    /// None today; what is made once for each database may fail.
    pub fn new(engine: Engine) -> Result<Self, Error> {
        let ids = VersionIds::new(Arc::new(SystemClock), Arc::new(SystemRandom));
        Ok(Self { inner: Arc::new(Inner { engine, clock: SystemClock, ids, attached: Mutex::default() }) })
    }

    /// A connection to the user's database, for the length of a command.
    ///
    /// # Errors
    /// FDL-DUCKDB after the user closed the database.
    pub fn connection(&self) -> Result<Lease<'_>, Error> {
        Ok(self.inner.engine.connection()?)
    }

    /// The clock.
    pub fn clock(&self) -> &SystemClock {
        &self.inner.clock
    }

    /// Where new version IDs come from.
    pub fn ids(&self) -> &VersionIds {
        &self.inner.ids
    }

    /// Remembers which version a cached catalog is.
    pub fn remember_attached(&self, catalog: PathBuf, repository: String, version: VersionId) {
        let mut attached = self.inner.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.insert(catalog, (repository, version));
    }

    /// The repository and version of a cached catalog that was attached.
    pub fn attached_from(&self, catalog: &Path) -> Option<(String, VersionId)> {
        self.inner.attached.lock().unwrap_or_else(PoisonError::into_inner).get(catalog).cloned()
    }

    /// Runs a store's work to its end on the runtime that all databases of the process share.
    ///
    /// # Errors
    /// FDL-DUCKDB when the system gives no threads.
    pub fn block_on<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let runtime = match RUNTIME.get() {
            Some(runtime) => runtime,
            None => {
                let made = Builder::new_multi_thread()
                    .worker_threads(2)
                    .thread_name("fdl-store")
                    .enable_all()
                    .build()
                    .map_err(Error::no_threads)?;
                RUNTIME.get_or_init(|| made)
            }
        };
        Ok(runtime.block_on(work))
    }
}
