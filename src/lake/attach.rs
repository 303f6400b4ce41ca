//! Attaching a published version, read-only.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::LakeError;
use crate::engine::{Connection, Sql, identifier, literal, sql};
use crate::format::layout;

/// The statement that attaches a version from plain DuckDB with ducklake. The reader gives the data path itself: the one
/// in the catalog says where the writer published (docs/format.md section 10).
pub fn attach_version_sql(catalog: &str, alias: &str, data_path: &str) -> String {
    attach_statement(catalog, alias, data_path).to_text()
}

fn attach_statement(catalog: &str, alias: &str, data_path: &str) -> Sql {
    sql!(
        "ATTACH {target} AS {alias} ({options})",
        target = literal(&format!("ducklake:{catalog}")),
        alias = identifier(alias),
        options = read_only(data_path)
    )
}

/// The options with which a frozen catalog is attached as a lake.
pub(super) fn read_only(data_path: &str) -> Sql {
    sql!("DATA_PATH {data_path}, OVERRIDE_DATA_PATH true, READ_ONLY", data_path = literal(data_path))
}

/// Attaches a version for the user.
///
/// # Errors
/// DuckDB's.
pub fn attach_version(connection: &Connection, catalog: &str, alias: &str, data_path: &str) -> Result<(), LakeError> {
    Ok(connection.execute(attach_statement(catalog, alias, data_path))?)
}

/// Attaches a version and detaches it again.
///
/// # Errors
/// DuckDB's.
pub fn try_version(connection: &Connection, catalog: &str, data_path: &str) -> Result<(), LakeError> {
    Ok(connection.attach(&format!("ducklake:{catalog}"), read_only(data_path))?.detach()?)
}

/// Refuses a frozen catalog beside which a write-ahead log lies: DuckDB applies one also to what it attaches read-only.
///
/// # Errors
/// [`LakeError::WriteAheadLog`]; the system's.
pub fn require_no_wal(frozen: &Path) -> Result<(), LakeError> {
    let mut path = frozen.as_os_str().to_owned();
    path.push(layout::WAL);
    let path = PathBuf::from(path);
    match fs::symlink_metadata(&path) {
        Ok(_) => Err(LakeError::WriteAheadLog { path }),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        Err(source) => Err(LakeError::io("read", &path, source)),
    }
}

/// Makes DuckDB read files from where they are: it keeps what it has read of a file in memory while size and time of the
/// file are the same, and so would not see what has happened to it since.
///
/// # Errors
/// DuckDB's, such as in a session whose settings are locked.
pub fn forget_files(connection: &Connection) -> Result<(), LakeError> {
    let row = connection.row(sql!("SELECT current_setting('enable_external_file_cache')::VARCHAR"))?;
    if row.text(0)? != "true" {
        return Ok(());
    }
    // Off empties it. It is the session's own setting, so on again follows whatever came of that.
    let emptied = connection.execute(sql!("SET GLOBAL enable_external_file_cache = false"));
    let on = || connection.execute(sql!("SET GLOBAL enable_external_file_cache = true"));
    on().or_else(|_| on())?;
    Ok(emptied?)
}

/// The rows of a Parquet file, every row group and column read.
///
/// # Errors
/// DuckDB's, for a file that cannot be read.
pub fn count_rows(connection: &Connection, path: &str) -> Result<u64, LakeError> {
    let row = connection.row(sql!(
        "SELECT count(*), bit_xor(hash(file)) IS NULL FROM read_parquet({path}, hive_partitioning := false) AS file",
        path = literal(path)
    ))?;
    Ok(row.count(0)?)
}
