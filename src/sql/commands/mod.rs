//! The commands, one file each: its name, its parameters, its columns, and the call into the layers above.

mod attach;
mod branch;
mod checkout;
mod commit;
mod delete_ref;
mod diff;
mod doctor;
mod files;
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
mod version;

use super::{Column, ColumnType, Command, Error, Named, ParameterType};

/// Every command of fdl.
pub const COMMANDS: [&Command; 20] = [
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

const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind }
}

/// Signatures are part of the contract and not of this build: asking for one must not pass for having one.
fn no_signatures(given: bool) -> Result<(), Error> {
    if given {
        return Err(Error::bad_argument("signatures are not in this build of fdl yet"));
    }
    Ok(())
}
