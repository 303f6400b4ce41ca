//! What was verified last: a repository that goes back behind it is noticed (docs/design/0004-signatures.md).
//!
//! `<cache>/verified/<repository>/<ref>` holds a version ID. A repository is known by its ID and by its location, so that
//! one which takes on another ID does not pass for one that was never seen; a ref by its name, and the default branch by
//! `HEAD` as well. Under a short name, a branch is held against a tag of that name, and a tag against a branch.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::cache::cache_root;
use super::{Code, Context, Error};
use crate::format::{
    Base, RefKind, RefName, Revision, Sha256, Trust, VersionId, layout, parse_ref, print_ref, read_small,
};
use crate::lake::LakeError;
use crate::repo::{self, Checked, Movement, Repository, Resolved};

/// What is remembered of a ref.
#[derive(Debug)]
pub(super) struct Memory {
    reference: RefName,
    /// `<cache>/verified`.
    folder: PathBuf,
    files: Vec<Remembered>,
}

/// A file that remembers.
#[derive(Debug)]
struct Remembered {
    /// Its path in the folder of what is remembered.
    name: String,
    /// What it held when it was read.
    before: Option<VersionId>,
    /// The kind of ref that it remembers.
    kind: RefKind,
    /// Whether it remembers what the call asked for; another ref of the same short name is only compared with.
    own: bool,
}

/// A ref that does not lead to what was verified, as far as can be told.
#[derive(Debug, Clone)]
pub(super) struct WentBack {
    /// The ref.
    pub(super) reference: RefName,
    /// What was verified.
    pub(super) before: VersionId,
    /// What it holds now.
    pub(super) now: VersionId,
    movement: Movement,
    folder: PathBuf,
    /// The files that remember something that it does not lead to.
    files: Vec<String>,
}

impl WentBack {
    /// The status of its row in `fdl_verify`.
    pub(super) fn status(&self) -> &'static str {
        match self.movement {
            Movement::Back => "gone back",
            Movement::Forward | Movement::Unproved(_) | Movement::TooFar(_) => "unproved",
        }
    }

    /// What has happened, in a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { reference, before, now, movement, .. } = self;
        let holds = format!("it holds {now}, and {before} was verified here before");
        match movement {
            Movement::Forward | Movement::Back => {
                format!(
                    "{reference} has gone back: it holds {now}, which does not build on {before}, verified here before"
                )
            }
            Movement::Unproved(checked) => {
                let Checked { version, verdict, .. } = checked.as_ref();
                let note = verdict.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
                format!(
                    "{reference} cannot be shown to have gone forward: {holds}; of what lies between them, {version} is \
                     not good but {}{note}",
                    verdict.status
                )
            }
            Movement::TooFar(versions) => format!(
                "{reference} cannot be shown to have gone forward: {holds}, which is not among the last {versions} versions"
            ),
        }
    }
}

impl From<WentBack> for Error {
    fn from(found: WentBack) -> Self {
        let hint = format!(
            "ask the publisher which is right; if it is what {} holds now, delete in {} what remembers the other, and call \
             again: {}",
            found.reference.short(),
            found.folder.display(),
            found.files.join(", ")
        );
        Self::new(Code::Untrusted, found.sentence(), hint)
    }
}

impl Memory {
    /// Reads what is remembered. Nothing is for a version that was named by itself or by counting back.
    ///
    /// # Errors
    /// FDL-CORRUPT for a file that holds no version, those of [`cache_root`], and the system's.
    pub(super) fn read(
        repository: &Repository,
        revision: &Revision,
        resolved: &Resolved,
    ) -> Result<Option<Self>, Error> {
        let Some(reference) = resolved.reference.clone() else {
            return Ok(None);
        };
        if revision.back > 0 || reference.kind() == RefKind::Request {
            return Ok(None);
        }
        let by_location = Sha256::of(repository.store().location().as_bytes()).to_string();
        let by_id = repository.settings().id.map(|id| id.to_string());
        let mut names = vec![(reference.full().to_owned(), reference.kind(), true)];
        match &revision.base {
            Base::Head => names.push((layout::HEAD.to_owned(), reference.kind(), true)),
            // A tag in the place of a branch, or a branch in that of a tag, answers to the same short name.
            Base::Name { branch, tag, .. } => {
                let others = [branch, tag].into_iter().filter(|name| **name != reference);
                names.extend(others.map(|name| (name.full().to_owned(), name.kind(), false)));
            }
            Base::Ref(_) | Base::Id(_) => {}
        }
        let folder = cache_root()?.join("verified");
        let mut files = Vec::new();
        for place in by_id.into_iter().chain([by_location]) {
            for (name, kind, own) in &names {
                // No name of a ref holds a plus sign. A branch a/b may follow a branch a.
                let name = format!("{place}/{}", name.replace('/', "+"));
                let before = held(&folder.join(&name))?;
                files.push(Remembered { name, before, kind: *kind, own: *own });
            }
        }
        Ok(Some(Self { reference, folder, files }))
    }

    /// Whether the ref leads to everything that is remembered, now that it holds `now`.
    ///
    /// # Errors
    /// Those of [`repo::moved`].
    pub(super) fn went_back(
        &self,
        context: &Context,
        repository: &Repository,
        now: &Checked,
        trust: &Trust,
    ) -> Result<Option<WentBack>, Error> {
        let mut known: BTreeMap<(VersionId, RefKind), Movement> = BTreeMap::new();
        let mut found: Option<WentBack> = None;
        for Remembered { name, before, kind, .. } in &self.files {
            let Some(before) = *before else {
                continue;
            };
            // Whichever of them is a tag, it does not move.
            let kind = if *kind == RefKind::Tag { RefKind::Tag } else { self.reference.kind() };
            let movement = match known.get(&(before, kind)) {
                Some(movement) => movement.clone(),
                None => {
                    let moved = repo::moved(repository.store(), kind, before, now, trust);
                    let movement = context.block_on(moved)??;
                    known.insert((before, kind), movement.clone());
                    movement
                }
            };
            if movement != Movement::Forward {
                let (reference, folder) = (self.reference.clone(), self.folder.clone());
                let now = now.version;
                let new = || WentBack { reference, before, now, movement, folder, files: Vec::new() };
                found.get_or_insert_with(new).files.push(name.clone());
            }
        }
        Ok(found)
    }

    /// Remembers a version that is good, unless another call has remembered another since.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remember(&self, version: VersionId) -> Result<(), Error> {
        for Remembered { name, before, own, .. } in &self.files {
            if *before == Some(version) || !own {
                continue;
            }
            let file = &self.folder.join(name);
            let folder = file.parent().unwrap_or(file);
            let failed = |source| io_error("write", file, source);
            fs::create_dir_all(folder).map_err(failed)?;
            let lock = File::options().create(true).truncate(false).write(true).open(folder.join("lock"));
            let lock = lock.map_err(failed)?;
            lock.lock().map_err(failed)?;
            if held(file)? != *before {
                continue;
            }
            let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
            new.write_all(print_ref(version).as_ref()).map_err(failed)?;
            new.persist(file).map_err(|error| failed(error.error))?;
        }
        Ok(())
    }
}

fn held(file: &Path) -> Result<Option<VersionId>, Error> {
    match read_small(file) {
        Ok(bytes) => Ok(Some(parse_ref(&file.to_string_lossy(), &bytes).map_err(|error| {
            Error::from(error).with_hint("move the file to another folder; it only remembers what was verified here.")
        })?)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(io_error("read", file, error)),
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    LakeError::Io { action, path: path.to_owned(), source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_calls_at_once_the_first_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a repository").join("refs+heads+main");
        let [old, new]: [VersionId; 2] =
            ["019a3c4d-0000-7000-8000-000000000000", "019a3c4e-0000-7000-8000-000000000000"]
                .map(|id| id.parse().unwrap());
        let memory = |before| {
            let (name, kind) = ("a repository/refs+heads+main".to_owned(), RefKind::Branch);
            let files = vec![Remembered { name, before, kind, own: true }];
            Memory { reference: RefName::branch("main").unwrap(), folder: folder.path().to_owned(), files }
        };
        let (first, second) = (memory(None), memory(None));
        first.remember(new).unwrap();
        // It found its version before the other moved on, and nothing says that its is the later one.
        second.remember(old).unwrap();
        assert_eq!(held(&file).unwrap(), Some(new));
        memory(Some(new)).remember(old).unwrap();
        assert_eq!(held(&file).unwrap(), Some(old));
        fs::write(&file, "nonsense").unwrap();
        assert_eq!(held(&file).unwrap_err().code, Code::Corrupt);
        assert_eq!(held(&folder.path().join("none").join("x")).unwrap(), None);
    }
}
