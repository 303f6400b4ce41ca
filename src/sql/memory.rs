//! What was verified last: a repository that goes back behind it is noticed (docs/design/0004-signatures.md).
//!
//! `<cache>/verified/<repository>/<ref>` holds a version ID. A repository is known by its ID and by its location, so that
//! one which takes on another ID does not pass for one that was never seen; a ref by its name, and the default branch by
//! `HEAD` as well.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::cache::cache_root;
use super::{Code, Context, Error};
use crate::format::{Base, RefKind, RefName, Revision, Sha256, VersionId, layout, parse_ref, print_ref};
use crate::lake::LakeError;
use crate::repo::{self, Repository, Resolved};

/// What is remembered of a ref.
#[derive(Debug)]
pub(super) struct Memory {
    reference: RefName,
    /// Each file, with what it held when it was read.
    files: Vec<(PathBuf, Option<VersionId>)>,
}

/// A ref that does not lead to what was verified.
#[derive(Debug, Clone)]
pub(super) struct WentBack {
    /// The ref.
    pub(super) reference: RefName,
    /// What it held when it was verified.
    pub(super) before: VersionId,
    /// What it holds now.
    pub(super) now: VersionId,
    /// The file that remembers it.
    pub(super) file: PathBuf,
}

impl WentBack {
    /// What has happened, in a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { reference, before, now, .. } = self;
        format!("{reference} has gone back: it holds {now}, which does not build on {before}, verified here before")
    }
}

impl From<WentBack> for Error {
    fn from(found: WentBack) -> Self {
        let hint = format!(
            "ask the publisher which is right; if it is what {} holds now, delete {} and call again.",
            found.reference.short(),
            found.file.display()
        );
        Self::new(Code::Untrusted, found.sentence(), hint)
    }
}

impl Memory {
    /// Reads what is remembered. Nothing is for a version that was named by itself or by counting back.
    ///
    /// # Errors
    /// FDL-CORRUPT for a file that holds no version, and the system's.
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
        let head = (revision.base == Base::Head).then(|| layout::HEAD.to_owned());
        let mut files = Vec::new();
        for folder in by_id.into_iter().chain([by_location]) {
            for name in [reference.full().to_owned()].into_iter().chain(head.clone()) {
                // No name of a ref holds a plus sign. A branch a/b may follow a branch a.
                let file = cache_root().join("verified").join(&folder).join(name.replace('/', "+"));
                let held = held(&file)?;
                files.push((file, held));
            }
        }
        Ok(Some(Self { reference, files }))
    }

    /// Whether the ref leads to everything that is remembered.
    pub(super) fn went_back(
        &self,
        context: &Context,
        repository: &Repository,
        now: VersionId,
    ) -> Result<Option<WentBack>, Error> {
        let mut good = None;
        for (file, before) in &self.files {
            let Some(before) = before.filter(|before| Some(*before) != good) else {
                continue;
            };
            let forward = repo::moved_forward(repository.store(), &self.reference, before, now);
            if !context.block_on(forward)?? {
                let (reference, file) = (self.reference.clone(), file.clone());
                return Ok(Some(WentBack { reference, before, now, file }));
            }
            good = Some(before);
        }
        Ok(None)
    }

    /// Remembers a version that is good, unless another call has remembered another since.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remember(&self, version: VersionId) -> Result<(), Error> {
        for (file, before) in &self.files {
            if *before == Some(version) {
                continue;
            }
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
    match fs::read(file) {
        Ok(bytes) => Ok(Some(parse_ref(&file.to_string_lossy(), &bytes).map_err(|error| {
            Error::from(error).with_hint("delete the file; it only remembers what was verified here.")
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
        let memory =
            |before| Memory { reference: RefName::branch("main").unwrap(), files: vec![(file.clone(), before)] };
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
