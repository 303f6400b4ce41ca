//! Signing by `ssh-keygen`: it speaks with the agent, as it does for Git, and with keys in hardware.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::SignError;
use crate::format::NAMESPACE;

/// Where ssh-keygen finds the private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// In the file.
    File,
    /// In the agent and nowhere else, so that no passphrase is asked for.
    Agent,
}

/// Has ssh-keygen sign. An agent or a device may ask its user, and takes its time.
pub(super) fn sign(key: &Path, holder: Holder, record: &[u8]) -> Result<Vec<u8>, SignError> {
    let input = input(record).map_err(|source| SignError::Io { path: std::env::temp_dir(), source })?;
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-Y", "sign", "-n", NAMESPACE]);
    if holder == Holder::Agent {
        keygen.arg("-U");
    }
    let output = keygen.arg("-f").arg(key).stdin(Stdio::from(input)).output().map_err(SignError::NoKeygen)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it gave no reason").to_owned();
    Err(SignError::Refused { path: key.to_owned(), said })
}

/// The bytes as a file without a name. A pipe whose reader ends early would end this process too, where it does not
/// ignore SIGPIPE.
fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
