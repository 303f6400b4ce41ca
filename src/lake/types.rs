//! The names of scalar types: DuckLake's and DuckDB's.

use crate::engine::SqlType;

/// DuckLake's names. `decimal(18,3)` is the one with numbers.
const DUCKLAKE: [(&str, SqlType); 29] = [
    ("boolean", SqlType::Boolean),
    ("int8", SqlType::TinyInt),
    ("int16", SqlType::SmallInt),
    ("int32", SqlType::Integer),
    ("int64", SqlType::BigInt),
    ("int128", SqlType::HugeInt),
    ("uint8", SqlType::UTinyInt),
    ("uint16", SqlType::USmallInt),
    ("uint32", SqlType::UInteger),
    ("uint64", SqlType::UBigInt),
    ("uint128", SqlType::UHugeInt),
    ("float32", SqlType::Float),
    ("float64", SqlType::Double),
    ("date", SqlType::Date),
    ("time", SqlType::Time),
    ("timetz", SqlType::TimeWithTimeZone),
    ("timestamp", SqlType::Timestamp),
    ("timestamp_us", SqlType::Timestamp),
    ("timestamp_s", SqlType::TimestampS),
    ("timestamp_ms", SqlType::TimestampMs),
    ("timestamp_ns", SqlType::TimestampNs),
    ("timestamptz", SqlType::TimestampWithTimeZone),
    ("interval", SqlType::Interval),
    ("varchar", SqlType::Varchar),
    ("blob", SqlType::Blob),
    ("uuid", SqlType::Uuid),
    ("json", SqlType::Json),
    ("variant", SqlType::Variant),
    ("geometry", SqlType::Geometry),
];

/// The type that DuckLake calls `name`, to the letter; nothing for any other text.
pub(super) fn of_ducklake(name: &str) -> Option<SqlType> {
    let known = DUCKLAKE.iter().find(|(known, _)| *known == name).map(|(_, sql_type)| *sql_type);
    known.or_else(|| decimal(name, "decimal("))
}

/// Whether DuckLake has a type of this name, scalar or not.
pub(super) fn is_known(name: &str) -> bool {
    const OTHERS: [&str; 6] = ["struct", "list", "map", "decimal", "time_ns", "timestamptz_ns"];
    OTHERS.contains(&name) || of_ducklake(name).is_some()
}

/// The scalar type that DuckDB calls `name`, to the letter; nothing for any other text.
pub(super) fn of_duckdb(name: &str) -> Option<SqlType> {
    let known = DUCKLAKE.iter().map(|(_, sql_type)| *sql_type).find(|sql_type| sql_type.name() == name);
    known.or_else(|| decimal(name, "DECIMAL("))
}

fn decimal(name: &str, begins: &str) -> Option<SqlType> {
    let (width, scale) = name.strip_prefix(begins)?.strip_suffix(')')?.split_once(',')?;
    // Rust reads "+1" and "01" as numbers too.
    let number = |digits: &str| digits.parse::<u8>().ok().filter(|number| number.to_string() == digits);
    SqlType::decimal(number(width)?, number(scale)?)
}

/// DuckDB's name for one of DuckLake's scalar types, to be shown; a type that is not known is called as it is.
pub(super) fn scalar_type(name: &str) -> String {
    of_ducklake(name).map_or_else(|| name.to_uppercase(), |sql_type| sql_type.name().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types() {
        for (name, duckdb) in [
            ("int64", "BIGINT"),
            ("timestamp_us", "TIMESTAMP"),
            ("timetz", "TIME WITH TIME ZONE"),
            ("json", "JSON"),
            ("decimal(18,3)", "DECIMAL(18,3)"),
            ("decimal(38,38)", "DECIMAL(38,38)"),
            ("decimal(1,0)", "DECIMAL(1,0)"),
        ] {
            let sql_type = of_ducklake(name).unwrap();
            assert_eq!((sql_type.name().as_ref(), scalar_type(name).as_str()), (duckdb, duckdb));
            assert_eq!(of_duckdb(duckdb), Some(sql_type));
        }
        // One that is not known is still shown.
        assert_eq!(scalar_type("polygon z"), "POLYGON Z");
    }

    #[test]
    fn a_text_that_is_no_type_is_none() {
        for name in [
            "",
            "decimal",
            "decimal(",
            "decimal()",
            "decimal(,)",
            "decimal(99,1)",
            "decimal(39,0)",
            "decimal(0,0)",
            "decimal(1,2)",
            "decimal(256,1)",
            "decimal(-1,0)",
            "decimal(+18,3)",
            "decimal(018,3)",
            "decimal(18, 3)",
            "decimal(18,3) ",
            "decimal(18,3)\0",
            "decimal(18,3)[]",
            "decimal(１８,3)",
            "decimal(18,3)) IS NOT NULL); COPY (SELECT 42) TO 'x'; --",
            "decimal(18,3) --)",
            "DECIMAL(18,3)",
            "Int64",
            "BIGINT",
            "int64; DROP TABLE x",
            "enum('a')",
        ] {
            assert_eq!(of_ducklake(name), None, "{name}");
        }
        for name in ["bigint", "int64", "VARCHAR[]", "decimal(18,3)", "DECIMAL(1,2)", "BIGINT DEFAULT 1", "\"BIGINT\""]
        {
            assert_eq!(of_duckdb(name), None, "{name}");
        }
    }
}
