//! dataset.json and files.json, made from a frozen catalog alone (docs/format.md sections 4 and 5).

use std::path::Path;

use super::LakeError;
use super::attach::read_only;
use super::definition::{Contents, DataFile, StoredRows, Table, View, read_contents};
use crate::engine::{Connection, qualified, sql};
use crate::format::{self, DataDir, Dataset, DeleteFile, FormatError, TableFiles, TableKind};

/// What a version holds.
#[derive(Debug, Clone)]
pub struct Description {
    /// For dataset.json.
    pub dataset: Dataset,
    /// For files.json.
    pub files: format::Files,
}

/// Describes the contents of the frozen catalog `frozen`.
///
/// # Errors
/// [`LakeError::Format`] for a data file that does not lie under `data_dir`, or DuckDB's.
pub fn describe(
    connection: &Connection,
    frozen: &Path,
    contents: &Contents,
    data_dir: &DataDir,
) -> Result<Description, LakeError> {
    let view_columns = ViewColumns { connection, frozen };
    let mut schemas = Vec::new();
    for schema in &contents.schemas {
        let mut tables: Vec<format::Table> = schema.tables.iter().map(describe_table).collect();
        for (view, columns) in schema.views.iter().zip(view_columns.of(&schema.name, &schema.views)?) {
            tables.push(format::Table {
                name: view.name.clone(),
                comment: view.comment.clone(),
                kind: TableKind::View,
                rows: None,
                files: None,
                bytes: None,
                columns,
                partition_by: Vec::new(),
                sort_by: Vec::new(),
                sql: Some(view.sql.clone()),
            });
        }
        schemas.push(format::Schema { name: schema.name.clone(), comment: schema.comment.clone(), tables });
    }
    Ok(Description { dataset: Dataset::new(schemas), files: files_of(contents, data_dir)? })
}

/// Reads and describes a frozen catalog.
///
/// # Errors
/// Those of [`describe`].
pub fn describe_catalog(connection: &Connection, frozen: &Path, data_dir: &DataDir) -> Result<Description, LakeError> {
    describe(connection, frozen, &read_contents(connection, frozen)?, data_dir)
}

fn describe_table(table: &Table) -> format::Table {
    let stored = || table.files.iter().flat_map(|file| std::iter::once(&file.file).chain(&file.deletes));
    let columns = table.definition.columns.iter().map(|column| format::Column {
        name: column.name.clone(),
        data_type: column.data_type.clone(),
        nullable: column.nullable,
        comment: column.comment.clone(),
    });
    format::Table {
        name: table.name.clone(),
        comment: table.definition.comment.clone(),
        kind: TableKind::Table,
        rows: Some(table.rows()),
        files: Some(stored().count() as u64),
        bytes: Some(stored().map(|stored| stored.bytes).sum()),
        columns: columns.collect(),
        partition_by: table.definition.partition_by.clone(),
        sort_by: table.definition.sort_by.clone(),
        sql: None,
    }
}

/// The data files of each table, those that only older snapshots read included.
pub(super) fn files_of(contents: &Contents, data_dir: &DataDir) -> Result<format::Files, LakeError> {
    let mut tables = Vec::new();
    for (schema, table) in contents.tables() {
        let files = list(&table.files, data_dir)?;
        tables.push(TableFiles { schema: schema.to_owned(), table: table.name.clone(), files });
    }
    for former in &contents.former {
        let files = list(&former.files, data_dir)?;
        match tables.iter_mut().find(|table| table.schema == former.schema && table.table == former.table) {
            Some(table) => table.files.extend(files),
            None => tables.push(TableFiles { schema: former.schema.clone(), table: former.table.clone(), files }),
        }
    }
    Ok(format::Files::new(tables))
}

fn list(files: &[DataFile], data_dir: &DataDir) -> Result<Vec<format::DataFile>, FormatError> {
    let key = |stored: &StoredRows| data_dir.key(&stored.path);
    files
        .iter()
        .map(|file| {
            Ok(format::DataFile {
                path: key(&file.file)?,
                rows: file.file.rows,
                bytes: file.file.bytes,
                deletes: match &file.deletes {
                    Some(deletes) => Some(DeleteFile { path: key(deletes)?, rows: deletes.rows, bytes: deletes.bytes }),
                    None => None,
                },
            })
        })
        .collect()
}

/// A catalog does not hold the columns of a view; DuckDB finds them by binding its query.
struct ViewColumns<'a> {
    connection: &'a Connection,
    frozen: &'a Path,
}

impl ViewColumns<'_> {
    fn of(&self, schema: &str, views: &[View]) -> Result<Vec<Vec<format::Column>>, LakeError> {
        if views.is_empty() {
            return Ok(Vec::new());
        }
        let lake = self.connection.attach(
            &format!("ducklake:{}", self.frozen.to_string_lossy()),
            // No data is read.
            read_only("./"),
        )?;
        let mut columns = Vec::with_capacity(views.len());
        for view in views {
            let name = qualified(&[lake.name(), schema, &view.name]);
            // A view of something that is no longer there has no columns, and is still part of the version.
            let rows = self
                .connection
                .query(sql!("SELECT column_name, column_type, \"null\" <> 'NO' FROM (DESCRIBE {name})", name))
                .unwrap_or_default();
            let column = |row: &crate::engine::Row| {
                Ok::<_, LakeError>(format::Column {
                    name: row.text(0)?.to_owned(),
                    data_type: row.text(1)?.to_owned(),
                    nullable: row.boolean(2)?,
                    comment: None,
                })
            };
            columns.push(rows.iter().map(column).collect::<Result<Vec<_>, _>>()?);
        }
        lake.detach()?;
        Ok(columns)
    }
}
