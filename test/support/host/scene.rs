//! A repository with a version that waits to be pushed.

use std::sync::Arc;

use fdl::format::VersionId;
use fdl::host::HostOptions;
use fdl::repo::LocalVersion;
use fdl::store::MemoryStore;

use super::{Answer, Client, MAIN, put, serve, write_version};
use crate::support::{Bench, repository};

/// A host whose `main` has one version, and a second version that is whole and not yet published.
pub struct Scene {
    pub bench: Bench,
    pub store: Arc<MemoryStore>,
    pub client: Client,
    pub first: VersionId,
    pub second: VersionId,
    pub version: LocalVersion,
}

impl Scene {
    pub fn new(options: HostOptions) -> Self {
        let bench = Bench::new(1);
        let store = repository(&bench);
        let chain = bench.chain(None, 2);
        let first = write_version(&store, bench.path(), &chain[0]);
        let second = write_version(&store, bench.path(), &chain[1]);
        put(&store, MAIN, format!("{first}\n"));
        let client = serve(store.clone(), options);
        Self { bench, store, client, first, second, version: chain[1].clone() }
    }

    pub fn push(&self) -> Answer {
        self.client.put_ref(MAIN, &self.client.unchanged(MAIN), self.second)
    }

    /// A whole version on this parent.
    pub fn version(&self, parent: Option<VersionId>) -> VersionId {
        let chain = self.bench.chain(parent, 1);
        write_version(&self.store, self.bench.path(), &chain[0])
    }

    /// The data file that both versions name.
    pub fn data_key(&self) -> String {
        self.version.files.iter().next().unwrap().0.to_owned()
    }
}
