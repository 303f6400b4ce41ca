//! Which stores were found to keep the conditions of writes, for a day, in the cache folder.

use std::fs;
use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc};

use super::access::Access;
use super::cache::cache_root;
use super::{Context, Error};
use crate::format::{Clock, Sha256};
use crate::repo;

/// How long what was found of a store is believed.
const A_DAY: TimeDelta = TimeDelta::days(1);

/// Whether a store was found to keep them within the last day.
pub(super) fn are_known(context: &Context, access: &Access) -> bool {
    let read = file(access).and_then(|file| fs::read_to_string(file).ok());
    read.is_some_and(|text| is_recent(&text, context.clock().now()))
}

/// Remembers that a store keeps them. A machine that cannot remember tries again the next time.
pub(super) fn remember(context: &Context, access: &Access) {
    let write = |file: PathBuf| {
        fs::create_dir_all(file.parent()?).ok()?;
        fs::write(&file, context.clock().now().to_rfc3339()).ok()
    };
    let _written: Option<()> = file(access).and_then(write);
}

/// Refuses a store that ignores them.
///
/// # Errors
/// FDL-STORE, naming the store.
pub(super) fn require(context: &Context, access: &Access) -> Result<(), Error> {
    if are_known(context, access) {
        return Ok(());
    }
    if context.block_on(repo::require_conditions(access.store.as_ref()))?? {
        remember(context, access);
    }
    Ok(())
}

/// None for a folder, where fdl itself keeps them.
fn file(access: &Access) -> Option<PathBuf> {
    let identity = access.identity()?;
    let name = Sha256::of(identity.as_bytes()).to_string();
    Some(cache_root().ok()?.join("conditions").join(name))
}

fn is_recent(text: &str, now: DateTime<Utc>) -> bool {
    let found = DateTime::parse_from_rfc3339(text.trim());
    found.is_ok_and(|found| (TimeDelta::zero()..A_DAY).contains(&(now - found.to_utc())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_believed_for_a_day() {
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
        let found = "2026-11-30T10:00:00+00:00\n";
        assert!(is_recent(found, at("2026-11-30T10:00:00Z")) && is_recent(found, at("2026-12-01T09:59:59Z")));
        // Nor what a clock says that was wrong.
        assert!(!is_recent(found, at("2026-12-01T10:00:00Z")) && !is_recent(found, at("2026-11-30T09:59:59Z")));
        assert!(!is_recent("", at("2026-11-30T10:00:00Z")));
    }
}
