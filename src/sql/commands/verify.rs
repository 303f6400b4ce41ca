//! `fdl_verify(where)`: who has signed the versions of a history, newest first.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt;

use super::{column, text};
use crate::format::{Status, Trust, Verdict, VersionId, layout, read_small};
use crate::lake::{self, LakeError};
use crate::repo::{self, RepoError};
use crate::sql::memory::{Memory, WentBack};
use crate::sql::place::{Lake, of_call};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value, trust};

/// How many versions are read before DuckDB may look whether it was interrupted.
const STEP: usize = 16;

pub(super) const COMMAND: Command = Command {
    name: "fdl_verify",
    positional: Some("repository or lake"),
    named: &[text("ref"), text("allowed_signers"), text("token")],
    columns: &[
        column("version", ColumnType::Text),
        column("status", ColumnType::Text),
        column("signer", ColumnType::Text),
        column("key", ColumnType::Text),
        column("note", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let allowed = trust::allowed_signers(arguments)?;
    let trusts_somebody = allowed.is_some();
    let place = of_call(context, arguments)?;
    let (repository, resolved) = place.open(context, arguments)?;
    let trust = Arc::new(trust::trust(allowed, repository.settings()));
    let mut first: Vec<Vec<Value>> = Vec::new();
    if let (Some(lake), None) = (&place.lake, arguments.text("ref")) {
        first = local_rows(lake, &trust)?;
    }
    let Some(start) = resolved.version else {
        return Ok(Output::Rows(first));
    };
    let memory = Memory::read(&repository, &place.revision(arguments)?, &resolved)?;
    let (context, reference) = (context.clone(), resolved.reference);
    let explained = move |error: RepoError| match &reference {
        Some(reference) => error.named_by(reference),
        None => error,
    };
    let mut history = Box::pin(repo::check_history(repository.shared_store(), start, Arc::clone(&trust)));
    // What was read comes before the error that ended it.
    let mut failed: Option<RepoError> = None;
    let mut newest = context.block_on(history.try_next())?.map_err(&explained)?;
    if let (Some(known), Some(checked)) = (&memory, &mut newest) {
        let went_back = known.went_back(&context, &repository, checked, &trust)?;
        let remembers = went_back.is_none() && trusts_somebody && checked.verdict.status == Status::Good;
        first.extend(went_back.iter().map(went_back_row));
        if remembers && let Err(error) = known.remember(checked.version) {
            checked.verdict.note = Some(format!("this could not be remembered: {}", error.sentence));
        }
    }
    first.extend(newest.iter().map(|checked| row(checked.version, &checked.verdict)));
    Ok(Output::Steps(Box::new(move || {
        if !first.is_empty() {
            return Ok(std::mem::take(&mut first));
        }
        if let Some(error) = failed.take() {
            return Err(explained(error).into());
        }
        let mut rows = Vec::new();
        while rows.len() < STEP && failed.is_none() {
            match context.block_on(history.try_next())? {
                Ok(Some(checked)) => rows.push(row(checked.version, &checked.verdict)),
                Ok(None) => break,
                Err(error) => failed = Some(error),
            }
        }
        match failed.take_if(|_| rows.is_empty()) {
            Some(error) => Err(explained(error).into()),
            None => Ok(rows),
        }
    })))
}

/// Versions that are committed and not pushed, newest first.
fn local_rows(lake: &Lake, trust: &Trust) -> Result<Vec<Vec<Value>>, Error> {
    let mut rows = Vec::new();
    for id in lake.checkout.local.iter().rev() {
        let folder = lake::version_folder(&lake.file, *id);
        let path = folder.join(layout::VERSION_JSON);
        let record = read_small(&path).map_err(|source| LakeError::Io { action: "read", path, source })?;
        let signature = read_signature(&folder.join(layout::SIGNATURE))?;
        rows.push(row(*id, &repo::check_bytes(*id, &record, signature.as_deref(), trust)?.verdict));
    }
    Ok(rows)
}

fn read_signature(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match read_small(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LakeError::Io { action: "read", path: path.to_owned(), source }.into()),
    }
}

fn row(version: VersionId, verdict: &Verdict) -> Vec<Value> {
    vec![
        Value::from(version.to_string()),
        Value::from(verdict.status.to_string()),
        Value::from(verdict.signer.as_deref()),
        Value::from(verdict.key.as_deref()),
        Value::from(verdict.note.as_deref()),
    ]
}

/// The version that the ref should lead to and does not.
fn went_back_row(found: &WentBack) -> Vec<Value> {
    let note = Value::from(found.sentence());
    vec![Value::from(found.before.to_string()), Value::from(found.status()), Value::Null, Value::Null, note]
}
