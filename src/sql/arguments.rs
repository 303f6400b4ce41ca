//! The arguments of one call, by name.

use std::collections::BTreeMap;

use super::{Argument, Error};

/// What a call was given. NULL counts as not given.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    positional: Option<(&'static str, String)>,
    named: BTreeMap<&'static str, Argument>,
}

impl Arguments {
    /// Collects the arguments of a call.
    pub fn new(positional: Option<(&'static str, String)>, named: BTreeMap<&'static str, Argument>) -> Self {
        Self { positional, named }
    }

    /// The positional argument.
    ///
    /// # Errors
    /// FDL-BAD-ARGUMENT when it is NULL or empty.
    pub fn positional(&self) -> Result<&str, Error> {
        match &self.positional {
            Some((_, text)) if !text.trim().is_empty() => Ok(text),
            Some((name, _)) => Err(Error::bad_argument(format!("the first argument, the {name} to work on, is empty"))),
            None => Err(Error::bad_argument("the first argument is missing".to_owned())),
        }
    }

    /// A text, where one was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.named.get(name) {
            Some(Argument::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A truth value, false when not given.
    pub fn boolean(&self, name: &str) -> bool {
        self.boolean_or(name, false)
    }

    /// A truth value with its default.
    pub fn boolean_or(&self, name: &str, default: bool) -> bool {
        match self.named.get(name) {
            Some(Argument::Boolean(value)) => *value,
            _ => default,
        }
    }

    /// A count, where one was given.
    ///
    /// # Errors
    /// FDL-BAD-ARGUMENT when it is negative.
    pub fn count(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.named.get(name) {
            Some(Argument::Integer(number)) => u64::try_from(*number)
                .map(Some)
                .map_err(|_| Error::bad_argument(format!("{name} is {number}; it counts and cannot be negative"))),
            _ => Ok(None),
        }
    }

    /// A length of time, where one was given, as DuckDB prints an INTERVAL.
    pub fn interval(&self, name: &str) -> Option<&str> {
        match self.named.get(name) {
            Some(Argument::Interval(text)) => Some(text),
            _ => None,
        }
    }

    /// A list of texts, empty when not given.
    pub fn texts(&self, name: &str) -> &[String] {
        match self.named.get(name) {
            Some(Argument::TextList(texts)) => texts,
            _ => &[],
        }
    }
}
