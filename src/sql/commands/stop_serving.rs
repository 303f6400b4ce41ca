//! `fdl_stop_serving()`: stops a host, or all of them.

use super::{column, text};
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_stop_serving",
    positional: None,
    named: &[text("address")],
    columns: &[column("address", ColumnType::Text), column("requests", ColumnType::Integer)],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let address = arguments.text("address");
    let stopped = context.take_hosts(address);
    if let (Some(address), true) = (address, stopped.is_empty()) {
        let sentence = format!("nothing is served on {address}");
        return Err(Error::new(Code::NotFound, sentence, "FROM fdl_serving(); lists what is."));
    }
    let mut rows = Vec::new();
    for host in stopped {
        let stats = context.block_on(host.stop())?;
        rows.push(vec![Value::from(host.address().to_string()), Value::from(stats.requests)]);
    }
    Ok(Output::Rows(rows))
}
