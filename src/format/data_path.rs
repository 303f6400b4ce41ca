//! The data folder and the keys of data files (docs/format.md section 1). Nothing that is read or written leaves the folder.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::FormatError;

/// The longest key that every store takes, in bytes.
const KEY_LIMIT: usize = 1024;

/// The names at the root that the format uses itself, in lower case.
const OWN_NAMES: [&str; 7] = ["fdl.json", "head", "refs.json", "refs", "versions", "sources", "ducklake.duckdb"];

/// The folder of data files: relative to the root, ends in `/`, inside the root, apart from the format's own folders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataDir(String);

impl Default for DataDir {
    fn default() -> Self {
        Self("data/".to_owned())
    }
}

impl DataDir {
    /// The folder as fdl.json writes it, with `/` at the end.
    ///
    /// # Errors
    /// [`FormatError::BadPath`] names the rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let bad = |why| FormatError::path(text, why);
        let folder = text.strip_suffix('/').ok_or_else(|| bad("a data folder ends in '/'"))?;
        if let Some(why) = broken_key(folder) {
            return Err(bad(why));
        }
        if hides_a_separator(folder) {
            return Err(bad("it holds an encoded slash, backslash or dot"));
        }
        let first = folder.split('/').next().unwrap_or(folder).to_lowercase();
        if OWN_NAMES.contains(&first.as_str()) {
            return Err(bad("the format itself uses that name"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The folder as a person writes it: the `/` at the end may be left out.
    ///
    /// # Errors
    /// [`FormatError::BadPath`] names the rule that it breaks.
    pub fn from_user(text: &str) -> Result<Self, FormatError> {
        if text.ends_with('/') {
            return Self::parse(text);
        }
        Self::parse(&format!("{text}/"))
    }

    /// The folder with `/` at the end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks that a key is one of a file below the folder, without any detour.
    ///
    /// # Errors
    /// [`FormatError::BadPath`] names the rule that it breaks.
    pub fn check(&self, key: &str) -> Result<(), FormatError> {
        if let Some(why) = broken_key(key) {
            return Err(FormatError::path(key, why));
        }
        match key.strip_prefix(&self.0) {
            Some(_) => Ok(()),
            None => Err(FormatError::path(key, "it is not under the data folder")),
        }
    }

    /// The key of a path that is relative to the folder.
    ///
    /// # Errors
    /// [`FormatError::BadPath`] names the rule that the path breaks.
    pub fn key(&self, relative: &str) -> Result<String, FormatError> {
        if let Some(why) = broken_key(relative) {
            return Err(FormatError::path(relative, why));
        }
        let key = format!("{}{relative}", self.0);
        self.check(&key).map(|()| key)
    }
}

impl fmt::Display for DataDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DataDir {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::parse(text)
    }
}

impl Serialize for DataDir {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DataDir {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// What is wrong with a path that a partition value leads elsewhere: it can be mended in the data.
pub const PARTITION_VALUE: &str = "the value of a partition key, which is part of the path, leads to another folder";

/// The rule that a key breaks which must stay inside the root. Other languages, upper case, spaces and quotes are fine.
fn broken_key(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("it is empty");
    }
    if key.len() > KEY_LIMIT {
        return Some("it is longer than 1024 bytes");
    }
    if key.starts_with(['/', '~']) {
        return Some("it is an absolute path");
    }
    if key.contains('\\') {
        return Some("it holds a backslash");
    }
    if key.contains('?') {
        // DuckDB would read settings behind it, the address of another service among them.
        return Some("it holds a question mark, with which a query begins in a URL");
    }
    if key.chars().any(char::is_control) {
        return Some("it holds a control character");
    }
    if starts_with_scheme(key) {
        return Some("it begins with a drive letter or the scheme of a URL");
    }
    key.split('/')
        .find_map(|segment| match segment {
            "" => Some("a part between slashes is empty"),
            "." | ".." => Some("it holds '.' or '..'"),
            _ => None,
        })
        .or_else(|| {
            let value = |part: &str| part.split_once('=').is_some_and(|(_, value)| leaves_when_decoded(value));
            match leaves_when_decoded(key) {
                true if key.split('/').any(value) => Some(PARTITION_VALUE),
                true => Some("with its percent escapes read, it holds '.', '..' or a NUL byte"),
                false => None,
            }
        })
}

/// Whether the first part is a drive letter or a scheme: `c:`, `s3:`, `file:`.
fn starts_with_scheme(key: &str) -> bool {
    let first = key.split('/').next().unwrap_or(key);
    first.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}

/// Whether the key, read by a server that decodes percent escapes (any number of times), has a part that is `.` or `..`.
/// An encoded slash alone is DuckDB's own way to write a partition value that holds one: `k=a%2Fb`.
fn leaves_when_decoded(key: &str) -> bool {
    let mut bytes = key.as_bytes().to_vec();
    loop {
        let decoded = decode(&bytes);
        if decoded == bytes {
            break;
        }
        bytes = decoded;
    }
    bytes.contains(&0) || bytes.split(|byte| b"/\\".contains(byte)).any(|part| part == b"." || part == b"..")
}

/// Replaces each percent escape by its byte, once. Every replacement shortens, so that repeating it ends.
fn decode(bytes: &[u8]) -> Vec<u8> {
    let hex = |byte: Option<&u8>| {
        byte.and_then(|byte| char::from(*byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok())
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        match (first, hex(after.first()), hex(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(high * 16 + low);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    decoded
}

/// Whether a percent escape, itself escaped any number of times, stands for `/`, `\`, `.` or NUL.
fn hides_a_separator(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    lower.match_indices('%').any(|(at, _)| {
        let mut rest = lower.get(at + 1..).unwrap_or_default();
        while let Some(inner) = rest.strip_prefix("25") {
            rest = inner;
        }
        ["2f", "5c", "2e", "00"].iter().any(|code| rest.starts_with(code))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_folders() {
        for good in ["data/", "a/b/", "Data/", "データ/", "my data/", "versions2/", "data.v1/", "x/refs/"] {
            assert_eq!(DataDir::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(DataDir::from_user("data").unwrap(), DataDir::default());
        assert_eq!(DataDir::from_user("data/").unwrap(), DataDir::default());
        for bad in [
            "",
            "/",
            "data",
            "/data/",
            "./",
            "../",
            "data/../",
            "a/./b/",
            "a//",
            "//",
            "versions/",
            "versions/x/",
            "Versions/",
            "refs/",
            "sources/",
            "HEAD/",
            "fdl.json/",
            "refs.json/",
            "c:/",
            "s3://bucket/",
            "file:/x/",
            "https://x/",
            "a\\b/",
            "a%2fb/",
            "a/%2e%2e/",
            "a\n/",
            "~/x/",
        ] {
            assert!(DataDir::parse(bad).is_err(), "{bad:?}");
        }
        assert!(DataDir::from_user("").is_err());
        assert!(DataDir::from_user("..").is_err());
    }

    #[test]
    fn data_files() {
        let dir = DataDir::default();
        for good in [
            "data/main/t/ducklake-019a.parquet",
            "data/x.parquet",
            "data/スキーマ/表/ducklake-1.parquet",
            "data/Main/It's \"mine\"/a b.parquet",
            "data/main/t/year=2026/region=a%20b/x.parquet",
            "data/main/t/v=100%25/x.parquet",
            "data/a...b/..c/x.parquet",
            "data/a:b/x.parquet",
            // How DuckDB writes partition values that hold a slash or a backslash.
            "data/main/t/k=b%2Fc/x.parquet",
            "data/main/t/k=b%5Cc/x.parquet",
            "data/main/t/k=1%252F2/x.parquet",
        ] {
            assert_eq!(dir.check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "data",
            "data/",
            "data//x",
            "data/../fdl.json",
            "data/./x",
            "data/a/..",
            "/data/x",
            "Data/x",
            "datax/x",
            "other/x",
            "versions/x",
            "s3://bucket/data/x",
            "file:///data/x",
            "https://h/data/x",
            "C:/data/x",
            "C:\\data\\x",
            "data\\x",
            "data/a\\..\\b",
            "data/..%2ffdl.json",
            "data/%2e%2e/fdl.json",
            "data/%2E%2E%2Fx",
            "data/k=%2F..%2F..%2Ffdl.json",
            "data/%252e%252e/x",
            "data/a%00b",
            "data/a\0b",
            "data/a\nb",
            "data/a\u{85}b",
            &format!("data/{}", "a".repeat(1024)),
        ] {
            assert!(dir.check(bad).is_err(), "{bad:?}");
        }
        assert_eq!(dir.key("main/t/x.parquet").unwrap(), "data/main/t/x.parquet");
        for bad in ["", "../x", "/x", "s3://b/x", "c:/x"] {
            assert!(dir.key(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_partition_value_that_leads_elsewhere_is_named_as_the_cause() {
        let why = |key: &str| match DataDir::default().check(key) {
            Err(FormatError::BadPath { why, .. }) => why,
            other => unreachable!("{other:?}"),
        };
        for key in
            ["data/main/t/k=a%2F..%2Fb/x.parquet", "data/t/k=%2F%2E%2E/x", "data/t/k=a%2F.%2Fb/x", "data/t/k=a%00b/x"]
        {
            assert_eq!(why(key), PARTITION_VALUE, "{key}");
        }
        // A folder of this name is one like others.
        assert!(DataDir::default().check("data/t/k=%2E%2E/x").is_ok());
        for key in ["data/..%2Fk=1/x", "data/t/../x", "data/%2e%2e/k=1/x"] {
            assert_ne!(why(key), PARTITION_VALUE, "{key}");
        }
    }

    proptest! {
        #[test]
        fn an_accepted_key_stays_inside(key in "data/[a-zé%2fF5cCeE./\\\\: ]{0,16}") {
            if DataDir::default().check(&key).is_ok() {
                prop_assert!(std::path::Path::new(&key)
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}
