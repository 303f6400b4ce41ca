//! `fdl_files(where)`: the data files of a version.

use super::{column, text};
use crate::format::Files;
use crate::sql::contents::read;
use crate::sql::place::of_call;
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_files",
    positional: Some("repository or lake"),
    named: &[text("ref"), text("token")],
    columns: &[
        column("schema", ColumnType::Text),
        column("name", ColumnType::Text),
        column("path", ColumnType::Text),
        column("rows", ColumnType::Integer),
        column("bytes", ColumnType::Integer),
        column("delete_path", ColumnType::Text),
        column("deleted_rows", ColumnType::Integer),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    let files: Files = read(context, &place, arguments)?;
    let mut rows = Vec::new();
    for table in &files.tables {
        for file in &table.files {
            rows.push(vec![
                Value::from(table.schema.as_str()),
                Value::from(table.table.as_str()),
                Value::from(file.path.as_str()),
                Value::from(file.rows),
                Value::from(file.bytes),
                Value::from(file.deletes.as_ref().map(|deletes| deletes.path.clone())),
                Value::from(file.deletes.as_ref().map(|deletes| deletes.rows)),
            ]);
        }
    }
    Ok(Output::Rows(rows))
}
