//! Making signatures: with a key file, or with a key that an agent holds (docs/design/0004-signatures.md).
//!
//! The one layer that touches private keys. None is kept longer than a call, and nothing of one is part of a message.

mod agent;
mod key;

use std::io;
use std::path::{Path, PathBuf};

use ssh_key::{Algorithm, PrivateKey, PublicKey};

use crate::format::{Signature, SignatureFault};

/// Signs the records of versions.
#[derive(Debug)]
pub struct Signer {
    path: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// With the private key that the file holds.
    Key(Box<PrivateKey>),
    /// With the private key that an agent holds for the public key that the file holds.
    Agent,
}

/// Why nothing can be signed with a file.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The system does not give the file.
    #[error("the key {} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Neither a private key nor a public one, as OpenSSH writes them.
    #[error("{} holds no OpenSSH key", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key needs a passphrase.
    #[error("the key {} is protected by a passphrase", path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// A key of a kind that cannot sign here: one in hardware, say.
    #[error("the key {} ({kind}) cannot be used from its file", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The type of key.
        kind: Algorithm,
    },
    /// ssh-keygen, which asks the agent, is not there.
    #[error("ssh-keygen, which asks the agent to sign, cannot be run: {0}")]
    NoKeygen(io::Error),
    /// ssh-keygen did not sign.
    #[error("ssh-keygen did not sign with {}: {said}", path.display())]
    Refused {
        /// The file of the public key.
        path: PathBuf,
        /// Its last words.
        said: String,
    },
    /// What came out is no good signature.
    #[error("the signature that was made is not good: {0}")]
    NotGood(SignatureFault),
}

impl Signer {
    /// Looks at a key file: a private key signs by itself, a public key stands for the one that an agent holds.
    ///
    /// # Errors
    /// [`SignError::Io`], [`SignError::NotAKey`], [`SignError::Encrypted`], [`SignError::Unsupported`].
    pub fn open(path: &Path) -> Result<Self, SignError> {
        let path = path.to_owned();
        match PrivateKey::read_openssh_file(&path) {
            Ok(key) if key.is_encrypted() => Err(SignError::Encrypted { path }),
            Ok(key) if !key::can_sign(&key) => Err(SignError::Unsupported { path, kind: key.algorithm() }),
            Ok(key) => Ok(Self { path, way: Way::Key(Box::new(key)) }),
            // The crate keeps of the system's error its kind alone.
            Err(ssh_key::Error::Io(kind)) if kind != io::ErrorKind::InvalidData => {
                Err(SignError::Io { path, source: kind.into() })
            }
            Err(_) => match PublicKey::read_openssh_file(&path) {
                Ok(_) => Ok(Self { path, way: Way::Agent }),
                Err(_) => Err(SignError::NotAKey { path }),
            },
        }
    }

    /// The content of version.json.sig for these bytes of version.json.
    ///
    /// # Errors
    /// [`SignError::Unsupported`], [`SignError::NoKeygen`], [`SignError::Refused`], and [`SignError::NotGood`] when what
    /// was made does not pass the test that readers make.
    pub fn sign(&self, record: &[u8]) -> Result<Vec<u8>, SignError> {
        let made = match &self.way {
            Way::Key(key) => {
                let unsupported = |_| SignError::Unsupported { path: self.path.clone(), kind: key.algorithm() };
                key::sign(key, record).map_err(unsupported)?
            }
            Way::Agent => agent::sign(&self.path, record)?,
        };
        let signature = Signature::parse(&made).map_err(SignError::NotGood)?;
        signature.check(record).map_err(SignError::NotGood)?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        assert!(matches!(Signer::open(&file), Err(SignError::Io { .. })));
        assert!(matches!(Signer::open(folder.path()), Err(SignError::Io { .. })));
        for content in
            ["", "nonsense", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"]
        {
            std::fs::write(&file, content).unwrap();
            assert!(matches!(Signer::open(&file), Err(SignError::NotAKey { .. })), "{content}");
        }
        std::fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
        assert!(matches!(Signer::open(&file), Err(SignError::NotAKey { .. })));
    }
}
