//! Revisions: what a user writes to name a version (docs/format.md section 8).

use std::fmt;
use std::str::FromStr;

use super::error::FormatError;
use super::names::RefName;
use super::version_id::VersionId;

/// What a user writes to name a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Where to start.
    pub base: Base,
    /// How many generations to go back from there.
    pub back: u32,
}

/// Where a revision starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// The default branch.
    Head,
    /// A ref by its full name.
    Ref(RefName),
    /// A branch or a tag by its short name; if there is neither, the version whose ID begins so.
    Name {
        /// The branch of that name.
        branch: RefName,
        /// The tag of that name.
        tag: RefName,
        /// The beginning of an ID, if the name can be one.
        prefix: Option<IdPrefix>,
    },
    /// A version by its whole ID.
    Id(VersionId),
}

/// The beginning of a version ID, 8 characters or more, with the hyphens where an ID has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPrefix(String);

impl IdPrefix {
    /// The shortest prefix that is taken, in characters.
    pub const SHORTEST: usize = 8;

    /// Reads a prefix. Nothing when no ID can begin so or it is too short.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |(at, b): (usize, u8)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        };
        let good = (Self::SHORTEST..36).contains(&text.len()) && text.bytes().enumerate().all(fits);
        good.then(|| Self(text.to_owned()))
    }

    /// Whether an ID begins so.
    #[must_use]
    pub fn matches(&self, id: VersionId) -> bool {
        id.to_string().starts_with(&self.0)
    }
}

impl fmt::Display for IdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Revision {
    /// The default branch.
    pub const HEAD: Self = Self { base: Base::Head, back: 0 };

    /// The version that a ref holds.
    #[must_use]
    pub fn of_ref(name: RefName) -> Self {
        Self { base: Base::Ref(name), back: 0 }
    }

    /// The version of an ID.
    #[must_use]
    pub fn of_id(id: VersionId) -> Self {
        Self { base: Base::Id(id), back: 0 }
    }
}

impl FromStr for Revision {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        // Nothing but white space is nothing; white space beside a name is part of a name that there is not.
        let given = if text.trim().is_empty() { "" } else { text };
        let (base, back) = match given.split_once('~') {
            None => (given, 0),
            Some((base, back)) => (base, generations(text, back)?),
        };
        let base = parse_base(text, base)?;
        Ok(Self { base, back })
    }
}

/// The number after `~`.
fn generations(text: &str, back: &str) -> Result<u32, FormatError> {
    let bad = || FormatError::revision(text, "'~' is followed by a number of generations");
    // `parse` alone would take a sign.
    if !back.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    back.parse().map_err(|_| bad())
}

/// What stands before `~`; `text` is the whole revision, for the message.
fn parse_base(text: &str, base: &str) -> Result<Base, FormatError> {
    if base.is_empty() || base == "HEAD" {
        return Ok(Base::Head);
    }
    if base.starts_with("refs/") {
        return RefName::parse(base).map(Base::Ref);
    }
    if let Ok(id) = base.parse() {
        return Ok(Base::Id(id));
    }
    match (RefName::branch(base), RefName::tag(base)) {
        (Ok(branch), Ok(tag)) => Ok(Base::Name { branch, tag, prefix: IdPrefix::parse(base) }),
        _ => Err(FormatError::revision(text, "it is neither a branch, a tag, a full ref name nor a version ID")),
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            Base::Head => f.write_str("HEAD")?,
            Base::Ref(name) => name.fmt(f)?,
            Base::Id(id) => id.fmt(f)?,
            Base::Name { branch, .. } => f.write_str(branch.short())?,
        }
        match self.back {
            0 => Ok(()),
            back => write!(f, "~{back}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";

    fn parse(text: &str) -> Revision {
        text.parse().unwrap()
    }

    #[test]
    fn good_revisions() {
        for head in ["", "HEAD", " "] {
            assert_eq!(parse(head), Revision::HEAD);
        }
        assert_eq!(parse("~3"), Revision { base: Base::Head, back: 3 });
        assert_eq!(parse("HEAD~0"), Revision::HEAD);
        assert_eq!(parse(ID), Revision::of_id(ID.parse().unwrap()));
        assert_eq!(parse(&format!("{ID}~2")).back, 2);
        let v1 = RefName::tag("v1").unwrap();
        assert_eq!(parse("refs/tags/v1"), Revision::of_ref(v1.clone()));
        let prefix_of = |text| match parse(text).base {
            Base::Name { prefix, tag, .. } => (prefix.is_some(), tag.full().to_owned()),
            other => panic!("{other:?} is no name"),
        };
        assert_eq!(prefix_of("v1~1"), (false, v1.to_string()));
        assert!(prefix_of("019a3c4e").0);
        assert!(prefix_of("019a3c4e-7c").0);
    }

    #[test]
    fn bad_revisions() {
        for bad in [
            "main~",
            "main~x",
            "main~-1",
            "main~+1",
            "main~1~1",
            "main~4294967296",
            "Main",
            "a b",
            "main\n",
            " main",
            "HEAD ",
            "refs/heads/",
            "refs/x",
            "../x",
            "~",
            "main^",
            &ID.to_uppercase(),
        ] {
            assert!(bad.parse::<Revision>().is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixes() {
        let id: VersionId = ID.parse().unwrap();
        for good in ["019a3c4e", "019a3c4e-", "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e1"] {
            assert!(IdPrefix::parse(good).unwrap().matches(id), "{good}");
        }
        assert!(!IdPrefix::parse("019a3c4f").unwrap().matches(id));
        for bad in ["019a3c4", "019a3c4e7", "019A3C4E", "019a3c4g", ID] {
            assert!(IdPrefix::parse(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(text in "(HEAD|main|refs/tags/v1|019a3c4e-7c|a/b)(~[0-9]{1,4})?") {
            let revision = parse(&text);
            prop_assert_eq!(parse(&revision.to_string()), revision);
        }
    }
}
