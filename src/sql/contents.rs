//! Reading dataset.json or files.json of a version, or the catalog where that file is missing or is not the record's.

use crate::format::{DataDir, Dataset, Files, FormatError, Record, layout, read_small};
use crate::lake::{self, Description, Foreign, LakeError};
use crate::repo::{self, Repository};

use super::cache::temporary_folder;
use super::place::Place;
use super::{Arguments, Context, Error};

/// One of the two files, and the ways to it.
pub(super) trait VersionFile: Sized {
    /// Its name in a version's folder.
    const NAME: &'static str;
    /// Reads its bytes.
    fn parse(bytes: &[u8], data_dir: &DataDir) -> Result<Self, FormatError>;
    /// Reads it from the repository; nothing when it is missing or has another hash.
    fn stored(context: &Context, repository: &Repository, record: &Record) -> Result<Option<Self>, Error>;
    /// Takes it from a description of the catalog.
    fn described(description: Description) -> Self;
}

impl VersionFile for Dataset {
    const NAME: &'static str = layout::DATASET_JSON;

    fn parse(bytes: &[u8], _: &DataDir) -> Result<Self, FormatError> {
        Self::parse(bytes)
    }

    fn stored(context: &Context, repository: &Repository, record: &Record) -> Result<Option<Self>, Error> {
        Ok(context.block_on(repo::read_dataset(repository.store(), record))??)
    }

    fn described(description: Description) -> Self {
        description.dataset
    }
}

impl VersionFile for Files {
    const NAME: &'static str = layout::FILES_JSON;

    fn parse(bytes: &[u8], data_dir: &DataDir) -> Result<Self, FormatError> {
        Self::parse(bytes, data_dir)
    }

    fn stored(context: &Context, repository: &Repository, record: &Record) -> Result<Option<Self>, Error> {
        let data_dir = &repository.settings().data_dir;
        Ok(context.block_on(repo::read_files(repository.store(), data_dir, record))??)
    }

    fn described(description: Description) -> Self {
        description.files
    }
}

/// Reads what the call asks for. A working catalog whose last version is not pushed answers with that version.
pub(super) fn read<T: VersionFile>(context: &Context, place: &Place, arguments: &Arguments) -> Result<T, Error> {
    if let (Some(lake), None) = (&place.lake, arguments.text("ref"))
        && let Some(id) = lake.checkout.local.last()
    {
        let path = lake::version_folder(&lake.file, *id).join(T::NAME);
        let bytes = read_small(&path).map_err(|source| LakeError::Io { action: "read", path, source })?;
        return Ok(<T as VersionFile>::parse(&bytes, &lake.checkout.data_dir)?);
    }
    let (repository, resolved) = place.open(context, arguments)?;
    let opened = context.block_on(repo::open_version(repository.store(), &resolved, None))??;
    if let Some(stored) = T::stored(context, &repository, &opened.record)? {
        return Ok(stored);
    }
    // Any catalog of the version tells; the main one is always there.
    let folder = temporary_folder()?;
    let (file, source) = (folder.path().join(layout::CATALOG), opened.record.main_catalog());
    context.block_on(repo::download_catalog(
        repository.store(),
        opened.record.id,
        &source,
        &file,
        layout::MAX_CATALOG,
    ))??;
    let contents = Foreign::new(&file, &source.key).read()?;
    Ok(T::described(lake::describe(&contents, &repository.settings().data_dir)?))
}
