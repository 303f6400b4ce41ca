//! The host under load and abuse: it stays up, keeps its limits, leaves nothing behind, and stops when told to.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "support/host/mod.rs"]
#[expect(dead_code, reason = "each test uses a part of it")]
mod client;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Answer, Client, RUNTIME, WRITER, options, put, serve};
use fdl::host::{Host, HostError, HostOptions, Limits};
use fdl::store::fault::{Call, Fault};
use fdl::store::{FaultStore, FolderStore, MemoryStore, Store};
use support::{Bench, repository};

const BIG_KEY: &str = "data/main/t/big.parquet";
const BIG: &str = "/data/main/t/big.parquet";

fn big() -> Vec<u8> {
    (0..4_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// A host with one file of 4 MB.
fn host(options: HostOptions) -> (Arc<MemoryStore>, Client) {
    let store = repository(&Bench::new(1));
    put(&store, BIG_KEY, big());
    (store.clone(), serve(store, options))
}

fn short() -> Limits {
    let soon = Duration::from_millis(150);
    Limits { head: soon, idle: soon, grace: soon, ..Limits::default() }
}

#[test]
fn two_hundred_readers_at_once() {
    let (_, client) = host(options(false));
    let bytes = big();
    std::thread::scope(|scope| {
        for reader in 0..200_usize {
            let (client, bytes) = (&client, &bytes);
            scope.spawn(move || {
                let first = reader * 15_000;
                let answer = client.get(BIG, &[&format!("Range: bytes={first}-{}", first + 999_999)]);
                assert_eq!(answer.status, 206);
                assert!(answer.body == bytes[first..first + 1_000_000]);
            });
        }
    });
    let stats = client.host.stats();
    assert_eq!(stats.requests, 200);
    assert!(stats.bytes_out > 200_000_000 && stats.bytes_in > 200 * 50, "{stats:?}");
}

#[test]
fn heads_have_a_limit() {
    let (_, client) = host(options(false));
    for head in [
        format!("GET /HEAD HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(1 << 20)),
        format!("GET /HEAD HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(1000)),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20)),
    ] {
        let answer = client.raw(head.as_bytes());
        if let Some(answer) = Answer::parse(&answer) {
            assert!([400, 414, 431].contains(&answer.status), "{answer:?}");
        }
    }
    assert_eq!(client.get("/HEAD", &[]).status, 200);
}

#[test]
fn slow_clients_are_sent_away() {
    let (store, client) = host(HostOptions { limits: short(), ..options(false) });
    let started = Instant::now();
    // Nothing, half a head, half a body, an answer that is not taken.
    assert_eq!(client.raw(b""), b"");
    let head = client.raw(b"GET /HEAD HTTP/1.1\r\nHo");
    assert!(head.is_empty() || head.starts_with(b"HTTP/1.1 408"), "{head:?}");
    let put = format!("PUT /data/main/t/x.parquet HTTP/1.1\r\nHost: x\r\n{WRITER}\r\nContent-Length: 100\r\n\r\nabc");
    assert_eq!(Answer::parse(&client.raw(put.as_bytes())).unwrap().status, 408);
    // An idle connection after a good request.
    let kept = client.raw(b"GET /HEAD HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(kept.starts_with(b"HTTP/1.1 200"));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(!store.contents().contains_key("data/main/t/x.parquet"));
}

#[test]
fn an_answer_that_nobody_takes_ends() {
    let store = repository(&Bench::new(1));
    put(&store, BIG_KEY, vec![0; 64 << 20]);
    let client = serve(store, HostOptions { limits: Limits { connections: 1, ..short() }, ..options(false) });
    let mut stalled = client.connect();
    stalled.write_all(format!("GET {BIG} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    // There is room for one connection only, so this one waits until the other is sent away.
    assert_eq!(client.get("/HEAD", &[]).status, 200);
    drop(stalled);
}

/// A connection from an address of this machine.
fn connect_from(client: &Client, from: [u8; 4]) -> std::net::TcpStream {
    let stream = RUNTIME.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(client.address()).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn ask(mut stream: std::net::TcpStream, path: &str) -> Option<Answer> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(request.as_bytes()));
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
    Answer::parse(&bytes)
}

/// Heads that never end time out after half an hour here, so that only their share can let others through.
fn patient(connections: usize, requests: usize) -> Limits {
    let long = Duration::from_secs(1800);
    Limits { connections, requests, head: long, idle: long, grace: Duration::from_millis(100), ..Limits::default() }
}

#[test]
fn six_hundred_half_open_connections_keep_nobody_waiting() {
    let (_, client) = host(HostOptions { limits: patient(64, 32), ..options(false) });
    for head in ["", "GET /HEAD HTTP/1.1\r\nHo"] {
        let mut half_open = Vec::new();
        for _ in 0..600 {
            let mut stream = connect_from(&client, [127, 0, 0, 1]);
            drop(stream.write_all(head.as_bytes()));
            half_open.push(stream);
        }
        // From that address and from others, and a large file too.
        for _ in 0..20 {
            for from in [[127, 0, 0, 1], [127, 0, 0, 2]] {
                assert_eq!(ask(connect_from(&client, from), "/HEAD").map(|answer| answer.status), Some(200));
            }
        }
        let answer = ask(connect_from(&client, [127, 0, 0, 1]), BIG).unwrap();
        assert!(answer.status == 200 && answer.body == big());
        drop(half_open);
    }
}

#[test]
fn an_address_has_half_of_the_slots_for_requests_and_of_the_connections() {
    let (_, client) = host(HostOptions { limits: patient(16, 4), ..options(false) });
    let half = format!("PUT {BIG}x HTTP/1.1\r\nHost: x\r\n{WRITER}\r\nContent-Length: 100\r\n\r\nabc");
    // Each has a request under way that does not go on: two run, the others wait for a slot.
    let mut stuck: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = connect_from(&client, [127, 0, 0, 1]);
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    while client.host.stats().requests < 8 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..10 {
        assert_eq!(ask(connect_from(&client, [127, 0, 0, 2]), "/HEAD").unwrap().status, 200);
    }
    let mut turned_away = Vec::new();
    drop(connect_from(&client, [127, 0, 0, 1]).read_to_end(&mut turned_away));
    let turned_away = Answer::parse(&turned_away).unwrap();
    assert_eq!(turned_away.refusal(), (503, "FDL-STORE".to_owned()));
    assert_eq!(turned_away.header("retry-after"), "1");
    // When they go, the next ones of that address are served.
    stuck.clear();
    let began = Instant::now();
    while ask(connect_from(&client, [127, 0, 0, 1]), "/HEAD").is_none_or(|answer| answer.status != 200) {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_request_waits_for_a_slot_no_longer_than_for_a_head() {
    let limits = Limits { requests: 1, head: Duration::from_millis(200), ..patient(16, 1) };
    let (_, client) = host(HostOptions { limits, ..options(false) });
    let mut stuck = client.connect();
    let half = format!("PUT {BIG}x HTTP/1.1\r\nHost: x\r\n{WRITER}\r\nContent-Length: 100\r\n\r\nabc");
    stuck.write_all(half.as_bytes()).unwrap();
    while client.host.stats().requests < 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let busy = client.get("/HEAD", &[]);
    assert_eq!((busy.refusal(), busy.header("retry-after")), ((503, "FDL-STORE".to_owned()), "1"));
    drop(stuck);
}

/// The files below a folder, but the lock.
fn files(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path.file_name().unwrap().to_str().unwrap().to_owned()),
        }
    }
    found.retain(|name| name != ".fdl-lock");
    found.sort();
    found
}

#[test]
fn a_body_that_is_cut_or_too_long_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(FolderStore::open(folder.path().to_str().unwrap()).unwrap());
    RUNTIME.block_on(Bench::new(1).init(store.as_ref()));
    let before = files(folder.path());
    let client = serve(store, HostOptions { max_upload: 3_000_000, ..options(false) });
    let path = "/data/main/t/x.parquet";
    for sent in [0, 10, 2_000_000] {
        for length in ["Content-Length: 2500000", "Transfer-Encoding: chunked"] {
            let mut stream = client.connect();
            let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{length}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            if length.starts_with('T') {
                stream.write_all(b"2625a0\r\n").unwrap();
            }
            stream.write_all(&vec![b'x'; sent]).unwrap();
            drop(stream);
        }
    }
    // Told beforehand, and found on the way.
    assert_eq!(client.put(path, &[], &vec![b'x'; 3_000_001]).status, 413);
    let mut chunked = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{WRITER}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    for _ in 0..31 {
        chunked += &format!("186a0\r\n{}\r\n", "x".repeat(100_000));
    }
    assert_eq!(Answer::parse(&client.raw((chunked + "0\r\n\r\n").as_bytes())).unwrap().status, 413);
    let waits = client.put(path, &["Expect: 100-continue"], &vec![b'x'; 3_000_001]);
    assert_eq!(waits.status, 413, "without having been asked for the body");
    let gone = Instant::now();
    while files(folder.path()) != before {
        assert!(gone.elapsed() < Duration::from_secs(5), "{:?}", files(folder.path()));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(client.get(path, &[]).status, 404);
    // A body of unknown length that fits.
    let fits = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{WRITER}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
    assert_eq!(Answer::parse(&client.raw(fits.as_bytes())).unwrap().status, 201);
    assert_eq!(client.put("/data/main/t/y.parquet", &[], &vec![b'y'; 3_000_000]).status, 201);
    assert_eq!(client.get("/data/main/t/y.parquet", &[]).body.len(), 3_000_000);
}

#[test]
fn a_store_that_fails_or_panics_is_one_bad_answer() {
    let memory = repository(&Bench::new(1));
    put(&memory, "data/main/t/x.parquet", "x");
    let store = FaultStore::new(memory, |call: Call<'_>| match call.key {
        "refs.json" => panic!("on purpose"),
        "data/main/t/x.parquet" => Fault::Fail,
        "data/main/t/denied.parquet" => Fault::Deny,
        _ => Fault::None,
    });
    let client = serve(Arc::new(store), options(false));
    // To a writer, 403 would mean that it may go on without the write.
    assert_eq!(client.put("/data/main/t/denied.parquet", &[], b"x").refusal(), (500, "FDL-STORE".to_owned()));
    assert_eq!(client.get("/data/main/t/denied.parquet", &[]).refusal(), (403, "FDL-PERMISSION".to_owned()));
    for _ in 0..3 {
        assert_eq!(client.get("/refs.json", &[]).refusal(), (500, "FDL-STORE".to_owned()));
        let failed = client.get("/data/main/t/x.parquet", &[]);
        assert_eq!((failed.refusal(), failed.header("retry-after")), ((503, "FDL-STORE".to_owned()), "1"));
        assert_eq!(client.get("/HEAD", &[]).status, 200);
    }
}

#[test]
fn starting_and_stopping() {
    let (store, client) =
        host(HostOptions { limits: Limits { grace: Duration::from_secs(2), ..Limits::default() }, ..options(false) });
    let address = client.address();
    assert_eq!(client.host.url(), format!("http://{address}"));
    let again = Host::start(store.clone(), HostOptions::new(address.to_string()), RUNTIME.handle());
    assert!(matches!(again, Err(HostError::Listen { .. })), "{again:?}");
    for bad in ["", "nowhere", "127.0.0.1", "127.0.0.1:99999", "999.0.0.1:80"] {
        assert!(Host::start(store.clone(), HostOptions::new(bad), RUNTIME.handle()).is_err(), "{bad}");
    }
    // A request that is under way is finished; an idle connection does not keep the host.
    let mut idle = client.connect();
    idle.write_all(b"GET /HEAD HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 100];
    assert!(idle.read(&mut answer).unwrap() > 0);
    let mut under_way = client.connect();
    under_way
        .write_all(
            format!("PUT /data/main/t/new.parquet HTTP/1.1\r\nHost: x\r\n{WRITER}\r\nContent-Length: 6\r\n\r\nabc")
                .as_bytes(),
        )
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let stats = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| RUNTIME.block_on(client.host.stop()));
        std::thread::sleep(Duration::from_millis(100));
        under_way.write_all(b"def").unwrap();
        let mut answer = Vec::new();
        under_way.read_to_end(&mut answer).unwrap();
        assert_eq!(Answer::parse(&answer).unwrap().status, 201);
        stopped.join().unwrap()
    });
    assert_eq!(stats.requests, 2);
    assert_eq!(store.contents()["data/main/t/new.parquet"], "abcdef");
    assert!(std::net::TcpStream::connect(address).is_err());
    assert_eq!(RUNTIME.block_on(client.host.stop()), stats, "a second time");

    // Whoever does not finish is cut off.
    let (_, client) = host(HostOptions {
        limits: Limits { grace: Duration::from_millis(100), ..Limits::default() },
        ..options(false)
    });
    let mut stuck = client.connect();
    stuck
        .write_all(
            format!("PUT {BIG} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\nContent-Length: 4000000\r\n\r\nabc").as_bytes(),
        )
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    RUNTIME.block_on(client.host.stop());
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());

    // So does dropping it.
    let (_, client) = host(options(false));
    let mut open = client.connect();
    let address = client.address();
    drop(client);
    assert_eq!(open.read(&mut answer).unwrap_or(0), 0);
    let gone = Instant::now();
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(gone.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(10));
    }
}
