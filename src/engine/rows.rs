//! The rows of a result as plain values.

use super::EngineError;

/// One value. Statements cast to these types what else they select.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// Any integer type up to BIGINT.
    Integer(i64),
    /// VARCHAR.
    Text(String),
}

/// One row of a result.
#[derive(Debug, Clone)]
pub struct Row(pub Vec<Cell>);

/// A whole result.
pub type Rows = Vec<Row>;

impl Row {
    fn cell(&self, index: usize) -> Result<&Cell, EngineError> {
        self.0.get(index).ok_or_else(|| EngineError::unexpected("a column is missing"))
    }

    /// The text in a column that is not NULL.
    pub fn text(&self, index: usize) -> Result<&str, EngineError> {
        self.optional_text(index)?.ok_or_else(|| EngineError::unexpected("NULL where a text was expected"))
    }

    /// The text in a column, or nothing for NULL.
    pub fn optional_text(&self, index: usize) -> Result<Option<&str>, EngineError> {
        match self.cell(index)? {
            Cell::Text(text) => Ok(Some(text)),
            Cell::Null => Ok(None),
            other => Err(EngineError::unexpected(&format!("{other:?} where a text was expected"))),
        }
    }

    /// The integer in a column that is not NULL.
    pub fn integer(&self, index: usize) -> Result<i64, EngineError> {
        self.optional_integer(index)?.ok_or_else(|| EngineError::unexpected("NULL where a number was expected"))
    }

    /// The integer in a column, or nothing for NULL.
    pub fn optional_integer(&self, index: usize) -> Result<Option<i64>, EngineError> {
        match self.cell(index)? {
            Cell::Integer(number) => Ok(Some(*number)),
            Cell::Null => Ok(None),
            other => Err(EngineError::unexpected(&format!("{other:?} where a number was expected"))),
        }
    }

    /// The integer in a column as a count, which cannot be negative.
    pub fn count(&self, index: usize) -> Result<u64, EngineError> {
        u64::try_from(self.integer(index)?).map_err(|_| EngineError::unexpected("a negative count"))
    }

    /// The truth value in a column; SQLite, which has none, gives 0 and 1. NULL is false.
    pub fn boolean(&self, index: usize) -> Result<bool, EngineError> {
        match self.cell(index)? {
            Cell::Boolean(value) => Ok(*value),
            Cell::Integer(number) => Ok(*number != 0),
            Cell::Null => Ok(false),
            other => Err(EngineError::unexpected(&format!("{other:?} where a truth value was expected"))),
        }
    }
}
