//! Where random bits come from, so that a test can replay a seed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Gives random bits. Passed to whatever needs them.
pub trait Random: Send + Sync + fmt::Debug {
    /// 128 random bits.
    fn bits(&self) -> u128;

    /// A random UUID (version 4).
    fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.bits().to_be_bytes()).into_uuid()
    }
}

/// The random numbers of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn bits(&self) -> u128 {
        // A version 4 UUID holds 122 random bits; folding two gives 128.
        let (a, b) = (Uuid::new_v4().as_u128(), Uuid::new_v4().as_u128());
        a ^ b.rotate_left(64)
    }
}

/// The same numbers again for the same seed. For tests.
#[derive(Debug, Default)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// One step of splitmix64.
    fn step(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Random for SeededRandom {
    fn bits(&self) -> u128 {
        (u128::from(self.step()) << 64) | u128::from(self.step())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays() {
        let (a, b) = (SeededRandom::new(7), SeededRandom::new(7));
        assert_eq!(a.uuid(), b.uuid());
        assert_ne!(a.uuid(), a.uuid());
        assert_ne!(SeededRandom::new(8).uuid(), SeededRandom::new(7).uuid());
        assert_ne!(SystemRandom.uuid(), SystemRandom.uuid());
        assert_eq!(SystemRandom.uuid().get_version_num(), 4);
    }
}
