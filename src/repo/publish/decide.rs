//! What a push decides, apart from how it is done: pure functions.

use std::fmt;

use crate::format::VersionId;

/// What a ref is expected to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The ref does not exist.
    Absent,
    /// It holds this version.
    Exactly(VersionId),
}

impl Expected {
    /// The version, if there is to be one.
    #[must_use]
    pub fn version(self) -> Option<VersionId> {
        match self {
            Self::Absent => None,
            Self::Exactly(id) => Some(id),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Exactly(id) => write!(f, "at {id}"),
        }
    }
}

/// How a push begins, by what the ref holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The ref can be moved to the last version; the first `skip` versions are there already.
    Go {
        /// How many of the versions an earlier push has brought.
        skip: usize,
    },
    /// The ref holds the last version already.
    UpToDate,
    /// The ref holds something else. It may still have been built upon ours.
    Moved,
}

/// Looks at what the ref holds before anything is written. `base` is the parent of the first version of `chain`, or what
/// the ref is to hold when the chain is empty.
pub(super) fn start(
    held: Option<VersionId>,
    expected: Expected,
    base: Option<VersionId>,
    chain: &[VersionId],
) -> Start {
    if held.is_some() && held == chain.last().copied().or(base) {
        return Start::UpToDate;
    }
    // An earlier push whose outcome this writer never learnt.
    let position = held.and_then(|held| chain.iter().position(|id| *id == held));
    if let Some(position) = position {
        return Start::Go { skip: position + 1 };
    }
    let forward = held.is_none() || held == base;
    match held == expected.version() && forward {
        true => Start::Go { skip: 0 },
        false => Start::Moved,
    }
}

/// What was found when a ref was read back after its write was refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It holds a version.
    Holds {
        /// The version.
        now: VersionId,
        /// Whether ours is among its parents; nothing when the chain cannot be read.
        contains_ours: Option<bool>,
    },
    /// There is no such ref.
    Absent,
    /// It cannot be read.
    Unreadable,
}

/// What the write of a ref came to (docs/format.md section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefOutcome {
    /// The ref holds our version: the answer was lost.
    Landed,
    /// Our version landed, and somebody built on it since.
    LandedAndBuiltUpon {
        /// What the ref holds now.
        now: VersionId,
    },
    /// Somebody else moved the ref.
    Refused {
        /// What it holds now; nothing when it is gone.
        now: Option<VersionId>,
    },
    /// The ref still is as it was: the write may be tried again on the same condition.
    Unmoved,
    /// Nobody can say.
    Unknown,
}

/// Judges a write of a ref that was refused or failed by what the ref holds afterwards.
#[must_use]
pub fn after_ref_write(seen: Seen, ours: VersionId, before: Option<VersionId>) -> RefOutcome {
    match seen {
        Seen::Unreadable => RefOutcome::Unknown,
        Seen::Absent if before.is_none() => RefOutcome::Unmoved,
        Seen::Absent => RefOutcome::Refused { now: None },
        Seen::Holds { now, .. } if now == ours => RefOutcome::Landed,
        Seen::Holds { now, .. } if Some(now) == before => RefOutcome::Unmoved,
        Seen::Holds { now, contains_ours } => match contains_ours {
            Some(true) => RefOutcome::LandedAndBuiltUpon { now },
            Some(false) => RefOutcome::Refused { now: Some(now) },
            None => RefOutcome::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u128) -> VersionId {
        Uuid::from_u128(n).to_string().parse().unwrap()
    }

    fn holds(now: u128, contains_ours: Option<bool>) -> Seen {
        let now = id(now);
        Seen::Holds { now, contains_ours }
    }

    #[test]
    fn how_a_push_begins() {
        let chain = [id(2), id(3)];
        let exactly = |n| Expected::Exactly(id(n));
        let base = Some(id(1));
        for (held, expected, base, begins) in [
            (None, Expected::Absent, None, Start::Go { skip: 0 }),
            (None, Expected::Absent, base, Start::Go { skip: 0 }),
            (Some(1), exactly(1), base, Start::Go { skip: 0 }),
            (Some(2), exactly(1), base, Start::Go { skip: 1 }),
            (Some(3), exactly(1), base, Start::UpToDate),
            (Some(3), Expected::Absent, None, Start::UpToDate),
            (None, exactly(1), base, Start::Moved),
            (Some(1), Expected::Absent, base, Start::Moved),
            (Some(9), exactly(1), base, Start::Moved),
            // Expected as asked, but our version does not build on it.
            (Some(9), exactly(9), base, Start::Moved),
            (Some(9), exactly(9), None, Start::Moved),
        ] {
            assert_eq!(start(held.map(id), expected, base, &chain), begins, "{held:?} {expected}");
        }
        for (held, expected, begins) in [
            (Some(1), exactly(1), Start::UpToDate),
            (None, Expected::Absent, Start::Go { skip: 0 }),
            (None, exactly(1), Start::Moved),
            (Some(9), exactly(9), Start::Moved),
        ] {
            assert_eq!(start(held.map(id), expected, Some(id(1)), &[]), begins, "{held:?} {expected}");
        }
    }

    #[test]
    fn what_a_refusal_means() {
        let (ours, before) = (id(2), Some(id(1)));
        for (seen, before, means) in [
            (holds(2, None), before, RefOutcome::Landed),
            (holds(2, None), None, RefOutcome::Landed),
            (holds(1, None), before, RefOutcome::Unmoved),
            (Seen::Absent, None, RefOutcome::Unmoved),
            (holds(5, Some(true)), before, RefOutcome::LandedAndBuiltUpon { now: id(5) }),
            (holds(5, Some(false)), before, RefOutcome::Refused { now: Some(id(5)) }),
            (holds(5, Some(false)), None, RefOutcome::Refused { now: Some(id(5)) }),
            (holds(5, None), before, RefOutcome::Unknown),
            (Seen::Absent, before, RefOutcome::Refused { now: None }),
            (Seen::Unreadable, before, RefOutcome::Unknown),
            (Seen::Unreadable, None, RefOutcome::Unknown),
        ] {
            assert_eq!(after_ref_write(seen, ours, before), means, "{seen:?}");
        }
    }
}
