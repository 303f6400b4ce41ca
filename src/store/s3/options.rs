//! What may be said about a bucket besides its name, and what was found out about it.

use std::fmt;

/// How to reach a bucket, as a DuckDB secret says it. Whatever is left out is looked for in the environment, in the shared
/// files of AWS, and in the services of a container or an instance (format.md section 13).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    /// The access key. Empty: anonymous on purpose.
    pub access_key_id: Option<String>,
    /// The secret that belongs to the access key.
    pub secret_access_key: Option<String>,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
    /// The region of the bucket. When nothing says it and there is no endpoint, AWS is asked.
    pub region: Option<String>,
    /// Where the service is: a URL, or a host with or without a port. `s3.amazonaws.com` says AWS itself.
    pub endpoint: Option<String>,
    /// Whether the bucket is named in the path and not in the host. Without an answer: in the path at an endpoint, in the
    /// host at AWS.
    pub path_style: Option<bool>,
    /// Whether an endpoint without a scheme is reached over TLS. Without an answer: yes.
    pub use_ssl: Option<bool>,
}

impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Options")
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &self.secret_access_key.as_ref().map(|_| Hidden))
            .field("session_token", &self.session_token.as_ref().map(|_| Hidden))
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("path_style", &self.path_style)
            .field("use_ssl", &self.use_ssl)
            .finish()
    }
}

/// What an opened store found, for whoever must reach the same bucket by other means (a DuckDB secret).
#[derive(Clone, PartialEq, Eq)]
pub struct S3Session {
    /// The credentials; none when requests are not signed.
    pub keys: Option<S3Keys>,
    /// The region.
    pub region: String,
    /// Host and port of the service; none when it is AWS itself.
    pub endpoint: Option<String>,
    /// Whether the bucket is named in the path.
    pub path_style: bool,
    /// Whether the service is reached over TLS.
    pub use_ssl: bool,
}

/// Credentials that hold now. Those of a container or an instance end after some hours.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Keys {
    /// The access key.
    pub access_key_id: String,
    /// The secret that belongs to it.
    pub secret_access_key: String,
    /// The token, when they are temporary.
    pub session_token: Option<String>,
}

impl fmt::Debug for S3Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Session")
            .field("keys", &self.keys)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("path_style", &self.path_style)
            .field("use_ssl", &self.use_ssl)
            .finish()
    }
}

impl fmt::Debug for S3Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Keys").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// In the place of a secret.
struct Hidden;

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
