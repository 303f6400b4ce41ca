//! The columns of a version's views, found by binding their queries against the version alone.
//!
//! A query of a view is SQL that somebody wrote. It is bound in a private instance that holds the version's schemas, tables and macros,
//! without rows: no request goes out, and nothing of the author's session (a temporary table, another database, a local file) is taken
//! for a part of the version.

use std::collections::BTreeMap;

use super::LakeError;
use super::definition::{Contents, Macro, Table, View};
use super::types;
use crate::engine::{EngineError, Limits, Private, identifier, literal, qualified, sql};
use crate::format;

/// The database of the private instance that stands for the version.
const VERSION: &str = "fdl_version";

/// What DuckLake 1.0 writes in a view's query in place of the catalog's alias.
const PLACEHOLDER: &str = "{DUCKLAKE_CATALOG}.";

/// The columns of each view, by schema and name; nothing for a view that does not bind.
pub(super) type ViewColumns = BTreeMap<(String, String), Option<Vec<format::Column>>>;

/// Binds every view.
///
/// # Errors
/// DuckDB's, when it gives no private instance.
pub(super) fn view_columns(contents: &Contents) -> Result<ViewColumns, LakeError> {
    let mut found = ViewColumns::new();
    let mut left: Vec<(&str, &View)> = contents
        .schemas
        .iter()
        .flat_map(|schema| schema.views.iter().map(|view| (schema.name.as_str(), view)))
        .collect();
    if left.is_empty() {
        return Ok(found);
    }
    let private = Private::open(Limits::VIEWS)?;
    private.connection().execute(sql!("ATTACH ':memory:' AS {name}", name = identifier(VERSION)))?;
    private.lock()?;
    // What cannot be made here is missing for the views that name it, and they do not bind.
    for schema in contents.schemas.iter().filter(|schema| schema.name != "main") {
        let name = qualified(&[VERSION, &schema.name]);
        drop(private.connection().execute(sql!("CREATE SCHEMA IF NOT EXISTS {name}", name)));
    }
    for (schema, table) in contents.tables() {
        drop(private.run_foreign(&create_table(schema, table)));
    }
    for ((schema, name), definition) in &contents.macros {
        drop(private.run_foreign(&create_macro(schema, name, definition)));
    }
    // A view may name another that comes later.
    loop {
        let before = left.len();
        left.retain(|(schema, view)| match bind(&private, schema, view) {
            Ok(columns) => {
                found.insert(((*schema).to_owned(), view.name.clone()), Some(columns));
                false
            }
            Err(_) => true,
        });
        if left.is_empty() || left.len() == before || private.is_exhausted() {
            break;
        }
    }
    found.extend(left.into_iter().map(|(schema, view)| ((schema.to_owned(), view.name.clone()), None)));
    Ok(found)
}

fn bind(private: &Private, schema: &str, view: &View) -> Result<Vec<format::Column>, EngineError> {
    let name = qualified(&[VERSION, schema, &view.name]);
    private.connection().execute(sql!("USE {schema}", schema = qualified(&[VERSION, schema])))?;
    let aliases = if view.column_aliases.is_empty() { String::new() } else { format!(" ({})", view.column_aliases) };
    let query = view.sql.replace(PLACEHOLDER, &format!("{VERSION}."));
    private.run_foreign(&format!("CREATE OR REPLACE VIEW {}{aliases} AS {query}", name.to_text()))?;
    let rows = private
        .connection()
        .query(sql!("SELECT column_name, column_type, \"null\" <> 'NO' FROM (DESCRIBE {name})", name))?;
    rows.iter()
        .map(|row| {
            Ok(format::Column {
                name: row.text(0)?.to_owned(),
                data_type: row.text(1)?.to_owned(),
                nullable: row.boolean(2)?,
                comment: None,
            })
        })
        .collect()
}

fn create_table(schema: &str, table: &Table) -> String {
    let columns = table.definition.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| {
            let not_null = if column.nullable { "" } else { " NOT NULL" };
            format!("{} {}{not_null}", identifier(&column.name).to_text(), column.data_type)
        })
        .collect();
    format!("CREATE TABLE {} ({})", qualified(&[VERSION, schema, &table.name]).to_text(), columns.join(", "))
}

fn create_macro(schema: &str, name: &str, definition: &Macro) -> String {
    let implementations: Vec<String> = definition
        .implementations
        .iter()
        .map(|implementation| {
            let parameters = implementation.parameters.iter();
            let parameters: Vec<String> = parameters
                .map(|parameter| {
                    let name = identifier(&parameter.name).to_text();
                    let Some(default) = &parameter.default else { return name };
                    let value = literal(&default.text).to_text();
                    match types::of_ducklake(&default.data_type) {
                        Some(data_type) => format!("{name} := CAST({value} AS {})", data_type.name()),
                        None => format!("{name} := {value}"),
                    }
                })
                .collect();
            let table = if implementation.kind == "table" { "TABLE " } else { "" };
            let body = implementation.sql.replace(PLACEHOLDER, &format!("{VERSION}."));
            format!("({}) AS {table}{body}", parameters.join(", "))
        })
        .collect();
    format!("CREATE MACRO {} {}", qualified(&[VERSION, schema, name]).to_text(), implementations.join(", "))
}
