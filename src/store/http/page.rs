//! Servers that answer 200 with a page for what is not there (hosts of single-page applications).
//!
//! What stands in for an object that cannot be what its key says is looked at twice: when the server answers in the same way
//! for a name that nobody can have, there is no object.

use std::sync::atomic::{AtomicBool, Ordering};

use http::header::CONTENT_TYPE;
use tokio::sync::OnceCell;

use crate::store::net::Incoming;

/// In the place of a name: no version, branch or tag can be called so.
const NOBODY: &str = "--fdl-looks-for-nothing--";
/// The longest content of a ref (docs/format.md section 1).
const LONGEST_REF: usize = 4096;

/// What the server does, as far as it was asked. Such servers tell names with an extension from those without one.
#[derive(Debug, Default)]
pub(super) struct Pages {
    with_extension: OnceCell<Option<Page>>,
    without: OnceCell<Option<Page>>,
    met: AtomicBool,
}

/// What a server answers for what is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// Its size in bytes.
    pub(super) size: u64,
}

impl Pages {
    /// What the server answers for a name like this key that nobody can have; none when it says that there is nothing.
    /// It is asked once.
    pub(super) async fn ask<E>(
        &self,
        key: &str,
        ask: impl Future<Output = Result<Option<Page>, E>>,
    ) -> Result<Option<Page>, E> {
        let cell = if extension(key).is_some() { &self.with_extension } else { &self.without };
        let page = *cell.get_or_try_init(|| ask).await?;
        if page.is_some() {
            self.met.store(true, Ordering::Relaxed);
        }
        Ok(page)
    }

    /// Whether a page was met.
    pub(super) fn were_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }
}

/// The key to ask for in the place of another.
pub(super) fn nobody(key: &str) -> String {
    let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
    let name = match extension(name) {
        Some(extension) => format!("{NOBODY}.{extension}"),
        None => NOBODY.to_owned(),
    };
    match folder.is_empty() {
        true => name,
        false => format!("{folder}/{name}"),
    }
}

fn extension(key: &str) -> Option<&str> {
    let name = key.rsplit('/').next().unwrap_or(key);
    // The dots of a ref's name are no extension to us, but they are to a server.
    name.rsplit_once('.').map(|(_, extension)| extension).filter(|extension| !extension.is_empty())
}

/// Whether the content says what it is: a text of ours. Anything else is a catalog or a data file.
pub(super) fn is_text(key: &str) -> bool {
    key == "HEAD" || key.starts_with("refs/") || key.ends_with(".json") || key.ends_with(".json.sig")
}

/// Whether an answer calls itself a page.
pub(super) fn calls_itself_page(incoming: &Incoming) -> bool {
    incoming.header(CONTENT_TYPE).is_some_and(|kind| kind.to_ascii_lowercase().contains("html"))
}

/// Whether a content cannot be that of its key. What is damaged looks so too.
pub(super) fn is_odd(key: &str, content: &[u8]) -> bool {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content).trim_ascii();
    if key.ends_with(".json.sig") {
        return !content.starts_with(b"-----BEGIN");
    }
    if key == "HEAD" {
        return !content.starts_with(b"ref:");
    }
    if key.starts_with("refs/") {
        return content.len() > LONGEST_REF || content.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'<');
    }
    if !key.ends_with(".json") {
        return false;
    }
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(content) {
        Ok(json) => key.ends_with("/expired.json") && !json.contains_key("fdl") && !json.contains_key("reason"),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_a_name_of_the_same_kind() {
        for (key, asked) in [
            ("versions/ID/expired.json", "versions/ID/--fdl-looks-for-nothing--.json"),
            ("refs/tags/v1", "refs/tags/--fdl-looks-for-nothing--"),
            ("fdl.json", "--fdl-looks-for-nothing--.json"),
            ("HEAD", "--fdl-looks-for-nothing--"),
        ] {
            assert_eq!(nobody(key), asked);
        }
    }

    #[test]
    fn knows_what_cannot_be() {
        let id = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10\n";
        for (key, content, odd) in [
            ("HEAD", "ref: refs/heads/main\n", false),
            ("HEAD", "<!doctype html>", true),
            ("refs/heads/main", id, false),
            ("refs/heads/main", "\u{feff}019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10\r\n", false),
            ("refs/tags/v1.0", "<html></html>", true),
            ("refs/tags/v1.0", "not found", true),
            ("fdl.json", "{\"fdl\": \"0.1\"}", false),
            ("fdl.json", "", true),
            ("versions/ID/expired.json", "{\"fdl\": \"0.1\"}", false),
            ("versions/ID/expired.json", "{\"reason\": \"withdrawn\"}", false),
            ("versions/ID/expired.json", "{\"error\": \"not found\"}", true),
            ("versions/ID/version.json.sig", "-----BEGIN SSH SIGNATURE-----", false),
            ("versions/ID/version.json.sig", "<html>", true),
            ("versions/ID/ducklake.duckdb", "<html>", false),
        ] {
            assert_eq!(is_odd(key, content.as_bytes()), odd, "{key} {content}");
        }
    }
}
