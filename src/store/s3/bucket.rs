//! A bucket that can be reached: region and credentials are settled when the first request is made, as both may have to
//! be asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, S3ConditionalPut};
use object_store::client::HttpRequestBody;
use object_store::{ClientOptions, RetryConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::fault::Who;
use super::location::Location;
use super::service::{Cause, Service};
use super::settings::{Credentials, Settings};
use super::{S3Keys, S3Session};
use crate::store::net::{Client, Content, Incoming, NetError, Outgoing, Repeat, Retry};

/// How long to look for the metadata service of an instance. It is a hop away or not there.
const INSTANCE: Duration = Duration::from_secs(4);
/// The region of buckets whose region nobody knows.
const SOME_REGION: &str = "us-east-1";
/// What S3 does not encode in a path or a query.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A bucket, and who asks.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) s3: AmazonS3,
    client: Client,
    region: String,
    /// The bucket's own URL, without `/` at its end.
    url: String,
    anonymous: bool,
    name: String,
    endpoint: Option<Url>,
    path_style: bool,
}

impl Bucket {
    pub(super) async fn open(
        location: &Location,
        settings: &Settings,
        service: &Service,
        client: &Client,
        metadata: Option<&str>,
    ) -> Result<Self, object_store::Error> {
        let region = match (&settings.region, &settings.endpoint) {
            (Some(region), _) => region.clone(),
            (None, Some(_)) => SOME_REGION.to_owned(),
            (None, None) => find_region(client, location).await.unwrap_or_else(|| SOME_REGION.to_owned()),
        };
        // No name can be put before an address.
        let address = |endpoint: &Url| !matches!(endpoint.host(), Some(url::Host::Domain(_)));
        let path_style = settings.path_style.unwrap_or(settings.endpoint.is_some() || !location.is_host())
            || settings.endpoint.as_ref().is_some_and(address);
        let url = bucket_url(location, settings.endpoint.as_ref(), &region, path_style);
        let build = |anonymous: bool| {
            let builder = AmazonS3Builder::new()
                .with_bucket_name(&location.bucket)
                .with_region(&region)
                // Taken as it is, the bucket being in it, whatever its style.
                .with_virtual_hosted_style_request(true)
                .with_endpoint(&url)
                .with_allow_http(true)
                .with_client_options(ClientOptions::new().with_allow_http(true))
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
                .with_http_connector(service.clone())
                .with_skip_signature(anonymous);
            with_credentials(builder, &settings.credentials, metadata).build()
        };
        let mut anonymous = settings.credentials == Credentials::None;
        let mut s3 = build(anonymous)?;
        if settings.credentials == Credentials::Instance {
            let found = tokio::time::timeout(INSTANCE, s3.credentials().get_credential()).await;
            anonymous = !matches!(found, Ok(Ok(_)));
            if anonymous {
                s3 = build(true)?;
            }
        }
        let (client, endpoint) = (client.clone(), settings.endpoint.clone());
        Ok(Self { s3, client, region, url, anonymous, name: location.bucket.clone(), endpoint, path_style })
    }

    /// Who asks, for messages.
    pub(super) fn who(&self) -> Who<'_> {
        Who { anonymous: self.anonymous, bucket: &self.name }
    }

    /// The credentials that hold now; none when requests are not signed.
    pub(super) async fn keys(&self) -> Result<Option<S3Keys>, Cause> {
        if self.anonymous {
            return Ok(None);
        }
        let credential = self.s3.credentials().get_credential().await.map_err(Cause::of)?;
        Ok(Some(S3Keys {
            access_key_id: credential.key_id.clone(),
            secret_access_key: credential.secret_key.clone(),
            session_token: credential.token.clone(),
        }))
    }

    pub(super) fn region(&self) -> &str {
        &self.region
    }

    /// The URL of an object, or of the bucket itself when the key is empty. A key in the bucket, its prefix included.
    pub(super) fn object_url(&self, key: &str) -> String {
        let path: Vec<_> = key.split('/').map(|part| utf8_percent_encode(part, STRICT).to_string()).collect();
        let separator = if key.is_empty() { "" } else { "/" };
        format!("{}{separator}{}", self.url, path.join("/"))
    }

    pub(super) async fn session(&self) -> Result<S3Session, Cause> {
        let keys = self.keys().await?;
        let endpoint = self.endpoint.as_ref().and_then(|endpoint| {
            let host = endpoint.host_str()?;
            let port = endpoint.port().map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("{host}{port}{}", endpoint.path().trim_end_matches('/')))
        });
        let use_ssl = self.endpoint.as_ref().is_none_or(|endpoint| endpoint.scheme() == "https");
        Ok(S3Session { keys, region: self.region.clone(), endpoint, path_style: self.path_style, use_ssl })
    }

    /// [`Bucket::send`] without content.
    pub(super) async fn ask(&self, method: Method, key: &str, query: &[(&str, &str)]) -> Result<Incoming, Cause> {
        self.send(method, key, query, HeaderMap::new(), Bytes::new()).await
    }

    /// Sends a request that `object_store` does not know; an answer that is no success is a cause.
    pub(super) async fn send(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        content: Bytes,
    ) -> Result<Incoming, Cause> {
        let unusable = |error: String| Cause::Net(NetError::Request(error));
        let query: Vec<_> =
            query.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, STRICT))).collect();
        let url = format!("{}?{}", self.object_url(key), query.join("&"));
        let headers = match self.anonymous {
            true => headers,
            false => {
                let credential = self.s3.credentials().get_credential().await.map_err(Cause::of)?;
                let mut request = http::Request::new(HttpRequestBody::from(content.clone()));
                *request.method_mut() = method.clone();
                *request.uri_mut() = url.parse().map_err(|error: http::uri::InvalidUri| unusable(error.to_string()))?;
                *request.headers_mut() = headers;
                AwsAuthorizer::new(&credential, "s3", &self.region)
                    .try_authorize(&mut request, None)
                    .map_err(Cause::of)?;
                request.headers().clone()
            }
        };
        let url = Url::parse(&url).map_err(|error| unusable(error.to_string()))?;
        let content = if content.is_empty() { Content::Empty } else { content.into() };
        let request = Outgoing { method, url, headers, content };
        let incoming = self.client.send(&request, Repeat::Same).await.map_err(Cause::Net)?;
        match incoming.status().is_success() {
            true => Ok(incoming),
            false => Err(Cause::Answer(incoming.into_answer().await)),
        }
    }
}

fn with_credentials(builder: AmazonS3Builder, credentials: &Credentials, metadata: Option<&str>) -> AmazonS3Builder {
    let builder = match metadata {
        Some(metadata) => builder.with_metadata_endpoint(metadata.trim_end_matches('/')),
        None => builder,
    };
    match credentials {
        Credentials::Keys(keys) => {
            let builder =
                builder.with_access_key_id(&keys.access_key_id).with_secret_access_key(&keys.secret_access_key);
            match &keys.session_token {
                Some(token) => builder.with_token(token),
                None => builder,
            }
        }
        Credentials::WebIdentity { token_file, role_arn, session_name } => {
            let builder = builder
                .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, token_file)
                .with_config(AmazonS3ConfigKey::RoleArn, role_arn);
            match session_name {
                Some(name) => builder.with_config(AmazonS3ConfigKey::RoleSessionName, name),
                None => builder,
            }
        }
        Credentials::Container(path) => builder.with_config(AmazonS3ConfigKey::ContainerCredentialsRelativeUri, path),
        Credentials::Pod { url, token_file } => builder
            .with_config(AmazonS3ConfigKey::ContainerCredentialsFullUri, url)
            .with_config(AmazonS3ConfigKey::ContainerAuthorizationTokenFile, token_file),
        Credentials::Instance | Credentials::None => builder,
    }
}

/// Where the bucket is, without `/` at the end.
fn bucket_url(location: &Location, endpoint: Option<&Url>, region: &str, path_style: bool) -> String {
    let bucket = &location.bucket;
    let service = match endpoint {
        Some(endpoint) => endpoint.as_str().trim_end_matches('/').to_owned(),
        None if region.starts_with("cn-") => format!("https://s3.{region}.amazonaws.com.cn"),
        None => format!("https://s3.{region}.amazonaws.com"),
    };
    match (path_style, service.split_once("://")) {
        (false, Some((scheme, host))) => format!("{scheme}://{bucket}.{host}"),
        _ => format!("{service}/{bucket}"),
    }
}

/// Asks AWS for the region of a bucket: it says so whoever asks, and whatever else it answers.
async fn find_region(client: &Client, location: &Location) -> Option<String> {
    let path_style = !location.is_host();
    let service = Url::parse("https://s3.amazonaws.com").ok()?;
    let url = Url::parse(&bucket_url(location, Some(&service), "", path_style)).ok()?;
    let headers = HeaderMap::from_iter([(header::ACCEPT, header::HeaderValue::from_static("*/*"))]);
    let request = Outgoing { method: Method::HEAD, url, headers, content: Content::Empty };
    let few = Retry { tries: 2, connect_tries: 2, ..Retry::default() };
    let answer = client.with_retry(few).send(&request, Repeat::Same).await.ok()?;
    answer.header("x-amz-bucket-region").map(str::to_owned)
}

/// A bucket that is opened by the first request.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) location: Location,
    pub(super) retry: Retry,
    settings: Settings,
    service: Service,
    client: Client,
    metadata: Option<String>,
    bucket: tokio::sync::OnceCell<Arc<Bucket>>,
}

impl Door {
    pub(super) fn new(
        location: Location,
        settings: Settings,
        metadata: Option<String>,
        retry: Retry,
    ) -> Result<Self, NetError> {
        let client = Client::new(retry)?;
        let service = Service::new(client.clone(), metadata.as_deref())?;
        Ok(Self { location, retry, settings, service, client, metadata, bucket: tokio::sync::OnceCell::new() })
    }

    pub(super) fn endpoint(&self) -> Option<&str> {
        self.settings.endpoint.as_ref().map(Url::as_str)
    }

    pub(super) async fn bucket(&self) -> Result<Arc<Bucket>, Cause> {
        let open = || async {
            let metadata = self.metadata.as_deref();
            Bucket::open(&self.location, &self.settings, &self.service, &self.client, metadata).await.map(Arc::new)
        };
        self.bucket.get_or_try_init(open).await.cloned().map_err(Cause::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_bucket_in_the_host_or_in_the_path() {
        let location = Location::parse("s3://lake/x").unwrap();
        let endpoint = Url::parse("http://localhost:9000/store/").unwrap();
        for (endpoint, region, path_style, expected) in [
            (None, "eu-west-1", false, "https://lake.s3.eu-west-1.amazonaws.com"),
            (None, "eu-west-1", true, "https://s3.eu-west-1.amazonaws.com/lake"),
            (None, "cn-north-1", false, "https://lake.s3.cn-north-1.amazonaws.com.cn"),
            (Some(&endpoint), "x", true, "http://localhost:9000/store/lake"),
            (Some(&endpoint), "x", false, "http://lake.localhost:9000/store"),
        ] {
            assert_eq!(bucket_url(&location, endpoint, region, path_style), expected);
        }
    }
}
