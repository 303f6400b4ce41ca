//! Signing with a key that an agent holds. `ssh-keygen` speaks with the agent, as it does for Git.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::SignError;
use crate::format::NAMESPACE;

/// Has the agent sign with the private half of the public key in a file. The agent may ask its user, and takes its time.
pub(super) fn sign(public_key: &Path, record: &[u8]) -> Result<Vec<u8>, SignError> {
    let input = input(record).map_err(|source| SignError::Io { path: std::env::temp_dir(), source })?;
    let output = Command::new("ssh-keygen")
        // -U: the agent or nothing, so that no passphrase is asked for.
        .args(["-Y", "sign", "-U", "-n", NAMESPACE, "-f"])
        .arg(public_key)
        .stdin(Stdio::from(input))
        .output()
        .map_err(SignError::NoKeygen)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it gave no reason").to_owned();
    Err(SignError::Refused { path: public_key.to_owned(), said })
}

/// The bytes as a file without a name. A pipe whose reader ends early would end this process too, where it does not
/// ignore SIGPIPE.
fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
