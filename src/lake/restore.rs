//! Giving tables back the files of the parent version, in the working catalog.
//!
//! A rebuild that ends in the same rows has written new files. A version keeps the parent's files for such a table, and
//! the working catalog must name them as well, since files that no version names may be deleted. Other sessions can have
//! the catalog attached: this does what DuckLake would do, in one transaction with a snapshot and a schema version of
//! its own (docs/format.md section 11, docs/design/0003-keeping-the-parents-files.md).

use std::path::Path;

use super::compare::TableChange;
use super::copy::{self, Tables};
use super::working_copy::Checkout;
use super::{LakeError, numbers, paths};
use crate::engine::{Connection, Identifier, Row, Sql, identifier, literal, sql};

/// Tables whose rows belong to a table's number and are valid from one snapshot to another.
const VERSIONED: [(&str, &str); 8] = [
    ("ducklake_table", "table_id"),
    ("ducklake_column", "table_id"),
    ("ducklake_tag", "object_id"),
    ("ducklake_column_tag", "table_id"),
    ("ducklake_partition_info", "table_id"),
    ("ducklake_sort_info", "table_id"),
    ("ducklake_data_file", "table_id"),
    ("ducklake_delete_file", "table_id"),
];

/// Tables that are not versioned and keyed by something a restored row names; what is there already stays.
const SHARED: [(&str, &str, &str); 4] = [
    ("ducklake_partition_column", "partition_id", "ducklake_partition_info"),
    ("ducklake_sort_expression", "sort_id", "ducklake_sort_info"),
    ("ducklake_column_mapping", "mapping_id", "ducklake_data_file"),
    ("ducklake_name_mapping", "mapping_id", "ducklake_data_file"),
];

/// Tables with facts about each data file.
const PER_FILE: [&str; 3] =
    ["ducklake_file_column_stats", "ducklake_file_variant_stats", "ducklake_file_partition_value"];

/// Makes the tables in the working catalog what they are in the frozen catalog `parent`, whose rows they hold in other
/// files. `snapshot` is the working catalog's snapshot that was compared; a table that somebody changed since is left as it
/// is. So is one whose former self lives on under another name: it keeps its new files. Returns whether there was anything
/// to do.
///
/// # Errors
/// DuckDB's; nothing is changed then.
pub fn restore(
    connection: &Connection,
    working: &Path,
    parent: &Path,
    checkout: &Checkout,
    snapshot: i64,
    tables: &[&TableChange],
) -> Result<bool, LakeError> {
    let target = connection.attach(&working.to_string_lossy(), sql!("TYPE sqlite, BUSY_TIMEOUT 5000"))?;
    let source = connection.attach(&parent.to_string_lossy(), sql!("TYPE duckdb, READ_ONLY"))?;
    let transaction = connection.begin()?;
    let restore = Restore::prepare(connection, target.name(), source.name(), checkout)?;
    let mut pairs = Vec::new();
    for table in tables {
        if let Some(pair) = restore.pair(table)?
            && !restore.changed_since(&pair, snapshot)?
        {
            pairs.push((*table, pair));
        }
    }
    let restored = !pairs.is_empty();
    if restored {
        restore.run(&pairs)?;
    }
    transaction.commit()?;
    source.detach()?;
    target.detach()?;
    Ok(restored)
}

struct Restore<'a> {
    connection: &'a Connection,
    /// The working catalog and the parent.
    to: Identifier,
    from: Identifier,
    to_tables: Tables,
    from_tables: Tables,
    checkout: &'a Checkout,
    last_snapshot: i64,
    schema_version: i64,
    next_catalog_id: i64,
    next_file_id: i64,
}

/// A table as it is (`now`) and as it shall be again (`then`), by DuckLake's numbers.
struct Pair {
    now: i64,
    then: i64,
    schema: i64,
}

impl<'a> Restore<'a> {
    fn prepare(connection: &'a Connection, to: &str, from: &str, checkout: &'a Checkout) -> Result<Self, LakeError> {
        let (to_tables, from_tables) = (copy::tables(connection, to)?, copy::tables(connection, from)?);
        let (to, from) = (identifier(to), identifier(from));
        let last = connection.row(sql!(
            "SELECT snapshot_id::BIGINT, schema_version::BIGINT, next_catalog_id::BIGINT, next_file_id::BIGINT \
             FROM {to}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
            to
        ))?;
        Ok(Self {
            connection,
            to,
            from,
            to_tables,
            from_tables,
            checkout,
            last_snapshot: last.integer(0)?,
            schema_version: last.integer(1)? + 1,
            next_catalog_id: last.integer(2)?,
            next_file_id: last.integer(3)?,
        })
    }

    fn snapshot(&self) -> i64 {
        self.last_snapshot + 1
    }

    fn execute(&self, sql: Sql) -> Result<(), LakeError> {
        Ok(self.connection.execute(sql)?)
    }

    fn run(&self, tables: &[(&TableChange, Pair)]) -> Result<(), LakeError> {
        let mut file_id = self.next_file_id;
        let mut changes = Vec::new();
        for (table, pair) in tables {
            self.end(pair)?;
            file_id = self.begin(pair, file_id)?;
            self.statistics(pair)?;
            self.options(pair)?;
            changes.push(if pair.now == pair.then {
                format!("altered_table:{0},deleted_from_table:{0},inserted_into_table:{0}", pair.then)
            } else {
                format!(
                    "dropped_table:{},created_table:{}.{},inserted_into_table:{}",
                    pair.now,
                    identifier(&table.schema).to_text(),
                    identifier(&table.table).to_text(),
                    pair.then
                )
            });
        }
        numbers::keep_highest(self.connection, &self.to, &self.from, &self.from)?;
        self.execute(sql!(
            "INSERT INTO {to}.ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) \
             VALUES ({snapshot}, now()::VARCHAR, {schema_version}, {next_catalog_id}, {file_id}); \
             INSERT INTO {to}.ducklake_snapshot_changes (snapshot_id, changes_made) VALUES ({snapshot}, {changes})",
            to = self.to,
            snapshot = self.snapshot(),
            schema_version = self.schema_version,
            next_catalog_id = self.next_catalog_id,
            file_id,
            changes = literal(&changes.join(","))
        ))
    }

    /// Nothing when the table of the parent lives on under another name.
    fn pair(&self, table: &TableChange) -> Result<Option<Pair>, LakeError> {
        let ids = |database: &Identifier| -> Result<Row, LakeError> {
            Ok(self.connection.row(sql!(
                "SELECT t.table_id::BIGINT, t.schema_id::BIGINT FROM {database}.ducklake_table t \
                 JOIN {database}.ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL \
                 WHERE t.end_snapshot IS NULL AND s.schema_name = {schema} AND t.table_name = {table}",
                database,
                schema = literal(&table.schema),
                table = literal(&table.table)
            ))?)
        };
        let (now, then) = (ids(&self.to)?, ids(&self.from)?);
        let pair = Pair { now: now.integer(0)?, then: then.integer(0)?, schema: now.integer(1)? };
        let alive = self.connection.query(sql!(
            "SELECT 1 FROM {to}.ducklake_table WHERE table_id = {then} AND end_snapshot IS NULL LIMIT 1",
            to = self.to,
            then = pair.then
        ))?;
        Ok((pair.now == pair.then || alive.is_empty()).then_some(pair))
    }

    /// Whether anything of the table began or ended after a snapshot.
    fn changed_since(&self, pair: &Pair, snapshot: i64) -> Result<bool, LakeError> {
        for (table, key) in self.versioned() {
            let later = self.connection.query(sql!(
                "SELECT 1 FROM {to}.{table} WHERE {key} = {now} AND (begin_snapshot > {snapshot} OR end_snapshot > {snapshot}) \
                 LIMIT 1",
                to = self.to,
                table = Sql::constant(table),
                key = Sql::constant(key),
                now = pair.now,
                snapshot
            ))?;
            if !later.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends everything that the table is now.
    fn end(&self, pair: &Pair) -> Result<(), LakeError> {
        for (table, key) in self.versioned() {
            self.execute(sql!(
                "UPDATE {to}.{table} SET end_snapshot = {snapshot} WHERE {key} = {now} AND end_snapshot IS NULL",
                to = self.to,
                table = Sql::constant(table),
                snapshot = self.snapshot(),
                key = Sql::constant(key),
                now = pair.now
            ))?;
        }
        Ok(())
    }

    /// Begins everything that the table was. Its files get numbers of their own from `file_id` on, as the numbers they
    /// had are taken by their former rows; returns the next free one.
    fn begin(&self, pair: &Pair, file_id: i64) -> Result<i64, LakeError> {
        let then = pair.then;
        let of_then = |table: &'static str| {
            let table = Sql::constant(table);
            sql!("FROM {from}.{table} WHERE table_id = {then} AND end_snapshot IS NULL", from = self.from, table, then)
        };
        let numbered = |table: &'static str, id: &'static str, first: i64| {
            sql!(
                "(SELECT {id}, {first} + row_number() OVER (ORDER BY {id}) - 1 AS new_{id} {rows})",
                id = Sql::constant(id),
                first,
                rows = of_then(table)
            )
        };
        let count = |table: &'static str| -> Result<i64, LakeError> {
            let row = self.connection.row(sql!("SELECT count(*) {rows}", rows = of_then(table)))?;
            Ok(row.integer(0)?)
        };
        let deletes_from = file_id + count("ducklake_data_file")?;
        let files = numbered("ducklake_data_file", "data_file_id", file_id);
        let deletes = numbered("ducklake_delete_file", "delete_file_id", deletes_from);
        let by_file = sql!("JOIN {files} n ON n.data_file_id = r.data_file_id", files);
        let by_deletes = sql!("{by_file} JOIN {deletes} m ON m.delete_file_id = r.delete_file_id", by_file, deletes);
        for (table, key) in self.versioned() {
            let join = match table {
                "ducklake_data_file" => Some(&by_file),
                "ducklake_delete_file" => Some(&by_deletes),
                _ => None,
            };
            let condition = sql!("r.{key} = {then} AND r.end_snapshot IS NULL", key = Sql::constant(key), then);
            self.insert(table, join, &condition, Some(pair))?;
        }
        for table in PER_FILE {
            self.insert(table, Some(&by_file), &sql!("r.table_id = {then}", then), None)?;
        }
        for (table, key, named_by) in SHARED {
            if !self.from_tables.contains_key(named_by) {
                continue;
            }
            let condition = sql!(
                "r.{key} IN (SELECT {key} {rows}) AND r.{key} NOT IN (SELECT {key} FROM {to}.{table})",
                key = Sql::constant(key),
                rows = of_then(named_by),
                to = self.to,
                table = Sql::constant(table)
            );
            self.insert(table, None, &condition, None)?;
        }
        Ok(deletes_from + count("ducklake_delete_file")?)
    }

    /// The statistics of the whole table are those of the parent; row numbers go on behind all that were ever given.
    fn statistics(&self, pair: &Pair) -> Result<(), LakeError> {
        let (to, then, now) = (&self.to, pair.then, pair.now);
        let next_row = self.connection.row(sql!(
            "SELECT coalesce(max(next_row_id), 0)::BIGINT FROM {to}.ducklake_table_stats WHERE table_id IN ({then}, {now})",
            to,
            then,
            now
        ))?;
        self.execute(sql!(
            "DELETE FROM {to}.ducklake_table_stats WHERE table_id = {then}; \
             DELETE FROM {to}.ducklake_table_column_stats WHERE table_id = {then}",
            to,
            then
        ))?;
        let of_then = sql!("r.table_id = {then}", then);
        self.insert("ducklake_table_stats", None, &of_then, None)?;
        self.insert("ducklake_table_column_stats", None, &of_then, None)?;
        self.execute(sql!(
            "UPDATE {to}.ducklake_table_stats SET next_row_id = greatest(next_row_id, {next}) WHERE table_id = {then}",
            to,
            next = next_row.integer(0)?,
            then
        ))?;
        if self.to_tables.get("ducklake_schema_versions").is_some_and(|columns| columns.iter().any(|c| c == "table_id"))
        {
            self.execute(sql!(
                "INSERT INTO {to}.ducklake_schema_versions (begin_snapshot, schema_version, table_id) \
                 VALUES ({snapshot}, {schema_version}, {then})",
                to,
                snapshot = self.snapshot(),
                schema_version = self.schema_version,
                then
            ))?;
        }
        Ok(())
    }

    /// Options are the table's own, which is known by another number now. They are the same as the parent's, or the table would
    /// not be given its files.
    fn options(&self, pair: &Pair) -> Result<(), LakeError> {
        if pair.now == pair.then {
            return Ok(());
        }
        self.execute(sql!(
            "DELETE FROM {to}.ducklake_metadata WHERE scope = 'table' AND scope_id = {then}; \
             UPDATE {to}.ducklake_metadata SET scope_id = {then} WHERE scope = 'table' AND scope_id = {now}",
            to = self.to,
            then = pair.then,
            now = pair.now
        ))
    }

    fn versioned(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        VERSIONED
            .into_iter()
            .filter(|(table, _)| self.to_tables.contains_key(*table) && self.from_tables.contains_key(*table))
    }

    /// Inserts rows `r` of the parent. Given a pair they begin with our snapshot, in the schema the table is in now.
    fn insert(
        &self,
        table: &'static str,
        join: Option<&Sql>,
        condition: &Sql,
        pair: Option<&Pair>,
    ) -> Result<(), LakeError> {
        let (Some(to), Some(from)) = (self.to_tables.get(table), self.from_tables.get(table)) else {
            return Ok(());
        };
        let columns: Vec<&str> = to.iter().filter(|column| from.contains(column)).map(String::as_str).collect();
        let names_files = matches!(table, "ducklake_data_file" | "ducklake_delete_file");
        let by_url = self.checkout.published_at.as_deref().filter(|_| names_files);
        // A file that this working copy wrote itself may not be published yet, and is here.
        let written_here = sql!(
            "EXISTS (SELECT 1 FROM {to}.{table} w WHERE w.table_id = r.table_id AND w.path = r.path AND w.path_is_relative)",
            to = self.to,
            table = Sql::constant(table)
        );
        let by_url = by_url.map(|url| {
            let url = paths::published(&self.from, url);
            (sql!("CASE WHEN {written_here} THEN r.path ELSE {url} END", written_here, url), written_here)
        });
        let values = columns.iter().map(|column| match (*column, pair, &by_url) {
            ("path", Some(_), Some((path, _))) => path.clone(),
            ("path_is_relative", Some(_), Some((_, relative))) => relative.clone(),
            ("begin_snapshot", Some(_), _) => sql!("{snapshot}", snapshot = self.snapshot()),
            ("end_snapshot", Some(_), _) => sql!("NULL"),
            ("schema_id", Some(pair), _) => sql!("{schema}", schema = pair.schema),
            ("path", Some(pair), _) if table == "ducklake_table" => self.table_folder(pair),
            ("path_is_relative", Some(pair), _) if table == "ducklake_table" => {
                self.unless_moved(pair, &sql!("r.path_is_relative"), &sql!("false"))
            }
            ("data_file_id", _, _) if join.is_some() => sql!("n.new_data_file_id"),
            ("delete_file_id", _, _) if join.is_some() => sql!("m.new_delete_file_id"),
            (column, _, _) => sql!("r.{column}", column = identifier(column)),
        });
        self.execute(sql!(
            "INSERT INTO {to}.{table} ({names}) SELECT {values} FROM {from}.{table} r {join} WHERE {condition}",
            to = self.to,
            table = Sql::constant(table),
            names = Sql::join(columns.iter().map(|column| identifier(column)), ", "),
            values = Sql::join(values, ", "),
            from = self.from,
            join = Sql::join(join, ""),
            condition
        ))
    }

    /// SQL for the folder of a table: written out as an absolute one where its schema has moved.
    fn table_folder(&self, pair: &Pair) -> Sql {
        let absolute = sql!(
            "{data_path} || {parents} || r.path",
            data_path = literal(&self.checkout.data_path),
            parents = self.parents_schema_folder(pair)
        );
        self.unless_moved(pair, &sql!("r.path"), &absolute)
    }

    /// SQL that gives `same` while the schema's folder is what it was for the parent, and otherwise `moved`.
    fn unless_moved(&self, pair: &Pair, same: &Sql, moved: &Sql) -> Sql {
        sql!(
            "CASE WHEN {parents} = (SELECT path FROM {to}.ducklake_schema WHERE schema_id = {schema} LIMIT 1) \
             THEN {same} ELSE {moved} END",
            parents = self.parents_schema_folder(pair),
            to = self.to,
            schema = pair.schema,
            same,
            moved
        )
    }

    fn parents_schema_folder(&self, pair: &Pair) -> Sql {
        sql!(
            "(SELECT s.path FROM {from}.ducklake_table t JOIN {from}.ducklake_schema s ON s.schema_id = t.schema_id \
             WHERE t.table_id = {then} AND t.end_snapshot IS NULL LIMIT 1)",
            from = self.from,
            then = pair.then
        )
    }
}
