//! Folders that several people write to.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::definition::Contents;
use super::working_copy::Checkout;

/// Lets those write into the folders of data files who may write into the folder above: DuckDB makes folders with the mode 0755 whatever
/// the umask is, and a second writer of a group could insert nothing. Folders of other people stay as they are; their owners' commits
/// see to them.
pub(super) fn follow_the_parent(checkout: &Checkout, contents: &Contents) {
    let data_folder = Path::new(&checkout.data_path);
    if checkout.published_at.is_some() || !data_folder.is_absolute() {
        return;
    }
    let tables = contents.tables().map(|(_, table)| table);
    let stored =
        tables.flat_map(|table| &table.files).flat_map(|file| std::iter::once(&file.file).chain(&file.deletes));
    let below = stored.flat_map(|stored| Path::new(&stored.path).ancestors().skip(1));
    // In order, so that a folder comes after the one that it is in. Those beside it may have held files that are gone.
    let folders: BTreeSet<&Path> = below.filter_map(Path::parent).collect();
    for above in folders {
        let above = data_folder.join(above);
        let Ok(entries) = fs::read_dir(&above) else { continue };
        for folder in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            follow(&folder.path(), &above);
        }
    }
}

/// Adds what the folder above allows to all others than the owner.
#[cfg(unix)]
fn follow(folder: &Path, above: &Path) {
    use std::os::unix::fs::PermissionsExt;

    const OF_OTHERS: u32 = 0o2077;
    let mode = |path: &Path| {
        fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir).map(|found| found.permissions().mode())
    };
    if let (Some(now), Some(above)) = (mode(folder), mode(above)) {
        let wanted = now | above & OF_OTHERS;
        if wanted != now {
            // Refused when it belongs to somebody else.
            let _ = fs::set_permissions(folder, fs::Permissions::from_mode(wanted & 0o7777));
        }
    }
}

#[cfg(not(unix))]
fn follow(_folder: &Path, _above: &Path) {}
