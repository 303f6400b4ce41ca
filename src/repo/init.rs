//! Starting a repository (docs/format.md section 2).

use uuid::Uuid;

use crate::format::{CatalogFormat, DataDir, Random, RefName, Settings, layout, parse_head, print_head};
use crate::store::{ConditionalWrite, Object, Store};

use super::error::RepoError;
use super::open::read_settings;
use super::read::read_head;
use super::refs::refresh_refs_json;

/// What a new repository is to be. A repository that is there already keeps its settings.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// Where data files go.
    pub data_dir: DataDir,
    /// The default branch.
    pub branch: RefName,
    /// The repository's ID; a random one when none is given.
    pub id: Option<Uuid>,
    /// The keys that sign versions, as lines of an `allowed_signers` file.
    pub signers: Vec<String>,
    /// The DuckLake formats to publish.
    pub catalog_formats: Vec<CatalogFormat>,
}

impl InitOptions {
    /// A repository with this default branch and nothing else out of the ordinary.
    #[must_use]
    pub fn new(branch: RefName) -> Self {
        Self { data_dir: DataDir::default(), branch, id: None, signers: Vec::new(), catalog_formats: Vec::new() }
    }
}

/// What a repository is after [`init`].
#[derive(Debug, Clone, PartialEq)]
pub struct Init {
    /// Its settings.
    pub settings: Settings,
    /// Its default branch.
    pub head: RefName,
    /// Whether this call made it.
    pub created: bool,
}

/// Starts a repository. Where there is one, its settings stay; one that was left half done is completed.
///
/// # Errors
/// [`RepoError::NoConditions`] when the store ignores the conditions of writes; what this call wrote is deleted then.
/// [`RepoError::Format`] for settings that the format does not allow.
pub async fn init(store: &dyn Store, options: InitOptions, random: &dyn Random) -> Result<Init, RepoError> {
    let mut ours = Settings::new(options.id.unwrap_or_else(|| random.uuid()), options.data_dir);
    ours.signers = options.signers;
    ours.catalog_formats = options.catalog_formats;
    let written = store.put_if_absent(layout::FDL_JSON, ours.print()?.into()).await?;
    let (settings, created) = match written {
        ConditionalWrite::Written => (ours, true),
        ConditionalWrite::Refused => {
            let there = read_settings(store).await?;
            // With a random ID, these are ours: the answer to a first try was lost and the store tried again.
            let ours = options.id.is_none() && there == ours;
            (there, ours)
        }
    };
    let content = print_head(&options.branch).into();
    let (head, made_head) = match store.put_if_absent(layout::HEAD, content).await? {
        ConditionalWrite::Written => (options.branch, true),
        ConditionalWrite::Refused => (read_head(store).await?, false),
    };
    if !conditional_writes_work(store).await? {
        if created {
            store.delete(layout::FDL_JSON).await?;
        }
        if made_head {
            store.delete(layout::HEAD).await?;
        }
        return Err(RepoError::NoConditions { location: store.location().to_owned() });
    }
    refresh_refs_json(store, None).await?;
    Ok(Init { settings, head, created })
}

/// Whether the store honours the conditions of writes. Changes nothing: writes that must be refused are tried on
/// fdl.json and HEAD, with the content they have.
///
/// # Errors
/// Those of the store, [`RepoError::Corrupt`] when HEAD is damaged.
pub async fn conditional_writes_work(store: &dyn Store) -> Result<bool, RepoError> {
    let (fdl, head) = futures::future::try_join(store.get(layout::FDL_JSON), store.get(layout::HEAD)).await?;
    parse_head(&head.bytes)?;
    let Object { bytes, etag } = head;
    let refused = |write| write == ConditionalWrite::Refused;
    let absent = store.put_if_absent(layout::HEAD, bytes.clone()).await?;
    // The state of another object is well formed and wrong.
    let unchanged = match etag == fdl.etag {
        true => ConditionalWrite::Written,
        false => store.put_if_unchanged(layout::HEAD, bytes, &fdl.etag).await?,
    };
    Ok(refused(absent) && refused(unchanged))
}
