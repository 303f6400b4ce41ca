//! dataset.json: what a version holds, described (docs/format.md section 4).

use serde::{Deserialize, Serialize};

use super::error::FormatError;
use super::json::{self, FDL_VERSION};
use super::layout;

/// What a version holds. Made from the frozen catalog alone, in its order, with no time in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// The version of the format.
    pub fdl: String,
    /// The schemas.
    pub schemas: Vec<Schema>,
    /// The sums over all tables.
    pub totals: Totals,
}

/// A schema and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Its name.
    pub name: String,
    /// Its comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Its tables and views.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// Its macros.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macros: Vec<Macro>,
}

/// A macro.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Macro {
    /// Its name.
    pub name: String,
    /// Its parameters and its SQL: `(a, b) AS a + b`.
    pub sql: String,
}

/// A table or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Which of the two it is.
    pub kind: TableKind,
    /// Rows, without deleted ones. Tables only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Data files, delete files among them. Tables only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Bytes of the data files. Tables only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its columns.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// What it is partitioned by, as SQL: `region`, `year(day)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
    /// What its files are sorted by, as SQL: `day DESC`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sort_by: Vec<String>,
    /// The query of a view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
}

/// Whether something is a table or a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// Holds rows.
    Table,
    /// Is a query.
    View,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as DuckDB names it.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Whether it may hold NULL.
    pub nullable: bool,
    /// Its comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// The sums over all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Tables.
    pub tables: u64,
    /// Views.
    pub views: u64,
    /// Rows.
    pub rows: u64,
    /// Data files.
    pub files: u64,
    /// Bytes of the data files.
    pub bytes: u64,
}

impl Dataset {
    /// A description of these schemas, with their totals.
    #[must_use]
    pub fn new(schemas: Vec<Schema>) -> Self {
        let mut totals = Totals::default();
        for table in schemas.iter().flat_map(|schema| &schema.tables) {
            match table.kind {
                TableKind::Table => totals.tables += 1,
                TableKind::View => totals.views += 1,
            }
            totals.rows = totals.rows.saturating_add(table.rows.unwrap_or(0));
            totals.files = totals.files.saturating_add(table.files.unwrap_or(0));
            totals.bytes = totals.bytes.saturating_add(table.bytes.unwrap_or(0));
        }
        Self { fdl: FDL_VERSION.to_owned(), schemas, totals }
    }

    /// Reads dataset.json.
    ///
    /// # Errors
    /// [`FormatError::UnsupportedVersion`] for another major version, [`FormatError::BadJson`] for damage.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        json::parse_versioned(layout::DATASET_JSON, bytes)
    }

    /// The bytes of dataset.json.
    ///
    /// # Errors
    /// [`FormatError::BadJson`], which no value of this type brings about.
    pub fn print(&self) -> Result<Vec<u8>, FormatError> {
        json::print(layout::DATASET_JSON, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
  "fdl": "0.1",
  "schemas": [
    {
      "name": "main",
      "comment": "the main one",
      "tables": [
        {
          "name": "町",
          "kind": "table",
          "rows": 3,
          "files": 2,
          "bytes": 1024,
          "columns": [
            {
              "name": "name",
              "type": "VARCHAR",
              "nullable": true,
              "comment": "say \"it\""
            }
          ],
          "partition_by": [
            "year(day)"
          ],
          "sort_by": [
            "name DESC"
          ]
        },
        {
          "name": "v",
          "kind": "view",
          "columns": [],
          "sql": "SELECT 1"
        }
      ]
    }
  ],
  "totals": {
    "tables": 1,
    "views": 1,
    "rows": 3,
    "files": 2,
    "bytes": 1024
  }
}
"#;

    #[test]
    fn the_same_bytes_come_back() {
        let dataset = Dataset::parse(FULL.as_bytes()).unwrap();
        assert_eq!(Dataset::new(dataset.schemas.clone()), dataset);
        assert_eq!(String::from_utf8(dataset.print().unwrap()).unwrap(), FULL);
    }

    #[test]
    fn totals_never_overflow() {
        let mut dataset = Dataset::parse(FULL.as_bytes()).unwrap();
        for table in dataset.schemas.iter_mut().flat_map(|s| &mut s.tables) {
            table.rows = Some(u64::MAX);
        }
        assert_eq!(Dataset::new(dataset.schemas).totals.rows, u64::MAX);
    }

    #[test]
    fn damage_is_an_error() {
        for bad in ["", "{}", r#"{"fdl": "0.1", "schemas": {}, "totals": {}}"#, r#"{"fdl": "0.1", "schemas": []}"#] {
            assert!(Dataset::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
