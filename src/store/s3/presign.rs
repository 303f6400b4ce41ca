//! A write that somebody else may send: this object, this long, of this type, for a while, and only where nothing is.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::time::Duration;

use chrono::{DateTime, Utc};
use jiff::Timestamp;
use rusty_s3::Method;
use rusty_s3::signing::sign;
use url::Url;

use super::S3Store;
use super::fault::fault;
use crate::store::StoreError;
use crate::store::net::{content_type, failed};

/// The largest object that S3 takes in one request, in bytes.
const LARGEST: u64 = 5 << 30;

/// A write that S3 takes from whoever sends it, once.
#[derive(Clone, PartialEq, Eq)]
pub struct PresignedPut {
    /// Where to PUT. Not to be shown: whoever knows it may write.
    pub url: String,
    /// The headers that the signature covers, with the only values that it lets through.
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for PresignedPut {
    /// Without the URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresignedPut").field("headers", &self.headers).finish_non_exhaustive()
    }
}

impl S3Store {
    /// Signs the writing of an object of `size` bytes, for as long as `valid` says from `now` on, in whole seconds. S3
    /// refuses it when something is at the key (412), and with another length or type (403).
    ///
    /// None where nothing can be signed: for objects that S3 does not take in one request, and without credentials. When
    /// these are temporary, the URL ends no later than they do.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadKey`], and those of [`S3Store::session`].
    pub async fn presign_put(
        &self,
        key: &str,
        size: u64,
        now: DateTime<Utc>,
        valid: Duration,
    ) -> Result<Option<PresignedPut>, StoreError> {
        let path = self.path(key)?;
        if size > LARGEST {
            return Ok(None);
        }
        let bucket = self.bucket(key, "write").await?;
        let keys = bucket.keys().await.map_err(|cause| fault(key, "write", cause, bucket.who()))?;
        let Some(keys) = keys else { return Ok(None) };
        let url = Url::parse(&bucket.object_url(path.as_ref())).map_err(|error| failed(key, "write", error))?;
        let date = Timestamp::from_second(now.timestamp()).map_err(|error| failed(key, "write", error))?;
        // By their names, in lower case: so they are signed.
        let headers = BTreeMap::from([
            ("content-length".to_owned(), size.to_string()),
            ("content-type".to_owned(), content_type(key).to_owned()),
            ("if-none-match".to_owned(), "*".to_owned()),
        ]);
        let url = sign(
            &date,
            Method::Put,
            url,
            &keys.access_key_id,
            &keys.secret_access_key,
            keys.session_token.as_deref(),
            bucket.region(),
            valid.as_secs(),
            iter::empty(),
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        );
        Ok(Some(PresignedPut { url: url.into(), headers }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::S3Options;

    const KEY: &str = "data/main/t/k=b%2Fc/町.parquet";
    const VALID: Duration = Duration::from_secs(900);

    fn store(token: Option<&str>) -> S3Store {
        let options = S3Options {
            access_key_id: Some("AKIDEXAMPLE".to_owned()),
            secret_access_key: Some("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: token.map(str::to_owned),
            region: Some("eu-west-1".to_owned()),
            endpoint: Some("http://localhost:9000".to_owned()),
            ..S3Options::default()
        };
        S3Store::open("s3://lake/a b", &options).unwrap()
    }

    async fn presign(store: &S3Store, key: &str, size: u64) -> Option<PresignedPut> {
        let now = "2026-11-29T22:14:03.987Z".parse().unwrap();
        store.presign_put(key, size, now, VALID).await.unwrap()
    }

    /// What botocore 1.44 signs for the same request.
    #[tokio::test]
    async fn signs_as_the_tools_of_aws_do() {
        let object = "http://localhost:9000/lake/a%20b/data/main/t/k%3Db%252Fc/%E7%94%BA.parquet";
        let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256\
            &X-Amz-Credential=AKIDEXAMPLE%2F20261129%2Feu-west-1%2Fs3%2Faws4_request\
            &X-Amz-Date=20261129T221403Z&X-Amz-Expires=900";
        let signed = "X-Amz-SignedHeaders=content-length%3Bcontent-type%3Bhost%3Bif-none-match";
        for (token, shown, signature) in [
            (None, "", "133cc88d42491e5b37bc23d3a5065e933ba6902dad50db6c229cec4c7090da63"),
            (
                Some("tok/en+="),
                "&X-Amz-Security-Token=tok%2Fen%2B%3D",
                "fd0869cff2e61307687db5d26a9ab3038d4cbf3a29febb26eaa8607d165aa11d",
            ),
        ] {
            let put = presign(&store(token), KEY, 5).await.unwrap();
            let mut parts: Vec<_> = put.url.split(['?', '&']).collect();
            let expected = format!("{object}?{query}{shown}&{signed}&X-Amz-Signature={signature}");
            let mut expected: Vec<_> = expected.split(['?', '&']).collect();
            parts.sort_unstable();
            expected.sort_unstable();
            assert_eq!(parts, expected);
            assert!(put.url.starts_with(object), "{}", put.url);
        }
    }

    #[tokio::test]
    async fn binds_length_and_type_and_lets_nothing_be_replaced() {
        let put = presign(&store(None), KEY, 5).await.unwrap();
        let headers =
            [("content-length", "5"), ("content-type", "application/vnd.apache.parquet"), ("if-none-match", "*")];
        assert_eq!(put.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        // Another key or length is another signature.
        let signature = |put: &PresignedPut| put.url.rsplit_once('=').unwrap().1.to_owned();
        for (key, size) in [("data/main/t/other.parquet", 5), (KEY, 6)] {
            assert_ne!(signature(&presign(&store(None), key, size).await.unwrap()), signature(&put));
        }
        let shown = format!("{put:?}");
        assert!(!shown.contains("http") && !shown.contains(&signature(&put)), "{shown}");
    }

    #[tokio::test]
    async fn signs_nothing_that_cannot_be_sent_so() {
        assert!(presign(&store(None), KEY, LARGEST).await.is_some());
        assert!(presign(&store(None), KEY, LARGEST + 1).await.is_none());
        let anonymous = S3Options {
            access_key_id: Some(String::new()),
            endpoint: Some("http://localhost:9000".to_owned()),
            ..S3Options::default()
        };
        assert!(presign(&S3Store::open("s3://lake", &anonymous).unwrap(), KEY, 5).await.is_none());
        let odd = store(None).presign_put("data/../fdl.json", 5, Utc::now(), VALID).await.unwrap_err();
        assert!(matches!(odd, StoreError::BadKey { .. }), "{odd:?}");
    }
}
