//! `moto_server`, an S3 in Python, as a child process that ends when this one does.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdl::store::{S3Options, S3Store, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Where the tests are told that it is. Without it they are not run, and say so.
const VARIABLE: &str = "FDL_TEST_MOTO";

struct Moto {
    endpoint: String,
    /// Its standard input: the wrapper ends the server when this is closed.
    _wrapper: Child,
}

/// The server of this process.
fn moto() -> Option<&'static Moto> {
    static MOTO: OnceLock<Option<Moto>> = OnceLock::new();
    MOTO.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(path) => Some(start(&path)),
        Err(_) => {
            eprintln!("NOT RUN: {VARIABLE} does not say where moto_server is");
            None
        }
    })
    .as_ref()
}

fn start(path: &str) -> Moto {
    let script = "\"$1\" -H 127.0.0.1 -p 0 2>&1 & server=$!; exec >&-; read -r _; kill $server";
    let mut wrapper = Command::new("sh")
        .args(["-c", script, "sh", path])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(wrapper.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    let endpoint = lines.by_ref().find_map(|line| {
        let found = line.split_once("Running on ").map(|(_, url)| url.trim().to_owned());
        said.push(line);
        found
    });
    let endpoint = endpoint.unwrap_or_else(|| panic!("{path} did not start:\n{}", said.join("\n")));
    // It writes a line for each request, which somebody must take.
    std::thread::spawn(move || lines.for_each(drop));
    Moto { endpoint, _wrapper: wrapper }
}

/// How to reach the server.
pub fn options() -> Option<S3Options> {
    Some(S3Options {
        access_key_id: Some("test".to_owned()),
        secret_access_key: Some("test".to_owned()),
        session_token: None,
        region: Some("us-east-1".to_owned()),
        endpoint: Some(moto()?.endpoint.clone()),
        path_style: Some(true),
        use_ssl: Some(false),
    })
}

/// A new bucket, opened at a prefix.
pub async fn bucket(prefix: &str) -> Option<S3Store> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let options = options()?;
    let name = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let (made, _) = ask("PUT", &format!("/{name}"), "").await;
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    Some(S3Store::open(&format!("s3://{name}/{prefix}"), &options).unwrap())
}

/// Asks the server itself, which checks no signatures. Gives the head and the content of the answer.
async fn ask(method: &str, path: &str, content: &str) -> (String, String) {
    let address = moto().unwrap().endpoint.strip_prefix("http://").unwrap();
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let authorization =
        "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {authorization}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{content}",
        content.len()
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, content) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), content.to_owned())
}

fn bucket_of(store: &S3Store) -> &str {
    store.location().split('/').nth(2).unwrap()
}

/// Begins an upload and sends one part of 5 bytes. Returns its ID.
pub async fn begin_upload(store: &S3Store, key: &str) -> String {
    let path = format!("/{}/{}", bucket_of(store), key.replace('+', "%2B").replace(' ', "%20"));
    let (_, content) = ask("POST", &format!("{path}?uploads"), "").await;
    let id = content.split("<UploadId>").nth(1).unwrap().split("</UploadId>").next().unwrap().to_owned();
    let (part, _) = ask("PUT", &format!("{path}?partNumber=1&uploadId={id}"), "12345").await;
    assert!(part.starts_with("HTTP/1.1 200"), "{part}");
    id
}

/// The IDs of all uploads that have not ended.
pub async fn uploads(store: &S3Store) -> Vec<String> {
    let (_, content) = ask("GET", &format!("/{}?uploads", bucket_of(store)), "").await;
    let ids = content.split("<UploadId>").skip(1).map(|rest| rest.split("</UploadId>").next().unwrap().to_owned());
    ids.collect()
}
