//! DuckDB's own extensions that a catalog needs.

use super::LakeError;
use crate::engine::{Connection, Sql, literal, sql};

/// The extension that reads and writes DuckLake catalogs.
pub const DUCKLAKE: &str = "ducklake";
/// The extension that keeps a working catalog in a SQLite file.
const SQLITE: &str = "sqlite_scanner";

/// The extension that reads S3 and HTTP.
const HTTPFS: &str = "httpfs";

/// Loads ducklake and sqlite where they are not loaded yet, and installs them where they are missing.
///
/// # Errors
/// [`LakeError::Extension`] with DuckDB's reason.
pub fn load_extensions(connection: &Connection) -> Result<(), LakeError> {
    load(connection, &[DUCKLAKE, SQLITE])
}

/// Loads httpfs where it is not loaded yet, and installs it where it is missing.
///
/// # Errors
/// [`LakeError::Extension`] with DuckDB's reason.
pub fn load_httpfs(connection: &Connection) -> Result<(), LakeError> {
    load(connection, &[HTTPFS])
}

fn load(connection: &Connection, names: &[&'static str]) -> Result<(), LakeError> {
    for &name in names {
        let loaded = connection.query(sql!(
            "SELECT 1 FROM duckdb_extensions() WHERE loaded AND extension_name = {name}",
            name = literal(name)
        ))?;
        let extension = Sql::constant(name);
        if loaded.is_empty() && connection.execute(sql!("LOAD {extension}", extension)).is_err() {
            connection
                .execute(sql!("INSTALL {extension}; LOAD {extension}", extension))
                .map_err(|source| LakeError::Extension { name, source })?;
        }
    }
    Ok(())
}
