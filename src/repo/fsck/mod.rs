//! Looking for what is not as it must be (docs/format.md sections 1 to 8 and 12).
//!
//! Three depths, each with what the one before it finds: `structure` reads the small files, `files` compares the data
//! files with one listing and reads every catalog, `content` reads the data files themselves. The last is not done here:
//! whoever can read Parquet goes through [`Fsck::live`].
//!
//! What no hash covers cannot be found: a changed message or author in version.json, say, without a signature. Whose a
//! signature is, is not looked at here.

mod files;
mod finding;
mod sources;
mod structure;
mod version;

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{DataDir, Record, RefName, VersionId};
use crate::store::{Object, Store};

use super::catalog::LookInto;
use super::error::RepoError;
use super::folders::Folders;
use super::read::get_optional;

use finding::Repairs;
pub use finding::{Code, Finding, Level};
pub use sources::fsck_sources;

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// HEAD, settings, refs, records, marks, and the hashes of the JSON files.
    Structure,
    /// Also that every data file is there with its size, and that every catalog is the one of its record and names the
    /// same files as files.json.
    Files,
}

/// What to look at.
#[derive(Debug, Clone)]
pub struct FsckOptions {
    /// How closely.
    pub depth: Depth,
    /// Only the history of this ref; everything without it.
    pub reference: Option<RefName>,
}

/// What was found.
#[derive(Debug)]
pub struct Fsck {
    /// The findings, errors first, by the key of the object. None in a sound repository.
    pub findings: Vec<Finding>,
    /// Where the data files are.
    pub data_dir: DataDir,
    /// The records of the versions that were looked at and can be read, for whoever goes on to their content.
    pub live: Vec<Record>,
    /// What mends an object that is there and wrong.
    pub replace: String,
}

/// Looks through a repository. Lists once (the folders it needs; everything at the depth of files), reads the refs and
/// the small files of each version, and at the depth of files every catalog. No data file is asked for by itself.
///
/// # Errors
/// [`RepoError::NotARepository`] where there is neither fdl.json nor HEAD; [`RepoError::NoSuchRef`]; those of the store,
/// which must be able to list. Whatever is wrong with the repository is a finding and no error.
pub async fn fsck(store: &dyn Store, options: &FsckOptions, look: LookInto<'_>) -> Result<Fsck, RepoError> {
    let mut scene = Scene {
        store,
        repairs: Repairs::of(store),
        look,
        data_dir: DataDir::default(),
        refs: BTreeMap::new(),
        folders: Folders::default(),
        records: BTreeMap::new(),
        chosen: BTreeSet::new(),
        findings: Vec::new(),
    };
    scene.structure(options.reference.as_ref()).await?;
    let data = match options.depth {
        Depth::Structure => {
            scene.data_folder().await?;
            None
        }
        Depth::Files => Some(scene.list_data(options.reference.is_none()).await?),
    };
    let deep = data.is_some();
    scene.versions(data).await?;
    if deep {
        scene.sources().await?;
    }
    let Scene { mut findings, data_dir, folders, records, chosen, repairs, .. } = scene;
    findings.sort_by(|a, b| (a.level, &a.object, a.code).cmp(&(b.level, &b.object, b.code)));
    findings.dedup();
    let live = |id: &VersionId| folders.by_id.get(id).is_some_and(|folder| !folder.is_marked());
    let live = records.into_values().filter(|record| chosen.contains(&record.id) && live(&record.id)).collect();
    Ok(Fsck { findings, data_dir, live, replace: repairs.replace() })
}

/// What has been read so far.
struct Scene<'a> {
    store: &'a dyn Store,
    repairs: Repairs,
    look: LookInto<'a>,
    data_dir: DataDir,
    refs: BTreeMap<RefName, VersionId>,
    folders: Folders,
    /// Those that can be read.
    records: BTreeMap<VersionId, Record>,
    /// The versions to look at.
    chosen: BTreeSet<VersionId>,
    findings: Vec<Finding>,
}

impl Scene<'_> {
    /// The data folder is one, and no link to another. The deeper looks list it.
    async fn data_folder(&mut self) -> Result<(), RepoError> {
        match self.store.check_regular(&[format!("{}fdl", self.data_dir)]).await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.findings.push(finding::odd(error)?);
                Ok(())
            }
        }
    }

    /// A small object, or none; nothing at all when it is no file or goes on for too long, which has been told then.
    async fn small(&mut self, key: &str) -> Result<Option<Option<Object>>, RepoError> {
        let object = get_optional(self.store, key).await.map_err(RepoError::from);
        self.found(object)
    }

    fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Turns an error about an object into a finding.
    fn found<T>(&mut self, result: Result<T, RepoError>) -> Result<Option<T>, RepoError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let finding = finding::finding(error, &self.repairs)?;
                self.find(finding);
                Ok(None)
            }
        }
    }
}
