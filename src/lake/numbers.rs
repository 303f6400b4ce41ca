//! Numbers that DuckLake gives are never given twice (docs/format.md section 11).
//!
//! Most of them are counted in the last snapshot, which every copy of a catalog keeps. The number of a new column is not: it is the
//! highest in `ducklake_column` plus one, rows that have ended included. A catalog that is cut down to its current snapshot has no such
//! rows, and a new column would get the number of one that was dropped: with it the values that the data files still hold.

use super::LakeError;
use crate::engine::{Connection, Identifier, sql};

/// Makes each live table of the catalog `target` know the highest number that a column of it ever had, as far as the columns of the
/// catalog `columns` and the file statistics of the catalog `statistics` tell.
///
/// A table whose highest number is not that of a column in `target` gets one row for it that is valid at no snapshot. It has no name:
/// what a dropped column was called need not be published.
pub(super) fn keep_highest(
    connection: &Connection,
    target: &Identifier,
    columns: &Identifier,
    statistics: &Identifier,
) -> Result<(), LakeError> {
    Ok(connection.execute(sql!(
        "INSERT INTO {target}.main.ducklake_column (column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, \
         column_type, nulls_allowed) SELECT highest, 0, 0, table_id, highest, '', 'int32', true FROM \
         (SELECT table_id::BIGINT AS table_id, max(column_id::BIGINT) AS highest FROM \
         (SELECT table_id, column_id FROM {columns}.main.ducklake_column UNION ALL \
         SELECT table_id, column_id FROM {statistics}.main.ducklake_file_column_stats) GROUP BY ALL) \
         JOIN (SELECT table_id::BIGINT AS table_id, max(column_id::BIGINT) AS known FROM {target}.main.ducklake_column GROUP BY ALL) \
         USING (table_id) WHERE highest > known AND table_id IN \
         (SELECT table_id::BIGINT FROM {target}.main.ducklake_table WHERE end_snapshot IS NULL)",
        target,
        columns,
        statistics
    ))?)
}
