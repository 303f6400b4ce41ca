//! `fdl_delete_ref(repository)`: deletes a branch or a tag. Versions stay.

use super::branch::{COLUMNS, row};
use super::text;
use crate::format::RefName;
use crate::repo::{self, Repository};
use crate::sql::conditions;
use crate::sql::place::of_call;
use crate::sql::{Arguments, Command, Context, Error, Output};

pub(super) const COMMAND: Command = Command {
    name: "fdl_delete_ref",
    positional: Some("repository"),
    named: &[text("ref"), text("token")],
    columns: COLUMNS,
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let full = "give the full name: ref := 'refs/heads/…' or 'refs/tags/…'.";
    let missing = || Error::bad_argument("ref is missing").with_hint(full);
    let name =
        RefName::parse(arguments.text("ref").ok_or_else(missing)?).map_err(|e| Error::from(e).with_hint(full))?;
    let place = of_call(context, arguments)?;
    conditions::require(context, &place.access)?;
    let deleted = context.block_on(async {
        let repository = Repository::open(place.access.store).await?;
        repo::delete_ref(repository.store(), &name).await
    })??;
    Ok(row(&deleted))
}
