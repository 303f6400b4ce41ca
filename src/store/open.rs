//! From a location to its store.

use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::{FolderStore, HttpStore, Retry, S3Options, S3Store, Store, StoreError};

/// What this build says of stores it does not have.
const THIS_BUILD: &str = "this build of fdl";

/// What a store may need besides its location. Each kind takes what is meant for it.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// The token for `http://` and `https://`. None: the one in `FDL_TOKEN`. Empty: anonymous on purpose.
    pub token: Option<String>,
    /// Headers of the caller's own for `http://` and `https://`; they go where the token goes.
    pub headers: Vec<(String, String)>,
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
    if let Some(why) = almost(location) {
        return Err(StoreError::BadLocation { location: location.to_owned(), why });
    }
    let unsupported = |action| Err(StoreError::Unsupported { store: THIS_BUILD, action });
    match scheme(location).as_deref() {
        None | Some("file") => Ok(Arc::new(FolderStore::open(location)?)),
        Some("s3") => Ok(Arc::new(S3Store::open(location, &options.s3)?)),
        Some("http" | "https") => Ok(Arc::new(open_http(location, options)?)),
        Some(_) => unsupported("open a location of this kind: it knows folders, file://, s3://, http:// and https://"),
    }
}

/// Why a location is none, although it looks like one of a store that is there.
fn almost(location: &str) -> Option<&'static str> {
    let (scheme, rest) = location.split_once(':')?;
    let (scheme, url) = (scheme.to_ascii_lowercase(), rest.starts_with("//"));
    match (scheme.as_str(), url) {
        ("s3" | "s3a" | "s3n", false) if rest.starts_with('/') => {
            Some("a bucket's address begins with s3:// (two slashes)")
        }
        ("http" | "https", false) if rest.starts_with('/') => Some("a URL has two slashes after http: or https:"),
        ("s3a" | "s3n", true) => Some("write s3:// instead: it is the same bucket"),
        ("r2", true) => Some(
            "write s3:// with the endpoint of R2, https://ACCOUNT.r2.cloudflarestorage.com, in AWS_ENDPOINT_URL or in a \
             DuckDB secret of type s3",
        ),
        ("gs" | "gcs", true) => Some(
            "write s3:// with the endpoint https://storage.googleapis.com and HMAC keys, in the environment or in a DuckDB \
             secret of type s3; the service must write on condition as S3 does",
        ),
        _ => None,
    }
}

fn open_http(location: &str, options: &OpenOptions) -> Result<HttpStore, StoreError> {
    HttpStore::open_with_headers(location, options.token.as_deref(), &options.headers, Retry::default())
}

/// Takes the user and the password out of an `http://` or `https://` URL. Gives the URL without them, and the header that
/// says them, which serves as a token.
#[must_use]
pub fn split_credentials(location: &str) -> Option<(String, String)> {
    let (scheme, rest) = location.split_once("://")?;
    if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
        return None;
    }
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (credentials, host) = host.rsplit_once('@')?;
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut plain = percent_decode_str(user).collect::<Vec<u8>>();
    plain.push(b':');
    plain.extend(percent_decode_str(password));
    Some((format!("{scheme}://{host}{path}"), format!("Basic {}", base64(&plain))))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..4 {
            let digit = DIGITS.get(((bits >> (18 - 6 * at)) & 63) as usize).copied().unwrap_or_default();
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
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
    fn takes_a_user_and_a_password_out_of_a_url() {
        for (location, plain, header) in [
            ("https://user:pa%3Ass@example.org:8443/a@b", "https://example.org:8443/a@b", "Basic dXNlcjpwYTpzcw=="),
            ("http://u@h", "http://h", "Basic dTo="),
            ("http://us:pw@h/", "http://h/", "Basic dXM6cHc="),
        ] {
            assert_eq!(split_credentials(location), Some((plain.to_owned(), header.to_owned())));
        }
        for location in ["https://example.org/a@b", "s3://key:secret@bucket", "a@b", "http://h/?x=y@z"] {
            assert_eq!(split_credentials(location), None, "{location}");
        }
    }

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
        assert!(matches!(open("ftp://example.org"), Err(StoreError::Unsupported { .. })));
        for (location, word) in [
            ("s3:/bucket/x", "two slashes"),
            ("S3:/bucket", "two slashes"),
            ("https:/example.org", "two slashes"),
            ("s3a://bucket/x", "write s3://"),
            ("s3n://bucket", "write s3://"),
            ("r2://bucket/x", "r2.cloudflarestorage.com"),
            ("gs://bucket/x", "storage.googleapis.com"),
            ("gcs://bucket/x", "storage.googleapis.com"),
        ] {
            let error = open(location).unwrap_err();
            assert!(matches!(error, StoreError::BadLocation { .. }) && error.to_string().contains(word), "{error}");
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
