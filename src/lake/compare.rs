//! Comparing two catalogs, table by table. Tables whose file lists are equal are never read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::definition::{Contents, DataFile, Table};
use super::{LakeError, rows};
use crate::engine::{Attached, Connection, identifier, literal};

/// What became of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Only the new catalog has it.
    Added,
    /// Only the old catalog has it.
    Dropped,
    /// It is defined in another way.
    Schema,
    /// It holds other rows.
    Rows,
    /// It holds the same rows in other files.
    Rewritten,
    /// Nothing.
    Same,
}

/// What became of one table.
#[derive(Debug, Clone)]
pub struct TableChange {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// What became of it.
    pub change: Change,
}

/// How two catalogs differ.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Every table of either catalog, by schema and name.
    pub tables: Vec<TableChange>,
    /// Whether schemas, views or macros differ.
    pub others: bool,
    /// Why the rows of a table could not be compared; it counts as changed.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// The tables for which `which` holds.
    pub fn tables_that(&self, which: impl Fn(Change) -> bool) -> impl Iterator<Item = &TableChange> {
        self.tables.iter().filter(move |table| which(table.change))
    }

    /// How many tables are not what they were.
    pub fn changed(&self) -> usize {
        self.tables_that(|change| !matches!(change, Change::Same | Change::Rewritten)).count()
    }

    /// Whether the two hold the same (docs/format.md section 11: same rows, no commit).
    pub fn is_same(&self) -> bool {
        self.changed() == 0 && !self.others
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// What [`super::definition::read_contents`] found.
    pub contents: &'a Contents,
    /// Where its rows are read, should they have to be.
    pub rows: RowSource<'a>,
}

/// A catalog through which the rows of tables are read.
#[derive(Debug, Clone, Copy)]
pub enum RowSource<'a> {
    /// A frozen catalog and the data folder as a reader names it.
    Frozen(&'a Path, &'a str),
    /// A working catalog at one of its snapshots: its new files may not be in the repository yet.
    Working(&'a Path, i64),
}

impl RowSource<'_> {
    fn attach<'c>(&self, connection: &'c Connection) -> Result<Attached<'c>, LakeError> {
        let (catalog, options) = match self {
            Self::Frozen(catalog, data_path) => {
                (catalog, format!("READ_ONLY, DATA_PATH {}, OVERRIDE_DATA_PATH true", literal(data_path)))
            }
            Self::Working(catalog, snapshot) => {
                (catalog, format!("READ_ONLY, META_TYPE 'sqlite', BUSY_TIMEOUT 5000, SNAPSHOT_VERSION {snapshot}"))
            }
        };
        Ok(connection.attach(&format!("ducklake:{}", catalog.to_string_lossy()), &options)?)
    }
}

/// Compares two catalogs. Rows are read only where `read_rows` says so and the file lists differ; without it such a table
/// counts as [`Change::Rows`].
///
/// # Errors
/// DuckDB's. A table whose rows cannot be compared is no error but a warning.
pub fn compare(
    connection: &Connection,
    old: Option<Side<'_>>,
    new: Side<'_>,
    read_rows: bool,
) -> Result<Comparison, LakeError> {
    let nothing = Contents::default();
    let before = old.map_or(&nothing, |old| old.contents);
    let mut comparison = Comparison { others: others_differ(before, new.contents), ..Comparison::default() };
    let (mut old_tables, mut doubtful) = (by_name(before), Vec::new());
    for (name, table) in by_name(new.contents) {
        let change = match old_tables.remove(&name) {
            None => Change::Added,
            Some(old) if old.definition != table.definition => Change::Schema,
            Some(old) if file_set(old) == file_set(table) => Change::Same,
            Some(old) => {
                if read_rows && old.rows() == table.rows() {
                    doubtful.push((name, table));
                }
                Change::Rows
            }
        };
        comparison.push(name, change);
    }
    for name in old_tables.into_keys() {
        comparison.push(name, Change::Dropped);
    }
    comparison.tables.sort_by(|a, b| (&a.schema, &a.table).cmp(&(&b.schema, &b.table)));
    if let (Some(old), false) = (old, doubtful.is_empty()) {
        comparison.read_doubtful(connection, old.rows, new.rows, &doubtful)?;
    }
    Ok(comparison)
}

type Name<'a> = (&'a str, &'a str);

impl Comparison {
    fn push(&mut self, (schema, table): Name<'_>, change: Change) {
        self.tables.push(TableChange { schema: schema.to_owned(), table: table.to_owned(), change });
    }

    fn read_doubtful(
        &mut self,
        connection: &Connection,
        old: RowSource<'_>,
        new: RowSource<'_>,
        doubtful: &[(Name<'_>, &Table)],
    ) -> Result<(), LakeError> {
        let (old, new) = (old.attach(connection)?, new.attach(connection)?);
        for ((schema, name), table) in doubtful {
            let qualified =
                |database: &str| format!("{}.{}.{}", identifier(database), identifier(schema), identifier(name));
            let columns = &table.definition.columns;
            match rows::difference(connection, &qualified(old.name()), &qualified(new.name()), columns) {
                Ok(difference) if difference.added == 0 && difference.removed == 0 => {
                    let same = self.tables.iter_mut().find(|table| table.schema == *schema && table.table == *name);
                    if let Some(table) = same {
                        table.change = Change::Rewritten;
                    }
                }
                Ok(_) => {}
                Err(error) => self.warnings.push(format!("{schema}.{name} could not be compared: {error}")),
            }
        }
        new.detach()?;
        old.detach()?;
        Ok(())
    }
}

fn by_name(contents: &Contents) -> BTreeMap<Name<'_>, &Table> {
    contents.tables().map(|(schema, table)| ((schema, table.name.as_str()), table)).collect()
}

fn file_set(table: &Table) -> BTreeSet<&DataFile> {
    table.files.iter().collect()
}

fn others_differ(old: &Contents, new: &Contents) -> bool {
    let others = |contents: &Contents| {
        let schemas: BTreeMap<_, _> = contents
            .schemas
            .iter()
            .map(|schema| {
                let views: BTreeMap<_, _> = schema.views.iter().map(|view| (view.name.clone(), view.clone())).collect();
                (schema.name.clone(), (schema.comment.clone(), views))
            })
            .collect();
        (schemas, contents.macros.clone())
    };
    if old.is_empty() && new.is_empty() {
        return false;
    }
    others(old) != others(new)
}
