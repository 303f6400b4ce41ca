//! `fdl_refs(where)`: the branches and tags.

use super::{column, text};
use crate::format::RefKind;
use crate::repo::{self, Repository};
use crate::sql::place::of_call;
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_refs",
    positional: Some("repository or lake"),
    named: &[text("token")],
    columns: &[
        column("ref", ColumnType::Text),
        column("kind", ColumnType::Text),
        column("name", ColumnType::Text),
        column("version", ColumnType::Text),
        column("is_default", ColumnType::Boolean),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    let refs = context.block_on(async {
        let repository = Repository::open(place.access.store).await?;
        repo::list_refs(repository.store()).await
    })??;
    let row = |(name, version): (&crate::format::RefName, &crate::format::VersionId)| {
        let kind = match name.kind() {
            RefKind::Branch => "branch",
            RefKind::Tag => "tag",
            RefKind::Request => "request",
        };
        vec![
            Value::from(name.full()),
            Value::from(kind),
            Value::from(name.short()),
            Value::from(version.to_string()),
            Value::from(*name == refs.head),
        ]
    };
    Ok(Output::Rows(refs.refs.iter().map(row).collect()))
}
