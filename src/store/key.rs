//! What a key may be. Every store calls this before anything else, so that none is ever led outside its root.

use super::StoreError;

/// How the names of a folder store's own files begin (its lock, half-written files). No part of a key may.
pub const RESERVED_PREFIX: &str = ".fdl-";

/// Checks the key of one object.
///
/// A key is relative and `/`-separated; no part of it is empty, `.` or `..` or begins with [`RESERVED_PREFIX`], and it
/// holds no backslash and no control character. Anything else is fine: schemas and tables give their names to data
/// paths, so upper case, other languages, spaces, quotes, `%` and `=` all occur (format.md section 1).
///
/// # Errors
///
/// [`StoreError::BadKey`] with what is wrong.
pub fn check(key: &str) -> Result<(), StoreError> {
    match fault_of(key) {
        None => Ok(()),
        Some(why) => Err(StoreError::BadKey { key: key.to_owned(), why }),
    }
}

/// Checks the prefix of a listing: empty, or a key that is followed by `/`.
///
/// # Errors
///
/// [`StoreError::BadKey`] with what is wrong.
pub fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    let why = match prefix.strip_suffix('/') {
        _ if prefix.is_empty() => None,
        Some(folder) => fault_of(folder),
        None => Some("a prefix ends in /"),
    };
    match why {
        None => Ok(()),
        Some(why) => Err(StoreError::BadKey { key: prefix.to_owned(), why }),
    }
}

fn fault_of(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("it is empty");
    }
    if key.contains('\\') {
        return Some("it holds a backslash");
    }
    if key.contains(char::is_control) {
        return Some("it holds a control character");
    }
    key.split('/').find_map(|part| match part {
        "" => Some("it holds an empty part"),
        "." | ".." => Some("a part of it is . or .."),
        _ if part.starts_with(RESERVED_PREFIX) => Some("names that begin with .fdl- are kept for fdl itself"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{check, check_prefix};

    #[test]
    fn takes_whatever_schemas_and_tables_are_called() {
        for key in [
            "fdl.json",
            "refs/heads/main",
            "data/Main/Städte & Dörfer/ducklake-1.parquet",
            "data/main/町/年=2026/x.parquet",
            "data/it's \"quoted\"/100%/%2F/a+b?c#d.parquet",
            "data/..a/b../...",
            ".hidden",
        ] {
            assert!(check(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn refuses_what_leads_elsewhere_or_cannot_be_written_everywhere() {
        for key in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            "./a",
            "a/.",
            "..",
            "a/../b",
            "a\\b",
            "a\0b",
            "a\nb",
            "a\u{85}b",
            ".fdl-lock",
            "data/.fdl-x/y",
        ] {
            assert!(check(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn a_prefix_is_empty_or_a_folder() {
        for prefix in ["", "refs/", "data/main/"] {
            assert!(check_prefix(prefix).is_ok(), "{prefix}");
        }
        for prefix in ["/", "refs", "../", "a//", "refs/../"] {
            assert!(check_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
