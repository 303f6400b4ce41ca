//! What is done with DuckLake catalogs, through SQL: thaw (checkout), freeze (commit), compare, describe, attach.
//!
//! Knows nothing of stores: it is given paths and gives files. A *working catalog* is a SQLite file that DuckLake writes;
//! a *frozen catalog* is the DuckDB file of a version (docs/format.md section 11).

mod attach;
mod commit;
mod compare;
mod copy;
mod definition;
mod describe;
mod error;
mod extensions;
mod foreign;
mod foreign_values;
mod freeze;
mod layouts;
mod locate;
mod narrow;
mod numbers;
mod other_formats;
mod paths;
mod reader;
mod restore;
mod rows;
mod shared;
mod sources;
mod special_files;
mod statistics;
mod status;
mod template;
mod thaw;
mod translate;
mod types;
mod view_columns;
mod working;
mod working_copy;

pub use attach::{attach_version, attach_version_sql, count_rows, forget_files, require_no_wal, try_version};
pub use commit::{Commit, CommitRequest, commit};
pub use compare::{Change, Comparison, ReadRows, Side, TableChange, compare};
pub use definition::{Contents, read_contents};
pub use describe::{Description, describe, files_of};
pub use error::LakeError;
pub use extensions::{load_extensions, load_httpfs};
pub use foreign::Foreign;
pub use freeze::session_format;
pub use locate::{Database, find_database, free_alias, require_free_alias};
pub use narrow::RowSource;
pub use other_formats::{session_catalog, session_reads};
pub use rows::RowDifference;
pub use special_files::read_special_files;
pub use status::{Uncommitted, uncommitted, working_changes, working_files};
pub use thaw::{Thaw, thaw};
pub use working::{LatestSnapshot, attach_working, attach_working_sql, latest_snapshot, require_no_transaction};
pub use working_copy::{Checkout, WorkingCopy, data_folder, read_checkout, version_folder};
