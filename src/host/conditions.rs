//! The conditions of a request, and the tags they compare (RFC 9110, section 13).

use axum::http::{HeaderMap, HeaderName, header};

use crate::format::Sha256;
use crate::store::{ETag, ObjectMeta};

/// The tag of an object's state: the store's own where it can stand in a header, its hash otherwise. Always strong.
pub(super) fn tag_of(etag: &ETag) -> String {
    let bare = etag.0.trim_matches('"');
    let plain =
        !bare.is_empty() && bare.len() <= 200 && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match plain && !etag.0.starts_with("W/") {
        true => format!("\"{bare}\""),
        false => format!("\"{}\"", Sha256::of(etag.0.as_bytes())),
    }
}

/// The tag of an object that is written once and whose content is too long to hash for each reader: made of what would
/// have to differ if the content did.
pub(super) fn tag_of_meta(meta: &ObjectMeta) -> String {
    match &meta.etag {
        Some(etag) => tag_of(etag),
        None => {
            let modified = meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
            format!("\"{}\"", Sha256::of(format!("{}\n{}\n{modified}", meta.key, meta.size).as_bytes()))
        }
    }
}

/// Whether a write is on any condition.
pub(super) fn is_conditional(headers: &HeaderMap) -> bool {
    headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_NONE_MATCH)
}

/// Whether the request may go on as far as `If-Match` is concerned; `tag` is that of the object, if there is one.
pub(super) fn if_match_holds(headers: &HeaderMap, tag: Option<&str>) -> bool {
    match listed(headers, &header::IF_MATCH) {
        None => true,
        Some(tags) => tag.is_some_and(|tag| tags.iter().any(|listed| *listed == "*" || *listed == tag)),
    }
}

/// Whether the request may go on as far as `If-None-Match` is concerned.
pub(super) fn if_none_match_holds(headers: &HeaderMap, tag: Option<&str>) -> bool {
    let (Some(tags), Some(tag)) = (listed(headers, &header::IF_NONE_MATCH), tag) else {
        return true;
    };
    !tags.iter().any(|listed| *listed == "*" || listed.strip_prefix("W/").unwrap_or(listed) == tag)
}

/// Whether a range is wanted of the object as it is: no `If-Range`, or one with this very tag.
pub(super) fn if_range_holds(headers: &HeaderMap, tag: &str) -> bool {
    headers.get(header::IF_RANGE).is_none_or(|wanted| wanted.as_bytes() == tag.as_bytes())
}

/// The tags of a header; nothing when it is not there. What is no text matches nothing.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Vec<&'a str>> {
    if !headers.contains_key(name) {
        return None;
    }
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    Some(lines.flat_map(|line| line.split(',')).map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), line.parse().unwrap())).collect()
    }

    use axum::http::HeaderValue;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn no_header_passes_for_a_tag_that_is_not_in_it(
            lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..4),
            state in ".{0,40}",
        ) {
            let tag = tag_of(&ETag(state));
            prop_assert!(HeaderValue::from_str(&tag).is_ok() && tag.starts_with('"') && tag.ends_with('"'));
            let values = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
            let matching: HeaderMap = values.clone().map(|value| (header::IF_MATCH, value)).collect();
            let none: HeaderMap = values.map(|value| (header::IF_NONE_MATCH, value)).collect();
            let named = lines.iter().any(|line| {
                line.split(|b| *b == b',').any(|one| [b"*", tag.as_bytes()].contains(&one.trim_ascii()))
            });
            prop_assert!(matching.is_empty() || if_match_holds(&matching, Some(&tag)) == named);
            prop_assert!(matching.is_empty() || !if_match_holds(&matching, None));
            prop_assert!(if_none_match_holds(&none, None));
            prop_assert!(named || lines.iter().any(|line| line.contains(&b'W')) || if_none_match_holds(&none, Some(&tag)));
        }

        #[test]
        fn a_listed_tag_is_found(state in "[a-z0-9-]{1,20}", before in "[a-z\", ]{0,20}", weak in any::<bool>()) {
            let tag = tag_of(&ETag(state));
            let line = format!("{before}, {}{tag}", if weak { "W/" } else { "" });
            prop_assert!(!if_none_match_holds(&headers(header::IF_NONE_MATCH, &[&line]), Some(&tag)));
            prop_assert!(weak || if_match_holds(&headers(header::IF_MATCH, &[&line]), Some(&tag)));
        }
    }

    #[test]
    fn conditions() {
        let tag = Some("\"a\"");
        // The header; whether If-Match and If-None-Match hold for "a", and for an object that is not there.
        for (lines, there, absent) in [
            (vec![], (true, true), (true, true)),
            (vec!["*"], (true, false), (false, true)),
            (vec!["\"a\""], (true, false), (false, true)),
            (vec!["\"b\", \"a\""], (true, false), (false, true)),
            (vec!["\"b\"", "\"a\""], (true, false), (false, true)),
            (vec!["W/\"a\""], (false, false), (false, true)),
            (vec!["\"b\""], (false, true), (false, true)),
            (vec!["a"], (false, true), (false, true)),
            (vec![""], (false, true), (false, true)),
        ] {
            let matching = headers(header::IF_MATCH, &lines);
            let none = headers(header::IF_NONE_MATCH, &lines);
            let both = |tag| (if_match_holds(&matching, tag), if_none_match_holds(&none, tag));
            assert_eq!((both(tag), both(None)), (there, absent), "{lines:?}");
        }
    }

    #[test]
    fn tags_are_strong_and_fit_in_a_header() {
        let tag = |text: &str| tag_of(&ETag(text.to_owned()));
        assert_eq!(tag("abc-1"), "\"abc-1\"");
        assert_eq!(tag("\"abc\""), "\"abc\"");
        for odd in ["", "\"\"", "W/\"abc\"", "a\nb", "a,b", "é"] {
            assert_eq!(tag(odd).len(), 66, "{odd}");
        }
        assert_ne!(tag("W/\"abc\""), tag("abc"));
    }
}
