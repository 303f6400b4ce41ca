//! SQL text made from values: the one place that quotes.

/// A name as a quoted SQL identifier.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a quoted SQL string literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(identifier("表 q\"x"), "\"表 q\"\"x\"");
        assert_eq!(literal("it's"), "'it''s'");
    }
}
