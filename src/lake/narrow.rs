//! Reading only what differs: a copy of a catalog that names no file which both sides of a comparison share.
//!
//! Rows of a file that both versions hold cancel out in a multiset difference, so they need not be read. DuckLake reads a
//! whole table at a time; from such a copy, a whole table is the files that differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::LakeError;
use super::attach::read_only;
use super::freeze::copy_as_it_is;
use super::working_copy::Checkout;
use crate::engine::{Attached, Connection, Sql, identifier, sql};

/// A catalog through which the rows of tables are read.
#[derive(Debug, Clone, Copy)]
pub enum RowSource<'a> {
    /// A frozen catalog and the data folder as a reader names it.
    Frozen(&'a Path, &'a str),
    /// A working catalog at one of its snapshots, and where it writes new files: they may not be in the repository yet.
    Working(&'a Path, i64, &'a str),
}

/// The files to keep for each table, by DuckLake's numbers. Other tables are not read.
pub(super) type Kept = BTreeMap<i64, Vec<i64>>;

impl<'a> RowSource<'a> {
    /// For the rows of a working catalog of which `frozen` was made at a snapshot. Its own files tell, where all of them are
    /// in one place; the working catalog itself, where new ones are not published yet.
    pub(super) fn of_working(working: &'a Path, checkout: &'a Checkout, frozen: &'a Path, snapshot: i64) -> Self {
        match checkout.published_at {
            None => Self::Frozen(frozen, &checkout.data_path),
            Some(_) => Self::Working(working, snapshot, &checkout.data_path),
        }
    }
}

impl RowSource<'_> {
    /// Attaches a copy of the catalog, made in the folder, in which each table of `kept` has the files given and no others.
    pub(super) fn attach<'c>(
        &self,
        connection: &'c Connection,
        folder: &Path,
        kept: &Kept,
    ) -> Result<Attached<'c>, LakeError> {
        let copy = new_copy(folder)?;
        let data_path = match self {
            Self::Frozen(catalog, data_path) => {
                fs::copy(catalog, &copy).map_err(|source| LakeError::io("copy", catalog, source))?;
                data_path
            }
            Self::Working(catalog, snapshot, data_path) => {
                if copy_as_it_is(connection, catalog, &copy)? != *snapshot {
                    return Err(LakeError::InTransaction { path: catalog.to_path_buf() });
                }
                data_path
            }
        };
        narrow(connection, &copy, kept)?;
        Ok(connection.attach(&format!("ducklake:{}", copy.to_string_lossy()), read_only(data_path))?)
    }
}

/// Where a copy of a catalog can be made in the folder.
fn new_copy(folder: &Path) -> Result<PathBuf, LakeError> {
    let made = tempfile::Builder::new().prefix("rows-").tempdir_in(folder);
    Ok(made.map_err(|source| LakeError::io("create", folder, source))?.keep().join("catalog"))
}

/// Whether what is deleted from a file is left out of what is read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletions {
    /// As a reader has it.
    Kept,
    /// All rows of the file are read.
    Left,
}

/// Attaches a copy of a frozen catalog, made in the folder, in which one table has one file and no other has any, by DuckLake's numbers.
pub(super) fn attach_file<'c>(
    connection: &'c Connection,
    (catalog, data_path): (&Path, &str),
    folder: &Path,
    (table, file): (i64, i64),
    deletions: Deletions,
) -> Result<Attached<'c>, LakeError> {
    let copy = new_copy(folder)?;
    fs::copy(catalog, &copy).map_err(|source| LakeError::io("copy", catalog, source))?;
    narrow(connection, &copy, &Kept::from([(table, vec![file])]))?;
    if deletions == Deletions::Left {
        let attached = connection.attach(&copy.to_string_lossy(), sql!("TYPE duckdb"))?;
        let database = identifier(attached.name());
        connection.execute(sql!("DELETE FROM {database}.main.ducklake_delete_file", database))?;
        attached.detach()?;
    }
    Ok(connection.attach(&format!("ducklake:{}", copy.to_string_lossy()), read_only(data_path))?)
}

fn narrow(connection: &Connection, copy: &Path, kept: &Kept) -> Result<(), LakeError> {
    let attached = connection.attach(&copy.to_string_lossy(), sql!("TYPE duckdb"))?;
    let database = identifier(attached.name());
    let transaction = connection.begin()?;
    for (table, files) in kept {
        let files = Sql::join(std::iter::once(&-1).chain(files), ", ");
        for names in ["ducklake_data_file", "ducklake_delete_file"] {
            connection.execute(sql!(
                "DELETE FROM {database}.main.{names} WHERE table_id = {table} AND data_file_id NOT IN ({files})",
                database,
                names = Sql::constant(names),
                table,
                files
            ))?;
        }
    }
    transaction.commit()?;
    Ok(attached.detach()?)
}
