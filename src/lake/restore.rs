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
use super::{LakeError, paths};
use crate::engine::{Connection, Row, identifier, literal};

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
    let target = connection.attach(&working.to_string_lossy(), "TYPE sqlite, BUSY_TIMEOUT 5000")?;
    let source = connection.attach(&parent.to_string_lossy(), "TYPE duckdb, READ_ONLY")?;
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
    /// The working catalog and the parent, quoted.
    to: String,
    from: String,
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
        let last = connection.row(&format!(
            "SELECT snapshot_id::BIGINT, schema_version::BIGINT, next_catalog_id::BIGINT, next_file_id::BIGINT \
             FROM {to}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
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

    fn execute(&self, sql: &str) -> Result<(), LakeError> {
        Ok(self.connection.execute(sql)?)
    }

    fn run(&self, tables: &[(&TableChange, Pair)]) -> Result<(), LakeError> {
        let mut file_id = self.next_file_id;
        let mut changes = Vec::new();
        for (table, pair) in tables {
            self.end(pair)?;
            file_id = self.begin(pair, file_id)?;
            self.statistics(pair)?;
            changes.push(if pair.now == pair.then {
                format!("altered_table:{0},deleted_from_table:{0},inserted_into_table:{0}", pair.then)
            } else {
                format!(
                    "dropped_table:{},created_table:{}.{},inserted_into_table:{}",
                    pair.now,
                    identifier(&table.schema),
                    identifier(&table.table),
                    pair.then
                )
            });
        }
        let (to, snapshot) = (&self.to, self.snapshot());
        self.execute(&format!(
            "INSERT INTO {to}.ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) \
             VALUES ({snapshot}, now()::VARCHAR, {}, {}, {file_id}); \
             INSERT INTO {to}.ducklake_snapshot_changes (snapshot_id, changes_made) VALUES ({snapshot}, {})",
            self.schema_version,
            self.next_catalog_id,
            literal(&changes.join(","))
        ))
    }

    /// Nothing when the table of the parent lives on under another name.
    fn pair(&self, table: &TableChange) -> Result<Option<Pair>, LakeError> {
        let ids = |database: &str| -> Result<Row, LakeError> {
            Ok(self.connection.row(&format!(
                "SELECT t.table_id::BIGINT, t.schema_id::BIGINT FROM {database}.ducklake_table t \
                 JOIN {database}.ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL \
                 WHERE t.end_snapshot IS NULL AND s.schema_name = {} AND t.table_name = {}",
                literal(&table.schema),
                literal(&table.table)
            ))?)
        };
        let (now, then) = (ids(&self.to)?, ids(&self.from)?);
        let pair = Pair { now: now.integer(0)?, then: then.integer(0)?, schema: now.integer(1)? };
        let alive = self.connection.query(&format!(
            "SELECT 1 FROM {}.ducklake_table WHERE table_id = {} AND end_snapshot IS NULL LIMIT 1",
            self.to, pair.then
        ))?;
        Ok((pair.now == pair.then || alive.is_empty()).then_some(pair))
    }

    /// Whether anything of the table began or ended after a snapshot.
    fn changed_since(&self, pair: &Pair, snapshot: i64) -> Result<bool, LakeError> {
        for (table, key) in self.versioned() {
            let later = self.connection.query(&format!(
                "SELECT 1 FROM {}.{table} WHERE {key} = {} AND (begin_snapshot > {snapshot} OR end_snapshot > {snapshot}) \
                 LIMIT 1",
                self.to, pair.now
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
            self.execute(&format!(
                "UPDATE {}.{table} SET end_snapshot = {} WHERE {key} = {} AND end_snapshot IS NULL",
                self.to,
                self.snapshot(),
                pair.now
            ))?;
        }
        Ok(())
    }

    /// Begins everything that the table was. Its files get numbers of their own from `file_id` on, as the numbers they
    /// had are taken by their former rows; returns the next free one.
    fn begin(&self, pair: &Pair, file_id: i64) -> Result<i64, LakeError> {
        let then = pair.then;
        let numbered = |table: &str, id: &str, first: i64| {
            format!(
                "(SELECT {id}, {first} + row_number() OVER (ORDER BY {id}) - 1 AS new_{id} FROM {}.{table} \
                 WHERE table_id = {then} AND end_snapshot IS NULL)",
                self.from
            )
        };
        let count = |table: &str| -> Result<i64, LakeError> {
            let row = self.connection.row(&format!(
                "SELECT count(*) FROM {}.{table} WHERE table_id = {then} AND end_snapshot IS NULL",
                self.from
            ))?;
            Ok(row.integer(0)?)
        };
        let deletes_from = file_id + count("ducklake_data_file")?;
        let files = numbered("ducklake_data_file", "data_file_id", file_id);
        let deletes = numbered("ducklake_delete_file", "delete_file_id", deletes_from);
        let by_file = format!("JOIN {files} n ON n.data_file_id = r.data_file_id");
        let by_deletes = format!("{by_file} JOIN {deletes} m ON m.delete_file_id = r.delete_file_id");
        for (table, key) in self.versioned() {
            let join = match table {
                "ducklake_data_file" => by_file.as_str(),
                "ducklake_delete_file" => by_deletes.as_str(),
                _ => "",
            };
            self.insert(table, join, &format!("r.{key} = {then} AND r.end_snapshot IS NULL"), Some(pair))?;
        }
        for table in PER_FILE {
            self.insert(table, &by_file, &format!("r.table_id = {then}"), None)?;
        }
        for (table, key, named_by) in SHARED {
            if !self.from_tables.contains_key(named_by) {
                continue;
            }
            let condition = format!(
                "r.{key} IN (SELECT {key} FROM {}.{named_by} WHERE table_id = {then} AND end_snapshot IS NULL) \
                 AND r.{key} NOT IN (SELECT {key} FROM {}.{table})",
                self.from, self.to
            );
            self.insert(table, "", &condition, None)?;
        }
        Ok(deletes_from + count("ducklake_delete_file")?)
    }

    /// The statistics of the whole table are those of the parent; row numbers go on behind all that were ever given.
    fn statistics(&self, pair: &Pair) -> Result<(), LakeError> {
        let (to, then, now) = (&self.to, pair.then, pair.now);
        let next_row = self.connection.row(&format!(
            "SELECT coalesce(max(next_row_id), 0)::BIGINT FROM {to}.ducklake_table_stats WHERE table_id IN ({then}, {now})"
        ))?;
        self.execute(&format!(
            "DELETE FROM {to}.ducklake_table_stats WHERE table_id = {then}; \
             DELETE FROM {to}.ducklake_table_column_stats WHERE table_id = {then}"
        ))?;
        let of_then = format!("r.table_id = {then}");
        self.insert("ducklake_table_stats", "", &of_then, None)?;
        self.insert("ducklake_table_column_stats", "", &of_then, None)?;
        self.execute(&format!(
            "UPDATE {to}.ducklake_table_stats SET next_row_id = greatest(next_row_id, {}) WHERE table_id = {then}",
            next_row.integer(0)?
        ))?;
        if self.to_tables.get("ducklake_schema_versions").is_some_and(|columns| columns.iter().any(|c| c == "table_id"))
        {
            self.execute(&format!(
                "INSERT INTO {to}.ducklake_schema_versions (begin_snapshot, schema_version, table_id) \
                 VALUES ({}, {}, {then})",
                self.snapshot(),
                self.schema_version
            ))?;
        }
        Ok(())
    }

    fn versioned(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        VERSIONED
            .into_iter()
            .filter(|(table, _)| self.to_tables.contains_key(*table) && self.from_tables.contains_key(*table))
    }

    /// Inserts rows `r` of the parent. Given a pair they begin with our snapshot, in the schema the table is in now.
    fn insert(&self, table: &str, join: &str, condition: &str, pair: Option<&Pair>) -> Result<(), LakeError> {
        let (Some(to), Some(from)) = (self.to_tables.get(table), self.from_tables.get(table)) else {
            return Ok(());
        };
        let columns: Vec<&str> = to.iter().filter(|column| from.contains(column)).map(String::as_str).collect();
        let names_files = matches!(table, "ducklake_data_file" | "ducklake_delete_file");
        let by_url = self.checkout.published_at.as_deref().filter(|_| names_files);
        // A file that this working copy wrote itself may not be published yet, and is here.
        let written_here = format!(
            "EXISTS (SELECT 1 FROM {}.{table} w WHERE w.table_id = r.table_id AND w.path = r.path AND w.path_is_relative)",
            self.to
        );
        let by_url = by_url.map(|url| {
            let url = paths::published(&self.from, url);
            (format!("CASE WHEN {written_here} THEN r.path ELSE {url} END"), written_here)
        });
        let values: Vec<String> = columns
            .iter()
            .map(|column| match (*column, pair, &by_url) {
                ("path", Some(_), Some((path, _))) => path.clone(),
                ("path_is_relative", Some(_), Some((_, relative))) => relative.clone(),
                ("begin_snapshot", Some(_), _) => self.snapshot().to_string(),
                ("end_snapshot", Some(_), _) => "NULL".to_owned(),
                ("schema_id", Some(pair), _) => pair.schema.to_string(),
                ("path", Some(pair), _) if table == "ducklake_table" => self.table_folder(pair, "absolute", "r.path"),
                ("path_is_relative", Some(pair), _) if table == "ducklake_table" => {
                    self.table_folder(pair, "false", "r.path_is_relative")
                }
                ("data_file_id", _, _) if !join.is_empty() => "n.new_data_file_id".to_owned(),
                ("delete_file_id", _, _) if !join.is_empty() => "m.new_delete_file_id".to_owned(),
                (column, _, _) => format!("r.{}", identifier(column)),
            })
            .collect();
        let names = columns.iter().map(|column| identifier(column)).collect::<Vec<_>>().join(", ");
        self.execute(&format!(
            "INSERT INTO {}.{table} ({names}) SELECT {} FROM {}.{table} r {join} WHERE {condition}",
            self.to,
            values.join(", "),
            self.from
        ))
    }

    /// SQL that gives `same` while the schema's folder is what it was for the parent, and otherwise `moved`: then the
    /// table's folder must be written out as an absolute one.
    fn table_folder(&self, pair: &Pair, moved: &str, same: &str) -> String {
        let (to, from) = (&self.to, &self.from);
        let parents = format!(
            "(SELECT s.path FROM {from}.ducklake_table t JOIN {from}.ducklake_schema s ON s.schema_id = t.schema_id \
             WHERE t.table_id = {} AND t.end_snapshot IS NULL LIMIT 1)",
            pair.then
        );
        let absolute = format!("{} || {parents} || r.path", literal(&self.checkout.data_path));
        let moved = if moved == "absolute" { absolute.as_str() } else { moved };
        format!(
            "CASE WHEN {parents} = (SELECT path FROM {to}.ducklake_schema WHERE schema_id = {} LIMIT 1) \
             THEN {same} ELSE {moved} END",
            pair.schema
        )
    }
}
