//! What a working copy holds that no version does.

use std::path::Path;

use super::LakeError;
use super::compare::{Comparison, ReadRows, Side, compare};
use super::definition::read_contents;
use super::describe::files_of;
use super::freeze::{FreezeOptions, freeze};
use super::narrow::RowSource;
use super::other_formats::session_catalog;
use super::working::{LatestSnapshot, inlined, latest_snapshot, require_format};
use super::working_copy::Checkout;
use crate::engine::Connection;
use crate::format::{Files, layout};

/// How a working catalog differs from the version that its next commit would build on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncommitted {
    /// Whether anything differs.
    pub changed: bool,
    /// How many tables differ.
    pub tables: u64,
}

/// Compares the working catalog with the version in `tip`, its folder beside the working copy.
///
/// # Errors
/// Those of [`LakeError`].
pub fn uncommitted(
    connection: &Connection,
    working: &Path,
    checkout: &Checkout,
    tip: Option<&Path>,
    read_rows: ReadRows,
) -> Result<Uncommitted, LakeError> {
    let latest = latest_snapshot(connection, working)?;
    let is_known = |latest: LatestSnapshot| {
        latest.snapshot == checkout.snapshot && Some(&latest.options) == checkout.options.as_ref()
    };
    if latest.is_some_and(is_known) {
        return Ok(Uncommitted { changed: false, tables: 0 });
    }
    let folder = tempfile::tempdir().map_err(|source| LakeError::io("create", &std::env::temp_dir(), source))?;
    let comparison = match comparison(connection, working, checkout, tip, read_rows, folder.path()) {
        Ok(comparison) => comparison,
        // What cannot be committed is not committed; the commit says why.
        Err(LakeError::OutsideDataDir { .. }) => return Ok(Uncommitted { changed: true, tables: 1 }),
        Err(error) => return Err(error),
    };
    // A frozen catalog has neither inlined rows nor deletions, and they are written out at a commit only.
    let inlined = inlined(connection, working)?.len();
    let tables = comparison.changed().max(inlined) as u64;
    Ok(Uncommitted { changed: !comparison.is_same() || inlined > 0, tables })
}

/// What differs between the working catalog and the version in `tip`, table by table. `folder` is for files made on the
/// way.
///
/// # Errors
/// [`LakeError::StillInlined`] while rows are inlined, which a comparison of files cannot see; otherwise those of
/// [`LakeError`].
pub fn working_changes(
    connection: &Connection,
    working: &Path,
    checkout: &Checkout,
    tip: Option<&Path>,
    folder: &Path,
) -> Result<Comparison, LakeError> {
    if let Some(table) = inlined(connection, working)?.into_iter().next() {
        return Err(LakeError::StillInlined { table });
    }
    comparison(connection, working, checkout, tip, ReadRows::Always, folder)
}

fn comparison(
    connection: &Connection,
    working: &Path,
    checkout: &Checkout,
    tip: Option<&Path>,
    read_rows: ReadRows,
    folder: &Path,
) -> Result<Comparison, LakeError> {
    require_format(connection, working)?;
    let catalog = folder.join(layout::CATALOG);
    let options = FreezeOptions { allow_encrypted: true, ..FreezeOptions::default() };
    let snapshot = freeze(connection, working, checkout, &catalog, options)?;
    let contents = read_contents(connection, &catalog)?;
    let tip = tip.map(|folder| session_catalog(connection, folder)).transpose()?;
    let before = tip.as_deref().map(|catalog| read_contents(connection, catalog)).transpose()?;
    let old = tip
        .as_deref()
        .zip(before.as_ref())
        .map(|(catalog, contents)| Side { contents, rows: RowSource::Frozen(catalog, checkout.published_data_path()) });
    let new = Side { contents: &contents, rows: RowSource::of_working(working, checkout, &catalog, snapshot) };
    compare(connection, old, new, read_rows, folder)
}

/// The data files that the working catalog names now, committed or not.
///
/// # Errors
/// Those of [`LakeError`].
pub fn working_files(
    connection: &Connection,
    working: &Path,
    checkout: &Checkout,
    folder: &Path,
) -> Result<Files, LakeError> {
    require_format(connection, working)?;
    let catalog = folder.join(layout::CATALOG);
    let options = FreezeOptions { allow_encrypted: true, keep_snapshots: true };
    freeze(connection, working, checkout, &catalog, options)?;
    files_of(&read_contents(connection, &catalog)?, &checkout.data_dir)
}
