//! The working copy: a working catalog and, in a folder beside it, what fdl must remember of it.
//!
//! `<path>.fdl/state.json` names the repository, the ref and the version that was checked out, and the versions that are
//! committed but not pushed; each of these versions has a folder in `<path>.fdl/versions/`. The state is written last and
//! at once, so that a call stopped anywhere leaves a state that is true.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LakeError;
use crate::format::{CatalogFormat, DataDir, FDL_VERSION, RefName, VersionId, layout, read_small, supported};

const STATE: &str = "state.json";
const LOCK: &str = "lock";

/// What a working catalog was made from and what was made of it since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// The location of the repository.
    pub repository: String,
    /// The data folder of the repository.
    pub data_dir: DataDir,
    /// Where DuckDB writes new data files; ends in `/`.
    pub data_path: String,
    /// The URL of the repository's data folder, ending in `/`, when new files are written elsewhere (docs/format.md
    /// section 13, HTTP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<String>,
    /// The branch or tag that was asked for; nothing for a version ID.
    pub reference: Option<RefName>,
    /// The version that the ref held, nothing for a branch without one.
    pub base: Option<VersionId>,
    /// Versions committed and not pushed, the oldest first.
    #[serde(default)]
    pub local: Vec<VersionId>,
    /// The snapshot of the working catalog that holds what the last of these versions holds.
    pub snapshot: i64,
    /// The digest of the options that it had then; nothing in what an older fdl wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
    /// The mark that the working catalog carries.
    pub mark: String,
    /// What fdl.json said of the formats to publish in, when it was read last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub catalog_formats: Vec<CatalogFormat>,
}

impl Checkout {
    /// The version that the next commit builds on.
    pub fn tip(&self) -> Option<VersionId> {
        self.local.last().copied().or(self.base)
    }

    /// The repository's data folder, as a reader names it.
    pub fn published_data_path(&self) -> &str {
        self.published_at.as_deref().unwrap_or(&self.data_path)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct State {
    fdl: String,
    /// The checkout in force.
    current: Option<Checkout>,
    /// One that is being put in place: in force as soon as the working catalog carries its mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Checkout>,
}

/// A working copy, locked for this call.
#[derive(Debug)]
pub struct WorkingCopy {
    file: PathBuf,
    folder: PathBuf,
    /// Whether the folder was made by this call.
    is_new: bool,
    /// Released with the value, or with the process.
    _lock: File,
}

impl WorkingCopy {
    /// Locks the working copy of the catalog `file`, whose folder is made when it is not there.
    ///
    /// # Errors
    /// [`LakeError::Busy`] while another call holds it, or the system's.
    pub fn lock(file: &Path) -> Result<Self, LakeError> {
        let folder = folder(file);
        let is_new = !folder.exists();
        fs::create_dir_all(&folder).map_err(|source| LakeError::io("create", &folder, source))?;
        let path = folder.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| LakeError::io("open", &path, source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { file: file.to_owned(), folder, is_new, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LakeError::Busy { path: file.to_owned() }),
            Err(TryLockError::Error(source)) => Err(LakeError::io("lock", &path, source)),
        }
    }

    /// The working catalog.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The folder of a version beside the working catalog.
    pub fn version(&self, id: VersionId) -> PathBuf {
        version_folder(&self.file, id)
    }

    /// A folder for files that are being made, emptied of what a stopped call left.
    ///
    /// # Errors
    /// The system's.
    pub fn scratch(&self) -> Result<PathBuf, LakeError> {
        let scratch = self.folder.join("tmp");
        remove_folder(&scratch)?;
        fs::create_dir_all(&scratch).map_err(|source| LakeError::io("create", &scratch, source))?;
        Ok(scratch)
    }

    /// Makes a finished version folder of `scratch`.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_version(&self, scratch: &Path, id: VersionId) -> Result<(), LakeError> {
        let target = self.version(id);
        let versions = self.folder.join("versions");
        fs::create_dir_all(&versions).map_err(|source| LakeError::io("create", &versions, source))?;
        remove_folder(&target)?;
        sync_all(scratch)?;
        fs::rename(scratch, &target).map_err(|source| LakeError::io("write", &target, source))?;
        sync(&versions)
    }

    /// The checkout in force, given the mark that the working catalog carries.
    ///
    /// # Errors
    /// [`LakeError::NotACheckout`] where there is none, [`LakeError::Corrupt`] for a damaged state.
    pub fn checkout(&self, mark: Option<&str>) -> Result<Checkout, LakeError> {
        read_checkout(&self.file, mark)
    }

    /// The versions that are committed and not pushed, whatever has become of the working catalog.
    pub fn unpushed(&self) -> Vec<VersionId> {
        let state = read_state(&self.file).ok();
        state.and_then(|state| state.current).map(|checkout| checkout.local).unwrap_or_default()
    }

    /// Writes that this checkout is in force. Versions that it does not need go when the call has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self, checkout: &Checkout) -> Result<(), LakeError> {
        self.write(&State { fdl: FDL_VERSION.to_owned(), current: Some(checkout.clone()), next: None })
    }

    /// Takes away what no checkout needs: scratch files, versions of former checkouts, the sources of what is published,
    /// and the whole folder when there is no working copy after all.
    fn tidy(&self) -> Result<(), LakeError> {
        let state = match read_state(&self.file) {
            Ok(state) => state,
            Err(LakeError::NotACheckout { .. }) if self.is_new => return remove_folder(&self.folder),
            // A lost or damaged state may be mended by hand, and then needs what it names.
            Err(_) => return Ok(()),
        };
        remove_folder(&self.folder.join("tmp"))?;
        let checkouts = [&state.current, &state.next].into_iter().flatten();
        for base in checkouts.clone().filter_map(|checkout| checkout.base) {
            remove_folder(&self.version(base).join(layout::SOURCES))?;
        }
        let needed: Vec<PathBuf> = checkouts
            .flat_map(|checkout| checkout.local.iter().copied().chain(checkout.base))
            .map(|id| self.version(id))
            .collect();
        let Ok(entries) = fs::read_dir(self.folder.join("versions")) else { return Ok(()) };
        for entry in entries.flatten() {
            if !needed.contains(&entry.path()) {
                remove_folder(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Puts a new working catalog in the place of the old one, if any, and its checkout in force. Stopped at any moment,
    /// either the old or the new is there whole.
    ///
    /// # Errors
    /// [`LakeError::InTransaction`] when somebody writes to the old one, or the system's.
    ///
    /// `may_replace` is asked at the last moment whether the old one may go.
    pub fn replace(
        &self,
        catalog: &Path,
        current: Option<&Checkout>,
        next: &Checkout,
        may_replace: impl FnOnce() -> Result<(), LakeError>,
    ) -> Result<(), LakeError> {
        sync(catalog)?;
        let fdl = FDL_VERSION.to_owned();
        self.write(&State { fdl, current: current.cloned(), next: Some(next.clone()) })?;
        may_replace()?;
        self.remove_logs()?;
        // SQLite gives nobody else the right to write, whatever the umask says.
        let like = self.folder.join(LOCK);
        let mode = fs::metadata(&like).map_err(|source| LakeError::io("read", &like, source))?.permissions();
        fs::set_permissions(catalog, mode).map_err(|source| LakeError::io("write", catalog, source))?;
        fs::rename(catalog, &self.file).map_err(|source| LakeError::io("write", &self.file, source))?;
        if let Some(parent) = self.file.parent() {
            sync(parent)?;
        }
        self.save(next)
    }

    /// Removes SQLite's logs: one that is left would be played into the new file. Those of a catalog that is gone belong to
    /// nothing; those of one that is there are empty by now, or somebody writes.
    fn remove_logs(&self) -> Result<(), LakeError> {
        let orphaned = !self.file.exists();
        for suffix in ["-wal", "-shm", "-journal"] {
            let mut path = self.file.clone().into_os_string();
            path.push(suffix);
            let path = PathBuf::from(path);
            let Ok(meta) = fs::metadata(&path) else { continue };
            if !orphaned && meta.len() > 0 && suffix != "-shm" {
                return Err(LakeError::InTransaction { path: self.file.clone() });
            }
            fs::remove_file(&path).map_err(|source| LakeError::io("remove", &path, source))?;
        }
        Ok(())
    }

    fn write(&self, state: &State) -> Result<(), LakeError> {
        let path = self.folder.join(STATE);
        let failed = |source| LakeError::io("write", &path, source);
        let mut text = serde_json::to_vec_pretty(state).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let mut builder = tempfile::Builder::new();
        // Those of any new file, by the umask: a temporary file is its owner's alone.
        #[cfg(unix)]
        builder.permissions(<fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
        let mut file = builder.tempfile_in(&self.folder).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        sync(&self.folder)
    }
}

/// The folder beside the working catalog `file` for data files that cannot be written into the repository.
pub fn data_folder(file: &Path) -> PathBuf {
    folder(file).join("data")
}

impl Drop for WorkingCopy {
    fn drop(&mut self) {
        // What cannot be taken away now is taken away after the next call; it harms nobody.
        let _ = self.tidy();
    }
}

/// The folder of a version beside the working catalog `file`.
pub fn version_folder(file: &Path, id: VersionId) -> PathBuf {
    folder(file).join("versions").join(id.to_string())
}

/// The folder of a working copy.
fn folder(file: &Path) -> PathBuf {
    let mut folder = file.as_os_str().to_owned();
    folder.push(".fdl");
    PathBuf::from(folder)
}

/// Reads the checkout in force without the lock, for calls that only look.
///
/// # Errors
/// [`LakeError::NotACheckout`] where there is none, [`LakeError::Corrupt`] for a damaged state.
pub fn read_checkout(file: &Path, mark: Option<&str>) -> Result<Checkout, LakeError> {
    let state = read_state(file)?;
    let known = [state.next, state.current].into_iter().flatten().find(|known| Some(known.mark.as_str()) == mark);
    known.ok_or_else(|| match mark {
        Some(_) => corrupt(file, "it belongs to another catalog than the one beside it".to_owned()),
        None => LakeError::NotACheckout { given: file.to_string_lossy().into_owned() },
    })
}

fn read_state(file: &Path) -> Result<State, LakeError> {
    let path = folder(file).join(STATE);
    let text = match read_small(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(LakeError::NotACheckout { given: file.to_string_lossy().into_owned() });
        }
        Err(error) => return Err(LakeError::io("read", &path, error)),
    };
    let state: State = serde_json::from_slice(&text).map_err(|error| corrupt(file, error.to_string()))?;
    supported(STATE, &state.fdl)?;
    Ok(state)
}

fn corrupt(file: &Path, why: String) -> LakeError {
    LakeError::Corrupt { object: folder(file).join(STATE).to_string_lossy().into_owned(), why }
}

/// Makes a file or folder durable.
fn sync(path: &Path) -> Result<(), LakeError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| LakeError::io("write", path, source))
}

/// Makes a folder durable with all that is in it.
fn sync_all(folder: &Path) -> Result<(), LakeError> {
    let entries = fs::read_dir(folder).map_err(|source| LakeError::io("read", folder, source))?;
    for entry in entries {
        let path = entry.map_err(|source| LakeError::io("read", folder, source))?.path();
        if path.is_dir() { sync_all(&path)? } else { sync(&path)? }
    }
    sync(folder)
}

fn remove_folder(path: &Path) -> Result<(), LakeError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LakeError::io("remove", path, error)),
        _ => Ok(()),
    }
}
