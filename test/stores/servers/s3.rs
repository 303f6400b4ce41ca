//! An S3 of our own, for what `moto_server` cannot do: it can be told to fail, and writes down what it was asked. Of the
//! real one's dialect it knows what a repository needs. Signatures are not checked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fdl::store::{Retry, S3Options, S3Store};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::objects::{Faults, Objects, etag, key_of};
use super::server::{Reply, Seen, Server};

/// How many keys a page of a listing holds.
const PAGE: usize = 7;

pub struct S3 {
    pub server: Server,
    pub objects: Objects,
}

/// Uploads that were begun: their key and their parts.
type Uploads = Arc<Mutex<BTreeMap<String, (String, BTreeMap<u32, Bytes>)>>>;

impl S3 {
    pub async fn start(faults: Faults) -> Self {
        let objects = Objects::default();
        let uploads = Uploads::default();
        let app = {
            let objects = objects.clone();
            move |seen: &Seen| answer(seen, &objects, &uploads, faults)
        };
        Self { server: Server::start(app).await, objects }
    }

    pub fn options(&self) -> S3Options {
        S3Options {
            access_key_id: Some("key".to_owned()),
            secret_access_key: Some("hush".to_owned()),
            endpoint: Some(self.server.url.clone()),
            region: Some("lab-1".to_owned()),
            ..S3Options::default()
        }
    }

    /// The bucket `lake`, opened at a prefix by somebody impatient.
    pub fn open(&self, prefix: &str) -> S3Store {
        S3Store::open_with(&format!("s3://lake/{prefix}"), &self.options(), quick()).unwrap()
    }
}

/// Retries without long waits.
pub fn quick() -> Retry {
    let wait = std::time::Duration::from_millis(5);
    Retry { first_wait: wait, longest_wait: wait, ..Retry::default() }
}

pub fn error(status: u16, code: &str) -> Reply {
    let xml = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>As the test asks</Message></Error>");
    Reply::new(status).with("Content-Type", "application/xml").body(xml)
}

fn answer(seen: &Seen, objects: &Objects, uploads: &Uploads, faults: Faults) -> Reply {
    let has = |name| seen.query(name).is_some();
    if seen.path == "/lake" || seen.path == "/lake/" {
        return match seen.method.as_str() {
            "GET" if has("list-type") => list(seen, objects),
            "POST" if has("delete") => delete(seen, objects),
            "PUT" => Reply::new(200),
            _ => error(501, "NotImplemented"),
        };
    }
    let Some(key) = key_of(&seen.path, "/lake") else { return error(404, "NoSuchBucket") };
    match (seen.method.as_str(), seen.query("uploadId")) {
        ("POST", None) if has("uploads") => {
            let mut uploads = uploads.lock().unwrap();
            let id = format!("upload/{}+=", uploads.len());
            uploads.insert(id.clone(), (key.clone(), BTreeMap::new()));
            xml(format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"))
        }
        ("PUT", Some(id)) => match uploads.lock().unwrap().get_mut(&id) {
            Some((_, parts)) => {
                parts.insert(seen.query("partNumber").unwrap().parse().unwrap(), seen.body.clone());
                Reply::new(200).with("ETag", etag(&seen.body))
            }
            None => error(404, "NoSuchUpload"),
        },
        ("POST", Some(_))
            if !faults.ignores_conditions
                && seen.header("if-none-match") == Some("*")
                && objects.get(&key).is_some() =>
        {
            error(412, "PreconditionFailed")
        }
        ("POST", Some(id)) => match uploads.lock().unwrap().remove(&id) {
            Some((key, parts)) => {
                let whole = parts.into_values().collect::<Vec<_>>().concat();
                let tag = etag(&whole).replace('"', "&quot;");
                objects.put(&key, whole);
                xml(format!("<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"))
            }
            None => error(404, "NoSuchUpload"),
        },
        ("DELETE", Some(id)) => match uploads.lock().unwrap().remove(&id) {
            Some(_) => Reply::new(204),
            None => error(404, "NoSuchUpload"),
        },
        _ => {
            let reply = objects.answer(&key, seen, faults);
            match (seen.method.as_str(), reply.status) {
                ("HEAD", _) | (_, 200..=299) => reply,
                (_, 404) => error(404, "NoSuchKey"),
                (_, 403) => error(403, "AccessDenied"),
                (_, 412) => error(412, "PreconditionFailed"),
                (_, 416) => error(416, "InvalidRange"),
                (_, status) => error(status, "Odd"),
            }
        }
    }
}

fn xml(text: String) -> Reply {
    Reply::new(200).with("Content-Type", "application/xml").body(text)
}

fn list(seen: &Seen, objects: &Objects) -> Reply {
    let prefix = seen.query("prefix").unwrap_or_default();
    let after = seen.query("continuation-token");
    let all = objects.all();
    let mut keys =
        all.iter().filter(|(key, _)| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after));
    let page: Vec<_> = keys.by_ref().take(PAGE).collect();
    let encode = |key: &str| utf8_percent_encode(key, NON_ALPHANUMERIC).to_string();
    let entries: String = page
        .iter()
        .map(|(key, (bytes, time))| {
            format!(
                "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                encode(key),
                time.format("%Y-%m-%dT%H:%M:%S.000Z"),
                etag(bytes).replace('"', "&quot;"),
                bytes.len()
            )
        })
        .collect();
    let next = match (keys.next(), page.last()) {
        (Some(_), Some((last, _))) => format!("<NextContinuationToken>{last}</NextContinuationToken>"),
        _ => String::new(),
    };
    xml(format!(
        "<ListBucketResult><EncodingType>url</EncodingType>{entries}{}</ListBucketResult>",
        next.replace('&', "&amp;")
    ))
}

fn delete(seen: &Seen, objects: &Objects) -> Reply {
    let text = String::from_utf8(seen.body.to_vec()).unwrap();
    let keys: Vec<_> =
        text.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap().to_owned()).collect();
    assert!(keys.len() <= 1000, "{} keys in a request", keys.len());
    let gone: String = keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect();
    for key in keys {
        let key = key.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
        let key = key.replace("&amp;", "&");
        if key.contains("locked") {
            let message = format!("<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>No</Message></Error>");
            return xml(format!("<DeleteResult>{message}</DeleteResult>"));
        }
        let request = Seen { method: http::Method::DELETE, headers: http::HeaderMap::new(), ..seen.clone() };
        objects.answer(&key, &request, Faults::default());
    }
    xml(format!("<DeleteResult>{gone}</DeleteResult>"))
}
