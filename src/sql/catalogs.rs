//! The catalogs of versions that this session opens: copies that fdl wrote itself of rows that it checked, in a folder that nobody
//! else may write (docs/design/0006). What a repository holds is never opened in the session.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::cache::{private_folder, temporary_folder};
use super::formats::SessionReader;
use super::{Context, Error, later};
use crate::format::{Catalog, Sha256, layout};
use crate::lake::{self, Foreign, LakeError};
use crate::repo::{self, CatalogTarget, Opened, Repository, Resolved};

/// Where copies are kept.
#[derive(Debug, Clone)]
pub(super) enum Keep {
    /// In the cache of this user, for later sessions too.
    Cached,
    /// In a folder that goes with its last owner.
    Dropped(Arc<TempDir>),
}

impl Keep {
    /// A folder that goes with its last owner.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn dropped() -> Result<Self, Error> {
        Ok(Self::Dropped(Arc::new(temporary_folder()?)))
    }

    fn folder(&self, repository: &Repository) -> Result<PathBuf, Error> {
        let folder = match self {
            Self::Cached => {
                let id = match repository.settings().id {
                    Some(id) => id.to_string(),
                    // A repository without an id is known by where it is.
                    None => Sha256::of(repository.store().location().as_bytes()).to_string(),
                };
                private_folder(&id)?
            }
            Self::Dropped(folder) => folder.path().to_owned(),
        };
        folder.canonicalize().map_err(|source| LakeError::Io { action: "find", path: folder, source }.into())
    }
}

/// A version, and the catalog of it that this session may open.
#[derive(Debug)]
pub(super) struct SessionCatalog {
    /// The version.
    pub(super) opened: Opened,
    /// The file that DuckDB opens.
    pub(super) file: PathBuf,
    /// What in it runs later, for people.
    pub(super) note: Option<String>,
}

/// Opens a version: its record, and its catalog as a file for this session. What was once checked of a catalog is not checked again
/// while the copy is whole.
///
/// # Errors
/// Those of [`repo::open_version`] and of [`Foreign::rewrite`]; FDL-BAD-PATH for a data file outside the data folder.
pub(super) fn open(
    context: &Context,
    repository: &Repository,
    resolved: &Resolved,
    reader: &SessionReader<'_>,
    (keep, max_size): (&Keep, u64),
) -> Result<SessionCatalog, Error> {
    let folder = keep.folder(repository)?;
    if let Some(found) = kept(context, repository, resolved, reader, &folder)? {
        return Ok(found);
    }
    let io = |action, path: &Path, source| Error::from(LakeError::Io { action, path: path.to_owned(), source });
    let part = tempfile::Builder::new().prefix(".part-").tempdir_in(&folder).map_err(|e| io("create", &folder, e))?;
    let (copied, made) = (part.path().join("copied"), part.path().join(layout::CATALOG));
    let target = CatalogTarget { reader, path: &copied, max_size };
    let opened = context.block_on(repo::open_version(repository.store(), resolved, Some(target)))??;
    let source = reader.catalog(&opened)?;
    let connection = reader.connection();
    let contents = Foreign::new(&copied, &source.key).in_session(connection)?.rewrite(&made)?;
    let data_dir = &repository.settings().data_dir;
    let files = lake::files_of(&contents, data_dir)?;
    context.block_on(repo::require_inside(repository.store(), data_dir, Some(&files)))??;
    let (ours, _) = Sha256::of_file(&made).map_err(|source| io("read", &made, source))?;
    let file = folder.join(format!("{}{ours}.duckdb", begins(&opened, &source)));
    // The note first: a copy that is found is whole.
    let (note, note_file) = (later::note(&contents), file.with_extension(NOTE));
    fs::write(&note_file, note.as_deref().unwrap_or_default()).map_err(|source| io("write", &note_file, source))?;
    fs::rename(&made, &file).map_err(|source| io("write", &file, source))?;
    Ok(SessionCatalog { opened, file, note })
}

/// The end of the name of the file beside a copy that says what in it runs later; it is empty where nothing does.
const NOTE: &str = "note";

/// How the name of a copy begins; the hash of the copy follows.
fn begins(opened: &Opened, source: &Catalog) -> String {
    format!("{}-{}-", opened.record.id, source.sha256)
}

/// A copy that was made before and is whole. A damaged one is made anew.
fn kept(
    context: &Context,
    repository: &Repository,
    resolved: &Resolved,
    reader: &SessionReader<'_>,
    folder: &Path,
) -> Result<Option<SessionCatalog>, Error> {
    let version = format!("{}-", resolved.version()?);
    let entries =
        fs::read_dir(folder).map_err(|source| LakeError::Io { action: "read", path: folder.to_owned(), source })?;
    let names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&version))
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    let opened = context.block_on(repo::open_version(repository.store(), resolved, None))??;
    let source = reader.catalog(&opened)?;
    let begins = begins(&opened, &source);
    for name in names {
        let Some(ours) = name.strip_prefix(&begins).and_then(|rest| rest.strip_suffix(".duckdb")) else {
            continue;
        };
        let file = folder.join(&name);
        if Sha256::of_file(&file).is_ok_and(|(found, _)| found.to_string() == ours) {
            lake::require_no_wal(&file)?;
            let Ok(note) = fs::read_to_string(file.with_extension(NOTE)) else { continue };
            return Ok(Some(SessionCatalog { opened, file, note: Some(note).filter(|note| !note.is_empty()) }));
        }
    }
    Ok(None)
}
