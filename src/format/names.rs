//! The names of refs (docs/format.md section 1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::FormatError;

const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
const REQUESTS: &str = "refs/requests/";

/// The longest name of a branch or tag, in bytes.
const NAME_LIMIT: usize = 200;

/// What a ref is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefKind {
    /// `refs/heads/…`: moves forward.
    Branch,
    /// `refs/tags/…`: never moves.
    Tag,
    /// `refs/requests/<number>`: for a host's own use.
    Request,
}

impl RefKind {
    /// The folder of such refs, with `/` at the end.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Branch => HEADS,
            Self::Tag => TAGS,
            Self::Request => REQUESTS,
        }
    }
}

impl fmt::Display for RefKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Branch => "branch",
            Self::Tag => "tag",
            Self::Request => "request",
        })
    }
}

/// The full name of a ref, such as `refs/heads/main`. It is also the key of its file. Sorts by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName {
    full: String,
    kind: RefKind,
}

impl RefName {
    /// The branch of this short name.
    ///
    /// # Errors
    /// [`FormatError::BadName`] names the rule that the name breaks.
    pub fn branch(short: &str) -> Result<Self, FormatError> {
        Self::new(RefKind::Branch, short)
    }

    /// The tag of this short name.
    ///
    /// # Errors
    /// [`FormatError::BadName`] names the rule that the name breaks.
    pub fn tag(short: &str) -> Result<Self, FormatError> {
        Self::new(RefKind::Tag, short)
    }

    /// A ref by its kind and short name.
    ///
    /// # Errors
    /// [`FormatError::BadName`] names the rule that the name breaks.
    pub fn new(kind: RefKind, short: &str) -> Result<Self, FormatError> {
        let broken = match kind {
            RefKind::Request => broken_number(short),
            RefKind::Branch | RefKind::Tag => broken_name(short),
        };
        match broken {
            Some(why) => Err(FormatError::name(short, why)),
            None => Ok(Self { full: format!("{}{short}", kind.folder()), kind }),
        }
    }

    /// A ref by its full name.
    ///
    /// # Errors
    /// [`FormatError::BadName`] names the rule that the name breaks.
    pub fn parse(full: &str) -> Result<Self, FormatError> {
        for kind in [RefKind::Branch, RefKind::Tag, RefKind::Request] {
            if let Some(short) = full.strip_prefix(kind.folder()) {
                return Self::new(kind, short);
            }
        }
        Err(FormatError::name(full, "a full name begins with refs/heads/, refs/tags/ or refs/requests/"))
    }

    /// What the ref is for.
    #[must_use]
    pub fn kind(&self) -> RefKind {
        self.kind
    }

    /// The name without its folder: `main`.
    #[must_use]
    pub fn short(&self) -> &str {
        self.full.strip_prefix(self.kind.folder()).unwrap_or(&self.full)
    }

    /// The full name: `refs/heads/main`.
    #[must_use]
    pub fn full(&self) -> &str {
        &self.full
    }

    /// The key of the ref's file.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.full
    }

    /// Whether one of the two is the folder of the other (`a` and `a/b`), so that they cannot both exist.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let below = |name: &str, folder: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        below(&self.full, &other.full) || below(&other.full, &self.full)
    }

    /// The refs that this name makes a folder of: `refs/heads/a` and `refs/heads/a/b` for `refs/heads/a/b/c`.
    pub fn folders(&self) -> impl Iterator<Item = Self> + '_ {
        let short = self.short();
        short.match_indices('/').filter_map(|(at, _)| {
            let full = format!("{}{}", self.kind.folder(), short.get(..at)?);
            let kind = self.kind;
            Some(Self { full, kind })
        })
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl FromStr for RefName {
    type Err = FormatError;

    fn from_str(full: &str) -> Result<Self, FormatError> {
        Self::parse(full)
    }
}

impl Serialize for RefName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.full)
    }
}

impl<'de> Deserialize<'de> for RefName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The rule that a short name of a branch or tag breaks.
fn broken_name(name: &str) -> Option<&'static str> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b);
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > NAME_LIMIT {
        return Some("it is longer than 200 bytes");
    }
    if !name.bytes().all(allowed) {
        return Some("only a-z, 0-9, '.', '_', '-' and '/' are allowed");
    }
    name.split('/').find_map(broken_part)
}

/// The rule that a part between two slashes breaks.
fn broken_part(part: &str) -> Option<&'static str> {
    let starts_well = part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if part.is_empty() {
        Some("a part between slashes is empty")
    } else if !starts_well {
        Some("every part begins with a letter or a digit")
    } else if part.contains("..") {
        Some("it holds '..'")
    } else if part.ends_with('.') || part.ends_with(".lock") {
        Some("no part ends in '.' or '.lock'")
    } else {
        None
    }
}

/// The rule that the number of a request breaks.
fn broken_number(number: &str) -> Option<&'static str> {
    let good = (1..=20).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    (!good).then_some("a request is named by a number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_names() {
        let long = "a".repeat(200);
        for name in ["main", "a", "0", "a/b", "v1.0", "feature/x_1-2", "a.b/c.lockx", &long] {
            let branch = RefName::branch(name).unwrap();
            assert_eq!(branch.short(), name);
            assert_eq!(branch.full(), format!("refs/heads/{name}"));
            assert_eq!(branch.kind(), RefKind::Branch);
            assert_eq!(RefName::parse(branch.full()).unwrap(), branch);
            assert_eq!(RefName::tag(name).unwrap().key(), format!("refs/tags/{name}"));
        }
        let request = RefName::parse("refs/requests/17").unwrap();
        assert_eq!((request.kind(), request.short()), (RefKind::Request, "17"));
    }

    #[test]
    fn bad_names() {
        let long = "a".repeat(201);
        for name in [
            "", "/", "a/", "/a", "a//b", ".", "..", "a/..", "../a", "a..b", ".a", "a/.b", "a.", "a./b", "a.lock",
            "a.lock/b", "-a", "_a", "a/-b", "Main", "a b", "a\\b", "a:b", "a~1", "a^", "a?", "a*", "a\n", "a\0", "é",
            "日本", "a%2fb", &long,
        ] {
            assert!(RefName::branch(name).is_err(), "{name:?}");
            assert!(RefName::tag(name).is_err(), "{name:?}");
        }
        for full in [
            "main",
            "refs/heads/",
            "refs/heads",
            "refs/notes/x",
            "refs/requests/x",
            "refs/requests/",
            "refs/requests/1/2",
            "/refs/heads/a",
            "refs/heads/../x",
        ] {
            assert!(RefName::parse(full).is_err(), "{full:?}");
        }
    }

    #[test]
    fn a_name_conflicts_with_its_folder() {
        let branch = |name| RefName::branch(name).unwrap();
        assert!(branch("a").conflicts_with(&branch("a/b")));
        assert!(branch("a/b/c").conflicts_with(&branch("a")));
        assert!(!branch("a").conflicts_with(&branch("a")));
        assert!(!branch("a").conflicts_with(&branch("ab")));
        assert!(!branch("a").conflicts_with(&branch("b/a")));
        assert!(!branch("a").conflicts_with(&RefName::tag("a/b").unwrap()));
        let folders: Vec<String> = branch("a/b/c").folders().map(|f| f.to_string()).collect();
        assert_eq!(folders, ["refs/heads/a", "refs/heads/a/b"]);
    }

    proptest! {
        #[test]
        fn a_name_that_is_accepted_is_a_safe_key(name in "[a-z0-9._/A-Z-]{1,12}") {
            if let Ok(branch) = RefName::branch(&name) {
                prop_assert_eq!(RefName::parse(branch.full()).unwrap(), branch.clone());
                prop_assert!(branch.full().split('/').all(|p| !p.is_empty() && !p.starts_with('.')));
            }
        }
    }
}
