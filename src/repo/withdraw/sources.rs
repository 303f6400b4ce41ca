//! The files that withdrawn versions were made from: what is in the rows may be in them as well.

use std::collections::BTreeMap;

use crate::format::{Reason, Record, SourceFile, VersionId};
use crate::store::StoreError;

use super::super::error::RepoError;
use super::{Scene, WithdrawAction};

/// The keys of a version's sources.
pub(super) fn keys(record: &Record) -> impl Iterator<Item = String> {
    record.sources.iter().map(SourceFile::key)
}

impl Scene<'_> {
    /// What becomes of each source that is there: its key, and the bytes that frees.
    pub(super) async fn sources(&self) -> Result<Vec<(String, WithdrawAction, u64)>, RepoError> {
        let withdrawn = self.records.values().filter(|record| self.withdrawn.contains(&record.id));
        let mut kept_by: BTreeMap<String, Option<VersionId>> =
            withdrawn.flat_map(keys).map(|key| (key, None)).collect();
        if kept_by.is_empty() {
            return Ok(Vec::new());
        }
        for record in self.records.values().filter(|record| !self.withdrawn.contains(&record.id)) {
            let shared: Vec<String> = keys(record).filter(|key| kept_by.contains_key(key)).collect();
            if !shared.is_empty() && self.mark(record.id).await?.and_then(|mark| mark.reason) != Some(Reason::Withdrawn)
            {
                kept_by.extend(shared.into_iter().map(|key| (key, Some(record.id))));
            }
        }
        let mut rows = Vec::new();
        for (key, by) in kept_by {
            match self.store.head(&key).await {
                Ok(meta) => rows.push(match by {
                    Some(by) => (key, WithdrawAction::KeepFile { by }, 0),
                    None => (key, WithdrawAction::DeleteFile, meta.size),
                }),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rows)
    }
}
