//! What a command is: its name, its parameters, its columns, and the function behind it.

use super::{Arguments, Context, Error};

/// One table function of `docs/sql.md`.
#[derive(Debug)]
pub struct Command {
    /// The name it is called by.
    pub name: &'static str,
    /// What its one positional argument is called, where it takes one.
    pub positional: Option<&'static str>,
    /// Its named parameters.
    pub named: &'static [Named],
    /// The columns of its result.
    pub columns: &'static [Column],
    /// What it does. Called when the function runs, never when it is bound.
    pub run: fn(&Context, &Arguments) -> Result<Output, Error>,
}

/// A named parameter.
#[derive(Debug)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ParameterType,
}

/// The types that parameters have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// VARCHAR.
    Text,
    /// BOOLEAN.
    Boolean,
    /// BIGINT.
    Integer,
    /// VARCHAR\[\].
    TextList,
    /// INTERVAL.
    Interval,
}

/// A column of a result.
#[derive(Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ColumnType,
}

/// The types that result columns have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// VARCHAR.
    Text,
    /// BOOLEAN.
    Boolean,
    /// BIGINT.
    Integer,
    /// TIMESTAMPTZ.
    Timestamp,
    /// VARCHAR\[\].
    TextList,
    /// STRUCT(name VARCHAR, type VARCHAR, nullable BOOLEAN)\[\].
    TableColumns,
    /// INTERVAL.
    Interval,
}

/// An argument as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A VARCHAR.
    Text(String),
    /// A BOOLEAN.
    Boolean(bool),
    /// A BIGINT.
    Integer(i64),
    /// A VARCHAR\[\].
    TextList(Vec<String>),
    /// An INTERVAL, as DuckDB prints it.
    Interval(String),
}

/// A value of a result; it fits the [`ColumnType`] of its column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// NULL, in any column.
    Null,
    /// For [`ColumnType::Text`].
    Text(String),
    /// For [`ColumnType::Boolean`].
    Boolean(bool),
    /// For [`ColumnType::Integer`].
    Integer(i64),
    /// For [`ColumnType::Timestamp`]: microseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// For [`ColumnType::TextList`].
    TextList(Vec<String>),
    /// For [`ColumnType::TableColumns`]: name, type, nullable.
    TableColumns(Vec<(String, String, bool)>),
    /// For [`ColumnType::Interval`]: microseconds.
    Interval(i64),
}

/// The rows a command gives.
pub enum Output {
    /// All of them, known when the command has run.
    Rows(Vec<Vec<Value>>),
    /// A few at a time; an empty step is the end. DuckDB can be interrupted between two steps.
    Steps(Box<dyn FnMut() -> Result<Vec<Vec<Value>>, Error> + Send>),
}

impl Output {
    /// The one row of a command that reports what it did.
    pub fn row(values: impl IntoIterator<Item = Value>) -> Self {
        Self::Rows(vec![values.into_iter().collect()])
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::from(count as u64)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::TextList(texts)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
