//! What the files of a repository are. Pure values: parse, print and check. No I/O, no async, no DuckDB.
//!
//! One rule lives in one file; the rules themselves are told in `docs/format.md`.

mod allowed_signers;
mod code;
mod data_path;
mod dataset;
mod error;
mod expired;
mod files;
mod hash;
mod head;
mod json;
pub mod layout;
mod names;
mod random;
mod record;
mod refs_json;
mod revision;
mod settings;
mod signature;
mod small;
mod time;
mod version_id;

pub use allowed_signers::{AllowedSigners, Standing};
pub use code::Code;
pub use data_path::{DataDir, PARTITION_VALUE};
pub use dataset::{Column, Dataset, Macro, Schema, Table, TableKind, Totals};
pub use error::FormatError;
pub use expired::{Expired, Reason};
pub use files::{DataFile, DeleteFile, Files, StoredFile, TableFiles};
pub use hash::Sha256;
pub use head::{TEXT_LIMIT, parse_head, parse_ref, print_head, print_ref};
pub use json::{FDL_VERSION, supported};
pub use names::{RefKind, RefName};
pub use random::{Random, SeededRandom, SystemRandom};
pub use record::{Author, Catalog, CatalogEntry, Record, SourceFile};
pub use refs_json::RefsJson;
pub use revision::{Base, IdPrefix, Revision};
pub use settings::{CatalogFormat, Settings, format_release};
pub use signature::{NAMESPACE, Signature, SignatureFault, Status, Trust, Verdict, judge, signer_of};
pub use small::read_small;
pub use time::{Clock, SystemClock, Timestamp};
pub use version_id::{VersionId, VersionIds};
