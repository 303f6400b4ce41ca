//! One writer at a time: the lock of a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The name of the lock file. It lies at the root because the lock must be on a file that is never replaced, renamed or
/// deleted: an object is a new file after each write, and folders under `refs/` come and go. One lock for all keys is
/// enough, as it is held only to compare and rename. No listing shows it.
const LOCK_FILE: &str = ".fdl-lock";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Holds off every other writer of a folder, in this process and in others, until it is dropped.
///
/// It is the operating system's lock on the open file, which goes when its process does, however that ends.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Waits until no other writer holds the lock, at most for `wait`.
    pub(super) fn take(root: &Path, wait: Duration) -> io::Result<Self> {
        let file = open(&root.join(LOCK_FILE))?;
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if start.elapsed() >= wait => {
                    let message = format!("another writer has held its lock for {} seconds", wait.as_secs_f32());
                    return Err(io::Error::new(ErrorKind::TimedOut, message));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(pause),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing would do, unless the process was forked meanwhile and the child has the file open too. When this
        // fails, closing is what is left.
        drop(self.0.unlock());
    }
}

fn open(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            let message = format!("{} is not a plain file", path.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        _ => {}
    }
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    match opened {
        // Another member of the group may have made it. Most systems lock a file that is only read just as well.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && path.exists() => File::open(path),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_waits_no_longer_than_it_is_told() {
        let root = tempfile::tempdir().unwrap();
        let held = Lock::take(root.path(), Duration::ZERO).unwrap();
        let error = Lock::take(root.path(), Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(held);
        assert!(Lock::take(root.path(), Duration::ZERO).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn the_lock_file_is_never_made_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("made");
        std::os::unix::fs::symlink(&target, root.path().join(LOCK_FILE)).unwrap();
        assert!(Lock::take(root.path(), Duration::ZERO).is_err());
        assert!(!target.exists());
    }
}
