//! `fdl_serving()`: the hosts that this database runs.

use super::column;
use crate::sql::{Arguments, ColumnType, Command, Context, Error, Output, Value};

pub(super) const COMMAND: Command = Command {
    name: "fdl_serving",
    positional: None,
    named: &[],
    columns: &[
        column("address", ColumnType::Text),
        column("repository", ColumnType::Text),
        column("since", ColumnType::Timestamp),
        column("requests", ColumnType::Integer),
        column("bytes_out", ColumnType::Integer),
        column("bytes_in", ColumnType::Integer),
    ],
    run,
};

fn run(context: &Context, _: &Arguments) -> Result<Output, Error> {
    let rows = context.each_host(|host, repository| {
        let stats = host.stats();
        vec![
            Value::from(host.address().to_string()),
            Value::from(repository),
            Value::Timestamp(stats.since.timestamp_micros()),
            Value::from(stats.requests),
            Value::from(stats.bytes_out),
            Value::from(stats.bytes_in),
        ]
    });
    Ok(Output::Rows(rows))
}
