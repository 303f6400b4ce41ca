//! Listings. Not those of `object_store`, which stop at keys that it does not like (`a//b`, folder marks of web consoles,
//! control characters); such keys are no objects of a repository and are left out.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use http::Method;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::bucket::Bucket;
use super::service::Cause;
use crate::store::net::NetError;
use crate::store::{ETag, ObjectMeta, key};

/// The longest page that is read, in bytes: 1,000 keys of 1 KiB, each byte written as three.
const PAGE: usize = 16 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    contents: Vec<Entry>,
    encoding_type: Option<String>,
    next_continuation_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    key: String,
    size: u64,
    last_modified: DateTime<Utc>,
    #[serde(rename = "ETag")]
    etag: Option<String>,
}

/// How many pages a listing has at the most: a hundred million objects.
const MOST_PAGES: usize = 100_000;
/// How many pages may follow each other without an object.
const MOST_EMPTY: usize = 1000;

enum Next {
    First,
    After(String),
    End,
}

/// The pages of a listing so far, so that one without end is found.
pub(super) struct Pages {
    next: Next,
    /// The tokens that were given, shortened.
    seen: HashSet<u64>,
    empty: usize,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self { next: Next::First, seen: HashSet::new(), empty: 0 }
    }

    /// Takes the token of the page after this one.
    pub(super) fn turn(&mut self, token: Option<&str>, is_empty: bool) -> Result<(), Cause> {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            self.next = Next::End;
            return Ok(());
        };
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) || self.empty > MOST_EMPTY || self.seen.len() > MOST_PAGES {
            return Err(Cause::Net(NetError::Broken("the listing has no end".to_owned())));
        }
        self.next = Next::After(token.to_owned());
        Ok(())
    }
}

/// Every object under `root` + `prefix`; its key is relative to `root`.
pub(super) fn list(bucket: Arc<Bucket>, root: String, prefix: &str) -> BoxStream<'static, Result<ObjectMeta, Cause>> {
    let full = format!("{root}{prefix}");
    stream::try_unfold((bucket, Pages::new()), move |(bucket, mut pages)| {
        let (full, root) = (full.clone(), root.clone());
        async move {
            let token = match &pages.next {
                Next::First => None,
                Next::After(token) => Some(token.clone()),
                Next::End => return Ok(None),
            };
            let mut query = vec![("encoding-type", "url"), ("list-type", "2"), ("prefix", full.as_str())];
            query.extend(token.as_deref().map(|token| ("continuation-token", token)));
            let page: Page = read_page(&bucket, "", &query).await?;
            pages.turn(page.next_continuation_token.as_deref(), page.contents.is_empty())?;
            let objects = stream::iter(objects(page, &root).into_iter().map(Ok));
            Ok(Some((objects, (bucket, pages))))
        }
    })
    .try_flatten()
    .boxed()
}

/// Asks for something of which there are pages.
pub(super) async fn read_page<T: for<'de> Deserialize<'de>>(
    bucket: &Bucket,
    key: &str,
    query: &[(&str, &str)],
) -> Result<T, Cause> {
    let mut answer = bucket.ask(Method::GET, key, query).await?;
    let content = answer.content(PAGE).await.map_err(Cause::Net)?;
    let odd = |error: quick_xml::DeError| Cause::Net(NetError::Broken(format!("the answer is no such page: {error}")));
    quick_xml::de::from_reader(content.as_slice()).map_err(odd)
}

/// The key as it is, where the page says that it is encoded.
pub(super) fn decode(key: String, encoding: Option<&str>) -> Option<String> {
    match encoding {
        // A space is written as + or as %20, and a + as %2B.
        Some("url") => {
            let spaces = key.replace('+', " ");
            percent_decode_str(&spaces).decode_utf8().ok().map(String::from)
        }
        _ => Some(key),
    }
}

fn objects(page: Page, root: &str) -> Vec<ObjectMeta> {
    let encoding = page.encoding_type;
    let object = |entry: Entry| {
        let full = decode(entry.key, encoding.as_deref())?;
        let key = full.strip_prefix(root)?;
        key::check(key).ok()?;
        Some(ObjectMeta {
            key: key.to_owned(),
            size: entry.size,
            last_modified: entry.last_modified,
            etag: entry.etag.map(ETag),
        })
    };
    page.contents.into_iter().filter_map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(encoding: &str, keys: &[&str]) -> Vec<String> {
        let entry = |key: &&str| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-29T22:14:03.000Z</LastModified>\
                 <ETag>&quot;e&quot;</ETag><Size>1</Size></Contents><CommonPrefixes/>"
            )
        };
        let entries: String = keys.iter().map(entry).collect();
        let xml = format!("<ListBucketResult><Name>b</Name>{encoding}{entries}</ListBucketResult>");
        let page: Page = quick_xml::de::from_str(&xml).unwrap();
        let objects = objects(page, "r/");
        assert!(objects.iter().all(|object| object.etag == Some(ETag("\"e\"".to_owned()))));
        objects.into_iter().map(|object| object.key).collect()
    }

    #[test]
    fn decodes_keys_and_leaves_out_what_is_none() {
        let url = "<EncodingType>url</EncodingType>";
        let there =
            keys(url, &["r/a", "r/%E7%94%BA+x%2B1%2520", "r/b//c", "r/folder/", "r/", "r/a%0Ab", "elsewhere", "r/%FF"]);
        assert_eq!(there, ["a", "町 x+1%20"]);
        assert_eq!(keys("", &["r/a+b%20"]), ["a+b%20"]);
        assert_eq!(keys(url, &[]), Vec::<String>::new());
    }
}
