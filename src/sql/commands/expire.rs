//! `fdl_expire(repository)`: takes old versions out of retention.

use std::str::FromStr;
use std::sync::Arc;

use super::{column, duration, flag, interval, number, text, texts};
use crate::format::{Base, Clock, RefName, Revision};
use crate::repo::{self, ExpireOptions, ExpireRow, Repository};
use crate::sql::place::of_call;
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};
use crate::store::Store;

pub(super) const COMMAND: Command = Command {
    name: "fdl_expire",
    positional: Some("repository"),
    named: &[
        number("keep_last"),
        interval("older_than"),
        texts("versions"),
        text("ref"),
        flag("dry_run"),
        text("token"),
    ],
    columns: &[
        column("version", ColumnType::Text),
        column("created", ColumnType::Timestamp),
        column("action", ColumnType::Text),
        column("bytes", ColumnType::Integer),
        column("done", ColumnType::Boolean),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    let mut options = ExpireOptions {
        keep_last: arguments.count("keep_last")?,
        older_than: duration(context, arguments, "older_than")?,
        ..ExpireOptions::default()
    };
    if options.keep_last.is_none() && options.older_than.is_none() && arguments.texts("versions").is_empty() {
        return Err(Error::bad_argument("nothing says which versions are to expire")
            .with_hint("give keep_last := 10, older_than := INTERVAL '1 year' or versions := ['…']."));
    }
    let repository = context.block_on(Repository::open(Arc::clone(&place.access.store)))??;
    let store = repository.store();
    for text in arguments.texts("versions") {
        let resolved = context.block_on(repo::resolve(store, &Revision::from_str(text)?))??;
        options.versions.push(resolved.version()?);
    }
    options.reference = arguments.text("ref").map(|text| one_ref(context, store, text)).transpose()?;
    let now = context.clock().now();
    let plan = context.block_on(repo::plan_expire(store, &options, now))??;
    let rows = match arguments.boolean_or("dry_run", true) {
        true => plan.rows,
        false => context.block_on(repo::run_expire(store, plan, None, now))??,
    };
    Ok(Output::Rows(rows.iter().map(row).collect()))
}

/// The ref of a revision that names one.
pub(super) fn one_ref(context: &Context, store: &dyn Store, text: &str) -> Result<RefName, Error> {
    let revision = Revision::from_str(text)?;
    let resolved = match (&revision.base, revision.back) {
        (Base::Id(_), _) | (_, 1..) => None,
        _ => context.block_on(repo::resolve(store, &revision))??.reference,
    };
    let none = || Error::bad_argument(format!("ref {text:?} names no branch and no tag"));
    resolved.ok_or_else(|| none().with_hint("FROM fdl_refs('<repository>'); lists them."))
}

fn row(row: &ExpireRow) -> Vec<Value> {
    vec![
        Value::from(row.version.to_string()),
        row.created.map_or(Value::Null, |created| Value::Timestamp(created.utc().timestamp_micros())),
        Value::from(row.action.to_string()),
        Value::from(row.bytes),
        Value::from(row.done),
    ]
}
