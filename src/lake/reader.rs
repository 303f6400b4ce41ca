//! Reading what a catalog holds from its metadata tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::copy::Tables;
use super::definition::{
    Column, ColumnDefault, ColumnReading, Contents, DataFile, Definition, FormerTable, Macro, MacroDefault,
    MacroImplementation, MacroParameter, MappedColumn, Mapping, Options, Schema, StoredRows, Table, View,
};
use super::types::scalar_type;
use super::{LakeError, paths};
use crate::engine::{Connection, Identifier, Row, Sql, identifier, literal, sql};

/// The condition on rows of `ducklake_metadata` that they are options of what a version holds. What DuckLake writes there by itself, and
/// what belongs to a working copy, is not.
pub(super) const IS_OPTION: Sql = Sql::constant(
    "(scope IS NOT NULL OR key NOT IN ('version', 'created_by', 'data_path', 'encrypted', 'delete_older_than', 'fdl_checkout'))",
);

pub(super) struct Reader<'a> {
    connection: &'a Connection,
    database: Identifier,
    tables: Tables,
}

impl<'a> Reader<'a> {
    /// For an attached catalog with these tables.
    pub(super) fn new(connection: &'a Connection, database: &str, tables: Tables) -> Self {
        Self { connection, database: identifier(database), tables }
    }

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
        Ok(Self::new(connection, database, tables))
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
        let mut options = self.options()?;
        let mut contents = Contents {
            ducklake: self.format()?,
            macros: self.macros()?,
            options: options.remove(&Scope::Catalog).unwrap_or_default(),
            former: self.former()?,
            ..Contents::default()
        };
        let (mut tables, mut views) = (self.table_lists(&mut options)?, self.views()?);
        for row in self.rows(
            "SELECT s.schema_id::BIGINT, s.schema_name, g.value FROM {db}.ducklake_schema s \
             LEFT JOIN {db}.ducklake_tag g ON g.object_id = s.schema_id AND g.key = 'comment' AND g.end_snapshot IS NULL \
             WHERE s.end_snapshot IS NULL ORDER BY s.schema_id",
        )? {
            let id = row.integer(0)?;
            contents.schemas.push(Schema {
                name: row.text(1)?.to_owned(),
                comment: row.optional_text(2)?.map(str::to_owned),
                options: options.remove(&Scope::Schema(id)).unwrap_or_default(),
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

    fn options(&self) -> Result<BTreeMap<Scope, Options>, LakeError> {
        let rows = self.connection.query(sql!(
            "SELECT key, value, scope, scope_id::BIGINT FROM {db}.ducklake_metadata WHERE {IS_OPTION}",
            db = self.main(),
            IS_OPTION
        ))?;
        let mut options: BTreeMap<Scope, Options> = BTreeMap::new();
        for row in rows {
            let scope = match (row.optional_text(2)?, row.optional_integer(3)?) {
                (Some("schema"), Some(id)) => Scope::Schema(id),
                (Some("table"), Some(id)) => Scope::Table(id),
                (None, _) => Scope::Catalog,
                // DuckLake passes over it as well.
                _ => continue,
            };
            options.entry(scope).or_default().insert(row.text(0)?.to_owned(), row.text(1)?.to_owned());
        }
        Ok(options)
    }

    fn table_lists(&self, options: &mut BTreeMap<Scope, Options>) -> Result<BTreeMap<i64, Vec<Table>>, LakeError> {
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
            let (columns, readings) = columns.remove(&id).unwrap_or_default();
            tables.entry(row.integer(0)?).or_default().push(Table {
                id,
                name: row.text(2)?.to_owned(),
                definition: Definition {
                    comment: row.optional_text(3)?.map(str::to_owned),
                    columns,
                    partition_by: partitions.remove(&id).unwrap_or_default(),
                    sort_by: sorts.remove(&id).unwrap_or_default(),
                    options: options.remove(&Scope::Table(id)).unwrap_or_default(),
                },
                readings,
                files: files.remove(&id).unwrap_or_default(),
            });
        }
        Ok(tables)
    }

    /// The columns of each table, and how they are read.
    fn columns(&self) -> Result<BTreeMap<i64, Columns>, LakeError> {
        // Before 1.0 every default is a value.
        let is_expression = if self.has("ducklake_column", "default_value_type") {
            sql!("coalesce(c.default_value_type = 'expression', false)")
        } else {
            sql!("false")
        };
        let rows = self.connection.query(sql!(
            "SELECT c.table_id::BIGINT, c.column_id::BIGINT, c.parent_column::BIGINT, c.column_name, c.column_type, \
             c.nulls_allowed, g.value, CASE WHEN c.default_value <> 'NULL' THEN c.default_value END, {is_expression}, \
             CASE WHEN c.initial_default <> 'NULL' THEN c.initial_default END \
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
        let mut columns: BTreeMap<i64, Columns> = BTreeMap::new();
        for ((table, parent), rows) in &children {
            if parent.is_some() {
                continue;
            }
            for row in rows {
                let is_expression = row.boolean(8)?;
                let (columns, readings) = columns.entry(*table).or_default();
                let mut reading = Vec::new();
                let data_type = data_type(row, &children, &mut reading, 0)?;
                readings.insert(row.text(3)?.to_owned(), reading);
                columns.push(Column {
                    name: row.text(3)?.to_owned(),
                    data_type,
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
        let whole_from = if self.has("ducklake_data_file", "partial_max") {
            sql!("f.partial_max::BIGINT")
        } else {
            WHOLE_FROM_IN_0_3
        };
        let mappings = self.mappings()?;
        let rows = self.connection.query(sql!(
            "SELECT f.table_id::BIGINT, f.data_file_id::BIGINT, {data_path}, f.record_count::BIGINT, \
             f.file_size_bytes::BIGINT, {delete_path}, d.delete_count::BIGINT, d.file_size_bytes::BIGINT, \
             f.mapping_id::BIGINT, CASE WHEN {whole_from} > (SELECT max(snapshot_id::BIGINT) FROM {db}.ducklake_snapshot) \
             THEN {whole_from} END \
             FROM {db}.ducklake_data_file f \
             LEFT JOIN {db}.ducklake_delete_file d ON d.data_file_id = f.data_file_id {deletes} \
             LEFT JOIN (SELECT DISTINCT ON (table_id) * FROM {db}.ducklake_table \
             ORDER BY table_id, end_snapshot IS NOT NULL, begin_snapshot DESC) t \
             ON t.table_id = f.table_id \
             LEFT JOIN (SELECT DISTINCT ON (schema_id) * FROM {db}.ducklake_schema \
             ORDER BY schema_id, end_snapshot IS NOT NULL, begin_snapshot DESC) s ON s.schema_id = t.schema_id \
             WHERE {which} ORDER BY f.table_id, f.data_file_id, d.delete_file_id",
            data_path = path("f"),
            delete_path = path("d"),
            db = self.main(),
            whole_from,
            deletes,
            which
        ))?;
        let mut files: BTreeMap<i64, Vec<DataFile>> = BTreeMap::new();
        for row in rows {
            let stored = |at: usize| -> Result<StoredRows, LakeError> {
                Ok(StoredRows { path: row.text(at)?.to_owned(), rows: row.count(at + 1)?, bytes: row.count(at + 2)? })
            };
            let deletes = if row.optional_text(5)?.is_some() { Some(stored(5)?) } else { None };
            let mapping = row.optional_integer(8)?.and_then(|id| mappings.get(&id).cloned());
            let file = DataFile {
                id: row.integer(1)?,
                file: stored(2)?,
                deletes,
                mapping,
                whole_from: row.optional_integer(9)?,
            };
            files.entry(row.integer(0)?).or_default().push(file);
        }
        Ok(files)
    }

    /// What `ducklake_name_mapping` says of files that were added, by the number of the mapping.
    fn mappings(&self) -> Result<BTreeMap<i64, Arc<Mapping>>, LakeError> {
        let mut mappings: BTreeMap<i64, Mapping> = BTreeMap::new();
        for row in self.rows(
            "SELECT mapping_id::BIGINT, column_id::BIGINT, parent_column::BIGINT, source_name, target_field_id::BIGINT, \
             coalesce(is_partition::BOOLEAN, false) FROM {db}.ducklake_name_mapping ORDER BY mapping_id, column_id",
        )? {
            mappings.entry(row.integer(0)?).or_default().push(MappedColumn {
                id: row.integer(1)?,
                parent: row.optional_integer(2)?,
                source: row.optional_text(3)?.unwrap_or_default().to_owned(),
                target: row.optional_integer(4)?,
                is_partition: row.boolean(5)?,
            });
        }
        Ok(mappings.into_iter().map(|(id, mapping)| (id, Arc::new(mapping))).collect())
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

/// The columns of a table, and how they are read.
type Columns = (Vec<Column>, BTreeMap<String, Vec<ColumnReading>>);

/// What an option was set for, by DuckLake's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Catalog,
    Schema(i64),
    Table(i64),
}

/// SQL for the snapshot from which on all rows of the file `f` are read: of a merged file, in one of the two ways in which 0.3 says it.
const WHOLE_FROM_IN_0_3: Sql = Sql::constant(
    "greatest(TRY_CAST(regexp_extract(f.partial_file_info, 'partial_max:([0-9]+)', 1) AS BIGINT), \
     list_max(TRY_CAST(regexp_extract_all(f.partial_file_info, '([0-9]+):', 1) AS BIGINT[])))",
);

/// Nesting beyond this is no type that DuckDB could have written.
const DEEPEST: usize = 64;

/// The type of a column, by DuckDB's name. Adds how it and its fields are read, from the outside in.
fn data_type(
    row: &Row,
    children: &BTreeMap<(i64, Option<i64>), Vec<&Row>>,
    readings: &mut Vec<ColumnReading>,
    depth: usize,
) -> Result<String, LakeError> {
    if depth > DEEPEST {
        return Err(LakeError::Corrupt {
            object: "the catalog".to_owned(),
            why: "a column type has no end".to_owned(),
        });
    }
    let initial_default = row.optional_text(9)?.map(str::to_owned);
    readings.push(ColumnReading { number: row.integer(1)?, initial_default });
    let name = row.text(4)?;
    let parts = children.get(&(row.integer(0)?, Some(row.integer(1)?))).map(Vec::as_slice).unwrap_or_default();
    let mut inner = |part: &&Row| data_type(part, children, readings, depth + 1);
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
