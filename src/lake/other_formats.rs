//! The catalogs of a version in other DuckLake formats than the session's own (docs/design/0005).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chrono::NaiveDate;

use super::LakeError;
use super::attach::require_no_wal;
use super::definition::Contents;
use super::layouts::Known;
use super::template::template;
use super::translate::{empty, translate};
use crate::engine::{Connection, sql};
use crate::format::{CatalogEntry, CatalogFormat, Record, Sha256, format_release, layout};

/// In which formats a version is to be published beside the session's own, and what to tell of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) formats: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Those that `listed` asks for on this day; and those newer than the session's that the parent has, so that a writer with
/// an older DuckLake does not lock out the readers of a newer one. They end by being listed with a day that is over.
pub(super) fn wanted(own: &str, listed: &[CatalogFormat], parent: Option<&Record>, day: NaiveDate) -> Wanted {
    let mut wanted = Wanted::default();
    let over = |format: &str| {
        let mut entries = listed.iter().filter(|entry| entry.ducklake == format).peekable();
        entries.peek().is_some() && !entries.any(|entry| entry.is_written_on(day))
    };
    let add = |formats: &mut Vec<String>, format: &str| {
        if format != own && !formats.iter().any(|known| known == format) {
            formats.push(format.to_owned());
        }
    };
    for entry in listed.iter().filter(|entry| entry.is_written_on(day)) {
        add(&mut wanted.formats, &entry.ducklake);
    }
    for format in parent.into_iter().flat_map(Record::formats) {
        if format == own || wanted.formats.iter().any(|known| known == format) {
            continue;
        }
        let newer = format_release(format) > format_release(own);
        match newer && !over(format) && Known::of(format).is_some() {
            true => add(&mut wanted.formats, format),
            false => {
                wanted.notes.push(format!("no longer published in DuckLake {format}, which the version before was"))
            }
        }
    }
    wanted
}

/// Writes the catalogs of a version in these formats into its folder, where ducklake.duckdb, which holds `contents`, is
/// already.
///
/// # Errors
/// [`LakeError::UnknownFormat`], [`LakeError::Inexpressible`], the system's or DuckDB's.
pub(super) fn write_other_formats(
    connection: &Connection,
    folder: &Path,
    contents: &Contents,
    formats: &[String],
) -> Result<BTreeMap<String, CatalogEntry>, LakeError> {
    let mut entries = BTreeMap::new();
    for format in formats {
        let target = folder.join(layout::catalog_name(format));
        let catalogs = target.parent().unwrap_or(folder);
        fs::create_dir_all(catalogs).map_err(|source| LakeError::io("create", catalogs, source))?;
        translate(connection, (&folder.join(layout::CATALOG), contents), &target, format)?;
        let (sha256, size) = Sha256::of_file(&target).map_err(|source| LakeError::io("read", &target, source))?;
        entries.insert(format.clone(), CatalogEntry { sha256, size: Some(size) });
    }
    Ok(entries)
}

/// The catalog in the folder of a version that this session's DuckLake reads.
///
/// # Errors
/// Those of [`require_no_wal`], DuckDB's.
pub fn session_catalog(connection: &Connection, folder: &Path) -> Result<PathBuf, LakeError> {
    let other = folder.join(layout::catalog_name(&template(connection)?.format));
    let catalog = if other.exists() { other } else { folder.join(layout::CATALOG) };
    require_no_wal(&catalog)?;
    Ok(catalog)
}

/// Whether this session's DuckLake reads a format beside its own. Tried once for the process, with an empty catalog; a
/// format that fdl does not know is not read.
///
/// # Errors
/// The system's or DuckDB's when it could not be tried; the next call tries again.
pub fn session_reads(connection: &Connection, format: &str) -> Result<bool, LakeError> {
    static TRIED: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    if template(connection)?.format == format {
        return Ok(true);
    }
    let Some(known) = Known::of(format) else {
        return Ok(false);
    };
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reads) = tried.get(format) {
        return Ok(*reads);
    }
    let folder = tempfile::tempdir().map_err(|source| LakeError::io("create", &std::env::temp_dir(), source))?;
    let file = folder.path().join("empty");
    empty(connection, &file, known)?;
    let lake = connection.attach(&format!("ducklake:{}", file.to_string_lossy()), sql!("READ_ONLY"));
    let reads = match lake {
        Ok(lake) => {
            lake.detach()?;
            true
        }
        Err(error) if tells_of_version(&error.message) => false,
        Err(error) => return Err(error.into()),
    };
    tried.insert(format.to_owned(), reads);
    Ok(reads)
}

/// Whether DuckLake refuses a catalog for its format, in the words of 1.5 or of 1.4.
fn tells_of_version(message: &str) -> bool {
    message.contains("DuckLake catalog version mismatch") || message.contains("Only DuckLake versions")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"fdl": "0.1", "id": "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10",
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "ducklake": "MAIN", "catalogs": {OTHERS}}"#;
    const ENTRY: &str = r#"{"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}"#;

    fn record(main: &str, others: &[&str]) -> Record {
        let others = others.iter().map(|format| format!("\"{format}\": {ENTRY}")).collect::<Vec<_>>().join(", ");
        let text = RECORD.replace("MAIN", main).replace("OTHERS", &others);
        Record::parse("019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap(), text.as_bytes()).unwrap()
    }

    fn formats(own: &str, listed: &[&str], parent: Option<Record>) -> (String, usize) {
        let listed: Vec<_> = listed.iter().map(|text| CatalogFormat::from_user(text).unwrap()).collect();
        let wanted = wanted(own, &listed, parent.as_ref(), "2027-03-31".parse().unwrap());
        (wanted.formats.join(" "), wanted.notes.len())
    }

    #[test]
    fn only_what_ducklake_says_of_versions_is_an_answer() {
        for (message, tells) in [
            (
                "Invalid Input Error: DuckLake catalog version mismatch: catalog version is 0.3, but the extension …",
                true,
            ),
            ("Not implemented Error: Only DuckLake versions 0.1, 0.2, 0.3-dev1 and 0.3 are supported", true),
            ("Out of Memory Error: failed to allocate data of size 16.0 KiB", false),
            ("INTERRUPT Error: Interrupted!", false),
            ("IO Error: Cannot open file \"/tmp/x/empty\": Too many open files", false),
        ] {
            assert_eq!(tells_of_version(message), tells, "{message}");
        }
    }

    #[test]
    fn which_formats() {
        let of = |formats: &str, notes: usize| (formats.to_owned(), notes);
        assert_eq!(formats("1.0", &[], None), of("", 0));
        assert_eq!(formats("1.0", &["0.3", "1.0", "0.3"], None), of("0.3", 0));
        // The day named is the last one.
        assert_eq!(formats("1.0", &["0.3 until 2027-03-31"], None), of("0.3", 0));
        assert_eq!(formats("1.0", &["0.3 until 2027-03-30"], None), of("", 0));
        assert_eq!(formats("1.0", &["0.3 until 2027-03-30"], Some(record("1.0", &["0.3"]))), of("", 1));
        assert_eq!(formats("1.0", &["0.3"], Some(record("1.0", &["0.3"]))), of("0.3", 0));
        // A format that fdl does not know is not passed over when it is listed.
        assert_eq!(formats("1.0", &["9.9"], None), of("9.9", 0));
    }

    #[test]
    fn an_older_writer_keeps_what_is_newer() {
        let of = |formats: &str, notes: usize| (formats.to_owned(), notes);
        assert_eq!(formats("0.3", &["0.3"], Some(record("1.0", &["0.3"]))), of("1.0", 0));
        assert_eq!(formats("0.3", &["1.0 until 2027-03-30"], Some(record("1.0", &["0.3"]))), of("", 1));
        assert_eq!(formats("0.3", &[], Some(record("9.9", &["0.3", "1.0"]))), of("1.0", 1));
        // A newer one leaves behind what is older and not listed.
        assert_eq!(formats("1.0", &[], Some(record("0.3", &["1.0"]))), of("", 1));
    }
}
