//! SHA-256 hashes, written as 64 lower-case hexadecimal digits.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Digest as _;

use super::error::FormatError;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The hash of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The hash of all that a reader gives, and how many bytes that was.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut size = 0;
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok((Self(hasher.finalize().into()), size)),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(buffer.get(..count).unwrap_or_default());
            size += count as u64;
        }
    }

    /// The hash of a file and its size in bytes.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn of_file(path: &Path) -> io::Result<(Self, u64)> {
        Self::of_reader(File::open(path)?)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            write!(text, "{byte:02x}")?;
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256 {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let bad = || FormatError::value("a SHA-256 hash", text, "it must be 64 hexadecimal digits");
        let digits: Vec<u8> = text
            .chars()
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        match <[u8; 32]>::try_from(bytes) {
            Ok(hash) if rest.is_empty() => Ok(Self(hash)),
            _ => Err(bad()),
        }
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn known_hashes() {
        assert_eq!(Sha256::of(b"").to_string(), EMPTY);
        assert_eq!(Sha256::of(b"abc").to_string(), ABC);
        let (hash, size) = Sha256::of_reader(&b"abc"[..]).unwrap();
        assert_eq!((hash.to_string().as_str(), size), (ABC, 3));
        let long = vec![7; 200_000];
        assert_eq!(Sha256::of_reader(long.as_slice()).unwrap(), (Sha256::of(&long), 200_000));
        assert!(Sha256::of_file(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn texts() {
        assert_eq!(ABC.parse::<Sha256>().unwrap(), Sha256::of(b"abc"));
        assert_eq!(ABC.to_uppercase().parse::<Sha256>().unwrap(), Sha256::of(b"abc"));
        for bad in [
            "",
            "abc",
            EMPTY.trim_start_matches('e'),
            &format!("{EMPTY}0"),
            &format!("{EMPTY}00"),
            &EMPTY.replace('e', "g"),
        ] {
            assert!(bad.parse::<Sha256>().is_err(), "{bad}");
        }
    }
}
