//! The metadata tables of the DuckLake formats that fdl can write beside the session's own (docs/design/0005).
//!
//! A catalog in the session's own format is laid out by the session's DuckLake (`template.rs`). These are the others, as
//! DuckLake itself declares them; test/scenarios/test_catalog_formats.py holds them against the real ones.

use crate::engine::{Identifier, Sql, sql};

/// A DuckLake format whose tables are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Known {
    /// 0.3, of DuckDB 1.4.
    V0_3,
    /// 1.0, of DuckDB 1.5.
    V1_0,
}

impl Known {
    /// Every one, the oldest first.
    pub(super) const ALL: [Self; 2] = [Self::V0_3, Self::V1_0];

    /// The format of a name; nothing for one that is not known.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V0_3 => "0.3",
            Self::V1_0 => "1.0",
        }
    }

    fn layout(self) -> impl Iterator<Item = &'static Table> {
        TABLES.iter().filter(move |table| table.since <= self && table.last.is_none_or(|last| self <= last))
    }

    /// The names of its tables.
    pub(super) fn tables(self) -> impl Iterator<Item = &'static str> {
        self.layout().map(|table| table.name)
    }

    /// The statements that make its tables, empty, in the schema `main` of a database.
    pub(super) fn create(self, database: &Identifier) -> impl Iterator<Item = Sql> {
        self.layout().map(move |table| {
            let (name, columns) = (Sql::constant(table.name), Sql::constant(table.columns));
            sql!("CREATE TABLE {database}.main.{name}({columns})", database, name, columns)
        })
    }
}

/// A metadata table, in the formats that have it like this.
struct Table {
    since: Known,
    last: Option<Known>,
    name: &'static str,
    columns: &'static str,
}

const fn table(name: &'static str, columns: &'static str) -> Table {
    Table { since: Known::V0_3, last: None, name, columns }
}

const fn until(last: Known, name: &'static str, columns: &'static str) -> Table {
    Table { last: Some(last), ..table(name, columns) }
}

const fn since(since: Known, name: &'static str, columns: &'static str) -> Table {
    Table { since, ..table(name, columns) }
}

const TABLES: &[Table] = &[
    table("ducklake_metadata", "key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR, scope_id BIGINT"),
    table(
        "ducklake_snapshot",
        "snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, schema_version BIGINT, next_catalog_id BIGINT, \
         next_file_id BIGINT",
    ),
    table(
        "ducklake_snapshot_changes",
        "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR, \
         commit_extra_info VARCHAR",
    ),
    table(
        "ducklake_schema",
        "schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_name VARCHAR, \
         path VARCHAR, path_is_relative BOOLEAN",
    ),
    table(
        "ducklake_table",
        "table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, \
         table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN",
    ),
    table(
        "ducklake_view",
        "view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, view_name VARCHAR, \
         dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR",
    ),
    table("ducklake_tag", "object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR"),
    table(
        "ducklake_column_tag",
        "table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR",
    ),
    until(
        Known::V0_3,
        "ducklake_data_file",
        "data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, file_order BIGINT, \
         path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT, \
         footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, partial_file_info VARCHAR, \
         mapping_id BIGINT",
    ),
    since(
        Known::V1_0,
        "ducklake_data_file",
        "data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, file_order BIGINT, \
         path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT, \
         footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, mapping_id BIGINT, \
         partial_max BIGINT",
    ),
    table(
        "ducklake_file_column_stats",
        "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, value_count BIGINT, \
         null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR",
    ),
    since(
        Known::V1_0,
        "ducklake_file_variant_stats",
        "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR, shredded_type VARCHAR, \
         column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, \
         contains_nan BOOLEAN, extra_stats VARCHAR",
    ),
    until(
        Known::V0_3,
        "ducklake_delete_file",
        "delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, \
         data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT, \
         file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR",
    ),
    since(
        Known::V1_0,
        "ducklake_delete_file",
        "delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, \
         data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT, \
         file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT",
    ),
    until(
        Known::V0_3,
        "ducklake_column",
        "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, \
         column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN, \
         parent_column BIGINT",
    ),
    since(
        Known::V1_0,
        "ducklake_column",
        "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, \
         column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN, \
         parent_column BIGINT, default_value_type VARCHAR, default_value_dialect VARCHAR",
    ),
    table("ducklake_table_stats", "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT"),
    table(
        "ducklake_table_column_stats",
        "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, min_value VARCHAR, \
         max_value VARCHAR, extra_stats VARCHAR",
    ),
    table(
        "ducklake_partition_info",
        "partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    ),
    table(
        "ducklake_partition_column",
        "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, transform VARCHAR",
    ),
    table(
        "ducklake_file_partition_value",
        "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR",
    ),
    table(
        "ducklake_files_scheduled_for_deletion",
        "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, schedule_start TIMESTAMPTZ",
    ),
    table("ducklake_inlined_data_tables", "table_id BIGINT, table_name VARCHAR, schema_version BIGINT"),
    table("ducklake_column_mapping", "mapping_id BIGINT, table_id BIGINT, type VARCHAR"),
    table(
        "ducklake_name_mapping",
        "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, parent_column BIGINT, \
         is_partition BOOLEAN",
    ),
    until(Known::V0_3, "ducklake_schema_versions", "begin_snapshot BIGINT, schema_version BIGINT"),
    since(Known::V1_0, "ducklake_schema_versions", "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT"),
    since(
        Known::V1_0,
        "ducklake_macro",
        "schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT",
    ),
    since(
        Known::V1_0,
        "ducklake_macro_impl",
        "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR",
    ),
    since(
        Known::V1_0,
        "ducklake_macro_parameters",
        "macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, parameter_type VARCHAR, \
         default_value VARCHAR, default_value_type VARCHAR",
    ),
    since(
        Known::V1_0,
        "ducklake_sort_info",
        "sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    ),
    since(
        Known::V1_0,
        "ducklake_sort_expression",
        "sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR, \
         sort_direction VARCHAR, null_order VARCHAR",
    ),
];
