//! From a location to its store.

use std::fmt;
use std::sync::Arc;

use super::{FolderStore, HttpStore, S3Options, S3Store, Store, StoreError};

/// What this build says of stores it does not have.
const THIS_BUILD: &str = "this build of fdl";

/// What a store may need besides its location. Each kind takes what is meant for it.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// The token for `http://` and `https://`. None: the one in `FDL_TOKEN`. Empty: anonymous on purpose.
    pub token: Option<String>,
    /// For `s3://`.
    pub s3: S3Options,
}

impl fmt::Debug for OpenOptions {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("s3", &self.s3).finish_non_exhaustive()
    }
}

/// [`open_with`] nothing but what the machine knows.
///
/// # Errors
///
/// The same.
pub fn open(location: &str) -> Result<Arc<dyn Store>, StoreError> {
    open_with(location, &OpenOptions::default())
}

/// Opens the store of a location: a path (absolute, or relative to the process's current directory), a `file://` URL, an
/// `s3://` URL, or an `http://` or `https://` URL.
///
/// Nothing is read or written but what finding a folder takes; whether there is a repository is the caller's question.
///
/// # Errors
///
/// [`StoreError::BadLocation`] for what is no location, [`StoreError::Unsupported`] for a kind of store that is not there,
/// and those of [`FolderStore::open`], [`S3Store::open`] and [`HttpStore::open`].
pub fn open_with(location: &str, options: &OpenOptions) -> Result<Arc<dyn Store>, StoreError> {
    let unsupported = |action| Err(StoreError::Unsupported { store: THIS_BUILD, action });
    match scheme(location).as_deref() {
        None | Some("file") => Ok(Arc::new(FolderStore::open(location)?)),
        Some("s3") => Ok(Arc::new(S3Store::open(location, &options.s3)?)),
        Some("http" | "https") => Ok(Arc::new(HttpStore::open(location, options.token.as_deref())?)),
        Some(_) => unsupported("open a location of this kind: it knows folders, file://, s3://, http:// and https://"),
    }
}

/// The scheme of a URL, in lower case. Anything else is a path, `C:\data` and `a:b` included.
fn scheme(location: &str) -> Option<String> {
    let (scheme, _) = location.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then(|| scheme.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_urls_from_paths() {
        assert_eq!(scheme("S3://bucket/x").as_deref(), Some("s3"));
        assert_eq!(scheme("file:///x").as_deref(), Some("file"));
        for path in ["", "x", "/x", "./s3:/x", "a b://c", "/a://b", "C:\\x", "1a://x"] {
            assert_eq!(scheme(path), None, "{path}");
        }
    }

    #[test]
    fn says_what_it_does_not_know() {
        for url in ["gs://bucket/x", "ftp://example.org"] {
            assert!(matches!(open(url), Err(StoreError::Unsupported { .. })), "{url}");
        }
        for location in ["", "s3://", "https://user:hush@example.org", "http://"] {
            let error = open(location).unwrap_err();
            assert!(matches!(error, StoreError::BadLocation { .. }), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("hush"));
        }
    }

    #[test]
    fn shows_no_token() {
        let options = OpenOptions { token: Some("hush".to_owned()), ..OpenOptions::default() };
        assert!(!format!("{options:?}").contains("hush"));
    }
}
