//! expired.json: the mark of a version past retention or withdrawn (docs/format.md section 7).

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::error::FormatError;
use super::json::{self, FDL_VERSION};
use super::layout;
use super::time::Timestamp;
use super::version_id::VersionId;

/// Why a version has no catalog any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// It is older than the host keeps versions.
    Retention,
    /// It held data that must not be published.
    Withdrawn,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retention => "retention",
            Self::Withdrawn => "withdrawn",
        })
    }
}

/// The mark. Its mere presence stops a reader, whatever it holds, so every field but the mark itself may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Expired {
    /// Why, when it says a reason that this program knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// A word from whoever did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Expired {
    /// Reads expired.json. There is no error: what cannot be read still marks the version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(json::without_mark(bytes)).unwrap_or_default();
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        Self {
            reason: match text("reason") {
                Some("retention") => Some(Reason::Retention),
                Some("withdrawn") => Some(Reason::Withdrawn),
                _ => None,
            },
            at: text("at").and_then(|at| at.parse().ok()),
            message: text("message").map(str::to_owned),
        }
    }

    /// Whether it can be read: a JSON object. What is none marks a version all the same.
    #[must_use]
    pub fn is_readable(bytes: &[u8]) -> bool {
        serde_json::from_slice::<serde_json::Map<String, Value>>(json::without_mark(bytes)).is_ok()
    }

    /// The version that expired.json says it is the mark of, when it says so.
    #[must_use]
    pub fn parse_id(bytes: &[u8]) -> Option<VersionId> {
        let value: Value = serde_json::from_slice(json::without_mark(bytes)).unwrap_or_default();
        value.get("id").and_then(Value::as_str)?.parse().ok()
    }

    /// The bytes of the mark of a version.
    ///
    /// # Errors
    /// [`FormatError::BadJson`], which no value of this type brings about.
    pub fn print(&self, id: VersionId) -> Result<Vec<u8>, FormatError> {
        #[derive(Serialize)]
        struct File<'a> {
            fdl: &'static str,
            id: VersionId,
            #[serde(flatten)]
            mark: &'a Expired,
        }
        let (fdl, mark) = (FDL_VERSION, self);
        json::print(layout::EXPIRED_JSON, &File { fdl, id, mark })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
  "fdl": "0.1",
  "id": "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10",
  "reason": "withdrawn",
  "at": "2026-11-29T22:14:03.123Z",
  "message": "held names"
}
"#;

    #[test]
    fn the_same_bytes_come_back() {
        let mark = Expired::parse(FULL.as_bytes());
        assert_eq!(mark.reason, Some(Reason::Withdrawn));
        let id = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap();
        assert_eq!(String::from_utf8(mark.print(id).unwrap()).unwrap(), FULL);
        assert_eq!(Expired::parse_id(FULL.as_bytes()), Some(id));
    }

    #[test]
    fn whatever_it_holds_it_is_a_mark() {
        let deep = "[".repeat(100_000);
        for odd in ["", "x", "null", "[1]", "{\"reason\": 5}", "{\"reason\": \"other\"}", "{\"fdl\": \"9.0\"}", &deep] {
            assert_eq!(Expired::parse(odd.as_bytes()), Expired::default(), "{}", odd.len());
            assert_eq!(Expired::parse_id(odd.as_bytes()), None);
        }
        let half = Expired::parse(br#"{"fdl": "9.0", "reason": "retention", "at": "soon"}"#);
        assert_eq!((half.reason, half.at), (Some(Reason::Retention), None));
    }
}
