//! `s3://bucket/prefix`.

use crate::store::{StoreError, key};

/// A bucket and the part of it that is a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) bucket: String,
    /// Empty, or folders that end in `/`.
    pub(super) prefix: String,
}

impl Location {
    /// Takes a location apart. It is no URL: nothing in it is decoded, as DuckDB decodes nothing.
    pub(super) fn parse(location: &str) -> Result<Self, StoreError> {
        let bad = |why| StoreError::BadLocation { location: location.to_owned(), why };
        let rest = match location.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("s3") => rest,
            _ => return Err(bad("it does not begin with s3://")),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if !bucket.chars().all(is_part)
            || !(3..=255).contains(&bucket.len())
            || !bucket.starts_with(char::is_alphanumeric)
        {
            return Err(bad("after s3:// comes the name of a bucket"));
        }
        let prefix = prefix.trim_end_matches('/');
        // DuckDB takes what follows a ? for options.
        if prefix.contains(['?', '#']) {
            return Err(bad("it holds ? or #"));
        }
        if prefix.is_empty() {
            return Ok(Self { bucket: bucket.to_owned(), prefix: String::new() });
        }
        match key::check(prefix) {
            Ok(()) => Ok(Self { bucket: bucket.to_owned(), prefix: format!("{prefix}/") }),
            Err(StoreError::BadKey { why, .. }) => Err(bad(why)),
            Err(error) => Err(error),
        }
    }

    /// The location as a person would write it, without `/` at its end.
    pub(super) fn print(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix).trim_end_matches('/').to_owned()
    }

    /// Whether the bucket can be the first part of a host that has a certificate.
    pub(super) fn is_host(&self) -> bool {
        self.bucket.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') && self.bucket.len() <= 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_locations_apart() {
        for (location, bucket, prefix, printed) in [
            ("s3://lake", "lake", "", "s3://lake"),
            ("S3://lake/", "lake", "", "s3://lake"),
            ("s3://lake/a/b//", "lake", "a/b/", "s3://lake/a/b"),
            ("s3://my.Lake_1/日本 %20", "my.Lake_1", "日本 %20/", "s3://my.Lake_1/日本 %20"),
        ] {
            let parsed = Location::parse(location).unwrap();
            assert_eq!(
                (parsed.bucket.as_str(), parsed.prefix.as_str(), parsed.print().as_str()),
                (bucket, prefix, printed)
            );
        }
        assert!(Location::parse("s3://lake").unwrap().is_host());
        assert!(!Location::parse("s3://my.lake").unwrap().is_host());
    }

    #[test]
    fn says_why_a_location_is_none() {
        for location in [
            "s3://",
            "s3:///a",
            "s3://ab",
            "s3://user:pw@lake",
            "s3://lake/a//b",
            "s3://lake/../b",
            "s3://lake/a?b",
            "x",
        ] {
            assert!(matches!(Location::parse(location), Err(StoreError::BadLocation { .. })), "{location}");
        }
    }
}
