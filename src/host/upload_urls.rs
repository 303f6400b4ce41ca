//! URLs by which a writer sends data files past the host (docs/format.md section 14).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::format::{Clock, Timestamp};
use crate::store::{S3Store, StoreError};

/// For how long an upload may be begun by a URL. A writer that needs longer asks again.
const VALID: Duration = Duration::from_secs(15 * 60);

/// Where a writer sends one file, past the host.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct UploadUrl {
    /// The URL to PUT to. Not to be shown: whoever knows it may write.
    pub url: String,
    /// The headers to send, exactly these.
    pub headers: BTreeMap<String, String>,
    /// Until when it works.
    pub expires: Timestamp,
}

impl fmt::Debug for UploadUrl {
    /// Without the URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("UploadUrl");
        shown.field("headers", &self.headers).field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Makes upload URLs: a store whose service can sign them.
#[async_trait]
pub trait UploadUrls: Send + Sync + fmt::Debug {
    /// The URL for an object of this size in bytes; none when it is to be sent through the host. The URL must not let the
    /// writer replace an object that is there, nor send more than that.
    async fn upload_url(&self, key: &str, size: u64) -> Result<Option<UploadUrl>, StoreError>;
}

/// Upload URLs that S3 knows by their signature. They lead to the endpoint that the host itself uses.
#[derive(Debug, Clone)]
pub struct SignedUrls {
    store: Arc<S3Store>,
    clock: Arc<dyn Clock>,
}

impl SignedUrls {
    /// For the objects of a store.
    #[must_use]
    pub fn new(store: Arc<S3Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }
}

#[async_trait]
impl UploadUrls for SignedUrls {
    async fn upload_url(&self, key: &str, size: u64) -> Result<Option<UploadUrl>, StoreError> {
        let now = self.clock.now();
        let signed = self.store.presign_put(key, size, now, VALID).await?;
        let expires = Timestamp::from(now + VALID);
        Ok(signed.map(|put| UploadUrl { url: put.url, headers: put.headers, expires }))
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;
    use crate::store::S3Options;

    #[derive(Debug)]
    struct Stopped(DateTime<Utc>);

    impl Clock for Stopped {
        fn now(&self) -> DateTime<Utc> {
            self.0
        }
    }

    #[tokio::test]
    async fn a_url_is_for_fifteen_minutes_of_the_clock() {
        let options = S3Options {
            access_key_id: Some("AK".to_owned()),
            secret_access_key: Some("hush".to_owned()),
            endpoint: Some("http://localhost:9000".to_owned()),
            ..S3Options::default()
        };
        let store = Arc::new(S3Store::open("s3://lake/x", &options).unwrap());
        let now = "2026-11-29T22:14:03.123Z".parse().unwrap();
        let url = SignedUrls::new(store, Arc::new(Stopped(now))).upload_url("data/t/a.parquet", 7).await.unwrap();
        let url = url.unwrap();
        assert!(url.url.starts_with("http://localhost:9000/lake/x/data/t/a.parquet?"), "{}", url.url);
        assert!(
            url.url.contains("X-Amz-Date=20261129T221403Z") && url.url.contains("X-Amz-Expires=900"),
            "{}",
            url.url
        );
        assert_eq!(url.expires.to_string(), "2026-11-29T22:29:03.123Z");
        let shown = format!("{url:?}");
        assert!(!shown.contains("http") && !shown.contains("X-Amz"), "{shown}");
    }
}
