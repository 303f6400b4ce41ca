//! Objects in memory behind HTTP, as format.md sections 13 and 14 want them of a host, as far as a store needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use fdl::store::ETag;
use percent_encoding::percent_decode_str;

use super::server::{Reply, Seen};

/// An object and when it was written.
pub type Stored = (Bytes, DateTime<Utc>);

#[derive(Debug, Default, Clone)]
pub struct Objects(Arc<Mutex<BTreeMap<String, Stored>>>);

/// How the server behind them differs from a good one.
#[derive(Debug, Default, Clone, Copy)]
pub struct Faults {
    /// Writes on condition are always done.
    pub ignores_conditions: bool,
    /// An absent object answers 403.
    pub hides_absent: bool,
}

impl Objects {
    pub fn all(&self) -> BTreeMap<String, Stored> {
        self.0.lock().unwrap().clone()
    }

    pub fn get(&self, key: &str) -> Option<Stored> {
        self.0.lock().unwrap().get(key).cloned()
    }

    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.0.lock().unwrap().insert(key.to_owned(), (bytes.into(), Utc::now()));
    }

    /// Answers GET, HEAD, PUT and DELETE of one object.
    pub fn answer(&self, key: &str, seen: &Seen, faults: Faults) -> Reply {
        match seen.method.as_str() {
            "GET" | "HEAD" => match self.get(key) {
                Some(stored) => read(seen, &stored),
                None => Reply::new(if faults.hides_absent { 403 } else { 404 }),
            },
            "PUT" => self.write(key, seen, Some(seen.body.clone()), faults),
            "DELETE" => self.write(key, seen, None, faults),
            _ => Reply::new(405),
        }
    }

    fn write(&self, key: &str, seen: &Seen, bytes: Option<Bytes>, faults: Faults) -> Reply {
        let mut objects = self.0.lock().unwrap();
        let now = objects.get(key).map(|(bytes, _)| etag(bytes));
        if !faults.ignores_conditions {
            match (seen.header("if-match"), &now) {
                (Some(_), None) => return Reply::new(404),
                (Some(wanted), Some(now)) if wanted != now => return Reply::new(412),
                _ => {}
            }
            if seen.header("if-none-match") == Some("*") && now.is_some() {
                return Reply::new(412);
            }
        }
        match bytes {
            Some(bytes) => {
                let etag = etag(&bytes);
                objects.insert(key.to_owned(), (bytes, Utc::now()));
                Reply::new(200).with("ETag", etag)
            }
            None => {
                objects.remove(key);
                Reply::new(204)
            }
        }
    }
}

pub fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", ETag::of_content(bytes).0)
}

fn read(seen: &Seen, (bytes, time): &Stored) -> Reply {
    let size = bytes.len();
    let stamp = |reply: Reply| {
        let time = time.format("%a, %d %b %Y %H:%M:%S GMT");
        reply.with("ETag", etag(bytes)).with("Last-Modified", time).with("Accept-Ranges", "bytes")
    };
    let same = seen.header("if-range").is_none_or(|wanted| wanted == etag(bytes));
    if seen.header("if-match").is_some_and(|wanted| wanted != etag(bytes)) {
        return Reply::new(412);
    }
    let Some(range) = seen.header("range").filter(|_| same) else {
        return stamp(Reply::new(200).body(bytes.clone()));
    };
    let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let start: usize = start.parse().unwrap();
    if start >= size {
        return stamp(Reply::new(416).with("Content-Range", format!("bytes */{size}")));
    }
    let end = end.parse().map_or(size, |last: usize| (last + 1).min(size));
    let part = bytes.slice(start..end);
    stamp(Reply::new(206).with("Content-Range", format!("bytes {start}-{}/{size}", end - 1)).body(part))
}

/// The key in a path, which begins with `root`.
pub fn key_of(path: &str, root: &str) -> Option<String> {
    let key = path.strip_prefix(root)?.strip_prefix('/')?;
    Some(percent_decode_str(key).decode_utf8().unwrap().into_owned())
}
