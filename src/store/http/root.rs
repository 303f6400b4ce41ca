//! `http(s)://host/path`, and where its objects are.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::store::{StoreError, key};

/// What is not encoded in a part of a path: nothing that any server or proxy could read in another way.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The URL of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    /// Without `/` at its end.
    text: String,
    url: Url,
}

impl Root {
    pub(super) fn parse(location: &str) -> Result<Self, StoreError> {
        let bad = |location: &str, why| StoreError::BadLocation { location: location.to_owned(), why };
        let Ok(url) = Url::parse(location) else {
            // What cannot be read cannot be shown either: it may hold a password.
            return Err(bad(if location.contains('@') { "http://…" } else { location }, "it is no URL"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            let shown = format!("{}://…@{}", url.scheme(), url.host_str().unwrap_or_default());
            return Err(bad(&shown, "a user and a password cannot be part of it; use a token"));
        }
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(bad(location, "it does not begin with http:// or https:// and a host"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            // May be a signature.
            return Err(bad(location.split(['?', '#']).next().unwrap_or_default(), "it holds ? or #"));
        }
        let text = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { text, url })
    }

    /// As a person would write it, without `/` at its end.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The URL of an object: its key, each part percent-encoded.
    pub(super) fn object(&self, key: &str) -> Result<Url, StoreError> {
        key::check(key)?;
        let parts: Vec<_> = key.split('/').map(|part| utf8_percent_encode(part, PLAIN).to_string()).collect();
        let bad = |_| StoreError::BadKey { key: key.to_owned(), why: "it cannot be part of a URL" };
        Url::parse(&format!("{}/{}", self.text, parts.join("/"))).map_err(bad)
    }

    /// Where uploads are asked for.
    pub(super) fn batch(&self) -> Option<Url> {
        Url::parse(&format!("{}/?batch", self.text)).ok()
    }

    /// Whether a URL is on the same scheme, host and port, so that it may see the token.
    pub(super) fn is_same_origin(&self, other: &Url) -> bool {
        self.url.origin() == other.origin()
    }

    /// Whether a URL is reached over TLS, or need not be.
    pub(super) fn is_as_safe(&self, other: &Url) -> bool {
        other.scheme() == "https" || (other.scheme() == "http" && self.url.scheme() == "http")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_objects() {
        for (location, key, expected) in [
            ("https://example.org", "fdl.json", "https://example.org/fdl.json"),
            ("HTTPS://Example.org:443/a%20b//", "refs/heads/main", "https://example.org/a%20b/refs/heads/main"),
            (
                "http://h:8080/x",
                "data/it's 100%/%2e%2e/町?#.parquet",
                "http://h:8080/x/data/it%27s%20100%25/%252e%252e/%E7%94%BA%3F%23.parquet",
            ),
            ("http://h", "data/..a/...", "http://h/data/..a/..."),
        ] {
            assert_eq!(Root::parse(location).unwrap().object(key).unwrap().as_str(), expected);
        }
        assert_eq!(Root::parse("http://h/").unwrap().batch().unwrap().as_str(), "http://h/?batch");
        assert_eq!(Root::parse("http://h/x/").unwrap().batch().unwrap().as_str(), "http://h/x/?batch");
    }

    #[test]
    fn says_why_a_location_is_none_and_shows_no_secret() {
        for location in ["http://", "http://u:hush@h/x", "http://u:hush@h:port", "https://h/x?sig=hush", "https://h/#x"]
        {
            let error = Root::parse(location).unwrap_err();
            assert!(matches!(error, StoreError::BadLocation { .. }), "{error:?}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn knows_its_origin() {
        let root = Root::parse("https://h/x").unwrap();
        for (url, same, safe) in [
            ("https://h/other", true, true),
            ("https://h:443/", true, true),
            ("https://h:8443/", false, true),
            ("http://h/", false, false),
            ("https://sub.h/", false, true),
            ("ftp://h/", false, false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!((root.is_same_origin(&url), root.is_as_safe(&url)), (same, safe), "{url}");
        }
    }
}
