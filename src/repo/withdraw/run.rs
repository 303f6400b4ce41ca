//! Carrying a withdrawal out, step by step.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::{DataDir, Expired, Files, Reason, RefKind, Timestamp, layout};
use crate::store::{Body, ConditionalWrite, Store};

use super::super::catalog::LookInto;
use super::super::error::RepoError;
use super::super::folders::list_folders;
use super::super::open::Repository;
use super::super::read::read_record;
use super::super::ref_change::delete_ref;
use super::super::refs::{list_refs, refresh_refs_json};
use super::sources;
use super::{WithdrawAction, WithdrawError, WithdrawPlan, WithdrawRow, named};

/// Carries a plan out, in its order. Gives its rows as they are now. Stopped at any point, the same call with a fresh
/// plan finishes it. `message` becomes part of the marks: it must not hold what is withdrawn.
///
/// # Errors
/// [`WithdrawError::Held`] and [`WithdrawError::Appeared`] when the repository has changed since the plan, before
/// anything is done; those of the store.
pub async fn run_withdraw(
    repository: &Repository,
    plan: WithdrawPlan,
    message: Option<&str>,
    look: LookInto<'_>,
    now: DateTime<Utc>,
) -> Result<Vec<WithdrawRow>, WithdrawError> {
    let mark =
        Expired { reason: Some(Reason::Withdrawn), at: Some(Timestamp::new(now)), message: message.map(str::to_owned) };
    run(repository.store(), &repository.settings().data_dir, plan, &mark, look).await
}

/// [`run_withdraw`] with these marks.
pub(super) async fn run(
    store: &dyn Store,
    data_dir: &DataDir,
    plan: WithdrawPlan,
    mark: &Expired,
    look: LookInto<'_>,
) -> Result<Vec<WithdrawRow>, WithdrawError> {
    check_again(store, data_dir, &plan, look).await?;
    for tag in &plan.tags {
        match delete_ref(store, tag).await {
            Ok(_) | Err(RepoError::NoSuchRef { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut rows = plan.rows;
    for row in rows.iter().filter(|row| row.action == WithdrawAction::Mark) {
        if let Some((id, _)) = layout::in_version(&row.object) {
            let bytes = mark.print(id).map_err(RepoError::from)?;
            // One that is past retention gets this mark instead.
            if store.put_if_absent(&row.object, bytes.clone().into()).await? == ConditionalWrite::Refused {
                store.put(&row.object, Body::Bytes(bytes.into())).await?;
            }
        }
    }
    let doomed = rows.iter().filter(|row| row.action == WithdrawAction::DeleteFile);
    let doomed: Vec<String> = doomed.map(|row| row.object.clone()).collect();
    store.delete_all(stream::iter(doomed).boxed()).try_for_each(|_| async { Ok(()) }).await?;
    for row in &mut rows {
        match row.action {
            WithdrawAction::DeletePart => store.delete(&row.object).await?,
            WithdrawAction::KeepFile { .. } | WithdrawAction::LeaveUnfinished => continue,
            WithdrawAction::DeleteTag | WithdrawAction::Mark | WithdrawAction::DeleteFile | WithdrawAction::Nothing => {
            }
        }
        row.done = true;
    }
    refresh_refs_json(store, None).await?;
    Ok(rows)
}

/// Looks once more at the heads, and at versions that were not there.
async fn check_again(
    store: &dyn Store,
    data_dir: &DataDir,
    plan: &WithdrawPlan,
    look: LookInto<'_>,
) -> Result<(), WithdrawError> {
    let refs = list_refs(store).await?;
    let folders = list_folders(store).await?;
    let heads = refs.refs.into_iter().filter(|(name, id)| name.kind() == RefKind::Branch && plan.versions.contains(id));
    let heads: Vec<_> = heads.collect();
    if !heads.is_empty() {
        return Err(WithdrawError::Held(heads));
    }
    let doomed = plan.rows.iter().filter(|row| row.action == WithdrawAction::DeleteFile);
    let doomed: BTreeSet<&str> = doomed.map(|row| row.object.as_str()).collect();
    for (id, folder) in folders.complete().filter(|(id, _)| !plan.known.contains(id)) {
        let record = read_record(store, id).await?;
        let lists = named(store, data_dir, look, &record, folder).await?;
        let reads = lists.iter().flat_map(Files::iter).any(|(key, _)| doomed.contains(key));
        if reads || sources::keys(&record).any(|key| doomed.contains(key.as_str())) {
            return Err(WithdrawError::Appeared(id));
        }
    }
    Ok(())
}
