//! Thawing: the catalog of a version becomes a working catalog (docs/format.md sections 11 and 13).

use std::path::Path;

use super::copy::{self, Which};
use super::template::template;
use super::{LakeError, numbers};
use crate::engine::{Connection, Identifier, Sql, identifier, literal, sql};

/// The key under which a working catalog holds the mark of the checkout it was made by.
pub(super) const CHECKOUT_KEY: &str = "fdl_checkout";
/// As good as never: `CHECKPOINT` and DuckLake's clean-ups would delete the files of other versions and branches.
const NEVER: &str = "1000 years";

/// What a working catalog is made from.
#[derive(Debug)]
pub struct Thaw<'a> {
    /// The catalog of the version, or nothing for an empty one.
    pub frozen: Option<&'a Path>,
    /// Where DuckDB writes new data files; ends in `/`.
    pub data_path: &'a str,
    /// Where the version's data files are read, when not there: a URL that ends in `/`.
    pub published_at: Option<&'a str>,
    /// The mark of this checkout, by which a stopped one is told from a finished one.
    pub checkout: &'a str,
    /// Snapshot and schema version that an earlier catalog of this name had reached: sessions that have it attached keep
    /// its schema by these numbers, so the new one starts behind them.
    pub after: Option<(i64, i64)>,
}

/// Makes the working catalog `working`, a new SQLite file, and returns the number of its snapshot.
///
/// # Errors
/// DuckDB's.
pub fn thaw(connection: &Connection, working: &Path, thaw: &Thaw<'_>) -> Result<i64, LakeError> {
    let working = working.to_string_lossy();
    // DuckLake makes the file itself, for the types and keys it wants.
    let options = sql!("META_TYPE 'sqlite', DATA_PATH {data_path}", data_path = literal(thaw.data_path));
    connection.attach(&format!("ducklake:{working}"), options)?.detach()?;
    let target = connection.attach(&working, sql!("TYPE sqlite"))?;
    let to = identifier(target.name());
    let source = match thaw.frozen {
        Some(frozen) => Some(connection.attach(&frozen.to_string_lossy(), sql!("TYPE duckdb, READ_ONLY"))?),
        None => None,
    };
    let transaction = connection.begin()?;
    if let Some(source) = &source {
        let template = template(connection)?;
        for table in template.names() {
            connection.execute(sql!("DELETE FROM {to}.{table}", to, table = identifier(table)))?;
        }
        let name = target.name();
        copy::copy(connection, source.name(), (name, template.names()), Which::All, thaw.published_at)?;
        define_from_the_start(connection, name)?;
        // A version of an older fdl may have lost the number of a dropped column. Its files' statistics have it, where they are kept.
        let from = identifier(source.name());
        numbers::keep_highest(connection, &to, &from, &from)?;
    }
    connection.execute(sql!(
        "UPDATE {to}.ducklake_metadata SET value = {data_path} WHERE key = 'data_path'; \
         DELETE FROM {to}.ducklake_metadata WHERE scope IS NULL AND key IN ({key}, 'delete_older_than'); \
         INSERT INTO {to}.ducklake_metadata (key, value) VALUES ({key}, {checkout}), ('delete_older_than', {never})",
        to,
        data_path = literal(thaw.data_path),
        key = literal(CHECKOUT_KEY),
        checkout = literal(thaw.checkout),
        never = literal(NEVER),
    ))?;
    if let Some((snapshot, schema_version)) = thaw.after {
        start_after(connection, &to, snapshot, schema_version)?;
    }
    let snapshot =
        connection.row(sql!("SELECT max(snapshot_id)::BIGINT FROM {to}.ducklake_snapshot", to))?.integer(0)?;
    transaction.commit()?;
    if let Some(source) = source {
        source.detach()?;
    }
    target.detach()?;
    Ok(snapshot)
}

/// In a catalog of one snapshot every definition is the current one, since the others were left out; some begin later than
/// files that were written before a table was altered or renamed. DuckLake merges files by the definition at the time of
/// the first: there it would find no table, or one that lacks columns. So definitions begin before all files, and what has
/// ended is valid at no time.
fn define_from_the_start(connection: &Connection, target: &str) -> Result<(), LakeError> {
    let to = identifier(target);
    if connection.row(sql!("SELECT count(*) FROM {to}.ducklake_snapshot", to))?.count(0)? != 1 {
        return Ok(());
    }
    for table in ["ducklake_schema", "ducklake_table", "ducklake_column"] {
        connection.execute(sql!(
            "UPDATE {to}.{table} SET begin_snapshot = coalesce(end_snapshot, 0)",
            to,
            table = Sql::constant(table)
        ))?;
    }
    let by_table = copy::tables(connection, target)?
        .get("ducklake_schema_versions")
        .is_some_and(|columns| columns.iter().any(|column| column == "table_id"));
    let (table_id, tables) =
        if by_table { (sql!(", table_id"), sql!(", {to}.ducklake_table", to)) } else { (sql!(""), sql!("")) };
    Ok(connection.execute(sql!(
        "DELETE FROM {to}.ducklake_schema_versions; INSERT INTO {to}.ducklake_schema_versions \
         (begin_snapshot, schema_version{table_id}) SELECT 0, schema_version{table_id} \
         FROM {to}.ducklake_snapshot{tables}",
        to,
        table_id,
        tables
    ))?)
}

fn start_after(connection: &Connection, to: &Identifier, snapshot: i64, schema_version: i64) -> Result<(), LakeError> {
    let current = connection.row(sql!(
        "SELECT snapshot_id::BIGINT, schema_version::BIGINT FROM {to}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
        to
    ))?;
    let next = snapshot.max(current.integer(0)?) + 1;
    let schema_version = schema_version.max(current.integer(1)?) + 1;
    let last = current.integer(0)?;
    connection.execute(sql!(
        "UPDATE {to}.ducklake_snapshot SET schema_version = {schema_version}, snapshot_id = {next} \
         WHERE snapshot_id = {last}; \
         UPDATE {to}.ducklake_snapshot_changes SET snapshot_id = {next} WHERE snapshot_id = {last}",
        to,
        schema_version,
        next,
        last
    ))?;
    Ok(())
}
