//! SQL on the session's database, through the stable part of DuckDB's C API.
//!
//! With [`crate::sql`] the only place with `unsafe` code. Connections are made while the extension loads, as the database
//! handle is valid only then ([`pool`]); what came from outside is read in an instance of its own ([`private`]); statements are
//! made of typed parts ([`mod@sql`]), and their rows come back as plain values ([`rows`]).

mod api;
mod connection;
mod error;
mod pool;
mod private;
mod rows;
mod sql;

pub use api::{StableAccess, initialize};
pub use connection::{Attached, Connection, Transaction, runs_a_statement};
pub use error::{EngineError, EngineErrorKind};
pub use pool::{Engine, Lease};
pub use private::{Limits, Private, PrivateFile};
pub use rows::{Cell, Row, Rows};
pub use sql::{Identifier, Literal, Part, Sql, SqlType, check_template, identifier, literal, qualified};

pub use crate::__sql as sql;
