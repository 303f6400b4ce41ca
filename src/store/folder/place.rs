//! Where one object is in a folder, and the steps its writing takes there.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::store::local::{io_error, is_temp, local_error, temp_in};
use crate::store::{Body, ConditionalWrite, StoreError};

/// How often a write makes its folder anew when a delete took it away in between.
const FOLDER_TRIES: usize = 10;

/// A half-written object under `refs/`, a moment's work, belongs to nobody after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Where an object is or would be.
pub(super) struct Place<'a> {
    pub(super) key: &'a str,
    pub(super) path: PathBuf,
    /// What was there when it was looked at. Never a symbolic link.
    pub(super) found: Option<Metadata>,
}

impl Place<'_> {
    /// Writes the content to a file beside the object, durable and not yet under its name.
    pub(super) fn write_beside(&self, body: &Body) -> Result<NamedTempFile, StoreError> {
        let mut whole = self.new_file()?;
        let file = whole.as_file_mut();
        match body {
            Body::Bytes(bytes) => file.write_all(bytes).map_err(|e| self.unwritten(e))?,
            Body::File(path) => {
                let mut source = open_plain(path).map_err(|e| local_error(path, "read", e))?;
                io::copy(&mut source, file).map_err(|e| self.unwritten(e))?;
            }
        }
        file.sync_all().map_err(|e| self.unwritten(e))?;
        Ok(whole)
    }

    /// Gives a whole file the name of the object, replacing what has it.
    pub(super) fn replace(&self, whole: NamedTempFile) -> Result<(), StoreError> {
        whole.persist(&self.path).map(drop).map_err(|e| self.unwritten(e.error))
    }

    /// What it means for a create that something has the name: an object refuses, a folder is in the way.
    pub(super) fn taken(&self) -> Result<ConditionalWrite, StoreError> {
        if self.path.is_dir() {
            Err(self.unwritten(ErrorKind::IsADirectory.into()))
        } else {
            Ok(ConditionalWrite::Refused)
        }
    }

    /// An error of the file system while the object was written.
    pub(super) fn unwritten(&self, error: io::Error) -> StoreError {
        io_error(self.key, "write", error)
    }

    /// An empty file in the folder of the object, which is made when it is not there.
    fn new_file(&self) -> Result<NamedTempFile, StoreError> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let mut tries = 0;
        let made = loop {
            tries += 1;
            match fs::create_dir_all(folder).and_then(|()| temp_in(folder)) {
                // A delete saw a folder empty and removed it, before the file was in it or while it was looked at.
                Err(e)
                    if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) && tries < FOLDER_TRIES => {}
                made => break made,
            }
        };
        made.map_err(|e| match e.kind() {
            // Of an object, it would say that there is none.
            ErrorKind::NotFound => {
                StoreError::Failed { key: self.key.to_owned(), action: "write", source: Box::new(e) }
            }
            // A part of the key is a file.
            ErrorKind::AlreadyExists => self.unwritten(ErrorKind::NotADirectory.into()),
            _ => self.unwritten(e),
        })
    }
}

/// Opens a file that a body names. A pipe or a device has no end to wait for.
fn open_plain(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "it is not a plain file"))
    }
}

/// Removes a folder if it holds nothing but what killed writers left: empty folders and half-written files.
pub(super) fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = || {
            let touched = entry.metadata().and_then(|found| found.modified());
            touched.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        } else if is_temp(&entry.file_name()) && is_old() {
            drop(fs::remove_file(entry.path()));
        }
    }
    // It stays when something is left in it, and the create then says that it is in the way.
    drop(fs::remove_dir(folder));
}
