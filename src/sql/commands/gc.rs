//! `fdl_gc(repository)`: deletes what no live version needs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::{catalog_files, column, duration, flag, interval, text};
use crate::format::{Clock, Files, SystemRandom, layout, read_small};
use crate::lake::{self, LakeError};
use crate::repo::{self, GcOptions, GcRow, LookInto, Repository};
use crate::sql::cache::temporary_folder;
use crate::sql::place::{Lake, of_call};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_gc",
    positional: Some("repository or lake"),
    named: &[interval("grace"), flag("dry_run"), text("token")],
    columns: &[
        column("path", ColumnType::Text),
        column("bytes", ColumnType::Integer),
        column("age", ColumnType::Interval),
        column("reason", ColumnType::Text),
        column("done", ColumnType::Boolean),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    let repository = context.block_on(Repository::open(Arc::clone(&place.access.store)))??;
    let mut options = GcOptions::default();
    if let Some(grace) = duration(context, arguments, "grace")? {
        options.grace = grace;
    }
    let folder = temporary_folder()?;
    if let Some(lake) = &place.lake {
        options.files = needed_by(context, lake, folder.path())?;
        options.versions = lake.checkout.local.iter().copied().collect();
    }
    let files = catalog_files(&repository.settings().data_dir);
    let look = LookInto { scratch: folder.path(), files: Some(&files) };
    let now = context.clock().now();
    let plan = context.block_on(repo::plan_gc(&repository, &options, look, now))??;
    let rows = match arguments.boolean_or("dry_run", true) {
        true => plan.rows,
        false => context.block_on(repo::run_gc(&repository, plan, &options, look, &SystemRandom))??,
    };
    Ok(Output::Rows(rows.iter().map(row).collect()))
}

/// The data files of this working copy that no published version may name yet: those of its versions that are not pushed,
/// and those that the working catalog names, committed or not.
fn needed_by(context: &Context, lake: &Lake, folder: &Path) -> Result<HashSet<String>, Error> {
    let mut needed = HashSet::new();
    let mut need = |files: &Files| needed.extend(files.iter().map(|(key, _)| key.to_owned()));
    let connection = context.connection()?;
    need(&lake::working_files(&connection, &lake.file, &lake.checkout, folder)?);
    for id in &lake.checkout.local {
        let path = lake::version_folder(&lake.file, *id).join(layout::FILES_JSON);
        let bytes = read_small(&path).map_err(|source| LakeError::Io { action: "read", path, source })?;
        need(&Files::parse(&bytes, &lake.checkout.data_dir)?);
    }
    Ok(needed)
}

fn row(row: &GcRow) -> Vec<Value> {
    vec![
        Value::from(row.path.as_str()),
        Value::from(row.bytes),
        Value::Interval(row.age.num_microseconds().unwrap_or(i64::MAX)),
        Value::from(row.reason.to_string()),
        Value::from(row.done),
    ]
}
