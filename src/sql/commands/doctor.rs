//! `fdl_doctor(where)`: looks whether a repository and its store are as fdl needs them. Changes nothing.

use std::sync::Arc;

use super::{column, text};
use crate::engine::Connection;
use crate::format::{RefsJson, layout};
use crate::lake;
use crate::repo::{self, Refs, RepoError, Repository, Resolved};
use crate::sql::catalogs::{self, Keep};
use crate::sql::formats::SessionReader;
use crate::sql::place::{Place, find};
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Value};
use crate::store::StoreError;

pub(super) const COMMAND: Command = Command {
    name: "fdl_doctor",
    positional: Some("repository or lake"),
    named: &[text("token")],
    columns: &[
        column("probe", ColumnType::Text),
        column("ok", ColumnType::Boolean),
        column("detail", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let connection = context.connection()?;
    let place = find(context, &connection, arguments)?;
    let mut report = Report::default();
    report.add("location", Ok(place.access.store.location().to_owned()));
    report.add("duckdb extensions", extensions(context, &connection, &place));
    let opened = context.block_on(Repository::open(Arc::clone(&place.access.store)))?.map_err(Error::from);
    let described = opened.as_ref().map_err(Clone::clone).map(|repository| {
        let settings = repository.settings();
        let id = settings.id.map_or_else(|| "no id".to_owned(), |id| format!("id {id}"));
        format!("FDL {}, {id}, data in {}", settings.fdl, settings.data_dir)
    });
    report.add("fdl.json", described);
    let Ok(repository) = opened else {
        return Ok(Output::Rows(report.rows));
    };
    let refs = context.block_on(repo::list_refs(repository.store()))?.map_err(Error::from);
    report.add("refs", refs.as_ref().map_err(Clone::clone).map(describe_refs));
    if let Ok(refs) = &refs {
        report.add("refs.json", context.block_on(refs_json(&repository, refs))?);
        report.add("default version", default_version(context, &connection, &place, &repository, refs));
    }
    if let Some(oddity) = repository.store().oddity() {
        report.add("what is not there", Err(odd(oddity)));
    }
    report.add("conditional writes", conditional_writes(context, &repository)?);
    Ok(Output::Rows(report.rows))
}

#[derive(Default)]
struct Report {
    rows: Vec<Vec<Value>>,
}

impl Report {
    fn add(&mut self, probe: &str, found: Result<String, Error>) {
        let (ok, detail) = match found {
            Ok(detail) => (true, detail),
            Err(error) => (false, error.to_string()),
        };
        self.rows.push(vec![Value::from(probe), Value::from(ok), Value::from(detail)]);
    }
}

fn extensions(context: &Context, connection: &Connection, place: &Place) -> Result<String, Error> {
    lake::load_extensions(connection)?;
    place.access.let_duckdb_read(context, connection)?;
    Ok(format!("DuckLake format {}", lake::session_format(connection)?))
}

fn describe_refs(refs: &Refs) -> String {
    let ignored = match refs.ignored.is_empty() {
        true => String::new(),
        false => format!("; not refs: {}", refs.ignored.join(", ")),
    };
    format!("{} refs, HEAD names {}{ignored}", refs.refs.len(), refs.head)
}

async fn refs_json(repository: &Repository, refs: &Refs) -> Result<String, Error> {
    let object = repository.store().get(layout::REFS_JSON).await?;
    let listed = RefsJson::parse(&object.bytes)?;
    if listed.head == refs.head && listed.refs == refs.refs {
        return Ok("it agrees with the refs".to_owned());
    }
    Err(Error::new(
        Code::Corrupt,
        "it lags behind the refs",
        "the next push to any branch, or a new tag, writes it anew.",
    ))
}

/// Reads the version of the default branch as a reader does, up to its catalog in DuckDB.
fn default_version(
    context: &Context,
    connection: &Connection,
    place: &Place,
    repository: &Repository,
    refs: &Refs,
) -> Result<String, Error> {
    let Some(version) = refs.refs.get(&refs.head) else {
        return Ok(format!("{} has no version yet", refs.head.short()));
    };
    let record =
        context.block_on(repo::read_live(repository.store(), *version))?.map_err(|error| error.named_by(&refs.head))?;
    place.access.let_duckdb_read(context, connection)?;
    let resolved = Resolved { version: Some(record.id), reference: Some(refs.head.clone()), etag: None };
    let reader = SessionReader::of(connection)?;
    let keep = Keep::dropped()?;
    let catalog = catalogs::open(context, repository, &resolved, &reader, (&keep, layout::MAX_CATALOG))?;
    lake::try_version(connection, &catalog.file.to_string_lossy(), &repository.data_path())?;
    Ok(format!("DuckDB attaches {version}"))
}

/// A server that readers get along with, and others may not.
fn odd(oddity: &str) -> Error {
    let hint = "let the server answer 404; fdl takes what it cannot read there for absent.";
    Error::new(Code::Store, oddity, hint)
}

fn conditional_writes(context: &Context, repository: &Repository) -> Result<Result<String, Error>, Error> {
    Ok(match context.block_on(repo::ignored_conditions(repository.store()))? {
        Ok(ignored) if ignored.is_empty() => Ok("the store refuses a write whose condition does not hold".to_owned()),
        Ok(ignored) => {
            Err(RepoError::NoConditions { location: repository.store().location().to_owned(), ignored }.into())
        }
        Err(RepoError::Store(StoreError::Permission { .. })) => {
            Ok("not tried: this caller may read and not write".to_owned())
        }
        Err(error) => Err(error.into()),
    })
}
