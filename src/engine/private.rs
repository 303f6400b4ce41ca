//! Private instances of DuckDB, for reading a database file that came from outside.
//!
//! What such a file holds runs, if at all, in an instance of its own: no extension, no file or address but those given when it is
//! opened, one thread, a limit of memory and of time. A fatal error, after which DuckDB gives a database up, ends this instance
//! and not the user's. It is no wall against bytes that take over DuckDB's reader itself: docs/security.md.
#![expect(unsafe_code, reason = "the C API of DuckDB")]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libduckdb_sys as ffi;

use super::{Connection, EngineError, EngineErrorKind, Sql, identifier, literal, sql};

/// How much a private instance may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory, in MiB.
    pub memory: u32,
    /// Time from its opening, after which what runs is interrupted.
    pub time: Duration,
}

impl Limits {
    /// For a catalog: a million rows of statistics fit in, and take seconds.
    pub const CATALOG: Self = Self { memory: 512, time: Duration::from_secs(120) };
    /// For binding views, which reads no rows.
    pub const VIEWS: Self = Self { memory: 256, time: Duration::from_secs(20) };
}

/// A database of a private instance.
#[derive(Debug, Clone)]
pub struct PrivateFile<'a> {
    /// The name that it is attached under.
    pub name: &'a str,
    /// The file.
    pub path: &'a Path,
    /// What stands in the parentheses of `ATTACH`.
    pub options: Sql,
}

/// A private instance. Everything in it ends when it is dropped.
#[derive(Debug)]
pub struct Private {
    // In the order in which they must go: nothing interrupts a connection that is closed, and no connection outlives its database.
    watch: Watch,
    connection: Connection,
    _instance: Instance,
    limits: Limits,
    locked: Cell<bool>,
}

impl Private {
    /// Opens an instance in memory. [`Self::attach`] adds files to it until [`Self::lock`] closes it to the outside.
    ///
    /// # Errors
    /// DuckDB's.
    pub fn open(limits: Limits) -> Result<Self, EngineError> {
        let instance = Instance::open(limits)?;
        // SAFETY: open until `instance` is dropped, which is after the connection.
        let connection = unsafe { Connection::open(instance.raw) }?;
        let watch = Watch::start(&connection, limits.time)?;
        Ok(Self { watch, connection, _instance: instance, limits, locked: Cell::new(false) })
    }

    /// Attaches a file.
    ///
    /// # Errors
    /// DuckDB's.
    pub fn attach(&self, file: PrivateFile<'_>) -> Result<(), EngineError> {
        let PrivateFile { name, path, options } = file;
        let (path, name) = (literal(&path.to_string_lossy()), identifier(name));
        let attach = sql!("ATTACH {path} AS {name} ({options})", path, name, options);
        self.connection.execute(attach).map_err(|error| self.explain(error))
    }

    /// Closes the instance to the outside for good: from here on it opens no file and no address, and no setting changes.
    ///
    /// # Errors
    /// DuckDB's.
    pub fn lock(&self) -> Result<(), EngineError> {
        self.connection.execute(sql!("SET enable_external_access = false; SET lock_configuration = true"))?;
        self.locked.set(true);
        Ok(())
    }

    /// Runs SQL that somebody else wrote. Only a private instance that is closed to the outside does that.
    ///
    /// # Errors
    /// DuckDB's, and before [`Self::lock`].
    pub fn run_foreign(&self, text: &str) -> Result<(), EngineError> {
        if !self.locked.get() {
            return Err(EngineError::unexpected("SQL of somebody else in an instance that is not closed"));
        }
        self.connection.execute(Sql::foreign(text))
    }

    /// Whether its time is over.
    pub fn is_exhausted(&self) -> bool {
        self.watch.has_fired()
    }

    /// Its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// An error of this instance, with the limit that was reached in place of DuckDB's words for it.
    pub fn explain(&self, error: EngineError) -> EngineError {
        let limit = |message| EngineError { kind: EngineErrorKind::Limit, message };
        if self.watch.has_fired() {
            return limit(format!("reading it takes longer than {} seconds", self.limits.time.as_secs()));
        }
        if error.message.contains("Out of Memory Error") {
            return limit(format!("reading it takes more than {} MiB of memory", self.limits.memory));
        }
        error
    }
}

/// An open database.
#[derive(Debug)]
struct Instance {
    raw: ffi::duckdb_database,
}

// SAFETY: DuckDB lets a database be closed from any thread.
unsafe impl Send for Instance {}

impl Instance {
    fn open(limits: Limits) -> Result<Self, EngineError> {
        let memory = format!("{}MiB", limits.memory);
        let config = Config::new(&[
            ("threads", "1"),
            ("memory_limit", &memory),
            // Nothing is spilled to a file.
            ("temp_directory", ""),
            ("autoload_known_extensions", "false"),
            ("autoinstall_known_extensions", "false"),
            ("allow_community_extensions", "false"),
            ("allow_unsigned_extensions", "false"),
            ("allow_persistent_secrets", "false"),
        ])?;
        let mut raw: ffi::duckdb_database = ptr::null_mut();
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: a null path is a database in memory; the other arguments are places to write to and an open configuration.
        let state = unsafe { ffi::duckdb_open_ext(ptr::null(), &raw mut raw, config.raw, &raw mut error) };
        if state == ffi::DuckDBSuccess && !raw.is_null() {
            return Ok(Self { raw });
        }
        if error.is_null() {
            return Err(EngineError::unexpected("no private instance"));
        }
        // SAFETY: DuckDB's own text, which is copied and then freed as its documentation says.
        let message = unsafe {
            let message = CStr::from_ptr(error).to_string_lossy().into_owned();
            ffi::duckdb_free(error.cast());
            message
        };
        Err(EngineError::from_message(&message))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: open since `open`, and closed only here.
        unsafe { ffi::duckdb_close(&raw mut self.raw) };
    }
}

struct Config {
    raw: ffi::duckdb_config,
}

impl Config {
    fn new(settings: &[(&str, &str)]) -> Result<Self, EngineError> {
        let mut config = Self { raw: ptr::null_mut() };
        // SAFETY: a place to write to.
        if unsafe { ffi::duckdb_create_config(&raw mut config.raw) } != ffi::DuckDBSuccess {
            return Err(EngineError::unexpected("no configuration"));
        }
        for (name, value) in settings {
            let (Ok(name_text), Ok(value)) = (CString::new(*name), CString::new(*value)) else {
                return Err(EngineError::unexpected("a NUL byte in a setting"));
            };
            // SAFETY: an open configuration and two texts that end in NUL.
            if unsafe { ffi::duckdb_set_config(config.raw, name_text.as_ptr(), value.as_ptr()) } != ffi::DuckDBSuccess {
                return Err(EngineError::unexpected(&format!("DuckDB has no setting {name}")));
            }
        }
        Ok(config)
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: destroyed once; DuckDB accepts an empty one.
        unsafe { ffi::duckdb_destroy_config(&raw mut self.raw) };
    }
}

/// How often a connection is interrupted once its time is over: it may just be between two statements.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// A thread that interrupts a connection when its time is over.
#[derive(Debug)]
struct Watch {
    state: Arc<(Mutex<WatchState>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WatchState {
    ended: bool,
    fired: bool,
}

impl Watch {
    fn start(connection: &Connection, time: Duration) -> Result<Self, EngineError> {
        let state = Arc::new((Mutex::new(WatchState::default()), Condvar::new()));
        let watched = Arc::clone(&state);
        let interrupter = connection.interrupter();
        let thread = thread::Builder::new()
            .name("fdl-limit".to_owned())
            .spawn(move || {
                let (state, changed) = &*watched;
                let mut wait = time;
                let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
                while !now.ended {
                    let (next, waited) = changed.wait_timeout(now, wait).unwrap_or_else(PoisonError::into_inner);
                    now = next;
                    if waited.timed_out() && !now.ended {
                        now.fired = true;
                        // SAFETY: the connection is open: `Private` ends this thread before it drops its connection.
                        unsafe { interrupter.interrupt() };
                        wait = INTERRUPT_EVERY;
                    }
                }
            })
            .map_err(|error| EngineError::from_message(&format!("no thread: {error}")))?;
        Ok(Self { state, thread: Some(thread) })
    }

    fn has_fired(&self) -> bool {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).fired
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.state.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and nobody is left to tell.
            drop(thread.join());
        }
    }
}
