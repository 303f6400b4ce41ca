//! The end of an upload in parts, on the condition that nothing is at its key: `object_store` knows it without one alone.

use http::header::{CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};
use object_store::multipart::PartId;
use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use super::service::Cause;
use crate::store::net::{Answer, NetError};

/// The longest answer that is read, in bytes.
const MOST: usize = 64 << 10;

#[derive(Debug, Serialize)]
#[serde(rename = "CompleteMultipartUpload")]
struct Question<'a> {
    #[serde(rename = "Part")]
    parts: Vec<Part<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Part<'a> {
    #[serde(rename = "ETag")]
    etag: &'a str,
    part_number: usize,
}

/// What S3 says with 200: the state of the new object, or an error after all.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Said {
    #[serde(rename = "ETag")]
    etag: Option<String>,
    code: Option<String>,
}

/// Puts parts together if there is no object at the key, which is one in the bucket.
pub(super) async fn complete_new(bucket: &Bucket, key: &str, upload: &str, parts: &[PartId]) -> Result<(), Cause> {
    let parts = parts.iter().enumerate();
    let parts = parts.map(|(at, part)| Part { etag: &part.content_id, part_number: at + 1 }).collect();
    let question = quick_xml::se::to_string(&Question { parts });
    let question = question.map_err(|error| Cause::Net(NetError::Request(error.to_string())))?;
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/xml")),
        (IF_NONE_MATCH, HeaderValue::from_static("*")),
    ]);
    let mut incoming = bucket.send(Method::POST, key, &[("uploadId", upload)], headers, question.into()).await?;
    let status = incoming.status();
    let content = incoming.content(MOST).await.map_err(Cause::Net)?;
    match quick_xml::de::from_reader(content.as_slice()) {
        Ok(Said { code: None, etag: Some(_) }) => Ok(()),
        Ok(Said { code: Some(code), .. }) => {
            Err(Cause::Answer(Answer { status, code: Some(code), message: None, retry_after: None }))
        }
        _ => Err(Cause::Net(NetError::Broken("the answer to the end of an upload is none".to_owned()))),
    }
}
