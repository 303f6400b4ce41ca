//! `fdl_attach(where)`: attaches a published version, read-only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{column, text};
use crate::format::{AllowedSigners, Revision, Sha256, layout};
use crate::lake::{self, Database, LakeError};
use crate::repo::{self, CatalogTarget, Checked, Opened, RepoError, Repository, Resolved};
use crate::sql::cache::cache_root;
use crate::sql::formats::SessionReader;
use crate::sql::memory::Memory;
use crate::sql::place::{catalog_place, default_alias, find, published, require_alias};
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Published, Value, trust};

/// Catalogs up to this many bytes are copied from a store elsewhere; larger ones are read where they are.
const COPY_UP_TO: u64 = 256 << 20;

pub(super) const COMMAND: Command = Command {
    name: "fdl_attach",
    positional: Some("repository or lake"),
    named: &[text("ref"), text("alias"), text("cache"), text("allowed_signers"), text("token")],
    columns: &[
        column("alias", ColumnType::Text),
        column("version", ColumnType::Text),
        column("ref", ColumnType::Text),
        column("catalog", ColumnType::Text),
        column("data_path", ColumnType::Text),
        column("attach_sql", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let allowed = trust::allowed_signers(arguments)?;
    let cache = Cache::parse(arguments.text("cache"))?;
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
    let (cache, verified) = match allowed {
        Some(allowed) => (cache.verifying()?, Some(verify(context, &repository, &revision, &resolved, allowed)?)),
        None => (cache, None),
    };
    let reader = SessionReader::of(&connection)?;
    let (opened, catalog) = fetch(context, &repository, &resolved, cache, &reader)?;
    if let Some((memory, checked)) = verified {
        require_same(&opened, &checked)?;
        memory.map_or(Ok(()), |memory| memory.remember(checked.version))?;
    }
    let data_path = repository.data_path();
    let location = repository.store().location();
    let attached = place.published.as_ref().map(|published| published.alias.clone());
    let given = arguments.text("alias").map(str::to_owned);
    let alias = given.or(attached).unwrap_or_else(|| default_alias(location));
    require_alias(&alias)?;
    let of_this_repository = |database: &Database| {
        database.file().and_then(|file| published(context, database, &file)).is_some_and(|it| it.repository == location)
    };
    place.access.let_duckdb_read(context, &connection)?;
    let place = catalog.file.clone().unwrap_or_else(|| PathBuf::from(&catalog.place));
    lake::check_catalog(&connection, &place, &repository.settings().data_dir)?;
    lake::free_alias(&connection, &alias, of_this_repository)?;
    lake::attach_version(&connection, &catalog.place, &alias, &data_path)?;
    let (repository, version) = (location.to_owned(), opened.record.id);
    let reference = resolved.reference.clone().filter(|_| revision.back == 0);
    context.remember_attached(Published { alias: alias.clone(), catalog: place, repository, version, reference });
    Ok(Output::row([
        Value::from(alias.as_str()),
        Value::from(opened.record.id.to_string()),
        Value::from(resolved.reference.as_ref().map(|reference| reference.full())),
        Value::from(catalog.place.as_str()),
        Value::from(data_path.as_str()),
        Value::from(lake::attach_version_sql(&catalog.place, &alias, &data_path)),
    ]))
}

/// Whether a catalog is copied to the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// When it is elsewhere and not too large.
    Auto,
    /// Whatever its size, a folder's as well.
    Always,
    /// Not at all.
    Never,
}

impl Cache {
    fn parse(given: Option<&str>) -> Result<Self, Error> {
        match given {
            None | Some("auto") => Ok(Self::Auto),
            Some("always") => Ok(Self::Always),
            Some("never") => Ok(Self::Never),
            Some(other) => Err(Error::bad_argument(format!("cache is {other:?}; it is 'auto', 'always' or 'never'"))),
        }
    }

    /// What is verified is a copy, which nobody changes afterwards or puts a file beside.
    fn verifying(self) -> Result<Self, Error> {
        match self {
            Self::Auto | Self::Always => Ok(Self::Always),
            Self::Never => Err(Error::bad_argument(
                "with cache := 'never' the catalog is read where it is, and cannot be verified with allowed_signers",
            )
            .with_hint("leave out cache; the catalog is then copied to the cache and verified there.")),
        }
    }
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

/// The catalog to attach.
struct Catalog {
    /// Its path or URL.
    place: String,
    /// Its file, whole and with the hash of the record, when it is on this machine.
    file: Option<PathBuf>,
}

fn fetch(
    context: &Context,
    repository: &Repository,
    resolved: &Resolved,
    cache: Cache,
    reader: &SessionReader<'_>,
) -> Result<(Opened, Catalog), Error> {
    let store = repository.store();
    let root = store.local_root();
    let limit = match cache {
        Cache::Never => None,
        Cache::Auto if root.is_some() => None,
        Cache::Auto => Some(COPY_UP_TO),
        Cache::Always => Some(u64::MAX),
    };
    let Some(max_size) = limit else {
        let opened = context.block_on(repo::open_version(store, resolved, None))??;
        let chosen = reader.catalog(&opened)?;
        let file = root.map(|root| root.join(&chosen.key));
        match &file {
            Some(file) => require_hash(file, chosen.sha256)?,
            None => context.block_on(repo::require_no_wal(store, &chosen))??,
        }
        return Ok((opened, Catalog { place: catalog_place(repository, &chosen), file }));
    };
    let folder = cache_folder(repository)?;
    if let Some(found) = cached(context, repository, resolved, &folder, reader)? {
        return Ok(found);
    }
    let part = tempfile::Builder::new().prefix(".part-").tempdir_in(&folder).map_err(|e| io("create", &folder, e))?;
    let copied = part.path().join(layout::CATALOG);
    let target = CatalogTarget { reader, path: &copied, max_size };
    let opened = context.block_on(repo::open_version(store, resolved, Some(target)))??;
    let chosen = reader.catalog(&opened)?;
    let file = folder.join(format!("{}-{}.duckdb", opened.record.id, chosen.sha256));
    fs::rename(&copied, &file).map_err(|source| io("write", &file, source))?;
    Ok((opened, Catalog { place: file.to_string_lossy().into_owned(), file: Some(file) }))
}

/// A catalog of the version that is in the cache and has the hash of its record. A damaged one is fetched again.
fn cached(
    context: &Context,
    repository: &Repository,
    resolved: &Resolved,
    folder: &Path,
    reader: &SessionReader<'_>,
) -> Result<Option<(Opened, Catalog)>, Error> {
    let begins = format!("{}-", resolved.version()?);
    let names = fs::read_dir(folder).map_err(|source| io("read", folder, source))?;
    let known = names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&begins));
    if !known {
        return Ok(None);
    }
    let opened = context.block_on(repo::open_version(repository.store(), resolved, None))??;
    let sha256 = reader.catalog(&opened)?.sha256;
    let file = folder.join(format!("{begins}{sha256}.duckdb"));
    let whole = Sha256::of_file(&file).is_ok_and(|(found, _)| found == sha256);
    let place = file.to_string_lossy().into_owned();
    Ok(whole.then_some((opened, Catalog { place, file: Some(file) })))
}

fn require_hash(file: &Path, expected: Sha256) -> Result<(), Error> {
    let found = match Sha256::of_file(file) {
        Ok((found, _)) => found,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            let why = "it is missing, although version.json names it".to_owned();
            return Err(RepoError::Corrupt { object: file.to_string_lossy().into_owned(), why }.into());
        }
        Err(source) => return Err(RepoError::Local { path: file.to_owned(), source }.into()),
    };
    if found == expected {
        return Ok(());
    }
    let why = format!("its sha256 is {found}, not {expected} as version.json says");
    Err(RepoError::Corrupt { object: file.to_string_lossy().into_owned(), why }.into())
}

/// Where verified catalogs of this repository are kept (docs/sql.md, fdl_attach).
fn cache_folder(repository: &Repository) -> Result<PathBuf, Error> {
    let id = match repository.settings().id {
        Some(id) => id.to_string(),
        // A repository without an id is known by where it is.
        None => Sha256::of(repository.store().location().as_bytes()).to_string(),
    };
    let folder = cache_root()?.join(id);
    fs::create_dir_all(&folder).map_err(|source| io("create", &folder, source))?;
    folder.canonicalize().map_err(|source| io("find", &folder, source))
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    LakeError::Io { action, path: path.to_owned(), source }.into()
}
