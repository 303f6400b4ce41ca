//! `fdl_checkout(repository)`: makes a working catalog of a version.

use std::path::{Path, PathBuf, absolute};
use std::str::FromStr;
use std::sync::Arc;
use std::{fs, io};

use super::{column, flag, text};
use crate::engine::{Connection, literal};
use crate::format::{DataDir, RefKind, Revision, Sha256, VersionId, layout};
use crate::lake::{self, Checkout, Database, LakeError, LatestSnapshot, Thaw, WorkingCopy};
use crate::repo::{self, Repository, Resolved};
use crate::sql::access::{self, Access};
use crate::sql::catalogs::{self, Keep};
use crate::sql::formats::SessionReader;
use crate::sql::place::{default_alias, expand, require_alias};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value, later};

pub(super) const COMMAND: Command = Command {
    name: "fdl_checkout",
    positional: Some("repository"),
    named: &[text("ref"), text("alias"), text("path"), text("data_path"), flag("force"), flag("attach"), text("token")],
    columns: &[
        column("alias", ColumnType::Text),
        column("ref", ColumnType::Text),
        column("note", ColumnType::Text),
        column("path", ColumnType::Text),
        column("repository", ColumnType::Text),
        column("data_path", ColumnType::Text),
        column("version", ColumnType::Text),
        column("attach_sql", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let connection = context.connection()?;
    let access = access::open(context, &connection, arguments.positional()?, arguments.text("token"))?;
    let store = Arc::clone(&access.store);
    let revision = Revision::from_str(arguments.text("ref").unwrap_or_default())?;
    let (repository, resolved) = context.block_on(Repository::open_at(Arc::clone(&store), &revision))??;
    let alias = arguments.text("alias").map_or_else(|| default_alias(store.location()), str::to_owned);
    require_alias(&alias)?;
    let file = working_file(arguments.text("path"), &alias)?;
    if store.local_root().is_some_and(|root| file.starts_with(root)) {
        let sentence = format!("{} lies inside the repository, which never holds a working catalog", file.display());
        return Err(Error::bad_argument(sentence).with_hint("choose another place with path := '…'."));
    }
    let data = DataFolder::of(&access, &repository, &file, arguments.text("data_path"))?;
    let data_path = data.path.clone();
    lake::load_extensions(&connection)?;
    access.let_duckdb_read(context, &connection)?;

    let copy = WorkingCopy::lock(&file)?;
    let before = latest(&connection, &file)?;
    let old = copy.checkout(before.as_ref().and_then(|latest| latest.checkout.as_deref()));
    if before.is_some() {
        lake::require_no_transaction(&connection, &file)?;
    }
    let force = arguments.boolean("force");
    let old = match old {
        Ok(old) => Some(old),
        Err(_) if before.is_none() && !force && !copy.unpushed().is_empty() => {
            let what = "versions that are not pushed, although the catalog itself is gone".to_owned();
            return Err(LakeError::Dirty { path: file, what }.into());
        }
        Err(_) if before.is_none() => None,
        Err(LakeError::Corrupt { .. }) if force => None,
        Err(LakeError::NotACheckout { .. }) => return Err(LakeError::ForeignFile { path: file }.into()),
        Err(error) => return Err(error.into()),
    };
    if let (Some(old), false) = (&old, force) {
        if old.repository != store.location() {
            return Err(LakeError::OtherRepository { path: file, repository: old.repository.clone() }.into());
        }
        require_clean(context, &connection, &access, &copy, old)?;
    }
    let is_ours = |database: &Database| database.file().as_deref() == Some(file.as_path());
    if arguments.boolean_or("attach", true) {
        lake::require_free_alias(&connection, &alias, is_ours)?;
    }

    data.make()?;
    let mut checkout = Checkout {
        repository: store.location().to_owned(),
        data_dir: repository.settings().data_dir.clone(),
        data_path: data_path.clone(),
        published_at: data.published_at.clone(),
        reference: resolved.reference.clone().filter(|_| revision.back == 0),
        base: resolved.version,
        local: Vec::new(),
        snapshot: 0,
        options: None,
        mark: context.ids().next().to_string(),
        catalog_formats: repository.settings().catalog_formats.clone(),
    };
    let frozen = match checkout.base {
        Some(_) => Some(fetch_version(context, &connection, &repository, &resolved, &copy)?),
        None => None,
    };
    let contents = frozen.as_deref().map(|frozen| lake::read_contents(&connection, frozen)).transpose()?;
    let note = contents.as_ref().and_then(later::note);
    let catalog = copy.scratch()?.join("working.sqlite");
    checkout.snapshot = lake::thaw(
        &connection,
        &catalog,
        &Thaw {
            frozen: frozen.as_deref(),
            data_path: &data_path,
            published_at: checkout.published_at.as_deref(),
            checkout: &checkout.mark,
            after: before.as_ref().map(|latest| (latest.snapshot, latest.schema_version)),
        },
    )?;
    checkout.options = lake::latest_snapshot(&connection, &catalog)?.map(|latest| latest.options);
    let attach = arguments.boolean_or("attach", true);
    if attach {
        lake::free_alias(&connection, &alias, is_ours)?;
    }
    // What was committed by others since the look at it must not go unseen.
    let unchanged = || match &before {
        None => Ok(()),
        Some(before) => {
            lake::require_no_transaction(&connection, &file)?;
            let now = lake::latest_snapshot(&connection, &file)?;
            match now.as_ref() == Some(before) {
                true => Ok(()),
                false => Err(LakeError::InTransaction { path: file.clone() }),
            }
        }
    };
    let replaced = copy.replace(&catalog, old.as_ref(), &checkout, unchanged);
    if let (Err(_), Some(old), true) = (&replaced, &old, attach) {
        // The session goes on with what it had; the first error is the one to show.
        let _ = lake::attach_working(&connection, &file, &alias, &old.data_path);
    }
    replaced?;
    data.forget_former_files()?;
    if attach {
        lake::attach_working(&connection, &file, &alias, &data_path)?;
    }
    Ok(Output::row([
        Value::from(alias.as_str()),
        Value::from(checkout.reference.as_ref().map(|reference| reference.full())),
        Value::from(note),
        Value::from(file.to_string_lossy().into_owned()),
        Value::from(checkout.repository.as_str()),
        Value::from(data_path.as_str()),
        Value::from(checkout.base.map(|id| id.to_string())),
        Value::from(lake::attach_working_sql(&file, &alias, &data_path)),
    ]))
}

/// The file of the working catalog, absolute. Its folder is made with what fdl keeps beside it, should it not be there.
fn working_file(given: Option<&str>, alias: &str) -> Result<PathBuf, Error> {
    let path = given.map_or_else(|| PathBuf::from(format!("{alias}.sqlite")), expand);
    let path = absolute(&path).map_err(|source| LakeError::Io { action: "find", path: path.clone(), source })?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::bad_argument(format!("path {} names no file", path.display())));
    };
    let path = canonical(folder)
        .map_err(|source| LakeError::Io { action: "find", path: folder.to_owned(), source })?
        .join(name);
    let dangling = path.is_symlink() && !path.exists();
    if path.is_dir() || dangling {
        return Err(LakeError::ForeignFile { path }.into());
    }
    Ok(path.canonicalize().unwrap_or(path))
}

/// The path of a folder without links, of which the last parts may not be there.
fn canonical(folder: &Path) -> io::Result<PathBuf> {
    match (folder.canonicalize(), folder.parent(), folder.file_name()) {
        (Err(error), Some(above), Some(name)) if error.kind() == io::ErrorKind::NotFound && !folder.is_symlink() => {
            Ok(canonical(above)?.join(name))
        }
        (found, ..) => found,
    }
}

/// What is at the place of the working catalog; an error when it is something that fdl must not touch.
fn latest(connection: &Connection, file: &Path) -> Result<Option<LatestSnapshot>, Error> {
    if !file.exists() {
        return Ok(None);
    }
    let latest = lake::latest_snapshot(connection, file)?;
    match latest {
        Some(latest) => Ok(Some(latest)),
        None => Err(LakeError::ForeignFile { path: file.to_owned() }.into()),
    }
}

/// Where DuckDB writes the new data files of a working copy.
struct DataFolder {
    path: String,
    /// The URL of the repository's own data folder, when new files go elsewhere until they are pushed.
    published_at: Option<String>,
    /// Whether the folder on this machine is fdl's own, beside the working catalog.
    is_ours: bool,
}

impl DataFolder {
    /// The repository's own data folder, but for a repository behind HTTP, where nothing can be written in place.
    fn of(access: &Access, repository: &Repository, file: &Path, given: Option<&str>) -> Result<Self, Error> {
        let published = repository.data_path();
        if !access.is_http() {
            return match given {
                None => Ok(Self { path: published, published_at: None, is_ours: false }),
                Some(_) => Err(Error::bad_argument(
                    "data_path is for repositories behind HTTP; this one's new files go to its own data folder",
                )),
            };
        }
        let path = given.map_or_else(|| lake::data_folder(file), expand);
        let path = absolute(&path).map_err(|source| LakeError::Io { action: "find", path, source })?;
        let path = format!("{}/", path.to_string_lossy().trim_end_matches('/'));
        Ok(Self { path, published_at: Some(published), is_ours: given.is_none() })
    }

    /// DuckDB wants a folder to be there.
    fn make(&self) -> Result<(), Error> {
        if self.path.contains("://") {
            return Ok(());
        }
        let path = PathBuf::from(&self.path);
        Ok(fs::create_dir_all(&path).map_err(|source| LakeError::Io { action: "create", path, source })?)
    }

    /// Files of a former checkout, which the new catalog does not name: they were pushed, or thrown away with it.
    fn forget_former_files(&self) -> Result<(), Error> {
        if !self.is_ours {
            return Ok(());
        }
        let path = PathBuf::from(&self.path);
        fs::remove_dir_all(&path).map_err(|source| LakeError::Io { action: "remove", path, source })?;
        self.make()
    }
}

/// Copies what a working copy keeps of the version it starts from; gives the catalog that this session reads, which is never the
/// repository's own file but what fdl made of it.
fn fetch_version(
    context: &Context,
    connection: &Connection,
    repository: &Repository,
    resolved: &Resolved,
    copy: &WorkingCopy,
) -> Result<PathBuf, Error> {
    let reader = SessionReader::of(connection)?;
    // A version that this working copy has made and that has landed is there already, as fdl wrote it.
    let opened = context.block_on(repo::open_version(repository.store(), resolved, None))??;
    let chosen = reader.catalog(&opened)?;
    let kept = copy.version(opened.record.id).join(chosen.name());
    if Sha256::of_file(&kept).is_ok_and(|(sha256, _)| sha256 == chosen.sha256) {
        lake::require_no_wal(&kept)?;
        return Ok(kept);
    }
    let catalog = catalogs::open(context, repository, resolved, &reader, (&Keep::Cached, layout::MAX_CATALOG))?;
    let record = catalog.opened.record;
    let data_dir: &DataDir = &repository.settings().data_dir;
    let files = match context.block_on(repo::read_files(repository.store(), data_dir, &record))?? {
        Some(files) => files,
        None => lake::files_of(&lake::read_contents(connection, &catalog.file)?, data_dir)?,
    };
    let scratch = copy.scratch()?;
    let io = |action, path: &Path, source| Error::from(LakeError::Io { action, path: path.to_owned(), source });
    let copied = scratch.join(chosen.name());
    let folder = copied.parent().unwrap_or(&scratch);
    fs::create_dir_all(folder).map_err(|source| io("create", folder, source))?;
    fs::copy(&catalog.file, &copied).map_err(|source| io("copy", &catalog.file, source))?;
    for (name, bytes) in [(layout::VERSION_JSON, record.print()?), (layout::FILES_JSON, files.print()?)] {
        let path = scratch.join(name);
        fs::write(&path, bytes).map_err(|source| io("write", &path, source))?;
    }
    copy.keep_version(&scratch, record.id)?;
    Ok(kept)
}

/// Refuses to replace work that is nowhere else.
fn require_clean(
    context: &Context,
    connection: &Connection,
    access: &Access,
    copy: &WorkingCopy,
    old: &Checkout,
) -> Result<(), Error> {
    let file = copy.file().to_string_lossy().into_owned();
    let dirty = |what: String| {
        let error = Error::from(LakeError::Dirty { path: copy.file().to_owned(), what });
        let file = literal(&file).to_text();
        error.with_hint(format!(
            "to go on with it, run what SELECT attach_sql FROM fdl_status({file}) gives; CALL fdl_push({file}, message := '…') \
             publishes it, with ref := '<new branch>' beside the branch; force := true throws it away."
        ))
    };
    if let Some(last) = old.local.last()
        && !landed(context, connection, access, old, *last)?
    {
        let count = old.local.len();
        let versions = if count == 1 { "a version that is".to_owned() } else { format!("{count} versions that are") };
        return Err(dirty(format!("{versions} not pushed")));
    }
    let tip = old.tip().map(|id| copy.version(id));
    if lake::uncommitted(connection, copy.file(), old, tip.as_deref(), lake::ReadRows::WhereDoubtful)?.changed {
        return Err(dirty("changes that are not committed".to_owned()));
    }
    Ok(())
}

/// Whether a version of the working copy is in the history of its branch: a push may have landed whose answer was lost.
fn landed(
    context: &Context,
    connection: &Connection,
    access: &Access,
    old: &Checkout,
    version: VersionId,
) -> Result<bool, Error> {
    let Some(reference) = old.reference.as_ref().filter(|reference| reference.kind() == RefKind::Branch) else {
        return Ok(false);
    };
    let store = match access.store.location() == old.repository {
        true => Arc::clone(&access.store),
        false => access::open(context, connection, &old.repository, None)?.store,
    };
    let held = context.block_on(repo::read_ref(store.as_ref(), reference))??;
    Ok(held.is_some_and(|held| held.version == version))
}
