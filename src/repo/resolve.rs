//! From what a user writes to a version (docs/format.md section 8).

use std::collections::BTreeSet;

use futures::TryStreamExt;
use futures::future::join;

use crate::format::{Base, IdPrefix, RefKind, RefName, Revision, VersionId, layout};
use crate::store::{ETag, Store, StoreError};

use super::ahead::{Ahead, Source};
use super::error::RepoError;
use super::read::{Held, read_head, read_ref};

/// What a revision came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The ref that it named or began from; none when it named a version.
    pub reference: Option<RefName>,
    /// The version; none when the ref is the default branch and has no version yet.
    pub version: Option<VersionId>,
    /// The state of the ref's file, when the version is the one it holds.
    pub etag: Option<ETag>,
}

impl Resolved {
    /// A version by its ID.
    #[must_use]
    pub fn of_version(id: VersionId) -> Self {
        Self { reference: None, version: Some(id), etag: None }
    }

    /// The version.
    ///
    /// # Errors
    /// [`RepoError::Unborn`] when there is none yet.
    pub fn version(&self) -> Result<VersionId, RepoError> {
        match (self.version, &self.reference) {
            (Some(id), _) => Ok(id),
            (None, Some(reference)) => Err(RepoError::Unborn { reference: reference.clone() }),
            (None, None) => Err(RepoError::NoSuchRef { name: layout::HEAD.to_owned() }),
        }
    }

    fn held(reference: RefName, held: Held) -> Self {
        Self { reference: Some(reference), version: Some(held.version), etag: Some(held.etag) }
    }

    fn unborn(reference: RefName) -> Self {
        Self { reference: Some(reference), version: None, etag: None }
    }
}

/// Finds the version that a revision names. Whether the version is there and may be read is not looked at.
///
/// # Errors
/// [`RepoError::NoSuchRef`], [`RepoError::NoSuchAncestor`], [`RepoError::AmbiguousName`],
/// [`RepoError::AmbiguousPrefix`], [`RepoError::PrefixNeedsListing`], [`RepoError::Unborn`] (for `~N`).
pub async fn resolve(store: &dyn Store, revision: &Revision) -> Result<Resolved, RepoError> {
    let resolved = match &revision.base {
        Base::Head => {
            let head = read_head(store).await?;
            match read_ref(store, &head).await? {
                Some(held) => Resolved::held(head, held),
                None => Resolved::unborn(head),
            }
        }
        Base::Ref(name) => by_ref(store, name).await?,
        Base::Name { branch, tag, prefix } => by_name(store, branch, tag, prefix.as_ref()).await?,
        Base::Id(id) => Resolved::of_version(*id),
    };
    if revision.back == 0 {
        return Ok(resolved);
    }
    Ok(Resolved {
        version: Some(ancestor(store, resolved.version()?, revision).await?),
        reference: resolved.reference,
        etag: None,
    })
}

async fn by_ref(store: &dyn Store, name: &RefName) -> Result<Resolved, RepoError> {
    if let Some(held) = read_ref(store, name).await? {
        return Ok(Resolved::held(name.clone(), held));
    }
    if is_unborn(store, name).await? {
        return Ok(Resolved::unborn(name.clone()));
    }
    Err(RepoError::NoSuchRef { name: name.to_string() })
}

async fn by_name(
    store: &dyn Store,
    branch: &RefName,
    tag: &RefName,
    prefix: Option<&IdPrefix>,
) -> Result<Resolved, RepoError> {
    // Branches are read more often than tags, so the tag is only asked for.
    let (held, tagged) = join(read_ref(store, branch), store.head(tag.key())).await;
    // Where listing is not allowed, S3 denies access to keys that are not there.
    let (held, denied) = match held {
        Err(RepoError::Store(error @ StoreError::Permission { .. })) => (None, Some(error)),
        held => (held?, None),
    };
    let tagged = match tagged {
        Ok(_) => true,
        Err(StoreError::NotFound { .. } | StoreError::Permission { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    // There are servers that answer anything to a HEAD.
    let tagged = tagged && (held.is_none() || !matches!(read_ref(store, tag).await, Ok(None)));
    match (held, tagged) {
        (Some(_), true) => {
            return Err(RepoError::AmbiguousName { branch: branch.clone(), tag: tag.clone() });
        }
        (Some(held), false) => return Ok(Resolved::held(branch.clone(), held)),
        (None, true) => return by_ref(store, tag).await,
        (None, false) => {}
    }
    if let Some(denied) = denied {
        return Err(denied.into());
    }
    if is_unborn(store, branch).await? {
        return Ok(Resolved::unborn(branch.clone()));
    }
    match prefix {
        Some(prefix) => by_prefix(store, prefix).await,
        None => Err(RepoError::NoSuchRef { name: branch.short().to_owned() }),
    }
}

/// Whether a ref that is not there is the branch that HEAD names.
async fn is_unborn(store: &dyn Store, name: &RefName) -> Result<bool, RepoError> {
    Ok(name.kind() == RefKind::Branch && read_head(store).await? == *name)
}

async fn by_prefix(store: &dyn Store, prefix: &IdPrefix) -> Result<Resolved, RepoError> {
    let found = store
        .list(layout::VERSIONS)
        .try_filter_map(|meta| {
            let id = layout::in_version(&meta.key)
                .filter(|(id, name)| *name == layout::VERSION_JSON && prefix.matches(*id))
                .map(|(id, _)| id);
            async move { Ok(id) }
        })
        .try_collect::<BTreeSet<VersionId>>()
        .await;
    let found = match found {
        Ok(found) => found,
        Err(StoreError::Unsupported { .. } | StoreError::Permission { .. }) => {
            return Err(RepoError::PrefixNeedsListing { prefix: prefix.to_string() });
        }
        Err(error) => return Err(error.into()),
    };
    let mut candidates: Vec<VersionId> = found.into_iter().collect();
    match (candidates.pop(), candidates.is_empty()) {
        (Some(id), true) => Ok(Resolved::of_version(id)),
        (None, _) => Err(RepoError::NoSuchRef { name: prefix.to_string() }),
        (Some(last), false) => {
            candidates.push(last);
            Err(RepoError::AmbiguousPrefix { prefix: prefix.to_string(), candidates })
        }
    }
}

/// The version that many generations before `start`.
async fn ancestor(store: &dyn Store, start: VersionId, revision: &Revision) -> Result<VersionId, RepoError> {
    let (mut walk, mut ahead) = (Walk::new(start), Ahead::new(Source::Borrowed(store)));
    for generations in 0..revision.back {
        let left = usize::try_from(revision.back - generations).unwrap_or(usize::MAX);
        let record = ahead.record(walk.at, left).await.map_err(|error| walk.missing(error))?;
        if !walk.to(record.parent())? {
            return Err(RepoError::NoSuchAncestor { revision: revision.to_string(), generations });
        }
    }
    Ok(walk.at)
}

/// A walk along parents that ends even where the chain is damaged.
#[derive(Debug)]
pub(super) struct Walk {
    /// Where it stands.
    pub(super) at: VersionId,
    child: Option<VersionId>,
    seen: BTreeSet<VersionId>,
}

impl Walk {
    pub(super) fn new(start: VersionId) -> Self {
        Self { at: start, child: None, seen: BTreeSet::from([start]) }
    }

    /// Goes on to the parent. No when there is none.
    pub(super) fn to(&mut self, parent: Option<VersionId>) -> Result<bool, RepoError> {
        let Some(parent) = parent else {
            return Ok(false);
        };
        if !self.seen.insert(parent) {
            let why = format!("its parents lead in a circle through {parent}");
            return Err(RepoError::corrupt(layout::version_json(self.at), why));
        }
        self.child = Some(self.at);
        self.at = parent;
        Ok(true)
    }

    /// A missing parent is damage; a missing start is a bad question.
    pub(super) fn missing(&self, error: RepoError) -> RepoError {
        match self.child {
            Some(child) => error.named_by(layout::version_json(child)),
            None => error,
        }
    }
}

/// Whether `ancestor` is `from` or among its parents. The walk ends early at `stop`, which cannot come after `ancestor`.
pub(super) async fn descends_from(
    store: &dyn Store,
    from: VersionId,
    ancestor: VersionId,
    stop: Option<VersionId>,
) -> Result<bool, RepoError> {
    let (mut walk, mut ahead) = (Walk::new(from), Ahead::new(Source::Borrowed(store)));
    loop {
        if walk.at == ancestor {
            return Ok(true);
        }
        if Some(walk.at) == stop {
            return Ok(false);
        }
        let record = ahead.record(walk.at, usize::MAX).await.map_err(|error| walk.missing(error))?;
        if !walk.to(record.parent())? {
            return Ok(false);
        }
    }
}
