//! Starting a repository (docs/format.md section 2).

use futures::future::join;
use uuid::Uuid;

use crate::format::{CatalogFormat, DataDir, Random, RefName, Settings, layout, parse_head, print_head};
use crate::store::Store;

use super::conditions::ignored_conditions;
use super::error::RepoError;
use super::open::read_settings;
use super::read::{get_optional, read_head};
use super::refs::refresh_refs_json;
use super::write::{Content, Put, write_new};

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
    // What is there is read and never put to the test: a store that ignores conditions would replace it.
    let (settings, head) = join(read_settings(store), get_optional(store, layout::HEAD)).await;
    let (settings, created) = match settings {
        Ok(settings) => (settings, false),
        Err(RepoError::NotARepository { .. }) => create_settings(store, ours, options.id.is_none()).await?,
        Err(error) => return Err(error),
    };
    let (head, made_head) = match head? {
        Some(object) => (parse_head(&object.bytes)?, false),
        None => {
            let content = Content::Bytes(print_head(&options.branch).into());
            match write_new(store, layout::HEAD, &content).await? {
                Put::Written => (options.branch, true),
                Put::Same => (options.branch, false),
                Put::Other => (read_head(store).await?, false),
            }
        }
    };
    let ignored = ignored_conditions(store).await?;
    if !ignored.is_empty() {
        if created {
            store.delete(layout::FDL_JSON).await?;
        }
        if made_head {
            store.delete(layout::HEAD).await?;
        }
        return Err(RepoError::NoConditions { location: store.location().to_owned(), ignored });
    }
    refresh_refs_json(store, None).await?;
    Ok(Init { settings, head, created })
}

/// Writes fdl.json where none was seen. Returns the settings in force, and whether they are ours.
async fn create_settings(store: &dyn Store, ours: Settings, random_id: bool) -> Result<(Settings, bool), RepoError> {
    match write_new(store, layout::FDL_JSON, &Content::Bytes(ours.print()?.into())).await? {
        Put::Written => Ok((ours, true)),
        // With a random ID, these are ours: the answer was lost.
        Put::Same => Ok((ours, random_id)),
        Put::Other => Ok((read_settings(store).await?, false)),
    }
}
