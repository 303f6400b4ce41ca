//! `fdl_url(where)`: the catalog of a version, and the statement that attaches it from plain DuckDB.

use super::{column, text};
use crate::lake;
use crate::repo;
use crate::sql::formats::SessionReader;
use crate::sql::place::{catalog_place, default_alias, of_call};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_url",
    positional: Some("repository or lake"),
    named: &[text("ref"), text("token")],
    columns: &[
        column("version", ColumnType::Text),
        column("url", ColumnType::Text),
        column("data_path", ColumnType::Text),
        column("attach_sql", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    place.require_pushed(arguments, "read")?;
    let (repository, resolved) = place.open(context, arguments)?;
    let opened = context.block_on(repo::open_version(repository.store(), &resolved, None))??;
    let connection = context.connection()?;
    let catalog = match SessionReader::if_any(&connection)? {
        Some(reader) => reader.catalog(&opened)?,
        None => opened.record.main_catalog(),
    };
    let (catalog, data_path) = (catalog_place(&repository, &catalog), repository.data_path());
    let alias = default_alias(repository.store().location());
    Ok(Output::row([
        Value::from(opened.record.id.to_string()),
        Value::from(catalog.as_str()),
        Value::from(data_path.as_str()),
        Value::from(lake::attach_version_sql(&catalog, &alias, &data_path)),
    ]))
}
