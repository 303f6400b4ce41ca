//! What the answers of a host, or of any other HTTP server, come to (format.md section 14).

use http::StatusCode;

use crate::store::net::{Answer, NetError, failed, hopeless};
use crate::store::{ConditionalWrite, StoreError};

/// What this store is called in messages.
pub(super) const NAME: &str = "this HTTP server";

/// There was no answer.
pub(super) fn unanswered(key: &str, action: &'static str, error: NetError) -> StoreError {
    failed(key, action, error)
}

/// An answer to a read that is no success.
pub(super) fn unread(key: &str, answer: Answer) -> StoreError {
    match answer.status.as_u16() {
        404 | 410 => StoreError::NotFound { key: key.to_owned() },
        401 | 403 => denied(key, "read", answer),
        _ => failed(key, "read", answer),
    }
}

/// An answer to a write or a delete that is no success.
pub(super) fn unwritten(key: &str, action: &'static str, answer: Answer) -> StoreError {
    let status = answer.status;
    match status.as_u16() {
        401 | 403 => denied(key, action, answer),
        405 | 501 => StoreError::Unsupported {
            store: NAME,
            action: if action == "delete" { "delete objects" } else { "write objects" },
        },
        507 => StoreError::NoSpace { key: key.to_owned(), source: Box::new(answer) },
        300..=399 => hopeless(key, action, "the server sends writes to another address; use that one as the location"),
        408 | 429 | 499 => failed(key, action, answer),
        400..=499 => {
            let code = answer.code.clone();
            let reason = match (answer.message, answer.code) {
                (Some(message), Some(code)) => format!("{message} ({code})"),
                (Some(reason), None) | (None, Some(reason)) => reason,
                (None, None) => format!("the answer was {status}"),
            };
            StoreError::Rejected { key: key.to_owned(), status: status.as_u16(), code, reason }
        }
        _ => failed(key, action, answer),
    }
}

/// An answer to a write on condition that is no success. `replaces` is whether the object had to be there.
pub(super) fn refusal(
    key: &str,
    action: &'static str,
    replaces: bool,
    answer: Answer,
) -> Result<ConditionalWrite, StoreError> {
    match answer.status {
        StatusCode::PRECONDITION_FAILED => Ok(ConditionalWrite::Refused),
        StatusCode::NOT_FOUND | StatusCode::GONE if replaces => Ok(ConditionalWrite::Refused),
        // Storage behind a server answers so while another write is under way. A host gives a reason.
        StatusCode::CONFLICT if answer.code.is_none() && answer.message.is_none() => Ok(ConditionalWrite::Refused),
        _ => Err(unwritten(key, action, answer)),
    }
}

fn denied(key: &str, action: &'static str, answer: Answer) -> StoreError {
    StoreError::Permission { key: key.to_owned(), action, source: Box::new(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> Answer {
        let message = Some("the reason".to_owned());
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            code: Some("code".to_owned()),
            message,
            retry_after: None,
        }
    }

    #[test]
    fn keeps_the_reason_of_a_host() {
        match unwritten("k", "write", answer(409)) {
            StoreError::Rejected { key, status, code, reason } => {
                assert_eq!((key.as_str(), status, reason.as_str()), ("k", 409, "the reason (code)"));
                assert_eq!(code.as_deref(), Some("code"));
            }
            error => panic!("{error:?}"),
        }
        for status in [401, 403] {
            let StoreError::Permission { source, .. } = unwritten("k", "write", answer(status)) else { panic!() };
            assert!(source.to_string().contains("the reason"), "{source}");
        }
    }

    #[test]
    fn tells_what_was_surely_not_written() {
        for status in [400, 404, 409, 412, 413, 422] {
            assert!(matches!(unwritten("k", "write", answer(status)), StoreError::Rejected { .. }), "{status}");
        }
        for status in [301, 408, 429, 499, 500, 502, 503, 504] {
            assert!(matches!(unwritten("k", "write", answer(status)), StoreError::Failed { .. }), "{status}");
        }
        for status in [405, 501] {
            assert!(matches!(unwritten("k", "write", answer(status)), StoreError::Unsupported { .. }), "{status}");
        }
        assert!(matches!(unwritten("k", "write", answer(507)), StoreError::NoSpace { .. }));
        assert!(matches!(unread("k", answer(410)), StoreError::NotFound { .. }));
        assert!(matches!(unread("k", answer(400)), StoreError::Failed { .. }));
    }

    #[test]
    fn tells_refusals_from_errors() {
        let refused =
            |replaces, status| matches!(refusal("k", "write", replaces, answer(status)), Ok(ConditionalWrite::Refused));
        assert!(refused(true, 412) && refused(false, 412) && refused(true, 404));
        let wordless = Answer::of_status(StatusCode::CONFLICT);
        assert!(matches!(refusal("k", "write", true, wordless), Ok(ConditionalWrite::Refused)));
        assert!(!refused(false, 404) && !refused(true, 409) && !refused(false, 409) && !refused(true, 403));
    }
}
