//! The host's log: a line for each request that was not done, with what the client was not told.

use std::fmt;

use chrono::SecondsFormat;

use crate::format::Clock;

/// Where the lines of the log go, each without its end.
pub type LogLine = dyn Fn(&str) + Send + Sync;

/// The longest line, in characters.
const LONGEST: usize = 4_000;
/// The letters and digits of an ID.
const LETTERS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// By what a client and the log speak of one request: short enough to be read out, and random.
pub(super) fn new_id() -> String {
    (0..8).map(|_| char::from(LETTERS.get(fastrand::usize(..LETTERS.len())).copied().unwrap_or(b'0'))).collect()
}

/// Writes a line. Nothing of it can end the line early or move a terminal's cursor, and no URL in it has what follows the
/// question mark, where signatures are.
pub(super) fn write(line: &LogLine, clock: &dyn Clock, id: &str, about: fmt::Arguments<'_>) {
    let now = clock.now().to_rfc3339_opts(SecondsFormat::Millis, true);
    let told = without_queries(&about.to_string());
    let shown = told.chars().flat_map(|c| {
        let escaped: Box<dyn Iterator<Item = char>> = match c.is_control() {
            true => Box::new(c.escape_default()),
            false => Box::new(std::iter::once(c)),
        };
        escaped
    });
    let shown: String = shown.take(LONGEST).collect();
    line(&format!("{now} fdl-host {id} {shown}"));
}

/// The text, each URL in it cut at its question mark.
fn without_queries(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| c.is_whitespace() || c == '"' || c == ')') {
        match piece.split_once('?') {
            Some((before, rest)) if before.contains("://") => {
                shown.push_str(before);
                shown.push_str("?…");
                let ends = |c: &char| c.is_whitespace() || *c == '"' || *c == ')';
                shown.extend(rest.chars().last().filter(ends));
            }
            _ => shown.push_str(piece),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::format::SystemClock;

    #[test]
    fn a_line_is_one_line_and_has_no_secret() {
        let told = "a\nb\u{1b}[31m (https://s3.example.org/x?X-Amz-Signature=hush) and \"http://a/?hush\" why?";
        let lines_of = std::sync::Arc::new(Mutex::new(Vec::new()));
        let kept = lines_of.clone();
        let line = move |line: &str| kept.lock().unwrap().push(line.to_owned());
        write(&line, &SystemClock, "id", format_args!("{told}"));
        write(&line, &SystemClock, "id", format_args!("{}", "é".repeat(100_000)));
        let lines = lines_of.lock().unwrap();
        assert!(
            lines[0].ends_with(" fdl-host id a\\nb\\u{1b}[31m (https://s3.example.org/x?…) and \"http://a/?…\" why?"),
            "{lines:?}"
        );
        assert!(lines[1].chars().count() < LONGEST + 100);
    }

    #[test]
    fn ids_differ() {
        let ids: std::collections::BTreeSet<String> = (0..100).map(|_| new_id()).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 8));
    }
}
