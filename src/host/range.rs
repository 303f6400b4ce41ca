//! The part of an object that a reader asks for (RFC 9110, section 14).

use std::ops::Range;

/// What of an object is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Whole,
    /// These bytes, at least one.
    Part(Range<u64>),
    /// Bytes that it does not have.
    Unsatisfiable,
}

/// Reads the value of a `Range` header for an object of this size.
///
/// What is not a range of bytes, and a list of several ranges, is ignored, as the standard allows: all is sent.
pub(super) fn wanted(header: Option<&str>, size: u64) -> Wanted {
    let Some((first, last)) = header.and_then(one_range) else {
        return Wanted::Whole;
    };
    let range = match (first, last) {
        (Some(first), Some(last)) if last < first => return Wanted::Whole,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(size),
        (Some(first), None) => first..size,
        (None, Some(length)) => size.saturating_sub(length)..size,
        (None, None) => return Wanted::Whole,
    };
    match range.is_empty() {
        true => Wanted::Unsatisfiable,
        false => Wanted::Part(range),
    }
}

/// The two numbers of `bytes=first-last`; nothing for anything else.
fn one_range(header: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = header.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    Some((number(first)?, number(last)?))
}

/// A number or nothing at all; one too large for any object is the largest there is.
fn number(text: &str) -> Option<Option<u64>> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((!text.is_empty()).then(|| text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_part_lies_within_the_object(
            header in prop_oneof![
                ".{0,30}",
                "(bytes|Bytes| bytes |rows)?=?[0-9]{0,25}-?[0-9]{0,25}",
                "bytes=([0-9]{0,3}-[0-9]{0,3},?){0,3}",
            ],
            size in prop_oneof![0_u64..20, any::<u64>()],
        ) {
            if let Wanted::Part(range) = wanted(Some(&header), size) {
                prop_assert!(range.start < range.end && range.end <= size, "{header} of {size}: {range:?}");
            }
        }

        #[test]
        fn a_range_that_is_there_is_given(first in 0_u64..1000, length in 1_u64..1000, more in 0_u64..1000) {
            let (end, size) = (first + length, first + length + more);
            prop_assert_eq!(wanted(Some(&format!("bytes={first}-{}", end - 1)), size), Wanted::Part(first..end));
            prop_assert_eq!(wanted(Some(&format!("bytes=-{length}")), size), Wanted::Part(size - length..size));
        }
    }

    #[test]
    fn ranges() {
        let part = Wanted::Part;
        for (header, size, expected) in [
            ("bytes=0-0", 10, part(0..1)),
            ("bytes=0-9", 10, part(0..10)),
            ("bytes=3-", 10, part(3..10)),
            ("bytes=3-100", 10, part(3..10)),
            ("bytes=9-9", 10, part(9..10)),
            ("bytes=-3", 10, part(7..10)),
            ("bytes=-30", 10, part(0..10)),
            ("Bytes = 1-2 ", 10, part(1..3)),
            ("bytes=1-99999999999999999999999", 10, part(1..10)),
            ("bytes=0-18446744073709551615", 10, part(0..10)),
            ("bytes=10-", 10, Wanted::Unsatisfiable),
            ("bytes=10-20", 10, Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Wanted::Unsatisfiable),
            ("bytes=-0", 10, Wanted::Unsatisfiable),
            ("bytes=0-", 0, Wanted::Unsatisfiable),
            ("bytes=-1", 0, Wanted::Unsatisfiable),
            ("bytes=5-2", 10, Wanted::Whole),
            ("bytes=0-1,3-4", 10, Wanted::Whole),
            ("bytes=a-b", 10, Wanted::Whole),
            ("bytes=+1-2", 10, Wanted::Whole),
            ("bytes=-", 10, Wanted::Whole),
            ("bytes=", 10, Wanted::Whole),
            ("rows=1-2", 10, Wanted::Whole),
            ("", 10, Wanted::Whole),
        ] {
            assert_eq!(wanted(Some(header), size), expected, "{header} of {size}");
        }
        assert_eq!(wanted(None, 10), Wanted::Whole);
    }
}
