//! refs.json: every ref and the version it holds (docs/format.md section 6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::FormatError;
use super::json;
use super::layout;
use super::names::{RefKind, RefName};
use super::version_id::VersionId;

/// The content of refs.json, sorted by name. It may lag behind the refs themselves. A rewrite keeps unknown fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RefsJson {
    /// The default branch.
    pub head: RefName,
    /// Every ref and the version it holds.
    pub refs: BTreeMap<RefName, VersionId>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl RefsJson {
    /// Reads refs.json. Refs of a kind or name that this program does not know are left out.
    ///
    /// # Errors
    /// [`FormatError::BadJson`] for damage.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        #[derive(Deserialize)]
        struct Raw {
            head: RefName,
            refs: BTreeMap<String, Value>,
            #[serde(flatten)]
            other: Map<String, Value>,
        }
        let raw: Raw = json::parse(layout::REFS_JSON, bytes)?;
        if raw.head.kind() != RefKind::Branch {
            return Err(FormatError::json(layout::REFS_JSON, "its head is not a branch"));
        }
        let known = raw.refs.into_iter().filter_map(|(name, id)| Some((RefName::parse(&name).ok()?, id)));
        let refs = known
            .map(|(name, id)| Ok((name, serde_json::from_value(id)?)))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|error| FormatError::json(layout::REFS_JSON, error.to_string()))?;
        Ok(Self { head: raw.head, refs, other: raw.other })
    }

    /// The bytes of refs.json.
    ///
    /// # Errors
    /// [`FormatError::BadJson`], which no value of this type brings about.
    pub fn print(&self) -> Result<Vec<u8>, FormatError> {
        json::print(layout::REFS_JSON, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
  "head": "refs/heads/main",
  "refs": {
    "refs/heads/main": "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10",
    "refs/tags/v1": "019a3c4d-0000-7000-8000-000000000000"
  },
  "host": {
    "z": 1,
    "a": 2
  }
}
"#;

    #[test]
    fn the_same_bytes_come_back() {
        let refs = RefsJson::parse(FULL.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(refs.print().unwrap()).unwrap(), FULL);
    }

    #[test]
    fn names_are_sorted_and_unknown_ones_left_out() {
        let text = r#"{"refs": {"refs/tags/v1": "019a3c4d-0000-7000-8000-000000000000", "refs/notes/x": 5,
            "refs/heads/a": "019a3c4d-0000-7000-8000-000000000000"}, "head": "refs/heads/a"}"#;
        let refs = RefsJson::parse(text.as_bytes()).unwrap();
        let names: Vec<&str> = refs.refs.keys().map(RefName::full).collect();
        assert_eq!(names, ["refs/heads/a", "refs/tags/v1"]);
    }

    #[test]
    fn damage_is_an_error() {
        for bad in [
            "",
            "{}",
            r#"{"head": "refs/heads/main"}"#,
            r#"{"head": "main", "refs": {}}"#,
            r#"{"head": "refs/tags/v1", "refs": {}}"#,
            r#"{"head": "refs/heads/main", "refs": {"refs/heads/main": "x"}}"#,
            r#"{"head": "refs/heads/main", "refs": []}"#,
        ] {
            assert!(matches!(RefsJson::parse(bad.as_bytes()), Err(FormatError::BadJson { .. })), "{bad}");
        }
    }
}
