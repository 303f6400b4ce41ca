//! Answers that are no success, and the reason in them.

use std::fmt;

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

/// The longest reason that is passed on, in characters.
const MOST: usize = 500;

/// What a server said instead of doing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Answer {
    /// The status.
    pub(in crate::store) status: StatusCode,
    /// The server's own word for the reason (`NoSuchBucket`, `not-complete`), where it gives one.
    pub(in crate::store) code: Option<String>,
    /// The reason, where it gives one.
    pub(in crate::store) message: Option<String>,
    /// When it asks to be asked again, as it says that.
    pub(in crate::store) retry_after: Option<String>,
}

impl std::error::Error for Answer {}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.message, &self.code) {
            (Some(message), Some(code)) => write!(f, "{message} ({code}, status {})", self.status.as_u16()),
            (Some(reason), None) | (None, Some(reason)) => write!(f, "{reason} (status {})", self.status.as_u16()),
            (None, None) => write!(f, "the answer was {}", self.status),
        }?;
        match &self.retry_after {
            Some(after) if after.bytes().all(|byte| byte.is_ascii_digit()) => {
                write!(f, "; it asks to try again in {after} s")
            }
            Some(after) => write!(f, "; it asks to try again at {after}"),
            None => Ok(()),
        }
    }
}

/// What a host answers (format.md section 14).
#[derive(Deserialize)]
struct Json {
    error: Option<String>,
    message: Option<String>,
}

impl Answer {
    #[cfg(test)]
    pub(in crate::store) fn of_status(status: StatusCode) -> Self {
        Self { status, code: None, message: None, retry_after: None }
    }

    /// Reads the reason from what hosts (JSON) and S3 (XML) answer; anything else gives none.
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, content: &[u8]) -> Self {
        let text = String::from_utf8_lossy(content);
        let (code, message) = match serde_json::from_str::<Json>(&text) {
            Ok(json) => (json.error, json.message),
            Err(_) => (element(&text, "Code"), element(&text, "Message")),
        };
        let region = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let elsewhere = || region.map(|region| format!("the bucket is in the region {region}"));
        let redirected = status.is_redirection() || status == StatusCode::BAD_REQUEST;
        let message = match redirected.then(elsewhere).flatten() {
            Some(elsewhere) => Some(elsewhere),
            None => message,
        };
        let after = headers.get(http::header::RETRY_AFTER).and_then(|after| after.to_str().ok());
        Self {
            status,
            code: code.map(|code| tidy(&code)),
            message: message.map(|message| tidy(&message)),
            retry_after: after.map(tidy),
        }
    }

    /// Whether it speaks of the moment and not of the request.
    pub(in crate::store) fn is_passing(&self) -> bool {
        super::is_passing(self.status)
            || self.is(&["ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"])
    }

    /// Whether the reason is one of these words of S3.
    pub(in crate::store) fn is(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }
}

/// A text of somebody else, made fit for a message: one line, no control characters, not endless.
pub(in crate::store) fn tidy(text: &str) -> String {
    let words: Vec<_> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The text of the first element of this name. Errors of S3 are flat, so this takes no parser.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain));
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, content: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        Answer::new(status, &HeaderMap::new(), content.as_bytes()).to_string()
    }

    #[test]
    fn passes_on_the_reason() {
        let xml = "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Not &lt;you&gt;</Message></Error>";
        assert_eq!(said(403, xml), "Not <you> (AccessDenied, status 403)");
        assert_eq!(said(409, r#"{"error":"behind","message":"main\nmoved"}"#), "main moved (behind, status 409)");
        assert_eq!(said(409, r#"{"message":"m"}"#), "m (status 409)");
        for page in ["", "<html>no</html>", "[1]", "\"text\"", "\u{0}"] {
            assert_eq!(said(502, page), "the answer was 502 Bad Gateway");
        }
    }

    #[test]
    fn a_reason_is_one_line_and_not_endless() {
        let long = said(400, &format!(r#"{{"message":"{}\u001b[31m"}}"#, "ä\\n".repeat(10_000)));
        assert!(long.chars().count() < 600 && !long.contains(char::is_control), "{long}");
    }

    #[test]
    fn says_when_to_ask_again() {
        for (value, told) in
            [("7200", "in 7200 s"), ("Wed, 21 Oct 2015 07:28:00 GMT", "at Wed, 21 Oct 2015 07:28:00 GMT")]
        {
            let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, value.parse().unwrap())]);
            let answer = Answer::new(StatusCode::SERVICE_UNAVAILABLE, &headers, b"");
            let text = format!("the answer was 503 Service Unavailable; it asks to try again {told}");
            assert_eq!(answer.to_string(), text);
        }
    }

    #[test]
    fn names_the_region_of_a_bucket_elsewhere() {
        let headers = HeaderMap::from_iter([("x-amz-bucket-region".parse().unwrap(), "eu-west-1".parse().unwrap())]);
        let answer = Answer::new(StatusCode::MOVED_PERMANENTLY, &headers, b"");
        assert_eq!(answer.to_string(), "the bucket is in the region eu-west-1 (status 301)");
    }
}
