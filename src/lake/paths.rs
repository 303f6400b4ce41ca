//! Paths of data files: relative to the data folder in a frozen catalog (docs/format.md section 11).
//!
//! DuckLake writes a file's path relative to its table's folder, which is relative to its schema's, which is relative to
//! the data path. A file that was registered rather than written has an absolute path.

use super::LakeError;
use super::working_copy::Checkout;
use crate::engine::{Connection, Identifier, Sql, identifier, literal, sql};

/// SQL for the folder of the table `t` in the schema `s`, relative to the data path; NULL when one of them is absolute.
pub(super) const TABLE_FOLDER: Sql =
    Sql::constant("CASE WHEN s.path_is_relative AND t.path_is_relative THEN s.path || t.path END");

/// A way in which a working catalog may write the data folder in an absolute path.
struct Prefix {
    /// How the path begins.
    text: String,
    /// Whether what follows is part of a URL, with percent escapes.
    is_url: bool,
}

fn prefixes(checkout: &Checkout) -> Vec<Prefix> {
    let (folder, file_url) = (checkout.data_path.clone(), format!("file://{}", checkout.data_path));
    let local = [folder, file_url].map(|text| Prefix { text, is_url: false });
    let published = checkout.published_at.clone().map(|text| Prefix { text, is_url: true });
    local.into_iter().chain(published).collect()
}

/// SQL for the URL of the file `r` of the frozen catalog `database` in a data folder that is at `url`.
pub(super) fn published(database: &Identifier, url: &str) -> Sql {
    sql!(
        "{url} || replace(url_encode((SELECT max({folder}) FROM {database}.main.ducklake_table t \
         JOIN {database}.main.ducklake_schema s ON s.schema_id = t.schema_id WHERE t.table_id = r.table_id) || r.path), \
         '%2F', '/')",
        url = literal(url),
        folder = TABLE_FOLDER,
        database
    )
}

/// The two tables that name files, with the key of each.
const FILE_TABLES: [(&str, &str); 2] =
    [("ducklake_data_file", "data_file_id"), ("ducklake_delete_file", "delete_file_id")];

/// Makes every path of a data file in the plain attached catalog `database` relative.
///
/// A file that lies in the data folder but not in its table's folder cannot be written relative to that folder. The
/// folders of its schema's tables are then written out in the tables, and its own table gets the data folder itself.
pub(super) fn make_relative(connection: &Connection, database: &str, checkout: &Checkout) -> Result<(), LakeError> {
    let (database, prefixes) = (identifier(database), prefixes(checkout));
    relative_table_folders(connection, &database, &prefixes)?;
    // The path behind the prefix, for files with an absolute path in the data folder.
    let cases = prefixes.iter().map(|Prefix { text, is_url }| {
        let rest = sql!("substr(f.path, {start})", start = text.chars().count() + 1);
        let rest = if *is_url { sql!("url_decode({rest})", rest) } else { rest };
        sql!("WHEN starts_with(f.path, {text}) THEN {rest}", text = literal(text), rest)
    });
    let key = sql!("CASE {cases} END", cases = Sql::join(cases, " "));
    let mut elsewhere = Vec::new();
    for (files, id) in FILE_TABLES {
        let (files, id) = (Sql::constant(files), Sql::constant(id));
        let absolute = sql!(
            "SELECT f.{id} AS id, f.table_id, f.path, s.schema_name, t.table_name, {key} AS key, {folder} AS folder \
             FROM {database}.main.{files} f \
             LEFT JOIN (SELECT DISTINCT ON (table_id) * FROM {database}.main.ducklake_table \
             ORDER BY table_id, begin_snapshot DESC) t ON t.table_id = f.table_id \
             LEFT JOIN {database}.main.ducklake_schema s ON s.schema_id = t.schema_id \
             WHERE NOT f.path_is_relative",
            id,
            key,
            folder = TABLE_FOLDER,
            database,
            files
        );
        let outside = connection.query(sql!(
            "SELECT schema_name, table_name, path FROM ({absolute}) WHERE key IS NULL ORDER BY id LIMIT 1",
            absolute
        ))?;
        if let Some(row) = outside.first() {
            return Err(LakeError::OutsideDataDir {
                table: format!("{}.{}", row.optional_text(0)?.unwrap_or("?"), row.optional_text(1)?.unwrap_or("?")),
                path: row.text(2)?.to_owned(),
            });
        }
        connection.execute(sql!(
            "UPDATE {database}.main.{files} AS f SET path = substr(a.key, length(a.folder) + 1), path_is_relative = true \
             FROM ({absolute}) AS a WHERE f.{id} = a.id AND starts_with(a.key, a.folder)",
            database,
            files,
            absolute,
            id
        ))?;
        for row in connection.query(sql!("SELECT DISTINCT table_id FROM ({absolute})", absolute))? {
            elsewhere.push(row.integer(0)?);
        }
    }
    elsewhere.sort_unstable();
    elsewhere.dedup();
    for table in elsewhere {
        move_to_data_folder(connection, &database, table, &key)?;
    }
    Ok(())
}

/// Schema and table folders that are written as absolute paths in the data folder.
fn relative_table_folders(
    connection: &Connection,
    database: &Identifier,
    prefixes: &[Prefix],
) -> Result<(), LakeError> {
    for Prefix { text, .. } in prefixes {
        for folders in ["ducklake_schema", "ducklake_table"] {
            // A table below its schema's folder is relative to that, and is so again when the schema was relative.
            connection.execute(sql!(
                "UPDATE {database}.main.{folders} SET path = substr(path, {start}), path_is_relative = NULL \
                 WHERE NOT path_is_relative AND starts_with(path, {text})",
                database,
                folders = Sql::constant(folders),
                start = text.chars().count() + 1,
                text = literal(text)
            ))?;
        }
    }
    connection.execute(sql!(
        "UPDATE {database}.main.ducklake_schema SET path_is_relative = true WHERE path_is_relative IS NULL; \
         UPDATE {database}.main.ducklake_table AS t SET path = substr(t.path, length(s.path) + 1), path_is_relative = true \
         FROM {database}.main.ducklake_schema AS s WHERE s.schema_id = t.schema_id AND t.path_is_relative IS NULL \
         AND starts_with(t.path, s.path)",
        database
    ))?;
    for row in connection.query(sql!(
        "SELECT DISTINCT schema_id::BIGINT FROM {database}.main.ducklake_table WHERE path_is_relative IS NULL",
        database
    ))? {
        write_out_folders(connection, database, row.integer(0)?)?;
    }
    let outside = connection.query(sql!(
        "SELECT path FROM (SELECT path, path_is_relative FROM {database}.main.ducklake_schema UNION ALL \
         SELECT path, path_is_relative FROM {database}.main.ducklake_table) WHERE NOT path_is_relative LIMIT 1",
        database
    ))?;
    match outside.first() {
        Some(row) => {
            Err(LakeError::OutsideDataDir { table: "a table's folder".to_owned(), path: row.text(0)?.to_owned() })
        }
        None => Ok(()),
    }
}

/// Gives a schema the data folder for its own and writes its former folder into each of its tables.
fn write_out_folders(connection: &Connection, database: &Identifier, schema: i64) -> Result<(), LakeError> {
    connection.execute(sql!(
        "UPDATE {database}.main.ducklake_table AS t \
         SET path = CASE WHEN t.path_is_relative THEN s.path || t.path ELSE t.path END, path_is_relative = true \
         FROM {database}.main.ducklake_schema AS s WHERE t.schema_id = {schema} AND s.schema_id = {schema}; \
         UPDATE {database}.main.ducklake_schema SET path = '' WHERE schema_id = {schema}",
        database,
        schema
    ))?;
    Ok(())
}

fn move_to_data_folder(connection: &Connection, database: &Identifier, table: i64, key: &Sql) -> Result<(), LakeError> {
    let schema = connection.row(sql!(
        "SELECT max(schema_id)::BIGINT FROM {database}.main.ducklake_table WHERE table_id = {table}",
        database,
        table
    ))?;
    write_out_folders(connection, database, schema.integer(0)?)?;
    for (files, _) in FILE_TABLES {
        connection.execute(sql!(
            "UPDATE {database}.main.{files} AS f SET path = CASE WHEN f.path_is_relative THEN t.path || f.path ELSE {key} END, \
             path_is_relative = true \
             FROM {database}.main.ducklake_table AS t WHERE f.table_id = {table} AND t.table_id = {table}",
            database,
            files = Sql::constant(files),
            key,
            table
        ))?;
    }
    connection.execute(sql!(
        "UPDATE {database}.main.ducklake_table SET path = '' WHERE table_id = {table}",
        database,
        table
    ))?;
    Ok(())
}
