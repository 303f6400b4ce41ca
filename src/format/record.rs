//! version.json: the record of a version (docs/format.md section 3).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::FormatError;
use super::hash::Sha256;
use super::json;
use super::layout;
use super::time::Timestamp;
use super::version_id::VersionId;

/// The record of a version. It holds the hashes of everything else in its folder, so one signature covers all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the format.
    pub fdl: String,
    /// The version's ID, also the name of its folder.
    pub id: VersionId,
    /// The version it was built on: none for the first, otherwise one.
    #[serde(default)]
    pub parents: Vec<VersionId>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Why it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The hash of ducklake.duckdb.
    pub sha256: Sha256,
    /// The size of ducklake.duckdb in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The DuckLake format of ducklake.duckdb, such as `1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ducklake: Option<String>,
    /// The catalogs in other formats, by the format's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub catalogs: BTreeMap<String, CatalogEntry>,
    /// The hash of files.json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_sha256: Option<Sha256>,
    /// The hash of dataset.json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_sha256: Option<Sha256>,
    /// The files it was made from. Each lies once in the repository, under its hash, or was left behind by a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceFile>,
    /// The program that made it, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// A file that a version was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// What its maker calls it: a name or a relative path.
    pub name: String,
    /// The hash of its bytes, which is also its name in the repository.
    pub sha256: Sha256,
    /// Its size in bytes.
    pub size: u64,
}

impl SourceFile {
    /// Its key in the repository.
    #[must_use]
    pub fn key(&self) -> String {
        layout::source(self.sha256)
    }
}

/// A catalog in another DuckLake format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogEntry {
    /// The hash of the file.
    pub sha256: Sha256,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// A catalog of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// The key of the object.
    pub key: String,
    /// The hash of the file.
    pub sha256: Sha256,
    /// Its size in bytes, where the record tells it.
    pub size: Option<u64>,
}

impl Catalog {
    /// Its name in the folder of its version.
    #[must_use]
    pub fn name(&self) -> &str {
        layout::in_version(&self.key).map_or("", |(_, name)| name)
    }
}

/// Who made a version. We write it as text; other writers may write its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an author is a text or {name, email}")]
pub enum Author {
    /// `Aiko Tanaka <aiko@example.org>`.
    Text(String),
    /// The name and the mail address apart.
    Parts {
        /// The name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The mail address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        email: Option<String>,
    },
}

impl Author {
    /// The mail address, which a signature names as the signer (docs/format.md section 15).
    #[must_use]
    pub fn email(&self) -> Option<&str> {
        match self {
            Self::Parts { email, .. } => email.as_deref(),
            Self::Text(text) => {
                let bracketed = text.rsplit_once('<').and_then(|(_, rest)| rest.trim_end().strip_suffix('>'));
                let bare = || (text.contains('@') && !text.contains(' ')).then_some(text.as_str());
                bracketed.or_else(bare)
            }
        }
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Parts { name, email } => match (name, email) {
                (Some(name), Some(email)) => write!(f, "{name} <{email}>"),
                (Some(text), None) | (None, Some(text)) => f.write_str(text),
                (None, None) => Ok(()),
            },
        }
    }
}

impl Record {
    /// Reads the version.json in the folder of a version.
    ///
    /// # Errors
    /// [`FormatError::UnsupportedVersion`] for another major version; [`FormatError::BadJson`] for damage, among it
    /// an `id` other than the folder's name.
    pub fn parse(folder: VersionId, bytes: &[u8]) -> Result<Self, FormatError> {
        let file = layout::version_json(folder);
        let record: Self = json::parse_versioned(&file, bytes)?;
        if record.id != folder {
            let why = format!("it is the record of version {}", record.id);
            return Err(FormatError::json(&file, why));
        }
        for format in record.catalogs.keys() {
            layout::check_format(format).map_err(|error| FormatError::json(&file, error.to_string()))?;
        }
        Ok(record)
    }

    /// The bytes of version.json.
    ///
    /// # Errors
    /// [`FormatError::BadValue`] for a catalog format that cannot be part of a key.
    pub fn print(&self) -> Result<Vec<u8>, FormatError> {
        for format in self.catalogs.keys() {
            layout::check_format(format)?;
        }
        json::print(layout::VERSION_JSON, self)
    }

    /// The DuckLake formats that the version has a catalog in; none where the record does not say.
    pub fn formats(&self) -> impl Iterator<Item = &str> {
        self.ducklake.iter().chain(self.catalogs.keys()).map(String::as_str)
    }

    /// ducklake.duckdb.
    #[must_use]
    pub fn main_catalog(&self) -> Catalog {
        Catalog { key: layout::catalog(self.id), sha256: self.sha256, size: self.size }
    }

    /// The catalogs in other formats, with their formats.
    pub fn other_catalogs(&self) -> impl Iterator<Item = (&str, Catalog)> {
        self.catalogs.iter().map(|(format, entry)| {
            let key = layout::other_catalog(self.id, format);
            (format.as_str(), Catalog { key, sha256: entry.sha256, size: entry.size })
        })
    }

    /// All catalogs, ducklake.duckdb first.
    pub fn all_catalogs(&self) -> impl Iterator<Item = Catalog> {
        std::iter::once(self.main_catalog()).chain(self.other_catalogs().map(|(_, catalog)| catalog))
    }

    /// The hash that the record gives a file of its folder. Nothing for a file that it does not name.
    #[must_use]
    pub fn hash_of(&self, name: &str) -> Option<Sha256> {
        match name {
            layout::CATALOG => Some(self.sha256),
            layout::DATASET_JSON => self.dataset_sha256,
            layout::FILES_JSON => self.files_sha256,
            _ => self.catalogs.get(layout::catalog_format(name)?).map(|entry| entry.sha256),
        }
    }

    /// The version this one was built on.
    #[must_use]
    pub fn parent(&self) -> Option<VersionId> {
        self.parents.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
  "fdl": "0.1",
  "id": "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10",
  "parents": [
    "019a3c4d-0000-7000-8000-000000000000"
  ],
  "author": "Aiko Tanaka <aiko@example.org>",
  "message": "towns: add 2026",
  "created": "2026-11-29T22:14:03.123Z",
  "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  "size": 1839104,
  "ducklake": "1.0",
  "catalogs": {
    "0.3": {
      "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "size": 1572864
    }
  },
  "files_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  "dataset_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  "sources": [
    {
      "name": "towns.csv",
      "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
      "size": 3
    }
  ],
  "tool": "fdl-duckdb 0.1.0"
}
"#;
    const LEAST: &str = r#"{"fdl": "0.1", "id": "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10",
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" EXTRA}"#;

    fn id() -> VersionId {
        "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap()
    }

    fn with(extra: &str) -> Result<Record, FormatError> {
        Record::parse(id(), LEAST.replace("EXTRA", extra).as_bytes())
    }

    #[test]
    fn the_same_bytes_come_back() {
        let record = Record::parse(id(), FULL.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(record.print().unwrap()).unwrap(), FULL);
    }

    #[test]
    fn the_files_that_it_names() {
        let record = Record::parse(id(), FULL.as_bytes()).unwrap();
        let catalogs: Vec<Catalog> = record.all_catalogs().collect();
        let names: Vec<&str> = catalogs.iter().map(Catalog::name).collect();
        assert_eq!(names, [layout::CATALOG, "catalogs/0.3.duckdb"]);
        assert!(catalogs.iter().all(|catalog| record.hash_of(catalog.name()) == Some(catalog.sha256)));
        assert_eq!(record.hash_of(layout::FILES_JSON), record.files_sha256);
        assert_eq!(record.hash_of(layout::DATASET_JSON), record.dataset_sha256);
        for other in [layout::VERSION_JSON, layout::SIGNATURE, layout::EXPIRED_JSON, "catalogs/0.4.duckdb", "0.3"] {
            assert_eq!(record.hash_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_least_record_is_read() {
        let record = with("").unwrap();
        assert_eq!((record.parent(), &record.author), (None, &None));
        assert!(with(r#", "unknown": {"deep": [1, 2]}, "size": null"#).is_ok());
    }

    #[test]
    fn damaged_records() {
        for extra in [
            r#", "parents": ["x"]"#,
            r#", "parents": "019a3c4d-0000-7000-8000-000000000000""#,
            r#", "size": -1"#,
            r#", "size": 1e400"#,
            r#", "size": 18446744073709551616"#,
            r#", "created": "yesterday""#,
            r#", "author": 5"#,
            r#", "catalogs": {"../x": {"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}}"#,
            r#", "files_sha256": "abc""#,
            r#", "sources": [{"name": "a", "sha256": "../x", "size": 1}]"#,
            r#", "sources": ["a"]"#,
        ] {
            assert!(matches!(with(extra), Err(FormatError::BadJson { .. })), "{extra}");
        }
        for missing in ["fdl", "id", "sha256"] {
            let text = LEAST.replace("EXTRA", "").replace(&format!("\"{missing}\""), "\"x\"");
            assert!(matches!(Record::parse(id(), text.as_bytes()), Err(FormatError::BadJson { .. })));
        }
    }

    #[test]
    fn the_folder_and_the_major_version_must_fit() {
        let other: VersionId = "019a3c4d-0000-7000-8000-000000000000".parse().unwrap();
        let error = Record::parse(other, FULL.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("record of version 019a3c4e"), "{error}");
        let newer = FULL.replace("\"0.1\"", "\"2.0\"");
        assert!(matches!(Record::parse(id(), newer.as_bytes()), Err(FormatError::UnsupportedVersion { .. })));
    }

    #[test]
    fn authors() {
        let read = |author: &str| with(&format!(", \"author\": {author}")).unwrap().author.unwrap();
        for (given, shown, email) in [
            (r#""Aiko <a@b.org>""#, "Aiko <a@b.org>", Some("a@b.org")),
            (r#""a@b.org""#, "a@b.org", Some("a@b.org")),
            (r#""Aiko""#, "Aiko", None),
            (r#"{"name": "Aiko", "email": "a@b.org"}"#, "Aiko <a@b.org>", Some("a@b.org")),
            (r#"{"name": "Aiko"}"#, "Aiko", None),
            (r#"{"email": "a@b.org", "x": 1}"#, "a@b.org", Some("a@b.org")),
        ] {
            let author = read(given);
            assert_eq!((author.to_string().as_str(), author.email()), (shown, email));
        }
    }
}
