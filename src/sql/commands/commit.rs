//! `fdl_commit(lake)`: makes a version of what the working catalog holds, beside it.

use super::{column, flag, text, texts};
use crate::engine::Connection;
use crate::format::{Clock, Timestamp, VersionId, layout};
use crate::lake::{self, Checkout, Commit, CommitRequest, WorkingCopy};
use crate::sql::author::default_author;
use crate::sql::formats::refresh_catalog_formats;
use crate::sql::place::{Lake, expand, find_lake};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value, trust};

pub(super) const COMMAND: Command = Command {
    name: "fdl_commit",
    positional: Some("lake"),
    named: &[
        text("message"),
        text("author"),
        flag("force"),
        flag("keep_snapshots"),
        flag("allow_encrypted"),
        text("sign_with"),
        texts("sources"),
    ],
    columns: &[
        column("version", ColumnType::Text),
        column("parent", ColumnType::Text),
        column("committed", ColumnType::Boolean),
        column("tables_changed", ColumnType::Integer),
        column("tables", ColumnType::Integer),
        column("rows", ColumnType::Integer),
        column("files", ColumnType::Integer),
        column("bytes", ColumnType::Integer),
        column("note", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let connection = context.connection()?;
    let (access, lake) = find_lake(context, &connection, arguments)?;
    let (copy, mut checkout) = open_copy(&connection, &lake)?;
    refresh_catalog_formats(context, &access.store, &mut checkout)?;
    let commit = commit(context, &connection, &copy, &mut checkout, arguments)?;
    let totals = &commit.description.dataset.totals;
    Ok(Output::row([
        Value::from(commit.version.map(|id| id.to_string())),
        Value::from(commit.parent.map(|id| id.to_string())),
        Value::from(commit.committed),
        Value::from(commit.tables_changed),
        Value::from(totals.tables),
        Value::from(totals.rows),
        Value::from(totals.files),
        Value::from(totals.bytes),
        note(&commit.notes),
    ]))
}

/// Locks the working copy and reads the checkout in force, which may have changed since it was looked for.
pub(super) fn open_copy(connection: &Connection, lake: &Lake) -> Result<(WorkingCopy, Checkout), Error> {
    let copy = WorkingCopy::lock(&lake.file)?;
    let mark = lake::latest_snapshot(connection, &lake.file)?.and_then(|latest| latest.checkout);
    let checkout = copy.checkout(mark.as_deref())?;
    Ok((copy, checkout))
}

/// Commits with the arguments that `fdl_commit` and `fdl_push` share.
pub(super) fn commit(
    context: &Context,
    connection: &Connection,
    copy: &WorkingCopy,
    checkout: &mut Checkout,
    arguments: &Arguments,
) -> Result<Commit, Error> {
    let author = arguments.text("author").map_or_else(default_author, str::to_owned);
    let signer = trust::signer(arguments, &author)?;
    let signs = signer.is_some();
    let request = CommitRequest {
        id: context.ids().next(),
        author,
        message: arguments.text("message").map(str::to_owned),
        created: Timestamp::new(context.clock().now()),
        force: arguments.boolean("force"),
        keep_snapshots: arguments.boolean("keep_snapshots"),
        allow_encrypted: arguments.boolean("allow_encrypted"),
        sources: arguments.texts("sources").iter().map(|path| expand(path)).collect(),
        catalog_formats: checkout.catalog_formats.clone(),
        signer,
    };
    let mut commit = lake::commit(connection, copy, checkout, request)?;
    let unsigned = |id: &VersionId| !copy.version(*id).join(layout::SIGNATURE).exists();
    if signs && !commit.committed && checkout.local.last().is_some_and(unsigned) {
        commit
            .notes
            .push("nothing has changed since a version that is not signed; force := true makes one that is".into());
    }
    Ok(commit)
}

/// Notes as one text, NULL when there is nothing to say.
pub(super) fn note(notes: &[String]) -> Value {
    if notes.is_empty() { Value::Null } else { Value::from(notes.join("; ")) }
}
