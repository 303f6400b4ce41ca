//! Reading the small files of a working copy: no more than a file of that name may have, and nothing that is no file.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::layout;

/// The bytes of a file of this machine that has the name of a file of a version, or is as small as one
/// ([`layout::limit_of_name`]). Never waits for what is a pipe.
///
/// # Errors
/// Those of the file system; [`ErrorKind::InvalidData`] for a file that is longer, or that is none.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let limit = layout::limit_of_name(path.file_name().and_then(|name| name.to_str()).unwrap_or_default());
    let wrong = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(wrong("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(wrong(format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_files_of_their_size_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("version.json"), "{}").unwrap();
        assert_eq!(read_small(&at("version.json")).unwrap(), b"{}");
        assert_eq!(read_small(&at("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
        for name in ["version.json", "version.json.sig", "state.json"] {
            std::fs::File::create(at(name)).unwrap().set_len(8 << 30).unwrap();
            assert_eq!(read_small(&at(name)).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        }
        let pipe = at("files.json");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            assert_eq!(read_small(path).unwrap_err().kind(), ErrorKind::InvalidData, "{}", path.display());
        }
    }
}
