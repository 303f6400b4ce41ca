//! `fdl_log(where)`: the history of a version, newest first.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use super::{column, number, text};
use crate::format::{Author, Dataset, Record, layout};
use crate::lake::{self, LakeError};
use crate::repo::{self, LogEntry, LogOptions, RepoError, State};
use crate::sql::place::{Lake, of_call};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

/// How many versions are read before DuckDB may look whether it was interrupted.
const STEP: usize = 16;

pub(super) const COMMAND: Command = Command {
    name: "fdl_log",
    positional: Some("repository or lake"),
    named: &[text("ref"), number("max_count"), text("token")],
    columns: &[
        column("version", ColumnType::Text),
        column("parent", ColumnType::Text),
        column("refs", ColumnType::TextList),
        column("author", ColumnType::Text),
        column("message", ColumnType::Text),
        column("created", ColumnType::Timestamp),
        column("state", ColumnType::Text),
        column("reason", ColumnType::Text),
        column("tables", ColumnType::Integer),
        column("rows", ColumnType::Integer),
        column("bytes", ColumnType::Integer),
        column("signed", ColumnType::Boolean),
        column("sha256", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let max_count = arguments.count("max_count")?.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let place = of_call(context, arguments)?;
    let (_, resolved) = place.open(context, arguments)?;
    let mut first: Vec<Vec<Value>> = Vec::new();
    if let (Some(lake), None) = (&place.lake, arguments.text("ref")) {
        first = local_entries(lake)?;
    }
    first.truncate(max_count.unwrap_or(usize::MAX));
    let left = max_count.map(|count| count - first.len());
    let Some(start) = resolved.version else {
        return Ok(Output::Rows(first));
    };
    let refs = context.block_on(repo::list_refs(place.access.store.as_ref()))??.by_version();
    let options = LogOptions { max_count: left, totals: true, refs };
    let mut entries = Box::pin(repo::log(Arc::clone(&place.access.store), start, options));
    let (context, reference) = (context.clone(), resolved.reference);
    Ok(Output::Steps(Box::new(move || {
        if !first.is_empty() {
            return Ok(std::mem::take(&mut first));
        }
        let read: Result<Vec<LogEntry>, RepoError> = context.block_on(entries.by_ref().take(STEP).try_collect())?;
        let read = read.map_err(|error| match &reference {
            Some(reference) => error.named_by(reference),
            None => error,
        })?;
        Ok(read.iter().map(published_row).collect())
    })))
}

/// Versions that are committed and not pushed, newest first.
fn local_entries(lake: &Lake) -> Result<Vec<Vec<Value>>, Error> {
    let read = |path: std::path::PathBuf| {
        crate::format::read_small(&path).map_err(|source| Error::from(LakeError::Io { action: "read", path, source }))
    };
    let mut rows = Vec::new();
    for id in lake.checkout.local.iter().rev() {
        let folder = lake::version_folder(&lake.file, *id);
        let record = Record::parse(*id, &read(folder.join(layout::VERSION_JSON))?).map_err(RepoError::from)?;
        let totals = Dataset::parse(&read(folder.join(layout::DATASET_JSON))?).map_err(RepoError::from)?.totals;
        let signed = folder.join(layout::SIGNATURE).exists();
        rows.push(row(&record, Vec::new(), "local", None, Some(totals), signed));
    }
    Ok(rows)
}

fn published_row(entry: &LogEntry) -> Vec<Value> {
    let state = match &entry.state {
        State::Live => "live",
        State::Expired(_) => "expired",
        State::Withdrawn(_) => "withdrawn",
    };
    let reason = entry.state.mark().map(|mark| {
        let reason = mark.reason.as_ref().map(ToString::to_string);
        [reason, mark.message.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ")
    });
    let refs = entry.refs.iter().map(|name| name.full().to_owned()).collect();
    row(&entry.record, refs, state, reason, entry.totals, entry.signed)
}

fn row(
    record: &Record,
    refs: Vec<String>,
    state: &str,
    reason: Option<String>,
    totals: Option<crate::format::Totals>,
    signed: bool,
) -> Vec<Value> {
    vec![
        Value::from(record.id.to_string()),
        Value::from(record.parent().map(|id| id.to_string())),
        Value::from(refs),
        Value::from(record.author.as_ref().map(Author::to_string)),
        Value::from(record.message.clone()),
        record.created.map_or(Value::Null, |created| Value::Timestamp(created.utc().timestamp_micros())),
        Value::from(state),
        Value::from(reason),
        Value::from(totals.map(|totals| totals.tables)),
        Value::from(totals.map(|totals| totals.rows)),
        Value::from(totals.map(|totals| totals.bytes)),
        Value::from(signed),
        Value::from(record.sha256.to_string()),
    ]
}
