//! Times: RFC 3339 in UTC with milliseconds and `Z` (docs/format.md section 1), and the clock they come from.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::FormatError;

/// Tells the time. Passed to whatever needs it, so that a test can replay a fixed one.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> DateTime<Utc>;
}

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// A moment in UTC, whole milliseconds. Printed as `2026-11-29T22:14:03.123Z`; any RFC 3339 time is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// The moment, cut to the millisecond.
    #[must_use]
    pub fn new(moment: DateTime<Utc>) -> Self {
        Self(moment.duration_trunc(TimeDelta::milliseconds(1)).unwrap_or(moment))
    }

    /// The moment as a value of `chrono`.
    #[must_use]
    pub fn utc(self) -> DateTime<Utc> {
        self.0
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(moment: DateTime<Utc>) -> Self {
        Self::new(moment)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl FromStr for Timestamp {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        DateTime::parse_from_rfc3339(text)
            .map(|moment| Self::new(moment.with_timezone(&Utc)))
            .map_err(|_| FormatError::value("a time", text, "it must be written as 2026-11-29T22:14:03.123Z"))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_and_bad_times() {
        for (given, printed) in [
            ("2026-11-29T22:14:03.123Z", "2026-11-29T22:14:03.123Z"),
            ("2026-11-29T22:14:03Z", "2026-11-29T22:14:03.000Z"),
            ("2026-11-29T22:14:03.123987Z", "2026-11-29T22:14:03.123Z"),
            ("2026-11-30T07:14:03.5+09:00", "2026-11-29T22:14:03.500Z"),
        ] {
            assert_eq!(given.parse::<Timestamp>().unwrap().to_string(), printed);
        }
        for bad in ["", "now", "2026-11-29", "2026-11-29T22:14:03", "2026-13-01T00:00:00Z"] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(millis in 0i64..253_402_300_799_999) {
            let moment = Timestamp::new(DateTime::from_timestamp_millis(millis).unwrap());
            prop_assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
        }
    }
}
