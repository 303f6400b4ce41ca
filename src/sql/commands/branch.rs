//! `fdl_branch(repository)`: makes a branch.

use super::{column, text};
use crate::format::RefName;
use crate::repo::{self, RefChange, RepoError, Repository};
use crate::sql::conditions;
use crate::sql::place::of_call;
use crate::sql::{Arguments, Column, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_branch",
    positional: Some("repository"),
    named: &[text("name"), text("ref"), text("token")],
    columns: COLUMNS,
    run,
};

/// What the commands that make or delete a ref give.
pub(super) const COLUMNS: &[Column] =
    &[column("ref", ColumnType::Text), column("version", ColumnType::Text), column("note", ColumnType::Text)];

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let name = RefName::branch(required_name(arguments)?)?;
    make(context, arguments, |repository, version| {
        context.block_on(repo::create_branch(repository.store(), &name, version))
    })
}

pub(super) fn required_name(arguments: &Arguments) -> Result<&str, Error> {
    let missing = || Error::bad_argument("name is missing").with_hint("say which with name := '…'.");
    arguments.text("name").ok_or_else(missing)
}

/// Makes a ref at the revision that the call names.
pub(super) fn make(
    context: &Context,
    arguments: &Arguments,
    create: impl FnOnce(&Repository, crate::format::VersionId) -> Result<Result<RefChange, RepoError>, Error>,
) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    place.require_pushed(arguments, "name")?;
    let (repository, resolved) = place.open(context, arguments)?;
    conditions::require(context, &place.access)?;
    let made = create(&repository, resolved.version()?)??;
    Ok(row(&made))
}

pub(super) fn row(change: &RefChange) -> Output {
    Output::row([
        Value::from(change.reference.full()),
        Value::from(change.version.to_string()),
        super::commit::note(&change.notes),
    ])
}
