//! Reading dataset.json or files.json of a version, or the catalog where that file is missing or is not the record's.

use crate::format::{DataDir, FormatError, Record, layout};
use crate::lake::{self, Description, LakeError};
use crate::repo::{self, CatalogTarget, RepoError, Repository};

use super::place::Place;
use super::{Arguments, Context, Error};

/// One of the two files, and the ways to it.
pub(super) struct Contents<T> {
    /// Its name in a version's folder.
    pub(super) file: &'static str,
    /// Reads its bytes.
    pub(super) parse: fn(&[u8], &DataDir) -> Result<T, FormatError>,
    /// Reads it from the repository; nothing when it is missing or has another hash.
    pub(super) stored: fn(&Context, &Repository, &Record) -> Result<Result<Option<T>, RepoError>, Error>,
    /// Takes it from a description of the catalog.
    pub(super) described: fn(Description) -> T,
}

/// Reads what the call asks for. A working catalog whose last version is not pushed answers with that version.
pub(super) fn read<T>(
    context: &Context,
    place: &Place,
    arguments: &Arguments,
    contents: &Contents<T>,
) -> Result<T, Error> {
    if let (Some(lake), None) = (&place.lake, arguments.text("ref"))
        && let Some(id) = lake.checkout.local.last()
    {
        let path = lake::version_folder(&lake.file, *id).join(contents.file);
        let bytes = std::fs::read(&path).map_err(|source| LakeError::Io { action: "read", path, source })?;
        return Ok((contents.parse)(&bytes, &lake.checkout.data_dir)?);
    }
    let (repository, resolved) = place.open(context, arguments)?;
    let opened = context.block_on(repo::open_version(repository.store(), &resolved, None))??;
    if let Some(stored) = (contents.stored)(context, &repository, &opened.record)?? {
        return Ok(stored);
    }
    let folder =
        tempfile::tempdir().map_err(|source| LakeError::Io { action: "create", path: std::env::temp_dir(), source })?;
    let catalog = folder.path().join(layout::CATALOG);
    let target = CatalogTarget { path: &catalog, max_size: u64::MAX };
    context.block_on(repo::open_version(repository.store(), &resolved, Some(target)))??;
    let connection = context.connection()?;
    lake::load_extensions(&connection)?;
    let description = lake::describe_catalog(&connection, &catalog, &repository.settings().data_dir)?;
    Ok((contents.described)(description))
}
