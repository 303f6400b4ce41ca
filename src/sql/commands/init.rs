//! `fdl_init(repository)`: starts a repository.

use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use super::{column, text, texts};
use crate::format::{CatalogFormat, DataDir, RefName, SystemRandom};
use crate::repo::{self, InitOptions};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};
use crate::sql::{access, conditions};

pub(super) const COMMAND: Command = Command {
    name: "fdl_init",
    positional: Some("repository"),
    named: &[text("data_dir"), text("branch"), text("id"), texts("signers"), texts("catalog_formats"), text("token")],
    columns: &[
        column("repository", ColumnType::Text),
        column("id", ColumnType::Text),
        column("head", ColumnType::Text),
        column("data_dir", ColumnType::Text),
        column("created", ColumnType::Boolean),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let mut options = InitOptions::new(RefName::branch(arguments.text("branch").unwrap_or("main"))?);
    if let Some(data_dir) = arguments.text("data_dir") {
        options.data_dir = DataDir::from_user(data_dir)?;
    }
    if let Some(id) = arguments.text("id") {
        let id = Uuid::from_str(id).map_err(|_| Error::bad_argument(format!("id {id:?} is not a UUID")))?;
        options.id = Some(id);
    }
    options.signers = arguments.texts("signers").to_vec();
    let formats = arguments.texts("catalog_formats").iter().map(|format| CatalogFormat::from_user(format));
    options.catalog_formats = formats.collect::<Result<_, _>>()?;
    let connection = context.connection()?;
    let access = access::open(context, &connection, arguments.positional()?, arguments.text("token"))?;
    drop(connection);
    let store = Arc::clone(&access.store);
    let init = context.block_on(repo::init(store.as_ref(), options, &SystemRandom))??;
    conditions::remember(context, &access);
    Ok(Output::row([
        Value::from(store.location()),
        Value::from(init.settings.id.map(|id| id.to_string())),
        Value::from(init.head.full()),
        Value::from(init.settings.data_dir.as_str()),
        Value::from(init.created),
    ]))
}
