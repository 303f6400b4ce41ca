//! A host on a free port, and a client that sends exactly what it is told to.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fdl::format::{VersionId, layout};
use fdl::host::{Host, HostOptions, RunningHost, Token};
use fdl::repo::LocalVersion;
use fdl::store::{Body, MemoryStore, Store};
use futures::executor::block_on;
use tokio::runtime::Runtime;

pub mod scene;

/// The default branch.
pub const MAIN: &str = "refs/heads/main";
/// The condition that there is nothing yet.
pub const NEW: &str = "If-None-Match: *";

/// The runtime of all hosts of a test program.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// What the hosts of these tests ask of writers.
pub const WRITER: &str = "Authorization: Bearer write";

/// Options for a free port, with the tokens `read` (if wanted) and `write`.
pub fn options(read: bool) -> HostOptions {
    let token = |text: &str| Some(Token::new(text).unwrap());
    let read_token = if read { token("read") } else { None };
    HostOptions { read_token, write_token: token("write"), ..HostOptions::new("127.0.0.1:0") }
}

/// Serves a store with these options.
pub fn serve(store: Arc<dyn Store>, options: HostOptions) -> Client {
    let host = Host::start(store, options, RUNTIME.handle()).unwrap();
    Client { host }
}

/// Puts an object where it is, past the host.
pub fn put(store: &MemoryStore, key: &str, bytes: impl Into<Vec<u8>>) {
    block_on(store.put(key, Body::Bytes(bytes.into().into()))).unwrap();
}

/// The content of an object; nothing when it is not there.
pub fn get(store: &MemoryStore, key: &str) -> Option<String> {
    Some(String::from_utf8(store.contents().get(key)?.to_vec()).unwrap())
}

/// The files of a version, as a push writes them: everything else before the record.
pub fn version_files(folder: &Path, version: &LocalVersion) -> Vec<(String, Vec<u8>)> {
    let id = version.id();
    let names = [layout::CATALOG, layout::DATASET_JSON, layout::FILES_JSON, layout::VERSION_JSON];
    let read = |name| std::fs::read(folder.join(id.to_string()).join(name)).unwrap();
    names.map(|name| (format!("{}{name}", layout::version(id)), read(name))).to_vec()
}

/// Writes a whole version of this folder of versions, data files included, past the host.
pub fn write_version(store: &MemoryStore, folder: &Path, version: &LocalVersion) -> VersionId {
    for (key, size) in version.files.iter() {
        put(store, key, vec![b'x'; usize::try_from(size).unwrap()]);
    }
    for (key, bytes) in version_files(folder, version) {
        put(store, &key, bytes);
    }
    version.id()
}

/// A host and how to talk to it.
pub struct Client {
    pub host: RunningHost,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The status and the code of a refusal.
    pub fn refusal(&self) -> (u16, String) {
        (self.status, self.json()["error"].as_str().unwrap().to_owned())
    }

    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }

    /// Reads an answer that ends with the connection.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Self { status, headers, body: bytes[end + 4..].to_vec() })
    }
}

impl Client {
    pub fn address(&self) -> SocketAddr {
        self.host.address()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes and reads until the host closes the connection.
    pub fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The host may have seen enough.
        drop(stream.write_all(bytes));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        answer
    }

    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        for header in headers {
            head += &format!("{header}\r\n");
        }
        if !body.is_empty() || method == "PUT" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        let bytes = [head.as_bytes(), b"\r\n", body].concat();
        let answer = self.raw(&bytes);
        Answer::parse(&answer).unwrap_or_else(|| panic!("{method} {path}: {:?}", String::from_utf8_lossy(&answer)))
    }

    pub fn get(&self, path: &str, headers: &[&str]) -> Answer {
        self.send("GET", path, headers, b"")
    }

    /// A PUT with the write token.
    pub fn put(&self, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.send("PUT", path, &[&[WRITER], headers].concat(), body)
    }

    /// The PUT of a ref.
    pub fn put_ref(&self, name: &str, condition: &str, version: VersionId) -> Answer {
        let condition = if condition.is_empty() { vec![] } else { vec![condition] };
        self.put(&format!("/{name}"), &condition, format!("{version}\n").as_bytes())
    }

    /// The condition that a ref is as it is now.
    pub fn unchanged(&self, name: &str) -> String {
        format!("If-Match: {}", self.get(&format!("/{name}"), &[]).header("etag"))
    }
}
