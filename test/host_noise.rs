//! Ten thousand requests that nobody should send: the host serves on, nothing is lost, and nothing of them stays.
//!
//! One test in a program of its own, as it counts the tasks and files of the whole process.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
#[expect(dead_code, reason = "each test uses a part of it")]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::scene::Scene;
use client::{Answer, MAIN, RUNTIME, WRITER, options};
use fdl::format::{Random, SeededRandom, layout};

const THREADS: u64 = 8;
const REQUESTS: usize = 10_000;

/// Random numbers, the same for the same seed.
struct Noise(SeededRandom);

impl Noise {
    fn below(&self, end: usize) -> usize {
        usize::try_from(self.0.bits() % u128::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn bytes(&self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.0.bits().to_le_bytes()[0]).collect()
    }

    fn one<'a, T: ?Sized>(&self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// Some bytes of it, from one place to another.
    fn part<'a>(&self, of: &'a [u8]) -> &'a [u8] {
        let start = self.below(of.len());
        &of[start..start + self.below(of.len() - start)]
    }

    /// What a client might have sent, with some damage done to it.
    fn damaged(&self, requests: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = requests[self.below(requests.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at),
                2 => drop(bytes.splice(at..at, self.bytes(30))),
                3 => drop(bytes.drain(at..(at + self.below(20)).min(bytes.len()))),
                4 => {
                    let copied = self.part(&bytes).to_vec();
                    drop(bytes.splice(at..at, copied));
                }
                // The rest of another one, and what parsers stumble over.
                5 => {
                    let other = &requests[self.below(requests.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(self.part(other));
                }
                6 => {
                    let odd: &[&[u8]] = &[
                        b"%2e%2e/",
                        b"%00",
                        b"\r\n",
                        b"\n",
                        b"\0",
                        b"..",
                        b"//",
                        b"%25",
                        b"\xff\xfe",
                        b"18446744073709551616",
                        b"-1",
                        b"Transfer-Encoding: chunked\r\n",
                        b"Content-Length: 5\r\n",
                        b"Range: bytes=9-1,5-\r\n",
                        b"If-Match: *\r\n",
                        b"Expect: 100-continue\r\n",
                        b"Host: \r\n",
                        b"{\"files\":[",
                        b"HTTP/9.9",
                        b" ",
                    ];
                    drop(bytes.splice(at..at, self.one(odd).iter().copied()));
                }
                _ => drop(bytes.splice(at..at, [bytes[self.below(bytes.len())]])),
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }
}

/// One of each kind of request, as clients send them, those of a writer among them.
fn requests(scene: &Scene) -> Vec<Vec<u8>> {
    let (data, catalog) = (scene.data_key(), layout::catalog(scene.first));
    let batch = format!(r#"{{"files":[{{"key":"{data}","size":3}},{{"key":"data/main/t/new.parquet","size":70}}]}}"#);
    let missing = "019a3c4e-7c1b-7d3a-9a55-0f2b6c1d9e10\n";
    let request = |head: String, body: &str| {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        format!("{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{WRITER}\r\n{length}\r\n{body}").into_bytes()
    };
    let mut all = vec![
        request("GET /".to_owned(), ""),
        request("GET /HEAD".to_owned(), ""),
        request("GET /refs.json".to_owned(), ""),
        request(format!("HEAD /{catalog}"), ""),
        request(format!("GET /{data}"), ""),
        request("GET /ducklake.duckdb".to_owned(), ""),
        request("OPTIONS /HEAD".to_owned(), ""),
        request("POST /?batch".to_owned(), &batch),
        request("PUT /data/main/t/k=a%252Fb/noise.parquet".to_owned(), "PAR1 noise"),
        request(format!("PUT /{data}"), "other"),
        request("PUT /fdl.json".to_owned(), "{\"fdl\": \"0.1\"}"),
        request(format!("PUT /{MAIN}"), missing),
        request("PUT /refs/tags/noise".to_owned(), missing),
        request(format!("DELETE /{MAIN}"), ""),
        request(format!("DELETE /{data}"), ""),
    ];
    let range = format!(
        "GET /{catalog} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9\r\nIf-Range: \"x\"\r\nConnection: close\r\n\r\n"
    );
    let chunked = format!(
        "PUT /data/main/t/chunks.parquet HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{WRITER}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
    all.extend([range.into_bytes(), chunked.into_bytes()]);
    all
}

/// The files and connections that this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Waits for a number to come down again; gives what it is in the end.
fn comes_down_to(expected: usize, now: impl Fn() -> usize) -> usize {
    let began = Instant::now();
    while now() > expected && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    now()
}

#[test]
fn ten_thousand_requests_of_noise() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(info);
    }));
    let scene = Scene::new(options(false));
    let requests = requests(&scene);
    // Each of them is one that the host understands.
    for request in &requests {
        let answer = Answer::parse(&scene.client.raw(request)).unwrap();
        assert!(answer.status < 500, "{answer:?}");
    }
    let before = scene.store.contents();
    let tasks = || RUNTIME.metrics().num_alive_tasks();
    let (tasks_before, files_before) = (comes_down_to(1, tasks), open_files());
    let statuses = Mutex::new(BTreeMap::new());
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (scene, requests, statuses, next) = (&scene, &requests, &statuses, &next);
            scope.spawn(move || {
                let noise = Noise(SeededRandom::new(thread));
                while next.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    let bytes = match noise.below(3) {
                        0 => noise.bytes(2000),
                        _ => noise.damaged(requests),
                    };
                    let mut stream = TcpStream::connect(scene.client.address()).unwrap();
                    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                    drop(stream.write_all(&bytes));
                    // Every fifth client is gone at once, with or without a word.
                    if noise.below(5) == 0 {
                        continue;
                    }
                    drop(stream.shutdown(Shutdown::Write));
                    let mut answer = Vec::new();
                    drop(stream.read_to_end(&mut answer));
                    let status = Answer::parse(&answer).map_or(0, |answer| answer.status);
                    *statuses.lock().unwrap().entry(status).or_insert(0) += 1;
                }
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let statuses = statuses.into_inner().unwrap();
    assert!(statuses.keys().all(|status| [501, 505].contains(status) || *status < 500), "{statuses:?}");
    assert!(statuses.len() >= 8, "it has understood some of it: {statuses:?}");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);

    // Nothing that was there has changed; no task, connection or file stays.
    let after = scene.store.contents();
    for (key, bytes) in &before {
        assert!(after.get(key) == Some(bytes), "{key}");
    }
    assert!(after.keys().all(|key| before.contains_key(key) || !key.starts_with("refs/")), "{:?}", after.keys());
    assert_eq!(comes_down_to(tasks_before, tasks), tasks_before, "tasks");
    assert_eq!(comes_down_to(files_before, open_files), files_before, "files");

    // It serves on.
    assert_eq!(scene.client.get("/HEAD", &[]).text(), "ref: refs/heads/main\n");
    assert_eq!(scene.client.get(&format!("/{}", layout::catalog(scene.first)), &[]).status, 200);
    assert_eq!(scene.push().status, 200);
    assert_eq!(scene.client.get(&format!("/{MAIN}"), &[]).text().trim(), scene.second.to_string());
}
