//! What the first argument of a command names: a repository, or an attached lake and its repository.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use super::access::{self, Access};
use super::catalogs::Keep;
use super::{Arguments, Code, Context, Error, Published};
use crate::engine::Connection;
use crate::format::{Base, Catalog, Revision, VersionId, layout};
use crate::lake::{self, Checkout, Database, LakeError};
use crate::repo::{self, Repository, Resolved};

/// A working catalog on this machine.
#[derive(Debug, Clone)]
pub(super) struct Lake {
    /// The alias it was named by, when it was.
    pub(super) alias: Option<String>,
    /// Its file.
    pub(super) file: PathBuf,
    /// The checkout in force.
    pub(super) checkout: Checkout,
}

/// Where a command works.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The store of the repository, and how DuckDB reads it.
    pub(super) access: Access,
    /// The working catalog that was named.
    pub(super) lake: Option<Lake>,
    /// The version that was named by the alias it is attached under.
    pub(super) published: Option<Published>,
}

/// What the first argument of a call names. Borrows a connection only for that: a command holds one at a time, so that
/// commands never wait for each other.
pub(super) fn of_call(context: &Context, arguments: &Arguments) -> Result<Place, Error> {
    let connection = context.connection()?;
    find(context, &connection, arguments)
}

/// Finds what `text` names. An attached alias wins over a folder of the same name.
pub(super) fn find(context: &Context, connection: &Connection, arguments: &Arguments) -> Result<Place, Error> {
    let (text, token) = (arguments.positional()?, arguments.text("token"));
    let finder = Finder { context, connection, token };
    if let Some(database) = lake::find_database(connection, text)? {
        if let Some(place) = finder.attached(&database)? {
            return Ok(place);
        }
        if !expand(text).exists() {
            return Err(LakeError::NotACheckout { given: text.to_owned() }.into());
        }
    }
    let path = expand(text);
    if path.is_file() {
        return finder.of_lake(None, &path);
    }
    Ok(Place { access: finder.open(text)?, lake: None, published: None })
}

/// Finds the working catalog that the call names, by its alias or by the path of its file.
pub(super) fn find_lake(
    context: &Context,
    connection: &Connection,
    arguments: &Arguments,
) -> Result<(Access, Lake), Error> {
    let text = arguments.positional()?;
    if lake::find_database(connection, text)?.is_none() && !expand(text).is_file() {
        return Err(LakeError::NoSuchLake { given: text.to_owned() }.into());
    }
    let place = find(context, connection, arguments)?;
    match place.lake {
        Some(lake) => {
            // Rows may have to be compared with those that are published.
            place.access.let_duckdb_read(context, connection)?;
            Ok((place.access, lake))
        }
        None => Err(LakeError::NotACheckout { given: text.to_owned() }.into()),
    }
}

/// Reads `~/` as the user's home folder, as DuckDB does.
pub(super) fn expand(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// Follows what a call names to its repository.
struct Finder<'a> {
    context: &'a Context,
    connection: &'a Connection,
    token: Option<&'a str>,
}

impl Finder<'_> {
    fn open(&self, location: &str) -> Result<Access, Error> {
        access::open(self.context, self.connection, location, self.token)
    }

    fn attached(&self, database: &Database) -> Result<Option<Place>, Error> {
        if let Some(published) = published(self.context, database) {
            let access = self.open(&published.repository)?;
            return Ok(Some(Place { access, lake: None, published: Some(published) }));
        }
        database.file().map(|file| self.of_lake(Some(database.alias.clone()), &file)).transpose()
    }

    fn of_lake(&self, alias: Option<String>, file: &Path) -> Result<Place, Error> {
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let checkout = read_checkout(self.connection, &file)?;
        let access = self.open(&checkout.repository)?;
        Ok(Place { access, lake: Some(Lake { alias, file, checkout }), published: None })
    }
}

/// What is known of a read-only attached catalog: what `fdl_attach` remembers, or what its path tells.
pub(super) fn published(context: &Context, database: &Database) -> Option<Published> {
    // The file may be gone: a cache that was emptied, or a version that was taken away.
    let file = database.file().or_else(|| database.path.as_deref().map(PathBuf::from))?;
    if let Some(known) = context.attached_as(&database.alias, &file) {
        return Some(known);
    }
    let named = |path: &Path, name: &str| path.file_name().is_some_and(|found| found == name.trim_end_matches('/'));
    let folder = match file.parent()? {
        folder if named(&file, layout::CATALOG) => folder,
        catalogs if named(catalogs, layout::CATALOGS) => catalogs.parent()?,
        _ => return None,
    };
    let version = VersionId::from_str(folder.file_name()?.to_str()?).ok()?;
    let versions = folder.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "versions"))?;
    let repository = versions.parent()?.to_str()?.to_owned();
    let alias = database.alias.clone();
    Some(Published { alias, catalog: file, keep: Keep::Cached, repository, version, reference: None })
}

/// The checkout in force of a working catalog.
pub(super) fn read_checkout(connection: &Connection, file: &Path) -> Result<Checkout, Error> {
    lake::load_extensions(connection)?;
    let mark = lake::latest_snapshot(connection, file)?.and_then(|latest| latest.checkout);
    Ok(lake::read_checkout(file, mark.as_deref())?)
}

impl Place {
    /// What to read when the call names no revision: the attached version, the version checked out, or HEAD.
    pub(super) fn revision(&self, arguments: &Arguments) -> Result<Revision, Error> {
        match (arguments.text("ref"), &self.published, &self.lake) {
            (Some(text), ..) => Ok(Revision::from_str(text)?),
            (None, Some(published), _) => Ok(Revision::of_id(published.version)),
            (None, None, Some(Lake { checkout, .. })) => match (checkout.base, &checkout.reference) {
                (Some(base), _) => Ok(Revision::of_id(base)),
                (None, Some(reference)) => Ok(Revision::of_ref(reference.clone())),
                (None, None) => Ok(Revision { base: Base::Head, back: 0 }),
            },
            (None, None, None) => Ok(Revision { base: Base::Head, back: 0 }),
        }
    }

    /// Opens the repository and finds the version that the call asks for.
    pub(super) fn open(&self, context: &Context, arguments: &Arguments) -> Result<(Repository, Resolved), Error> {
        let revision = self.revision(arguments)?;
        Ok(context.block_on(Repository::open_at(Arc::clone(&self.access.store), &revision))??)
    }

    /// Refuses a default that would pass over versions that are committed and not pushed.
    pub(super) fn require_pushed(&self, arguments: &Arguments, verb: &str) -> Result<(), Error> {
        match &self.lake {
            Some(lake) if arguments.text("ref").is_none() && !lake.checkout.local.is_empty() => Err(Error::new(
                Code::BadArgument,
                format!(
                    "the last version of {} is not pushed, so there is nothing published to {verb}",
                    lake.file.display()
                ),
                "CALL fdl_push('<lake>'); first, or say which version with ref := '…'.",
            )),
            _ => Ok(()),
        }
    }
}

/// Refuses a name that nobody could write.
pub(super) fn require_alias(alias: &str) -> Result<(), Error> {
    match alias.trim().is_empty() {
        true => Err(Error::bad_argument("alias is empty")),
        false => Ok(()),
    }
}

/// The alias for a location where the call gives none: its last part, made into an identifier.
pub(super) fn default_alias(location: &str) -> String {
    let last = location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let mut alias: String = last.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    if alias.starts_with(|c: char| c.is_ascii_digit()) {
        alias.insert(0, '_');
    }
    if alias.trim_matches('_').is_empty() { "lake".to_owned() } else { alias }
}

/// A catalog of a version, as a reader names it.
pub(super) fn catalog_place(repository: &Repository, catalog: &Catalog) -> String {
    repo::place(repository.store(), &catalog.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_identifiers() {
        for (location, alias) in [
            ("/srv/lake", "lake"),
            ("/srv/lake/", "lake"),
            ("s3://bucket/my-data.v2/", "my_data_v2"),
            ("/srv/2026", "_2026"),
            ("/srv/データ", "データ"),
            ("/", "lake"),
            ("/srv/---", "lake"),
        ] {
            assert_eq!(default_alias(location), alias);
        }
    }
}
