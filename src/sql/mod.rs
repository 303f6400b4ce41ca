//! The DuckDB face: one file a command, and their registration.
//!
//! A [`Command`] is data (name, parameters, columns) and a function, so that another registration (DuckDB 2's C API) can
//! use the same list, [`COMMANDS`].

mod access;
mod arguments;
mod author;
mod cache;
mod catalogs;
mod command;
mod commands;
mod conditions;
mod contents;
mod context;
mod entry;
mod error;
mod explain;
mod formats;
mod later;
mod memory;
mod place;
mod register;
mod trust;

pub use arguments::Arguments;
pub use command::{Argument, Column, ColumnType, Command, Named, Output, ParameterType, Value};
pub use commands::COMMANDS;
pub use context::{Context, Published};
pub use error::{Code, Error};
