//! What a command works with: the session's database, a runtime for the stores, the clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Runtime};

use super::Error;
use crate::engine::{Engine, Lease};
use crate::format::{RefName, SystemClock, SystemRandom, VersionId, VersionIds};

/// A version that was attached read-only.
#[derive(Debug, Clone)]
pub struct Published {
    /// The alias.
    pub alias: String,
    /// The catalog that was attached.
    pub catalog: PathBuf,
    /// The location of its repository.
    pub repository: String,
    /// The version.
    pub version: VersionId,
    /// The ref that it was found by.
    pub reference: Option<RefName>,
}

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
    /// The versions that `fdl_attach` attached, by alias in lower case.
    attached: Mutex<BTreeMap<String, Published>>,
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

    /// Remembers what was attached under an alias.
    pub fn remember_attached(&self, published: Published) {
        let mut attached = self.inner.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.insert(published.alias.to_lowercase(), published);
    }

    /// What was attached under an alias, if the catalog there is still `catalog`.
    pub fn attached_as(&self, alias: &str, catalog: &Path) -> Option<Published> {
        let attached = self.inner.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.get(&alias.to_lowercase()).filter(|published| published.catalog == catalog).cloned()
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
