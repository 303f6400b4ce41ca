//! The working catalog: attached for the user, looked at before a commit.

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::LakeError;
use super::reader::IS_OPTION;
use super::template::template;
use crate::engine::{Connection, EngineError, EngineErrorKind, Row, Sql, identifier, literal, sql};

/// How often, and how long apart, to look again whether a transaction has ended: a statement of another process is over
/// in a moment, a transaction that the caller itself has open never ends while we wait.
const LOOKS: u32 = 60;
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// The statement that attaches a working catalog, for this process and any other (docs/sql.md, fdl_checkout).
pub fn attach_working_sql(working: &Path, alias: &str, data_path: &str) -> String {
    attach_statement(working, alias, options(data_path)).to_text()
}

fn attach_statement(working: &Path, alias: &str, options: Sql) -> Sql {
    sql!(
        "ATTACH {target} AS {alias} ({options})",
        target = literal(&format!("ducklake:{}", working.to_string_lossy())),
        alias = identifier(alias),
        options
    )
}

fn options(data_path: &str) -> Sql {
    sql!(
        "META_TYPE 'sqlite', DATA_PATH {data_path}, OVERRIDE_DATA_PATH true, DATA_INLINING_ROW_LIMIT 0, \
         META_JOURNAL_MODE 'WAL', BUSY_TIMEOUT 5000",
        data_path = literal(data_path)
    )
}

/// Attaches a working catalog for the user.
///
/// # Errors
/// DuckDB's.
pub fn attach_working(connection: &Connection, working: &Path, alias: &str, data_path: &str) -> Result<(), LakeError> {
    let mode = connection.row(sql!("SELECT current_setting('access_mode')::VARCHAR"))?;
    let mut options = options(data_path);
    // A database that was opened read-only attaches read-only unless it is told otherwise.
    if mode.text(0)?.eq_ignore_ascii_case("read_only") {
        options = sql!("{options}, READ_WRITE", options);
    }
    Ok(connection.execute(attach_statement(working, alias, options))?)
}

/// Makes sure that no transaction, reading or writing, of this process or another, is open on the working catalog: a
/// function of ours sees only what is committed, and would miss the rest without a word. Folds the write-ahead log into
/// the file on the way.
///
/// # Errors
/// [`LakeError::InTransaction`], or DuckDB's.
pub fn require_no_transaction(connection: &Connection, working: &Path) -> Result<(), LakeError> {
    let mut looks = LOOKS;
    loop {
        match look(connection, working) {
            Ok(()) => return Ok(()),
            Err(LakeError::Engine(error)) if error.kind == EngineErrorKind::Locked => {
                looks -= 1;
                if looks == 0 {
                    return Err(LakeError::InTransaction { path: working.to_owned() });
                }
                thread::sleep(BETWEEN_LOOKS);
            }
            Err(error) => return Err(error),
        }
    }
}

/// SQLite leaves write-ahead mode only when nobody else has the file in use, and harms nobody by being refused.
fn look(connection: &Connection, working: &Path) -> Result<(), LakeError> {
    let probe =
        connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, JOURNAL_MODE 'DELETE', BUSY_TIMEOUT 20"))?;
    connection.query(last_snapshot(probe.name()))?;
    Ok(probe.detach()?)
}

/// The number of the last snapshot in an attached catalog.
fn last_snapshot(database: &str) -> Sql {
    sql!("SELECT max(snapshot_id) FROM {database}.ducklake_snapshot", database = identifier(database))
}

/// The state that a working catalog is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestSnapshot {
    /// The number of its last snapshot.
    pub snapshot: i64,
    /// The version of its schema, which sessions remember.
    pub schema_version: i64,
    /// The mark of the checkout that made it, where one did.
    pub checkout: Option<String>,
    /// A digest of its options. To set one makes no snapshot.
    pub options: String,
}

/// What the file of a working catalog says of itself; nothing when the file is no DuckLake catalog.
///
/// # Errors
/// DuckDB's, for a file that is busy or cannot be read.
pub fn latest_snapshot(connection: &Connection, working: &Path) -> Result<Option<LatestSnapshot>, LakeError> {
    let refused = |error: EngineError| match error.message.contains("file is not a database") {
        true => Ok(None),
        false => Err(LakeError::of_file(working, error)),
    };
    if let Err(error) = roll_back_journal(connection, working) {
        return refused(error);
    }
    // A scan of a table that is not there is an internal error of DuckDB, after which the database is unusable.
    let known = connection.row(sql!(
        "SELECT count(*) FROM {master} WHERE name = 'ducklake_snapshot' OR (name = 'ducklake_metadata' AND contains(sql, 'scope'))",
        master = scan(working, "sqlite_master")
    ));
    match known.and_then(|row| row.count(0)) {
        Ok(2) => {}
        Ok(_) => return Ok(None),
        Err(error) => return refused(error),
    }
    let rows = connection
        .query(sql!(
            "SELECT snapshot_id::BIGINT, schema_version::BIGINT, (SELECT max(value) FROM {metadata} WHERE key = {key}), \
             (SELECT md5(coalesce(string_agg(concat_ws('|', scope, scope_id, to_base64(encode(key)), to_base64(encode(value))), chr(10) \
             ORDER BY scope, scope_id, key, value), '')) FROM {metadata} WHERE {IS_OPTION}) \
             FROM {snapshots} ORDER BY snapshot_id DESC LIMIT 1",
            metadata = scan(working, "ducklake_metadata"),
            key = literal(super::thaw::CHECKOUT_KEY),
            IS_OPTION,
            snapshots = scan(working, "ducklake_snapshot"),
        ))
        .map_err(|error| LakeError::of_file(working, error))?;
    let latest = |row: &Row| {
        Ok::<_, LakeError>(LatestSnapshot {
            snapshot: row.integer(0)?,
            schema_version: row.integer(1)?,
            checkout: row.optional_text(2)?.map(str::to_owned),
            options: row.text(3)?.to_owned(),
        })
    };
    rows.first().map(latest).transpose()
}

/// A process that was killed while it wrote can leave a journal, which SQLite plays back when somebody who may write comes
/// by. A journal that is being written is left alone.
fn roll_back_journal(connection: &Connection, working: &Path) -> Result<(), EngineError> {
    let mut journal = working.as_os_str().to_owned();
    journal.push("-journal");
    if !std::fs::metadata(journal).is_ok_and(|meta| meta.len() > 0) {
        return Ok(());
    }
    let attached = connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, BUSY_TIMEOUT 5000"))?;
    match connection.query(last_snapshot(attached.name())) {
        Err(error) if error.kind != EngineErrorKind::NotFound => return Err(error),
        _ => {}
    }
    attached.detach()
}

/// Makes sure that a working catalog is in the format that this session's DuckLake writes.
///
/// # Errors
/// [`LakeError::OtherFormat`], or DuckDB's.
pub fn require_format(connection: &Connection, working: &Path) -> Result<(), LakeError> {
    let metadata = scan(working, "ducklake_metadata");
    let row = connection.row(sql!("SELECT max(value) FROM {metadata} WHERE key = 'version'", metadata))?;
    let (written, read) = (row.optional_text(0)?.unwrap_or_default(), &template(connection)?.format);
    if written == read {
        return Ok(());
    }
    Err(LakeError::OtherFormat { path: working.to_owned(), written: written.to_owned(), read: read.clone() })
}

/// SQL for the rows of a table in a SQLite file, read without attaching it: other connections list attached databases.
fn scan(working: &Path, table: &str) -> Sql {
    sql!("sqlite_scan({file}, {table})", file = literal(&working.to_string_lossy()), table = literal(table))
}

/// Takes back DuckLake's plan to delete files that it has replaced (by merging them, say): versions may name them, and
/// only `fdl_gc` knows which files no version needs.
///
/// # Errors
/// DuckDB's.
pub fn forget_scheduled_deletions(connection: &Connection, working: &Path) -> Result<(), LakeError> {
    let table = "ducklake_files_scheduled_for_deletion";
    if connection.query(sql!("SELECT 1 FROM {rows} LIMIT 1", rows = scan(working, table)))?.is_empty() {
        return Ok(());
    }
    let attached = connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, BUSY_TIMEOUT 5000"))?;
    let (database, table) = (identifier(attached.name()), Sql::constant(table));
    connection.execute(sql!("DELETE FROM {database}.{table}", database, table))?;
    Ok(attached.detach()?)
}

/// Writes rows and deletions that DuckLake keeps inside the catalog out to Parquet files; a frozen catalog never holds
/// any (docs/format.md section 11). Does nothing where there are none.
///
/// # Errors
/// [`LakeError::StillInlined`] when DuckLake left some, or DuckDB's.
pub fn flush_inlined(connection: &Connection, working: &Path, data_path: &str) -> Result<(), LakeError> {
    if inlined(connection, working)?.is_empty() {
        return Ok(());
    }
    let lake = connection.attach(&format!("ducklake:{}", working.to_string_lossy()), options(data_path))?;
    let flush = sql!("CALL ducklake_flush_inlined_data({lake})", lake = literal(lake.name()));
    connection.execute(flush).map_err(|source| match source.kind {
        EngineErrorKind::Other => LakeError::NotFlushed { path: working.to_owned(), source },
        _ => source.into(),
    })?;
    lake.detach()?;
    renew_schema_version(connection, working)?;
    match inlined(connection, working)?.into_iter().next() {
        Some(table) => Err(LakeError::StillInlined { table }),
        None => Ok(()),
    }
}

/// Takes rows out of the catalog that were deleted or updated while they were inlined. A flush would write them to a Parquet file, with
/// its statistics, for snapshots that no version has.
///
/// # Errors
/// DuckDB's.
pub fn forget_inlined_past(connection: &Connection, working: &Path) -> Result<(), LakeError> {
    let tables = connection.query(sql!(
        "SELECT name FROM {master} WHERE type = 'table' AND starts_with(name, 'ducklake_inlined_data_') \
         AND name <> 'ducklake_inlined_data_tables' ORDER BY name",
        master = scan(working, "sqlite_master")
    ))?;
    let mut past = Vec::new();
    for table in tables {
        let name = table.text(0)?;
        let ended = sql!("SELECT 1 FROM {rows} WHERE end_snapshot IS NOT NULL LIMIT 1", rows = scan(working, name));
        if !connection.query(ended)?.is_empty() {
            past.push(name.to_owned());
        }
    }
    if past.is_empty() {
        return Ok(());
    }
    let attached = connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, BUSY_TIMEOUT 5000"))?;
    let (database, transaction) = (identifier(attached.name()), connection.begin()?);
    for table in &past {
        let table = identifier(table);
        connection.execute(sql!("DELETE FROM {database}.{table} WHERE end_snapshot IS NOT NULL", database, table))?;
    }
    transaction.commit()?;
    Ok(attached.detach()?)
}

/// Adds a snapshot that changes nothing but the version of the schema. Sessions that have the catalog attached know by
/// that version which tables of inlined rows there are, and a flush drops some.
fn renew_schema_version(connection: &Connection, working: &Path) -> Result<(), LakeError> {
    let attached = connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, BUSY_TIMEOUT 5000"))?;
    let (database, transaction) = (identifier(attached.name()), connection.begin()?);
    connection.execute(sql!(
        "INSERT INTO {database}.ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) \
         SELECT snapshot_id + 1, now()::VARCHAR, schema_version + 1, next_catalog_id, next_file_id \
         FROM {database}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1; \
         INSERT INTO {database}.ducklake_snapshot_changes (snapshot_id, changes_made) \
         SELECT max(snapshot_id), '' FROM {database}.ducklake_snapshot",
        database
    ))?;
    transaction.commit()?;
    Ok(attached.detach()?)
}

/// The metadata tables that hold inlined rows or deletions.
///
/// # Errors
/// DuckDB's.
pub fn inlined(connection: &Connection, working: &Path) -> Result<Vec<String>, LakeError> {
    let tables = connection.query(sql!(
        "SELECT name FROM {master} WHERE type = 'table' AND starts_with(name, 'ducklake_inlined_') \
         AND name <> 'ducklake_inlined_data_tables' ORDER BY name",
        master = scan(working, "sqlite_master")
    ))?;
    let live = |key: &'static str, table: &str| {
        let (key, rows) = (Sql::constant(key), scan(working, table));
        sql!("SELECT {key} FROM {rows} WHERE end_snapshot IS NULL", key, rows)
    };
    let mut inlined = Vec::new();
    for table in tables {
        // Rows of tables that were dropped, and deletions from files that were replaced, stay behind and are no rows.
        let name = table.text(0)?;
        let (number, counts) =
            match (name.strip_prefix("ducklake_inlined_data_"), name.strip_prefix("ducklake_inlined_delete_")) {
                (Some(rest), _) => (rest.split('_').next().unwrap_or(rest), sql!("end_snapshot IS NULL")),
                (_, Some(rest)) => {
                    (rest, sql!("file_id IN ({live})", live = live("data_file_id", "ducklake_data_file")))
                }
                // Of a kind that is not known: better refused than lost.
                (None, None) => ("", sql!("true")),
            };
        let of_a_live_table = match number.parse::<i64>() {
            Ok(number) => sql!("{number} IN ({live})", number, live = live("table_id", "ducklake_table")),
            Err(_) => sql!("true"),
        };
        let rows = sql!(
            "SELECT 1 FROM {rows} WHERE {counts} AND {of_a_live_table} LIMIT 1",
            rows = scan(working, name),
            counts,
            of_a_live_table
        );
        if !connection.query(rows)?.is_empty() {
            inlined.push(name.to_owned());
        }
    }
    Ok(inlined)
}
