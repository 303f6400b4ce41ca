//! What the answers of S3 come to (format.md section 9).

use http::StatusCode;

use super::service::Cause;
use crate::store::net::{Answer, failed, hopeless};
use crate::store::{ConditionalWrite, StoreError};

/// Who asks, and of which bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who<'a> {
    /// Whether requests are not signed, because no credentials were found or wanted.
    pub(super) anonymous: bool,
    /// The name of the bucket.
    pub(super) bucket: &'a str,
}

/// What an answer to a conditional write means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// `If-None-Match: *`
    Absent,
    /// `If-Match`
    Unchanged,
}

/// An answer that says that a condition did not hold, or that another write to the same key was under way; whoever asked
/// reads back. Anything else is an error.
pub(super) fn refusal(
    key: &str,
    condition: Condition,
    cause: Cause,
    who: Who<'_>,
) -> Result<ConditionalWrite, StoreError> {
    match &cause {
        Cause::Answer(answer) if is_refusal(condition, answer) => Ok(ConditionalWrite::Refused),
        Cause::Answer(answer) if answer.status == StatusCode::NOT_IMPLEMENTED || answer.is(&["NotImplemented"]) => {
            Err(StoreError::Unsupported { store: "this S3 service", action: "write on condition" })
        }
        _ => Err(unwritten(key, cause, who)),
    }
}

/// A write that failed.
pub(super) fn unwritten(key: &str, cause: Cause, who: Who<'_>) -> StoreError {
    match fault(key, "write", cause, who) {
        // Would speak of the object, which need not be there.
        StoreError::NotFound { key } => hopeless(&key, "write", format!("the bucket {} was not found", who.bucket)),
        error => error,
    }
}

fn is_refusal(condition: Condition, answer: &Answer) -> bool {
    match answer.status.as_u16() {
        // ConditionalRequestConflict and its like. Nothing was written.
        304 | 409 | 412 => true,
        404 => condition == Condition::Unchanged && !answer.is(&["NoSuchBucket"]),
        _ => false,
    }
}

/// Any other request that failed.
pub(super) fn fault(key: &str, action: &'static str, cause: Cause, who: Who<'_>) -> StoreError {
    match cause {
        Cause::Answer(answer) => match answer.status.as_u16() {
            404 if answer.is(&["NoSuchBucket"]) => {
                hopeless(key, action, format!("there is no such bucket as {} (NoSuchBucket)", who.bucket))
            }
            404 => StoreError::NotFound { key: key.to_owned() },
            401 | 403 => denied(key, action, answer, who.anonymous),
            400 if answer.is(&["ExpiredToken", "InvalidToken", "TokenRefreshRequired"]) => {
                denied(key, action, answer, who.anonymous)
            }
            507 => StoreError::NoSpace { key: key.to_owned(), source: Box::new(answer) },
            _ => failed(key, action, answer),
        },
        Cause::Net(error) => failed(key, action, error),
        // Holds no secret: URLs are those of objects, and nothing in them is signed.
        Cause::Other(error) => failed(key, action, error),
    }
}

fn denied(key: &str, action: &'static str, answer: Answer, anonymous: bool) -> StoreError {
    // A service may repeat the request that it turns down, credentials among it.
    let answer = Answer { message: None, ..answer };
    let source = match anonymous {
        false => Box::new(answer).into(),
        true => format!("{answer}; no credentials were found, so the request was not signed").into(),
    };
    StoreError::Permission { key: key.to_owned(), action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: Who<'static> = Who { anonymous: false, bucket: "lake" };

    fn answer(status: u16, code: &str) -> Cause {
        let status = StatusCode::from_u16(status).unwrap();
        Cause::Answer(Answer { status, code: Some(code.to_owned()), message: None, retry_after: None })
    }

    #[test]
    fn tells_refusals_from_errors() {
        let refused = |condition, status, code| {
            matches!(refusal("k", condition, answer(status, code), SIGNED), Ok(ConditionalWrite::Refused))
        };
        for condition in [Condition::Absent, Condition::Unchanged] {
            assert!(refused(condition, 412, "PreconditionFailed"));
            assert!(refused(condition, 409, "ConditionalRequestConflict"));
            for (status, code) in [(404, "NoSuchBucket"), (403, "AccessDenied"), (500, "InternalError")] {
                assert!(!refused(condition, status, code), "{status}");
            }
        }
        assert!(refused(Condition::Unchanged, 404, "NoSuchKey"));
        assert!(!refused(Condition::Absent, 404, "NoSuchKey"));
        let unknown = refusal("k", Condition::Absent, answer(501, "NotImplemented"), SIGNED);
        assert!(matches!(unknown, Err(StoreError::Unsupported { .. })));
    }

    #[test]
    fn maps_answers_to_the_closed_list() {
        let map = |status, code| fault("k", "read", answer(status, code), Who { anonymous: true, ..SIGNED });
        assert!(matches!(map(404, "NoSuchKey"), StoreError::NotFound { .. }));
        assert!(matches!(map(404, "NoSuchBucket"), StoreError::Failed { .. }));
        assert!(matches!(map(400, "ExpiredToken"), StoreError::Permission { .. }));
        assert!(matches!(map(400, "InvalidArgument"), StoreError::Failed { .. }));
        assert!(matches!(map(507, "XMinioStorageFull"), StoreError::NoSpace { .. }));
        let StoreError::Permission { source, .. } = map(403, "AccessDenied") else { panic!() };
        assert!(source.to_string().contains("no credentials"), "{source}");
    }
}
