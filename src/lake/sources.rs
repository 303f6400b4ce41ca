//! The files that a version was made from: copies of them go into its folder, each under its hash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::LakeError;
use crate::format::{Sha256, SourceFile, layout};

/// A file of this machine that is to be a source, and what the version calls it.
#[derive(Debug)]
pub(super) struct Named<'a> {
    name: String,
    path: &'a Path,
}

/// Names the files: by their path where it is relative and stays below the working folder, otherwise by their last part,
/// as a version tells nothing about the folders of the machine it was made on.
pub(super) fn named(paths: &[PathBuf]) -> Result<Vec<Named<'_>>, LakeError> {
    let mut names = BTreeSet::new();
    paths
        .iter()
        .map(|path| {
            let bad = |why: &str| LakeError::BadSource { path: path.clone(), why: why.to_owned() };
            let meta = fs::metadata(path).map_err(|error| bad(&error.to_string()))?;
            if !meta.is_file() {
                return Err(bad("it is not a file"));
            }
            let below = |part: Component<'_>| match part {
                Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
                _ => None,
            };
            let parts = path.components().filter(|part| *part != Component::CurDir).map(below);
            let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let relative = parts.collect::<Option<Vec<String>>>().map(|parts| parts.join("/"));
            let name = relative.or(last).ok_or_else(|| bad("it has no name"))?;
            if !names.insert(name.clone()) {
                return Err(bad(&format!("another source is called {name} too")));
            }
            Ok(Named { name, path })
        })
        .collect()
}

/// Copies the files into the folder of a version.
pub(super) fn keep(version: &Path, sources: &[Named<'_>]) -> Result<Vec<SourceFile>, LakeError> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let folder = version.join(layout::SOURCES);
    fs::create_dir_all(&folder).map_err(|source| LakeError::io("create", &folder, source))?;
    sources
        .iter()
        .map(|source| {
            let copy = folder.join("tmp");
            fs::copy(source.path, &copy).map_err(|error| LakeError::io("copy", source.path, error))?;
            // Of the copy: the file itself may be written to at this moment.
            let (sha256, size) = Sha256::of_file(&copy).map_err(|error| LakeError::io("read", &copy, error))?;
            let kept = folder.join(sha256.to_string());
            fs::rename(&copy, &kept).map_err(|error| LakeError::io("write", &kept, error))?;
            Ok(SourceFile { name: source.name.clone(), sha256, size })
        })
        .collect()
}
