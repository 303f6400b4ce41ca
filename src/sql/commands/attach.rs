//! `fdl_attach(where)`: attaches a published version, read-only.

use std::sync::Arc;

use super::{column, number, text};
use crate::format::{AllowedSigners, Revision, layout};
use crate::lake::{self, Database};
use crate::repo::{Checked, Opened, Repository, Resolved};
use crate::sql::catalogs::{self, Keep};
use crate::sql::formats::SessionReader;
use crate::sql::memory::Memory;
use crate::sql::place::{default_alias, find, published, require_alias};
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Published, Value, trust};

pub(super) const COMMAND: Command = Command {
    name: "fdl_attach",
    positional: Some("repository or lake"),
    named: &[text("ref"), text("alias"), text("cache"), number("max_catalog"), text("allowed_signers"), text("token")],
    columns: &[
        column("alias", ColumnType::Text),
        column("ref", ColumnType::Text),
        column("note", ColumnType::Text),
        column("catalog", ColumnType::Text),
        column("data_path", ColumnType::Text),
        column("version", ColumnType::Text),
        column("attach_sql", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let allowed = trust::allowed_signers(arguments)?;
    let keep = keep(arguments.text("cache"))?;
    let max_size = max_catalog(arguments)?;
    let connection = context.connection()?;
    let place = find(context, &connection, arguments)?;
    place.require_pushed(arguments, "attach")?;
    // Attached again by its own alias, a version that was found by a branch follows the branch.
    let branch = place.published.as_ref().and_then(|published| published.reference.clone());
    let revision = match branch.filter(|_| arguments.text("ref").is_none()) {
        Some(reference) => Revision::of_ref(reference),
        None => place.revision(arguments)?,
    };
    let (repository, resolved) =
        context.block_on(Repository::open_at(Arc::clone(&place.access.store), &revision))??;
    // Nothing of a version is opened by DuckDB before its signature and its hash hold.
    let verified = match allowed {
        Some(allowed) => Some(verify(context, &repository, &revision, &resolved, allowed)?),
        None => None,
    };
    let reader = SessionReader::of(&connection)?;
    let catalog = catalogs::open(context, &repository, &resolved, &reader, (&keep, max_size))?;
    let signed = verified.is_some();
    if let Some((memory, checked)) = verified {
        require_same(&catalog.opened, &checked)?;
        memory.map_or(Ok(()), |memory| memory.remember(checked.version))?;
    }
    let note = catalog.note.filter(|_| !signed);
    let data_path = repository.data_path();
    let location = repository.store().location();
    let attached = place.published.as_ref().map(|published| published.alias.clone());
    let given = arguments.text("alias").map(str::to_owned);
    let alias = given.or(attached).unwrap_or_else(|| default_alias(location));
    require_alias(&alias)?;
    let of_this_repository =
        |database: &Database| published(context, database).is_some_and(|it| it.repository == location);
    place.access.let_duckdb_read(context, &connection)?;
    lake::free_alias(&connection, &alias, of_this_repository)?;
    lake::attach_version(&connection, &catalog.file.to_string_lossy(), &alias, &data_path)?;
    let (repository, version) = (location.to_owned(), catalog.opened.record.id);
    let reference = resolved.reference.clone().filter(|_| revision.back == 0);
    let place = catalog.file.to_string_lossy().into_owned();
    let attach_sql = lake::attach_version_sql(&place, &alias, &data_path);
    context.remember_attached(Published {
        alias: alias.clone(),
        catalog: catalog.file,
        keep,
        repository,
        version,
        reference,
    });
    Ok(Output::row([
        Value::from(alias.as_str()),
        Value::from(resolved.reference.as_ref().map(|reference| reference.full())),
        Value::from(note),
        Value::from(place),
        Value::from(data_path.as_str()),
        Value::from(version.to_string()),
        Value::from(attach_sql),
    ]))
}

/// Where the copy of the catalog is kept. It is a copy in any case: what was checked is what is read.
fn keep(cache: Option<&str>) -> Result<Keep, Error> {
    match cache {
        None | Some("auto" | "always") => Ok(Keep::Cached),
        Some("never") => Keep::dropped(),
        Some(other) => Err(Error::bad_argument(format!("cache is {other:?}; it is 'auto', 'always' or 'never'"))),
    }
}

/// The largest catalog that the call takes, in bytes.
fn max_catalog(arguments: &Arguments) -> Result<u64, Error> {
    Ok(arguments.count("max_catalog")?.unwrap_or(layout::MAX_CATALOG))
}

/// What must be true of a version before it is attached for a reader who trusts these signers.
fn verify(
    context: &Context,
    repository: &Repository,
    revision: &Revision,
    resolved: &Resolved,
    allowed: AllowedSigners,
) -> Result<(Option<Memory>, Checked), Error> {
    let version = resolved.version()?;
    let trust = trust::trust(Some(allowed), repository.settings());
    let checked = trust::require_good(context, repository, version, &trust)?;
    let memory = Memory::read(repository, revision, resolved)?;
    let found = memory.as_ref().map(|memory| memory.went_back(context, repository, &checked, &trust)).transpose()?;
    found.flatten().map_or(Ok((memory, checked)), |found| Err(found.into()))
}

/// The record that vouches for the catalog must be the one that was verified, though it was read twice.
fn require_same(opened: &Opened, checked: &Checked) -> Result<(), Error> {
    match checked.record.as_ref() == Some(&opened.record) {
        true => Ok(()),
        false => Err(Error::new(
            Code::Untrusted,
            format!("version.json of {} has changed while it was read", checked.version),
            "call again; if that repeats itself, ask the publisher.",
        )),
    }
}
