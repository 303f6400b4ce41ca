//! Many writers and one ref in a folder: in threads, in processes, and in processes that are killed.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fdl::store::{Body, ConditionalWrite, FolderStore, Store};
use futures::TryStreamExt;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

const WRITERS: u64 = 8;
const ROUNDS: u64 = 15;
const KEY: &str = "refs.json";

/// What a child process is to do, `<task>|<root>|<file of its own>`; absent in the test's own process.
const TASK: &str = "FDL_FOLDER_RACE";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn store(root: &Path) -> FolderStore {
    FolderStore::open(root.to_str().unwrap()).unwrap()
}

/// A number, long enough that a half-written one is told from a whole one.
fn content(count: u64) -> Bytes {
    format!("{count:08} ").repeat(1000).into()
}

fn count(bytes: &[u8]) -> u64 {
    let count = std::str::from_utf8(&bytes[..8]).unwrap().parse().unwrap();
    assert!(bytes == content(count), "half-written");
    count
}

/// Adds one, again and again until it was this call that did it.
async fn increment(store: &FolderStore) {
    loop {
        let now = store.get(KEY).await.unwrap();
        let next = content(count(&now.bytes) + 1);
        match store.put_if_unchanged(KEY, next, &now.etag).await.unwrap() {
            ConditionalWrite::Written => return,
            ConditionalWrite::Refused => {}
        }
    }
}

fn start(root: &Path) {
    runtime().block_on(store(root).put(KEY, Body::Bytes(content(0)))).unwrap();
}

fn total(root: &Path) -> u64 {
    count(&runtime().block_on(store(root).get(KEY)).unwrap().bytes)
}

/// Reads whatever is there until told to stop: every content must be whole, and none older than the one before.
fn read_on(root: &Path, stop: &AtomicBool) -> u64 {
    let (runtime, store) = (runtime(), store(root));
    let (mut seen, mut reads) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let now = count(&runtime.block_on(store.get(KEY)).unwrap().bytes);
        assert!(now >= seen);
        (seen, reads) = (now, reads + 1);
    }
    reads
}

/// Runs `writers` while a reader reads.
fn with_reader(root: &Path, writers: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(root, &stop));
        writers();
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

fn spawn(task: &str, root: &Path, own: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(TASK, format!("{task}|{}|{}", root.display(), own.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test: what the processes run that the tests start.
#[test]
fn child() {
    let Ok(task) = env::var(TASK) else {
        return;
    };
    let parts: Vec<_> = task.split('|').collect();
    let (root, own) = (Path::new(parts[1]), Path::new(parts[2]));
    match parts[0] {
        "count" => runtime().block_on(async {
            let store = store(root);
            for _ in 0..ROUNDS {
                increment(&store).await;
            }
        }),
        "count until killed" => runtime().block_on(async {
            let store = store(root);
            let mut done = OpenOptions::new().create(true).append(true).open(own).unwrap();
            loop {
                increment(&store).await;
                done.write_all(b".").unwrap();
            }
        }),
        "hold the lock" => {
            let lock = File::options().read(true).write(true).open(root.join(".fdl-lock")).unwrap();
            lock.lock().unwrap();
            File::create(own).unwrap();
            thread::sleep(Duration::from_secs(60));
        }
        other => panic!("no task {other}"),
    }
}

#[test]
fn threads_lose_no_update() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    start(root);
    with_reader(root, || {
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    let (runtime, store) = (runtime(), store(root));
                    for _ in 0..ROUNDS {
                        runtime.block_on(increment(&store));
                    }
                });
            }
        });
    });
    assert_eq!(total(root), WRITERS * ROUNDS);
}

#[test]
fn processes_lose_no_update() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    start(root);
    with_reader(root, || {
        let writers: Vec<_> = (0..WRITERS).map(|_| spawn("count", root, root)).collect();
        for mut writer in writers {
            assert!(writer.wait().unwrap().success());
        }
    });
    assert_eq!(total(root), WRITERS * ROUNDS);
}

#[test]
fn a_killed_writer_blocks_nobody() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    let holding = folder.path().join("holding");
    start(&root);
    let mut holder = spawn("hold the lock", &root, &holding);
    let patience = Instant::now() + Duration::from_secs(10);
    while !holding.exists() {
        assert!(Instant::now() < patience, "the child did not take the lock");
        thread::sleep(Duration::from_millis(5));
    }
    thread::scope(|scope| {
        let writer = scope.spawn(|| runtime().block_on(increment(&store(&root))));
        thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished(), "the lock keeps nobody out");
        // Readers and creators need no lock.
        assert_eq!(total(&root), 0);
        let created = runtime().block_on(store(&root).put_if_absent("refs/tags/t", content(0)));
        assert_eq!(created.unwrap(), ConditionalWrite::Written);
        holder.kill().unwrap();
        holder.wait().unwrap();
        writer.join().unwrap();
    });
    assert_eq!(total(&root), 1);
}

#[test]
fn writers_killed_anywhere_lose_nothing_they_were_told_is_written() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    start(&root);
    let logs: Vec<_> = (0..12).map(|number| folder.path().join(format!("log {number}"))).collect();
    with_reader(&root, || {
        for (number, pair) in logs.chunks(4).enumerate() {
            let writers: Vec<_> = pair.iter().map(|own| spawn("count until killed", &root, own)).collect();
            for mut writer in writers {
                thread::sleep(Duration::from_millis(150 + 13 * number as u64));
                writer.kill().unwrap();
                writer.wait().unwrap();
            }
        }
    });
    let told: u64 = logs.iter().map(|log| fs::metadata(log).map_or(0, |log| log.len())).sum();
    let landed = total(&root);
    assert!(told > 0, "nothing was written at all");
    // Each may have been killed after its last write and before it wrote that down.
    assert!((told..=told + logs.len() as u64).contains(&landed), "{told} told, {landed} landed");

    runtime().block_on(async {
        increment(&store(&root)).await;
        let left: Vec<_> = store(&root).list("").map_ok(|meta| meta.key).try_collect().await.unwrap();
        assert_eq!(left, [KEY]);
    });
}

#[test]
fn one_of_many_writers_of_a_file_makes_the_object() {
    let (folder, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = |writer: u8| {
        let path = files.path().join(writer.to_string());
        fs::write(&path, vec![writer; 1 << 20]).unwrap();
        path
    };
    let files: Vec<_> = (0..8).map(file).collect();
    for round in 0..ROUNDS {
        let key = format!("versions/{round}/ducklake.duckdb");
        let write = |path: &Path| runtime().block_on(store(folder.path()).put_file_if_absent(&key, path)).unwrap();
        let won: Vec<bool> = thread::scope(|scope| {
            let writers: Vec<_> = files.iter().map(|path| scope.spawn(|| write(path))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap() == ConditionalWrite::Written).collect()
        });
        let winners: Vec<usize> = (0..won.len()).filter(|writer| won[*writer]).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let written = fs::read(folder.path().join(&key)).unwrap();
        assert!(written == fs::read(&files[winners[0]]).unwrap());
    }
}
