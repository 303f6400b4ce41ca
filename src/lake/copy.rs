//! Copies DuckLake's metadata tables from one database to another, as a whole or cut down to one snapshot.
//!
//! The target's tables are made as DuckLake makes its own and then filled, so that they have the column types it declares:
//! a catalog that comes from SQLite is all VARCHAR and BIGINT (docs/format.md section 11).

use std::collections::BTreeMap;

use super::layouts::Known;
use super::template::template;
use super::{LakeError, paths};
use crate::engine::{Connection, EngineErrorKind, Sql, identifier, qualified, sql};

/// The columns of each metadata table in an attached database, in their order.
pub(super) type Tables = BTreeMap<String, Vec<String>>;

/// The metadata tables of a catalog that is attached as plain DuckDB or SQLite. It says itself which format it is in, and
/// so which they are: to ask for a table that is not there makes DuckDB look for the name in every attached database, and
/// a lake that somebody works with is locked by that.
pub(super) fn tables(connection: &Connection, database: &str) -> Result<Tables, LakeError> {
    let version = sql!(
        "SELECT max(value) FROM {database}.main.ducklake_metadata WHERE key = 'version'",
        database = identifier(database)
    );
    let format = match connection.row(version) {
        Ok(row) => row.optional_text(0)?.unwrap_or_default().to_owned(),
        Err(error) if error.kind == EngineErrorKind::NotFound => return Ok(Tables::new()),
        Err(error) => return Err(error.into()),
    };
    let template = template(connection)?;
    match Known::of(&format).filter(|_| format != template.format) {
        Some(known) => tables_named(connection, database, known.tables()),
        None => tables_named(connection, database, template.names()),
    }
}

/// Those of the tables that are there.
fn tables_named<'a>(
    connection: &Connection,
    database: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<Tables, LakeError> {
    let mut tables = Tables::new();
    for name in names {
        let all = sql!("SELECT * FROM {table} LIMIT 0", table = qualified(&[database, "main", name]));
        match connection.column_names(all) {
            Ok(columns) => drop(tables.insert(name.to_owned(), columns)),
            Err(error) if error.kind == EngineErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(tables)
}

/// Which rows of the source go into the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Every row.
    All,
    /// Only what the current snapshot needs: a version is a tree, its history is the chain of versions.
    Current,
}

/// Fills these metadata tables of `target` from those of `source`. Columns that only one of them has are left out. Data
/// files get absolute paths when `published_at` says at which URL their folder is.
pub(super) fn copy<'a>(
    connection: &Connection,
    source: &str,
    (target, names): (&str, impl Iterator<Item = &'a str>),
    which: Which,
    published_at: Option<&str>,
) -> Result<(), LakeError> {
    let from = tables(connection, source)?;
    for (table, columns) in tables_named(connection, target, names)? {
        let Some(known) = from.get(&table) else { continue };
        let columns: Vec<&String> = columns.iter().filter(|column| known.contains(column)).collect();
        let Some(filter) = filter(&table, known, source, which) else { continue };
        let list = Sql::join(columns.iter().map(|column| identifier(column)), ", ");
        let (source, target) = (identifier(source), qualified(&[target, "main", &table]));
        let names_files = matches!(table.as_str(), "ducklake_data_file" | "ducklake_delete_file");
        let rows =
            sql!("{list} FROM {source}.main.{table} WHERE {filter}", list, source, table = identifier(&table), filter);
        let values = match published_at.filter(|_| names_files) {
            Some(url) => sql!(
                "* REPLACE ({path} AS path, false AS path_is_relative) FROM (SELECT {rows}) r",
                path = paths::published(&source, url),
                rows
            ),
            None => rows,
        };
        connection.execute(sql!("INSERT INTO {target} ({list}) SELECT {values}", target, list, values))?;
    }
    Ok(())
}

/// The condition that a row of `table` is copied, or nothing when no row is.
fn filter(table: &str, columns: &[String], source: &str, which: Which) -> Option<Sql> {
    // What is scheduled for deletion is the working copy's own business, and a frozen catalog has no inlined rows.
    if matches!(table, "ducklake_files_scheduled_for_deletion" | "ducklake_inlined_data_tables") {
        return None;
    }
    if which == Which::All {
        return Some(sql!("true"));
    }
    let source = identifier(source);
    let has = |name: &str| columns.iter().any(|column| column == name);
    let live = |key: &'static str, table: &'static str| {
        let (key, table) = (Sql::constant(key), Sql::constant(table));
        sql!("{key} IN (SELECT {key} FROM {source}.main.{table} WHERE end_snapshot IS NULL)", key, source, table)
    };
    Some(match table {
        "ducklake_snapshot" | "ducklake_snapshot_changes" => {
            sql!("snapshot_id = (SELECT max(snapshot_id) FROM {source}.main.ducklake_snapshot)", source)
        }
        "ducklake_file_column_stats" | "ducklake_file_variant_stats" | "ducklake_file_partition_value" => {
            live("data_file_id", "ducklake_data_file")
        }
        "ducklake_table_stats" => live("table_id", "ducklake_table"),
        "ducklake_metadata" if has("scope_id") => sql!(
            "scope IS NULL OR (scope = 'table' AND scope_id IN (SELECT table_id FROM {source}.main.ducklake_table \
             WHERE end_snapshot IS NULL)) OR (scope = 'schema' AND scope_id IN (SELECT schema_id \
             FROM {source}.main.ducklake_schema WHERE end_snapshot IS NULL))",
            source
        ),
        "ducklake_table_column_stats" => sql!(
            "(table_id, column_id) IN (SELECT (table_id, column_id) FROM {source}.main.ducklake_column \
             WHERE end_snapshot IS NULL)",
            source
        ),
        // A file keeps the partitioning it was written with.
        "ducklake_partition_column" => sql!(
            "{info} OR {files}",
            info = live("partition_id", "ducklake_partition_info"),
            files = live("partition_id", "ducklake_data_file")
        ),
        "ducklake_sort_expression" => live("sort_id", "ducklake_sort_info"),
        "ducklake_column_mapping" | "ducklake_name_mapping" => live("mapping_id", "ducklake_data_file"),
        "ducklake_macro_impl" | "ducklake_macro_parameters" => live("macro_id", "ducklake_macro"),
        "ducklake_schema_versions" if has("table_id") => sql!(
            "{live} AND (table_id, begin_snapshot) IN (SELECT (table_id, max(begin_snapshot)) \
             FROM {source}.main.ducklake_schema_versions GROUP BY table_id)",
            live = live("table_id", "ducklake_table"),
            source
        ),
        "ducklake_schema_versions" => {
            sql!("begin_snapshot = (SELECT max(begin_snapshot) FROM {source}.main.ducklake_schema_versions)", source)
        }
        _ if has("end_snapshot") => sql!("end_snapshot IS NULL"),
        _ => sql!("true"),
    })
}
