//! Files that only DuckLake reads: deletion vectors, and encrypted files with the keys of their catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::LakeError;
use super::definition::{DataFile, read_contents};
use super::narrow::{Deletions, attach_file};
use crate::engine::{Connection, identifier, qualified, sql};
use crate::format::DataDir;

/// Reads those of the files `keys` that the catalog says to be deletion vectors or encrypted, each through a copy of the catalog in
/// `folder` that names nothing else. Gives for each what is wrong with it, or nothing. Files that only older snapshots of the catalog
/// name are not read.
///
/// # Errors
/// DuckDB's, when it cannot be tried.
pub fn read_special_files(
    connection: &Connection,
    (catalog, data_path): (&Path, &str),
    (data_dir, keys): (&DataDir, &BTreeSet<String>),
    folder: &Path,
) -> Result<BTreeMap<String, Option<String>>, LakeError> {
    let contents = read_contents(connection, catalog)?;
    let special = special(connection, catalog)?;
    let mut found = BTreeMap::new();
    for file in contents.former.iter().flat_map(|table| &table.files).filter(|file| special.contains(&file.id)) {
        for stored in std::iter::once(&file.file).chain(&file.deletes) {
            found.insert(data_dir.key(&stored.path)?, None);
        }
    }
    for (schema, table) in contents.tables() {
        for file in table.files.iter().filter(|file| special.contains(&file.id)) {
            let key = data_dir.key(&file.file.path)?;
            let deletes = file.deletes.as_ref().map(|deletes| data_dir.key(&deletes.path)).transpose()?;
            let (asked, deletes) = (keys.contains(&key), deletes.filter(|key| keys.contains(key)));
            if !asked && deletes.is_none() {
                continue;
            }
            let read = |deletions: Deletions| -> Result<Option<String>, LakeError> {
                let lake = attach_file(connection, (catalog, data_path), folder, (table.id, file.id), deletions)?;
                let problem = problem(connection, &[lake.name(), schema, &table.name], file, deletions);
                lake.detach()?;
                Ok(problem)
            };
            let alone = if asked { read(Deletions::Left)? } else { None };
            // With a file that is damaged itself nothing is known of what is deleted from it.
            if let Some(deletes) = deletes {
                let problem = if alone.is_none() { read(Deletions::Kept)? } else { None };
                found.insert(deletes, problem);
            }
            if asked {
                found.insert(key, alone);
            }
        }
    }
    Ok(found)
}

/// The data files, by DuckLake's numbers, that are encrypted or have deletions that are, or that are deletion vectors.
fn special(connection: &Connection, catalog: &Path) -> Result<BTreeSet<i64>, LakeError> {
    let attached = connection.attach(&catalog.to_string_lossy(), sql!("TYPE duckdb, READ_ONLY"))?;
    let rows = connection.query(sql!(
        "SELECT f.data_file_id::BIGINT FROM {db}.main.ducklake_data_file f \
         LEFT JOIN {db}.main.ducklake_delete_file d ON d.data_file_id = f.data_file_id \
         WHERE f.encryption_key IS NOT NULL OR d.encryption_key IS NOT NULL OR lower(d.format) <> 'parquet'",
        db = identifier(attached.name())
    ))?;
    attached.detach()?;
    rows.iter().map(|row| Ok(row.integer(0)?)).collect()
}

/// Reads every row and column of a table that has one file.
fn problem(connection: &Connection, table: &[&str], file: &DataFile, deletions: Deletions) -> Option<String> {
    let deleted = match (&file.deletes, deletions) {
        (Some(deletes), Deletions::Kept) => deletes.rows,
        _ => 0,
    };
    let rows = sql!("SELECT count(*), bit_xor(hash(file)) IS NULL FROM {table} AS file", table = qualified(table));
    match connection.row(rows).and_then(|row| row.count(0)) {
        Ok(rows) if rows + deleted == file.file.rows => None,
        Ok(rows) => {
            let total = file.file.rows;
            Some(format!("{rows} of {total} rows are read, and the catalog says that {deleted} are deleted"))
        }
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}
