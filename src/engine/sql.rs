//! SQL text made of typed parts alone: the one place that quotes.
//!
//! A statement is a template that stands in the source code, filled with names ([`identifier`]), texts ([`literal`]),
//! types ([`SqlType`]), numbers and statements made in the same way. [`super::Connection`] runs nothing else, so no text
//! of a file, a server or a call is ever read by DuckDB as SQL.
//!
//! ```
//! use fdl::engine::{Sql, identifier, literal, sql};
//! let (table, key) = (identifier("a \"b\""), "it's");
//! let statement: Sql = sql!("SELECT 1 FROM {table} WHERE key = {key} LIMIT {limit}", table, key = literal(key), limit = 1);
//! assert_eq!(statement.to_text(), "SELECT 1 FROM \"a \"\"b\"\"\" WHERE key = 'it''s' LIMIT 1");
//! ```
//!
//! A text is no part:
//!
//! ```compile_fail
//! # use fdl::engine::{Sql, identifier, literal, sql};
//! let (table, key) = (identifier("a \"b\""), "it's");
//! let statement: Sql = sql!("SELECT 1 FROM {table} WHERE key = {key} LIMIT {limit}", table, key = key, limit = 1);
//! ```
//!
//! Nor is a `String`:
//!
//! ```compile_fail
//! # use fdl::engine::{Sql, identifier, literal, sql};
//! let (table, key) = (identifier("a \"b\""), "it's".to_owned());
//! let statement: Sql = sql!("SELECT 1 FROM {table} WHERE key = {key} LIMIT {limit}", table, key, limit = 1);
//! ```
//!
//! A variable is not taken from around the statement:
//!
//! ```compile_fail
//! # use fdl::engine::{Sql, identifier, literal, sql};
//! let (table, key) = (identifier("a \"b\""), "it's");
//! let statement: Sql = sql!("SELECT 1 FROM {table} WHERE key = {key} LIMIT {limit}", key = literal(key), limit = 1);
//! ```
//!
//! A part that the template does not use is a mistake:
//!
//! ```compile_fail
//! # use fdl::engine::{Sql, identifier, literal, sql};
//! let (table, key) = (identifier("a \"b\""), "it's");
//! let statement: Sql = sql!("SELECT 1 FROM {table} LIMIT {limit}", table, key = literal(key), limit = 1);
//! ```
//!
//! A template is made at no time but when fdl is compiled:
//!
//! ```
//! # use fdl::engine::Sql;
//! let statement = Sql::template("SELECT 1", &[]);
//! ```
//!
//! ```compile_fail
//! # use fdl::engine::Sql;
//! let statement = Sql::template(&format!("SELECT {}", 1), &[]);
//! ```
//!
//! ```compile_fail
//! # use fdl::engine::Sql;
//! let statement = Sql::constant(&format!("SELECT {}", 1));
//! ```

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The text of statements, or of a part of one.
#[derive(Clone)]
pub struct Sql(Cow<'static, str>);

impl Sql {
    /// A text from the source code, taken as it is.
    pub const fn constant(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A text from the source code in which each `{name}` is replaced by the part of that name, `{{` by `{` and `}}` by
    /// `}`. A name without a part stays, and DuckDB refuses it; [`sql!`](macro@super::sql) is checked by the compiler.
    pub fn template(template: &'static str, parts: &[(&str, &dyn Part)]) -> Self {
        let (mut text, mut rest) = (String::with_capacity(template.len()), template);
        while let Some((before, brace)) = rest.find(['{', '}']).map(|at| rest.split_at(at)) {
            text.push_str(before);
            let placeholder = brace.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let part = |name: &str| parts.iter().find(|(known, _)| *known == name).map(|(_, part)| *part);
            rest = if let Some(after) = brace.strip_prefix("{{") {
                text.push('{');
                after
            } else if let Some(after) = brace.strip_prefix("}}") {
                text.push('}');
                after
            } else if let Some((part, after)) = placeholder.and_then(|(name, after)| Some((part(name)?, after))) {
                part.write(&mut text);
                after
            } else {
                let mut left = brace.chars();
                text.extend(left.next());
                left.as_str()
            };
        }
        text.push_str(rest);
        Self(Cow::Owned(text))
    }

    /// Parts with a separator between them.
    pub fn join<P: Part>(parts: impl IntoIterator<Item = P>, separator: &'static str) -> Self {
        let mut text = String::new();
        for (index, part) in parts.into_iter().enumerate() {
            text.push_str(if index == 0 { "" } else { separator });
            part.write(&mut text);
        }
        Self(Cow::Owned(text))
    }

    /// A text that somebody else wrote, for [`super::Private::run_foreign`] alone.
    pub(super) fn foreign(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    /// What DuckDB is given.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// A copy to be shown to people. It cannot become a statement of ours again.
    pub fn to_text(&self) -> String {
        self.0.clone().into_owned()
    }
}

/// Without the text, which may hold a password.
impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

/// A quoted name.
#[derive(Clone)]
pub struct Identifier(String);

/// A quoted text.
#[derive(Clone)]
pub struct Literal(String);

/// A name as a quoted SQL identifier.
pub fn identifier(name: &str) -> Identifier {
    Identifier(format!("\"{}\"", name.replace('"', "\"\"")))
}

/// A text as a quoted SQL string literal.
pub fn literal(text: &str) -> Literal {
    Literal(format!("'{}'", text.replace('\'', "''")))
}

/// Names that lead to an object: database, schema, table.
pub fn qualified(names: &[&str]) -> Sql {
    Sql::join(names.iter().map(|name| identifier(name)), ".")
}

impl Identifier {
    /// A copy to be shown to people.
    pub fn to_text(&self) -> String {
        self.0.clone()
    }
}

impl Literal {
    /// A copy to be shown to people.
    pub fn to_text(&self) -> String {
        self.0.clone()
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Without the text, which may be a password.
impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Literal").finish_non_exhaustive()
    }
}

/// A type that fdl writes into statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of DuckDB's types")]
pub enum SqlType {
    Boolean,
    TinyInt,
    SmallInt,
    Integer,
    BigInt,
    HugeInt,
    UTinyInt,
    USmallInt,
    UInteger,
    UBigInt,
    UHugeInt,
    Float,
    Double,
    /// See [`SqlType::decimal`] for the numbers that DuckDB takes.
    Decimal {
        width: u8,
        scale: u8,
    },
    Date,
    Time,
    TimeWithTimeZone,
    Timestamp,
    TimestampS,
    TimestampMs,
    TimestampNs,
    TimestampWithTimeZone,
    Interval,
    Varchar,
    Blob,
    Uuid,
    Json,
    Variant,
    Geometry,
}

impl SqlType {
    /// A DECIMAL, where DuckDB has one of this width and scale.
    pub fn decimal(width: u8, scale: u8) -> Option<Self> {
        ((1..=38).contains(&width) && scale <= width).then_some(Self::Decimal { width, scale })
    }

    /// Its name, as DuckDB writes it.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Boolean => "BOOLEAN",
            Self::TinyInt => "TINYINT",
            Self::SmallInt => "SMALLINT",
            Self::Integer => "INTEGER",
            Self::BigInt => "BIGINT",
            Self::HugeInt => "HUGEINT",
            Self::UTinyInt => "UTINYINT",
            Self::USmallInt => "USMALLINT",
            Self::UInteger => "UINTEGER",
            Self::UBigInt => "UBIGINT",
            Self::UHugeInt => "UHUGEINT",
            Self::Float => "FLOAT",
            Self::Double => "DOUBLE",
            Self::Decimal { width, scale } => return Cow::Owned(format!("DECIMAL({width},{scale})")),
            Self::Date => "DATE",
            Self::Time => "TIME",
            Self::TimeWithTimeZone => "TIME WITH TIME ZONE",
            Self::Timestamp => "TIMESTAMP",
            Self::TimestampS => "TIMESTAMP_S",
            Self::TimestampMs => "TIMESTAMP_MS",
            Self::TimestampNs => "TIMESTAMP_NS",
            Self::TimestampWithTimeZone => "TIMESTAMP WITH TIME ZONE",
            Self::Interval => "INTERVAL",
            Self::Varchar => "VARCHAR",
            Self::Blob => "BLOB",
            Self::Uuid => "UUID",
            Self::Json => "JSON",
            Self::Variant => "VARIANT",
            Self::Geometry => "GEOMETRY",
        })
    }
}

mod sealed {
    /// Written by this module alone.
    pub trait Sealed {
        /// Appends the text of the part.
        fn write(&self, text: &mut String);
    }
}

use sealed::Sealed;

/// What a statement may be made of. No other type can be one, and a text least of all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of an SQL statement",
    note = "`identifier` makes a name of a text, `literal` a string"
)]
pub trait Part: Sealed {}

impl Sealed for Sql {
    fn write(&self, text: &mut String) {
        text.push_str(&self.0);
    }
}

impl Sealed for Identifier {
    fn write(&self, text: &mut String) {
        text.push_str(&self.0);
    }
}

impl Sealed for Literal {
    fn write(&self, text: &mut String) {
        text.push_str(&self.0);
    }
}

impl Sealed for SqlType {
    fn write(&self, text: &mut String) {
        text.push_str(&self.name());
    }
}

impl<P: Sealed + ?Sized> Sealed for &P {
    fn write(&self, text: &mut String) {
        (**self).write(text);
    }
}

impl Part for Sql {}
impl Part for Identifier {}
impl Part for Literal {}
impl Part for SqlType {}
impl<P: Part + ?Sized> Part for &P {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Sealed for $type {
            fn write(&self, text: &mut String) {
                // Writing to a String does not fail.
                let _ = write!(text, "{self}");
            }
        }
        impl Part for $type {}
    )*};
}

plain!(bool, i32, i64, u8, u32, u64, usize);

/// SQL from a template with `{name}` for each part: `sql!("… {table} … {key}", table, key = literal(key))`. A name without
/// a part, and a part without a name, do not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! __sql {
    (@part $name:ident) => { $name };
    (@part $name:ident = $part:expr) => { $part };
    ($template:literal $(, $name:ident $(= $part:expr)?)* $(,)?) => {{
        const _: () = $crate::engine::check_template($template, &[$(stringify!($name)),*]);
        $crate::engine::Sql::template(
            $template,
            &[$((stringify!($name), &$crate::__sql!(@part $name $(= $part)?) as &dyn $crate::engine::Part)),*],
        )
    }};
}

/// Stops the compiler where placeholders and names of parts do not match.
#[doc(hidden)]
#[expect(clippy::indexing_slicing, reason = "runs while fdl is compiled")]
pub const fn check_template(template: &str, names: &[&str]) {
    assert!(names.len() <= 32, "a statement of more than 32 parts");
    let (text, mut at, mut used) = (template.as_bytes(), 0, 0_u64);
    while at < text.len() {
        let brace = text[at];
        if brace == b'{' || brace == b'}' {
            if at + 1 < text.len() && text[at + 1] == brace {
                at += 2;
                continue;
            }
            assert!(brace == b'{', "a brace that closes nothing");
            let mut index = 0;
            while index < names.len() && !is_name(text, at + 1, names[index].as_bytes()) {
                index += 1;
            }
            assert!(index < names.len(), "a placeholder for which no part is given");
            used |= 1 << index;
            at += names[index].len() + 1;
        }
        at += 1;
    }
    assert!(used == (1 << names.len()) - 1, "a part that the template does not name");
}

#[expect(clippy::indexing_slicing, reason = "runs while fdl is compiled")]
const fn is_name(text: &[u8], at: usize, name: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() {
        if at + index >= text.len() || text[at + index] != name[index] {
            return false;
        }
        index += 1;
    }
    at + index < text.len() && text[at + index] == b'}'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sql;

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(identifier("表 q\"x").to_text(), "\"表 q\"\"x\"");
        assert_eq!(literal("it's").to_text(), "'it''s'");
        assert_eq!(qualified(&["a", "b\"", "c.d"]).to_text(), "\"a\".\"b\"\"\".\"c.d\"");
    }

    #[test]
    fn parts_are_put_in_place() {
        let (db, one) = (identifier("db"), Sql::constant("1 = {1}"));
        let statement = sql!(
            "SELECT '{{x}}' FROM {db}.t WHERE {one} AND a = {a} \
                              AND b IN ({b}) AND {db}.c::{c}",
            db,
            one,
            a = -3_i64,
            b = Sql::join([1_u64, 2], ", "),
            c = SqlType::Timestamp
        );
        assert_eq!(
            statement.as_str(),
            "SELECT '{x}' FROM \"db\".t WHERE 1 = {1} AND a = -3 AND b IN (1, 2) AND \"db\".c::TIMESTAMP"
        );
        assert_eq!(Sql::join([true, false], " OR ").as_str(), "true OR false");
        assert_eq!(Sql::join(Vec::<Sql>::new(), ", ").as_str(), "");
        assert_eq!(sql!("}}{{").as_str(), "}{");
    }

    #[test]
    fn what_a_part_holds_is_not_looked_at_again() {
        // A text that looks like a placeholder, and one that looks like SQL.
        let (a, b) = (literal("{b} '; DROP TABLE x; --"), identifier("{a}\"; DROP TABLE x; --"));
        assert_eq!(
            sql!("SELECT {a} AS {b}", a, b).as_str(),
            "SELECT '{b} ''; DROP TABLE x; --' AS \"{a}\"\"; DROP TABLE x; --\""
        );
        // Backslashes mean nothing to DuckDB in these, and line breaks stay inside.
        assert_eq!(sql!("{a}", a = literal("\\'\n--")).as_str(), "'\\''\n--'");
    }

    #[test]
    fn a_placeholder_without_a_part_stays() {
        assert_eq!(Sql::template("{old} {new} {", &[("old", &1_i64)]).as_str(), "1 {new} {");
    }

    #[test]
    fn only_decimals_that_there_are() {
        for (width, scale, name) in
            [(1, 0, Some("DECIMAL(1,0)")), (38, 38, Some("DECIMAL(38,38)")), (0, 0, None), (39, 1, None), (1, 2, None)]
        {
            assert_eq!(SqlType::decimal(width, scale).map(SqlType::name).as_deref(), name);
        }
    }

    #[test]
    fn nothing_is_shown_by_mistake() {
        let statement = sql!("CREATE SECRET s (BEARER_TOKEN {token})", token = literal("t0ken"));
        assert!(!format!("{statement:?} {:?}", literal("t0ken")).contains("t0ken"));
    }
}
