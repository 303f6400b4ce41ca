//! PUT and DELETE of refs: a ref moves only to a version that is whole, and only forward (docs/format.md sections 8, 14).

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures::TryStreamExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::format::{Code, RefKind, RefName, TEXT_LIMIT, VersionId, parse_ref, print_ref};
use crate::repo::{Held, list_refs, read_head, read_ref, refresh_refs_json};
use crate::store::{ConditionalWrite, ETag, StoreError};

use super::answer::{Refusal, empty};
use super::check;
use super::conditions::{is_conditional, tag_of};
use super::dispatch::written;
use super::history;
use super::options::MoveRefs;
use super::shared::Shared;
use super::upload::Upload;
use super::write::check_conditions;

/// Answers a PUT of a ref, whose body is a version ID.
///
/// It is written on condition (docs/format.md section 14), so that no writer passes over the work of another.
pub(super) async fn put(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    name: RefName,
    upload: &mut Upload,
) -> Result<Response, Refusal> {
    may_change(shared, &name)?;
    if !is_conditional(headers) {
        return Err(Refusal::condition_required(&name));
    }
    let bytes = upload.small(TEXT_LIMIT as u64).await?;
    let new = parse_ref(name.key(), &bytes).map_err(|error| Refusal::format(&error))?;
    let held = held(shared, headers, &name).await?;
    if held.as_ref().is_some_and(|held| held.version == new) {
        return Ok(answer(false, new));
    }
    let place = shared.check_place().await?;
    let limit = shared.options.limits.check;
    let checked = tokio::time::timeout(limit, check(shared, &place, &name, new, held.as_ref())).await;
    checked.unwrap_or_else(|_| Err(check::took_too_long(limit)))?;
    drop(place);
    let moved = Move { shared: Arc::clone(shared), name, new, held };
    shared.to_the_end(async move { moved.carry_out().await }).await
}

/// Answers a DELETE of a ref. The default branch stays.
pub(super) async fn delete(shared: &Arc<Shared>, headers: &HeaderMap, name: RefName) -> Result<Response, Refusal> {
    may_change(shared, &name)?;
    // A link or a pipe in its place is no ref of this repository.
    if let Err(error @ StoreError::NotRegular { .. }) = shared.store().head(name.key()).await {
        return Err(Refusal::unread(&error));
    }
    let Some(held) = held(shared, headers, &name).await? else {
        return Err(Refusal::not_found(name.key()));
    };
    if read_head(shared.store()).await.map_err(Refusal::repository)? == name {
        return Err(Refusal::forbidden(format!("{name} is the default branch")));
    }
    let store = Arc::clone(&shared.store);
    let step = async move {
        match store.delete_if_unchanged(name.key(), &held.etag).await {
            Ok(ConditionalWrite::Written) => {}
            Ok(ConditionalWrite::Refused) => return Err(moved_meanwhile(&name)),
            Err(error) => return Err(Refusal::unwritten(&error)),
        }
        // It may lag: the next change of a ref writes it.
        drop(refresh_refs_json(store.as_ref(), Some(&name)).await);
        Ok(empty(StatusCode::NO_CONTENT))
    };
    shared.to_the_end(step).await
}

/// Whether refs of this kind are changed over HTTP at all.
fn may_change(shared: &Shared, name: &RefName) -> Result<(), Refusal> {
    if shared.options.move_refs == MoveRefs::Nobody {
        return Err(Refusal::forbidden("refs are not moved over HTTP here; the host's owner moves them"));
    }
    if name.kind() == RefKind::Request {
        return Err(Refusal::forbidden("refs/requests/ is for the host's own use"));
    }
    Ok(())
}

/// What the ref holds, once the conditions of the request hold for it.
async fn held(shared: &Shared, headers: &HeaderMap, name: &RefName) -> Result<Option<Held>, Refusal> {
    let held = read_ref(shared.store(), name).await.map_err(Refusal::repository)?;
    let tag = held.as_ref().map(|held| tag_of(&held.etag));
    check_conditions(headers, name.key(), tag.as_deref()).map_err(|refusal| match &held {
        Some(held) => Refusal::precondition(format!("{name} is at {}", held.version)),
        None => refusal,
    })?;
    Ok(held)
}

/// Checks the push.
async fn check(
    shared: &Shared,
    place: &Arc<OwnedSemaphorePermit>,
    name: &RefName,
    new: VersionId,
    held: Option<&Held>,
) -> Result<(), Refusal> {
    let (store, data_dir) = (shared.store(), shared.data_dir().await?);
    let records = match (held, name.kind()) {
        (Some(held), RefKind::Tag) => {
            let message = format!("{name} exists and holds {}; tags are never moved", held.version);
            return Err(Refusal::conflict(Code::Exists, message));
        }
        (Some(held), _) => history::since(store, name, new, held.version).await?,
        (None, _) => {
            check_free(shared, name).await?;
            let refs = list_refs(store).await.map_err(Refusal::repository)?.refs;
            history::unpublished(store, new, refs.into_values()).await?
        }
    };
    check::complete(check::Check { shared, data_dir, place }, &records).await?;
    if records.is_empty() {
        // A ref to what is published already: it was checked when it became so, but may have been taken away since.
        let mark = crate::repo::read_mark(store, new).await.map_err(Refusal::repository)?;
        return mark.map_or(Ok(()), |mark| Err(Refusal::marked(new, mark).failed_check()));
    }
    Ok(())
}

/// A new name must not be the folder of another one, or below it (docs/format.md section 1).
async fn check_free(shared: &Shared, name: &RefName) -> Result<(), Refusal> {
    let names = shared.store().list(name.kind().folder());
    let names = names.try_filter_map(|meta| async move { Ok(RefName::parse(&meta.key).ok()) });
    let names: Vec<RefName> = match names.try_collect().await {
        Ok(names) => names,
        Err(StoreError::Unsupported { .. }) => Vec::new(),
        Err(error) => return Err(Refusal::unwritten(&error)),
    };
    match names.iter().find(|by| by.conflicts_with(name)) {
        Some(by) => {
            let message = format!("{name} cannot exist beside {by}: one would be the folder of the other");
            Err(Refusal::conflict(Code::Exists, message))
        }
        None => Ok(()),
    }
}

/// A move that has passed all checks.
struct Move {
    shared: Arc<Shared>,
    name: RefName,
    new: VersionId,
    held: Option<Held>,
}

impl Move {
    async fn carry_out(self) -> Result<Response, Refusal> {
        let store = self.shared.store();
        let (key, content) = (self.name.key(), print_ref(self.new).into());
        let write = match &self.held {
            Some(held) => store.put_if_unchanged(key, content, &held.etag).await,
            None => store.put_if_absent(key, content).await,
        };
        match write {
            Ok(ConditionalWrite::Written) => {}
            Ok(ConditionalWrite::Refused) => return Err(moved_meanwhile(&self.name)),
            Err(error) => {
                // The store's answer may have been lost.
                let now = read_ref(store, &self.name).await.ok().flatten();
                if now.is_none_or(|now| now.version != self.new) {
                    return Err(Refusal::unwritten(&error));
                }
            }
        }
        // It may lag: the next change of a ref writes it.
        drop(refresh_refs_json(store, Some(&self.name)).await);
        Ok(answer(self.held.is_none(), self.new))
    }
}

fn moved_meanwhile(name: &RefName) -> Refusal {
    Refusal::precondition(format!("somebody else has just changed {name}"))
}

/// The answer to a move, with the tag that the ref has where tags are hashes of the content.
fn answer(new: bool, version: VersionId) -> Response {
    let mut response = empty(written(new));
    let tag = tag_of(&ETag::of_content(print_ref(version).as_bytes()));
    if let Ok(tag) = tag.parse() {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
