//! Finding an attached lake by its alias.

use std::path::PathBuf;

use super::LakeError;
use crate::engine::{Connection, identifier, literal, sql};

/// A database attached to the session.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its alias, as it was attached.
    pub alias: String,
    /// `ducklake`, `duckdb`, `sqlite`, …
    pub kind: String,
    /// The file, or the URL, of its catalog.
    pub path: Option<String>,
}

impl Database {
    /// The file of a lake's catalog on this machine.
    pub fn file(&self) -> Option<PathBuf> {
        let path = self.path.as_deref().filter(|_| self.kind == "ducklake")?;
        let path = ["sqlite:", "duckdb:"].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
        std::path::absolute(path).ok().filter(|path| path.is_file()).map(|path| path.canonicalize().unwrap_or(path))
    }
}

/// The database attached under `alias`. DuckDB's names do not know upper from lower case.
///
/// # Errors
/// DuckDB's.
pub fn find_database(connection: &Connection, alias: &str) -> Result<Option<Database>, LakeError> {
    let rows = connection.query(sql!(
        "SELECT database_name, type, path FROM duckdb_databases() WHERE lower(database_name) = lower({alias})",
        alias = literal(alias)
    ))?;
    rows.first()
        .map(|row| {
            Ok(Database {
                alias: row.text(0)?.to_owned(),
                kind: row.text(1)?.to_owned(),
                path: row.optional_text(2)?.map(str::to_owned),
            })
        })
        .transpose()
}

/// Makes sure that `alias` is free, or `ours` says that the database there may be replaced.
///
/// # Errors
/// [`LakeError::AliasTaken`], or DuckDB's.
pub fn require_free_alias(
    connection: &Connection,
    alias: &str,
    ours: impl FnOnce(&Database) -> bool,
) -> Result<Option<Database>, LakeError> {
    match find_database(connection, alias)? {
        Some(database) if !ours(&database) => Err(LakeError::AliasTaken { alias: database.alias }),
        found => Ok(found),
    }
}

/// Detaches `alias` when `ours` says that the database may be replaced, so that the name is free.
///
/// # Errors
/// [`LakeError::AliasTaken`] when the name belongs to something else, or DuckDB's.
pub fn free_alias(connection: &Connection, alias: &str, ours: impl FnOnce(&Database) -> bool) -> Result<(), LakeError> {
    let Some(database) = require_free_alias(connection, alias, ours)? else {
        return Ok(());
    };
    connection.execute(sql!("DETACH {alias}", alias = identifier(&database.alias)))?;
    Ok(())
}
