//! What DuckLake itself makes: its metadata tables, read off an empty catalog once for the process.
//!
//! `duckdb_tables()` looks at every attached database, and crashes when a SQLite database is detached at the same moment by
//! another connection (DuckDB 1.5.5). So it is asked once, and the names found here serve from then on.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::LakeError;
use crate::engine::{Connection, identifier, literal};

/// An empty catalog, as this session's DuckLake makes it.
#[derive(Debug)]
pub(super) struct Template {
    /// The DuckLake format, such as `1.0`.
    pub(super) format: String,
    /// The metadata tables in their order: name, and the statement that makes it.
    pub(super) tables: Vec<(String, String)>,
}

impl Template {
    /// The names of the tables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|(name, _)| name.as_str())
    }
}

/// The template; made at the first call.
pub(super) fn template(connection: &Connection) -> Result<&'static Template, LakeError> {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match TEMPLATE.get() {
        Some(template) => Ok(template),
        None => {
            let made = make(connection)?;
            Ok(TEMPLATE.get_or_init(|| made))
        }
    }
}

fn make(connection: &Connection) -> Result<Template, LakeError> {
    let folder = tempfile::tempdir().map_err(|source| LakeError::io("create", &std::env::temp_dir(), source))?;
    let file = folder.path().join("template");
    let file = file.to_string_lossy();
    connection.attach(&format!("ducklake:{file}"), "DATA_PATH '.', META_BLOCK_SIZE 16384")?.detach()?;
    let attached = connection.attach(&file, "TYPE duckdb, READ_ONLY")?;
    let version = connection.row(&format!(
        "SELECT max(value) FROM {}.ducklake_metadata WHERE key = 'version'",
        identifier(attached.name())
    ))?;
    let rows = connection.query(&format!(
        "SELECT table_name, sql FROM duckdb_tables() WHERE database_name = {} ORDER BY table_oid",
        literal(attached.name())
    ))?;
    attached.detach()?;
    let tables = rows.iter().map(|row| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned())));
    Ok(Template { format: version.text(0)?.to_owned(), tables: tables.collect::<Result<_, LakeError>>()? })
}
