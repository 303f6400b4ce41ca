//! What DuckLake itself makes: its metadata tables, read off an empty catalog once for the process. Their columns are read,
//! not their statements: a text that stands in a file is never run.
//!
//! `duckdb_tables()` looks at every attached database, and crashes when a SQLite database is detached at the same moment by
//! another connection (DuckDB 1.5.5). So it is asked once, and the names found here serve from then on.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::{LakeError, types};
use crate::engine::{Connection, Identifier, Row, Sql, SqlType, identifier, literal, qualified, sql};

/// An empty catalog, as this session's DuckLake makes it.
#[derive(Debug)]
pub(super) struct Template {
    /// The DuckLake format, such as `1.0`.
    pub(super) format: String,
    /// The metadata tables in their order.
    tables: Vec<Table>,
}

/// A metadata table: all of it that a copy needs.
#[derive(Debug)]
struct Table {
    name: String,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    name: String,
    sql_type: SqlType,
    nullable: bool,
    is_key: bool,
}

impl Template {
    /// The names of the tables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|table| table.name.as_str())
    }

    /// The statements that make its tables, empty, in the schema `main` of a database.
    pub(super) fn create(&self, database: &Identifier) -> impl Iterator<Item = Sql> {
        self.tables.iter().map(move |table| table.create(database))
    }

    /// The statement that makes one of them.
    pub(super) fn create_one(&self, database: &Identifier, name: &str) -> Option<Sql> {
        self.tables.iter().find(|table| table.name == name).map(|table| table.create(database))
    }
}

impl Table {
    fn create(&self, database: &Identifier) -> Sql {
        let columns = self.columns.iter().map(Column::definition);
        let keys: Vec<_> = self.columns.iter().filter(|column| column.is_key).collect();
        let key = (!keys.is_empty()).then(|| {
            let names = Sql::join(keys.iter().map(|column| identifier(&column.name)), ", ");
            sql!("PRIMARY KEY({names})", names)
        });
        sql!(
            "CREATE TABLE {database}.main.{name}({columns})",
            database,
            name = identifier(&self.name),
            columns = Sql::join(columns.chain(key), ", ")
        )
    }
}

impl Column {
    fn definition(&self) -> Sql {
        // A key is never NULL, and DuckDB says so of it by itself.
        let not_null = if self.nullable || self.is_key { sql!("") } else { sql!(" NOT NULL") };
        sql!("{name} {sql_type}{not_null}", name = identifier(&self.name), sql_type = self.sql_type, not_null)
    }
}

/// The template; made at the first call.
pub(super) fn template(connection: &Connection) -> Result<&'static Template, LakeError> {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match TEMPLATE.get() {
        Some(template) => Ok(template),
        None => {
            let made = make(connection)?;
            Ok(TEMPLATE.get_or_init(|| made))
        }
    }
}

fn make(connection: &Connection) -> Result<Template, LakeError> {
    let folder = tempfile::tempdir().map_err(|source| LakeError::io("create", &std::env::temp_dir(), source))?;
    let file = folder.path().join("template");
    let file = file.to_string_lossy();
    connection.attach(&format!("ducklake:{file}"), sql!("DATA_PATH '.', META_BLOCK_SIZE 16384"))?.detach()?;
    let attached = connection.attach(&file, sql!("TYPE duckdb, READ_ONLY"))?;
    let version = connection.row(sql!(
        "SELECT max(value) FROM {database}.ducklake_metadata WHERE key = 'version'",
        database = identifier(attached.name())
    ))?;
    let format = version.text(0)?.to_owned();
    let rows = connection.query(sql!(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = {database} ORDER BY table_oid",
        database = literal(attached.name())
    ))?;
    let mut tables = Vec::with_capacity(rows.len());
    for row in rows {
        let name = row.text(0)?.to_owned();
        let columns = connection.query(sql!(
            "SELECT column_name, column_type, \"null\" <> 'NO', key IS NOT DISTINCT FROM 'PRI' FROM (DESCRIBE {table})",
            table = qualified(&[attached.name(), "main", &name])
        ))?;
        let columns = columns.iter().map(|column| read_column(column, &name, &format)).collect::<Result<_, _>>()?;
        tables.push(Table { name, columns });
    }
    attached.detach()?;
    Ok(Template { format, tables })
}

/// A type that fdl does not write would be one of a later DuckLake, and the catalog could not be copied whole.
fn read_column(row: &Row, table: &str, format: &str) -> Result<Column, LakeError> {
    let (name, sql_type) = (row.text(0)?, row.text(1)?);
    let unknown = || LakeError::UnknownLayout {
        format: format.to_owned(),
        column: format!("{table}.{name}"),
        sql_type: sql_type.to_owned(),
    };
    Ok(Column {
        name: name.to_owned(),
        sql_type: types::of_duckdb(sql_type).ok_or_else(unknown)?,
        nullable: row.boolean(2)?,
        is_key: row.boolean(3)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, sql_type: SqlType, nullable: bool, is_key: bool) -> Column {
        Column { name: name.to_owned(), sql_type, nullable, is_key }
    }

    #[test]
    fn tables_are_made_as_they_were_found() {
        let table = |name: &str, columns| Table { name: name.to_owned(), columns };
        let template = Template {
            format: "9.9".to_owned(),
            tables: vec![
                table("plain", vec![column("a\"b", SqlType::Varchar, false, false)]),
                table(
                    "keyed",
                    vec![
                        column("x", SqlType::BigInt, false, true),
                        column("y", SqlType::TimestampWithTimeZone, true, false),
                        column("z", SqlType::Uuid, false, true),
                    ],
                ),
            ],
        };
        let made: Vec<String> = template.create(&identifier("db")).map(|statement| statement.to_text()).collect();
        assert_eq!(
            made,
            [
                "CREATE TABLE \"db\".main.\"plain\"(\"a\"\"b\" VARCHAR NOT NULL)",
                "CREATE TABLE \"db\".main.\"keyed\"(\"x\" BIGINT, \"y\" TIMESTAMP WITH TIME ZONE, \"z\" UUID, \
                 PRIMARY KEY(\"x\", \"z\"))",
            ]
        );
    }
}
