//! What a command works with: the session's database, a runtime for the stores, the clock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Runtime};

use super::Error;
use super::catalogs::Keep;
use crate::engine::{Engine, Lease};
use crate::format::{RefName, SystemClock, SystemRandom, VersionId, VersionIds};
use crate::host::RunningHost;

thread_local! {
    /// The function that runs on this thread.
    static RUNNING: Cell<&'static str> = const { Cell::new("fdl") };
}

/// A version that was attached read-only.
#[derive(Debug, Clone)]
pub struct Published {
    /// The alias.
    pub alias: String,
    /// The catalog that was attached.
    pub catalog: PathBuf,
    /// Where it is kept: a folder that is to be dropped is there as long as this.
    #[expect(dead_code, reason = "it is held, and not looked at")]
    pub(super) keep: Keep,
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
    /// The tokens that calls gave, by location: a session that was given one need not be given it again.
    tokens: Mutex<BTreeMap<String, String>>,
    /// The hosts that run, with the location of what each serves. They end with the database.
    hosts: Mutex<Vec<(RunningHost, String)>>,
}

impl Context {
    /// For the database of `engine`.
    ///
    /// # Errors
    /// None today; what is made once for each database may fail.
    pub fn new(engine: Engine) -> Result<Self, Error> {
        let ids = VersionIds::new(Arc::new(SystemClock), Arc::new(SystemRandom));
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                clock: SystemClock,
                ids,
                attached: Mutex::default(),
                tokens: Mutex::default(),
                hosts: Mutex::default(),
            }),
        })
    }

    /// A connection to the user's database, for the length of a command.
    ///
    /// # Errors
    /// FDL-DUCKDB after the user closed the database, FDL-IN-TRANSACTION when other calls hold all connections for long.
    pub fn connection(&self) -> Result<Lease<'_>, Error> {
        Ok(self.inner.engine.connection(RUNNING.get())?)
    }

    /// Runs a part of a command, by whose name others are told what they wait for.
    ///
    /// # Errors
    /// FDL-FORKED in a process that was forked off the one that loaded fdl; those of the command.
    pub fn run<T>(&self, command: &'static str, part: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.inner.engine.is_forked() {
            return Err(Error::forked());
        }
        RUNNING.set(command);
        part()
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

    fn tokens(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.inner.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the token that a call gave for a location, for the length of the session.
    pub fn remember_token(&self, location: &str, token: &str) {
        self.tokens().insert(location.trim_end_matches('/').to_owned(), token.to_owned());
    }

    /// The token that an earlier call gave for a location.
    pub fn token_for(&self, location: &str) -> Option<String> {
        self.tokens().get(location.trim_end_matches('/')).cloned()
    }

    /// The engine, for what goes on behind the commands.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<(RunningHost, String)>> {
        self.inner.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a host running until it is taken or the database closes.
    pub fn add_host(&self, host: RunningHost, repository: String) {
        self.hosts().push((host, repository));
    }

    /// Looks at every host that runs.
    pub fn each_host<T>(&self, look: impl Fn(&RunningHost, &str) -> T) -> Vec<T> {
        self.hosts().iter().map(|(host, repository)| look(host, repository)).collect()
    }

    /// Takes the host on an address, or all.
    pub fn take_hosts(&self, address: Option<&str>) -> Vec<RunningHost> {
        let mut hosts = self.hosts();
        let (taken, kept) = std::mem::take(&mut *hosts)
            .into_iter()
            .partition(|(host, _)| address.is_none_or(|address| host.address().to_string() == address));
        *hosts = kept;
        let taken: Vec<(RunningHost, String)> = taken;
        taken.into_iter().map(|(host, _)| host).collect()
    }

    /// Runs a store's work to its end on the runtime that all databases of the process share.
    ///
    /// # Errors
    /// FDL-DUCKDB when the system gives no threads.
    pub fn block_on<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        Ok(self.runtime()?.block_on(work))
    }

    /// The runtime.
    ///
    /// # Errors
    /// FDL-DUCKDB when the system gives no threads.
    pub fn runtime(&self) -> Result<&'static Runtime, Error> {
        /// The runtime and the process that has its threads: a process that is forked off has none of them.
        static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some((made_by, runtime)) = *runtime
            && made_by == process
        {
            return Ok(runtime);
        }
        let made = Builder::new_multi_thread().worker_threads(2).thread_name("fdl-store").enable_all().build();
        #[expect(clippy::disallowed_methods, reason = "no text: a runtime that lives as long as the process")]
        let made: &'static Runtime = Box::leak(Box::new(made.map_err(Error::no_threads)?));
        *runtime = Some((process, made));
        Ok(made)
    }
}
