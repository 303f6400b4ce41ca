//! From a location to its store.

use std::sync::Arc;

use super::{FolderStore, S3Options, S3Store, Store, StoreError};

/// What this build says of stores it does not have.
const THIS_BUILD: &str = "this build of fdl";

/// What a store may need besides its location. Each kind takes what is meant for it.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// For `http://` and `https://`: what is sent as `Authorization: Bearer`.
    pub token: Option<String>,
    /// For `s3://`.
    pub s3: S3Options,
}

/// [`open_with`] nothing but what the machine knows.
///
/// # Errors
///
/// The same.
pub fn open(location: &str) -> Result<Arc<dyn Store>, StoreError> {
    open_with(location, &OpenOptions::default())
}

/// Opens the store of a location: a path (absolute, or relative to the process's current directory), a `file://` URL, or
/// an `s3://` URL.
///
/// Nothing is read or written but what finding a folder takes; whether there is a repository is the caller's question.
///
/// # Errors
///
/// [`StoreError::BadLocation`] for what is no location, [`StoreError::Unsupported`] for a kind of store that is not there,
/// and those of [`FolderStore::open`] and [`S3Store::open`].
pub fn open_with(location: &str, options: &OpenOptions) -> Result<Arc<dyn Store>, StoreError> {
    let unsupported = |action| Err(StoreError::Unsupported { store: THIS_BUILD, action });
    match scheme(location).as_deref() {
        None | Some("file") => Ok(Arc::new(FolderStore::open(location)?)),
        Some("s3") => Ok(Arc::new(S3Store::open(location, &options.s3)?)),
        Some("http" | "https") => unsupported("open http:// and https:// locations: they are not in this build yet"),
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
    fn says_what_is_not_there_yet() {
        for url in ["https://example.org/x", "HTTP://example.org", "gs://bucket/x"] {
            assert!(matches!(open(url), Err(StoreError::Unsupported { .. })), "{url}");
        }
        assert!(matches!(open(""), Err(StoreError::BadLocation { .. })));
    }
}
