//! JSON as the format writes it: two-space indents, keys in a fixed order, `\n` at the end (docs/format.md section 1).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{FormatError, quoted};
use super::layout;

/// The version of the format that this program writes.
pub const FDL_VERSION: &str = "0.1";

/// The major version of the format that this program reads.
const MAJOR: &str = "0";

/// The bytes of a file. The same value gives the same bytes. What nobody would read is not written.
pub(super) fn print<T: Serialize>(file: &str, value: &T) -> Result<Vec<u8>, FormatError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| FormatError::json(file, error.to_string()))?;
    bytes.push(b'\n');
    let (size, limit) = (bytes.len() as u64, layout::limit_of_name(file));
    if size > limit {
        return Err(FormatError::TooLarge { file: file.to_owned(), size, limit });
    }
    Ok(bytes)
}

/// Reads a file. Never panics, whatever the bytes.
pub(super) fn parse<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, FormatError> {
    serde_json::from_slice(without_mark(bytes)).map_err(|error| FormatError::json(file, error.to_string()))
}

/// The bytes of a text without the mark of UTF-8 at its beginning, which some editors put there. Hashes are of all bytes.
pub(super) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Reads a file after looking at its version, because another major version may have another shape.
pub(super) fn parse_versioned<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, FormatError> {
    #[derive(Deserialize)]
    struct Versioned {
        fdl: String,
    }
    supported(file, &parse::<Versioned>(file, bytes)?.fdl)?;
    parse(file, bytes)
}

/// Checks that a file's version of the format is one that this program reads; `file` is its key, for the message.
///
/// # Errors
/// [`FormatError::UnsupportedVersion`] for another major version, [`FormatError::BadJson`] for what is no version.
pub fn supported(file: &str, found: &str) -> Result<(), FormatError> {
    let mut parts = found.split('.');
    let major = parts.next().unwrap_or_default();
    let numbers = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !numbers(major) || !parts.all(numbers) {
        let why = format!("its version of the format is {}", quoted(found));
        return Err(FormatError::json(file, why));
    }
    if major != MAJOR {
        return Err(FormatError::UnsupportedVersion { file: file.to_owned(), found: found.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_major_version_zero_is_read() {
        for good in ["0.1", "0.2", "0.10", "0", "0.1.5"] {
            assert_eq!(supported("fdl.json", good), Ok(()), "{good}");
        }
        for other in ["1.0", "1", "10.1", "99999999999999999999.1"] {
            let error = supported("fdl.json", other).unwrap_err();
            assert!(matches!(error, FormatError::UnsupportedVersion { .. }), "{other}");
        }
        for bad in ["", "x", "v0.1", "0.", ".1", "-0.1", "0.x"] {
            let error = supported("fdl.json", bad).unwrap_err();
            assert!(matches!(error, FormatError::BadJson { .. }), "{bad}");
        }
    }

    #[test]
    fn nothing_is_written_that_nobody_reads() {
        let limit = usize::try_from(layout::limit_of_name(layout::VERSION_JSON)).unwrap();
        let error = print(layout::VERSION_JSON, &"x".repeat(limit)).unwrap_err();
        assert!(matches!(error, FormatError::TooLarge { .. }), "{error}");
        assert!(print(layout::VERSION_JSON, &"x".repeat(limit - 3)).is_ok());
    }

    #[test]
    fn hostile_json_is_an_error() {
        let deep = "[".repeat(100_000);
        let wide = format!("{{\"fdl\": \"0.1\", \"x\": {}1{}}}", "[".repeat(200), "]".repeat(200));
        for bad in [
            "",
            "{",
            "null",
            "[]",
            "{\"fdl\": 1}",
            "{\"fdl\": null}",
            "{\"fdl\": \"0.1\"",
            "{\"fdl\": \"0.1\"} x",
            &deep,
            &wide,
            "\u{feff}",
            "\u{feff}\u{feff}{\"fdl\": \"0.1\"}",
        ] {
            let read = parse_versioned::<serde_json::Value>("x.json", bad.as_bytes());
            assert!(matches!(read, Err(FormatError::BadJson { .. })), "{}", bad.len());
        }
        assert!(parse::<serde_json::Value>("x.json", &[b'"', 0xff, b'"']).is_err());
    }

    #[test]
    fn the_mark_of_an_editor_is_passed_over() {
        let marked = "\u{feff}{\"fdl\": \"0.1\"}\r\n";
        let read = parse_versioned::<serde_json::Value>("x.json", marked.as_bytes()).unwrap();
        assert_eq!(read, serde_json::json!({"fdl": "0.1"}));
    }
}
