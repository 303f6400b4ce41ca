//! version.json.sig: who vouches for a version (docs/format.md section 15). Made and read as by `ssh-keygen -Y`.

use std::fmt;

use ssh_key::public::KeyData;
use ssh_key::{Error, HashAlg, LineEnding, PublicKey, SshSig};

use super::allowed_signers::{AllowedSigners, Standing};
use super::error::quoted;
use super::record::{Author, Record};
use super::time::Timestamp;

/// What the signatures of versions are made for: one that was made for anything else is none.
pub const NAMESPACE: &str = "fdl";

/// The lengths of RSA keys in bits that are taken. `rsa` does not go further, and shorter ones are not safe.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// A signature, which may be right or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature(SshSig);

/// Why a signature is not one of these bytes. A closed list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// It cannot be read.
    #[error("version.json.sig is not an SSH signature that is accepted: {0}")]
    Unreadable(String),
    /// It was made for something else.
    #[error("the signature is for the namespace {0}, not for {NAMESPACE}")]
    OtherNamespace(String),
    /// The bytes are not those that were signed, or another key signed them.
    #[error("the signature does not fit version.json: one of them was changed, or they do not belong together")]
    DoesNotFit,
    /// Nobody can tell, as the key is of a kind that is not known here.
    #[error("the signature cannot be checked: {0}")]
    Unsupported(String),
}

impl Signature {
    /// Reads the content of version.json.sig.
    ///
    /// # Errors
    /// [`SignatureFault::Unreadable`]: not armored as SSH does it, or made in a way that is not accepted (RSA by SHA-1).
    pub fn parse(bytes: &[u8]) -> Result<Self, SignatureFault> {
        let unreadable = |why: &str| SignatureFault::Unreadable(why.to_owned());
        let armor = rewrapped(bytes).ok_or_else(|| unreadable("it is not armored as one"))?;
        let signature = SshSig::from_pem(&armor).map_err(|error| unreadable(&error.to_string()))?;
        // The crate passes over lengths that do not fit, where ssh-keygen does not. It writes those of keys in hardware
        // in another way than it reads them.
        let in_hardware = matches!(signature.public_key(), KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_));
        match in_hardware || signature.to_pem(LineEnding::LF).is_ok_and(|written| written.trim() == armor.trim()) {
            true => Ok(Self(signature)),
            false => Err(unreadable("its parts do not have the lengths they say")),
        }
    }

    /// Checks that the key it names has signed these bytes of version.json. Whose key that is, is another question.
    ///
    /// # Errors
    /// Any [`SignatureFault`] but the first.
    pub fn check(&self, record: &[u8]) -> Result<(), SignatureFault> {
        let Self(signature) = self;
        if signature.namespace() != NAMESPACE {
            return Err(SignatureFault::OtherNamespace(quoted(signature.namespace())));
        }
        let key = PublicKey::from(signature.public_key().clone());
        if let KeyData::Rsa(rsa) = key.key_data() {
            let bits = rsa.n.as_positive_bytes().map_or(0, |bytes| bytes.len().saturating_mul(8));
            if !RSA_BITS.contains(&bits) {
                return Err(SignatureFault::Unsupported(format!("an RSA key of {bits} bits is not supported")));
            }
        }
        key.verify(NAMESPACE, record, signature).map_err(|error| match error {
            Error::AlgorithmUnsupported { .. } | Error::AlgorithmUnknown => {
                SignatureFault::Unsupported(error.to_string())
            }
            _ => SignatureFault::DoesNotFit,
        })
    }

    /// The fingerprint of its key, as `ssh-keygen -l` shows it: `SHA256:…`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.key().fingerprint(HashAlg::Sha256).to_string()
    }

    fn key(&self) -> &KeyData {
        self.0.public_key()
    }
}

/// The same armor in lines of 70 characters, as the crate wants it. Other programs write 64 or 76.
fn rewrapped(bytes: &[u8]) -> Option<String> {
    const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
    const END: &str = "-----END SSH SIGNATURE-----";
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let inner: Vec<char> =
        text.strip_prefix(BEGIN)?.strip_suffix(END)?.chars().filter(|c| !c.is_whitespace()).collect();
    let lines = inner.chunks(70).map(|line| line.iter().collect::<String>() + "\n");
    Some(format!("{BEGIN}\n{}{END}\n", lines.collect::<String>()))
}

/// What came of looking at a version's signature. The texts are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// A key that the reader trusts for this author has signed this record.
    Good,
    /// The signature is wrong.
    Bad,
    /// The signature is right, or cannot be checked; the reader does not trust its key for this author.
    UnknownSigner,
    /// There is no signature.
    Unsigned,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::UnknownSigner => "unknown signer",
            Self::Unsigned => "unsigned",
        })
    }
}

/// What is to be told of a version's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What came of it.
    pub status: Status,
    /// The mail address of the author, in whose name it is signed. Of a version that is not good it is only claimed.
    pub signer: Option<String>,
    /// The fingerprint of the key that the signature names.
    pub key: Option<String>,
    /// Why it is not good.
    pub note: Option<String>,
}

/// Whom a reader trusts.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// The reader's own allowed signers.
    pub allowed: AllowedSigners,
    /// Those that fdl.json lists, which are shown and never trusted by themselves.
    pub listed: AllowedSigners,
}

/// Who signs a version: the mail address of its author.
#[must_use]
pub fn signer_of(author: &Author) -> Option<&str> {
    author.email().map(str::trim).filter(|email| !email.is_empty())
}

/// Judges the signature of a version. `bytes` are those of version.json, and `record` is what they say.
#[must_use]
pub fn judge(bytes: &[u8], record: &Record, signature: Option<&[u8]>, trust: &Trust) -> Verdict {
    let signer = record.author.as_ref().and_then(signer_of).map(str::to_owned);
    let Some(signature) = signature else {
        return Verdict { status: Status::Unsigned, signer, key: None, note: None };
    };
    let signature = match Signature::parse(signature) {
        Ok(signature) => signature,
        Err(fault) => return Verdict { status: Status::Bad, signer, key: None, note: Some(fault.to_string()) },
    };
    let (status, note) = match signature.check(bytes) {
        Ok(()) => standing(&signature, signer.as_deref(), record, trust),
        Err(fault @ SignatureFault::Unsupported(_)) => (Status::UnknownSigner, Some(fault.to_string())),
        Err(fault) => (Status::Bad, Some(fault.to_string())),
    };
    Verdict { status, signer, key: Some(signature.fingerprint()), note }
}

/// The standing of a key that has signed.
fn standing(signature: &Signature, signer: Option<&str>, record: &Record, trust: &Trust) -> (Status, Option<String>) {
    let Some(signer) = signer else {
        return (Status::UnknownSigner, Some("the author of the version has no mail address".to_owned()));
    };
    let refused = match trust.allowed.standing(signature.key(), signer, record.created.map(Timestamp::utc)) {
        Standing::Allowed => return (Status::Good, None),
        Standing::Refused(why) => why,
        Standing::Unknown => "the key is not among the allowed signers".to_owned(),
    };
    let listed: Vec<&str> = trust.listed.names_of(signature.key()).collect();
    let note = match listed.is_empty() {
        true => refused,
        false => {
            format!("{refused}; fdl.json lists it for {}, which alone is no reason to trust it", listed.join(", "))
        }
    };
    (Status::UnknownSigner, Some(note))
}
