//! What is done with DuckLake catalogs, through SQL: thaw (checkout), freeze (commit), compare, describe, attach.
//!
//! Knows nothing of stores: it is given paths and gives files. A *working catalog* is a SQLite file that DuckLake writes;
//! a *frozen catalog* is the DuckDB file of a version (docs/format.md section 11).

mod attach;
mod compare;
mod copy;
mod definition;
mod describe;
mod error;
mod extensions;
mod freeze;
mod locate;
mod paths;
mod restore;
mod rows;
mod thaw;
mod working;

pub use attach::{AttachedVersion, attach_version, attach_version_sql, check_catalog};
pub use compare::{Change, Comparison, TableChange, compare};
pub use definition::{Contents, read_contents};
pub use describe::{Description, describe};
pub use error::LakeError;
pub use extensions::{DUCKLAKE, load_extensions};
pub use freeze::{FreezeOptions, freeze};
pub use locate::{Database, find_database, free_alias};
pub use restore::restore;
pub use thaw::{Thaw, thaw};
pub use working::{attach_working, attach_working_sql, flush_inlined, latest_snapshot, require_no_transaction};
