//! A commit: what the working catalog holds becomes a version beside it (docs/format.md section 11).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::LakeError;
use super::attach::read_only;
use super::compare::{Change, Comparison, ReadRows, Side, TableChange, compare};
use super::definition::{Contents, read_contents};
use super::describe::{Description, describe};
use super::freeze::{FreezeOptions, freeze};
use super::narrow::RowSource;
use super::other_formats::{session_catalog, wanted, write_other_formats};
use super::restore::restore;
use super::working::{
    BETWEEN_LOOKS, flush_inlined, forget_inlined_past, forget_scheduled_deletions, latest_snapshot, require_format,
    require_no_transaction,
};
use super::working_copy::{Checkout, WorkingCopy};
use super::{shared, sources};
use crate::engine::{Connection, EngineError, EngineErrorKind, qualified, sql};
use crate::format::{
    Author, CatalogEntry, CatalogFormat, FDL_VERSION, Files, Record, Sha256, SourceFile, Timestamp, VersionId, layout,
    read_small,
};
use crate::sign::Signer;

/// What a commit is asked for.
#[derive(Debug)]
pub struct CommitRequest {
    /// The ID of the version, should there be one.
    pub id: VersionId,
    /// Who makes it.
    pub author: String,
    /// Why.
    pub message: Option<String>,
    /// When.
    pub created: Timestamp,
    /// A version even when nothing changed.
    pub force: bool,
    /// Keeps DuckLake's own snapshots.
    pub keep_snapshots: bool,
    /// Commits an encrypted catalog.
    pub allow_encrypted: bool,
    /// Files of this machine that the version was made from.
    pub sources: Vec<PathBuf>,
    /// What fdl.json says of the formats to publish in.
    pub catalog_formats: Vec<CatalogFormat>,
    /// Signs the version.
    pub signer: Option<Signer>,
}

/// What a commit came to.
#[derive(Debug)]
pub struct Commit {
    /// The new version, or the one that already holds what the working catalog holds; nothing in an empty repository.
    pub version: Option<VersionId>,
    /// The version it builds on.
    pub parent: Option<VersionId>,
    /// Whether a version was made.
    pub committed: bool,
    /// How many tables changed.
    pub tables_changed: u64,
    /// What the working catalog holds.
    pub description: Description,
    /// What the caller should know.
    pub notes: Vec<String>,
}

/// Commits. `checkout` is the one in force; it is brought up to date and saved.
///
/// # Errors
/// Those of [`LakeError`]; the working copy then is what it was, but for inlined rows that were flushed and tables that
/// were given their parent's files.
pub fn commit(
    connection: &Connection,
    copy: &WorkingCopy,
    checkout: &mut Checkout,
    request: CommitRequest,
) -> Result<Commit, LakeError> {
    let named_sources = sources::named(&request.sources)?;
    require_no_transaction(connection, copy.file())?;
    require_format(connection, copy.file())?;
    if !request.keep_snapshots {
        forget_inlined_past(connection, copy.file())?;
    }
    flush_inlined(connection, copy.file(), &checkout.data_path)?;
    let scratch = copy.scratch()?;
    let catalog = scratch.join(layout::CATALOG);
    let options = FreezeOptions { keep_snapshots: request.keep_snapshots, allow_encrypted: request.allow_encrypted };
    let parent = checkout.tip();
    forget_scheduled_deletions(connection, copy.file())?;
    let parent_catalog = parent.map(|id| session_catalog(connection, &copy.version(id))).transpose()?;
    let mut frozen = Frozen::make(connection, copy, checkout, &catalog, options)?;
    let new = Side {
        contents: &frozen.contents,
        rows: RowSource::of_working(copy.file(), checkout, &catalog, frozen.snapshot),
    };
    let (comparison, warning) =
        compare_with_parent(connection, parent_catalog.as_deref(), new, checkout.published_data_path(), &scratch)?;
    let rewritten: Vec<_> = comparison.tables_that(|change| change == Change::Rewritten).collect();
    if let (Some(parent_catalog), false) = (&parent_catalog, rewritten.is_empty())
        && restore_patiently(connection, copy.file(), parent_catalog, checkout, frozen.snapshot, &rewritten)?
    {
        fs::remove_file(&catalog).map_err(|source| LakeError::io("remove", &catalog, source))?;
        frozen = Frozen::make(connection, copy, checkout, &catalog, options)?;
    }
    let description = describe(&frozen.contents, &checkout.data_dir)?;
    shared::follow_the_parent(checkout, &frozen.contents);
    let mut commit = Commit {
        version: parent,
        parent,
        committed: false,
        tables_changed: comparison.changed() as u64,
        notes: comparison
            .warnings
            .iter()
            .cloned()
            .chain(warning.clone())
            .chain(left_by_dbt(&frozen.contents))
            .chain(unbound_views(&frozen.contents, &description))
            .chain(views_bound_to_an_alias(connection, &frozen.contents, parent_catalog.as_deref())?)
            .collect(),
        description,
    };
    (checkout.snapshot, checkout.options) = (frozen.snapshot, frozen.options);
    let nothing_new = comparison.is_same() && warning.is_none();
    if !nothing_new || request.force {
        require_readable(connection, &catalog, &frozen.contents)?;
        let before = parent.map(|id| read_record(&copy.version(id), id)).transpose()?;
        let day = request.created.utc().date_naive();
        let wanted = wanted(&frozen.contents.ducklake, &request.catalog_formats, before.as_ref(), day);
        let beside = Beside {
            catalogs: write_other_formats(connection, &scratch, &frozen.contents, &wanted.formats)?,
            sources: sources::keep(&scratch, &named_sources)?,
        };
        commit.notes.extend(wanted.notes);
        let published = parent.and_then(|id| fs::read(copy.version(id).join(layout::FILES_JSON)).ok());
        let published = published.and_then(|bytes| Files::parse(&bytes, &checkout.data_dir).ok());
        commit.notes.extend(names_that_servers_decode(&commit.description.files, published.as_ref()));
        write_version(&scratch, &frozen.contents, &commit.description, &request, parent, beside)?;
        copy.keep_version(&scratch, request.id)?;
        checkout.local.push(request.id);
        commit.version = Some(request.id);
        commit.committed = true;
    } else if let Some(tip) = parent {
        commit.parent = read_record(&copy.version(tip), tip)?.parent();
        if !named_sources.is_empty() {
            let why = "nothing changed, so there is no version to keep the sources with; force := true makes one";
            commit.notes.push(why.to_owned());
        }
    }
    copy.save(checkout)?;
    Ok(commit)
}

fn read_record(folder: &Path, id: VersionId) -> Result<Record, LakeError> {
    let path = folder.join(layout::VERSION_JSON);
    let bytes = read_small(&path).map_err(|source| LakeError::io("read", &path, source))?;
    Ok(Record::parse(id, &bytes)?)
}

/// A frozen catalog and what it holds.
struct Frozen {
    snapshot: i64,
    /// The digest of the working catalog's options just before: one that is set meanwhile is looked at again.
    options: Option<String>,
    contents: Contents,
}

impl Frozen {
    fn make(
        connection: &Connection,
        copy: &WorkingCopy,
        checkout: &Checkout,
        catalog: &Path,
        options: FreezeOptions,
    ) -> Result<Self, LakeError> {
        let before = latest_snapshot(connection, copy.file())?.map(|latest| latest.options);
        let snapshot = freeze(connection, copy.file(), checkout, catalog, options)?;
        Ok(Self { snapshot, options: before, contents: read_contents(connection, catalog)? })
    }
}

/// When the comparison cannot be made, the version is made and the reason is a warning.
fn compare_with_parent(
    connection: &Connection,
    parent: Option<&Path>,
    new: Side<'_>,
    data_path: &str,
    folder: &Path,
) -> Result<(Comparison, Option<String>), LakeError> {
    let compared = || {
        let before = parent.map(|catalog| read_contents(connection, catalog)).transpose()?;
        let old = parent.zip(before.as_ref());
        let old = old.map(|(catalog, contents)| Side { contents, rows: RowSource::Frozen(catalog, data_path) });
        compare(connection, old, new, ReadRows::WhereDoubtful, folder)
    };
    match compared() {
        Ok(comparison) => Ok((comparison, None)),
        // The state of the machine or of other sessions says nothing of the parent.
        Err(error @ LakeError::InTransaction { .. }) => Err(error),
        Err(LakeError::Engine(error))
            if matches!(error.kind, EngineErrorKind::Locked | EngineErrorKind::NoSpace | EngineErrorKind::Closed) =>
        {
            Err(error.into())
        }
        Err(error) => Ok((Comparison::default(), Some(format!("the parent could not be compared: {error}")))),
    }
}

/// How often a restore is tried while other sessions write to the working catalog.
const ATTEMPTS: u32 = 10;

/// Restores; when another session is just writing, after it.
fn restore_patiently(
    connection: &Connection,
    working: &Path,
    parent: &Path,
    checkout: &Checkout,
    snapshot: i64,
    tables: &[&TableChange],
) -> Result<bool, LakeError> {
    let mut attempts = ATTEMPTS;
    loop {
        match restore(connection, working, parent, checkout, snapshot, tables) {
            Err(LakeError::Engine(error)) if error.kind == EngineErrorKind::Locked && attempts > 1 => {
                // The failed attempt's databases are attached until its transaction has ended.
                connection.reset();
                attempts -= 1;
                std::thread::sleep(BETWEEN_LOOKS);
            }
            ended => return ended,
        }
    }
}

/// Attaches a catalog as a reader would, before anybody can come to depend on it.
fn require_readable(connection: &Connection, catalog: &Path, contents: &Contents) -> Result<(), LakeError> {
    let unreadable = |error: EngineError| LakeError::Corrupt {
        object: "the frozen catalog".to_owned(),
        why: format!("DuckLake does not read it: {error}"),
    };
    let target = format!("ducklake:{}", catalog.to_string_lossy());
    let lake = connection.attach(&target, read_only("./")).map_err(unreadable)?;
    for (schema, table) in contents.tables() {
        let name = qualified(&[lake.name(), schema, &table.name]);
        // Bound and not run: what would be left out of the run is for the session's optimizer to say, and the files may not be here.
        let columns = connection.query(sql!("DESCRIBE SELECT * FROM {name}", name)).map_err(unreadable)?;
        let columns = columns.iter().map(|row| row.text(0)).collect::<Result<Vec<_>, _>>()?;
        if columns.into_iter().ne(table.definition.columns.iter().map(|column| column.name.as_str())) {
            let why = format!("DuckLake reads other columns of {schema}.{} than it holds", table.name);
            return Err(LakeError::Corrupt { object: "the frozen catalog".to_owned(), why });
        }
    }
    Ok(lake.detach()?)
}

/// What a version may have beside its catalog.
struct Beside {
    /// The catalogs in other formats.
    catalogs: BTreeMap<String, CatalogEntry>,
    /// What it was made from.
    sources: Vec<SourceFile>,
}

fn write_version(
    folder: &Path,
    contents: &Contents,
    description: &Description,
    request: &CommitRequest,
    parent: Option<VersionId>,
    beside: Beside,
) -> Result<(), LakeError> {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|source| LakeError::io("write", &path, source))
    };
    let catalog = folder.join(layout::CATALOG);
    let (sha256, size) = Sha256::of_file(&catalog).map_err(|source| LakeError::io("read", &catalog, source))?;
    let (dataset, files) = (description.dataset.print()?, description.files.print()?);
    let record = Record {
        fdl: FDL_VERSION.to_owned(),
        id: request.id,
        parents: parent.into_iter().collect(),
        author: Some(Author::Text(request.author.clone())),
        message: request.message.clone(),
        created: Some(request.created),
        sha256,
        size: Some(size),
        ducklake: Some(contents.ducklake.clone()),
        catalogs: beside.catalogs,
        files_sha256: Some(Sha256::of(&files)),
        dataset_sha256: Some(Sha256::of(&dataset)),
        sources: beside.sources,
        tool: Some(concat!("fdl-duckdb ", env!("CARGO_PKG_VERSION")).to_owned()),
    };
    write(layout::DATASET_JSON, &dataset)?;
    write(layout::FILES_JSON, &files)?;
    let record = record.print()?;
    if let Some(signer) = &request.signer {
        write(layout::SIGNATURE, &signer.sign(&record)?)?;
    }
    write(layout::VERSION_JSON, &record)
}

/// Before DuckLake 1.0 a view keeps the alias of the catalog it was made in: read under another, it reads elsewhere. Told
/// of views that the parent has not: those that came from a newer format name no alias, and of others it has been told.
fn views_bound_to_an_alias(
    connection: &Connection,
    contents: &Contents,
    parent: Option<&Path>,
) -> Result<Option<String>, LakeError> {
    if !contents.ducklake.starts_with("0.") || contents.schemas.iter().all(|schema| schema.views.is_empty()) {
        return Ok(None);
    }
    let before = parent.map(|catalog| read_contents(connection, catalog)).transpose()?.unwrap_or_default();
    let views = |contents: &Contents| -> BTreeSet<(String, String)> {
        let schemas = contents.schemas.iter();
        let named = schemas.flat_map(|schema| {
            let views = schema.views.iter();
            views.map(|view| (format!("{}.{}", schema.name, view.name), view.sql.clone()))
        });
        named.collect()
    };
    let (now, before) = (views(contents), views(&before));
    let bound: Vec<&str> = now.difference(&before).map(|(name, _)| name.as_str()).collect();
    Ok((!bound.is_empty()).then(|| {
        format!(
            "DuckLake {} keeps the catalog's alias in a view, so that readers must attach under the same: {}",
            contents.ducklake,
            bound.join(", ")
        )
    }))
}

/// Views that name what is not in the version: a temporary table, another database, a file. Before DuckLake 1.0 every view names the
/// alias of its catalog, which is told otherwise.
fn unbound_views(contents: &Contents, description: &Description) -> Option<String> {
    if description.unbound.is_empty() || contents.ducklake.starts_with("0.") {
        return None;
    }
    Some(format!(
        "views that name what is not in the version, so that readers may not be able to use them: {}",
        description.unbound.join(", ")
    ))
}

/// DuckDB asks a web server for a file by the name that it has in the catalog, and the server takes a percent sign in it for an escape.
/// Told of files that the parent has not.
fn names_that_servers_decode(files: &Files, published: Option<&Files>) -> Option<String> {
    fn paths(files: &Files) -> impl Iterator<Item = &str> {
        files.tables.iter().flat_map(|table| &table.files).map(|file| file.path.as_str())
    }
    let before: BTreeSet<&str> = published.into_iter().flat_map(paths).collect();
    let odd = paths(files).find(|path| path.contains(['%', '#', '?']) && !before.contains(path))?;
    Some(format!(
        "files whose names hold %, # or ?, as of partition values with a space, a slash or other letters than ASCII, are not found when the \
         version is attached through a plain web server (docs/hosting.md): {odd}"
    ))
}

/// dbt builds a table under another name and swaps it in; such a name in a version is a run that did not end well.
fn left_by_dbt(contents: &Contents) -> Option<String> {
    let left: Vec<String> = contents
        .schemas
        .iter()
        .flat_map(|schema| {
            let names = schema.tables.iter().map(|table| &table.name).chain(schema.views.iter().map(|view| &view.name));
            names.map(|name| format!("{}.{name}", schema.name)).collect::<Vec<_>>()
        })
        .filter(|name| name.ends_with("__dbt_tmp") || name.ends_with("__dbt_backup"))
        .collect();
    if left.is_empty() {
        None
    } else {
        Some(format!("left over from a dbt run and part of this version: {}", left.join(", ")))
    }
}
