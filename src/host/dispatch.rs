//! From a request to its answer.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use futures::FutureExt;

use super::answer::{self, Refusal};
use super::batch;
use super::counters::Counters;
use super::peers::Arrived;
use super::read;
use super::reference;
use super::shared::Shared;
use super::target::Target;
use super::upload::Upload;
use super::write;

/// Answers one request, which goes on until its answer has been taken. A panic is one 500, and the host stays up.
pub(super) async fn handle(
    shared: Arc<Shared>,
    from: SocketAddr,
    mut arrived: Arrived,
    request: Request<Body>,
) -> Response {
    Counters::add(&shared.counters.requests, 1);
    let (parts, body) = request.into_parts();
    let answered = match arrived.slot().await {
        true => guarded(&shared, &parts, body).await,
        false => Err(Refusal::busy("the host answers as many requests as it can, or as many of your address")),
    };
    let response = answered.unwrap_or_else(|refusal| {
        // Without the query: nothing of ours is in one.
        let (method, path) = (&parts.method, parts.uri.path());
        let id = shared.log(format_args!("{from} {method} {path} {}", refusal.told()));
        refusal.into_response(&id)
    });
    answer::finish(response).map(|body| arrived.until_sent(body))
}

async fn guarded(shared: &Arc<Shared>, parts: &Parts, body: Body) -> Result<Response, Refusal> {
    let mut upload = Upload::new(&parts.headers, body, &shared.options);
    let answered = AssertUnwindSafe(answer(shared, parts, &mut upload)).catch_unwind().await;
    // A client that still sends may never see an answer that ends the connection.
    upload.drain().await;
    answered.unwrap_or_else(|panic| Err(Refusal::internal(panic_text(panic.as_ref()))))
}

async fn answer(shared: &Arc<Shared>, parts: &Parts, upload: &mut Upload) -> Result<Response, Refusal> {
    if parts.method == Method::OPTIONS && parts.uri.path() == "*" {
        return Ok(answer::preflight());
    }
    let target = Target::parse(parts.uri.path())?;
    let (access, headers) = (&shared.access, &parts.headers);
    match parts.method {
        // A browser asks before it sends any token.
        Method::OPTIONS => Ok(answer::preflight()),
        Method::GET | Method::HEAD => {
            access.check_read(headers)?;
            read::object(shared, parts, target).await
        }
        Method::PUT => {
            access.check_write(headers)?;
            write::object(shared, headers, target, upload).await
        }
        Method::DELETE => {
            access.check_write(headers)?;
            match target {
                Target::Ref(name) => reference::delete(shared, headers, name).await,
                _ => Err(Refusal::forbidden("only refs are deleted over HTTP; the host's owner takes the rest away")),
            }
        }
        Method::POST if target == Target::Root && is_batch(parts.uri.query()) => {
            access.check_write(headers)?;
            batch::answer(shared, upload).await
        }
        Method::POST => Err(Refusal::method("GET, HEAD, PUT, OPTIONS")),
        _ => Err(Refusal::method("GET, HEAD, PUT, POST, DELETE, OPTIONS")),
    }
}

/// What a panic said, for the log.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a panic: {}", text.unwrap_or("without words"))
}

fn is_batch(query: Option<&str>) -> bool {
    matches!(query, Some("batch" | "batch="))
}

/// 200 for what was there already, 201 for what is new.
pub(super) fn written(new: bool) -> StatusCode {
    match new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}
