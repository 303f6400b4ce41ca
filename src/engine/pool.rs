//! The connections of one database: made while the extension loads, lent to commands, dropped with the user's last.
//!
//! A connection keeps its database open. So that fdl does not keep a file locked after the user has closed it, a thread
//! looks twice a second whether only our connections are left and drops them then.
//!
//! At the end of the process that thread folds the write-ahead logs into their files, as closing the database would have
//! done, and leaves the connections alone: to drop them would run DuckDB's destructors, and those of its extensions, after
//! handlers that were registered later have taken away what they use (OpenSSL, thread-local values).
#![expect(unsafe_code, reason = "connecting to the raw database handle, and atexit")]

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use libduckdb_sys as ffi;

use super::{Connection, EngineError, identifier, sql};

/// How many commands can run at the same time on one database; a further one waits for its turn.
const CONNECTIONS: usize = 4;

/// How long a command waits for a connection, unless `FDL_WAIT` gives another number of seconds.
const WAIT: Duration = Duration::from_secs(60);

/// How often the thread looks whether the user has closed the database.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the end of the process waits for DuckDB to write its files.
const WAIT_AT_EXIT: Duration = Duration::from_secs(60);

/// The connections to one database.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told of every change of the state.
    changed: Condvar,
    /// The process that has the thread: a child made by fork has not.
    process: u32,
}

#[derive(Debug)]
struct State {
    idle: Vec<Connection>,
    /// Who has the others, and since when.
    lent: Vec<Loan>,
    /// The process ends.
    closing: bool,
    /// The connections were dropped.
    closed: bool,
}

/// A connection on loan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loan {
    to: &'static str,
    since: Instant,
}

static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();

impl Engine {
    /// Makes the connections and starts the thread that lets go of them.
    ///
    /// # Errors
    /// DuckDB's message when it gives no connection, or the system's when it gives no thread.
    ///
    /// # Safety
    /// `database` is the handle of the entry point, during its call.
    pub unsafe fn open(database: ffi::duckdb_database) -> Result<Self, EngineError> {
        let mut idle = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            // SAFETY: by the contract of this function.
            idle.push(unsafe { Connection::open(database) }?);
        }
        let state = Mutex::new(State { idle, lent: Vec::new(), closing: false, closed: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), process: std::process::id() });
        let watched = Arc::clone(&shared);
        thread::Builder::new()
            .name("fdl-close".to_owned())
            .spawn(move || watched.close_with_the_user())
            .map_err(|error| EngineError::from_message(&format!("no thread: {error}")))?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        AT_EXIT.call_once(|| {
            // SAFETY: registers a function that lives as long as the process: DuckDB never unloads an extension.
            unsafe { libc::atexit(close_all) };
        });
        Ok(Self { shared })
    }

    /// Drops the connections now, for a load that failed.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.idle.clear();
        state.closed = true;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Whether this process was forked off the one that opened the engine: it has none of its threads, and a lock that was held
    /// at that moment is held for ever.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.shared.process
    }

    /// Lends a connection to the function of this name; waits while all are in use.
    ///
    /// # Errors
    /// [`super::EngineErrorKind::Closed`] after the user's last connection was closed; [`super::EngineErrorKind::Busy`], which names who
    /// has the connections, when none comes back in a minute.
    pub fn connection(&self, to: &'static str) -> Result<Lease<'_>, EngineError> {
        let until = Instant::now() + longest_wait();
        let mut state = self.shared.lock();
        loop {
            if state.closing || state.closed {
                return Err(EngineError::closed());
            }
            if let Some(connection) = state.idle.pop() {
                let loan = Loan { to, since: Instant::now() };
                state.lent.push(loan);
                return Ok(Lease { shared: &self.shared, connection: Some(connection), loan });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let held = |loan: &Loan| format!("{} for {} s", loan.to, loan.since.elapsed().as_secs());
                return Err(EngineError::busy(&state.lent.iter().map(held).collect::<Vec<_>>()));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn longest_wait() -> Duration {
    let given = std::env::var("FDL_WAIT").ok().and_then(|seconds| seconds.parse().ok());
    given.map_or(WAIT, Duration::from_secs)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_with_the_user(&self) {
        let mut state = self.lock();
        loop {
            // While a command runs, a user's statement runs as well, and so a user's connection is open.
            let unused = state.idle.len() == CONNECTIONS;
            if state.closing {
                fold_logs(state.idle.first());
                std::mem::forget(std::mem::take(&mut state.idle));
            } else if unused && only_ours_are_left(state.idle.first()) {
                state.idle.clear();
            } else if !state.closed {
                let waited = self.changed.wait_timeout(state, LOOK_EVERY);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.closed = true;
            self.changed.notify_all();
            return;
        }
    }

    fn close_at_exit(&self) {
        if std::process::id() != self.process {
            return;
        }
        let mut state = self.lock();
        state.closing = true;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, WAIT_AT_EXIT, |state| !state.closed);
        drop(waited);
    }
}

/// Writes what is in the write-ahead logs into the database files. A transaction that is still open keeps its log, which
/// DuckDB plays back when it opens the file again.
fn fold_logs(connection: Option<&Connection>) {
    let Some(connection) = connection else { return };
    let files = connection.query(sql!(
        "SELECT database_name FROM duckdb_databases() WHERE type = 'duckdb' AND path IS NOT NULL AND NOT readonly \
         AND NOT internal"
    ));
    for row in files.unwrap_or_default() {
        if let Ok(name) = row.text(0) {
            // Nobody is left to tell.
            let _ = connection.execute(sql!("CHECKPOINT {name}", name = identifier(name)));
        }
    }
}

fn only_ours_are_left(connection: Option<&Connection>) -> bool {
    let count = connection
        .and_then(|connection| connection.row(sql!("SELECT count::BIGINT FROM duckdb_connection_count()")).ok())
        .and_then(|row| row.count(0).ok());
    count.is_some_and(|count| count <= CONNECTIONS as u64)
}

extern "C" fn close_all() {
    let open = OPEN.lock().map(|mut open| std::mem::take(&mut *open)).unwrap_or_default();
    for shared in open.iter().filter_map(Weak::upgrade) {
        shared.close_at_exit();
    }
}

/// A connection on loan; it goes back when dropped.
#[derive(Debug)]
pub struct Lease<'a> {
    shared: &'a Shared,
    connection: Option<Connection>,
    loan: Loan,
}

impl Deref for Lease<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        // The option is empty only while it is dropped.
        #[expect(clippy::expect_used, reason = "filled from the loan to the drop")]
        self.connection.as_ref().expect("a lease holds its connection")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        if let Some(connection) = &connection {
            connection.reset();
        }
        let mut state = self.shared.lock();
        if let Some(at) = state.lent.iter().position(|loan| *loan == self.loan) {
            state.lent.swap_remove(at);
        }
        if !state.closed {
            state.idle.extend(connection);
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}
