//! Signing by `ssh-keygen`: it speaks with the agent, as it does for Git, and with keys in hardware.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::SignError;
use crate::format::NAMESPACE;

/// How long an agent or a device may take: somebody may have to find and touch it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether ssh-keygen has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

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
    keygen.arg("-f").arg(key).stdin(Stdio::from(input)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = keygen.spawn().map_err(SignError::NoKeygen)?;
    let began = Instant::now();
    // A signature fits into the pipe, so that it can be read when all has ended.
    while child.try_wait().map_err(SignError::NoKeygen)?.is_none() {
        if began.elapsed() > PATIENCE {
            // It may have ended this moment.
            drop(child.kill());
            drop(child.wait());
            return Err(SignError::NoAnswer { path: key.to_owned(), seconds: PATIENCE.as_secs() });
        }
        sleep(BETWEEN_LOOKS);
    }
    let output = child.wait_with_output().map_err(SignError::NoKeygen)?;
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
