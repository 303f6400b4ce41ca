//! `fdl_tables(where)`: the tables, views and macros of a version.

use super::{column, text};
use crate::format::{Dataset, TableKind};
use crate::sql::contents::read;
use crate::sql::place::of_call;
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_tables",
    positional: Some("repository or lake"),
    named: &[text("ref"), text("token")],
    columns: &[
        column("schema", ColumnType::Text),
        column("name", ColumnType::Text),
        column("kind", ColumnType::Text),
        column("rows", ColumnType::Integer),
        column("files", ColumnType::Integer),
        column("bytes", ColumnType::Integer),
        column("columns", ColumnType::TableColumns),
        column("sql", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    let dataset: Dataset = read(context, &place, arguments)?;
    let mut rows = Vec::new();
    for schema in &dataset.schemas {
        for table in &schema.tables {
            let kind = match table.kind {
                TableKind::Table => "table",
                TableKind::View => "view",
            };
            let columns = table.columns.iter();
            let columns = columns.map(|column| (column.name.clone(), column.data_type.clone(), column.nullable));
            rows.push(vec![
                Value::from(schema.name.as_str()),
                Value::from(table.name.as_str()),
                Value::from(kind),
                Value::from(table.rows),
                Value::from(table.files),
                Value::from(table.bytes),
                Value::TableColumns(columns.collect()),
                Value::from(table.sql.clone()),
            ]);
        }
        for definition in &schema.macros {
            rows.push(vec![
                Value::from(schema.name.as_str()),
                Value::from(definition.name.as_str()),
                Value::from("macro"),
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::from(definition.sql.as_str()),
            ]);
        }
    }
    Ok(Output::Rows(rows))
}
