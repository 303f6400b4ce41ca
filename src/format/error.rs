//! What can be wrong with a file, a name or a path.

/// Why a text is not what the format asks for. A closed list; texts of others are quoted and cut at 80 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Not a name of a branch, a tag or a request (docs/format.md section 1).
    #[error("{name} is not a ref name: {why}")]
    BadName {
        /// The name, quoted.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A path that is not a data folder, or not a data file below it (docs/format.md section 1).
    #[error("{path} is not a path inside the repository's data: {why}")]
    BadPath {
        /// The path, quoted.
        path: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// Not a version ID (docs/format.md section 3).
    #[error("{text} is not a version ID: it must be a lower-case UUID with hyphens")]
    BadId {
        /// The text, quoted.
        text: String,
    },
    /// Not a revision (docs/format.md section 8).
    #[error("{text} is not a revision: {why}")]
    BadRevision {
        /// The text, quoted.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The content of HEAD or of a ref is not what it must be (docs/format.md section 1).
    #[error("{file} is damaged: {why}")]
    BadRef {
        /// The key of the file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A JSON file that cannot be read (docs/format.md sections 2 to 7).
    #[error("{file} is damaged: {why}")]
    BadJson {
        /// The key of the file.
        file: String,
        /// What is wrong with it, with line and column where known.
        why: String,
    },
    /// A single value that the format does not allow: a time, a hash, a signer, the name of a catalog format.
    #[error("{value} is not {what}: {why}")]
    BadValue {
        /// What it should be, with its article: `a time`.
        what: &'static str,
        /// The value, quoted.
        value: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A file that would be longer than anybody reads (docs/format.md section 1).
    #[error("{file} would have {size} bytes, and no more than {limit} are read of it")]
    TooLarge {
        /// The name of the file.
        file: String,
        /// How many bytes it would have.
        size: u64,
        /// How many it may have.
        limit: u64,
    },
    /// A file of a major version of the format that this reader does not know (docs/format.md section 2).
    #[error("{file} is written in version {found} of the format; this program reads version 0")]
    UnsupportedVersion {
        /// The key of the file.
        file: String,
        /// The version found, quoted.
        found: String,
    },
}

impl FormatError {
    pub(super) fn name(name: &str, why: &'static str) -> Self {
        let name = quoted(name);
        Self::BadName { name, why }
    }

    pub(super) fn path(path: &str, why: &'static str) -> Self {
        let path = quoted(path);
        Self::BadPath { path, why }
    }

    pub(super) fn revision(text: &str, why: &'static str) -> Self {
        let text = quoted(text);
        Self::BadRevision { text, why }
    }

    pub(super) fn value(what: &'static str, value: &str, why: &'static str) -> Self {
        let value = quoted(value);
        Self::BadValue { what, value, why }
    }

    pub(super) fn reference(file: &str, why: impl Into<String>) -> Self {
        let (file, why) = (file.to_owned(), why.into());
        Self::BadRef { file, why }
    }

    pub(super) fn json(file: &str, why: impl Into<String>) -> Self {
        let (file, why) = (file.to_owned(), why.into());
        Self::BadJson { file, why }
    }
}

/// A text of others as part of a message: in quotes, control characters escaped, at most 80 characters.
pub(super) fn quoted(text: &str) -> String {
    const LIMIT: usize = 80;
    if text.chars().nth(LIMIT).is_none() {
        return format!("{text:?}");
    }
    let cut: String = text.chars().take(LIMIT).collect();
    format!("{cut:?}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_text_stays_one_short_line() {
        let message = FormatError::name(&"a\n".repeat(10_000), "it is too long").to_string();
        assert!(message.chars().count() < 200, "{message}");
        assert!(!message.contains('\n'));
    }
}
