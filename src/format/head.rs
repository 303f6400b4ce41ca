//! The content of HEAD and of a ref's file (docs/format.md sections 1 and 8).

use super::error::FormatError;
use super::json;
use super::layout;
use super::names::{RefKind, RefName};
use super::version_id::VersionId;

/// The longest HEAD or ref, in bytes.
pub const TEXT_LIMIT: usize = 4096;

/// The branch that HEAD names.
///
/// # Errors
/// [`FormatError::BadRef`] when the content is not `ref: refs/heads/<name>`.
pub fn parse_head(bytes: &[u8]) -> Result<RefName, FormatError> {
    let bad = |why: &str| FormatError::reference(layout::HEAD, why);
    let name =
        text(layout::HEAD, bytes)?.strip_prefix("ref:").ok_or_else(|| bad("it does not begin with \"ref: \""))?.trim();
    let name = RefName::parse(name).map_err(|error| bad(&error.to_string()))?;
    if name.kind() != RefKind::Branch {
        return Err(bad("it does not name a branch"));
    }
    Ok(name)
}

/// The content of a HEAD that names a branch.
#[must_use]
pub fn print_head(branch: &RefName) -> String {
    format!("ref: {branch}\n")
}

/// The version that a ref holds; `file` is the ref's key, for the message.
///
/// # Errors
/// [`FormatError::BadRef`] when the content is not a version ID.
pub fn parse_ref(file: &str, bytes: &[u8]) -> Result<VersionId, FormatError> {
    text(file, bytes)?.parse().map_err(|error: FormatError| FormatError::reference(file, error.to_string()))
}

/// The content of a ref that holds a version.
#[must_use]
pub fn print_ref(version: VersionId) -> String {
    format!("{version}\n")
}

/// The text of a small file without the white space around it.
fn text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, FormatError> {
    if bytes.len() > TEXT_LIMIT {
        return Err(FormatError::reference(file, "it is longer than 4 KiB"));
    }
    std::str::from_utf8(json::without_mark(bytes))
        .map(str::trim)
        .map_err(|_| FormatError::reference(file, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";

    #[test]
    fn the_mark_of_an_editor_is_passed_over() {
        assert_eq!(parse_head(b"\xef\xbb\xbfref: refs/heads/main\r\n").unwrap().short(), "main");
        assert_eq!(parse_ref("refs/heads/main", format!("\u{feff}{ID}\r\n").as_bytes()).unwrap().to_string(), ID);
    }

    #[test]
    fn heads() {
        let main = RefName::branch("main").unwrap();
        assert_eq!(print_head(&main), "ref: refs/heads/main\n");
        for good in ["ref: refs/heads/main\n", "ref: refs/heads/main", " ref:refs/heads/main\r\n"] {
            assert_eq!(parse_head(good.as_bytes()).unwrap(), main);
        }
        let long = format!("ref: refs/heads/main{}", " ".repeat(5000));
        for bad in ["", "main", ID, "ref: main", "ref: refs/tags/v1", "ref: refs/heads/../x", &long] {
            assert!(parse_head(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse_head(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn refs() {
        let id: VersionId = ID.parse().unwrap();
        assert_eq!(print_ref(id), format!("{ID}\n"));
        assert_eq!(parse_ref("refs/heads/main", print_ref(id).as_bytes()).unwrap(), id);
        assert_eq!(parse_ref("refs/heads/main", format!("\t{ID} \r\n").as_bytes()).unwrap(), id);
        let long = format!("{ID}{}", "\n".repeat(5000));
        for bad in ["", "ref: refs/heads/main", &ID.to_uppercase(), &format!("{ID}\n{ID}"), &long] {
            let error = parse_ref("refs/heads/main", bad.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("refs/heads/main is damaged"), "{error}");
        }
    }
}
