//! `fdl_fsck(where)`: looks a repository through. A sound one gives no row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::expire::one_ref;
use super::{catalog_files, column, scratch, text};
use crate::engine::Connection;
use crate::format::{DataDir, DataFile, VersionId};
use crate::lake;
use crate::repo::{self, Depth, Finding, Fsck, FsckOptions, Level, LookInto, RepoError, Repository, Resolved};
use crate::sql::catalogs::{self, Keep, MAX_CATALOG};
use crate::sql::formats::SessionReader;
use crate::sql::place::{Place, of_call};
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_fsck",
    positional: Some("repository or lake"),
    named: &[text("depth"), text("ref"), text("token")],
    columns: &[
        column("level", ColumnType::Text),
        column("code", ColumnType::Text),
        column("object", ColumnType::Text),
        column("problem", ColumnType::Text),
        column("repair", ColumnType::Text),
    ],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let (depth, content) = match arguments.text("depth") {
        None | Some("structure") => (Depth::Structure, false),
        Some("files") => (Depth::Files, false),
        Some("content") => (Depth::Files, true),
        Some(other) => {
            let sentence = format!("depth is {other:?}; it is 'structure', 'files' or 'content'");
            return Err(Error::bad_argument(sentence));
        }
    };
    let place = of_call(context, arguments)?;
    let store = place.access.store.as_ref();
    let data_dir = match context.block_on(Repository::open(Arc::clone(&place.access.store)))? {
        Ok(repository) => repository.settings().data_dir.clone(),
        // A finding, unless there is no repository at all.
        Err(RepoError::NotARepository { .. } | RepoError::Corrupt { .. } | RepoError::UnsupportedVersion { .. }) => {
            DataDir::default()
        }
        Err(error) => return Err(error.into()),
    };
    let reference = arguments.text("ref").map(|text| one_ref(context, store, text)).transpose()?;
    let (folder, files) = (scratch()?, catalog_files(&data_dir));
    let look = LookInto { scratch: folder.path(), files: Some(&files) };
    let found = context.block_on(repo::fsck(store, &FsckOptions { depth, reference }, look))??;
    let mut rows: Vec<Vec<Value>> = found.findings.iter().map(row).collect();
    if content {
        let sources = context.block_on(repo::fsck_sources(store, &found, look))??;
        rows.extend(sources.iter().map(row));
        rows.extend(unreadable(context, &place, &found)?);
    }
    Ok(Output::Rows(rows))
}

fn row(finding: &Finding) -> Vec<Value> {
    vec![
        Value::from(match finding.level {
            Level::Error => "error",
            Level::Warning => "warning",
        }),
        Value::from(finding.code.to_string()),
        Value::from(finding.object.as_str()),
        Value::from(finding.problem.as_str()),
        Value::from(finding.repair.as_deref()),
    ]
}

/// Reads every row group of every data file that a live version names, each once, those left out that were found wrong
/// already.
fn unreadable(context: &Context, place: &Place, found: &Fsck) -> Result<Vec<Vec<Value>>, Error> {
    let store = place.access.store.as_ref();
    let mut files: BTreeMap<String, (u64, VersionId)> = BTreeMap::new();
    for record in &found.live {
        let listed = context.block_on(repo::read_files(store, &found.data_dir, record))??;
        for DataFile { path, rows, deletes, .. } in listed.into_iter().flat_map(|l| l.tables).flat_map(|t| t.files) {
            files.insert(path, (rows, record.id));
            files.extend(deletes.map(|deletes| (deletes.path, (deletes.rows, record.id))));
        }
    }
    let connection = context.connection()?;
    place.access.let_duckdb_read(context, &connection)?;
    lake::forget_files(&connection)?;
    for Finding { object, .. } in &found.findings {
        files.remove(object);
    }
    let (mut wrong, mut doubtful) = (BTreeMap::new(), BTreeMap::<VersionId, BTreeSet<String>>::new());
    for (key, (expected, version)) in files {
        let problem = match lake::count_rows(&connection, &repo::place(store, &key)) {
            Ok(count) if count == expected => continue,
            Ok(count) => format!("it holds {count} rows, and the catalog says {expected}"),
            Err(error) => format!("it cannot be read: {error}"),
        };
        doubtful.entry(version).or_default().insert(key.clone());
        wrong.insert(key, problem);
    }
    let special = special(context, &connection, place, (found, &doubtful))?;
    let has_ducklake = special.is_some();
    for (key, problem) in special.into_iter().flatten() {
        match problem {
            Some(problem) => wrong.insert(key, problem),
            None => wrong.remove(&key),
        };
    }
    let finding = |(object, problem): (String, String)| {
        // Without DuckLake nobody can tell, and what may be sound is not to be deleted.
        let is_parquet = object.ends_with(".parquet") && !problem.contains("encrypt");
        let (level, repair) = match has_ducklake || is_parquet {
            true => (Level::Error, Some(found.replace.clone())),
            false => (Level::Warning, None),
        };
        row(&Finding { level, code: repo::Code::Content, object, problem, repair })
    };
    Ok(wrong.into_iter().map(finding).collect())
}

/// What is wrong with files that are no sound Parquet to DuckDB, by the versions that name them: they may be deletion vectors or
/// encrypted, and then DuckLake reads them. Nothing of a file that is neither, and nothing at all without DuckLake.
fn special(
    context: &Context,
    connection: &Connection,
    place: &Place,
    (found, files): (&Fsck, &BTreeMap<VersionId, BTreeSet<String>>),
) -> Result<Option<BTreeMap<String, Option<String>>>, Error> {
    if files.is_empty() {
        return Ok(Some(BTreeMap::new()));
    }
    let Some(reader) = SessionReader::if_any(connection)? else { return Ok(None) };
    let repository = context.block_on(Repository::open(Arc::clone(&place.access.store)))??;
    let (keep, folder, data_path) = (Keep::dropped()?, scratch()?, repository.data_path());
    let mut read = BTreeMap::new();
    for (version, keys) in files {
        let resolved = Resolved { version: Some(*version), reference: None, etag: None };
        // What is wrong with its catalog is found elsewhere.
        let Ok(catalog) = catalogs::open(context, &repository, &resolved, &reader, (&keep, MAX_CATALOG)) else {
            continue;
        };
        let catalog = (catalog.file.as_path(), data_path.as_str());
        read.extend(lake::read_special_files(connection, catalog, (&found.data_dir, keys), folder.path())?);
    }
    Ok(Some(read))
}
