//! What a catalog holds, read from its metadata tables: the one reading behind dataset.json, files.json and comparisons.

use std::collections::BTreeMap;
use std::path::Path;

use super::attach::require_no_wal;
use super::copy::{self, Tables};
use super::thaw::CHECKOUT_KEY;
use super::types::scalar_type;
use super::{LakeError, paths};
use crate::engine::{Connection, EngineErrorKind, Identifier, Row, Sql, identifier, literal, sql};

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
    pub options: BTreeMap<String, String>,
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
    /// The files of its current rows.
    pub files: Vec<DataFile>,
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
                schema.name == "main" && schema.comment.is_none() && schema.tables.is_empty() && schema.views.is_empty()
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
    let reader = Reader { connection, database: identifier(attached.name()), tables };
    let contents = reader.contents()?;
    attached.detach()?;
    Ok(contents)
}

pub(super) struct Reader<'a> {
    connection: &'a Connection,
    database: Identifier,
    tables: Tables,
}

impl<'a> Reader<'a> {
    /// For a catalog in a private instance, where nothing else is attached that a look at all tables could disturb.
    pub(super) fn private(connection: &'a Connection, database: &str) -> Result<Self, LakeError> {
        let columns = connection.query(sql!(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = {database} AND NOT internal \
             ORDER BY table_name, column_index",
            database = literal(database)
        ))?;
        let mut tables = Tables::new();
        for column in columns {
            tables.entry(column.text(0)?.to_owned()).or_default().push(column.text(1)?.to_owned());
        }
        Ok(Self { connection, database: identifier(database), tables })
    }

    fn rows(&self, template: &'static str) -> Result<Vec<Row>, LakeError> {
        Ok(self.connection.query(Sql::template(template, &[("db", &self.main())]))?)
    }

    /// The schema that holds the metadata tables.
    fn main(&self) -> Sql {
        sql!("{database}.main", database = self.database)
    }

    fn has(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.iter().any(|name| name == column))
    }

    pub(super) fn contents(&self) -> Result<Contents, LakeError> {
        let mut contents = Contents {
            ducklake: self.format()?,
            macros: self.macros()?,
            options: self.options()?,
            former: self.former()?,
            ..Contents::default()
        };
        let (mut tables, mut views) = (self.table_lists()?, self.views()?);
        for row in self.rows(
            "SELECT s.schema_id::BIGINT, s.schema_name, g.value FROM {db}.ducklake_schema s \
             LEFT JOIN {db}.ducklake_tag g ON g.object_id = s.schema_id AND g.key = 'comment' AND g.end_snapshot IS NULL \
             WHERE s.end_snapshot IS NULL ORDER BY s.schema_id",
        )? {
            let id = row.integer(0)?;
            contents.schemas.push(Schema {
                name: row.text(1)?.to_owned(),
                comment: row.optional_text(2)?.map(str::to_owned),
                tables: tables.remove(&id).unwrap_or_default(),
                views: views.remove(&id).unwrap_or_default(),
            });
        }
        Ok(contents)
    }

    fn format(&self) -> Result<String, LakeError> {
        let rows = self.rows("SELECT value FROM {db}.ducklake_metadata WHERE key = 'version' LIMIT 1")?;
        rows.first().map_or_else(|| Ok(String::new()), |row| Ok(row.text(0)?.to_owned()))
    }

    /// What DuckLake writes there by itself, and what belongs to a working copy, is left out.
    fn options(&self) -> Result<BTreeMap<String, String>, LakeError> {
        let rows = self.connection.query(sql!(
            "SELECT key, value FROM {db}.ducklake_metadata WHERE scope IS NULL \
             AND key NOT IN ('version', 'created_by', 'data_path', 'encrypted', 'delete_older_than', {checkout})",
            db = self.main(),
            checkout = literal(CHECKOUT_KEY)
        ))?;
        rows.iter().map(|row| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned()))).collect()
    }

    fn table_lists(&self) -> Result<BTreeMap<i64, Vec<Table>>, LakeError> {
        let mut columns = self.columns()?;
        let (mut partitions, mut sorts) = (self.partitions()?, self.sorts()?);
        let mut files = self.files(&sql!("AND d.end_snapshot IS NULL"), &sql!("f.end_snapshot IS NULL"))?;
        let mut tables: BTreeMap<i64, Vec<Table>> = BTreeMap::new();
        for row in self.rows(
            "SELECT t.schema_id::BIGINT, t.table_id::BIGINT, t.table_name, g.value FROM {db}.ducklake_table t \
             LEFT JOIN {db}.ducklake_tag g ON g.object_id = t.table_id AND g.key = 'comment' AND g.end_snapshot IS NULL \
             WHERE t.end_snapshot IS NULL ORDER BY t.table_id",
        )? {
            let id = row.integer(1)?;
            tables.entry(row.integer(0)?).or_default().push(Table {
                id,
                name: row.text(2)?.to_owned(),
                definition: Definition {
                    comment: row.optional_text(3)?.map(str::to_owned),
                    columns: columns.remove(&id).unwrap_or_default(),
                    partition_by: partitions.remove(&id).unwrap_or_default(),
                    sort_by: sorts.remove(&id).unwrap_or_default(),
                },
                files: files.remove(&id).unwrap_or_default(),
            });
        }
        Ok(tables)
    }

    fn columns(&self) -> Result<BTreeMap<i64, Vec<Column>>, LakeError> {
        // Before 1.0 every default is a value.
        let is_expression = if self.has("ducklake_column", "default_value_type") {
            sql!("coalesce(c.default_value_type = 'expression', false)")
        } else {
            sql!("false")
        };
        let rows = self.connection.query(sql!(
            "SELECT c.table_id::BIGINT, c.column_id::BIGINT, c.parent_column::BIGINT, c.column_name, c.column_type, \
             c.nulls_allowed, g.value, CASE WHEN c.default_value <> 'NULL' THEN c.default_value END, {is_expression} \
             FROM {db}.ducklake_column c LEFT JOIN {db}.ducklake_column_tag g ON g.table_id = c.table_id \
             AND g.column_id = c.column_id AND g.key = 'comment' AND g.end_snapshot IS NULL \
             WHERE c.end_snapshot IS NULL ORDER BY c.table_id, c.column_order, c.column_id",
            is_expression,
            db = self.main()
        ))?;
        let mut children: BTreeMap<(i64, Option<i64>), Vec<&Row>> = BTreeMap::new();
        for row in &rows {
            children.entry((row.integer(0)?, row.optional_integer(2)?)).or_default().push(row);
        }
        let mut columns: BTreeMap<i64, Vec<Column>> = BTreeMap::new();
        for ((table, parent), rows) in &children {
            if parent.is_some() {
                continue;
            }
            for row in rows {
                let is_expression = row.boolean(8)?;
                columns.entry(*table).or_default().push(Column {
                    name: row.text(3)?.to_owned(),
                    data_type: data_type(row, &children, 0)?,
                    nullable: row.boolean(5)?,
                    comment: row.optional_text(6)?.map(str::to_owned),
                    default: row.optional_text(7)?.map(|text| ColumnDefault { text: text.to_owned(), is_expression }),
                });
            }
        }
        Ok(columns)
    }

    fn partitions(&self) -> Result<BTreeMap<i64, Vec<String>>, LakeError> {
        self.texts(
            "SELECT i.table_id::BIGINT, CASE WHEN p.transform = 'identity' THEN c.column_name \
             ELSE p.transform || '(' || c.column_name || ')' END \
             FROM {db}.ducklake_partition_info i JOIN {db}.ducklake_partition_column p ON p.partition_id = i.partition_id \
             LEFT JOIN {db}.ducklake_column c ON c.table_id = i.table_id AND c.column_id = p.column_id \
             AND c.end_snapshot IS NULL WHERE i.end_snapshot IS NULL ORDER BY i.table_id, p.partition_key_index",
        )
    }

    fn sorts(&self) -> Result<BTreeMap<i64, Vec<String>>, LakeError> {
        if !self.tables.contains_key("ducklake_sort_info") {
            return Ok(BTreeMap::new());
        }
        self.texts(
            "SELECT i.table_id::BIGINT, concat_ws(' ', e.expression, e.sort_direction, replace(e.null_order, '_', ' ')) \
             FROM {db}.ducklake_sort_info i JOIN {db}.ducklake_sort_expression e ON e.sort_id = i.sort_id \
             WHERE i.end_snapshot IS NULL ORDER BY i.table_id, e.sort_key_index",
        )
    }

    fn texts(&self, template: &'static str) -> Result<BTreeMap<i64, Vec<String>>, LakeError> {
        let mut texts: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for row in self.rows(template)? {
            texts.entry(row.integer(0)?).or_default().push(row.optional_text(1)?.unwrap_or("?").to_owned());
        }
        Ok(texts)
    }

    /// The files of each table, by its number. `deletes` says which lists of deleted rows count, `which` which pairs.
    fn files(&self, deletes: &Sql, which: &Sql) -> Result<BTreeMap<i64, Vec<DataFile>>, LakeError> {
        // What is not relative, a folder or a file, becomes an absolute path here, which the check against the data
        // folder refuses: DuckDB would read it from wherever the reader happens to be.
        let path = |file: &'static str| {
            sql!(
                "CASE WHEN {file}.path_is_relative THEN coalesce({folder}, '/') || {file}.path ELSE '/' || {file}.path END",
                file = Sql::constant(file),
                folder = paths::TABLE_FOLDER
            )
        };
        let rows = self.connection.query(sql!(
            "SELECT f.table_id::BIGINT, f.data_file_id::BIGINT, {data_path}, f.record_count::BIGINT, \
             f.file_size_bytes::BIGINT, {delete_path}, d.delete_count::BIGINT, d.file_size_bytes::BIGINT \
             FROM {db}.ducklake_data_file f \
             LEFT JOIN {db}.ducklake_delete_file d ON d.data_file_id = f.data_file_id {deletes} \
             LEFT JOIN (SELECT DISTINCT ON (table_id) * FROM {db}.ducklake_table ORDER BY table_id, begin_snapshot DESC) t \
             ON t.table_id = f.table_id \
             LEFT JOIN {db}.ducklake_schema s ON s.schema_id = t.schema_id \
             WHERE {which} ORDER BY f.table_id, f.data_file_id, d.delete_file_id",
            data_path = path("f"),
            delete_path = path("d"),
            db = self.main(),
            deletes,
            which
        ))?;
        let mut files: BTreeMap<i64, Vec<DataFile>> = BTreeMap::new();
        for row in rows {
            let stored = |at: usize| -> Result<StoredRows, LakeError> {
                Ok(StoredRows { path: row.text(at)?.to_owned(), rows: row.count(at + 1)?, bytes: row.count(at + 2)? })
            };
            let deletes = if row.optional_text(5)?.is_some() { Some(stored(5)?) } else { None };
            let file = DataFile { id: row.integer(1)?, file: stored(2)?, deletes };
            files.entry(row.integer(0)?).or_default().push(file);
        }
        Ok(files)
    }

    /// Files that only older snapshots of the catalog read: those of a version made with `keep_snapshots`.
    fn former(&self) -> Result<Vec<FormerTable>, LakeError> {
        let mut files = self.files(&sql!(""), &sql!("f.end_snapshot IS NOT NULL OR d.end_snapshot IS NOT NULL"))?;
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let names = self.rows(
            "SELECT DISTINCT ON (t.table_id) t.table_id::BIGINT, s.schema_name, t.table_name FROM {db}.ducklake_table t \
             JOIN {db}.ducklake_schema s ON s.schema_id = t.schema_id ORDER BY t.table_id, t.begin_snapshot DESC",
        )?;
        let mut former = Vec::new();
        for row in names {
            if let Some(files) = files.remove(&row.integer(0)?) {
                let (schema, table) = (row.text(1)?.to_owned(), row.text(2)?.to_owned());
                former.push(FormerTable { schema, table, files });
            }
        }
        Ok(former)
    }

    fn views(&self) -> Result<BTreeMap<i64, Vec<View>>, LakeError> {
        let mut views: BTreeMap<i64, Vec<View>> = BTreeMap::new();
        for row in self.rows(
            "SELECT v.schema_id::BIGINT, v.view_name, g.value, v.sql, v.column_aliases FROM {db}.ducklake_view v \
             LEFT JOIN {db}.ducklake_tag g ON g.object_id = v.view_id AND g.key = 'comment' AND g.end_snapshot IS NULL \
             WHERE v.end_snapshot IS NULL ORDER BY v.view_id",
        )? {
            views.entry(row.integer(0)?).or_default().push(View {
                name: row.text(1)?.to_owned(),
                comment: row.optional_text(2)?.map(str::to_owned),
                sql: row.text(3)?.to_owned(),
                column_aliases: row.optional_text(4)?.unwrap_or_default().to_owned(),
            });
        }
        Ok(views)
    }

    fn macros(&self) -> Result<BTreeMap<(String, String), Macro>, LakeError> {
        if !self.tables.contains_key("ducklake_macro") {
            return Ok(BTreeMap::new());
        }
        let mut parameters: BTreeMap<(i64, i64), Vec<MacroParameter>> = BTreeMap::new();
        for row in self.rows(
            "SELECT macro_id::BIGINT, impl_id::BIGINT, parameter_name, parameter_type, default_value, default_value_type \
             FROM {db}.ducklake_macro_parameters ORDER BY macro_id, impl_id, column_id",
        )? {
            let default = row.optional_text(4)?.map(|text| MacroDefault {
                text: text.to_owned(),
                data_type: row.optional_text(5).ok().flatten().unwrap_or("unknown").to_owned(),
            });
            let (name, data_type) = (row.text(2)?.to_owned(), row.optional_text(3)?.unwrap_or("unknown").to_owned());
            let key = (row.integer(0)?, row.integer(1)?);
            parameters.entry(key).or_default().push(MacroParameter { name, data_type, default });
        }
        let mut macros: BTreeMap<(String, String), Macro> = BTreeMap::new();
        for row in self.rows(
            "SELECT s.schema_name, m.macro_name, i.macro_id::BIGINT, i.impl_id::BIGINT, i.type, i.dialect, i.sql \
             FROM {db}.ducklake_macro m JOIN {db}.ducklake_schema s ON s.schema_id = m.schema_id AND s.end_snapshot IS NULL \
             JOIN {db}.ducklake_macro_impl i ON i.macro_id = m.macro_id WHERE m.end_snapshot IS NULL \
             ORDER BY m.macro_id, i.impl_id",
        )? {
            let text = |at| Ok::<_, LakeError>(row.optional_text(at)?.unwrap_or_default().to_owned());
            let implementation = MacroImplementation {
                kind: text(4)?,
                dialect: text(5)?,
                sql: text(6)?,
                parameters: parameters.remove(&(row.integer(2)?, row.integer(3)?)).unwrap_or_default(),
            };
            macros.entry((text(0)?, text(1)?)).or_default().implementations.push(implementation);
        }
        Ok(macros)
    }
}

/// Nesting beyond this is no type that DuckDB could have written.
const DEEPEST: usize = 64;

fn data_type(row: &Row, children: &BTreeMap<(i64, Option<i64>), Vec<&Row>>, depth: usize) -> Result<String, LakeError> {
    if depth > DEEPEST {
        return Err(LakeError::Corrupt {
            object: "the catalog".to_owned(),
            why: "a column type has no end".to_owned(),
        });
    }
    let name = row.text(4)?;
    let parts = children.get(&(row.integer(0)?, Some(row.integer(1)?))).map(Vec::as_slice).unwrap_or_default();
    let inner = |part: &&Row| data_type(part, children, depth + 1);
    Ok(match (name, parts) {
        ("list", [element]) => format!("{}[]", inner(element)?),
        ("map", [key, value]) => format!("MAP({}, {})", inner(key)?, inner(value)?),
        ("struct", fields) => {
            let fields = fields
                .iter()
                .map(|field| Ok(format!("{} {}", identifier(field.text(3)?).to_text(), inner(field)?)))
                .collect::<Result<Vec<_>, LakeError>>()?;
            format!("STRUCT({})", fields.join(", "))
        }
        _ => scalar_type(name),
    })
}
