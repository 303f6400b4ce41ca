//! What the tests of the repository layer share: versions made up on the spot, a clock, a store that takes turns.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use fdl::format::{
    Author, Clock, DataDir, DataFile, Dataset, FDL_VERSION, Files, Record, RefName, RefsJson, SeededRandom, Sha256,
    TableFiles, Timestamp, VersionId, VersionIds, layout,
};
use fdl::repo::{
    CatalogReader, DataSource, Expected, InitOptions, LocalVersion, LookInto, Push, PushReport, RepoError, Repository,
    init, list_refs, publish, read_files, read_live,
};
use fdl::store::{Body, ConditionalWrite, ETag, MemoryStore, Object, ObjectMeta, Store, StoreError};
use futures::executor::block_on;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tempfile::TempDir;

/// A clock that goes on one second with every look.
#[derive(Debug)]
pub struct StepClock(AtomicI64);

impl StepClock {
    /// Lets time pass.
    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for StepClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp(self.0.fetch_add(1, Ordering::Relaxed), 0).unwrap()
    }
}

/// Whoever reads catalogs of these formats.
#[derive(Debug)]
pub struct Reads(pub &'static [&'static str]);

impl CatalogReader for Reads {
    fn describe(&self) -> String {
        format!("this reader reads {}", self.0.join(", "))
    }

    fn reads(&self, format: &str) -> bool {
        self.0.contains(&format)
    }
}

/// Lists what a catalog names.
type Hook = Box<dyn Fn(&Path) -> Result<Files, String> + Send + Sync>;

/// A writer's machine: makes versions in a folder, the same ones for the same seed.
pub struct Bench {
    folder: TempDir,
    hook: Hook,
    ids: VersionIds,
    pub clock: Arc<StepClock>,
    pub random: Arc<SeededRandom>,
}

impl Bench {
    pub fn new(seed: u64) -> Self {
        let clock = Arc::new(StepClock(AtomicI64::new(1_795_990_443)));
        let random = Arc::new(SeededRandom::new(seed));
        let folder = TempDir::new().unwrap();
        let here = folder.path().to_owned();
        // A catalog names what the files.json named that was made with it.
        let hook: Hook = Box::new(move |catalog: &Path| {
            let text = std::fs::read_to_string(catalog).map_err(|error| error.to_string())?;
            let id = text.split(' ').nth(3).ok_or("no catalog")?;
            let list = std::fs::read(here.join(id).join(layout::FILES_JSON)).map_err(|error| error.to_string())?;
            Files::parse(&list, &DataDir::default()).map_err(|error| error.to_string())
        });
        Self { folder, hook, ids: VersionIds::new(clock.clone(), random.clone()), clock, random }
    }

    /// A way to look into the catalogs of the versions that were made here.
    pub fn look(&self) -> LookInto<'_> {
        LookInto { scratch: self.path(), files: Some(self.hook.as_ref()) }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A version that names these data files: key and size.
    pub fn version(&self, parent: Option<VersionId>, data: &[(&str, u64)]) -> LocalVersion {
        let folder = self.version_folder(parent, data);
        LocalVersion::load(&folder, &DataDir::default()).unwrap()
    }

    /// The folder of such a version.
    pub fn version_folder(&self, parent: Option<VersionId>, data: &[(&str, u64)]) -> std::path::PathBuf {
        let id = self.ids.next();
        let catalog = format!("the catalog of {id}").into_bytes();
        let files = data.iter().map(|(path, bytes)| DataFile {
            path: (*path).to_owned(),
            rows: 1,
            bytes: *bytes,
            deletes: None,
        });
        let files = files.collect();
        let table = TableFiles { schema: "main".to_owned(), table: "t".to_owned(), files };
        let files = Files::new(vec![table]).print().unwrap();
        let dataset = Dataset::new(Vec::new()).print().unwrap();
        let record = Record {
            fdl: FDL_VERSION.to_owned(),
            id,
            parents: parent.into_iter().collect(),
            author: Some(Author::Text("Aiko <aiko@example.org>".to_owned())),
            message: Some("a change".to_owned()),
            created: Some(Timestamp::new(self.clock.now())),
            sha256: Sha256::of(&catalog),
            size: Some(catalog.len() as u64),
            ducklake: Some("1.0".to_owned()),
            catalogs: BTreeMap::new(),
            files_sha256: Some(Sha256::of(&files)),
            dataset_sha256: Some(Sha256::of(&dataset)),
            sources: Vec::new(),
            tool: None,
        };
        let folder = self.folder.path().join(id.to_string());
        std::fs::create_dir(&folder).unwrap();
        for (name, bytes) in [
            (layout::CATALOG, catalog),
            (layout::FILES_JSON, files),
            (layout::DATASET_JSON, dataset),
            (layout::VERSION_JSON, record.print().unwrap()),
        ] {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        folder
    }

    /// Versions that build on each other, the first on `parent`. Each names one more data file than the one before.
    pub fn chain(&self, parent: Option<VersionId>, length: usize) -> Vec<LocalVersion> {
        let mut chain: Vec<LocalVersion> = Vec::new();
        let mut keys: Vec<String> = Vec::new();
        for _ in 0..length {
            let parent = chain.last().map(LocalVersion::id).or(parent);
            keys.push(format!("data/main/t/{}.parquet", self.ids.next()));
            let data: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 3)).collect();
            chain.push(self.version(parent, &data));
        }
        chain
    }

    /// Starts a repository with the default branch `main`.
    pub async fn init(&self, store: &dyn Store) {
        let options = InitOptions::new(RefName::branch("main").unwrap());
        init(store, options, self.random.as_ref()).await.unwrap();
    }

    /// Pushes versions whose data files are in the store.
    pub async fn push(
        &self,
        store: Arc<dyn Store>,
        branch: &str,
        expected: Expected,
        chain: &[LocalVersion],
    ) -> Result<PushReport, RepoError> {
        let repository = Repository::open(store).await?;
        let push = Push {
            reference: RefName::branch(branch).unwrap(),
            expected,
            chain,
            base: None,
            base_files: None,
            data: DataSource::InPlace,
        };
        publish(&repository, &push, self.clock.as_ref()).await
    }
}

/// Writes the data files of versions, as DuckDB does before a commit.
pub fn write_data(store: &MemoryStore, chain: &[LocalVersion]) {
    for (key, size) in chain.iter().flat_map(|version| version.files.iter()) {
        let bytes = vec![b'x'; usize::try_from(size).unwrap()];
        // A store in memory never waits, so this works inside another future as well.
        store.put(key, Body::Bytes(bytes.into())).now_or_never().unwrap().unwrap();
    }
}

/// An empty repository with the default branch `main`.
pub fn repository(bench: &Bench) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    block_on(bench.init(store.as_ref()));
    store
}

/// An empty repository whose store has the clock of the bench.
pub fn repository_with_clock(bench: &Bench) -> Arc<MemoryStore> {
    let clock = bench.clock.clone();
    let store = Arc::new(MemoryStore::with_clock(move || clock.now()));
    block_on(bench.init(store.as_ref()));
    store
}

/// What the store holds, with this clock from now on.
pub fn fork(bench: &Bench, store: &MemoryStore) -> Arc<MemoryStore> {
    let clock = bench.clock.clone();
    Arc::new(store.fork(move || clock.now()))
}

/// Pushes that many new versions to a branch. Gives all their IDs.
pub fn push_new(bench: &Bench, store: &Arc<MemoryStore>, branch: &str, count: usize) -> Vec<VersionId> {
    let reference = RefName::branch(branch).unwrap();
    let held = block_on(list_refs(store.as_ref())).unwrap().refs.get(&reference).copied();
    let chain = bench.chain(held, count);
    write_data(store, &chain);
    let expected = held.map_or(Expected::Absent, Expected::Exactly);
    block_on(bench.push(store.clone(), branch, expected, &chain)).unwrap();
    chain.iter().map(LocalVersion::id).collect()
}

/// Every ref, each of whose versions has been read completely: record, catalog, files.json and every data file.
pub fn read_everything(store: &MemoryStore) -> BTreeMap<RefName, VersionId> {
    let refs = block_on(list_refs(store)).unwrap().refs;
    for id in refs.values() {
        read_version(store, *id);
    }
    refs
}

/// Reads a version completely.
pub fn read_version(store: &MemoryStore, id: VersionId) {
    let record = block_on(read_live(store, id)).unwrap();
    let catalog = block_on(store.get(&layout::catalog(id))).unwrap().bytes;
    assert_eq!(Sha256::of(&catalog), record.sha256, "the catalog of {id}");
    let files = block_on(read_files(store, &DataDir::default(), &record)).unwrap().unwrap();
    for (key, size) in files.iter() {
        assert_eq!(block_on(store.head(key)).unwrap().size, size, "{key} of {id}");
    }
}

/// What refs.json says.
pub fn refs_json(store: &MemoryStore) -> BTreeMap<RefName, VersionId> {
    RefsJson::parse(&block_on(store.get(layout::REFS_JSON)).unwrap().bytes).unwrap().refs
}

/// Runs futures together: each entry of the schedule says which one goes on for a step, then they take turns.
/// `after` is called after each step.
pub fn interleave<T>(
    mut futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>,
    schedule: &[usize],
    mut after: impl FnMut(),
) -> Vec<T> {
    let count = futures.len();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut context = Context::from_waker(Waker::noop());
    for next in schedule.iter().copied().chain((0..count).cycle().take(100_000)) {
        let (Some(slot), Some(future)) = (done.get_mut(next % count), futures.get_mut(next % count)) else { continue };
        if slot.is_none()
            && let Poll::Ready(value) = future.as_mut().poll(&mut context)
        {
            *slot = Some(value);
        }
        after();
        if done.iter().all(Option::is_some) {
            break;
        }
    }
    done.into_iter().map(Option::unwrap).collect()
}

/// A store whose every request lets others go first, so that requests of one operation overlap and two operations can be
/// interleaved.
#[derive(Debug)]
pub struct Turns(pub Arc<dyn Store>);

/// Ends at the second poll.
async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[async_trait]
impl Store for Turns {
    fn location(&self) -> &str {
        self.0.location()
    }

    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        turn().await;
        self.0.get(key).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        turn().await;
        self.0.get_range(key, range).await
    }

    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        turn().await;
        self.0.download(key, target, most).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        turn().await;
        self.0.head(key).await
    }

    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        turn().await;
        self.0.put(key, body).await
    }

    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        turn().await;
        self.0.put_if_absent(key, bytes).await
    }

    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        turn().await;
        self.0.put_if_unchanged(key, bytes, etag).await
    }

    async fn settle(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        turn().await;
        self.0.settle(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        let prefix = prefix.to_owned();
        stream::once(async move {
            turn().await;
            self.0.list(&prefix)
        })
        .flatten()
        .boxed()
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        turn().await;
        self.0.delete(key).await
    }

    async fn delete_if_unchanged(&self, key: &str, etag: &ETag) -> Result<ConditionalWrite, StoreError> {
        turn().await;
        self.0.delete_if_unchanged(key, etag).await
    }
}

/// A store that ignores conditions: it writes, whatever they say.
#[derive(Debug)]
pub struct Careless(pub Arc<MemoryStore>);

#[async_trait]
impl Store for Careless {
    fn location(&self) -> &str {
        "memory:careless"
    }
    async fn get(&self, key: &str) -> Result<Object, StoreError> {
        self.0.get(key).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.0.get_range(key, range).await
    }
    async fn download(&self, key: &str, target: &Path, most: u64) -> Result<u64, StoreError> {
        self.0.download(key, target, most).await
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.head(key).await
    }
    async fn put(&self, key: &str, body: Body) -> Result<(), StoreError> {
        self.0.put(key, body).await
    }
    async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<ConditionalWrite, StoreError> {
        self.0.put(key, Body::Bytes(bytes)).await.map(|()| ConditionalWrite::Written)
    }
    async fn put_if_unchanged(&self, key: &str, bytes: Bytes, _: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.put_if_absent(key, bytes).await
    }
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<ObjectMeta, StoreError>> {
        self.0.list(prefix)
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.0.delete(key).await
    }
    async fn delete_if_unchanged(&self, key: &str, _: &ETag) -> Result<ConditionalWrite, StoreError> {
        self.0.delete(key).await.map(|()| ConditionalWrite::Written)
    }
}
