//! The answers of the host: what every one carries, and refusals as JSON.

use std::fmt::Display;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use crate::format::{Code, Expired, FormatError, Reason, RefName, VersionId};
use crate::repo::RepoError;
use crate::store::{StoreError, key};

/// The version that `/ducklake.duckdb` is the catalog of.
pub(super) const FDL_VERSION: HeaderName = HeaderName::from_static("fdl-version");

/// What a browser lets a page see of an answer.
const EXPOSED: &str = "Accept-Ranges, Content-Length, Content-Range, ETag, FDL-Version, Last-Modified";

/// How many characters of a sentence are sent at the most.
const LONGEST: usize = 600;

/// Why a request is not done: a status and the body `{"error": "<code>", "message": "…", "id": "…"}`.
///
/// The message is a sentence of this host. What a store, the system or DuckDB said may name paths and machines, or hold the
/// content of a file: it is the cause, which only the host's own log is told.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: Code,
    pub(super) message: String,
    /// A word for programs, where the code does not say enough.
    reason: Option<&'static str>,
    cause: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), reason: None, cause: None, headers: Vec::new() }
    }

    /// The same refusal with a header. A value that cannot be one is left out.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// The same refusal with what is behind it, for the log alone.
    pub(super) fn because(mut self, cause: impl Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// 400: the request itself makes no sense.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::BadArgument, message)
    }

    /// 403: not for this client, or for nobody.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, Code::Permission, message)
    }

    /// 404: nothing there.
    pub(super) fn not_found(key: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, format!("there is no {} here", shown(key)))
    }

    /// 405: there, but not to be used so.
    pub(super) fn method(allowed: &'static str) -> Self {
        let message = format!("only {allowed} can be asked of this path");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Code::BadArgument, message).with(header::ALLOW, allowed)
    }

    /// 409: a check failed, or the bytes are others than those there.
    pub(super) fn conflict(code: Code, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 409: the version does not build on what the branch holds. A writer that has several versions between the two moves
    /// the branch to one after the other (docs/format.md section 14).
    pub(super) fn not_a_child(message: impl Into<String>) -> Self {
        Self { reason: Some("not-a-child"), ..Self::conflict(Code::Conflict, message) }
    }

    /// 409: something of a push is not as it must be.
    pub(super) fn corrupt(key: &str, why: &str) -> Self {
        Self::conflict(Code::Corrupt, format!("{}: {why}", shown(key)))
    }

    /// 412: the condition of the request does not hold.
    pub(super) fn precondition(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, Code::Conflict, message)
    }

    /// 413: more than the host takes.
    pub(super) fn too_large(limit: u64) -> Self {
        let message = format!("the body is longer than {limit} bytes, the most that is taken here");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Code::BadArgument, message)
    }

    /// 428: a request that may only be sent on condition.
    pub(super) fn condition_required(name: &RefName) -> Self {
        let message = format!(
            "{name} is written on condition: send If-Match with the ETag that it was read with, or If-None-Match: * for a \
             new one"
        );
        Self::new(StatusCode::PRECONDITION_REQUIRED, Code::BadArgument, message)
    }

    /// 503: the host cannot do it now.
    pub(super) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Store, message).with(header::RETRY_AFTER, "1")
    }

    /// 500: a fault of the host.
    pub(super) fn internal(cause: impl Display) -> Self {
        let message = "an internal error stopped the request";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Store, message).because(cause)
    }

    /// The host's store could not be read.
    pub(super) fn unread(error: &StoreError) -> Self {
        match error {
            StoreError::NotFound { key } => Self::not_found(key),
            // Symbolic links and folders: nothing that is served.
            StoreError::BadKey { key, .. } | StoreError::NotRegular { key, .. } => Self::not_found(key),
            // S3 says so of absent keys where listing is not allowed; readers know (docs/format.md section 10).
            StoreError::Permission { key, .. } => {
                Self::forbidden(format!("the host may not read {}", shown(key))).because(chain(error))
            }
            _ => Self::store(error),
        }
    }

    /// The host's store could not be written. Never 403: to a writer that would mean that it may go on without the
    /// write (docs/format.md section 14).
    pub(super) fn unwritten(error: &StoreError) -> Self {
        match error {
            StoreError::BadKey { key, why } => {
                let message = format!("{} cannot be written: {why}", shown(key));
                Self::new(StatusCode::BAD_REQUEST, Code::BadPath, message)
            }
            StoreError::NotRegular { key, .. } => {
                let message = format!("{} cannot be written", shown(key));
                Self::new(StatusCode::BAD_REQUEST, Code::BadPath, message).because(chain(error))
            }
            StoreError::NoSpace { .. } => Self::full(chain(error)),
            _ => Self::store(error),
        }
    }

    /// 507: no space left on the host.
    pub(super) fn full(cause: impl Display) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, Code::Store, "the host has no space left").because(cause)
    }

    /// What went wrong behind the host.
    fn store(error: &StoreError) -> Self {
        let refusal = match error {
            StoreError::Failed { key, action, .. } => Self::busy(format!("the host could not {action} {}", shown(key))),
            _ => {
                let message = "the host's store does not let it do this";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Store, message)
            }
        };
        refusal.because(chain(error))
    }

    /// The repository is not as it should be, or cannot be read.
    pub(super) fn repository(error: RepoError) -> Self {
        let cause = error.to_string();
        let (status, code, message) = match error {
            RepoError::Store(error) => return Self::unread(&error),
            RepoError::Format(error) => return Self::format(&error),
            RepoError::Local { .. } => return Self::internal(cause),
            RepoError::NotARepository { .. } => return Self::no_repository(),
            // Sentences of our own, with names and IDs in them.
            RepoError::Expired { .. } => (StatusCode::GONE, Code::Expired, cause.clone()),
            RepoError::Withdrawn { .. } => (StatusCode::GONE, Code::Withdrawn, cause.clone()),
            RepoError::NoSuchVersion { .. }
            | RepoError::NoSuchRef { .. }
            | RepoError::NoSuchAncestor { .. }
            | RepoError::PrefixNeedsListing { .. }
            | RepoError::Unborn { .. } => (StatusCode::NOT_FOUND, Code::NotFound, cause.clone()),
            RepoError::AmbiguousPrefix { .. } | RepoError::AmbiguousName { .. } => {
                (StatusCode::CONFLICT, Code::Ambiguous, cause.clone())
            }
            RepoError::Exists { .. } | RepoError::NameTaken { .. } => {
                (StatusCode::CONFLICT, Code::Exists, cause.clone())
            }
            RepoError::DefaultBranch { .. } => (StatusCode::FORBIDDEN, Code::Permission, cause.clone()),
            RepoError::WrongKind { .. } => (StatusCode::BAD_REQUEST, Code::BadArgument, cause.clone()),
            RepoError::Conflict { .. } => (StatusCode::PRECONDITION_FAILED, Code::Conflict, cause.clone()),
            RepoError::UnsupportedVersion { .. } | RepoError::OtherFormats { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, Code::UnsupportedVersion, cause.clone())
            }
            RepoError::UnknownOutcome { .. } | RepoError::Rejected { .. } => {
                return Self::busy("the host's store did not say whether it moved the ref").because(cause);
            }
            RepoError::UnknownWrite { .. } => {
                return Self::busy("the host's store did not say whether it wrote the object").because(cause);
            }
            RepoError::NoConditions { .. } => {
                let message = "the host's store ignores conditions, so nothing is written to it".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, Code::Store, message)
            }
            RepoError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, Code::BadArgument, cause.clone()),
            RepoError::Corrupt { object, .. } => {
                let message = format!("{} of this repository is damaged", shown(&object));
                (StatusCode::INTERNAL_SERVER_ERROR, Code::Corrupt, message)
            }
        };
        let refusal = Self::new(status, code, message);
        match refusal.message == cause {
            true => refusal,
            false => refusal.because(cause),
        }
    }

    /// The same of what a writer has brought: it is told what is wrong with it, and never 403.
    pub(super) fn of_push(error: RepoError) -> Self {
        match error {
            RepoError::Store(error) => Self::unwritten(&error),
            RepoError::Corrupt { object, why } => Self::corrupt(&object, &why),
            RepoError::Local { .. } => Self::repository(error),
            error => Self::repository(error).failed_check(),
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
        let message = "there is no repository here: it has no fdl.json";
        Self::new(StatusCode::NOT_FOUND, Code::NotARepository, message)
    }

    /// 400: what was sent is not what the format asks for.
    pub(super) fn format(error: &FormatError) -> Self {
        let code = match error {
            FormatError::BadName { .. } => Code::BadName,
            FormatError::BadPath { .. } => Code::BadPath,
            FormatError::BadJson { .. } | FormatError::BadRef { .. } => Code::Corrupt,
            FormatError::TooLarge { .. } => Code::BadArgument,
            FormatError::UnsupportedVersion { .. } => Code::UnsupportedVersion,
            FormatError::BadId { .. } | FormatError::BadRevision { .. } | FormatError::BadValue { .. } => {
                Code::BadArgument
            }
        };
        Self::new(StatusCode::BAD_REQUEST, code, error.to_string())
    }

    /// What the log says of it.
    pub(super) fn told(&self) -> String {
        let (status, code, message) = (self.status.as_u16(), self.code, &self.message);
        let cause = self.cause.as_ref().map(|cause| format!("; cause: {cause}")).unwrap_or_default();
        format!("{status} {code}: {message}{cause}")
    }

    /// The answer. By the ID its reader and the host's log speak of the same request.
    pub(super) fn into_response(self, id: &str) -> Response {
        #[derive(Serialize)]
        struct Content<'a> {
            error: &'a str,
            message: &'a str,
            id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'a str>,
        }
        let mut message: String = self.message.chars().take(LONGEST).collect();
        if message.len() < self.message.len() {
            message.push('…');
        }
        if self.cause.is_some() {
            message.push_str(&format!("; the host's log has the cause under {id}"));
        }
        let content = Content { error: self.code.as_str(), message: &message, id, reason: self.reason };
        let mut response = json(self.status, &content);
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// A key as part of a sentence. A store may name a file of this machine in its place, which is nobody's business.
fn shown(key: &str) -> &str {
    match key::check(key) {
        Ok(()) => key,
        Err(_) => "a file",
    }
}

/// An error and what is behind it, for the log.
fn chain(error: &StoreError) -> String {
    let mut told = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !told.contains(&more) {
            told.push_str(": ");
            told.push_str(&more);
        }
        source = error.source();
    }
    told
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
