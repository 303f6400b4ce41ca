//! A frozen catalog in another DuckLake format (docs/design/0005): the same rows, files and definitions, laid out as that
//! format has them.

use std::path::Path;

use super::LakeError;
use super::copy::{self, Which};
use super::definition::{Contents, read_contents};
use super::freeze::new_file;
use super::layouts::Known;
use crate::engine::{Connection, Sql, identifier, literal, sql};

/// Writes the frozen catalog `source`, which holds `contents`, into the new file `target` in the format `to`.
///
/// # Errors
/// [`LakeError::UnknownFormat`] when fdl does not know one of the two; [`LakeError::Inexpressible`], which names what `to`
/// has no place for; [`LakeError::Corrupt`] when the result does not hold the same; or DuckDB's.
pub(super) fn translate(
    connection: &Connection,
    (source, contents): (&Path, &Contents),
    target: &Path,
    to: &str,
) -> Result<(), LakeError> {
    let (Some(from), Some(to)) = (Known::of(&contents.ducklake), Known::of(to)) else {
        return Err(LakeError::UnknownFormat { format: to.to_owned(), session: contents.ducklake.clone() });
    };
    let old = connection.attach(&source.to_string_lossy(), sql!("TYPE duckdb, READ_ONLY"))?;
    let translation = Translation { connection, old: main_of(old.name()) };
    let what = match to < from {
        true => translation.inexpressible(NOT_IN_0_3)?,
        false => translation.inexpressible(NOT_IN_1_0)?,
    };
    if !what.is_empty() {
        return Err(LakeError::Inexpressible { format: to.name().to_owned(), what });
    }
    let rows = translation.count("ducklake_file_column_stats")?;
    let new = connection.attach(&target.to_string_lossy(), new_file(rows))?;
    let transaction = connection.begin()?;
    for statement in to.create(&identifier(new.name())) {
        connection.execute(statement)?;
    }
    copy::copy(connection, old.name(), (new.name(), to.tables()), Which::All, None)?;
    for statement in if to < from { INTO_0_3 } else { INTO_1_0 } {
        translation.execute(new.name(), statement)?;
    }
    connection.execute(sql!(
        "UPDATE {new}.ducklake_metadata SET value = {format} WHERE key = 'version' AND scope IS NULL",
        new = main_of(new.name()),
        format = literal(to.name())
    ))?;
    transaction.commit()?;
    connection.execute(sql!("CHECKPOINT {new}", new = identifier(new.name())))?;
    new.detach()?;
    old.detach()?;
    require_same(contents, &read_contents(connection, target)?)
}

/// An empty catalog in a known format.
pub(super) fn empty(connection: &Connection, target: &Path, format: Known) -> Result<(), LakeError> {
    let new = connection.attach(&target.to_string_lossy(), new_file(0))?;
    let database = identifier(new.name());
    for statement in format.create(&database) {
        connection.execute(statement)?;
    }
    connection.execute(sql!(
        "INSERT INTO {database}.main.ducklake_snapshot VALUES (0, now(), 0, 1, 0); \
         INSERT INTO {database}.main.ducklake_snapshot_changes (snapshot_id, changes_made) VALUES (0, ''); \
         INSERT INTO {database}.main.ducklake_metadata (key, value) \
         VALUES ('version', {format}), ('data_path', './'), ('encrypted', 'false'); \
         INSERT INTO {database}.main.ducklake_schema VALUES (0, uuid(), 0, NULL, 'main', 'main/', true)",
        database,
        format = literal(format.name())
    ))?;
    Ok(new.detach()?)
}

/// The schema that holds the metadata tables of an attached catalog.
fn main_of(database: &str) -> Sql {
    sql!("{database}.main", database = identifier(database))
}

struct Translation<'a> {
    connection: &'a Connection,
    old: Sql,
}

impl Translation<'_> {
    fn execute(&self, new: &str, statement: &'static str) -> Result<(), LakeError> {
        Ok(self.connection.execute(Sql::template(statement, &[("old", &self.old), ("new", &main_of(new))]))?)
    }

    fn count(&self, table: &'static str) -> Result<u64, LakeError> {
        let table = Sql::constant(table);
        Ok(self.connection.row(sql!("SELECT count(*) FROM {old}.{table}", old = self.old, table))?.count(0)?)
    }

    /// What the catalog holds that the other format has no place for, for people.
    fn inexpressible(&self, questions: &[&'static str]) -> Result<Vec<String>, LakeError> {
        let mut what = Vec::new();
        for question in questions {
            let table = Sql::template(TABLE, &[("old", &self.old)]);
            let question = Sql::template(question, &[("old", &self.old), ("table", &table)]);
            let all = sql!("SELECT DISTINCT what FROM ({question}) q(what) ORDER BY what", question);
            for row in self.connection.query(all)? {
                what.push(row.text(0)?.to_owned());
            }
        }
        Ok(what)
    }
}

/// The name of the table `t`, with its schema.
const TABLE: &str = "(SELECT any_value(s.schema_name) FROM {old}.ducklake_schema s WHERE s.schema_id = t.schema_id) \
                     || '.' || t.table_name";

/// What 1.0 holds and 0.3 cannot. Geometry is a type of both, but DuckDB 1.4 reads what 1.5 writes as a BLOB.
const NOT_IN_0_3: &[&str] = &[
    "SELECT 'the macro ' || s.schema_name || '.' || m.macro_name FROM {old}.ducklake_macro m \
     JOIN {old}.ducklake_schema s USING (schema_id)",
    "SELECT 'the sort keys of ' || {table} FROM {old}.ducklake_sort_info i JOIN {old}.ducklake_table t USING (table_id)",
    "SELECT 'the type ' || upper(c.column_type) || ' of ' || {table} || '.' || c.column_name \
     FROM {old}.ducklake_column c JOIN {old}.ducklake_table t USING (table_id) \
     WHERE NOT starts_with(lower(c.column_type), 'decimal(') AND lower(c.column_type) NOT IN ('boolean', 'int8', 'int16', \
     'int32', 'int64', 'int128', 'uint8', 'uint16', 'uint32', 'uint64', 'uint128', 'float32', 'float64', 'decimal', 'time', \
     'date', 'timestamp', 'timestamp_us', 'timestamp_ms', 'timestamp_ns', 'timestamp_s', 'timestamptz', 'timetz', \
     'interval', 'varchar', 'blob', 'uuid', 'json', 'struct', 'map', 'list')",
    "SELECT 'the default ' || c.default_value || ' of ' || {table} || '.' || c.column_name \
     FROM {old}.ducklake_column c JOIN {old}.ducklake_table t USING (table_id) \
     WHERE c.default_value_type = 'expression' AND c.default_value <> 'NULL'",
    "SELECT 'the partition key ' || p.transform || ' of ' || {table} FROM {old}.ducklake_partition_column p \
     JOIN {old}.ducklake_table t USING (table_id) \
     WHERE p.transform NOT IN ('identity', 'year', 'month', 'day', 'hour')",
    "SELECT 'the deletion vectors of ' || {table} FROM {old}.ducklake_delete_file d \
     JOIN {old}.ducklake_table t USING (table_id) WHERE d.format <> 'parquet'",
    // Which rows of a delete file an older snapshot deletes; the current one deletes all of them.
    "SELECT 'older snapshots of the deletions in ' || {table} FROM {old}.ducklake_delete_file d \
     JOIN {old}.ducklake_table t USING (table_id) \
     WHERE d.partial_max IS NOT NULL AND (SELECT count(*) FROM {old}.ducklake_snapshot) > 1",
    "SELECT 'the query of the view ' || s.schema_name || '.' || v.view_name FROM {old}.ducklake_view v \
     JOIN {old}.ducklake_schema s USING (schema_id) \
     WHERE contains(replace(v.sql, '{{DUCKLAKE_CATALOG}}.', ''), '{{DUCKLAKE_CATALOG}}')",
];

/// What 0.3 holds and 1.0 cannot.
const NOT_IN_1_0: &[&str] = &[
    // Which rows of a merged file an older snapshot reads; the current one reads all of them.
    "SELECT 'older snapshots of the merged files of ' || {table} FROM {old}.ducklake_data_file f \
     JOIN {old}.ducklake_table t USING (table_id) WHERE f.partial_file_info IS NOT NULL \
     AND NOT starts_with(f.partial_file_info, 'partial_max:') AND (SELECT count(*) FROM {old}.ducklake_snapshot) > 1",
    // Where 1.0 writes this text, there is no default.
    "SELECT 'the default ''NULL'' of ' || {table} || '.' || c.column_name FROM {old}.ducklake_column c \
     JOIN {old}.ducklake_table t USING (table_id) WHERE c.default_value = 'NULL'",
];

/// What is left to do after all columns that both formats have were copied.
const INTO_0_3: &[&str] = &[
    // 1.0 writes the text NULL where there is no default, and 0.3 would read it as one.
    "UPDATE {new}.ducklake_column SET default_value = NULL WHERE default_value = 'NULL'",
    "UPDATE {new}.ducklake_data_file AS f SET partial_file_info = 'partial_max:' || o.partial_max \
     FROM {old}.ducklake_data_file o WHERE o.data_file_id = f.data_file_id AND o.partial_max IS NOT NULL",
    // 0.3 does not know the placeholder. A name without a catalog is looked for in the view's own first.
    "UPDATE {new}.ducklake_view SET sql = replace(sql, '{{DUCKLAKE_CATALOG}}.', '') WHERE contains(sql, '{{DUCKLAKE_CATALOG}}.')",
    // There are versions of the whole schema here, of each table there.
    "DELETE FROM {new}.ducklake_schema_versions",
    "INSERT INTO {new}.ducklake_schema_versions SELECT begin_snapshot, max(schema_version) \
     FROM {old}.ducklake_schema_versions WHERE begin_snapshot = (SELECT max(begin_snapshot) \
     FROM {old}.ducklake_schema_versions) OR (SELECT count(*) FROM {old}.ducklake_snapshot) > 1 GROUP BY begin_snapshot",
    // A kind of change that 0.3 does not know is an error to its ducklake_snapshots().
    "UPDATE {new}.ducklake_snapshot_changes SET changes_made = '' \
     WHERE NOT regexp_full_match(regexp_replace(changes_made, '\"[^\"]*\"', '', 'g'), \
     '(((created|dropped)_(table|view|schema)|inserted_into_table|altered_(table|view)|deleted_from_table|\
     compacted_table|inlined_(insert|delete)|flushed_inlined):[^,]*(,|$))*')",
];

/// What is left to do after all columns that both formats have were copied; as DuckLake's own migration does it.
const INTO_1_0: &[&str] = &[
    "UPDATE {new}.ducklake_column SET default_value_type = 'literal'",
    "UPDATE {new}.ducklake_data_file AS f \
     SET partial_max = TRY_CAST(regexp_extract(o.partial_file_info, 'partial_max:(\\d+)', 1) AS BIGINT) \
     FROM {old}.ducklake_data_file o WHERE o.data_file_id = f.data_file_id AND o.partial_file_info IS NOT NULL",
    "DELETE FROM {new}.ducklake_schema_versions",
    "INSERT INTO {new}.ducklake_schema_versions (table_id, begin_snapshot, schema_version) \
     SELECT t.table_id, v.begin_snapshot, v.schema_version FROM {old}.ducklake_schema_versions v \
     JOIN {old}.ducklake_table t ON v.begin_snapshot BETWEEN t.begin_snapshot \
     AND coalesce(t.end_snapshot, v.begin_snapshot)",
];

/// A catalog that this session's DuckLake does not read cannot be tried out, but it can be read again.
fn require_same(source: &Contents, target: &Contents) -> Result<(), LakeError> {
    let differs = |what: &str| LakeError::Corrupt {
        object: format!("the catalog in DuckLake {}", target.ducklake),
        why: format!("{what} than the catalog it was made from"),
    };
    let names = |contents: &Contents| -> Vec<_> {
        let schemas = contents.schemas.iter();
        let views = |schema: &super::definition::Schema| {
            let views = schema.views.iter();
            views.map(|view| (view.name.clone(), view.comment.clone(), view.column_aliases.clone())).collect::<Vec<_>>()
        };
        schemas
            .map(|schema| (schema.name.clone(), schema.comment.clone(), schema.options.clone(), views(schema)))
            .collect()
    };
    if names(source) != names(target) || source.options != target.options {
        return Err(differs("it holds other schemas, views or options"));
    }
    if source.tables().ne(target.tables()) {
        return Err(differs("it holds other tables or names other files"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let part = Sql::constant("x.main");
        let parts: [(&str, &dyn crate::engine::Part); 3] = [("old", &part), ("new", &part), ("table", &part)];
        for statement in [NOT_IN_0_3, NOT_IN_1_0, INTO_0_3, INTO_1_0, &[TABLE]].concat() {
            let made = Sql::template(statement, &parts).to_text().replace("{DUCKLAKE_CATALOG}", "");
            assert!(!made.contains(['{', '}']), "{made}");
        }
    }
}
