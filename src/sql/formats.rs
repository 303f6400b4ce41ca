//! The DuckLake formats that the session reads, and those that a repository asks for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Context, Error};
use crate::engine::Connection;
use crate::format::Catalog;
use crate::lake::{self, Checkout, LakeError};
use crate::repo::{self, CatalogReader, Opened, RepoError, Repository};
use crate::store::Store;

/// The session's DuckLake.
#[derive(Debug)]
pub(super) struct SessionReader<'a> {
    connection: &'a Connection,
    format: &'static str,
    /// Formats that could not be tried, and why.
    untried: Mutex<BTreeMap<String, String>>,
}

impl<'a> SessionReader<'a> {
    /// Loads DuckLake.
    ///
    /// # Errors
    /// FDL-DUCKDB when it cannot be loaded.
    pub(super) fn of(connection: &'a Connection) -> Result<Self, Error> {
        lake::load_extensions(connection)?;
        Ok(Self { connection, format: lake::session_format(connection)?, untried: Mutex::default() })
    }

    /// Nothing in a session that has no DuckLake and can get none, as in DuckDB 2.0.
    ///
    /// # Errors
    /// FDL-DUCKDB when DuckLake is there and says nothing of its format.
    pub(super) fn if_any(connection: &'a Connection) -> Result<Option<Self>, Error> {
        match lake::load_extensions(connection) {
            Err(LakeError::Extension { .. }) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(()) => Self::of(connection).map(Some),
        }
    }

    /// The connection that it reads by.
    pub(super) fn connection(&self) -> &Connection {
        self.connection
    }

    /// The catalog of a version that the session reads.
    pub(super) fn catalog(&self, opened: &Opened) -> Result<Catalog, Error> {
        Ok(repo::readable_catalog(&opened.record, self)?)
    }
}

impl CatalogReader for SessionReader<'_> {
    fn describe(&self) -> String {
        let untried = self.untried.lock().unwrap_or_else(PoisonError::into_inner);
        let untried: String = untried
            .iter()
            .map(|(format, why)| format!("; whether it reads {format} could not be tried: {why}"))
            .collect();
        format!("this session's DuckLake reads {}{untried}", self.format)
    }

    fn reads(&self, format: &str) -> bool {
        // What cannot be tried is not read; the catalogs of the session's own format need no trial.
        lake::session_reads(self.connection, format).unwrap_or_else(|error| {
            let mut untried = self.untried.lock().unwrap_or_else(PoisonError::into_inner);
            untried.insert(format.to_owned(), error.to_string());
            false
        })
    }
}

/// Reads anew which formats the repository asks for, and remembers them in the checkout. A repository that cannot be
/// reached asks for what it asked for last.
pub(super) fn refresh_catalog_formats(
    context: &Context,
    store: &Arc<dyn Store>,
    checkout: &mut Checkout,
) -> Result<(), Error> {
    match context.block_on(Repository::open(Arc::clone(store)))? {
        Ok(repository) => checkout.catalog_formats.clone_from(&repository.settings().catalog_formats),
        Err(RepoError::Store(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
