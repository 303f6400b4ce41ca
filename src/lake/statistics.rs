//! The statistics of a table's columns, over all its files.
//!
//! DuckLake widens them with each insert and never narrows them: the least and the greatest value of a column stay there
//! after the row that had them was deleted and its file rewritten. In a frozen catalog that would publish a value which
//! no file of the version holds, and which `fdl_withdraw` could not take back. It also loses bounds when a column changes
//! its type, and then has narrower ones than its files (1.5.5); DuckDB gives wrong answers by those.

use std::collections::BTreeSet;

use super::LakeError;
use super::types;
use crate::engine::{Connection, Sql, SqlType, identifier, literal, sql};

/// The type to which the bounds of a column are cast from the text they are kept as, so that DuckDB orders them as it does
/// the values; nothing where it does not, or where the catalog names no type that fdl knows.
fn ordered(column_type: &str) -> Option<SqlType> {
    match types::of_ducklake(column_type)? {
        // Ordered as the text it is.
        SqlType::Json => Some(SqlType::Varchar),
        SqlType::TimeWithTimeZone | SqlType::Interval | SqlType::Variant | SqlType::Geometry => None,
        other => Some(other),
    }
}

/// Gives each column of a catalog the bounds that its files have among them.
///
/// Where a file does not tell, or the order of a type is not known, the column has no statistics any more, as one that
/// was added to a table with files has none. Bounds that are both NULL would say that it has no value, and the next
/// insert would set them to its own.
pub(super) fn of_the_files(connection: &Connection, catalog: &str) -> Result<(), LakeError> {
    let to = sql!("{catalog}.main", catalog = identifier(catalog));
    connection.execute(sql!(
        "CREATE OR REPLACE TEMP TABLE fdl_columns AS SELECT s.table_id, s.column_id, \
         coalesce(arg_max(c.column_type, c.begin_snapshot), '') AS column_type \
         FROM {to}.ducklake_table_column_stats s LEFT JOIN {to}.ducklake_column c USING (table_id, column_id) GROUP BY ALL",
        to
    ))?;
    let rows = connection.query(sql!("SELECT DISTINCT column_type FROM fdl_columns"))?;
    let types = rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect::<Result<BTreeSet<String>, LakeError>>()?;
    for column_type in &types {
        connection.execute(statements(column_type, &to))?;
    }
    Ok(connection.execute(sql!("DROP TABLE temp.fdl_columns"))?)
}

/// What sets the statistics of the columns of one type.
fn statements(column_type: &str, catalog: &Sql) -> Sql {
    let stats = sql!("{catalog}.ducklake_table_column_stats", catalog);
    let of_type = sql!("column_type = {column_type}", column_type = literal(column_type));
    let Some(sql_type) = ordered(column_type) else {
        return sql!(
            "DELETE FROM {stats} WHERE (table_id, column_id) IN (SELECT (table_id, column_id) FROM fdl_columns WHERE {of_type})",
            stats,
            of_type
        );
    };
    sql!(
        "CREATE OR REPLACE TEMP TABLE fdl_bounds AS SELECT c.table_id, c.column_id, \
         coalesce(bool_and(d.data_file_id IS NULL OR coalesce(f.value_count = 0 \
         OR ({least} IS NOT NULL AND {greatest} IS NOT NULL), false)), true) AS known, \
         arg_min(f.min_value, {least}) AS least, arg_max(f.max_value, {greatest}) AS greatest \
         FROM fdl_columns c LEFT JOIN {catalog}.ducklake_data_file d USING (table_id) \
         LEFT JOIN {catalog}.ducklake_file_column_stats f ON f.data_file_id = d.data_file_id AND f.column_id = c.column_id \
         WHERE c.{of_type} GROUP BY ALL; \
         DELETE FROM {stats} WHERE (table_id, column_id) IN (SELECT (table_id, column_id) FROM fdl_bounds WHERE NOT known); \
         UPDATE {stats} s SET min_value = b.least, max_value = b.greatest FROM fdl_bounds b \
         WHERE s.table_id = b.table_id AND s.column_id = b.column_id AND b.known \
         AND (s.min_value IS DISTINCT FROM b.least OR s.max_value IS DISTINCT FROM b.greatest); \
         DROP TABLE temp.fdl_bounds",
        catalog,
        stats,
        of_type,
        least = sql!("TRY_CAST(f.min_value AS {sql_type})", sql_type),
        greatest = sql!("TRY_CAST(f.max_value AS {sql_type})", sql_type)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_none_is_only_compared() {
        let catalog = sql!("{c}.main", c = identifier("c"));
        for (name, cast) in [
            ("decimal(18,3)", Some("DECIMAL(18,3)")),
            ("int64", Some("BIGINT")),
            ("json", Some("VARCHAR")),
            ("timetz", None),
            ("interval", None),
            ("struct", None),
            ("decimal(99,1)", None),
            ("decimal(1,2)", None),
            ("DECIMAL(18,3)", None),
            ("decimal(18,3)) IS NOT NULL); COPY (SELECT 42) TO 'x'; --", None),
        ] {
            let made = statements(name, &catalog).to_text();
            match cast {
                Some(cast) => assert!(made.contains(&format!("TRY_CAST(f.min_value AS {cast})")), "{made}"),
                None => assert_eq!(
                    made,
                    format!(
                        "DELETE FROM \"c\".main.ducklake_table_column_stats WHERE (table_id, column_id) IN \
                         (SELECT (table_id, column_id) FROM fdl_columns WHERE column_type = {})",
                        literal(name).to_text()
                    )
                ),
            }
        }
    }
}
