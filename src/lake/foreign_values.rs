//! What the rows of a foreign catalog must hold (docs/design/0006): what DuckLake takes for granted. A number that is missing is an
//! internal error to it, after which DuckDB gives up the user's database; a row that it takes for current and fdl does not would hide a view
//! or another folder from the look at the version.

use super::LakeError;
use crate::engine::{Connection, Identifier, Sql, identifier, sql};
use crate::format::{DataDir, FormatError};

/// Tables whose rows are valid from one snapshot to another.
const VERSIONED: [&str; 11] = [
    "ducklake_schema",
    "ducklake_table",
    "ducklake_view",
    "ducklake_tag",
    "ducklake_column_tag",
    "ducklake_column",
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_partition_info",
    "ducklake_macro",
    "ducklake_sort_info",
];

/// Columns that are never NULL.
const NEVER_NULL: [(&str, &str); 16] = [
    ("ducklake_snapshot", "snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id"),
    ("ducklake_schema", "schema_id, schema_uuid, schema_name, path, path_is_relative"),
    ("ducklake_table", "table_id, table_uuid, schema_id, table_name, path, path_is_relative"),
    ("ducklake_view", "view_id, view_uuid, schema_id, view_name, dialect, sql"),
    ("ducklake_column", "column_id, table_id, column_order, column_name, column_type, nulls_allowed"),
    ("ducklake_data_file", "data_file_id, table_id, path, path_is_relative, record_count, file_size_bytes"),
    (
        "ducklake_delete_file",
        "delete_file_id, table_id, data_file_id, path, path_is_relative, delete_count, file_size_bytes",
    ),
    ("ducklake_tag", "object_id, key"),
    ("ducklake_column_tag", "table_id, column_id, key"),
    ("ducklake_partition_info", "partition_id, table_id"),
    ("ducklake_partition_column", "partition_id, partition_key_index, column_id, transform"),
    ("ducklake_macro", "schema_id, macro_id, macro_name"),
    ("ducklake_macro_impl", "macro_id, impl_id, dialect, sql, type"),
    ("ducklake_macro_parameters", "macro_id, impl_id, column_id, parameter_name, parameter_type, default_value_type"),
    ("ducklake_sort_info", "sort_id, table_id"),
    ("ducklake_sort_expression", "sort_id, sort_key_index, expression, dialect, sort_direction, null_order"),
];

/// The highest number that DuckLake can write into a Parquet file as that of a column.
const HIGHEST_COLUMN: i64 = i32::MAX as i64;

/// Whether a format has a metadata table.
type Has<'a> = &'a dyn Fn(&str) -> bool;

/// What is wrong with the rows of the catalog `database`, in a sentence; nothing when all is right.
///
/// # Errors
/// [`LakeError::Format`] for a folder that leaves the data folder; DuckDB's.
pub(super) fn odd_value(
    connection: &Connection,
    database: &Identifier,
    has: Has<'_>,
) -> Result<Option<String>, LakeError> {
    let any = |table: &str, condition: Sql| -> Result<bool, LakeError> {
        let found = sql!(
            "SELECT 1 FROM {database}.main.{table} WHERE {condition} LIMIT 1",
            database,
            table = identifier(table),
            condition
        );
        Ok(!connection.query(found)?.is_empty())
    };
    for (table, columns) in NEVER_NULL.iter().filter(|(table, _)| has(table)) {
        for column in columns.split(", ") {
            if any(table, sql!("{column} IS NULL", column = identifier(column)))? {
                return Ok(Some(format!("{table}.{column} is NULL in a row")));
            }
        }
    }
    let last = sql!("(SELECT max(snapshot_id) FROM {database}.main.ducklake_snapshot)", database);
    for table in VERSIONED.iter().filter(|table| has(table)) {
        let strange = sql!(
            "begin_snapshot IS NULL OR begin_snapshot > {last} OR end_snapshot > {last} OR begin_snapshot > end_snapshot",
            last
        );
        if any(table, strange)? {
            return Ok(Some(format!("a row of {table} begins or ends at a snapshot that there is not")));
        }
    }
    for table in ["ducklake_column", "ducklake_file_column_stats"] {
        let strange = sql!("column_id < 0 OR column_id > {highest}", highest = HIGHEST_COLUMN);
        if any(table, strange)? {
            return Ok(Some(format!("{table} has a column number that DuckLake does not give")));
        }
    }
    let children = sql!(
        "end_snapshot IS NULL AND column_type IN ('struct', 'list', 'map') AND (SELECT count(*) FROM {database}.main.ducklake_column c \
         WHERE c.table_id = ducklake_column.table_id AND c.parent_column = ducklake_column.column_id AND c.end_snapshot IS NULL) \
         NOT BETWEEN CASE column_type WHEN 'map' THEN 2 ELSE 1 END \
         AND CASE column_type WHEN 'list' THEN 1 WHEN 'map' THEN 2 ELSE 100000 END",
        database
    );
    if any("ducklake_column", children)? {
        return Ok(Some("a nested column has not the parts of its type".to_owned()));
    }
    if has("ducklake_macro") {
        let bodiless = sql!("macro_id NOT IN (SELECT macro_id FROM {database}.main.ducklake_macro_impl)", database);
        if any("ducklake_macro", bodiless)? {
            return Ok(Some("a macro has no implementation".to_owned()));
        }
    }
    require_folders_inside(connection, database)?;
    Ok(None)
}

/// Every folder of a schema or a table lies in the data folder, whether a file lies in it yet or not: DuckLake writes new ones there.
fn require_folders_inside(connection: &Connection, database: &Identifier) -> Result<(), LakeError> {
    let folders = connection.query(sql!(
        "SELECT DISTINCT path, path_is_relative FROM (SELECT path, path_is_relative FROM {database}.main.ducklake_schema UNION ALL \
         SELECT path, path_is_relative FROM {database}.main.ducklake_table) LIMIT 1000000",
        database
    ))?;
    for folder in folders {
        let path = folder.text(0)?;
        if !folder.boolean(1)? {
            let (key, why) = (path.to_owned(), "a folder of a schema or a table is relative to the data folder");
            return Err(FormatError::BadPath { path: key, why }.into());
        }
        if path.is_empty() {
            continue;
        }
        if !path.ends_with('/') {
            let (key, why) = (path.to_owned(), "a folder ends in '/'");
            return Err(FormatError::BadPath { path: key, why }.into());
        }
        // The key that a file in it would have.
        DataDir::default().key(&format!("{path}x"))?;
    }
    Ok(())
}
