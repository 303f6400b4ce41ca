//! What the path of a request names. The first thing that is looked at: nothing but the layout's own paths is ever
//! asked of the store (docs/format.md section 1).

use axum::http::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::format::{Code, DataDir, RefName, Sha256, layout};
use crate::store::{StoreError, key};

use super::answer::Refusal;

/// The longest key that every store takes, in bytes.
const KEY_LIMIT: usize = 1024;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The repository itself: `/`.
    Root,
    /// The catalog of HEAD's version: `/ducklake.duckdb`.
    Latest,
    /// fdl.json
    Settings,
    /// HEAD
    Head,
    /// refs.json
    RefsJson,
    /// A ref.
    Ref(RefName),
    /// An object in the folder of a version.
    Version(String, VersionPart),
    /// A source file, named by its hash.
    Source(String, Sha256),
    /// A data file, if it lies under the data folder.
    Data(DataPath),
}

/// What an object in the folder of a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionPart {
    /// A catalog, written once.
    Catalog,
    /// The record, its signature or what describes the version, written once and read whole by whoever checks it.
    Text,
    /// The mark of a version past retention or withdrawn.
    Mark,
    /// A file that somebody else put there: read, never written.
    Other,
}

/// A path that is none of the format's own files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DataPath {
    /// The key by the rules of URLs, every escape decoded once, or why it can be none.
    decoded: Result<String, &'static str>,
    /// The path as it was sent.
    sent: String,
}

impl Target {
    /// What a path names: the path of the URL as it was sent, with `/` before it.
    ///
    /// # Errors
    /// 400 for a path that is badly encoded or leads elsewhere, 404 for one that the layout does not have.
    pub(super) fn parse(path: &str) -> Result<Self, Refusal> {
        let sent = path.strip_prefix('/').ok_or_else(|| bad("it does not begin with a slash"))?;
        if sent.is_empty() {
            return Ok(Self::Root);
        }
        let key = match decode(sent) {
            Ok(key) => key,
            // It may still be a name with escapes in it, sent as it is.
            Err(why) if is_escaped(sent) && check(sent).is_ok() => {
                return Ok(Self::Data(DataPath { decoded: Err(why), sent: sent.to_owned() }));
            }
            Err(why) => return Err(bad(why)),
        };
        let (folder, rest) = key.split_once('/').unwrap_or((&key, ""));
        match (folder, rest) {
            (layout::FDL_JSON, "") => Ok(Self::Settings),
            (layout::HEAD, "") => Ok(Self::Head),
            (layout::REFS_JSON, "") => Ok(Self::RefsJson),
            (layout::CATALOG, "") => Ok(Self::Latest),
            ("refs", _) => RefName::parse(&key).map(Self::Ref).map_err(|error| Refusal::format(&error)),
            ("versions", _) => version(key),
            ("sources", _) => match lower_hex(rest) {
                Some(hash) => Ok(Self::Source(key, hash)),
                None => Err(Refusal::not_found(&key)),
            },
            _ => {
                let sent = sent.to_owned();
                Ok(Self::Data(DataPath { decoded: Ok(key), sent }))
            }
        }
    }

    /// What of the format a key names, which is no path and so not decoded.
    ///
    /// # Errors
    /// Those of [`Target::parse`].
    pub(super) fn of_key(key: &str) -> Result<Self, Refusal> {
        const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
        Self::parse(&format!("/{}", utf8_percent_encode(key, ESCAPED)))
    }
}

impl DataPath {
    /// The key of the data file by the rules of URLs.
    ///
    /// # Errors
    /// 400 when the path leads out of the data folder, 404 when it does not lead into it.
    pub(super) fn key(&self, data_dir: &DataDir) -> Result<&str, Refusal> {
        let key = self.decoded.as_deref().map_err(|why| bad(why))?;
        if !key.starts_with(data_dir.as_str()) {
            return Err(Refusal::not_found(key));
        }
        data_dir.check(key).map_err(|error| Refusal::format(&error))?;
        Ok(key)
    }

    /// The keys that a reader may mean, the likeliest first.
    ///
    /// DuckDB writes partition values into the names of folders with percent escapes (`k=b%2Fc`), and readers that put
    /// a URL together from such names do not escape the `%` again. So where there is no such file, the path as it was
    /// sent is a key, and so is the one in which only the parts without a partition value are decoded.
    ///
    /// # Errors
    /// Those of [`DataPath::key`], when no key is left.
    pub(super) fn keys(&self, data_dir: &DataDir) -> Result<Vec<String>, Refusal> {
        let first = self.key(data_dir);
        let parts: Vec<String> = self.sent.split('/').map(unless_partition).collect();
        let mut keys: Vec<String> = first.iter().map(|key| (*key).to_owned()).collect();
        for other in [self.sent.clone(), parts.join("/")] {
            if !keys.contains(&other) && check(&other).is_ok() && data_dir.check(&other).is_ok() {
                keys.push(other);
            }
        }
        match first {
            Err(refusal) if keys.is_empty() => Err(refusal),
            _ => Ok(keys),
        }
    }
}

/// A part of a path, decoded unless it holds a partition value.
fn unless_partition(part: &str) -> String {
    match part.contains('=') {
        true => part.to_owned(),
        false => percent_decode_str(part).decode_utf8_lossy().into_owned(),
    }
}

/// An object in the folder of a version.
fn version(key: String) -> Result<Target, Refusal> {
    let Some((_, name)) = layout::in_version(&key) else {
        return Err(Refusal::not_found(&key));
    };
    let part = match name {
        layout::VERSION_JSON | layout::SIGNATURE | layout::DATASET_JSON | layout::FILES_JSON => VersionPart::Text,
        layout::CATALOG => VersionPart::Catalog,
        layout::EXPIRED_JSON => VersionPart::Mark,
        _ if layout::catalog_format(name).is_some() => VersionPart::Catalog,
        // DuckDB asks for a write-ahead log beside each catalog, and would read the catalog with the changes in it.
        _ if is_simple(name) && !name.ends_with(layout::WAL) => VersionPart::Other,
        _ => return Err(Refusal::not_found(&key)),
    };
    Ok(Target::Version(key, part))
}

/// Whether a name is one of a plain file, on any file system.
fn is_simple(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=100).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('.') && !name.ends_with('.')
}

fn lower_hex(text: &str) -> Option<Sha256> {
    let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
    text.parse().ok().filter(|_| lower)
}

/// Whether every `%` is followed by two hexadecimal digits.
fn is_escaped(sent: &str) -> bool {
    sent.match_indices('%').all(|(at, _)| {
        let digits = sent.get(at + 1..at + 3).unwrap_or_default();
        digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// Decodes every escape of a path once, or says why that is no key.
fn decode(sent: &str) -> Result<String, &'static str> {
    if !is_escaped(sent) {
        return Err("a % is not followed by two hexadecimal digits");
    }
    let decoded = percent_decode_str(sent).decode_utf8().map_err(|_| "decoded, it is not UTF-8")?;
    check(&decoded).map(|()| decoded.into_owned())
}

/// What no key is, whatever it names.
fn check(key: &str) -> Result<(), &'static str> {
    if key.len() > KEY_LIMIT {
        return Err("it is longer than 1024 bytes");
    }
    key::check(key).map_err(|error| match error {
        StoreError::BadKey { why, .. } => why,
        _ => "it is no key",
    })
}

fn bad(why: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Code::BadPath, format!("this is not a path of a repository: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";

    fn keys(path: &str) -> Result<Vec<String>, u16> {
        match Target::parse(path) {
            Ok(Target::Data(data)) => data.keys(&DataDir::default()).map_err(|refusal| refusal.status.as_u16()),
            Ok(other) => panic!("{path} is {other:?}"),
            Err(refusal) => Err(refusal.status.as_u16()),
        }
    }

    #[test]
    fn the_paths_of_the_layout() {
        let version = |name: &str, part| Target::Version(format!("versions/{ID}/{name}"), part);
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for (path, target) in [
            ("/", Target::Root),
            ("/ducklake.duckdb", Target::Latest),
            ("/fdl.json", Target::Settings),
            ("/HEAD", Target::Head),
            ("/refs.json", Target::RefsJson),
            ("/refs/heads/a/b", Target::Ref(RefName::branch("a/b").unwrap())),
            ("/refs/heads/a%2Fb", Target::Ref(RefName::branch("a/b").unwrap())),
            ("/refs/tags/v1", Target::Ref(RefName::tag("v1").unwrap())),
            ("/refs/requests/17", Target::Ref(RefName::parse("refs/requests/17").unwrap())),
            (&format!("/versions/{ID}/version.json"), version("version.json", VersionPart::Text)),
            (&format!("/versions/{ID}/version.json.sig"), version("version.json.sig", VersionPart::Text)),
            (&format!("/versions/{ID}/ducklake.duckdb"), version("ducklake.duckdb", VersionPart::Catalog)),
            (&format!("/versions/{ID}/dataset.json"), version("dataset.json", VersionPart::Text)),
            (&format!("/versions/{ID}/files.json"), version("files.json", VersionPart::Text)),
            (&format!("/versions/{ID}/catalogs/0.3.duckdb"), version("catalogs/0.3.duckdb", VersionPart::Catalog)),
            (&format!("/versions/{ID}/expired.json"), version("expired.json", VersionPart::Mark)),
            (&format!("/versions/{ID}/README.md"), version("README.md", VersionPart::Other)),
            (&format!("/sources/{hash}"), Target::Source(format!("sources/{hash}"), hash.parse().unwrap())),
        ] {
            assert_eq!(Target::parse(path).unwrap(), target, "{path}");
        }
    }

    #[test]
    fn data_files_by_the_names_readers_give_them() {
        for (path, expected) in [
            ("/data/main/t/a.parquet", vec!["data/main/t/a.parquet"]),
            ("/data/main/t/100%25.parquet", vec!["data/main/t/100%.parquet", "data/main/t/100%25.parquet"]),
            ("/data/m/t/k=b%252Fc/x", vec!["data/m/t/k=b%2Fc/x", "data/m/t/k=b%252Fc/x"]),
            ("/data/m/t/k=b%2Fc/x", vec!["data/m/t/k=b/c/x", "data/m/t/k=b%2Fc/x"]),
            // What cannot be a key when decoded is one as it was sent, as long as it stays inside.
            ("/data/m/k=a%5Cb/x", vec!["data/m/k=a%5Cb/x"]),
            ("/data/m/k=a%0Ab/x", vec!["data/m/k=a%0Ab/x"]),
            ("/data/m/k=%FF/x", vec!["data/m/k=%FF/x"]),
            (
                "/data/%E7%94%BA/k=%E7%94%BA/x",
                vec!["data/町/k=町/x", "data/%E7%94%BA/k=%E7%94%BA/x", "data/町/k=%E7%94%BA/x"],
            ),
        ] {
            assert_eq!(keys(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn nothing_else() {
        for path in [
            "",
            "*",
            "//",
            "/.",
            "/..",
            "/../fdl.json",
            "/data/..",
            "/data/../fdl.json",
            "/data/%2e%2e/fdl.json",
            "/data/%2E%2e%2Ffdl.json",
            "/data/..%2ffdl.json",
            "/data/%252e%252e/fdl.json",
            "/data/%25252e%25252e/x",
            "/data/a%5C..%5Cb",
            "/data/..%5cfdl.json",
            "/data/a%00b",
            "/data/k=%2F..%2F..%2Ffdl.json",
            "/data/k=a%5C..%5C..%5Cb/x",
            "/data//x",
            "/data/x/",
            "//etc/passwd",
            "/%2fetc/passwd",
            "/data/%",
            "/data/%2",
            "/data/%zz",
            "/data/.fdl-x",
            "/.fdl-lock",
            "/refs/heads/../../HEAD",
            "/refs/heads/.a",
            "/refs/heads/a.lock",
            "/refs/heads/Main",
            "/refs/heads/",
            "/refs/",
            "/refs/x",
        ] {
            let status = match Target::parse(path) {
                Ok(Target::Data(data)) => data.keys(&DataDir::default()).unwrap_err().status,
                Ok(other) => panic!("{path} is {other:?}"),
                Err(refusal) => refusal.status,
            };
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        }
        let long = format!("/data/{}", "a".repeat(1024));
        assert_eq!(keys(&long), Err(400));
        for path in [
            "/README.md".to_owned(),
            "/Data/x".to_owned(),
            "/data".to_owned(),
            "/c:/data/x".to_owned(),
            "/http:/x/data".to_owned(),
            "/etc/passwd".to_owned(),
            "/versions".to_owned(),
            "/versions/x".to_owned(),
            format!("/versions/{ID}"),
            format!("/versions/{}/version.json", ID.to_uppercase()),
            format!("/versions/{ID}/.hidden"),
            format!("/versions/{ID}/a/b"),
            format!("/versions/{ID}/a%20b"),
            format!("/versions/{ID}/catalogs/x.duckdb"),
            format!("/versions/{ID}/catalogs/0.3"),
            format!("/versions/{ID}/ducklake.duckdb.wal"),
            format!("/versions/{ID}/ducklake.duckdb%2Ewal"),
            format!("/versions/{ID}/catalogs/0.3.duckdb.wal"),
            "/sources".to_owned(),
            "/sources/x".to_owned(),
            format!("/sources/{}", "A".repeat(64)),
            "/head".to_owned(),
            "/FDL.JSON".to_owned(),
        ] {
            assert_eq!(keys(&path), Err(404), "{path}");
        }
    }

    use proptest::prelude::*;

    /// Paths out of what parsers stumble over, and of anything at all.
    fn paths() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("data".to_owned()),
            Just("versions".to_owned()),
            Just("refs/heads".to_owned()),
            Just("sources".to_owned()),
            Just(ID.to_owned()),
            Just("k=".to_owned()),
            "(%2e|%2E|%2f|%2F|%5c|%00|%25|%0a|%c0%ae|%ff|\\.|/|\\\\|:|;|\\?|<|>|%){1,4}",
            "[a-z0-9._-]{0,12}",
            ".{0,8}",
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("/{}", pieces.join("/")))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn whatever_is_asked_for_lies_in_the_layout(path in paths(), cut in 0_usize..40) {
            let data_dir = DataDir::default();
            for path in [path.clone(), path.chars().skip(cut).collect()] {
                let keys = match Target::parse(&path) {
                    Ok(Target::Data(data)) => data.keys(&data_dir).unwrap_or_default(),
                    Ok(Target::Version(key, _)) => {
                        prop_assert!(key.starts_with("versions/") && layout::in_version(&key).is_some());
                        vec![key]
                    }
                    Ok(Target::Source(key, _)) => vec![key],
                    Ok(Target::Ref(name)) => vec![name.key().to_owned()],
                    Ok(_) => vec![],
                    Err(refusal) => {
                        prop_assert!(refusal.status.is_client_error());
                        prop_assert!(!refusal.message.contains(char::is_control), "{}", refusal.message);
                        vec![]
                    }
                };
                for key in keys {
                    prop_assert!(key::check(&key).is_ok() && !key.starts_with('/'), "{key}");
                    prop_assert!(!key.split(['/', '\\']).any(|part| part == ".." || part == "."), "{key}");
                    let folder = key.split('/').next().unwrap();
                    prop_assert!(["data", "versions", "sources", "refs"].contains(&folder), "{key}");
                }
            }
        }

        #[test]
        fn a_key_is_what_it_is(key in "data/[a-zA-Z0-9 %=é町._-]{1,30}") {
            if let Ok(Target::Data(data)) = Target::of_key(&key)
                && let Ok(found) = data.key(&DataDir::default())
            {
                prop_assert_eq!(found, key);
            }
        }
    }

    #[test]
    fn a_key_is_not_decoded() {
        let key = "data/main/t/k=b%2Fc/50% [x].parquet";
        let Ok(Target::Data(data)) = Target::of_key(key) else { panic!("{key}") };
        assert_eq!(data.key(&DataDir::default()).unwrap(), key);
        assert!(Target::of_key("../x").is_err());
    }
}
