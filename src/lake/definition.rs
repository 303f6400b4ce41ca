//! What a catalog holds: the one reading behind dataset.json, files.json and comparisons.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::attach::require_no_wal;
use super::reader::Reader;
use super::{LakeError, copy};
use crate::engine::{Connection, EngineErrorKind, sql};

/// Options of DuckLake's, as `CALL lake.set_option(…)` sets them.
pub type Options = BTreeMap<String, String>;

/// Everything in a frozen catalog, in catalog order.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// The DuckLake format, such as `1.0`.
    pub ducklake: String,
    /// The schemas.
    pub schemas: Vec<Schema>,
    /// Macros by schema and name.
    pub macros: BTreeMap<(String, String), Macro>,
    /// Options that the user set for the whole catalog.
    pub options: Options,
    /// Files that the current snapshot does not read.
    pub former: Vec<FormerTable>,
}

/// A schema.
#[derive(Debug, Clone)]
pub struct Schema {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: Option<String>,
    /// Options that the user set for it.
    pub options: Options,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its views.
    pub views: Vec<View>,
}

/// A table: how it is defined, and the files that hold its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// DuckLake's number for it in this catalog.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// How it is defined.
    pub definition: Definition,
    /// How the values of each column are found in the files.
    pub readings: BTreeMap<String, Vec<ColumnReading>>,
    /// The files of its current rows.
    pub files: Vec<DataFile>,
}

/// How a column, or a field of one, is found in data files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnReading {
    /// The number that it has in the files.
    pub number: i64,
    /// What it holds in files that have it not.
    pub initial_default: Option<String>,
}

/// Files of a table, which may be gone, that only older snapshots of the catalog read.
#[derive(Debug, Clone)]
pub struct FormerTable {
    /// The name of its schema.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// The files.
    pub files: Vec<DataFile>,
}

/// All of a table but its name and rows: two tables with equal definitions hold the same kind of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Definition {
    /// The comment.
    pub comment: Option<String>,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// Partition keys, as `ALTER TABLE … SET PARTITIONED BY` takes them.
    pub partition_by: Vec<String>,
    /// Sort keys, as `ALTER TABLE … SET SORTED BY` takes them.
    pub sort_by: Vec<String>,
    /// Options that the user set for it.
    pub options: Options,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, by DuckDB's name.
    pub data_type: String,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// Its comment.
    pub comment: Option<String>,
    /// Its default.
    pub default: Option<ColumnDefault>,
}

/// What a column holds where an insert gives no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDefault {
    /// The value or the expression, as the catalog writes it.
    pub text: String,
    /// Whether it is an expression, which runs at each insert.
    pub is_expression: bool,
}

/// A macro.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Macro {
    /// One for each list of parameters.
    pub implementations: Vec<MacroImplementation>,
}

/// What a macro does for one list of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroImplementation {
    /// `scalar` or `table`.
    pub kind: String,
    /// The dialect of its SQL.
    pub dialect: String,
    /// Its SQL. `{DUCKLAKE_CATALOG}` stands for the alias that the catalog is attached under.
    pub sql: String,
    /// Its parameters.
    pub parameters: Vec<MacroParameter>,
}

/// A parameter of a macro.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroParameter {
    /// Its name.
    pub name: String,
    /// Its type; `unknown` where any is taken.
    pub data_type: String,
    /// Its default.
    pub default: Option<MacroDefault>,
}

/// The default of a macro's parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroDefault {
    /// The value, as the catalog writes it.
    pub text: String,
    /// Its type, by DuckLake's name.
    pub data_type: String,
}

/// A view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: Option<String>,
    /// Its query. `{DUCKLAKE_CATALOG}` stands for the alias that the catalog is attached under.
    pub sql: String,
    /// Names for its columns, where it gives them.
    pub column_aliases: String,
}

/// A data file and what is deleted from it. Paths are relative to the data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// DuckLake's number for it in this catalog.
    pub id: i64,
    /// The file.
    pub file: StoredRows,
    /// The file that lists deleted rows.
    pub deletes: Option<StoredRows>,
    /// Which column each of its columns is, where it does not tell by numbers: it was added, not written by DuckLake.
    pub mapping: Option<Arc<Mapping>>,
    /// The snapshot from which on all its rows are read, where that is not yet the last one.
    pub whole_from: Option<i64>,
}

/// Which column of the table each column of a file is.
pub type Mapping = Vec<MappedColumn>;

/// A column in a [`Mapping`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedColumn {
    /// Its number in the mapping.
    pub id: i64,
    /// The number of the one that it is a field of.
    pub parent: Option<i64>,
    /// Its name in the file.
    pub source: String,
    /// The number of the table's column.
    pub target: Option<i64>,
    /// Whether its value is part of the file's path.
    pub is_partition: bool,
}

/// A Parquet file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredRows {
    /// Where it is, relative to the data folder.
    pub path: String,
    /// Its rows.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

impl Table {
    /// The number of rows: those in the files less those deleted.
    pub fn rows(&self) -> u64 {
        let rows =
            |file: &DataFile| file.file.rows.saturating_sub(file.deletes.as_ref().map_or(0, |deletes| deletes.rows));
        self.files.iter().map(rows).sum()
    }
}

impl Contents {
    /// Every table with the name of its schema.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.schemas.iter().flat_map(|schema| schema.tables.iter().map(|table| (schema.name.as_str(), table)))
    }

    /// Whether there is nothing at all but DuckLake's own `main` schema.
    pub fn is_empty(&self) -> bool {
        self.macros.is_empty()
            && self.options.is_empty()
            && self.schemas.iter().all(|schema| {
                schema.name == "main"
                    && schema.comment.is_none()
                    && schema.options.is_empty()
                    && schema.tables.is_empty()
                    && schema.views.is_empty()
            })
    }
}

/// Reads a frozen catalog that fdl has made: at a commit, or of the rows of one that came from a repository
/// ([`super::Foreign::rewrite`]).
///
/// # Errors
/// [`LakeError::Corrupt`] for a file that is no DuckLake catalog, those of [`require_no_wal`], or DuckDB's.
pub fn read_contents(connection: &Connection, frozen: &Path) -> Result<Contents, LakeError> {
    require_no_wal(frozen)?;
    let corrupt = |why: String| LakeError::Corrupt { object: frozen.to_string_lossy().into_owned(), why };
    let attached = connection.attach(&frozen.to_string_lossy(), sql!("TYPE duckdb, READ_ONLY"));
    let attached = attached.map_err(|error| match error.kind {
        EngineErrorKind::Other => corrupt(error.message),
        _ => error.into(),
    })?;
    let tables = copy::tables(connection, attached.name())?;
    if !tables.contains_key("ducklake_snapshot") {
        return Err(corrupt("it is no DuckLake catalog".to_owned()));
    }
    let contents = Reader::new(connection, attached.name(), tables).contents()?;
    attached.detach()?;
    Ok(contents)
}
