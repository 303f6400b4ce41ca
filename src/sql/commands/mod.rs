//! The commands, one file each: its name, its parameters, its columns, and the call into the layers above.

mod attach;
mod branch;
mod checkout;
mod clone;
mod commit;
mod delete_ref;
mod diff;
mod doctor;
mod expire;
mod files;
mod fsck;
mod gc;
mod init;
mod log;
mod push;
mod refs;
mod serve;
mod serving;
mod status;
mod stop_serving;
mod tables;
mod tag;
mod url;
mod verify;
mod version;
mod withdraw;

use std::path::Path;

use chrono::TimeDelta;

use super::{Arguments, Column, ColumnType, Command, Context, Error, Named, ParameterType};
use crate::engine::{literal, sql};
use crate::format::{DataDir, Files};
use crate::lake::{self, Foreign};

/// Every command of fdl.
pub const COMMANDS: [&Command; 26] = [
    &init::COMMAND,
    &checkout::COMMAND,
    &attach::COMMAND,
    &status::COMMAND,
    &commit::COMMAND,
    &push::COMMAND,
    &log::COMMAND,
    &url::COMMAND,
    &refs::COMMAND,
    &branch::COMMAND,
    &tag::COMMAND,
    &delete_ref::COMMAND,
    &tables::COMMAND,
    &files::COMMAND,
    &diff::COMMAND,
    &doctor::COMMAND,
    &clone::COMMAND,
    &expire::COMMAND,
    &gc::COMMAND,
    &withdraw::COMMAND,
    &fsck::COMMAND,
    &verify::COMMAND,
    &serve::COMMAND,
    &serving::COMMAND,
    &stop_serving::COMMAND,
    &version::COMMAND,
];

const fn text(name: &'static str) -> Named {
    Named { name, kind: ParameterType::Text }
}

const fn flag(name: &'static str) -> Named {
    Named { name, kind: ParameterType::Boolean }
}

const fn number(name: &'static str) -> Named {
    Named { name, kind: ParameterType::Integer }
}

const fn texts(name: &'static str) -> Named {
    Named { name, kind: ParameterType::TextList }
}

const fn interval(name: &'static str) -> Named {
    Named { name, kind: ParameterType::Interval }
}

const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind }
}

/// A length of time that a call gives. DuckDB counts it out: a month has 30 days.
fn duration(context: &Context, arguments: &Arguments, name: &str) -> Result<Option<TimeDelta>, Error> {
    let Some(text) = arguments.interval(name) else {
        return Ok(None);
    };
    let row = context.connection()?.row(sql!("SELECT epoch_us(CAST({text} AS INTERVAL))", text = literal(text)))?;
    match row.integer(0)? {
        micros if micros >= 0 => Ok(Some(TimeDelta::microseconds(micros))),
        _ => Err(Error::bad_argument(format!("{name} is {text}; it cannot be negative"))),
    }
}

/// Lists the data files of catalogs by DuckDB, for the layer that has none.
fn catalog_files(data_dir: &DataDir) -> impl Fn(&Path) -> Result<Files, String> + Send + Sync + use<> {
    let data_dir = data_dir.clone();
    move |catalog: &Path| {
        let contents = Foreign::new(catalog, "the catalog").read().map_err(|error| error.to_string())?;
        lake::files_of(&contents, &data_dir).map_err(|error| error.to_string())
    }
}
