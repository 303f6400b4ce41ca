//! Version IDs: UUIDv7 (docs/format.md section 3).

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use super::error::{FormatError, quoted};
use super::random::Random;
use super::time::Clock;

/// The ID of a version. Written as a lower-case UUID with hyphens, and read in no other form.
///
/// New ones are UUIDv7, so they sort by the time they were made; a UUID of another version is read as well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(Uuid);

impl VersionId {
    /// The UUID itself.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for VersionId {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let bad = || FormatError::BadId { text: quoted(text) };
        let strict = text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase());
        if !strict {
            return Err(bad());
        }
        Uuid::try_parse(text).map(Self).map_err(|_| bad())
    }
}

impl Serialize for VersionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VersionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Makes version IDs. One for a process: each ID it gives is greater than all it gave before, even when the clock
/// stands still or goes back.
#[derive(Debug)]
pub struct VersionIds {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    last: Mutex<Parts>,
}

/// A UUIDv7 without its version and variant: the milliseconds (48 bits), and 74 bits that are random or count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Parts {
    millis: u64,
    tail: u128,
}

const TAIL_BITS: u32 = 74;
const TAIL_MASK: u128 = (1 << TAIL_BITS) - 1;

impl VersionIds {
    /// A generator on this clock and these random bits.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let last = Mutex::new(Parts::default());
        Self { clock, random, last }
    }

    /// The next ID.
    pub fn next(&self) -> VersionId {
        let millis = u64::try_from(self.clock.now().timestamp_millis()).unwrap_or(0);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.next(millis, self.random.bits());
        last.id()
    }
}

impl Parts {
    /// The parts that follow at a time: fresh random bits in a new millisecond, else one more than before.
    fn next(self, millis: u64, random: u128) -> Self {
        // The upper bit stays free, so that counting on has room.
        let fresh = Self { millis, tail: random & (TAIL_MASK >> 1) };
        if millis > self.millis {
            fresh
        } else if self.tail < TAIL_MASK {
            Self { millis: self.millis, tail: self.tail + 1 }
        } else {
            Self { millis: self.millis + 1, ..fresh }
        }
    }

    fn id(self) -> VersionId {
        let time = (u128::from(self.millis) & 0xffff_ffff_ffff) << 80;
        let upper = (self.tail >> 62) << 64;
        let lower = self.tail & ((1 << 62) - 1);
        let (version, variant) = (7 << 76, 2 << 62);
        VersionId(Uuid::from_u128(time | version | upper | variant | lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SeededRandom;
    use chrono::{DateTime, Utc};
    use std::sync::atomic::{AtomicI64, Ordering};

    #[derive(Debug)]
    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> DateTime<Utc> {
            DateTime::from_timestamp_millis(self.0.load(Ordering::Relaxed)).unwrap()
        }
    }

    #[test]
    fn only_the_lower_case_hyphenated_form_is_read() {
        let good = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10";
        assert_eq!(good.parse::<VersionId>().unwrap().to_string(), good);
        for bad in [
            "",
            "019A3C4E-7C1B-7D3A-9A55-0F2B6C1D9E10",
            "019a3c4e7c1b7d3a9a550f2b6c1d9e10",
            "{019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10}",
            "urn:uuid:019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10",
            "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e1",
            "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e1g",
            " 019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e1",
            "../../../../../../../../../etc/passwd",
            "019a3c4e-7c1b-7d3a-9a550-f2b6c1d9e10",
        ] {
            assert!(bad.parse::<VersionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn new_ones_are_uuid_v7_of_the_clock_and_grow() {
        let clock = Arc::new(SetClock(AtomicI64::new(1_795_990_443_123)));
        let ids = VersionIds::new(clock.clone(), Arc::new(SeededRandom::new(1)));
        let mut before = ids.next();
        assert_eq!(before.uuid().get_version_num(), 7);
        assert_eq!(before.uuid().get_variant(), uuid::Variant::RFC4122);
        let (seconds, nanos) = before.uuid().get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos), (1_795_990_443, 123_000_000));
        for step in [0, 0, 0, -5000, 1, 0, -1, 60_000] {
            clock.0.fetch_add(step, Ordering::Relaxed);
            let next = ids.next();
            assert!(next > before, "{next} after {before}");
            assert_eq!(next.uuid().get_version_num(), 7);
            before = next;
        }
    }

    #[test]
    fn a_full_count_moves_on_to_the_next_millisecond() {
        let full = Parts { millis: 5, tail: TAIL_MASK };
        let next = full.next(5, 42);
        assert!(next.id() > full.id());
        assert_eq!(next.millis, 6);
    }

    #[test]
    fn ids_from_many_threads_are_all_different() {
        let ids = VersionIds::new(Arc::new(SetClock(AtomicI64::new(1))), Arc::new(SeededRandom::new(1)));
        let all: Vec<VersionId> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..500).map(|_| ids.next()).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), 2000);
    }
}
