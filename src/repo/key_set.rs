//! A set of keys that takes 16 bytes a key: a repository may name a million data files.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// The first 128 bits of the SHA-256 of each key.
///
/// Of a million keys two are taken for the same with a chance of about one in 2^88. Where it decides what may be deleted
/// (gc), that could only keep a file too long.
#[derive(Debug, Default)]
pub(super) struct KeySet(HashSet<[u8; 16]>);

impl KeySet {
    /// Adds a key. No when it was there.
    pub(super) fn insert(&mut self, key: &str) -> bool {
        self.0.insert(short(key))
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.0.contains(&short(key))
    }

    /// Adds an object: its key and its size together. No when it was there.
    pub(super) fn insert_sized(&mut self, key: &str, size: u64) -> bool {
        self.insert(&sized(key, size))
    }

    pub(super) fn contains_sized(&self, key: &str, size: u64) -> bool {
        self.contains(&sized(key, size))
    }
}

/// No key holds a line break.
fn sized(key: &str, size: u64) -> String {
    format!("{key}\n{size}")
}

fn short(key: &str) -> [u8; 16] {
    Sha256::digest(key.as_bytes()).first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in() {
        let mut set = KeySet::default();
        assert!(set.insert("data/a"));
        assert!(!set.insert("data/a"));
        assert!(set.contains("data/a"));
        assert!(!set.contains("data/b"));
        assert!(set.insert_sized("data/a", 3));
        assert!(set.contains_sized("data/a", 3));
        assert!(!set.contains_sized("data/a", 4));
    }
}
