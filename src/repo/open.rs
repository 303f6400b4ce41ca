//! Opening a repository.

use std::sync::Arc;

use futures::future::join;

use crate::format::{Revision, Settings, layout};
use crate::store::{Store, StoreError};

use super::error::RepoError;
use super::resolve::{Resolved, resolve};

/// A repository: a store that holds an fdl.json this program can read.
#[derive(Debug, Clone)]
pub struct Repository {
    store: Arc<dyn Store>,
    settings: Settings,
    keeps_conditions: bool,
}

impl Repository {
    /// Opens the repository in a store. One object read.
    ///
    /// # Errors
    /// [`RepoError::NotARepository`] when there is no fdl.json; [`RepoError::UnsupportedVersion`] and
    /// [`RepoError::Corrupt`] when it cannot be read.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, RepoError> {
        let settings = read_settings(store.as_ref()).await?;
        Ok(Self { store, settings, keeps_conditions: false })
    }

    /// Opens the repository and finds the version of a revision at the same time.
    ///
    /// With [`open_version`](super::open_version) after it, a reader that names a branch makes four object reads, two
    /// of them after one another: fdl.json and the ref, then version.json and the catalog. Whether there is a tag of
    /// the same name and whether there is an expired.json is asked beside them and reads no object.
    ///
    /// # Errors
    /// Those of [`Repository::open`] first, then those of [`resolve`].
    pub async fn open_at(store: Arc<dyn Store>, revision: &Revision) -> Result<(Self, Resolved), RepoError> {
        let (settings, resolved) = join(read_settings(store.as_ref()), resolve(store.as_ref(), revision)).await;
        let settings = settings?;
        Ok((Self { store, settings, keeps_conditions: false }, resolved?))
    }

    /// Says that the store was found to keep the conditions of writes not long ago
    /// ([`require_conditions`](super::require_conditions)), so that a push need not try it.
    #[must_use]
    pub fn with_kept_conditions(self, known: bool) -> Self {
        Self { keeps_conditions: known, ..self }
    }

    /// Whether it is known that the store keeps the conditions of writes.
    pub(super) fn keeps_conditions(&self) -> bool {
        self.keeps_conditions
    }

    /// Where the files are.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The store, to be kept.
    #[must_use]
    pub fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// What fdl.json says.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The path or URL of the data folder, with `/` at the end: the data path of a reader (docs/format.md section 10).
    #[must_use]
    pub fn data_path(&self) -> String {
        place(self.store(), self.settings.data_dir.as_str())
    }
}

/// The path or URL of an object, for whoever opens it without the store.
#[must_use]
pub fn place(store: &dyn Store, key: &str) -> String {
    match store.local_root() {
        Some(root) => format!("{}/{key}", root.display()),
        None => format!("{}/{key}", store.location()),
    }
}

/// Reads fdl.json.
pub(super) async fn read_settings(store: &dyn Store) -> Result<Settings, RepoError> {
    match store.get(layout::FDL_JSON).await {
        Ok(object) => Ok(Settings::parse(&object.bytes)?),
        Err(StoreError::NotFound { .. }) => {
            let (location, oddity) = (store.location().to_owned(), store.oddity());
            Err(RepoError::NotARepository { location, oddity })
        }
        Err(error) => Err(error.into()),
    }
}
