//! `fdl_withdraw(repository)`: takes versions away that hold what must not be published.

use std::str::FromStr;
use std::sync::Arc;

use super::{catalog_files, column, flag, text, texts};
use crate::format::{Clock, Revision};
use crate::repo::{self, LookInto, Repository, WithdrawError, WithdrawOptions, WithdrawRow};
use crate::sql::cache::temporary_folder;
use crate::sql::place::of_call;
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_withdraw",
    positional: Some("repository or lake"),
    named: &[texts("files"), texts("versions"), texts("tables"), text("message"), flag("dry_run"), text("token")],
    columns: &[
        column("step", ColumnType::Integer),
        column("object", ColumnType::Text),
        column("action", ColumnType::Text),
        column("bytes", ColumnType::Integer),
        column("done", ColumnType::Boolean),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let tables = arguments.texts("tables").iter().map(|text| table(text));
    let mut options = WithdrawOptions {
        files: arguments.texts("files").to_vec(),
        tables: tables.collect::<Result<_, _>>()?,
        ..WithdrawOptions::default()
    };
    if options.files.is_empty() && options.tables.is_empty() && arguments.texts("versions").is_empty() {
        return Err(Error::bad_argument("nothing says what is to be withdrawn")
            .with_hint("give files := ['data/…'], tables := ['schema.table'] or versions := ['…']."));
    }
    let place = of_call(context, arguments)?;
    let repository = context.block_on(Repository::open(Arc::clone(&place.access.store)))??;
    for text in arguments.texts("versions") {
        let resolved = context.block_on(repo::resolve(repository.store(), &Revision::from_str(text)?))??;
        options.versions.push(resolved.version()?);
    }
    let (folder, files) = (temporary_folder()?, catalog_files(&repository.settings().data_dir));
    let look = LookInto { scratch: folder.path(), files: Some(&files) };
    let plan = context.block_on(repo::plan_withdraw(&repository, &options, look))??;
    let rows = match arguments.boolean_or("dry_run", true) {
        true => plan.rows,
        false => {
            let (message, now) = (arguments.text("message"), context.clock().now());
            context.block_on(repo::run_withdraw(&repository, plan, message, look, now))??
        }
    };
    Ok(Output::Rows(rows.iter().map(row).collect()))
}

/// The schema and the name of a table, written as in SQL: `table` (of schema main), `schema.table`, a part with dots or
/// quotes in double quotes.
fn table(text: &str) -> Result<(String, String), Error> {
    let (mut parts, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, quoted) {
            ('"', true) if chars.next_if_eq(&'"').is_some() => part.push('"'),
            ('"', _) => quoted = !quoted,
            ('.', false) => parts.push(std::mem::take(&mut part)),
            (char, _) => part.push(char),
        }
    }
    parts.push(part);
    match parts.as_slice() {
        [name] if !quoted && !name.is_empty() => Ok(("main".to_owned(), name.clone())),
        [schema, name] if !quoted && !schema.is_empty() && !name.is_empty() => Ok((schema.clone(), name.clone())),
        _ => Err(Error::bad_argument(format!("{text:?} in tables is not the name of a table"))
            .with_hint("write schema.table, or \"my schema\".\"my table\"; without a schema it is main.")),
    }
}

fn row(row: &WithdrawRow) -> Vec<Value> {
    vec![
        Value::from(row.step),
        Value::from(row.object.as_str()),
        Value::from(row.action.to_string()),
        Value::from(row.bytes),
        Value::from(row.done),
    ]
}

impl From<WithdrawError> for Error {
    fn from(error: WithdrawError) -> Self {
        let sentence = error.to_string();
        match error {
            WithdrawError::Repo(error) => error.into(),
            WithdrawError::Held(_) => Self::new(
                Code::Conflict,
                sentence,
                "check the branch out, write its tables anew without the data (CREATE OR REPLACE TABLE t AS FROM t WHERE …; a \
                 DELETE leaves the rows in their file) and push, or CALL fdl_delete_ref; then call again. Nothing was changed.",
            ),
            WithdrawError::Appeared(_) => Self::new(
                Code::Conflict,
                sentence,
                "somebody pushed it meanwhile; call again for a plan that knows it. Nothing was changed.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_are_read_as_sql_reads_them() {
        let read = |text| table(text).unwrap();
        let pair = |schema: &str, name: &str| (schema.to_owned(), name.to_owned());
        assert_eq!(read("people"), pair("main", "people"));
        assert_eq!(read("raw.people"), pair("raw", "people"));
        assert_eq!(read(r#""raw.eu"."the ""people""""#), pair("raw.eu", r#"the "people""#));
        for bad in ["", "a.", ".a", "a.b.c", r#""a"#] {
            assert_eq!(table(bad).unwrap_err().code, Code::BadArgument, "{bad}");
        }
    }
}
