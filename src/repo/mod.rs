//! What is done to a repository through a store. Nothing here knows DuckDB.
//!
//! Functions that only read the layout take a [`Store`](crate::store::Store); those that need the settings take a
//! [`Repository`]. Decisions are pure functions; whatever needs the time is given a clock.

mod ahead;
mod catalog;
mod clone;
mod conditions;
mod error;
mod expire;
mod folders;
mod fsck;
mod gc;
mod init;
mod key_set;
mod log;
mod open;
mod publish;
mod read;
mod ref_change;
mod refs;
mod resolve;
mod steps;
mod verify;
mod withdraw;
mod write;

pub use catalog::{CatalogFiles, LookInto, fetch_catalog, named_by, require_inside};
pub use clone::{CloneError, CloneOptions, Cloned, clone};
pub use conditions::{ignored_conditions, require_conditions};
pub use error::RepoError;
pub use expire::{ExpireAction, ExpireOptions, ExpirePlan, ExpireRow, plan_expire, run_expire};
pub use fsck::{Code, Depth, Finding, Fsck, FsckOptions, Level, fsck, fsck_sources};
pub use gc::{GcOptions, GcPlan, GcReason, GcRow, plan_gc, run_gc};
pub use init::{Init, InitOptions, init};
pub use log::{LogEntry, LogOptions, State, log};
pub use open::{Repository, place};
pub use publish::{
    DataSource, Expected, LocalVersion, Push, PushOutcome, PushReport, RefOutcome, Seen, after_ref_write, publish,
    publish_from,
};
pub use read::{
    CatalogReader, CatalogTarget, Held, Opened, download_catalog, open_version, read_dataset, read_files, read_head,
    read_live, read_mark, read_record, read_ref, readable_catalog,
};
pub use ref_change::{RefChange, create_branch, create_tag, delete_ref};
pub use refs::{Refs, RefsJsonWrite, list_refs, refresh_refs_json};
pub use resolve::{Resolved, resolve};
pub use verify::{Checked, Movement, check_bytes, check_history, check_version, moved};
pub use withdraw::{
    WithdrawAction, WithdrawError, WithdrawOptions, WithdrawPlan, WithdrawRow, plan_withdraw, run_withdraw,
};

/// How many independent requests run at the same time.
const CONCURRENT: usize = 16;
