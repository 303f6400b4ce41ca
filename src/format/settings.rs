//! fdl.json: the settings of a repository (docs/format.md section 2).

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::data_path::DataDir;
use super::error::FormatError;
use super::json::{self, FDL_VERSION};
use super::layout;

/// The content of fdl.json. A rewrite keeps the fields it does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The version of the format.
    pub fdl: String,
    /// The repository's own ID, the same in every copy. Missing in some repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Where the data files are.
    #[serde(default)]
    pub data_dir: DataDir,
    /// The keys that sign versions, as lines of an `allowed_signers` file. Shown, never trusted by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
    /// The DuckLake formats that new versions are published in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub catalog_formats: Vec<CatalogFormat>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A DuckLake format that new versions are published in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogFormat {
    /// The format, such as `1.0`.
    pub ducklake: String,
    /// The last day on which it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<NaiveDate>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl CatalogFormat {
    /// A format as a person writes it: `1.0`, or `1.0 until 2027-03-31`.
    ///
    /// # Errors
    /// [`FormatError::BadValue`] for what is not a format or not a day.
    pub fn from_user(text: &str) -> Result<Self, FormatError> {
        let (format, until) = match text.split_once(" until ") {
            Some((format, day)) => (format.trim(), Some(day.trim())),
            None => (text.trim(), None),
        };
        layout::check_format(format)?;
        let day =
            |day: &str| day.parse().map_err(|_| FormatError::value("a day", day, "it must be written as 2027-03-31"));
        Ok(Self { ducklake: format.to_owned(), until: until.map(day).transpose()?, other: Map::new() })
    }

    /// Whether new versions are published in it on a day (in UTC).
    #[must_use]
    pub fn is_written_on(&self, day: NaiveDate) -> bool {
        self.until.is_none_or(|until| day <= until)
    }
}

/// A DuckLake format's number to compare by: `1.10` is newer than `1.9`, and `1.1` than `1.1-dev`.
#[must_use]
pub fn format_release(format: &str) -> (Vec<u64>, bool) {
    let (numbers, tail) = match format.split_once('-') {
        Some((numbers, _)) => (numbers, true),
        None => (format, false),
    };
    let numbers = numbers.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.collect(), !tail)
}

impl Settings {
    /// The settings of a new repository.
    #[must_use]
    pub fn new(id: Uuid, data_dir: DataDir) -> Self {
        Self {
            fdl: FDL_VERSION.to_owned(),
            id: Some(id),
            data_dir,
            signers: Vec::new(),
            catalog_formats: Vec::new(),
            other: Map::new(),
        }
    }

    /// Reads fdl.json.
    ///
    /// # Errors
    /// [`FormatError::UnsupportedVersion`] for another major version, [`FormatError::BadJson`] for damage.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        json::parse_versioned(layout::FDL_JSON, bytes)
    }

    /// The bytes of fdl.json.
    ///
    /// # Errors
    /// [`FormatError::BadValue`] for a signer that is not one line or a format that cannot be part of a key.
    pub fn print(&self) -> Result<Vec<u8>, FormatError> {
        for signer in &self.signers {
            if signer.trim().is_empty() || signer.chars().any(char::is_control) {
                let why = "it must be one line of an allowed_signers file";
                return Err(FormatError::value("a signer", signer, why));
            }
        }
        for format in &self.catalog_formats {
            layout::check_format(&format.ducklake)?;
        }
        json::print(layout::FDL_JSON, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
  "fdl": "0.1",
  "id": "5f0c8a52-6d3e-4f8e-9b1a-2c7d4e9f0a13",
  "data_dir": "data/",
  "signers": [
    "alice@example.org ssh-ed25519 AAAAC3"
  ],
  "catalog_formats": [
    {
      "ducklake": "1.1"
    },
    {
      "ducklake": "1.0",
      "until": "2027-03-31"
    }
  ],
  "retention": {
    "z": 1,
    "a": [
      1.5,
      null
    ]
  }
}
"#;

    #[test]
    fn the_same_bytes_come_back() {
        let settings = Settings::parse(FULL.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(settings.print().unwrap()).unwrap(), FULL);
        assert_eq!(settings.catalog_formats.len(), 2);
    }

    #[test]
    fn a_new_repository() {
        let id = "5f0c8a52-6d3e-4f8e-9b1a-2c7d4e9f0a13".parse().unwrap();
        let printed = Settings::new(id, DataDir::default()).print().unwrap();
        assert_eq!(
            String::from_utf8(printed).unwrap(),
            "{\n  \"fdl\": \"0.1\",\n  \"id\": \"5f0c8a52-6d3e-4f8e-9b1a-2c7d4e9f0a13\",\n  \"data_dir\": \"data/\"\n}\n"
        );
    }

    #[test]
    fn what_may_be_missing_and_what_not() {
        let bare = Settings::parse(br#"{"fdl": "0.7", "id": null}"#).unwrap();
        assert_eq!((bare.id, bare.data_dir), (None, DataDir::default()));
        for bad in [
            "{}",
            r#"{"fdl": "0.1", "id": "x"}"#,
            r#"{"fdl": "0.1", "data_dir": "../"}"#,
            r#"{"fdl": "0.1", "data_dir": "data"}"#,
            r#"{"fdl": "0.1", "data_dir": 5}"#,
            r#"{"fdl": "0.1", "signers": "alice"}"#,
            r#"{"fdl": "0.1", "catalog_formats": [{"ducklake": "1.0", "until": "soon"}]}"#,
            r#"{"fdl": "0.1", "fdl": "0.1"}"#,
        ] {
            assert!(matches!(Settings::parse(bad.as_bytes()), Err(FormatError::BadJson { .. })), "{bad}");
        }
        let newer = Settings::parse(br#"{"fdl": "1.0", "data_dir": ["a", "b"]}"#);
        assert!(matches!(newer, Err(FormatError::UnsupportedVersion { .. })));
    }

    #[test]
    fn a_signer_is_one_line() {
        let mut settings = Settings::new(Uuid::nil(), DataDir::default());
        settings.signers = vec!["a\nb".to_owned()];
        assert!(matches!(settings.print(), Err(FormatError::BadValue { .. })));
    }

    #[test]
    fn newer_formats() {
        let in_order = ["0.3-dev1", "0.3", "0.10", "1.0", "1.1-dev1", "1.1"];
        assert!(in_order.is_sorted_by_key(|format| format_release(format)));
    }

    #[test]
    fn formats_as_people_write_them() {
        let format = CatalogFormat::from_user("1.0 until 2027-03-31").unwrap();
        assert_eq!(format.until, NaiveDate::from_ymd_opt(2027, 3, 31));
        let day = |text: &str| text.parse().unwrap();
        assert!(format.is_written_on(day("2027-03-31")) && !format.is_written_on(day("2027-04-01")));
        assert!(CatalogFormat::from_user("0.3").unwrap().is_written_on(day("9999-12-31")));
        assert_eq!(CatalogFormat::from_user("0.3").unwrap().ducklake, "0.3");
        for bad in ["", "../x", "1.0 until", "1.0 until soon"] {
            assert!(CatalogFormat::from_user(bad).is_err(), "{bad}");
        }
    }
}
