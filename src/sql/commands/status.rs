//! `fdl_status(lake)`: where a working copy stands.

use std::sync::Arc;

use futures::TryStreamExt;

use super::column;
use crate::format::{RefName, VersionId};
use crate::lake;
use crate::repo::{self, LogOptions, RepoError, Repository};
use crate::sql::place::{default_alias, find_lake};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};
use crate::store::Store;

pub(super) const COMMAND: Command = Command {
    name: "fdl_status",
    positional: Some("lake"),
    named: &[],
    columns: &[
        column("alias", ColumnType::Text),
        column("path", ColumnType::Text),
        column("repository", ColumnType::Text),
        column("ref", ColumnType::Text),
        column("version", ColumnType::Text),
        column("remote_version", ColumnType::Text),
        column("ahead", ColumnType::Integer),
        column("behind", ColumnType::Integer),
        column("uncommitted", ColumnType::Boolean),
        column("tables_changed", ColumnType::Integer),
        column("attach_sql", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let connection = context.connection()?;
    let (access, lake) = find_lake(context, &connection, arguments)?;
    let checkout = &lake.checkout;
    let tip = checkout.tip().map(|id| lake::version_folder(&lake.file, id));
    let uncommitted =
        lake::uncommitted(&connection, &lake.file, checkout, tip.as_deref(), lake::ReadRows::WhereDoubtful)?;
    // A repository that is gone is not one whose branch was never made.
    context.block_on(Repository::open(Arc::clone(&access.store)))??;
    let remote = match &checkout.reference {
        Some(reference) => {
            Some(context.block_on(remote(access.store, reference, checkout.base, &checkout.local))??)
        }
        None => None,
    };
    let stem = lake.file.file_stem().unwrap_or_default().to_string_lossy();
    let alias = lake.alias.clone().unwrap_or_else(|| default_alias(&stem));
    Ok(Output::row([
        Value::from(lake.alias.as_deref()),
        Value::from(lake.file.to_string_lossy().into_owned()),
        Value::from(checkout.repository.as_str()),
        Value::from(checkout.reference.as_ref().map(|reference| reference.full())),
        Value::from(checkout.tip().map(|id| id.to_string())),
        Value::from(remote.as_ref().and_then(|remote| remote.version).map(|id| id.to_string())),
        Value::from(remote.as_ref().map_or(checkout.local.len(), |remote| remote.ahead)),
        Value::from(remote.as_ref().and_then(|remote| remote.behind)),
        Value::from(uncommitted.changed),
        Value::from(uncommitted.tables),
        Value::from(lake::attach_working_sql(&lake.file, &alias, &checkout.data_path)),
    ]))
}

/// Where the branch stands as seen from the working copy.
struct Remote {
    version: Option<VersionId>,
    /// Versions of the working copy that the branch has not.
    ahead: usize,
    /// Versions of the branch that the working copy has not; unknown when the branch was made anew.
    behind: Option<usize>,
}

async fn remote(
    store: Arc<dyn Store>,
    reference: &RefName,
    base: Option<VersionId>,
    local: &[VersionId],
) -> Result<Remote, RepoError> {
    let Some(held) = repo::read_ref(store.as_ref(), reference).await? else {
        return Ok(Remote { version: None, ahead: local.len(), behind: base.is_none().then_some(0) });
    };
    let version = Some(held.version);
    let mut log = Box::pin(repo::log(store, held.version, LogOptions::default()));
    let mut behind = 0;
    while let Some(entry) = log.try_next().await? {
        let id = entry.record.id;
        if let Some(at) = local.iter().position(|ours| *ours == id) {
            return Ok(Remote { version, ahead: local.len() - at - 1, behind: Some(behind) });
        }
        if Some(id) == base {
            return Ok(Remote { version, ahead: local.len(), behind: Some(behind) });
        }
        behind += 1;
    }
    Ok(Remote { version, ahead: local.len(), behind: base.is_none().then_some(behind) })
}
