//! The answers of the host: what every one carries, and refusals as JSON.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use crate::format::{Expired, FormatError, Reason, VersionId};
use crate::repo::RepoError;
use crate::store::StoreError;

/// The version that `/ducklake.duckdb` is the catalog of.
pub(super) const FDL_VERSION: HeaderName = HeaderName::from_static("fdl-version");

/// What a browser lets a page see of an answer.
const EXPOSED: &str = "Accept-Ranges, Content-Length, Content-Range, ETag, FDL-Version, Last-Modified";

/// Why a request is not done: a status and the body `{"error": "<code>", "message": "…"}`.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), headers: Vec::new() }
    }

    /// The same refusal with a header. A value that cannot be one is left out.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// 400: the request itself makes no sense.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "FDL-BAD-ARGUMENT", message)
    }

    /// 403: not for this client, or for nobody.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "FDL-PERMISSION", message)
    }

    /// 404: nothing there.
    pub(super) fn not_found(key: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "FDL-NOT-FOUND", format!("there is no {key} here"))
    }

    /// 405: there, but not to be used so.
    pub(super) fn method(allowed: &'static str) -> Self {
        let message = format!("only {allowed} can be asked of this path");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "FDL-BAD-ARGUMENT", message).with(header::ALLOW, allowed)
    }

    /// 409: a check failed, or the bytes are others than those there.
    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 412: the condition of the request does not hold.
    pub(super) fn precondition(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "FDL-CONFLICT", message)
    }

    /// 413: more than the host takes.
    pub(super) fn too_large(limit: u64) -> Self {
        let message = format!("the body is longer than {limit} bytes, the most that is taken here");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "FDL-BAD-ARGUMENT", message)
    }

    /// 500: a fault of the host.
    pub(super) fn internal() -> Self {
        let message = "an internal error stopped the request";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "FDL-STORE", message)
    }

    /// The host's store could not be read.
    pub(super) fn unread(error: &StoreError) -> Self {
        match error {
            StoreError::NotFound { key } => Self::not_found(key),
            // Symbolic links and folders: nothing that is served.
            StoreError::BadKey { key, .. } | StoreError::NotRegular { key, .. } => Self::not_found(key),
            // S3 says so of absent keys where listing is not allowed; readers know (docs/format.md section 10).
            StoreError::Permission { key, .. } => Self::forbidden(format!("the host may not read {key}")),
            _ => Self::store(error),
        }
    }

    /// The host's store could not be written. Never 403: to a writer that would mean that it may go on without the
    /// write (docs/format.md section 14).
    pub(super) fn unwritten(error: &StoreError) -> Self {
        match error {
            StoreError::BadKey { key, why } => {
                Self::new(StatusCode::BAD_REQUEST, "FDL-BAD-PATH", format!("{key:?} cannot be written: {why}"))
            }
            StoreError::NotRegular { key, .. } => {
                Self::new(StatusCode::BAD_REQUEST, "FDL-BAD-PATH", format!("{key:?} cannot be written"))
            }
            StoreError::NoSpace { .. } => Self::full(),
            _ => Self::store(error),
        }
    }

    /// 507: no space left on the host.
    pub(super) fn full() -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "FDL-STORE", "the host has no space left")
    }

    /// What went wrong behind the host. What its store said may name paths and machines, so it is not passed on.
    fn store(error: &StoreError) -> Self {
        let (status, message) = match error {
            StoreError::Failed { key, action, .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("the host could not {action} {key}"))
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "the host's store does not let it do this".to_owned()),
        };
        let refusal = Self::new(status, "FDL-STORE", message);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => refusal.with(header::RETRY_AFTER, "1"),
            _ => refusal,
        }
    }

    /// The repository is not as it should be, or cannot be read.
    pub(super) fn repository(error: RepoError) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        match error {
            RepoError::Store(error) => Self::unread(&error),
            RepoError::NotARepository { .. } => Self::no_repository(),
            RepoError::Expired { .. } => Self::new(StatusCode::GONE, "FDL-EXPIRED", error.to_string()),
            RepoError::Withdrawn { .. } => Self::new(StatusCode::GONE, "FDL-WITHDRAWN", error.to_string()),
            RepoError::NoSuchVersion { .. } | RepoError::NoSuchRef { .. } | RepoError::Unborn { .. } => {
                Self::new(StatusCode::NOT_FOUND, "FDL-NOT-FOUND", error.to_string())
            }
            RepoError::UnsupportedVersion { .. } => Self::new(status, "FDL-UNSUPPORTED-VERSION", error.to_string()),
            RepoError::Local { .. } => Self::internal(),
            error => Self::new(status, "FDL-CORRUPT", error.to_string()),
        }
    }

    /// 410: the version is past retention or withdrawn.
    pub(super) fn marked(id: VersionId, mark: Expired) -> Self {
        Self::repository(match mark.reason {
            Some(Reason::Withdrawn) => RepoError::Withdrawn { id, mark },
            _ => RepoError::Expired { id, mark },
        })
    }

    /// The same refusal as the answer to a push that does not pass its checks (docs/format.md section 14).
    pub(super) fn failed_check(mut self) -> Self {
        if self.status != StatusCode::SERVICE_UNAVAILABLE {
            self.status = StatusCode::CONFLICT;
        }
        self
    }

    /// 404: nothing has been started here.
    pub(super) fn no_repository() -> Self {
        Self::new(StatusCode::NOT_FOUND, "FDL-NOT-A-REPOSITORY", "there is no repository here: it has no fdl.json")
    }

    /// 400: what was sent is not what the format asks for.
    pub(super) fn format(error: &FormatError) -> Self {
        let code = match error {
            FormatError::BadName { .. } => "FDL-BAD-NAME",
            FormatError::BadPath { .. } => "FDL-BAD-PATH",
            FormatError::BadJson { .. } | FormatError::BadRef { .. } => "FDL-CORRUPT",
            FormatError::TooLarge { .. } => "FDL-BAD-ARGUMENT",
            FormatError::UnsupportedVersion { .. } => "FDL-UNSUPPORTED-VERSION",
            FormatError::BadId { .. } | FormatError::BadRevision { .. } | FormatError::BadValue { .. } => {
                "FDL-BAD-ARGUMENT"
            }
        };
        Self::new(StatusCode::BAD_REQUEST, code, error.to_string())
    }

    /// The answer.
    pub(super) fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Content<'a> {
            error: &'a str,
            message: &'a str,
        }
        let mut response = json(self.status, &Content { error: self.code, message: &self.message });
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// An answer with a JSON body.
pub(super) fn json(status: StatusCode, content: &impl Serialize) -> Response {
    let mut bytes = serde_json::to_vec(content).unwrap_or_default();
    bytes.push(b'\n');
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// What is permitted to a page of another origin: to read.
pub(super) fn preflight() -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Range, If-Range, If-Match, If-None-Match"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
        (header::ALLOW, "GET, HEAD, PUT, POST, DELETE, OPTIONS"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// What every answer carries. One that says nothing of caches is kept by none.
pub(super) fn finish(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
