//! Comparing two catalogs, table by table. Files that both name are not read, as long as both find the same in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::LakeError;
use super::definition::{Column, Contents, DataFile, Mapping, StoredRows, Table};
use super::narrow::{Kept, RowSource};
use super::rows::{self, RowDifference};
use crate::engine::{Connection, qualified};

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
    /// Its rows before, where it was there.
    pub rows_before: Option<u64>,
    /// Its rows now, where it is there.
    pub rows_now: Option<u64>,
    /// How the rows differ, where they were compared.
    pub rows: Option<RowDifference>,
    /// Data and delete files that only the new side names.
    pub files_added: u64,
    /// Data and delete files that only the old side names.
    pub files_removed: u64,
    /// Bytes of the files added.
    pub bytes_added: u64,
}

/// Of which tables with differing files the rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadRows {
    /// Of none: such a table counts as [`Change::Rows`].
    Never,
    /// Of those whose number of rows is the same: whether they changed is all that is asked.
    WhereDoubtful,
    /// Of all: how much they changed is asked.
    Always,
}

/// How two catalogs differ.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Every table of either catalog, by schema and name.
    pub tables: Vec<TableChange>,
    /// Whether schemas, views, macros or options of more than a table differ.
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

/// Compares two catalogs. `folder` is for copies that are made on the way.
///
/// # Errors
/// DuckDB's. A table whose rows cannot be compared is no error but a warning.
pub fn compare(
    connection: &Connection,
    old: Option<Side<'_>>,
    new: Side<'_>,
    read_rows: ReadRows,
    folder: &Path,
) -> Result<Comparison, LakeError> {
    let nothing = Contents::default();
    let before = old.map_or(&nothing, |old| old.contents);
    let mut comparison = Comparison { others: others_differ(before, new.contents), ..Comparison::default() };
    let (mut old_tables, mut doubtful) = (by_name(before), Vec::new());
    for (name, table) in by_name(new.contents) {
        let old = old_tables.remove(&name);
        let change = match old {
            None => Change::Added,
            Some(old) if old.definition != table.definition => Change::Schema,
            Some(old) if reads_the_same(old, table) => Change::Same,
            Some(_) => Change::Rows,
        };
        if let Some(old) = old {
            let wanted = match read_rows {
                ReadRows::Never => false,
                ReadRows::WhereDoubtful => change == Change::Rows && old.rows() == table.rows(),
                ReadRows::Always => change == Change::Rows || change == Change::Schema,
            };
            if wanted {
                doubtful.push(Doubtful { name, old, new: table, at: comparison.tables.len() });
            }
        }
        comparison.tables.push(table_change(name, change, old, Some(table)));
    }
    if let (Some(old), false) = (old, doubtful.is_empty()) {
        comparison.read_doubtful(connection, old.rows, new.rows, &doubtful, folder)?;
    }
    for (name, table) in old_tables {
        comparison.tables.push(table_change(name, Change::Dropped, Some(table), None));
    }
    comparison.tables.sort_by(|a, b| (&a.schema, &a.table).cmp(&(&b.schema, &b.table)));
    Ok(comparison)
}

type Name<'a> = (&'a str, &'a str);

/// A table whose files differ.
struct Doubtful<'a> {
    name: Name<'a>,
    old: &'a Table,
    new: &'a Table,
    /// Its place in the comparison.
    at: usize,
}

impl Doubtful<'_> {
    /// The columns that both sides have; each side has them under their names.
    fn common_columns(&self) -> Vec<Column> {
        let (old, new) = (&self.old.definition.columns, &self.new.definition.columns);
        let same_name = |column: &&Column| old.iter().any(|other| other.name == column.name);
        new.iter().filter(same_name).cloned().collect()
    }

    /// The files of each side whose rows have to be read: those that the other has not. A file that both have holds other rows
    /// for each when they find a column in it by another number.
    fn files_to_read(&self) -> ((i64, Vec<i64>), (i64, Vec<i64>)) {
        let alike = |column: &Column| self.old.readings.get(&column.name) == self.new.readings.get(&column.name);
        if self.common_columns().iter().all(alike) {
            (only_in(self.old, self.new), only_in(self.new, self.old))
        } else {
            let all = |table: &Table| (table.id, table.files.iter().map(|file| file.id).collect());
            (all(self.old), all(self.new))
        }
    }
}

impl Comparison {
    fn read_doubtful(
        &mut self,
        connection: &Connection,
        old: RowSource<'_>,
        new: RowSource<'_>,
        doubtful: &[Doubtful<'_>],
        folder: &Path,
    ) -> Result<(), LakeError> {
        let (of_old, of_new): (Kept, Kept) = doubtful.iter().map(Doubtful::files_to_read).unzip();
        let (old, new) = (old.attach(connection, folder, &of_old)?, new.attach(connection, folder, &of_new)?);
        for table in doubtful {
            let (schema, name) = table.name;
            let columns = table.common_columns();
            if columns.is_empty() {
                continue;
            }
            let (before, now) = (qualified(&[old.name(), schema, name]), qualified(&[new.name(), schema, name]));
            let difference = rows::difference(connection, &before, &now, &columns);
            let Some(change) = self.tables.get_mut(table.at) else { continue };
            match difference {
                Ok(difference) => {
                    change.rows = Some(difference);
                    if change.change == Change::Rows && difference.is_none() {
                        change.change = Change::Rewritten;
                    }
                }
                Err(error) => self.warnings.push(format!("{schema}.{name} could not be compared: {error}")),
            }
        }
        new.detach()?;
        old.detach()?;
        Ok(())
    }
}

fn table_change((schema, table): Name<'_>, change: Change, old: Option<&Table>, new: Option<&Table>) -> TableChange {
    let (before, now) = (old.map(stored_set).unwrap_or_default(), new.map(stored_set).unwrap_or_default());
    TableChange {
        schema: schema.to_owned(),
        table: table.to_owned(),
        change,
        rows_before: old.map(Table::rows),
        rows_now: new.map(Table::rows),
        rows: None,
        files_added: now.difference(&before).count() as u64,
        files_removed: before.difference(&now).count() as u64,
        bytes_added: now.difference(&before).map(|file| file.bytes).sum(),
    }
}

fn by_name(contents: &Contents) -> BTreeMap<Name<'_>, &Table> {
    contents.tables().map(|(schema, table)| ((schema, table.name.as_str()), table)).collect()
}

/// Whether two tables of one definition are read from the same files in the same way, so that they hold the same rows.
fn reads_the_same(old: &Table, new: &Table) -> bool {
    let (before, now) = (file_set(old), file_set(new));
    before == now && (now.is_empty() || old.readings == new.readings)
}

/// What makes a data file hold the same rows in two catalogs, for columns of the same numbers: itself, what is deleted from it, which
/// column is which in it, and whether all of it is read.
type Identity<'a> = (&'a StoredRows, Option<&'a StoredRows>, Option<&'a Mapping>, Option<i64>);

fn identity(file: &DataFile) -> Identity<'_> {
    (&file.file, file.deletes.as_ref(), file.mapping.as_deref(), file.whole_from)
}

/// The files of a table that the other has not, by DuckLake's numbers.
fn only_in(table: &Table, other: &Table) -> (i64, Vec<i64>) {
    let shared = file_set(other);
    let differs = |file: &&DataFile| !shared.contains(&identity(file));
    (table.id, table.files.iter().filter(differs).map(|file| file.id).collect())
}

fn file_set(table: &Table) -> BTreeSet<Identity<'_>> {
    table.files.iter().map(identity).collect()
}

/// Every data and delete file on its own.
fn stored_set(table: &Table) -> BTreeSet<&StoredRows> {
    table.files.iter().flat_map(|file| std::iter::once(&file.file).chain(&file.deletes)).collect()
}

fn others_differ(old: &Contents, new: &Contents) -> bool {
    let others = |contents: &Contents| {
        let schemas: BTreeMap<_, _> = contents
            .schemas
            .iter()
            .map(|schema| {
                let views: BTreeMap<_, _> = schema.views.iter().map(|view| (view.name.clone(), view.clone())).collect();
                (schema.name.clone(), (schema.comment.clone(), schema.options.clone(), views))
            })
            .collect();
        (schemas, contents.macros.clone(), contents.options.clone())
    };
    if old.is_empty() && new.is_empty() {
        return false;
    }
    others(old) != others(new)
}
