//! The push (docs/format.md section 9): whatever a file points at is written before it, and the ref last.

mod decide;
mod local;
mod send;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::try_join;

use crate::format::{Clock, Files, RefKind, RefName, StoredFile, VersionId, layout, print_ref};
use crate::store::{ConditionalWrite, ETag, Patience, Store, StoreError};

use super::conditions::require_conditions;
use super::error::RepoError;
use super::open::Repository;
use super::read::{Held, read_files, read_live, read_record, read_ref};
use super::ref_change::lagging;
use super::refs::check_free;
use super::resolve::descends_from;
use super::steps;
use super::write::{given_up, read_back, unknown};

pub use decide::{Expected, RefOutcome, Seen, after_ref_write};
pub use local::LocalVersion;
pub use send::DataSource;

use decide::{Start, start};

/// When a push took longer than this, its data files are looked at again before the ref is moved.
const LONG: TimeDelta = TimeDelta::hours(1);

/// Data files older than this may be taken for garbage at any moment, whatever the grace period.
const YOUNG: TimeDelta = TimeDelta::days(1);

/// What is to be pushed.
#[derive(Debug, Clone)]
pub struct Push<'a> {
    /// The branch to move.
    pub reference: RefName,
    /// What it holds as far as this writer knows: the version that the first of `chain` builds on, or nothing.
    pub expected: Expected,
    /// The versions, oldest first, each built on the one before.
    pub chain: &'a [LocalVersion],
    /// The version that the first of `chain` builds on. With an empty chain it is what the branch is moved to, where that
    /// is forward.
    pub base: Option<VersionId>,
    /// The data files of the version that the first of `chain` builds on, if known; read from the repository otherwise.
    pub base_files: Option<&'a Files>,
    /// Where new data files are.
    pub data: DataSource,
}

/// How a push ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The branch was moved to the last version.
    Pushed,
    /// There was nothing to move.
    UpToDate,
    /// The versions are in the repository; the host moves the branch later (docs/format.md section 14).
    Uploaded,
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushReport {
    /// The branch.
    pub reference: RefName,
    /// What it held before.
    pub old: Option<VersionId>,
    /// The last version pushed.
    pub new: Option<VersionId>,
    /// How it ended.
    pub outcome: PushOutcome,
    /// How many versions were sent.
    pub versions: usize,
    /// How many new files were published: data files that were sent, or settled where DuckDB had written them, and
    /// files that the versions were made from.
    pub files_uploaded: u64,
    /// Their bytes.
    pub bytes_uploaded: u64,
    /// How many files that the versions name were in the repository already.
    pub files_skipped: u64,
    /// Whether the store was tried and found to keep the conditions of writes.
    pub conditions_kept: bool,
    /// What did not go as well as it should, and what else the user should know.
    pub notes: Vec<String>,
}

/// Pushes versions to a branch. The branch moves once, to the last of them; at a host that takes one version at a time,
/// once for each.
///
/// Run again after a stop at any point, it finishes. Nothing is ever deleted.
///
/// # Errors
/// - [`RepoError::Conflict`]: the branch is elsewhere; found before anything is written where possible.
/// - [`RepoError::UnknownOutcome`]: the answer to the last write was lost and the branch cannot be read.
/// - [`RepoError::NoConditions`]: the store ignores the conditions of writes. No version and no ref was written.
/// - [`RepoError::Rejected`]: the store refuses to move the branch although nobody else did.
/// - [`RepoError::Corrupt`]: a data file is missing or has another size, or a file of the version is there already
///   with other bytes. The branch was not moved.
/// - [`RepoError::NameTaken`], [`RepoError::WrongKind`]; [`RepoError::Expired`] and [`RepoError::Withdrawn`] for a new
///   branch on a version that is gone.
pub async fn publish(repository: &Repository, push: &Push<'_>, clock: &dyn Clock) -> Result<PushReport, RepoError> {
    // The state that the branch is moved from is read before anything is written.
    let held = read_ref(repository.store(), &push.reference).await?;
    publish_from(repository, push, held, clock).await
}

/// [`publish`] from what the branch was just found to hold, for a caller that reads it at the same time as something else.
///
/// # Errors
/// Those of [`publish`].
pub async fn publish_from(
    repository: &Repository,
    push: &Push<'_>,
    held: Option<Held>,
    clock: &dyn Clock,
) -> Result<PushReport, RepoError> {
    let store = repository.store();
    if push.reference.kind() != RefKind::Branch {
        return Err(RepoError::WrongKind { reference: push.reference.clone(), wanted: RefKind::Branch });
    }
    local::check_chain(push.chain)?;
    let old = held.as_ref().map(|held| held.version);
    let ids: Vec<VersionId> = push.chain.iter().map(LocalVersion::id).collect();
    let base = push.chain.first().map_or(push.base, |first| first.record.parent());
    let Some(ours) = ids.last().copied().or(base) else {
        return Ok(nothing_to_send(push, old, Vec::new()));
    };
    let work = |skip| Work { repository, push, held: held.clone(), ours, base, skip };
    match start(old, push.expected, base, &ids) {
        Start::UpToDate => {
            let notes = lagging(store, &push.reference).await;
            Ok(nothing_to_send(push, old, notes.into_iter().collect()))
        }
        Start::Moved if is_forward(store, push, old, base).await? => work(0).run(clock).await,
        Start::Moved => moved(store, push, old, ours, base).await,
        Start::Go { skip } => work(skip).run(clock).await,
    }
}

/// Whether the branch holds what the caller expects, and that is further back in the history of what is pushed.
async fn is_forward(
    store: &dyn Store,
    push: &Push<'_>,
    held: Option<VersionId>,
    base: Option<VersionId>,
) -> Result<bool, RepoError> {
    match (held, base) {
        (Some(held), Some(base)) if push.expected == Expected::Exactly(held) => {
            descends_from(store, base, held, None).await
        }
        _ => Ok(false),
    }
}

fn nothing_to_send(push: &Push<'_>, held: Option<VersionId>, notes: Vec<String>) -> PushReport {
    PushReport {
        reference: push.reference.clone(),
        old: held,
        new: held,
        outcome: PushOutcome::UpToDate,
        versions: 0,
        files_uploaded: 0,
        bytes_uploaded: 0,
        files_skipped: 0,
        conditions_kept: false,
        notes,
    }
}

/// The branch is elsewhere before anything was written: a conflict, unless it was built upon what we have.
async fn moved(
    store: &dyn Store,
    push: &Push<'_>,
    now: Option<VersionId>,
    ours: VersionId,
    base: Option<VersionId>,
) -> Result<PushReport, RepoError> {
    let stop = push.expected.version().filter(|expected| Some(*expected) != now);
    let landed = match now {
        Some(now) => has_landed(store, now, ours, stop).await,
        None => false,
    };
    if !landed {
        let expected = base.map_or(Expected::Absent, Expected::Exactly);
        return Err(RepoError::Conflict { reference: push.reference.clone(), expected, now });
    }
    let note = match push.chain.is_empty() {
        true => format!("{} has newer versions than this; fdl_checkout brings them", push.reference.short()),
        false => "an earlier push has landed, and the branch was built upon since".to_owned(),
    };
    let notes = lagging(store, &push.reference).await;
    let notes = std::iter::once(note).chain(notes).collect();
    Ok(nothing_to_send(push, now, notes))
}

/// Whether a branch that holds `now` was built upon ours. What cannot be read does not make a conflict less of one.
async fn has_landed(store: &dyn Store, now: VersionId, ours: VersionId, stop: Option<VersionId>) -> bool {
    // One request spares most conflicts the walk.
    store.head(&layout::version_json(ours)).await.is_ok()
        && descends_from(store, now, ours, stop).await.unwrap_or(false)
}

/// A push that has something to write.
struct Work<'a> {
    repository: &'a Repository,
    push: &'a Push<'a>,
    held: Option<Held>,
    ours: VersionId,
    base: Option<VersionId>,
    skip: usize,
}

/// What became of the branch.
enum Move {
    Moved,
    BuiltUpon(VersionId),
    LeftToHost,
}

impl Work<'_> {
    async fn run(&self, clock: &dyn Clock) -> Result<PushReport, RepoError> {
        let (store, push) = (self.repository.store(), self.push);
        let began = clock.now();
        let (there, chain) = push.chain.split_at_checked(self.skip).unwrap_or_default();
        let base = chain.first().map_or(self.base, |version| version.record.parent());
        if self.held.is_none() {
            check_free(store, &push.reference).await?;
        }
        // What the branch holds is live; another version to build on may have been taken away, with its files.
        if let Some(base) = base.filter(|base| Some(*base) != self.old() && there.is_empty()) {
            read_live(store, base).await?;
        }
        let (new, kept) = match there.last() {
            Some(version) => send::new_files(chain, Some(&version.files))?,
            None => self.new_files(chain, base).await?,
        };
        let data_dir = &self.repository.settings().data_dir;
        // Nothing points at a data file yet.
        let (sent, conditions_kept) =
            try_join(send::data_files(store, data_dir, &push.data, &new), self.require_conditions()).await?;
        let sent = send::sources(store, chain, sent).await?;
        send::contents(store, chain).await?;
        send::records(store, chain).await?;
        self.look_again(began, clock, sent.oldest, &new).await?;
        let moved = match self.move_ref().await {
            Err(RepoError::Store(refused)) if steps::are_asked_for(&refused) => self.move_by_steps(refused).await?,
            moved => moved?,
        };
        let mut notes = Vec::new();
        let outcome = match moved {
            Move::LeftToHost => PushOutcome::Uploaded,
            Move::Moved => PushOutcome::Pushed,
            Move::BuiltUpon(now) => {
                notes.push(format!("the branch was built upon at once and is at {now}"));
                PushOutcome::Pushed
            }
        };
        if outcome == PushOutcome::Pushed {
            notes.extend(lagging(store, &push.reference).await);
        }
        Ok(PushReport {
            reference: push.reference.clone(),
            old: self.old(),
            new: Some(self.ours),
            outcome,
            versions: chain.len(),
            files_uploaded: sent.files,
            bytes_uploaded: sent.bytes,
            files_skipped: sent.skipped.saturating_add(kept),
            conditions_kept,
            notes,
        })
    }

    /// Whether the store was tried, and keeps them.
    async fn require_conditions(&self) -> Result<bool, RepoError> {
        match self.repository.keeps_conditions() {
            true => Ok(false),
            false => require_conditions(self.repository.store()).await,
        }
    }

    fn old(&self) -> Option<VersionId> {
        self.held.as_ref().map(|held| held.version)
    }

    /// The data files to settle. When those of the base are not known, all are.
    async fn new_files(
        &self,
        chain: &[LocalVersion],
        base: Option<VersionId>,
    ) -> Result<(Vec<StoredFile>, u64), RepoError> {
        let names_none = chain.iter().all(|version| version.files.iter().next().is_none());
        let (None, Some(base), false) = (self.push.base_files, base, names_none) else {
            return send::new_files(chain, self.push.base_files);
        };
        let store = self.repository.store();
        let record = read_record(store, base).await.map_err(|error| error.named_by(&self.push.reference))?;
        let files = read_files(store, &self.repository.settings().data_dir, &record).await?;
        send::new_files(chain, files.as_ref())
    }

    /// Data files that no version names yet are safe from a gc while they are young.
    async fn look_again(
        &self,
        began: DateTime<Utc>,
        clock: &dyn Clock,
        oldest: Option<DateTime<Utc>>,
        new: &[StoredFile],
    ) -> Result<(), RepoError> {
        let young = oldest.is_none_or(|written| began - written <= YOUNG);
        if young && clock.now() - began <= LONG {
            return Ok(());
        }
        send::still_there(self.repository.store(), new).await
    }

    /// Step 5, and what its answer means.
    async fn move_ref(&self) -> Result<Move, RepoError> {
        let mut etag = self.held.as_ref().map(|held| held.etag.clone());
        let mut failure = None;
        let mut patience = Patience::with(self.repository.store());
        loop {
            let error = match self.write_ref(etag.as_ref()).await {
                Ok(ConditionalWrite::Written) => return Ok(Move::Moved),
                Ok(ConditionalWrite::Refused) => None,
                Err(error) => Some(error),
            };
            let (seen, now_etag) = self.read_back(&mut patience).await;
            match after_ref_write(seen, self.ours, self.old()) {
                RefOutcome::Landed => return Ok(Move::Moved),
                RefOutcome::LandedAndBuiltUpon { now } => return Ok(Move::BuiltUpon(now)),
                RefOutcome::Refused { now } => return Err(self.conflict(now)),
                RefOutcome::Unknown => {
                    return Err(unknown(&self.push.reference, Some(self.ours), error.or(failure)));
                }
                RefOutcome::Unmoved => match error {
                    Some(denied @ StoreError::Permission { .. }) => return self.denied(denied),
                    Some(error) if failure.is_none() && !error.may_have_happened() => return Err(error.into()),
                    error => failure = error.or(failure),
                },
            }
            etag = now_etag;
            if !patience.wait().await {
                return Err(given_up(&self.push.reference, Some(self.ours), failure));
            }
        }
    }

    /// Step 5 at a host that takes one version at a time. Stopped in between, the next push goes on from there.
    async fn move_by_steps(&self, refused: StoreError) -> Result<Move, RepoError> {
        let (store, reference) = (self.repository.store(), &self.push.reference);
        let steps = steps::between(store, self.old(), self.ours).await?;
        if steps.is_empty() {
            return Err(refused.into());
        }
        let mut moved = Move::Moved;
        let mut held = self.held.clone();
        for ours in steps {
            moved = Work { ours, held, ..*self }.move_ref().await?;
            held = read_ref(store, reference).await?;
            let now = held.as_ref().map(|held| held.version);
            match moved {
                Move::LeftToHost => break,
                Move::Moved | Move::BuiltUpon(_) if ours == self.ours || now == Some(ours) => {}
                // Somebody else has built upon a version in between.
                Move::Moved | Move::BuiltUpon(_) => {
                    let (reference, expected) = (reference.clone(), Expected::Exactly(ours));
                    return Err(RepoError::Conflict { reference, expected, now });
                }
            }
        }
        Ok(moved)
    }

    async fn write_ref(&self, etag: Option<&ETag>) -> Result<ConditionalWrite, StoreError> {
        let (store, key) = (self.repository.store(), self.push.reference.key());
        let content = print_ref(self.ours).into();
        match etag {
            Some(etag) => store.put_if_unchanged(key, content, etag).await,
            None => store.put_if_absent(key, content).await,
        }
    }

    async fn read_back(&self, patience: &mut Patience) -> (Seen, Option<ETag>) {
        let store = self.repository.store();
        let Ok(held) = read_back(store, &self.push.reference, patience).await else {
            return (Seen::Unreadable, None);
        };
        let Some(Held { version: now, etag }) = held else {
            return (Seen::Absent, None);
        };
        let contains_ours = match now == self.ours || Some(now) == self.old() {
            true => None,
            false => descends_from(store, now, self.ours, self.old()).await.ok(),
        };
        (Seen::Holds { now, contains_ours }, Some(etag))
    }

    /// A host that lets nobody move refs says so with this answer; from any other store it is what it says.
    fn denied(&self, denied: StoreError) -> Result<Move, RepoError> {
        let location = self.repository.store().location();
        match location.starts_with("http://") || location.starts_with("https://") {
            true => Ok(Move::LeftToHost),
            false => Err(denied.into()),
        }
    }

    fn conflict(&self, now: Option<VersionId>) -> RepoError {
        RepoError::Conflict {
            reference: self.push.reference.clone(),
            expected: self.old().map_or(Expected::Absent, Expected::Exactly),
            now,
        }
    }
}
