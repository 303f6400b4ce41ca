//! Servers for the tests of stores. Each test file uses what it needs.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails, and one that is not run says so"
)]

pub mod listed;
pub mod moto;
pub mod objects;
pub mod s3;
pub mod server;
