//! Copying a repository to another store, and bringing such a copy up to date.
//!
//! In the order that keeps readers of the copy safe (docs/format.md section 9): data files, the contents of versions,
//! their records, then refs on condition, HEAD, refs.json, marks of versions that were taken away meanwhile, and fdl.json,
//! without which there is no repository. A host wants fdl.json and HEAD first. Only what is missing is written, so a
//! stopped call goes on where it was.
//!
//! Whatever has a hash is checked on its way. What the copy has beyond the source stays.

mod carry;
mod choose;
mod refs;
mod taken;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;

use crate::format::{Files, Record, RefName, Settings, VersionId, layout};
use crate::store::{Store, StoreError};

use super::catalog::{LookInto, every_list, version_files};
use super::conditions::{require_conditions, require_conditions_at};
use super::error::RepoError;
use super::key_set::KeySet;
use super::open::{Repository, read_settings};

use carry::{Carrier, Object};
use target::Target;

/// What is to be copied.
#[derive(Debug, Clone)]
pub struct CloneOptions {
    /// Branches and tags, by their short or full names; all of them and every version when there is none.
    pub refs: Vec<String>,
    /// Whether source files come along.
    pub sources: bool,
    /// Whether files come along that the format does not know, at the root and in the folders of versions. Never those
    /// whose names begin with a dot.
    pub unknown: bool,
}

/// What a copy came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cloned {
    /// Objects that were written: files of any kind, refs among them.
    pub objects_copied: u64,
    /// Objects that were there.
    pub objects_skipped: u64,
    /// Bytes of the objects that were written.
    pub bytes_copied: u64,
    /// The refs that were chosen, and what the copy holds now.
    pub refs: BTreeMap<RefName, VersionId>,
    /// What did not go as well as it should.
    pub notes: Vec<String>,
}

/// Why a repository could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The target is a repository of its own.
    #[error("{location} holds another repository: its {what} is {theirs}, not {ours}")]
    OtherRepository {
        /// Where the copy was to go.
        location: String,
        /// What differs: `id`, `data folder`.
        what: &'static str,
        /// The target's.
        theirs: String,
        /// The source's.
        ours: String,
    },
    /// One lies inside the other, or they are the same: what is done to one would be done to the other.
    #[error("{inner} lies in {outer}, and a copy and its source must be apart")]
    Nested {
        /// The one inside.
        inner: String,
        /// The one around it.
        outer: String,
    },
    /// A version names a data file with a name that begins with a dot, which programs may take for their own settings.
    #[error("{key} is a hidden file or lies in a hidden folder, and no copy writes such names")]
    Hidden {
        /// Its key.
        key: String,
    },
    /// A ref of the target holds what the source's does not lead to: somebody pushed to the copy, or moved a tag.
    #[error("{reference} of the copy holds {theirs}, which {ours} of the source does not build on")]
    Diverged {
        /// The ref.
        reference: RefName,
        /// What the target holds.
        theirs: VersionId,
        /// What the source holds.
        ours: VersionId,
    },
    /// Anything else.
    #[error(transparent)]
    Repo(#[from] RepoError),
}

impl From<StoreError> for CloneError {
    fn from(error: StoreError) -> Self {
        Self::Repo(error.into())
    }
}

/// Copies a repository into another store, or brings the copy there up to date.
///
/// Files go through `look.scratch`, a few at a time, unless the source is a folder of this machine. A source that cannot
/// list gives what its refs lead to; versions and files that nothing leads to are left behind then.
///
/// # Errors
/// [`CloneError::Nested`], [`CloneError::OtherRepository`] and [`CloneError::Diverged`], found before anything is written;
/// [`CloneError::Hidden`];
/// [`RepoError::NoSuchRef`] for a name that the source does not have; [`RepoError::Corrupt`] for what is missing or
/// damaged in the source, or is in the target with other bytes; those of the stores.
pub async fn clone(
    source: &Repository,
    target: &dyn Store,
    options: &CloneOptions,
    look: LookInto<'_>,
) -> Result<Cloned, CloneError> {
    check_apart(source.store(), target)?;
    require_shown(source.settings().data_dir.as_str())?;
    let new = check_target(source, target).await?;
    let chosen = choose::choose(source, options).await?;
    refs::check(source.store(), target, &chosen.refs).await?;
    let target = &Target::look(target, &chosen.versions).await?;
    let mut work = Work {
        source,
        target,
        look,
        carrier: Carrier::new(source.store(), target.store, look.scratch),
        done: Cloned::default(),
        left: chosen.left.clone(),
        unknown: options.unknown,
    };
    if !target.lists {
        work.begin(new, &chosen).await?;
    }
    if !(new && target.lists) {
        require_conditions(target.store).await?;
    }
    // What either side has taken away needs no data files.
    let live = chosen.versions.iter().filter(|version| !version.marked && !target.has_taken_away(version.record.id));
    let live: Vec<&choose::Version> = live.collect();
    work.data_files(&live).await?;
    work.versions(&chosen.versions).await?;
    if options.sources {
        work.sources(&chosen.versions, options.refs.is_empty()).await?;
    }
    work.extras(&chosen.extras).await?;
    if let (true, Some(last)) = (new && target.lists, chosen.versions.last()) {
        require_conditions_at(target.store, &layout::version_json(last.record.id)).await?;
    }
    let moved = refs::write(source.store(), target, &chosen).await?;
    work.taken_away(&chosen.versions).await?;
    if new && target.lists {
        work.carrier.carry(vec![Object::plain(layout::FDL_JSON)]).await?;
    }
    let Work { carrier, mut done, left, .. } = work;
    done.notes.extend(choose::told(left, options.unknown));
    done.objects_copied = carrier.copied + moved.written;
    done.objects_skipped = carrier.skipped + moved.there;
    done.bytes_copied = carrier.bytes;
    done.notes.extend(moved.notes);
    done.refs = moved.refs;
    Ok(done)
}

/// Neither store lies in the other. Folders are compared as they are, without links; what is behind two URLs cannot be
/// known.
fn check_apart(source: &dyn Store, target: &dyn Store) -> Result<(), CloneError> {
    let within = match (source.local_root(), target.local_root()) {
        (Some(source), Some(target)) => (target.starts_with(source), source.starts_with(target)),
        (None, None) => {
            let below = |inner: &str, outer: &str| {
                inner.strip_prefix(outer).is_some_and(|rest| outer.contains("://") && rest.starts_with('/'))
            };
            (below(target.location(), source.location()), below(source.location(), target.location()))
        }
        _ => (false, false),
    };
    let (ours, theirs) = (source.location().to_owned(), target.location().to_owned());
    match within {
        (true, _) => Err(CloneError::Nested { inner: theirs, outer: ours }),
        (_, true) => Err(CloneError::Nested { inner: ours, outer: theirs }),
        _ => Ok(()),
    }
}

/// Whether a part of a key begins with a dot.
fn is_hidden(key: &str) -> bool {
    key.split('/').any(|part| part.starts_with('.'))
}

fn require_shown(key: &str) -> Result<(), CloneError> {
    match is_hidden(key) {
        true => Err(CloneError::Hidden { key: key.to_owned() }),
        false => Ok(()),
    }
}

/// Whether the target has no fdl.json yet.
async fn check_target(source: &Repository, target: &dyn Store) -> Result<bool, CloneError> {
    let theirs: Settings = match read_settings(target).await {
        Ok(settings) => settings,
        Err(RepoError::NotARepository { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let ours = source.settings();
    let id = |settings: &Settings| settings.id.map_or("missing".to_owned(), |id| id.to_string());
    let other = |what, theirs, ours| {
        Err(CloneError::OtherRepository { location: target.location().to_owned(), what, theirs, ours })
    };
    if theirs.id != ours.id {
        return other("id", id(&theirs), id(ours));
    }
    if theirs.data_dir != ours.data_dir {
        return other("data folder", theirs.data_dir.to_string(), ours.data_dir.to_string());
    }
    Ok(false)
}

/// A listing, or nothing where the store cannot list.
fn optional_listing<T>(listing: Result<T, RepoError>) -> Result<Option<T>, RepoError> {
    match listing {
        Ok(listing) => Ok(Some(listing)),
        Err(RepoError::Store(StoreError::Unsupported { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Work<'a> {
    source: &'a Repository,
    target: &'a Target<'a>,
    look: LookInto<'a>,
    carrier: Carrier<'a>,
    done: Cloned,
    /// What the format does not know, and is not copied.
    left: Vec<String>,
    unknown: bool,
}

impl Work<'_> {
    /// A host takes nothing before it knows the settings, and no ref before there is a default branch.
    async fn begin(&mut self, new: bool, chosen: &choose::Chosen) -> Result<(), RepoError> {
        if new {
            self.carrier.carry(vec![Object::plain(layout::FDL_JSON)]).await?;
        }
        self.carrier.copied += u64::from(refs::write_head(self.target.store, &chosen.head).await?);
        Ok(())
    }

    /// What the format does not know. What the copy has under such a name stays.
    async fn extras(&mut self, keys: &[String]) -> Result<(), RepoError> {
        if !self.target.lists {
            self.leave(keys);
            return Ok(());
        }
        for key in keys {
            match self.carrier.carry(vec![Object::plain(key)]).await {
                Ok(()) => {}
                Err(RepoError::Corrupt { object, why }) => self.done.notes.push(format!("{object}: {why}")),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says what a host does not take.
    fn leave(&mut self, keys: &[String]) {
        if let Some(first) = keys.first() {
            let more = if keys.len() > 1 { format!(" and {} more", keys.len() - 1) } else { String::new() };
            self.done.notes.push(format!("{first}{more} stayed behind: a host takes files of the format alone"));
        }
    }

    /// The data files of versions, each once.
    async fn data_files(&mut self, versions: &[&choose::Version]) -> Result<(), CloneError> {
        let data_dir = &self.source.settings().data_dir;
        let there = listed(self.target.store, data_dir.as_str()).await?;
        let mut seen = KeySet::default();
        for version in versions {
            let lists = self.lists(&version.record).await?;
            let new = lists.iter().flat_map(Files::iter).filter(|(key, _)| seen.insert(key));
            let (mut missing, mut skipped) = (Vec::new(), 0);
            for (key, size) in new {
                require_shown(key)?;
                match there.as_ref().is_some_and(|there| there.contains_sized(key, size)) {
                    true => skipped += 1,
                    false => missing.push(Object { key: key.to_owned(), size: Some(size), hash: None }),
                }
            }
            self.carrier.skipped += skipped;
            self.carrier.carry_unless_there(missing, there.is_some()).await?;
        }
        Ok(())
    }

    /// What a version names. Of one that the copy does not have yet its catalogs are asked as well: a record can vouch for a
    /// files.json that leaves files out, and the copy would lack them. A catalog that cannot be looked into says nothing.
    async fn lists(&self, record: &Record) -> Result<Vec<Files>, RepoError> {
        let (store, data_dir) = (self.source.store(), &self.source.settings().data_dir);
        if self.look.files.is_some() && !self.target.folder(record.id).is_complete() {
            match every_list(store, data_dir, record, self.look).await {
                Err(RepoError::Corrupt { .. }) => {}
                lists => return lists,
            }
        }
        Ok(vec![version_files(store, data_dir, record, self.look).await?])
    }

    /// The files that versions were made from, each once; with `all`, and where the source can list, also those that no
    /// version names. The source may itself be a copy that was made without them.
    async fn sources(&mut self, versions: &[choose::Version], all: bool) -> Result<(), RepoError> {
        let store = self.source.store();
        let (mut named, mut withdrawn) = (BTreeMap::new(), BTreeSet::new());
        for version in versions.iter().filter(|version| !version.record.sources.is_empty()) {
            let id = version.record.id;
            let taken =
                self.target.has_withdrawn(id).await? || (version.marked && target::is_withdrawn(store, id).await?);
            for file in &version.record.sources {
                let key = file.key();
                match taken {
                    true => drop(withdrawn.insert(key)),
                    // Of one that has expired they may be gone.
                    false => drop(named.insert(key, (file.size, !version.marked))),
                }
            }
        }
        withdrawn.retain(|key| !named.contains_key(key));
        let listed_here = optional_listing(list_sizes(store, layout::SOURCES).await)?;
        let mut here = BTreeMap::new();
        match listed_here {
            Some(mut listed) if all => {
                listed.retain(|key, _| !withdrawn.contains(key));
                for key in listed.keys().filter(|key| !choose::is_source(key)) {
                    if is_hidden(key) || !self.unknown {
                        self.left.push(key.clone());
                    }
                }
                listed.retain(|key, _| choose::is_source(key) || (self.unknown && !is_hidden(key)));
                here = listed;
            }
            Some(mut listed) => here.extend(named.keys().filter_map(|key| listed.remove_entry(key))),
            None => {
                for (key, (size, _)) in &named {
                    if choose::has(store, key).await? {
                        here.insert(key.clone(), *size);
                    }
                }
            }
        }
        let lost = named.iter().filter(|(key, (_, needed))| *needed && !here.contains_key(*key)).count();
        if lost > 0 {
            self.done.notes.push(format!("{lost} of the sources that versions name are not in the repository"));
        }
        if here.is_empty() {
            return Ok(());
        }
        let there = optional_listing(list_sizes(self.target.store, layout::SOURCES).await)?;
        let is_there = |key: &str, size| there.as_ref().is_some_and(|there| there.get(key) == Some(&size));
        let (skipped, missing): (Vec<_>, Vec<_>) = here.into_iter().partition(|(key, size)| is_there(key, *size));
        self.carrier.skipped += skipped.len() as u64;
        let object = |(key, size): (String, u64)| {
            let hash = key.strip_prefix(layout::SOURCES).and_then(|name| name.parse().ok());
            Object { key, size: Some(size), hash }
        };
        self.carrier.carry_unless_there(missing.into_iter().map(object).collect(), there.is_some()).await
    }

    /// The folders of versions: the marks first, so that nobody takes one that was taken away for one that is damaged;
    /// the records last, each after that of its parent.
    async fn versions(&mut self, versions: &[choose::Version]) -> Result<(), RepoError> {
        let (mut marks, mut contents, mut records, mut left) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for version in versions {
            let folder = self.target.folder(version.record.id);
            let (there, missing): (Vec<_>, Vec<_>) = version.parts.iter().partition(|(name, _)| folder.has(name));
            self.carrier.skipped += there.len() as u64;
            // What the copy has taken away stays away. Its mark is read where something is missing, and nowhere else.
            let gone = folder.is_marked()
                && !missing.is_empty()
                && (!version.marked || self.target.has_withdrawn(version.record.id).await?);
            for (name, size) in missing {
                if gone && name != layout::VERSION_JSON {
                    self.carrier.skipped += 1;
                    continue;
                }
                let key = format!("{}{name}", layout::version(version.record.id));
                // The source is about to take it away.
                let goes = version.marked && name == layout::FILES_JSON;
                if goes && target::is_withdrawn(self.source.store(), version.record.id).await? {
                    continue;
                }
                if !self.target.lists && !choose::is_known(&version.record, name) {
                    left.push(key);
                    continue;
                }
                let object = Object { hash: version.record.hash_of(name), key, size: *size };
                match name.as_str() {
                    layout::VERSION_JSON => records.push(object),
                    // One that the copy has complete gets its mark when no ref of the copy holds it any more.
                    layout::EXPIRED_JSON if folder.is_complete() => {}
                    layout::EXPIRED_JSON => marks.push(object),
                    _ => contents.push(object),
                }
            }
        }
        self.leave(&left);
        self.carrier.carry(marks).await?;
        self.carrier.carry(contents).await?;
        for record in records {
            self.carrier.carry(vec![record]).await?;
        }
        Ok(())
    }
}

/// What a store has in a folder, with sizes.
async fn list_sizes(store: &dyn Store, prefix: &str) -> Result<BTreeMap<String, u64>, RepoError> {
    Ok(store.list(prefix).map_ok(|meta| (meta.key, meta.size)).try_collect().await?)
}

/// The keys and sizes of what a store has in a folder, in little memory; nothing where it cannot list.
async fn listed(store: &dyn Store, prefix: &str) -> Result<Option<KeySet>, RepoError> {
    let mut there = KeySet::default();
    let mut listing = store.list(prefix);
    loop {
        match listing.try_next().await {
            Ok(Some(meta)) => drop(there.insert_sized(&meta.key, meta.size)),
            Ok(None) => return Ok(Some(there)),
            Err(StoreError::Unsupported { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The parents of versions come before them.
fn oldest_first(records: &mut BTreeMap<VersionId, Record>) -> Vec<Record> {
    let mut ordered = Vec::with_capacity(records.len());
    while let Some((id, record)) = records.pop_first() {
        // Down to the first whose parent is not waiting, then up again. A circle breaks, as each is taken out once.
        let mut line = vec![record];
        let mut next = line.first().and_then(Record::parent).filter(|parent| *parent != id);
        while let Some(record) = next.and_then(|parent| records.remove(&parent)) {
            next = record.parent();
            line.push(record);
        }
        ordered.extend(line.into_iter().rev());
    }
    ordered
}
