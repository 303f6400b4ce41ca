//! Comparing the rows of two tables as multisets: order does not matter, duplicates count.

use super::LakeError;
use super::definition::Column;
use crate::engine::{Connection, Sql, identifier, sql};

/// How two tables' rows differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowDifference {
    /// Rows that only the new table has.
    pub added: u64,
    /// Rows that only the old table has.
    pub removed: u64,
}

impl RowDifference {
    /// Whether the rows are the same.
    pub fn is_none(self) -> bool {
        self.added == 0 && self.removed == 0
    }
}

/// Counts the rows that one of two tables has and the other has not. They have the columns given.
pub(super) fn difference(
    connection: &Connection,
    old: &Sql,
    new: &Sql,
    columns: &[Column],
) -> Result<RowDifference, LakeError> {
    let keys: Vec<Sql> = columns.iter().flat_map(keys).collect();
    let names = Sql::join(columns.iter().map(|column| identifier(&column.name)), ", ");
    let mut weight = "__fdl_weight".to_owned();
    while columns.iter().any(|column| column.name.eq_ignore_ascii_case(&weight)) {
        weight.push('_');
    }
    let weight = identifier(&weight);
    // One pass over both, grouped by whole rows; DuckDB spills what memory cannot hold.
    let row = connection.row(sql!(
        "SELECT coalesce(sum({weight}) FILTER ({weight} > 0), 0)::BIGINT, \
         coalesce(-sum({weight}) FILTER ({weight} < 0), 0)::BIGINT \
         FROM (SELECT {list}, sum({weight}) AS {weight} FROM (SELECT {names}, 1 AS {weight} FROM {new} \
         UNION ALL SELECT {names}, -1 FROM {old}) GROUP BY {places} HAVING sum({weight}) <> 0)",
        list = Sql::join(&keys, ", "),
        places = Sql::join(1..=keys.len(), ", "),
        weight,
        names,
        old,
        new
    ))?;
    Ok(RowDifference { added: row.count(0)?, removed: row.count(1)? })
}

/// What tells the values of a column apart. Some values are equal to DuckDB and not the same: 0.0 and -0.0, or intervals
/// of a month and of 30 days. Their texts are different.
fn keys(column: &Column) -> Vec<Sql> {
    let name = sql!("{name}", name = identifier(&column.name));
    let holds = |part: &str| column.data_type.contains(part);
    match column.data_type.as_str() {
        "FLOAT" | "DOUBLE" => vec![sql!("signbit({name})", name), name],
        _ if ["FLOAT", "DOUBLE", "INTERVAL", "TIME WITH TIME ZONE", "VARIANT"].iter().any(|part| holds(part)) => {
            vec![sql!("{name}::VARCHAR", name), name]
        }
        _ => vec![name],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_and_not_the_same() {
        let keys = |data_type: &str| {
            let data_type = data_type.to_owned();
            keys(&Column { name: "a\"b".to_owned(), data_type, nullable: true, comment: None, default: None }).len()
        };
        for (data_type, count) in
            [("BIGINT", 1), ("DOUBLE", 2), ("INTERVAL", 2), ("STRUCT(\"x\" FLOAT[])", 2), ("VARCHAR", 1)]
        {
            assert_eq!(keys(data_type), count, "{data_type}");
        }
    }
}
