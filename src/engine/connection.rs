//! One connection, its statements, and what must be undone at their end.
#![expect(unsafe_code, reason = "the C API of DuckDB")]

use std::borrow::Borrow;
use std::cell::{Cell as Flag, RefCell};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use libduckdb_sys as ffi;

use super::rows::{Cell, Row, Rows};
use super::{EngineError, Sql, identifier, literal, sql};

thread_local! {
    /// Whether this thread runs a statement of ours.
    static RUNS: Flag<bool> = const { Flag::new(false) };
}

/// Whether this thread runs a statement of ours. DuckDB binds the functions of a statement on the thread that runs it, so a function
/// that finds this true was brought in by what the statement reads.
pub fn runs_a_statement() -> bool {
    RUNS.get()
}

/// A connection of ours to the user's database. It has settings, search path and transaction of its own.
#[derive(Debug)]
pub struct Connection {
    raw: ffi::duckdb_connection,
    /// Databases of ours that are attached. Shared by all connections to the database, but only this one knows them.
    attached: RefCell<BTreeSet<String>>,
}

// SAFETY: DuckDB lets a connection be used from any thread, one at a time; `Connection` is not `Sync`.
unsafe impl Send for Connection {}

impl Connection {
    /// Connects to a database.
    ///
    /// # Safety
    /// `database` is valid: during the entry point only.
    pub(super) unsafe fn open(database: ffi::duckdb_database) -> Result<Self, EngineError> {
        let mut raw: ffi::duckdb_connection = ptr::null_mut();
        // SAFETY: by the contract of this function; `raw` is a place to write to.
        let state = unsafe { ffi::duckdb_connect(database, &raw mut raw) };
        if state != ffi::DuckDBSuccess || raw.is_null() {
            return Err(EngineError::unexpected("no connection to the database"));
        }
        let connection = Self { raw, attached: RefCell::default() };
        // A collation that the user sets for all would make values equal to us that are not the same.
        connection.execute(sql!("SET SESSION default_collation = ''"))?;
        Ok(connection)
    }

    /// Runs one or more statements and returns the rows of the last.
    ///
    /// # Errors
    /// DuckDB's message when a statement fails, or when a column has a type that [`Cell`] does not know.
    pub fn query(&self, sql: impl Borrow<Sql>) -> Result<Rows, EngineError> {
        self.run(sql.borrow())?.rows()
    }

    fn run(&self, sql: &Sql) -> Result<QueryResult, EngineError> {
        let text = CString::new(sql.as_str()).map_err(|_| EngineError::unexpected("a NUL byte in a statement"))?;
        let mut result = QueryResult::empty();
        let outer = RUNS.replace(true);
        // SAFETY: the connection is open, the text ends in NUL, and `result` is destroyed by its Drop.
        let state = unsafe { ffi::duckdb_query(self.raw, text.as_ptr(), &raw mut result.raw) };
        RUNS.set(outer);
        match state == ffi::DuckDBSuccess {
            true => Ok(result),
            false => Err(EngineError::from_message(&result.error())),
        }
    }

    /// Runs one or more statements whose rows do not matter.
    ///
    /// # Errors
    /// DuckDB's message when a statement fails.
    pub fn execute(&self, sql: impl Borrow<Sql>) -> Result<(), EngineError> {
        self.run(sql.borrow()).map(|_| ())
    }

    /// Runs one statement with a text for each `?`. DuckDB's logs show the statement and not the texts.
    ///
    /// # Errors
    /// DuckDB's message when the statement fails.
    pub fn execute_with(&self, sql: impl Borrow<Sql>, values: &[String]) -> Result<(), EngineError> {
        let text =
            CString::new(sql.borrow().as_str()).map_err(|_| EngineError::unexpected("a NUL byte in a statement"))?;
        let mut prepared = Prepared { raw: ptr::null_mut() };
        // SAFETY: the connection is open, the text ends in NUL, and `prepared` is destroyed by its Drop.
        if unsafe { ffi::duckdb_prepare(self.raw, text.as_ptr(), &raw mut prepared.raw) } != ffi::DuckDBSuccess {
            return Err(EngineError::from_message(&prepared.error()));
        }
        for (index, value) in (1..).zip(values) {
            let (bytes, length) = (value.as_ptr().cast(), value.len() as u64);
            // SAFETY: the statement is prepared; DuckDB copies the bytes during the call.
            let state = unsafe { ffi::duckdb_bind_varchar_length(prepared.raw, index, bytes, length) };
            if state != ffi::DuckDBSuccess {
                return Err(EngineError::unexpected("a value too many"));
            }
        }
        let mut result = QueryResult::empty();
        let outer = RUNS.replace(true);
        // SAFETY: the statement is prepared, and `result` is destroyed by its Drop.
        let state = unsafe { ffi::duckdb_execute_prepared(prepared.raw, &raw mut result.raw) };
        RUNS.set(outer);
        match state == ffi::DuckDBSuccess {
            true => Ok(()),
            false => Err(EngineError::from_message(&result.error())),
        }
    }

    /// The names of the columns that a query gives.
    ///
    /// # Errors
    /// DuckDB's message when the query fails.
    pub fn column_names(&self, sql: impl Borrow<Sql>) -> Result<Vec<String>, EngineError> {
        Ok(self.run(sql.borrow())?.column_names())
    }

    /// Runs a statement that gives exactly one row.
    ///
    /// # Errors
    /// As [`Self::query`], and when there is not one row.
    pub fn row(&self, sql: impl Borrow<Sql>) -> Result<Row, EngineError> {
        let mut rows = self.query(sql)?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            _ => Err(EngineError::unexpected("not exactly one row")),
        }
    }

    /// Begins a transaction that is rolled back unless it is committed.
    ///
    /// # Errors
    /// DuckDB's message.
    pub fn begin(&self) -> Result<Transaction<'_>, EngineError> {
        self.execute(sql!("BEGIN TRANSACTION"))?;
        Ok(Transaction { connection: self, open: true })
    }

    /// Attaches a database under a name of our own, until the guard is dropped. `target` is what stands after
    /// `ATTACH` (`ducklake:` and a path, or a path), `options` what stands in the parentheses.
    ///
    /// # Errors
    /// DuckDB's message.
    pub fn attach(&self, target: &str, options: impl Borrow<Sql>) -> Result<Attached<'_>, EngineError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("__fdl_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        // Said in so many words: in a database that was opened read-only the default is to attach read-only.
        let options = options.borrow();
        let mode = if options.as_str().contains("READ_ONLY") { sql!("") } else { sql!(", READ_WRITE") };
        self.execute(sql!(
            "ATTACH {target} AS {name} ({options}{mode})",
            target = literal(target),
            name = identifier(&name),
            options,
            mode
        ))?;
        self.attached.borrow_mut().insert(name.clone());
        Ok(Attached { connection: self, name })
    }

    /// What interrupts a statement of this connection from another thread.
    pub(super) fn interrupter(&self) -> Interrupter {
        Interrupter(self.raw)
    }

    fn detach(&self, name: &str) -> Result<(), EngineError> {
        self.execute(sql!("DETACH DATABASE IF EXISTS {name}", name = identifier(name)))?;
        self.attached.borrow_mut().remove(name);
        Ok(())
    }

    /// Makes the connection as it was before a command: no transaction, and none of our databases attached. After a
    /// command that ended well there is nothing to do.
    pub fn reset(&self) {
        let left: Vec<String> = self.attached.borrow().iter().cloned().collect();
        if left.is_empty() {
            return;
        }
        // Refused when no transaction is open, which is as good.
        let _ = self.execute(sql!("ROLLBACK"));
        for name in left {
            // What cannot be detached is tried again after the next command; its name is never used again.
            let _ = self.detach(&name);
        }
    }
}

/// Interrupts the statement that a connection runs.
#[derive(Debug)]
pub(super) struct Interrupter(ffi::duckdb_connection);

// SAFETY: DuckDB lets a connection be interrupted from any thread.
unsafe impl Send for Interrupter {}

impl Interrupter {
    /// # Safety
    /// The connection is open.
    pub(super) unsafe fn interrupt(&self) {
        // SAFETY: by the contract of this function.
        unsafe { ffi::duckdb_interrupt(self.0) };
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: open since `open`, and closed only here.
        unsafe { ffi::duckdb_disconnect(&raw mut self.raw) };
    }
}

/// An open transaction. Dropped without [`Transaction::commit`], it is rolled back.
#[derive(Debug)]
pub struct Transaction<'a> {
    connection: &'a Connection,
    open: bool,
}

impl Transaction<'_> {
    /// Commits.
    ///
    /// # Errors
    /// DuckDB's message; the transaction is rolled back then.
    pub fn commit(mut self) -> Result<(), EngineError> {
        self.connection.execute(sql!("COMMIT"))?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // A failed COMMIT or a fatal error has already rolled back, and then this is refused: nothing is lost.
            let _ = self.connection.execute(sql!("ROLLBACK"));
        }
    }
}

/// A database attached for the length of a call.
#[derive(Debug)]
pub struct Attached<'a> {
    connection: &'a Connection,
    name: String,
}

impl Attached<'_> {
    /// The name it is attached under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Detaches now, so that a failure can be reported.
    ///
    /// # Errors
    /// DuckDB's message.
    pub fn detach(self) -> Result<(), EngineError> {
        self.connection.detach(&self.name)
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        // On the way out of a failure the first error is the one to show; what a transaction still holds here is
        // detached when the command has ended.
        if self.connection.attached.borrow().contains(&self.name) {
            let _ = self.connection.detach(&self.name);
        }
    }
}

struct Prepared {
    raw: ffi::duckdb_prepared_statement,
}

impl Prepared {
    fn error(&self) -> String {
        // SAFETY: `raw` was filled by duckdb_prepare, or is null, for which there is no text; the text is copied.
        unsafe { text_of(ffi::duckdb_prepare_error(self.raw)) }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: destroyed once; DuckDB accepts an empty one.
        unsafe { ffi::duckdb_destroy_prepare(&raw mut self.raw) };
    }
}

/// A text of DuckDB's own as a copy.
///
/// # Safety
/// `text` is null or ends in NUL.
unsafe fn text_of(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "DuckDB gave no reason".to_owned();
    }
    // SAFETY: by the contract of this function.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

struct QueryResult {
    raw: ffi::duckdb_result,
}

impl QueryResult {
    fn empty() -> Self {
        // SAFETY: a plain C struct for which all zeros is the empty value.
        Self { raw: unsafe { std::mem::zeroed() } }
    }

    fn error(&mut self) -> String {
        // SAFETY: `raw` was filled by duckdb_query; the text belongs to it and is copied.
        unsafe { text_of(ffi::duckdb_result_error(&raw mut self.raw)) }
    }

    fn column_names(&mut self) -> Vec<String> {
        // SAFETY: `raw` holds a successful result; a name belongs to it and is copied.
        unsafe {
            let columns = ffi::duckdb_column_count(&raw mut self.raw);
            let name = |index| ffi::duckdb_column_name(&raw mut self.raw, index);
            let names: Vec<_> = (0..columns).map(name).filter(|name| !name.is_null()).collect();
            names.into_iter().map(|name| CStr::from_ptr(name).to_string_lossy().into_owned()).collect()
        }
    }

    fn rows(&mut self) -> Result<Rows, EngineError> {
        // SAFETY: `raw` holds a successful result.
        let columns = unsafe { ffi::duckdb_column_count(&raw mut self.raw) };
        // SAFETY: as above; the index is below the count.
        let types: Vec<ffi::duckdb_type> =
            (0..columns).map(|index| unsafe { ffi::duckdb_column_type(&raw mut self.raw, index) }).collect();
        let mut rows = Vec::new();
        loop {
            // SAFETY: a result is passed by value to fetch its next chunk; the chunk is destroyed by its Drop.
            let chunk = Chunk { raw: unsafe { ffi::duckdb_fetch_chunk(self.raw) } };
            if chunk.raw.is_null() {
                return Ok(rows);
            }
            chunk.append_to(&types, &mut rows)?;
        }
    }
}

impl Drop for QueryResult {
    fn drop(&mut self) {
        // SAFETY: destroyed once; DuckDB accepts an empty one.
        unsafe { ffi::duckdb_destroy_result(&raw mut self.raw) };
    }
}

struct Chunk {
    raw: ffi::duckdb_data_chunk,
}

impl Chunk {
    fn append_to(&self, types: &[ffi::duckdb_type], rows: &mut Rows) -> Result<(), EngineError> {
        // SAFETY: the chunk is not null.
        let size = unsafe { ffi::duckdb_data_chunk_get_size(self.raw) };
        let first = rows.len();
        for _ in 0..size {
            rows.push(Row(Vec::with_capacity(types.len())));
        }
        for (column, &kind) in (0..).zip(types) {
            // SAFETY: the chunk has a vector for each column, with `size` rows of the column's type.
            unsafe {
                let vector = ffi::duckdb_data_chunk_get_vector(self.raw, column);
                let validity = ffi::duckdb_vector_get_validity(vector);
                let data = ffi::duckdb_vector_get_data(vector);
                for (index, row) in (0..size).zip(rows.iter_mut().skip(first)) {
                    let valid = validity.is_null() || ffi::duckdb_validity_row_is_valid(validity, index);
                    row.0.push(if valid { cell(kind, data, index)? } else { Cell::Null });
                }
            }
        }
        Ok(())
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: destroyed once.
            unsafe { ffi::duckdb_destroy_data_chunk(&raw mut self.raw) };
        }
    }
}

/// Reads one value of a vector.
///
/// # Safety
/// `data` holds more than `index` values of the type `kind`.
unsafe fn cell(kind: ffi::duckdb_type, data: *mut std::ffi::c_void, index: u64) -> Result<Cell, EngineError> {
    let index = usize::try_from(index).map_err(|_| EngineError::unexpected("a row beyond memory"))?;
    macro_rules! integer {
        ($type:ty) => {
            // SAFETY: by the contract of this function.
            i64::try_from(unsafe { *data.cast::<$type>().add(index) })
                .map(Cell::Integer)
                .map_err(|_| EngineError::unexpected("a number beyond BIGINT"))
        };
    }
    match kind {
        // SAFETY: by the contract of this function.
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_BOOLEAN => Ok(Cell::Boolean(unsafe { *data.cast::<bool>().add(index) })),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_TINYINT => integer!(i8),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_SMALLINT => integer!(i16),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_INTEGER => integer!(i32),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_BIGINT => integer!(i64),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_UBIGINT => integer!(u64),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_UINTEGER => integer!(u32),
        ffi::DUCKDB_TYPE_DUCKDB_TYPE_VARCHAR => {
            // SAFETY: by the contract of this function; the bytes belong to the chunk and are copied.
            let text = unsafe {
                let value = data.cast::<ffi::duckdb_string_t>().add(index);
                let length = ffi::duckdb_string_t_length(*value) as usize;
                let bytes = std::slice::from_raw_parts(ffi::duckdb_string_t_data(value).cast::<u8>(), length);
                String::from_utf8_lossy(bytes).into_owned()
            };
            Ok(Cell::Text(text))
        }
        other => Err(EngineError::unexpected(&format!("a column of C type {other}"))),
    }
}
