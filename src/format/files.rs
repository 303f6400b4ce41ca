//! files.json: the data files of a version's tables (docs/format.md section 5).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::data_path::DataDir;
use super::error::FormatError;
use super::json::{self, FDL_VERSION};
use super::layout;

/// The data files of a version, by table. Made from the frozen catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The version of the format.
    pub fdl: String,
    /// The tables, in the catalog's order.
    pub tables: Vec<TableFiles>,
}

/// The data files of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFiles {
    /// The table's schema.
    pub schema: String,
    /// The table's name.
    pub table: String,
    /// Its data files, in the catalog's order.
    pub files: Vec<DataFile>,
}

/// A data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Its key, relative to the root.
    pub path: String,
    /// The rows in it, deleted ones among them.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The file that says which of its rows are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletes: Option<DeleteFile>,
}

/// A file of deleted rows. It counts as a data file everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteFile {
    /// Its key, relative to the root.
    pub path: String,
    /// The rows it deletes.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A data or delete file as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredFile {
    /// Its key, relative to the root.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Files {
    /// The list of these tables.
    #[must_use]
    pub fn new(tables: Vec<TableFiles>) -> Self {
        Self { fdl: FDL_VERSION.to_owned(), tables }
    }

    /// Reads files.json and checks that every path lies under the data folder.
    ///
    /// # Errors
    /// [`FormatError::UnsupportedVersion`] for another major version, [`FormatError::BadJson`] for damage,
    /// [`FormatError::BadPath`] for a path that leaves the data folder.
    pub fn parse(bytes: &[u8], data_dir: &DataDir) -> Result<Self, FormatError> {
        let files: Self = json::parse_versioned(layout::FILES_JSON, bytes)?;
        files.check(data_dir)?;
        Ok(files)
    }

    /// Checks that every path lies under the data folder.
    ///
    /// # Errors
    /// [`FormatError::BadPath`] for the first that does not.
    pub fn check(&self, data_dir: &DataDir) -> Result<(), FormatError> {
        self.iter().try_for_each(|(key, _)| data_dir.check(key))
    }

    /// The bytes of files.json.
    ///
    /// # Errors
    /// [`FormatError::BadJson`], which no value of this type brings about.
    pub fn print(&self) -> Result<Vec<u8>, FormatError> {
        json::print(layout::FILES_JSON, self)
    }

    /// The key and size of every data and delete file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        let files = self.tables.iter().flat_map(|table| &table.files);
        files.flat_map(|file| {
            let deletes = file.deletes.as_ref();
            let deletes = deletes.map(|deletes| (deletes.path.as_str(), deletes.bytes));
            std::iter::once((file.path.as_str(), file.bytes)).chain(deletes)
        })
    }

    /// The schema and name of every table that has data files.
    #[must_use]
    pub fn tables(&self) -> BTreeSet<(&str, &str)> {
        let tables = self.tables.iter().filter(|table| !table.files.is_empty());
        tables.map(|table| (table.schema.as_str(), table.table.as_str())).collect()
    }

    /// Every data and delete file once, by its key.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<&str, u64> {
        self.iter().collect()
    }

    /// The data and delete files that this version names and its parent does not, each once, sorted by key.
    #[must_use]
    pub fn new_since(&self, parent: Option<&Self>) -> Vec<StoredFile> {
        let known = parent.map(Self::by_key).unwrap_or_default();
        let new = self.by_key().into_iter();
        new.filter(|(key, _)| !known.contains_key(key))
            .map(|(key, size)| StoredFile { key: key.to_owned(), size })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
  "fdl": "0.1",
  "tables": [
    {
      "schema": "main",
      "table": "町",
      "files": [
        {
          "path": "data/main/町/ducklake-1.parquet",
          "rows": 3,
          "bytes": 512,
          "deletes": {
            "path": "data/main/町/ducklake-1-delete.parquet",
            "rows": 1,
            "bytes": 128
          }
        },
        {
          "path": "data/main/町/ducklake-2.parquet",
          "rows": 1,
          "bytes": 256
        }
      ]
    },
    {
      "schema": "main",
      "table": "empty",
      "files": []
    }
  ]
}
"#;

    fn full() -> Files {
        Files::parse(FULL.as_bytes(), &DataDir::default()).unwrap()
    }

    #[test]
    fn the_same_bytes_come_back() {
        assert_eq!(String::from_utf8(full().print().unwrap()).unwrap(), FULL);
    }

    #[test]
    fn delete_files_count_and_only_new_files_are_new() {
        let (files, mut parent) = (full(), full());
        let all: Vec<u64> = files.new_since(None).iter().map(|file| file.size).collect();
        assert_eq!(all, [128, 512, 256]);
        assert_eq!(files.new_since(Some(&parent)), []);
        parent.tables[0].files[0].deletes = None;
        let new = files.new_since(Some(&parent));
        assert_eq!(new.len(), 1);
        assert_eq!(new[0].key, "data/main/町/ducklake-1-delete.parquet");
    }

    #[test]
    fn a_path_outside_the_data_folder_is_refused() {
        for path in ["data/../fdl.json", "/etc/passwd", "s3://other/x", "other/x"] {
            for old in ["data/main/町/ducklake-2.parquet", "data/main/町/ducklake-1-delete.parquet"] {
                let text = FULL.replace(old, path);
                let read = Files::parse(text.as_bytes(), &DataDir::default());
                assert!(matches!(read, Err(FormatError::BadPath { .. })), "{path}");
            }
        }
        assert!(Files::parse(b"{\"fdl\": \"0.1\"}", &DataDir::default()).is_err());
    }
}
