//! The key of every file of a repository (docs/format.md section 1).

use super::error::FormatError;
use super::hash::Sha256;
use super::head::TEXT_LIMIT;
use super::version_id::VersionId;

/// The settings.
pub const FDL_JSON: &str = "fdl.json";
/// The default branch.
pub const HEAD: &str = "HEAD";
/// Every ref and the version it holds.
pub const REFS_JSON: &str = "refs.json";
/// The folder of all refs.
pub const REFS: &str = "refs/";
/// The folder of all versions.
pub const VERSIONS: &str = "versions/";
/// The folder of source files.
pub const SOURCES: &str = "sources/";

/// The name of a version's record in its folder.
pub const VERSION_JSON: &str = "version.json";
/// The name of the signature of a version's record.
pub const SIGNATURE: &str = "version.json.sig";
/// The name of the frozen catalog.
pub const CATALOG: &str = "ducklake.duckdb";
/// The name of the file that describes what a version holds.
pub const DATASET_JSON: &str = "dataset.json";
/// The name of the list of data files.
pub const FILES_JSON: &str = "files.json";
/// The folder of catalogs in other formats.
pub const CATALOGS: &str = "catalogs/";
/// How the name of a write-ahead log ends, which DuckDB looks for beside each database that it attaches. No version has
/// one.
pub const WAL: &str = ".wal";
/// The name of the mark of a version that is past retention or withdrawn.
pub const EXPIRED_JSON: &str = "expired.json";

/// The most bytes that are read of a catalog, unless the reader allows more.
pub const MAX_CATALOG: u64 = 2 << 30;

/// The most bytes of an object that are read into memory (docs/format.md section 1). What has no entry there is never
/// read so but when it is small.
#[must_use]
pub fn limit(key: &str) -> u64 {
    match in_version(key) {
        Some((_, name)) => limit_of_name(name),
        None if key.starts_with(REFS) => TEXT_LIMIT as u64,
        None => limit_of_name(key),
    }
}

/// [`limit`] by the name of the file, for those in a working copy.
#[must_use]
pub fn limit_of_name(name: &str) -> u64 {
    match name {
        HEAD => TEXT_LIMIT as u64,
        FDL_JSON | VERSION_JSON => 1 << 20,
        SIGNATURE | EXPIRED_JSON => 64 << 10,
        REFS_JSON => 64 << 20,
        DATASET_JSON | FILES_JSON => 512 << 20,
        _ => 64 << 20,
    }
}

/// The folder of a version, with `/` at the end.
#[must_use]
pub fn version(id: VersionId) -> String {
    format!("{VERSIONS}{id}/")
}

/// A version's record, written last in its folder.
#[must_use]
pub fn version_json(id: VersionId) -> String {
    format!("{VERSIONS}{id}/{VERSION_JSON}")
}

/// The SSH signature of a version's record.
#[must_use]
pub fn signature(id: VersionId) -> String {
    format!("{VERSIONS}{id}/{SIGNATURE}")
}

/// A version's frozen catalog.
#[must_use]
pub fn catalog(id: VersionId) -> String {
    format!("{VERSIONS}{id}/{CATALOG}")
}

/// A version's catalog in another DuckLake format; the name of the format has been checked by [`check_format`].
#[must_use]
pub fn other_catalog(id: VersionId, format: &str) -> String {
    format!("{VERSIONS}{id}/{}", catalog_name(format))
}

/// The name of a catalog in another DuckLake format in the folder of its version.
#[must_use]
pub fn catalog_name(format: &str) -> String {
    format!("{CATALOGS}{format}.duckdb")
}

/// The DuckLake format that the name of a catalog in another format names. Nothing for other names.
#[must_use]
pub fn catalog_format(name: &str) -> Option<&str> {
    let format = name.strip_prefix(CATALOGS)?.strip_suffix(".duckdb")?;
    check_format(format).is_ok().then_some(format)
}

/// What a version holds, described.
#[must_use]
pub fn dataset(id: VersionId) -> String {
    format!("{VERSIONS}{id}/{DATASET_JSON}")
}

/// The data files of a version's tables.
#[must_use]
pub fn files(id: VersionId) -> String {
    format!("{VERSIONS}{id}/{FILES_JSON}")
}

/// The mark of a version past retention or withdrawn.
#[must_use]
pub fn expired(id: VersionId) -> String {
    format!("{VERSIONS}{id}/{EXPIRED_JSON}")
}

/// A file that versions were made from.
#[must_use]
pub fn source(sha256: Sha256) -> String {
    format!("{SOURCES}{sha256}")
}

/// The version whose folder holds a key, and the rest of the key. Nothing for keys elsewhere.
#[must_use]
pub fn in_version(key: &str) -> Option<(VersionId, &str)> {
    let (id, rest) = key.strip_prefix(VERSIONS)?.split_once('/')?;
    Some((id.parse().ok()?, rest))
}

/// Checks the name of a DuckLake format, which becomes part of a key: `0.3`, `1.0`, `1.1-dev.1`.
///
/// # Errors
/// [`FormatError::BadValue`] names the rule it breaks.
pub fn check_format(format: &str) -> Result<(), FormatError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
    let good = (1..=32).contains(&format.len())
        && format.bytes().all(allowed)
        && format.bytes().next().is_some_and(|b| b.is_ascii_digit())
        && !format.contains("..")
        && !format.ends_with('.');
    if good {
        return Ok(());
    }
    Err(FormatError::value("a DuckLake format", format, "it must be a version such as 1.0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let id: VersionId = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10".parse().unwrap();
        let folder = "versions/019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10/";
        assert_eq!(version(id), folder);
        for (key, name) in [
            (version_json(id), "version.json"),
            (signature(id), "version.json.sig"),
            (catalog(id), "ducklake.duckdb"),
            (other_catalog(id, "0.3"), "catalogs/0.3.duckdb"),
            (dataset(id), "dataset.json"),
            (files(id), "files.json"),
            (expired(id), "expired.json"),
        ] {
            assert_eq!(key, format!("{folder}{name}"));
            assert_eq!(in_version(&key), Some((id, name)));
        }
        for other in ["fdl.json", "versions/", "versions/x/version.json", "data/versions/x", "versions"] {
            assert_eq!(in_version(other), None);
        }
    }

    #[test]
    fn catalogs_and_their_formats() {
        assert_eq!(catalog_format(&catalog_name("1.1-dev.1")), Some("1.1-dev.1"));
        for other in [CATALOG, "catalogs/x.duckdb", "catalogs/0.3", "0.3.duckdb", "catalogs/../0.3.duckdb"] {
            assert_eq!(catalog_format(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_formats() {
        for good in ["0.3", "1.0", "1", "1.1-dev.1"] {
            assert!(check_format(good).is_ok(), "{good}");
        }
        for bad in ["", "..", "1..0", "../x", "1/0", "a", ".1", "1.", "1.0 ", "1.0\n", &"1".repeat(40)] {
            assert!(check_format(bad).is_err(), "{bad}");
        }
    }
}
