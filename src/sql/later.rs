//! What a version holds that runs later: the SQL of its views, macros, default and sort expressions, with the rights of whoever uses it.

use crate::engine::identifier;
use crate::lake::Contents;

/// How many names a note gives of each kind.
const NAMED: usize = 5;

/// What runs later in a version, in a sentence; nothing where nothing does.
pub(super) fn note(contents: &Contents) -> Option<String> {
    let views = contents.schemas.iter().flat_map(|schema| {
        let views = schema.views.iter();
        views.map(|view| format!("{}.{}", schema.name, view.name)).collect::<Vec<_>>()
    });
    let macros = contents.macros.keys().map(|(schema, name)| format!("{schema}.{name}"));
    let defaults = contents.tables().flat_map(|(schema, table)| {
        let columns = table.definition.columns.iter();
        let expressions = columns.filter(|column| column.default.as_ref().is_some_and(|default| default.is_expression));
        expressions.map(|column| format!("{schema}.{}.{}", table.name, column.name)).collect::<Vec<_>>()
    });
    let sorts = contents.tables().filter(|(_, table)| {
        let plain = |expression: &str| {
            let columns = &mut table.definition.columns.iter();
            columns.any(|column| column.name == expression || identifier(&column.name).to_text() == expression)
        };
        table.definition.sort_by.iter().any(|key| !plain(expression_of(key)))
    });
    let sorts = sorts.map(|(schema, table)| format!("{schema}.{}", table.name));
    let kinds = [
        counted(("view", "views"), views.collect()),
        counted(("macro", "macros"), macros.collect()),
        counted(("default expression", "default expressions"), defaults.collect()),
        counted(("table with sort expressions", "tables with sort expressions"), sorts.collect()),
    ];
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    if kinds.is_empty() {
        return None;
    }
    Some(format!(
        "SQL of the version's author runs with your rights when you use {}; FROM fdl_tables(…) shows it",
        kinds.join(", ")
    ))
}

/// The expression of a sort key without its direction: `a + 1 DESC NULLS LAST`.
fn expression_of(key: &str) -> &str {
    let key = key.strip_suffix(" NULLS LAST").or_else(|| key.strip_suffix(" NULLS FIRST")).unwrap_or(key);
    key.strip_suffix(" ASC").or_else(|| key.strip_suffix(" DESC")).unwrap_or(key)
}

fn counted((one, many): (&str, &str), names: Vec<String>) -> Option<String> {
    let count = names.len();
    let kind = if count == 1 { one } else { many };
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if count > NAMED { ", …" } else { "" };
    (count > 0).then(|| format!("{count} {kind} ({named}{more})"))
}
