//! Making signatures: with a key file, or with a key that an agent holds (docs/design/0004-signatures.md).
//!
//! The one layer that touches private keys. None is kept longer than a call, and nothing of one is part of a message.

mod key;
mod keygen;

use std::path::{Path, PathBuf};
use std::{fs, io};

use ssh_key::{Algorithm, PrivateKey, PublicKey};
use zeroize::Zeroizing;

use crate::format::{Signature, SignatureFault};

use keygen::Holder;

/// How an OpenSSH private key begins.
const PRIVATE_KEY: &[u8] = b"-----BEGIN OPENSSH PRIVATE KEY-----";

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
    /// By ssh-keygen, with the private key that is there.
    Keygen(Holder),
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
    /// The key cannot sign: it is too long, say.
    #[error("with the key {} ({kind}) nothing can be signed: {why}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The type of key.
        kind: Algorithm,
        /// What is wrong with it.
        why: ssh_key::Error,
    },
    /// ssh-keygen is not there.
    #[error("ssh-keygen, which this key needs to sign, cannot be run: {0}")]
    NoKeygen(io::Error),
    /// ssh-keygen has not answered for too long.
    #[error("ssh-keygen has not signed with {} within {seconds} seconds", path.display())]
    NoAnswer {
        /// The key file.
        path: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// ssh-keygen did not sign.
    #[error("ssh-keygen did not sign with {}: {said}", path.display())]
    Refused {
        /// The key file.
        path: PathBuf,
        /// Its last words.
        said: String,
    },
    /// What came out is no good signature.
    #[error("the signature that was made is not good: {0}")]
    NotGood(SignatureFault),
}

/// The longest file of keys that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Reads a file that holds keys. A pipe or a device might never end.
///
/// # Errors
/// The system's; one of the kind `InvalidInput` for what is no file, or too long a one.
pub fn read_keys(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(wrong("it is not a file"));
    }
    if meta.len() > LONGEST {
        return Err(wrong("it is too long to be a file of keys"));
    }
    fs::read(path).map(Zeroizing::new)
}

impl Signer {
    /// Looks at a key file: a private key signs by itself, a public key stands for the one that an agent holds.
    ///
    /// # Errors
    /// [`SignError::Io`], [`SignError::NotAKey`], [`SignError::Encrypted`].
    pub fn open(path: &Path) -> Result<Self, SignError> {
        let path = path.to_owned();
        let bytes = match read_keys(&path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(SignError::Io { path, source }),
        };
        let way = match PrivateKey::from_openssh(&bytes) {
            Ok(key) if key.is_encrypted() => return Err(SignError::Encrypted { path }),
            Ok(key) if key::can_sign(&key) => Way::Key(Box::new(key)),
            // A key in hardware; or one with a passphrase is none of these, so that ssh-keygen asks for none.
            Ok(_) => Way::Keygen(Holder::File),
            // One ECDSA key of 256 is shorter than ssh-key 0.6.7 takes it.
            Err(_) if bytes.trim_ascii_start().starts_with(PRIVATE_KEY) => Way::Keygen(Holder::File),
            Err(_) => match PublicKey::read_openssh_file(&path) {
                Ok(_) => Way::Keygen(Holder::Agent),
                Err(_) => return Err(SignError::NotAKey { path }),
            },
        };
        Ok(Self { path, way })
    }

    /// The content of version.json.sig for these bytes of version.json.
    ///
    /// # Errors
    /// [`SignError::Unsupported`], [`SignError::NoKeygen`], [`SignError::Refused`], and [`SignError::NotGood`] when what
    /// was made does not pass the test that readers make.
    pub fn sign(&self, record: &[u8]) -> Result<Vec<u8>, SignError> {
        let made = match &self.way {
            Way::Key(key) => key::sign(key, record).map_err(|why| {
                let (path, kind) = (self.path.clone(), key.algorithm());
                SignError::Unsupported { path, kind, why }
            })?,
            Way::Keygen(holder) => keygen::sign(&self.path, *holder, record)?,
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
        for content in ["", "nonsense", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"] {
            std::fs::write(&file, content).unwrap();
            assert!(matches!(Signer::open(&file), Err(SignError::NotAKey { .. })), "{content}");
        }
        std::fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
        assert!(matches!(Signer::open(&file), Err(SignError::NotAKey { .. })));
    }
}
