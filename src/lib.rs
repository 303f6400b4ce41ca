//! fdl: Git for DuckLake datasets, as a DuckDB loadable extension.
//!
//! The layers, each knowing only those above it in this list:
//! [`mod@format`] (what the files are), [`store`] (where they are), [`repo`] (what is done to a repository).

pub mod format;
pub mod repo;
pub mod store;
