//! `fdl_push(lake)`: publishes the versions that lie beside the working catalog.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::join;

use super::commit::{commit, note, open_copy};
use super::{column, text, texts};
use crate::engine::literal;
use crate::format::{Files, RefKind, RefName, VersionId, layout, read_small};
use crate::lake::{self, Checkout, WorkingCopy};
use crate::repo::{
    self, DataSource, Expected, Held, LocalVersion, Push, PushOutcome, PushReport, RepoError, Repository,
};
use crate::sql::conditions;
use crate::sql::formats::refresh_catalog_formats;
use crate::sql::place::find_lake;
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_push",
    positional: Some("lake"),
    named: &[
        text("message"),
        text("author"),
        text("sign_with"),
        texts("sources"),
        text("ref"),
        text("tag"),
        text("token"),
    ],
    columns: &[
        column("repository", ColumnType::Text),
        column("ref", ColumnType::Text),
        column("old_version", ColumnType::Text),
        column("new_version", ColumnType::Text),
        column("outcome", ColumnType::Text),
        column("versions", ColumnType::Integer),
        column("files_uploaded", ColumnType::Integer),
        column("bytes_uploaded", ColumnType::Integer),
        column("files_skipped", ColumnType::Integer),
        column("note", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let of_a_commit =
        [("sources", !arguments.texts("sources").is_empty()), ("sign_with", arguments.text("sign_with").is_some())];
    if let (None, Some((name, _))) = (arguments.text("message"), of_a_commit.iter().find(|(_, given)| *given)) {
        let sentence = format!("{name} is for a commit, and without a message nothing is committed");
        return Err(Error::bad_argument(sentence).with_hint("give message := '…', or call fdl_commit with it before."));
    }
    let connection = context.connection()?;
    let (access, lake) = find_lake(context, &connection, arguments)?;
    let (copy, mut checkout) = open_copy(&connection, &lake)?;
    let target = target(&checkout, arguments.text("ref"))?;
    let tag = arguments.text("tag").map(RefName::tag).transpose()?;

    let mut notes = Vec::new();
    if arguments.text("message").is_some() {
        refresh_catalog_formats(context, &access.store, &mut checkout)?;
        notes.extend(commit(context, &connection, &copy, &mut checkout, arguments)?.notes);
    } else {
        lake::require_no_transaction(&connection, copy.file())?;
        let tip = checkout.tip().map(|id| copy.version(id));
        if lake::uncommitted(&connection, copy.file(), &checkout, tip.as_deref(), lake::ReadRows::Never)?.changed {
            notes.push("the working catalog holds changes that are not committed; message := '…' commits them".into());
        }
    }
    let store = Arc::clone(&access.store);
    let (repository, held) =
        context.block_on(join(Repository::open(Arc::clone(&store)), repo::read_ref(store.as_ref(), &target)))?;
    let known = conditions::are_known(context, &access);
    let (repository, held) = (repository?.with_kept_conditions(known), held?);
    if let (Some(tag), Some(tip)) = (&tag, checkout.tip()) {
        require_free_tag(context, &repository, tag, tip)?;
    }
    let report = push(context, &repository, &copy, &checkout, &target, held)
        .map_err(|error| explain_conflict(error, &checkout, &target, lake.alias.as_deref(), copy.file()))?;
    notes.extend(report.notes.iter().cloned());
    if report.conditions_kept {
        conditions::remember(context, &access);
    }
    if report.outcome != PushOutcome::Uploaded {
        // Never what the branch holds: its rows are not those of the working catalog when somebody built upon ours.
        checkout.base = checkout.tip();
        checkout.local.clear();
        checkout.reference = Some(target.clone());
        copy.save(&checkout)?;
    }
    if let (Some(tag), Some(version), true) = (&tag, checkout.base, report.outcome != PushOutcome::Uploaded) {
        notes.extend(make_tag(context, &repository, tag, version)?);
    }
    Ok(Output::row([
        Value::from(checkout.repository.as_str()),
        Value::from(target.full()),
        Value::from(report.old.map(|id| id.to_string())),
        Value::from(report.new.map(|id| id.to_string())),
        Value::from(outcome(report.outcome)),
        Value::from(report.versions),
        Value::from(report.files_uploaded),
        Value::from(report.bytes_uploaded),
        Value::from(report.files_skipped),
        note(&notes),
    ]))
}

fn outcome(outcome: PushOutcome) -> &'static str {
    match outcome {
        PushOutcome::Pushed => "pushed",
        PushOutcome::UpToDate => "up to date",
        PushOutcome::Uploaded => "uploaded",
    }
}

/// The branch to move: the one named, or the one checked out.
fn target(checkout: &Checkout, given: Option<&str>) -> Result<RefName, Error> {
    let branch = match given {
        Some(name) if name.starts_with(layout::REFS) => Some(RefName::parse(name)?),
        Some(name) => Some(RefName::branch(name)?),
        None => checkout.reference.clone(),
    };
    match branch {
        Some(branch) if branch.kind() == RefKind::Branch => Ok(branch),
        other => {
            let what = other.map_or_else(|| "a version".to_owned(), |reference| reference.full().to_owned());
            let sentence = match given {
                Some(_) => format!("{what} is no branch, and only a branch can be pushed to"),
                None => format!("{what} was checked out, and only a branch can be pushed to"),
            };
            Err(Error::bad_argument(sentence).with_hint("name a branch with ref := '…'; a new one is made."))
        }
    }
}

fn push(
    context: &Context,
    repository: &Repository,
    copy: &WorkingCopy,
    checkout: &Checkout,
    target: &RefName,
    held: Option<Held>,
) -> Result<PushReport, Error> {
    let data_dir = &repository.settings().data_dir;
    let load = |id: &VersionId| LocalVersion::load(&copy.version(*id), data_dir);
    let chain = checkout.local.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    // A branch that was not checked out is moved forward from wherever it is, and made where there is none.
    let elsewhere = checkout.reference.as_ref() != Some(target);
    let base = match elsewhere {
        true => held.as_ref().map(|held| held.version),
        false => checkout.base,
    };
    let expected = base.map_or(Expected::Absent, Expected::Exactly);
    let base_files = checkout.base.and_then(|id| read_small(&copy.version(id).join(layout::FILES_JSON)).ok());
    let base_files = base_files.map(|bytes| Files::parse(&bytes, data_dir)).transpose()?;
    let push = Push {
        reference: target.clone(),
        expected,
        chain: &chain,
        base: checkout.base,
        base_files: base_files.as_ref(),
        data: match checkout.published_at {
            Some(_) => DataSource::Folder(PathBuf::from(&checkout.data_path)),
            None => DataSource::InPlace,
        },
    };
    context.block_on(repo::publish_from(repository, &push, held, context.clock()))?.map_err(|error| match error {
        RepoError::Conflict { reference, now: Some(now), .. } => {
            let builds_on = checkout.base.map_or_else(|| "nothing".to_owned(), |base| base.to_string());
            let sentence = match elsewhere {
                true => format!("{} is at {now}, and your version builds on {builds_on}", reference.short()),
                false => format!("{} moved to {now} while your version builds on {builds_on}", reference.short()),
            };
            Error { sentence, ..RepoError::Conflict { reference, expected, now: Some(now) }.into() }
        }
        other => other.into(),
    })
}

/// A refused push says what to run.
fn explain_conflict(error: Error, checkout: &Checkout, target: &RefName, alias: Option<&str>, file: &Path) -> Error {
    if error.code != Code::Conflict {
        return error;
    }
    let file = literal(&file.to_string_lossy()).to_text();
    let (alias, lake) = match alias {
        Some(alias) => {
            let alias = literal(alias).to_text();
            (format!("alias := {alias}, "), alias)
        }
        None => (String::new(), file.clone()),
    };
    error.with_hint(format!(
        "CALL fdl_push({lake}, ref := '<new branch>') publishes your version beside it; then CALL fdl_checkout({}, {alias}path := {file}, \
         ref := {}) brings the branch here, and your change can be applied again.",
        literal(&checkout.repository).to_text(),
        literal(target.short()).to_text(),
    ))
}

/// A tag that cannot be made must be known before the push.
fn require_free_tag(context: &Context, repository: &Repository, tag: &RefName, tip: VersionId) -> Result<(), Error> {
    let held = context.block_on(repo::read_ref(repository.store(), tag))??;
    match held {
        Some(held) if held.version != tip => {
            Err(RepoError::Exists { reference: tag.clone(), version: held.version }.into())
        }
        _ => Ok(()),
    }
}

fn make_tag(
    context: &Context,
    repository: &Repository,
    tag: &RefName,
    version: VersionId,
) -> Result<Vec<String>, Error> {
    match context.block_on(repo::create_tag(repository.store(), tag, version))? {
        Ok(made) => Ok(made.notes),
        Err(RepoError::Exists { version: there, .. }) if there == version => Ok(Vec::new()),
        Err(error) => {
            let error = Error::from(error);
            let hint = format!("the push has landed as {version}; {}", error.hint);
            Err(error.with_hint(hint))
        }
    }
}
