//! `fdl_tag(repository)`: makes a tag.

use super::branch::{COLUMNS, make, required_name};
use super::text;
use crate::format::RefName;
use crate::repo;
use crate::sql::{Arguments, Command, Context, Error, Output};

pub(super) const COMMAND: Command = Command {
    name: "fdl_tag",
    positional: Some("repository"),
    named: &[text("name"), text("ref"), text("token")],
    columns: COLUMNS,
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let name = RefName::tag(required_name(arguments)?)?;
    make(context, arguments, |repository, version| {
        context.block_on(repo::create_tag(repository.store(), &name, version))
    })
}
