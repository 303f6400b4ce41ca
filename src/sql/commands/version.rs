//! `fdl_version()`: what is running.

use crate::engine::sql;
use crate::sql::{Arguments, Column, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_version",
    positional: None,
    named: &[],
    columns: &[
        Column { name: "fdl", kind: ColumnType::Text },
        Column { name: "duckdb", kind: ColumnType::Text },
        Column { name: "ducklake", kind: ColumnType::Text },
        Column { name: "platform", kind: ColumnType::Text },
    ],
    run,
};

/// The version of ducklake is NULL while that extension is not loaded.
fn run(context: &Context, _: &Arguments) -> Result<Output, Error> {
    let row = context.connection()?.row(sql!(
        "SELECT version(), (SELECT max(extension_version) FROM duckdb_extensions() \
         WHERE extension_name = 'ducklake' AND loaded), (SELECT platform FROM pragma_platform())"
    ))?;
    Ok(Output::row([
        Value::from(env!("CARGO_PKG_VERSION")),
        Value::from(row.text(0)?),
        Value::from(row.optional_text(1)?),
        Value::from(row.text(2)?),
    ]))
}
