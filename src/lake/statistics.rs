//! The statistics of a table's columns, over all its files.
//!
//! DuckLake widens them with each insert and never narrows them: the least and the greatest value of a column stay there
//! after the row that had them was deleted and its file rewritten. In a frozen catalog that would publish a value which
//! no file of the version holds, and which `fdl_withdraw` could not take back.

use super::LakeError;
use super::copy::tables;
use super::definition::scalar_type;
use crate::engine::{Connection, identifier};

const OF_TABLES: &str = "ducklake_table_column_stats";
const OF_FILES: &str = "ducklake_file_column_stats";

/// Types whose values are ordered as DuckDB orders them once they are cast from the text they are kept as.
const ORDERED: [&str; 23] = [
    "BLOB",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE",
    "UUID",
    "VARCHAR",
];

/// Takes the values out of a catalog's table statistics that none of its files has in its own. The narrower bound takes
/// their place where it is known, and NULL, which says nothing, where it is not.
pub(super) fn forget_what_no_file_holds(connection: &Connection, catalog: &str) -> Result<(), LakeError> {
    let columns = tables(connection, catalog)?;
    let to = format!("{}.main", identifier(catalog));
    let kept = ["min_value", "max_value", "extra_stats"];
    let kept = kept.iter().filter(|name| columns.get(OF_TABLES).is_some_and(|have| have.iter().any(|it| it == *name)));
    for bound in kept {
        let rows = connection.query(&format!(
            "SELECT s.table_id::BIGINT, s.column_id::BIGINT, coalesce(arg_max(c.column_type, c.begin_snapshot), '') \
             FROM {to}.{OF_TABLES} s LEFT JOIN {to}.ducklake_column c USING (table_id, column_id) \
             WHERE s.{bound} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {to}.{OF_FILES} f \
             WHERE f.table_id = s.table_id AND f.column_id = s.column_id AND f.{bound} = s.{bound}) GROUP BY ALL"
        ))?;
        for row in &rows {
            let (table, column) = (row.integer(0)?, row.integer(1)?);
            let narrower = narrower(bound, row.text(2)?, &to, table, column);
            connection.execute(&format!(
                "UPDATE {to}.{OF_TABLES} SET {bound} = ({narrower}) WHERE table_id = {table} AND column_id = {column}"
            ))?;
        }
    }
    Ok(())
}

/// A query for the bound that the files of a table have among them: NULL when the type has no order that we know, or
/// when a file does not tell.
fn narrower(bound: &str, column_type: &str, catalog: &str, table: i64, column: i64) -> String {
    let sql_type = scalar_type(column_type);
    let ordered = ORDERED.contains(&sql_type.as_str()) || column_type.starts_with("decimal(");
    let pick = match bound {
        "min_value" if ordered => "arg_min",
        "max_value" if ordered => "arg_max",
        _ => return "NULL".to_owned(),
    };
    format!(
        "SELECT CASE WHEN bool_and(f.data_file_id IS NOT NULL AND (value IS NOT NULL OR f.value_count = 0)) \
         THEN {pick}(f.{bound}, value) END FROM {catalog}.ducklake_data_file d LEFT JOIN (SELECT *, \
         TRY_CAST({bound} AS {sql_type}) AS value FROM {catalog}.{OF_FILES} WHERE column_id = {column}) f USING (data_file_id) \
         WHERE d.table_id = {table}"
    )
}
