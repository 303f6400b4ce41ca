//! `fdl_diff(where)`: what differs between two versions, or between a working catalog and its last version.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use super::{column, text};
use crate::engine::Connection;
use crate::format::{Revision, layout};
use crate::lake::{self, Change, Comparison, LakeError, ReadRows, RowSource, Side};
use crate::repo::{self, Repository};
use crate::sql::cache::temporary_folder;
use crate::sql::catalogs::{self, Keep};
use crate::sql::formats::SessionReader;
use crate::sql::place::{Place, find};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_diff",
    positional: Some("repository or lake"),
    named: &[text("from_ref"), text("to_ref"), text("token")],
    columns: &[
        column("schema", ColumnType::Text),
        column("name", ColumnType::Text),
        column("change", ColumnType::Text),
        column("rows_from", ColumnType::Integer),
        column("rows_to", ColumnType::Integer),
        column("rows_added", ColumnType::Integer),
        column("rows_removed", ColumnType::Integer),
        column("files_added", ColumnType::Integer),
        column("files_removed", ColumnType::Integer),
        column("bytes_added", ColumnType::Integer),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let connection = context.connection()?;
    let place = find(context, &connection, arguments)?;
    lake::load_extensions(&connection)?;
    place.access.let_duckdb_read(context, &connection)?;
    let folder = temporary_folder()?;
    let comparison = match (arguments.text("from_ref"), arguments.text("to_ref"), &place.lake) {
        (None, None, Some(lake)) => {
            let tip = lake.checkout.tip().map(|id| lake::version_folder(&lake.file, id));
            lake::working_changes(&connection, &lake.file, &lake.checkout, tip.as_deref(), folder.path())?
        }
        (None, ..) => {
            return Err(
                Error::bad_argument("from_ref is missing").with_hint("say what to compare with from_ref := '…'.")
            );
        }
        (Some(from), to, _) => versions(context, &connection, &place, [from, to.unwrap_or_default()], folder.path())?,
    };
    if let Some(warning) = comparison.warnings.first() {
        return Err(LakeError::Corrupt { object: "a table".to_owned(), why: warning.clone() }.into());
    }
    Ok(Output::Rows(comparison.tables.iter().map(row).collect()))
}

/// Compares two published versions.
fn versions(
    context: &Context,
    connection: &Connection,
    place: &Place,
    revisions: [&str; 2],
    folder: &Path,
) -> Result<Comparison, Error> {
    let repository = context.block_on(Repository::open(Arc::clone(&place.access.store)))??;
    let [from, to] = revisions;
    let reader = SessionReader::of(connection)?;
    let fetch = |revision: &str| -> Result<_, Error> {
        let resolved = context.block_on(repo::resolve(repository.store(), &Revision::from_str(revision)?))??;
        let catalog =
            catalogs::open(context, &repository, &resolved, &reader, (&Keep::Cached, layout::MAX_CATALOG))?.file;
        let contents = lake::read_contents(connection, &catalog)?;
        Ok((catalog, contents))
    };
    let (from, to) = (fetch(from)?, fetch(to)?);
    let data_path = repository.data_path();
    let old = Side { contents: &from.1, rows: RowSource::Frozen(&from.0, &data_path) };
    let new = Side { contents: &to.1, rows: RowSource::Frozen(&to.0, &data_path) };
    Ok(lake::compare(connection, Some(old), new, ReadRows::Always, folder)?)
}

fn row(table: &lake::TableChange) -> Vec<Value> {
    let change = match table.change {
        Change::Added => "added",
        Change::Dropped => "dropped",
        Change::Schema => "schema",
        Change::Rows => "rows",
        Change::Rewritten | Change::Same => "same",
    };
    // Of a table that only one side has, every row was added or removed.
    let (added, removed) = match (table.change, table.rows) {
        (Change::Added, _) => (table.rows_now, Some(0)),
        (Change::Dropped, _) => (Some(0), table.rows_before),
        (Change::Same, _) => (Some(0), Some(0)),
        (_, rows) => (rows.map(|rows| rows.added), rows.map(|rows| rows.removed)),
    };
    vec![
        Value::from(table.schema.as_str()),
        Value::from(table.table.as_str()),
        Value::from(change),
        Value::from(table.rows_before),
        Value::from(table.rows_now),
        Value::from(added),
        Value::from(removed),
        Value::from(table.files_added),
        Value::from(table.files_removed),
        Value::from(table.bytes_added),
    ]
}
