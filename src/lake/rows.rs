//! Comparing the rows of two tables as multisets: order does not matter, duplicates count.

use super::LakeError;
use crate::engine::{Connection, identifier};

/// How two tables' rows differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowDifference {
    /// Rows that only the new table has.
    pub(super) added: u64,
    /// Rows that only the old table has.
    pub(super) removed: u64,
}

/// Counts the rows that one of two tables has and the other has not. Both are qualified and quoted names; they have the
/// columns given.
pub(super) fn difference(
    connection: &Connection,
    old: &str,
    new: &str,
    columns: &[&str],
) -> Result<RowDifference, LakeError> {
    let list = columns.iter().map(|column| identifier(column)).collect::<Vec<_>>().join(", ");
    // One pass over both, grouped by whole rows; DuckDB spills what memory cannot hold.
    let row = connection.row(&format!(
        "SELECT coalesce(sum(weight) FILTER (weight > 0), 0)::BIGINT, coalesce(-sum(weight) FILTER (weight < 0), 0)::BIGINT \
         FROM (SELECT sum(\"__fdl_weight\") AS weight FROM (SELECT {list}, 1 AS \"__fdl_weight\" FROM {new} \
         UNION ALL SELECT {list}, -1 FROM {old}) GROUP BY {list} HAVING sum(\"__fdl_weight\") <> 0)"
    ))?;
    Ok(RowDifference { added: row.count(0)?, removed: row.count(1)? })
}
