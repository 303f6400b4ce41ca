//! Registers [`COMMANDS`] as table functions, by the `duckdb` crate and the stable C API.
//!
//! The crate wants a type for each function and asks it for its parameters; `Slot<N>` is the type of the Nth command.
#![expect(unsafe_code, reason = "writes into DuckDB's vectors")]

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use duckdb::Connection;
use duckdb::core::{DataChunkHandle, Inserter, LogicalTypeHandle, LogicalTypeId};
use duckdb::vtab::{BindInfo, InitInfo, TableFunctionInfo, VTab, Value as DuckValue};
use libduckdb_sys as ffi;

use crate::engine;

use super::{Argument, Arguments, COMMANDS, Column, ColumnType, Command, Context, Error, Output, ParameterType, Value};

/// How many rows one chunk takes at the most; DuckDB's vectors hold 2048.
const CHUNK: usize = 2048;

/// Registers every command on the database of `connection`.
///
/// # Errors
/// When DuckDB refuses one of them.
pub(super) fn register_all(connection: &Connection, context: &Context) -> duckdb::Result<()> {
    macro_rules! register {
        ($($index:literal)*) => {{
            const { assert!(COMMANDS.len() == [$($index),*].len(), "one slot a command") };
            $(connection.register_table_function_with_extra_info::<Slot<$index>, Context>(COMMANDS[$index].name, context)?;)*
        }};
    }
    register!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25);
    Ok(())
}

struct Slot<const N: usize>;

impl<const N: usize> Slot<N> {
    #[expect(clippy::indexing_slicing, reason = "checked when compiled: `register_all` names the slots there are")]
    const COMMAND: &'static Command = COMMANDS[N];
}

/// What a call was given, kept from the bind until it runs.
struct Bound {
    context: Context,
    arguments: Arguments,
}

/// How far a call has come.
struct Running(Mutex<State>);

enum State {
    Waiting,
    Rows(std::vec::IntoIter<Vec<Value>>),
    /// The step, and rows of the last one that a chunk had no room for.
    Steps(Box<dyn FnMut() -> Result<Vec<Vec<Value>>, Error> + Send>, std::vec::IntoIter<Vec<Value>>),
}

impl<const N: usize> VTab for Slot<N> {
    type InitData = Running;
    type BindData = Bound;

    fn bind(bind: &BindInfo) -> Result<Bound, Box<dyn StdError>> {
        let command = Self::COMMAND;
        // Functions are bound on the thread that runs the statement.
        if engine::runs_a_statement() {
            return Err(Error::nested().message(command.name).into());
        }
        for Column { name, kind } in command.columns {
            bind.add_result_column(name, column_type(*kind));
        }
        let positional = match command.positional {
            Some(name) => {
                let value = bind.get_parameter(0);
                Some((name, if value.is_null() { String::new() } else { value.to_string() }))
            }
            None => None,
        };
        let mut named = BTreeMap::new();
        for parameter in command.named {
            let given = bind.get_named_parameter(parameter.name).filter(|value| !value.is_null());
            if let Some(value) = given {
                named.insert(parameter.name, argument(parameter.kind, &value));
            }
        }
        // SAFETY: registered with a `Context` as its extra information, which lives as long as the function.
        let context = unsafe { &*bind.get_extra_info::<Context>() }.clone();
        Ok(Bound { context, arguments: Arguments::new(positional, named) })
    }

    fn init(_: &InitInfo) -> Result<Running, Box<dyn StdError>> {
        Ok(Running(Mutex::new(State::Waiting)))
    }

    fn func(function: &TableFunctionInfo<Self>, chunk: &mut DataChunkHandle) -> Result<(), Box<dyn StdError>> {
        let bound = function.get_bind_data();
        let mut state = function.get_init_data().0.lock().unwrap_or_else(PoisonError::into_inner);
        // DuckDB must never see a panic, and a person should see a code.
        let rows = catch_unwind(AssertUnwindSafe(|| next_rows(Self::COMMAND, bound, &mut state)))
            .unwrap_or_else(|_| Err(Error::panicked()))
            .map_err(|error| error.message(Self::COMMAND.name))?;
        write_chunk(chunk, Self::COMMAND.columns, &rows);
        Ok(())
    }

    fn parameters() -> Option<Vec<LogicalTypeHandle>> {
        Self::COMMAND.positional.map(|_| vec![LogicalTypeId::Varchar.into()])
    }

    fn named_parameters() -> Option<Vec<(String, LogicalTypeHandle)>> {
        let parameter_type = |kind| match kind {
            ParameterType::Text => LogicalTypeId::Varchar.into(),
            ParameterType::Boolean => LogicalTypeId::Boolean.into(),
            ParameterType::Integer => LogicalTypeId::Bigint.into(),
            ParameterType::TextList => LogicalTypeHandle::list(&LogicalTypeId::Varchar.into()),
            ParameterType::Interval => LogicalTypeId::Interval.into(),
        };
        Some(Self::COMMAND.named.iter().map(|named| (named.name.to_owned(), parameter_type(named.kind))).collect())
    }
}

fn next_rows(command: &Command, bound: &Bound, state: &mut State) -> Result<Vec<Vec<Value>>, Error> {
    bound.context.run(command.name, || {
        if matches!(state, State::Waiting) {
            *state = match (command.run)(&bound.context, &bound.arguments)? {
                Output::Rows(rows) => State::Rows(rows.into_iter()),
                Output::Steps(steps) => State::Steps(steps, Vec::new().into_iter()),
            };
        }
        step(state)
    })
}

fn step(state: &mut State) -> Result<Vec<Vec<Value>>, Error> {
    match state {
        State::Waiting => Ok(Vec::new()),
        State::Rows(rows) => Ok(rows.take(CHUNK).collect()),
        State::Steps(step, rest) => {
            if rest.len() == 0 {
                *rest = step()?.into_iter();
            }
            Ok(rest.take(CHUNK).collect())
        }
    }
}

fn column_type(kind: ColumnType) -> LogicalTypeHandle {
    match kind {
        ColumnType::Text => LogicalTypeId::Varchar.into(),
        ColumnType::Boolean => LogicalTypeId::Boolean.into(),
        ColumnType::Integer => LogicalTypeId::Bigint.into(),
        ColumnType::Timestamp => LogicalTypeId::TimestampTZ.into(),
        ColumnType::Interval => LogicalTypeId::Interval.into(),
        ColumnType::TextList => LogicalTypeHandle::list(&LogicalTypeId::Varchar.into()),
        ColumnType::TableColumns => LogicalTypeHandle::list(&LogicalTypeHandle::struct_type(&[
            ("name", LogicalTypeId::Varchar.into()),
            ("type", LogicalTypeId::Varchar.into()),
            ("nullable", LogicalTypeId::Boolean.into()),
        ])),
    }
}

fn argument(kind: ParameterType, value: &DuckValue) -> Argument {
    match kind {
        ParameterType::Text => Argument::Text(value.to_string()),
        ParameterType::Interval => Argument::Interval(value.to_string()),
        ParameterType::Boolean => Argument::Boolean(value.to_bool()),
        ParameterType::Integer => Argument::Integer(value.to_int64()),
        ParameterType::TextList => {
            // A NULL among them counts as not given, too; DuckDB throws when it is asked for its text.
            let texts = value.to_list().unwrap_or_default().into_iter().filter(|text| !text.is_null());
            Argument::TextList(texts.map(|text| text.to_string()).collect())
        }
    }
}

fn write_chunk(chunk: &mut DataChunkHandle, columns: &[Column], rows: &[Vec<Value>]) {
    for (index, column) in columns.iter().enumerate() {
        let values = rows.iter().map(|row| row.get(index).unwrap_or(&Value::Null));
        match column.kind {
            ColumnType::Text => {
                let mut vector = chunk.flat_vector(index);
                for (row, value) in values.enumerate() {
                    match value {
                        Value::Text(text) => vector.insert(row, text.as_str()),
                        _ => vector.set_null(row),
                    }
                }
            }
            ColumnType::Boolean => write_fixed(chunk, index, values, |value| match value {
                Value::Boolean(value) => Some(*value),
                _ => None,
            }),
            ColumnType::Integer | ColumnType::Timestamp => write_fixed(chunk, index, values, |value| match value {
                Value::Integer(number) | Value::Timestamp(number) => Some(*number),
                _ => None,
            }),
            ColumnType::Interval => write_fixed(chunk, index, values, |value| match value {
                Value::Interval(micros) => Some(ffi::duckdb_interval { months: 0, days: 0, micros: *micros }),
                _ => None,
            }),
            ColumnType::TextList => write_text_lists(chunk, index, values.collect()),
            ColumnType::TableColumns => write_table_columns(chunk, index, values.collect()),
        }
    }
    chunk.set_len(rows.len());
}

fn write_fixed<'a, T: Copy>(
    chunk: &DataChunkHandle,
    index: usize,
    values: impl Iterator<Item = &'a Value>,
    fixed: impl Fn(&Value) -> Option<T>,
) {
    let mut vector = chunk.flat_vector(index);
    for (row, value) in values.enumerate() {
        match fixed(value) {
            // SAFETY: the column was bound with the type whose size is T's, and a chunk has room for `CHUNK` rows.
            Some(value) => unsafe { *vector.as_mut_ptr::<T>().add(row) = value },
            None => vector.set_null(row),
        }
    }
}

fn write_text_lists(chunk: &DataChunkHandle, index: usize, values: Vec<&Value>) {
    let mut vector = chunk.list_vector(index);
    let length = |value: &&Value| if let Value::TextList(texts) = value { texts.len() } else { 0 };
    let total = values.iter().map(length).sum();
    let child = vector.child(total);
    let mut offset = 0;
    for (row, value) in values.into_iter().enumerate() {
        let Value::TextList(texts) = value else {
            vector.set_null(row);
            continue;
        };
        for (place, text) in texts.iter().enumerate() {
            child.insert(offset + place, text.as_str());
        }
        vector.set_entry(row, offset, texts.len());
        offset += texts.len();
    }
    vector.set_len(total);
}

fn write_table_columns(chunk: &DataChunkHandle, index: usize, values: Vec<&Value>) {
    let mut vector = chunk.list_vector(index);
    let length = |value: &&Value| if let Value::TableColumns(columns) = value { columns.len() } else { 0 };
    let total = values.iter().map(length).sum();
    let child = vector.struct_child(total);
    let (names, kinds, nullable) = (child.child(0, total), child.child(1, total), child.child(2, total));
    let mut offset = 0;
    for (row, value) in values.into_iter().enumerate() {
        let Value::TableColumns(columns) = value else {
            vector.set_null(row);
            continue;
        };
        for (place, (name, kind, is_nullable)) in columns.iter().enumerate() {
            names.insert(offset + place, name.as_str());
            kinds.insert(offset + place, kind.as_str());
            // SAFETY: a BOOLEAN vector with room for `total` values.
            unsafe { *nullable.as_mut_ptr::<bool>().add(offset + place) = *is_nullable };
        }
        vector.set_entry(row, offset, columns.len());
        offset += columns.len();
    }
    vector.set_len(total);
}
