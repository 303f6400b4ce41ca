//! fdl: Git for DuckLake datasets, as a DuckDB loadable extension.
//!
//! The layers, each knowing only those above it in this list:
//! [`format`] (what the files are), [`store`] (where they are), [`repo`] (what is done to a repository), [`engine`] (SQL on
//! the session's database), [`sign`] (making signatures), [`lake`] (what is done with DuckLake catalogs), [`host`] (a
//! repository over HTTP), and the DuckDB face, which DuckDB enters on `LOAD fdl`.

pub mod engine;
pub mod format;
pub mod host;
pub mod lake;
pub mod repo;
pub mod sign;
pub mod sql;
pub mod store;
