//! Catalogs that came from a repository: hostile until checked (docs/design/0006).
//!
//! Such a catalog is opened in a private instance only ([`crate::engine::Private`]). It must hold the tables of its DuckLake format
//! and nothing else that DuckDB would run or that could show one thing to fdl and another to DuckLake. What the user's session opens
//! is never this file: [`rewrite`] makes a new one of its rows.

use std::path::Path;

use super::attach::require_no_wal;
use super::definition::Contents;
use super::freeze::new_file;
use super::layouts::Known;
use super::reader::Reader;
use super::template::{Template, template};
use super::{LakeError, foreign_values, types};
use crate::engine::{
    Connection, EngineError, EngineErrorKind, Identifier, Limits, Private, PrivateFile, Sql, identifier, sql,
};

/// The catalog, in the private instance.
const OLD: &str = "old";
/// What is made of it, or an empty catalog to compare it with.
const NEW: &str = "new";

/// The most rows of all definitions together (tables, columns, views, tags and the like), of the current snapshot and of older ones.
const MOST_DEFINITIONS: u64 = 2_000_000;
/// The most data files, and the most delete files.
const MOST_FILES: u64 = 10_000_000;

/// Tables whose rows count as definitions.
const DEFINITIONS: &[&str] = &[
    "ducklake_metadata",
    "ducklake_schema",
    "ducklake_table",
    "ducklake_view",
    "ducklake_tag",
    "ducklake_column_tag",
    "ducklake_column",
    "ducklake_partition_info",
    "ducklake_partition_column",
    "ducklake_inlined_data_tables",
    "ducklake_name_mapping",
    "ducklake_macro",
    "ducklake_macro_impl",
    "ducklake_macro_parameters",
    "ducklake_sort_info",
    "ducklake_sort_expression",
];

/// What tells the rows of a table apart that begin and end, while they are current: two of the same key would be read as either, or as
/// both.
const CURRENT_KEYS: &[(&str, &str)] = &[
    ("ducklake_schema", "schema_id"),
    ("ducklake_table", "table_id"),
    ("ducklake_view", "view_id"),
    ("ducklake_column", "table_id, column_id"),
    ("ducklake_tag", "object_id, key"),
    ("ducklake_column_tag", "table_id, column_id, key"),
    ("ducklake_partition_info", "table_id"),
    ("ducklake_sort_info", "table_id"),
    ("ducklake_macro", "macro_id"),
    ("ducklake_delete_file", "data_file_id"),
];

/// The same of tables whose rows belong to one of those.
const KEYS: &[(&str, &str)] = &[
    ("ducklake_macro_impl", "macro_id, impl_id"),
    ("ducklake_macro_parameters", "macro_id, impl_id, column_id"),
    ("ducklake_partition_column", "partition_id, partition_key_index"),
    ("ducklake_sort_expression", "sort_id, sort_key_index"),
];

/// A catalog that came from a repository.
#[derive(Debug, Clone, Copy)]
pub struct Foreign<'a> {
    /// Its file: a copy that nobody else writes.
    pub file: &'a Path,
    /// What it is, for people: its key.
    pub name: &'a str,
    /// The layout of the session's own DuckLake, where there is a session: its format may be newer than those that fdl knows.
    session: Option<&'a Template>,
}

impl<'a> Foreign<'a> {
    /// A catalog to be read where there is no session.
    pub fn new(file: &'a Path, name: &'a str) -> Self {
        Self { file, name, session: None }
    }

    /// A catalog for this session.
    ///
    /// # Errors
    /// DuckDB's, when its DuckLake does not say how it lays out a catalog.
    pub fn in_session(self, connection: &Connection) -> Result<Self, LakeError> {
        Ok(Self { session: Some(template(connection)?), ..self })
    }

    /// Checks the catalog and reads it.
    ///
    /// # Errors
    /// [`LakeError::BadCatalog`] for a file that holds anything but a DuckLake catalog, [`LakeError::StrangeFormat`] for a format that
    /// fdl does not know, [`LakeError::WriteAheadLog`], and DuckDB's.
    pub fn read(self) -> Result<Contents, LakeError> {
        let instance = Instance::open(self, None)?;
        instance.checked(|instance| {
            instance.check_values(OLD)?;
            Reader::private(instance.connection(), OLD)?.contents()
        })
    }

    /// Checks the catalog, writes the new catalog `target` of its rows, and reads that. Values are cast to the types that DuckLake
    /// declares: a catalog that another tool copied from SQLite has texts where DuckLake has times.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn rewrite(self, target: &Path) -> Result<Contents, LakeError> {
        let instance = Instance::open(self, Some(target))?;
        instance.checked(|instance| {
            instance.copy()?;
            instance.check_values(NEW)?;
            let contents = Reader::private(instance.connection(), NEW)?.contents()?;
            instance.connection().execute(sql!("CHECKPOINT new"))?;
            Ok(contents)
        })
    }
}

/// A catalog in a private instance, its objects checked.
struct Instance<'a> {
    foreign: Foreign<'a>,
    private: Private,
    layout: Layout<'a>,
}

/// The tables that a format has.
#[derive(Debug, Clone, Copy)]
enum Layout<'a> {
    Known(Known),
    Session(&'a Template),
}

impl<'a> Layout<'a> {
    fn tables(self) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match self {
            Self::Known(known) => Box::new(known.tables().map(|name| -> &'a str { name })),
            Self::Session(template) => Box::new(template.names()),
        }
    }

    fn has(self, table: &str) -> bool {
        self.tables().any(|known| known == table)
    }

    fn create(self, database: &Identifier) -> Sql {
        match self {
            Self::Known(known) => Sql::join(known.create(database), "; "),
            Self::Session(template) => Sql::join(template.create(database), "; "),
        }
    }
}

impl<'a> Instance<'a> {
    /// Opens the catalog beside an empty one of its format: in the file `target`, or in memory.
    fn open(foreign: Foreign<'a>, target: Option<&Path>) -> Result<Self, LakeError> {
        require_no_wal(foreign.file)?;
        let private = Private::open(Limits::CATALOG)?;
        let opened = PrivateFile { name: OLD, path: foreign.file, options: sql!("TYPE duckdb, READ_ONLY") };
        private.attach(opened).map_err(|error| foreign.refused(&private, error))?;
        let mut instance = Self { foreign, private, layout: Layout::Known(Known::V1_0) };
        instance.layout = instance.checked(|instance| instance.check_objects())?;
        let statistics = instance.checked(|instance| {
            let row = instance.connection().row(sql!("SELECT count(*) FROM old.main.ducklake_file_column_stats"))?;
            Ok(row.count(0)?)
        })?;
        match target {
            Some(path) => {
                let options = new_file(statistics);
                instance.private.attach(PrivateFile { name: NEW, path, options })?;
            }
            None => instance.connection().execute(sql!("ATTACH ':memory:' AS new"))?,
        }
        instance.private.lock()?;
        instance.connection().execute(instance.layout.create(&identifier(NEW)))?;
        instance.checked(|instance| instance.check_columns())?;
        Ok(instance)
    }

    fn connection(&self) -> &Connection {
        self.private.connection()
    }

    /// Runs a part of the check. What DuckDB says there is said of the catalog.
    fn checked<T>(&self, part: impl FnOnce(&Self) -> Result<T, LakeError>) -> Result<T, LakeError> {
        part(self).map_err(|error| match error {
            LakeError::Engine(error) => self.foreign.refused(&self.private, error),
            error => error,
        })
    }

    fn corrupt<T>(&self, why: impl Into<String>) -> Result<T, LakeError> {
        Err(LakeError::BadCatalog { object: self.foreign.name.to_owned(), why: why.into() })
    }

    /// Its layout, when there is nothing in the file but tables of the names that the format has.
    fn check_objects(&self) -> Result<Layout<'a>, LakeError> {
        let odd = self.connection().query(Sql::constant(ODD_OBJECTS))?;
        if let Some(object) = odd.first() {
            let why = format!("it holds {}, which no DuckLake catalog has", object.text(0)?);
            return self.corrupt(why);
        }
        let tables = self.connection().query(sql!(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'old' ORDER BY table_name LIMIT 10000"
        ))?;
        let tables = tables.iter().map(|row| row.text(0)).collect::<Result<Vec<_>, _>>()?;
        if !["ducklake_metadata", "ducklake_snapshot"].iter().all(|name| tables.contains(name)) {
            return self.corrupt("it is no DuckLake catalog");
        }
        let version = self.connection().row(sql!(
            "SELECT count(*), max(value::VARCHAR) FROM old.main.ducklake_metadata WHERE key = 'version' AND scope IS NULL"
        ))?;
        if version.count(0)? != 1 {
            return self.corrupt("it does not name one DuckLake format");
        }
        let version = version.optional_text(1)?.unwrap_or_default();
        let layout = match (Known::of(version), self.foreign.session) {
            (Some(known), _) => Layout::Known(known),
            (None, Some(template)) if template.format == version => Layout::Session(template),
            (None, _) => {
                let (object, format) = (self.foreign.name.to_owned(), version.to_owned());
                return Err(LakeError::StrangeFormat { object, format });
            }
        };
        if let Some(missing) = layout.tables().find(|name| !tables.contains(name)) {
            return self.corrupt(format!("it has no table {missing}"));
        }
        match tables.iter().find(|name| !layout.has(name) && !is_inlined(name)) {
            Some(odd) => self.corrupt(format!("it holds the table {odd}, which no DuckLake catalog has")),
            None => Ok(layout),
        }
    }

    /// Each metadata table has the columns that DuckLake gives it, of types that can be read as those that it declares.
    fn check_columns(&self) -> Result<(), LakeError> {
        let odd = self.connection().query(Sql::constant(ODD_COLUMNS))?;
        match odd.first() {
            Some(column) => self.corrupt(column.text(0)?),
            None => Ok(()),
        }
    }

    fn copy(&self) -> Result<(), LakeError> {
        let connection = self.connection();
        let transaction = connection.begin()?;
        for table in self.layout.tables().filter(|table| *table != "ducklake_inlined_data_tables") {
            let table = identifier(table);
            connection.execute(sql!("INSERT INTO new.main.{table} BY NAME SELECT * FROM old.main.{table}", table))?;
        }
        Ok(transaction.commit()?)
    }

    /// What a catalog can hold in its rows that would mislead a reader, or take more memory than there is.
    fn check_values(&self, database: &str) -> Result<(), LakeError> {
        let (connection, database) = (self.connection(), identifier(database));
        let count = |table: &str| -> Result<u64, LakeError> {
            let count = sql!("SELECT count(*) FROM {database}.main.{table}", database, table = identifier(table));
            Ok(connection.row(count)?.count(0)?)
        };
        let has = |table: &&str| self.layout.has(table);
        let mut definitions = 0;
        for table in DEFINITIONS.iter().filter(|table| has(table)) {
            definitions += count(table)?;
        }
        if definitions > MOST_DEFINITIONS {
            return self.corrupt(format!("it has {definitions} definitions, more than {MOST_DEFINITIONS}"));
        }
        for table in ["ducklake_data_file", "ducklake_delete_file"] {
            let files = count(table)?;
            if files > MOST_FILES {
                return self.corrupt(format!("it has {files} rows in {table}, more than {MOST_FILES}"));
            }
        }
        let current = CURRENT_KEYS.iter().map(|(table, key)| (table, key, sql!("end_snapshot IS NULL")));
        let keys = current.chain(KEYS.iter().map(|(table, key)| (table, key, sql!("true"))));
        for (table, key, which) in keys.filter(|(table, ..)| has(table)) {
            let twice = connection.query(sql!(
                "SELECT concat_ws(' ', {key}) FROM {database}.main.{table} WHERE {which} \
                 GROUP BY {key} HAVING count(*) > 1 LIMIT 1",
                key = Sql::constant(key),
                database,
                table = identifier(table),
                which
            ))?;
            if let Some(row) = twice.first() {
                return self.corrupt(format!("{table} has two rows of {}", row.text(0)?));
            }
        }
        let types = sql!("SELECT DISTINCT column_type FROM {database}.main.ducklake_column LIMIT 100000", database);
        for row in connection.query(types)? {
            let name = row.optional_text(0)?.unwrap_or("NULL");
            if !types::is_known(name) {
                return self.corrupt(format!("a column has the type {name:?}, which DuckLake has not"));
            }
        }
        let has = |table: &str| self.layout.has(table);
        if let Some(why) = foreign_values::odd_value(connection, &database, &has)? {
            return self.corrupt(why);
        }
        self.check_inlined()
    }

    /// A version has no rows inside its catalog (docs/format.md section 11): fdl would pass over them without a word.
    fn check_inlined(&self) -> Result<(), LakeError> {
        let tables = self.connection().query(sql!(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'old' AND starts_with(table_name, 'ducklake_inlined_') \
             AND table_name <> 'ducklake_inlined_data_tables' ORDER BY table_name LIMIT 100000"
        ))?;
        for table in tables {
            let name = table.text(0)?;
            let rows = sql!("SELECT 1 FROM old.main.{name} LIMIT 1", name = identifier(name));
            if !self.connection().query(rows)?.is_empty() {
                return self
                    .corrupt(format!("it holds rows of a table itself, in {name}, and a version holds them in files"));
            }
        }
        Ok(())
    }
}

impl Foreign<'_> {
    /// What the private instance says of this catalog.
    fn refused(self, private: &Private, error: EngineError) -> LakeError {
        let error = private.explain(error);
        match error.kind {
            EngineErrorKind::NoSpace | EngineErrorKind::Permission => error.into(),
            _ => LakeError::BadCatalog { object: self.name.to_owned(), why: error.message },
        }
    }
}

/// Whether a table has the name of one in which DuckLake keeps rows or deletions.
fn is_inlined(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.len() < 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    match (name.strip_prefix("ducklake_inlined_data_"), name.strip_prefix("ducklake_inlined_delete_")) {
        (Some(rest), _) => rest.split_once('_').is_some_and(|(table, version)| digits(table) && digits(version)),
        (_, Some(table)) => digits(table),
        _ => false,
    }
}

/// What is in the file and no plain table in the schema main.
const ODD_OBJECTS: &str = "\
    SELECT what FROM (\
    SELECT 'the schema ' || schema_name AS what FROM duckdb_schemas() WHERE database_name = 'old' AND NOT internal \
    AND schema_name <> 'main' \
    UNION ALL SELECT 'the view ' || view_name FROM duckdb_views() WHERE database_name = 'old' AND NOT internal \
    UNION ALL SELECT 'the macro ' || function_name FROM duckdb_functions() WHERE database_name = 'old' AND NOT internal \
    UNION ALL SELECT 'the type ' || type_name FROM duckdb_types() WHERE database_name = 'old' AND NOT internal \
    UNION ALL SELECT 'the sequence ' || sequence_name FROM duckdb_sequences() WHERE database_name = 'old' \
    UNION ALL SELECT 'the index ' || index_name FROM duckdb_indexes() WHERE database_name = 'old' \
    UNION ALL SELECT 'the constraint ' || constraint_text || ' of ' || table_name FROM duckdb_constraints() \
    WHERE database_name = 'old' AND constraint_type NOT IN ('PRIMARY KEY', 'NOT NULL') \
    UNION ALL SELECT 'the expression ' || column_default || ' of the column ' || table_name || '.' || column_name \
    FROM duckdb_columns() WHERE database_name = 'old' AND NOT internal AND column_default IS NOT NULL AND column_default <> 'NULL' \
    ) ORDER BY what LIMIT 1";

/// Columns that one of the two catalogs has and the other has not, or that cannot be cast: only plain values are.
const ODD_COLUMNS: &str = "\
    SELECT CASE WHEN o.column_name IS NULL THEN 'it has no column ' || n.table_name || '.' || n.column_name \
    WHEN n.column_name IS NULL THEN 'it holds the column ' || o.table_name || '.' || o.column_name || ', which no DuckLake catalog has' \
    ELSE 'its column ' || o.table_name || '.' || o.column_name || ' is ' || o.data_type || ' and not ' || n.data_type END \
    FROM (SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'new' AND NOT internal) n \
    FULL JOIN (SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'old' AND NOT internal \
    AND (NOT starts_with(table_name, 'ducklake_inlined_') OR table_name = 'ducklake_inlined_data_tables')) o \
    ON n.table_name = o.table_name AND n.column_name = o.column_name \
    WHERE o.column_name IS NULL OR n.column_name IS NULL OR (n.data_type <> o.data_type AND o.data_type NOT IN \
    ('VARCHAR', 'BIGINT', 'INTEGER', 'UBIGINT', 'UINTEGER', 'BOOLEAN', 'TIMESTAMP', 'TIMESTAMP WITH TIME ZONE', 'UUID')) \
    ORDER BY ALL LIMIT 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_inlined_tables() {
        for (name, expected) in [
            ("ducklake_inlined_data_1_2", true),
            ("ducklake_inlined_delete_7", true),
            ("ducklake_inlined_data_tables", false),
            ("ducklake_inlined_data_1_2; DROP TABLE x", false),
            ("ducklake_inlined_data_1", false),
            ("ducklake_inlined_delete_", false),
            ("ducklake_inlined_delete_123456789012345678901", false),
            ("ducklake_tag", false),
        ] {
            assert_eq!(is_inlined(name), expected, "{name}");
        }
    }
}
