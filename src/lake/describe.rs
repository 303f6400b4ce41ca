//! dataset.json and files.json, made from a frozen catalog alone (docs/format.md sections 4 and 5).

use super::LakeError;
use super::definition::{Contents, DataFile, Macro, StoredRows, Table};
use super::view_columns::view_columns;
use crate::format::{self, DataDir, Dataset, DeleteFile, FormatError, TableFiles, TableKind};

/// What a version holds.
#[derive(Debug, Clone)]
pub struct Description {
    /// For dataset.json.
    pub dataset: Dataset,
    /// For files.json.
    pub files: format::Files,
    /// The views, with their schemas, whose columns the version alone does not tell.
    pub unbound: Vec<String>,
}

/// Describes what a catalog holds.
///
/// # Errors
/// [`LakeError::Format`] for a data file that does not lie under `data_dir`, or DuckDB's.
pub fn describe(contents: &Contents, data_dir: &DataDir) -> Result<Description, LakeError> {
    let mut view_columns = view_columns(contents)?;
    let (mut schemas, mut unbound) = (Vec::new(), Vec::new());
    for schema in &contents.schemas {
        let mut tables: Vec<format::Table> = schema.tables.iter().map(describe_table).collect();
        for view in &schema.views {
            // A view that does not bind has no columns, and is still part of the version.
            let columns =
                view_columns.remove(&(schema.name.clone(), view.name.clone())).flatten().unwrap_or_else(|| {
                    unbound.push(format!("{}.{}", schema.name, view.name));
                    Vec::new()
                });
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
        let macros = contents.macros.iter().filter(|((of, _), _)| *of == schema.name);
        let macros =
            macros.map(|((_, name), definition)| format::Macro { name: name.clone(), sql: signature(definition) });
        schemas.push(format::Schema {
            name: schema.name.clone(),
            comment: schema.comment.clone(),
            tables,
            macros: macros.collect(),
        });
    }
    Ok(Description { dataset: Dataset::new(schemas), files: files_of(contents, data_dir)?, unbound })
}

/// A macro as `CREATE MACRO` takes it, behind its name.
fn signature(definition: &Macro) -> String {
    let implementations: Vec<String> = definition
        .implementations
        .iter()
        .map(|implementation| {
            let names = implementation.parameters.iter().map(|parameter| parameter.name.as_str());
            let table = if implementation.kind == "table" { "TABLE " } else { "" };
            format!("({}) AS {table}{}", names.collect::<Vec<_>>().join(", "), implementation.sql)
        })
        .collect();
    implementations.join(", ")
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
///
/// # Errors
/// [`LakeError::Format`] for one that does not lie under `data_dir`.
pub fn files_of(contents: &Contents, data_dir: &DataDir) -> Result<format::Files, LakeError> {
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
