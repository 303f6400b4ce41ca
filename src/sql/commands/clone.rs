//! `fdl_clone(repository)`: copies a repository to another store, or brings a copy up to date.

use std::sync::Arc;

use super::{catalog_files, column, flag, text, texts};
use crate::repo::{self, CloneError, CloneOptions, LookInto, Repository};
use crate::sql::access;
use crate::sql::cache::temporary_folder;
use crate::sql::place::of_call;
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_clone",
    positional: Some("repository"),
    named: &[text("target"), texts("refs"), flag("sources"), flag("unknown"), text("token")],
    columns: &[
        column("objects_copied", ColumnType::Integer),
        column("objects_skipped", ColumnType::Integer),
        column("bytes_copied", ColumnType::Integer),
        column("refs", ColumnType::TextList),
        column("note", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let missing = || Error::bad_argument("target is missing").with_hint("say where to with target := '…'.");
    let target = arguments.text("target").ok_or_else(missing)?;
    let place = of_call(context, arguments)?;
    let connection = context.connection()?;
    // The token belongs to the source; a target behind HTTP has FDL_TOKEN or a secret of its own.
    let target = access::open(context, &connection, target, None)?.store;
    drop(connection);
    let repository = context.block_on(Repository::open(Arc::clone(&place.access.store)))??;
    let options = CloneOptions {
        refs: arguments.texts("refs").to_vec(),
        sources: arguments.boolean_or("sources", true),
        unknown: arguments.boolean_or("unknown", false),
    };
    let (folder, files) = (temporary_folder()?, catalog_files(&repository.settings().data_dir));
    let look = LookInto { scratch: folder.path(), files: Some(&files) };
    let cloned = context.block_on(repo::clone(&repository, target.as_ref(), &options, look))??;
    let mut notes = cloned.notes;
    if let Some(oddity) = place.access.store.oddity() {
        notes.push(format!("{}: {oddity}; what cannot be read was taken for absent", place.access.store.location()));
    }
    let refs: Vec<String> = cloned.refs.keys().map(|name| name.full().to_owned()).collect();
    Ok(Output::row([
        Value::from(cloned.objects_copied),
        Value::from(cloned.objects_skipped),
        Value::from(cloned.bytes_copied),
        Value::from(refs),
        super::commit::note(&notes),
    ]))
}

impl From<CloneError> for Error {
    fn from(error: CloneError) -> Self {
        let sentence = error.to_string();
        match error {
            CloneError::Repo(error) => error.into(),
            CloneError::Nested { .. } => Self::new(
                Code::BadArgument,
                sentence,
                "choose a target := '…' outside the source, with the source outside of it; nothing was copied.",
            ),
            CloneError::Hidden { .. } => Self::new(
                Code::BadPath,
                sentence,
                "ask the publisher to name it without a dot at the beginning; what was copied till then is no repository yet.",
            ),
            CloneError::OtherRepository { .. } => {
                Self::new(Code::Exists, sentence, "choose another target; a copy has the id of its source.")
            }
            CloneError::Diverged { .. } => Self::new(
                Code::Conflict,
                sentence,
                "somebody pushed to the copy; push that to the source as well, or copy to a new place.",
            ),
        }
    }
}
