//! Freezing: a working catalog becomes the catalog of a version (docs/format.md section 11).

use std::path::Path;

use super::copy::{self, Which};
use super::template::template;
use super::working_copy::Checkout;
use super::{LakeError, numbers, paths, statistics};
use crate::engine::{Connection, Identifier, Sql, identifier, literal, sql};

/// Rows of file statistics from which on the frozen file has DuckDB's usual block size. Below it blocks are small: an
/// empty catalog is then 0.7 MB instead of 2.4 MB.
const LARGE_CATALOG: u64 = 200_000;

/// How a catalog is frozen.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreezeOptions {
    /// Keeps DuckLake's own snapshots.
    pub keep_snapshots: bool,
    /// Freezes a catalog that holds encryption keys in clear.
    pub allow_encrypted: bool,
}

/// Copies the working catalog in the SQLite file `working` into the new DuckDB file `frozen`. Reads what is committed at
/// one moment; returns the number of the snapshot that was read.
///
/// # Errors
/// [`LakeError::Encrypted`], [`LakeError::OutsideDataDir`], or DuckDB's.
pub fn freeze(
    connection: &Connection,
    working: &Path,
    checkout: &Checkout,
    frozen: &Path,
    options: FreezeOptions,
) -> Result<i64, LakeError> {
    copy_working(connection, working, frozen, options, |target| {
        forget_the_working_copy(connection, target, checkout.published_data_path())?;
        paths::make_relative(connection, target, checkout)
    })
}

/// Copies the current snapshot of a working catalog with its absolute paths, for reading rows on this machine.
pub(super) fn copy_as_it_is(connection: &Connection, working: &Path, copy: &Path) -> Result<i64, LakeError> {
    let options = FreezeOptions { allow_encrypted: true, ..FreezeOptions::default() };
    copy_working(connection, working, copy, options, |_| Ok(()))
}

/// Copies a working catalog and lets `finish` work on the copy, which is attached under the name it is given.
fn copy_working(
    connection: &Connection,
    working: &Path,
    copy: &Path,
    options: FreezeOptions,
    finish: impl FnOnce(&str) -> Result<(), LakeError>,
) -> Result<i64, LakeError> {
    let template = template(connection)?;
    let source = connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, READ_ONLY, BUSY_TIMEOUT 5000"))?;
    let (from, transaction) = (identifier(source.name()), connection.begin()?);
    let facts = connection.row(sql!(
        "SELECT (SELECT max(snapshot_id)::BIGINT FROM {from}.ducklake_snapshot), \
         (SELECT count(*) FROM {from}.ducklake_file_column_stats), \
         (SELECT coalesce(max(value = 'true'), false) FROM {from}.ducklake_metadata WHERE key = 'encrypted')",
        from
    ))?;
    if facts.boolean(2)? && !options.allow_encrypted {
        return Err(LakeError::Encrypted);
    }
    let target = connection.attach(&copy.to_string_lossy(), new_file(facts.count(1)?))?;
    let to = identifier(target.name());
    for statement in template.create(&to) {
        connection.execute(statement)?;
    }
    let which = if options.keep_snapshots { Which::All } else { Which::Current };
    copy::copy(connection, source.name(), (target.name(), template.names()), which, None)?;
    numbers::keep_highest(connection, &to, &from, &to)?;
    statistics::of_the_files(connection, target.name())?;
    finish(target.name())?;
    for table in CHANGED {
        write_anew(connection, &to, table)?;
    }
    transaction.commit()?;
    connection.execute(sql!("CHECKPOINT {to}", to))?;
    target.detach()?;
    source.detach()?;
    facts.integer(0).map_err(LakeError::from)
}

/// The tables whose rows a freeze changes after it has copied them.
const CHANGED: [&str; 6] = [
    "ducklake_metadata",
    "ducklake_schema",
    "ducklake_table",
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_table_column_stats",
];

/// Writes a table of the new catalog anew, with the rows that it has now. DuckDB's own statistics of a column widen and never narrow, and
/// would keep in the file what a row was before it was changed: a value that is gone, or a folder of this machine.
fn write_anew(connection: &Connection, to: &Identifier, table: &str) -> Result<(), LakeError> {
    let Some(create) = template(connection)?.create_one(to, table) else { return Ok(()) };
    let table = identifier(table);
    Ok(connection.execute(sql!(
        "CREATE OR REPLACE TEMP TABLE fdl_rows AS FROM {to}.main.{table}; DROP TABLE {to}.main.{table}; {create}; \
         INSERT INTO {to}.main.{table} FROM temp.fdl_rows; DROP TABLE temp.fdl_rows",
        to,
        table,
        create
    ))?)
}

/// The options with which the file of a catalog is made, given how many rows of file statistics it will hold. Older DuckDB
/// releases can open this storage version.
pub(super) fn new_file(statistics: u64) -> Sql {
    let block_size = if statistics < LARGE_CATALOG { 16_384 } else { 262_144 };
    sql!("TYPE duckdb, STORAGE_VERSION 'v1.0.0', BLOCK_SIZE {block_size}", block_size)
}

/// The DuckLake format that this session's DuckLake writes and reads, such as `1.0`.
///
/// # Errors
/// DuckDB's.
pub fn session_format(connection: &Connection) -> Result<&'static str, LakeError> {
    Ok(&template(connection)?.format)
}

/// Takes out what belongs to the working copy: its data path, the option that guards it and the mark of its checkout.
fn forget_the_working_copy(connection: &Connection, target: &str, data_path: &str) -> Result<(), LakeError> {
    connection.execute(sql!(
        "DELETE FROM {to}.main.ducklake_metadata WHERE scope IS NULL AND key IN ({checkout}, 'delete_older_than'); \
         UPDATE {to}.main.ducklake_metadata SET value = {data_path} WHERE key = 'data_path'",
        to = identifier(target),
        checkout = literal(super::thaw::CHECKOUT_KEY),
        data_path = literal(data_path)
    ))?;
    Ok(())
}
