//! An allowed_signers file: which key may sign in whose name (docs/format.md section 15, ssh-keygen(1) "ALLOWED SIGNERS").

use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeZone, Utc};
use ssh_key::PublicKey;
use ssh_key::public::KeyData;

use super::error::FormatError;
use super::signature::NAMESPACE;

/// The keys that a reader trusts, each for the mail addresses of its line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedSigners {
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// The patterns of mail addresses, as written.
    principals: String,
    options: Options,
    /// Nothing for a type of key that is not known here: such a line allows nobody.
    key: Option<KeyData>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Options {
    /// The key signs certificates; what it signs itself is not meant.
    authority: bool,
    namespaces: Option<String>,
    after: Option<DateTime<Utc>>,
    before: Option<DateTime<Utc>>,
}

/// What an allowed_signers file says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It may sign in this name.
    Allowed,
    /// It may not, for this reason.
    Refused(String),
    /// No line is of this key.
    Unknown,
}

impl AllowedSigners {
    /// Reads a file. Empty lines and those that begin with `#` are passed over; `zone` is the one of times without `Z`.
    ///
    /// # Errors
    /// [`FormatError::BadValue`] for the first line that is not understood. What an option that is not known wants to
    /// restrict would be left open, so such a line is one of them.
    pub fn parse(text: &str, zone: &impl TimeZone) -> Result<Self, FormatError> {
        let mut lines = Vec::new();
        for (number, text) in (1..).zip(text.lines().map(str::trim)) {
            if !text.is_empty() && !text.starts_with('#') {
                // By its number alone: whoever names another file by mistake must not see it in a message.
                let shown = format!("line {number}");
                let wrong = |why| FormatError::value("a line of an allowed_signers file", &shown, why);
                lines.push(Line::parse(text, zone).map_err(wrong)?);
            }
        }
        Ok(Self { lines })
    }

    /// Those of these lines that are understood.
    #[must_use]
    pub fn of_lines<'a>(lines: impl IntoIterator<Item = &'a String>, zone: &impl TimeZone) -> Self {
        let parsed = lines.into_iter().filter_map(|line| Self::parse(line, zone).ok());
        Self { lines: parsed.flat_map(|parsed| parsed.lines).collect() }
    }

    /// Whether a key may sign in a name, at the time that the version gives for its making.
    #[must_use]
    pub fn standing(&self, key: &KeyData, signer: &str, made: Option<DateTime<Utc>>) -> Standing {
        let mut refused = None;
        for line in self.lines.iter().filter(|line| line.key.as_ref() == Some(key)) {
            match line.fault(signer, made) {
                None => return Standing::Allowed,
                Some(why) => refused = refused.or(Some(why)),
            }
        }
        refused.map_or(Standing::Unknown, Standing::Refused)
    }

    /// The names for which a key is listed, as its lines write them.
    pub fn names_of(&self, key: &KeyData) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |line| line.key.as_ref() == Some(key)).map(|line| line.principals.as_str())
    }
}

impl Line {
    fn parse(text: &str, zone: &impl TimeZone) -> Result<Self, &'static str> {
        let (principals, rest) = word(text).ok_or("its quotes do not close")?;
        if principals.is_empty() || rest.is_empty() {
            return Err("it must be: principals, options (or none), type of key, key");
        }
        let principals = principals.trim_matches('"').to_owned();
        if let Some(key) = key(rest) {
            return Ok(Self { principals, options: Options::default(), key: key.ok() });
        }
        let (options, rest) = word(rest).ok_or("its quotes do not close")?;
        let options = Options::parse(options, zone)?;
        let key = key(rest).ok_or("it holds no public key")?;
        Ok(Self { principals, options, key: key.ok() })
    }

    /// Why this line does not allow what it is asked for; nothing when it does.
    fn fault(&self, signer: &str, made: Option<DateTime<Utc>>) -> Option<String> {
        let Options { authority, namespaces, after, before } = &self.options;
        if *authority {
            return Some("the key is there as a certificate authority, and certificates are not supported".to_owned());
        }
        if !matches_list(&self.principals, signer) {
            return Some(format!("the key is allowed for {}, not for {signer}", self.principals));
        }
        if namespaces.as_ref().is_some_and(|list| !matches_list(list, NAMESPACE)) {
            return Some(format!("the key is not allowed for the namespace {NAMESPACE}"));
        }
        if after.is_none() && before.is_none() {
            return None;
        }
        let Some(made) = made else {
            return Some("the key is valid for a time, and the version does not say when it was made".to_owned());
        };
        if let Some(after) = after.filter(|after| made < *after) {
            return Some(format!("the key is valid from {after}, and the version says it was made on {made}"));
        }
        if let Some(before) = before.filter(|before| made > *before) {
            return Some(format!("the key was valid until {before}, and the version says it was made on {made}"));
        }
        None
    }
}

impl Options {
    fn parse(text: &str, zone: &impl TimeZone) -> Result<Self, &'static str> {
        let mut options = Self::default();
        for option in split_outside_quotes(text) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(unquoted(value)?)),
                None => (option, None),
            };
            let once = |taken: bool| if taken { Err("it gives an option twice") } else { Ok(()) };
            match (name.to_ascii_lowercase().as_str(), value) {
                ("cert-authority", None) => options.authority = true,
                ("namespaces", Some(list)) => {
                    once(options.namespaces.is_some())?;
                    options.namespaces = Some(list.to_owned());
                }
                ("valid-after", Some(at)) => {
                    once(options.after.is_some())?;
                    options.after = Some(time(at, zone)?);
                }
                ("valid-before", Some(at)) => {
                    once(options.before.is_some())?;
                    options.before = Some(time(at, zone)?);
                }
                _ => return Err("it has an option that is not known, or no key"),
            }
        }
        match (options.after, options.before) {
            (Some(after), Some(before)) if before <= after => Err("its valid-before does not come after valid-after"),
            _ => Ok(options),
        }
    }
}

/// The public key that a text begins with: nothing when it does not look like one, an error for a type that is not known.
fn key(text: &str) -> Option<Result<KeyData, ()>> {
    let mut words = text.split([' ', '\t']).filter(|word| !word.is_empty());
    let (kind, data) = (words.next()?, words.next()?);
    match PublicKey::from_openssh(&format!("{kind} {data}")) {
        Ok(key) => Some(Ok(key.key_data().clone())),
        // Every key begins with the length of its type's name, 00 00 00 xx.
        Err(_) if data.starts_with("AAAA") && !kind.contains(['=', ',']) => Some(Err(())),
        Err(_) => None,
    }
}

/// The first word, which may hold white space between double quotes, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => {
                let (word, rest) = text.split_at(at);
                return Some((word, rest.trim_start()));
            }
            _ => {}
        }
    }
    (!quoted).then_some((text, ""))
}

fn split_outside_quotes(text: &str) -> Vec<&str> {
    let mut quoted = false;
    text.split(|c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .collect()
}

fn unquoted(value: &str) -> Result<&str, &'static str> {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.filter(|inner| !inner.contains('"')).ok_or("the value of an option is not in quotes")
}

/// `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, in UTC when `Z` follows.
fn time(text: &str, zone: &impl TimeZone) -> Result<DateTime<Utc>, &'static str> {
    const WRONG: &str = "a time is not written as YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with or without Z";
    let (digits, utc) = match text.strip_suffix('Z') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(WRONG);
    }
    let naive = match digits.len() {
        8 => NaiveDate::parse_from_str(digits, "%Y%m%d").ok().and_then(|day| day.and_hms_opt(0, 0, 0)),
        12 => NaiveDateTime::parse_from_str(&format!("{digits}00"), "%Y%m%d%H%M%S").ok(),
        14 => NaiveDateTime::parse_from_str(digits, "%Y%m%d%H%M%S").ok(),
        _ => None,
    };
    let naive = naive.ok_or(WRONG)?;
    match utc {
        true => Ok(naive.and_utc()),
        // A time that the clock skips or shows twice: the earlier one.
        false => Ok(zone.from_local_datetime(&naive).earliest().ok_or(WRONG)?.with_timezone(&Utc)),
    }
}

/// Whether a list of patterns takes a text: one of them does, and none that begins with `!`.
fn matches_list(list: &str, text: &str) -> bool {
    let mut taken = false;
    for pattern in list.split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches_pattern(pattern, text) => return false,
            Some(_) => {}
            None => taken |= matches_pattern(pattern, text),
        }
    }
    taken
}

/// `*` stands for any characters, `?` for one.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where to go on when what follows the last `*` does not fit: that star takes one character more.
    let (mut at, mut star, mut read) = (0, None, 0);
    while let Some(c) = text.get(read) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(p) if p == c || *p == '?' => {
                at += 1;
                read += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, read) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9dG4kjRhQTtWTVzd2t27+t0DEHBPW7iOD23TUiYLio";

    fn data(key: &str) -> KeyData {
        PublicKey::from_openssh(key).unwrap().key_data().clone()
    }

    fn tokyo() -> FixedOffset {
        FixedOffset::east_opt(9 * 3600).unwrap()
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// What a file says of `KEY` in the name of a@x.org, at noon on 2026-06-15.
    fn standing(file: &str) -> Standing {
        let allowed = AllowedSigners::parse(file, &tokyo()).unwrap();
        allowed.standing(&data(KEY), "a@x.org", Some(at("2026-06-15T12:00:00Z")))
    }

    #[test]
    fn lines_that_allow() {
        for line in [
            format!("a@x.org {KEY}"),
            format!("# a comment\n\n  a@x.org\t{KEY} a comment at the end\r\n"),
            format!("b@x.org,a@x.org {KEY}"),
            format!("*@x.org {KEY}"),
            format!("a@?.org {KEY}"),
            format!("* {KEY}"),
            format!("\"a@x.org\" {KEY}"),
            format!("!b@x.org,* {KEY}"),
            format!("a@x.org namespaces=\"git,fdl\" {KEY}"),
            format!("a@x.org NameSpaces=\"f*\" {KEY}"),
            format!("a@x.org valid-after=\"20260615\",valid-before=\"20260616Z\" {KEY}"),
            format!("a@x.org valid-before=\"202606151200Z\" {KEY}"),
            format!("a@x.org valid-before=\"20260615210000\" {KEY}"),
            format!("a@x.org {OTHER}\nb@x.org {KEY}\na@x.org {KEY}"),
            format!("a@x.org ssh-future AAAAC3Nz\na@x.org {KEY}"),
        ] {
            assert_eq!(standing(&line), Standing::Allowed, "{line}");
        }
    }

    #[test]
    fn lines_that_do_not() {
        for (line, why) in [
            (format!("b@x.org {KEY}"), "allowed for b@x.org, not for a@x.org"),
            (format!("A@x.org {KEY}"), "not for a@x.org"),
            (format!("*,!a@x.org {KEY}"), "not for a@x.org"),
            (format!("!a@x.org {KEY}"), "not for a@x.org"),
            (format!("a@x.org.evil {KEY}"), "not for a@x.org"),
            (format!("a@x.org namespaces=\"git\" {KEY}"), "namespace fdl"),
            (format!("a@x.org namespaces=\"*,!fdl\" {KEY}"), "namespace fdl"),
            (format!("a@x.org valid-before=\"20260615\" {KEY}"), "was valid until 2026-06-14 15:00:00 UTC"),
            (format!("a@x.org valid-before=\"20260615115959Z\" {KEY}"), "was valid until"),
            (format!("a@x.org valid-after=\"20260615120001Z\" {KEY}"), "is valid from"),
            (format!("a@x.org cert-authority {KEY}"), "certificate authority"),
        ] {
            match standing(&line) {
                Standing::Refused(said) => assert!(said.contains(why), "{line}: {said}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        for line in ["", "# nobody", &format!("a@x.org {OTHER}"), "a@x.org ssh-future AAAAC3Nz"] {
            assert_eq!(standing(line), Standing::Unknown, "{line}");
        }
        let allowed = AllowedSigners::parse(&format!("a@x.org valid-after=\"20200101\" {KEY}"), &tokyo()).unwrap();
        assert!(matches!(allowed.standing(&data(KEY), "a@x.org", None), Standing::Refused(_)), "no time, no window");
    }

    #[test]
    fn lines_that_are_not_understood() {
        for line in [
            "a@x.org".to_owned(),
            KEY.to_owned(),
            format!("a@x.org nonsense {KEY}"),
            format!("a@x.org no-touch-required {KEY}"),
            format!("a@x.org namespaces=fdl {KEY}"),
            format!("a@x.org namespaces=\"fdl {KEY}"),
            format!("a@x.org namespaces=\"fdl\",namespaces=\"x\" {KEY}"),
            format!("a@x.org cert-authority=\"x\" {KEY}"),
            format!("a@x.org namespaces {KEY}"),
            format!("a@x.org valid-before=\"tomorrow\" {KEY}"),
            format!("a@x.org valid-before=\"2026061\" {KEY}"),
            format!("a@x.org valid-before=\"20261399\" {KEY}"),
            format!("a@x.org valid-after=\"20260102\",valid-before=\"20260101\" {KEY}"),
            "a@x.org namespaces=\"fdl\" ssh-ed25519".to_owned(),
            "a@x.org ssh-ed25519 not-base64".to_owned(),
        ] {
            let parsed = AllowedSigners::parse(&line, &tokyo());
            assert!(matches!(parsed, Err(FormatError::BadValue { .. })), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn lines_of_settings_are_taken_as_far_as_they_go() {
        let lines = ["nonsense".to_owned(), format!("a@x.org {KEY}"), format!("*@x.org {KEY}")];
        let listed = AllowedSigners::of_lines(&lines, &tokyo());
        assert_eq!(listed.names_of(&data(KEY)).collect::<Vec<_>>(), ["a@x.org", "*@x.org"]);
        assert_eq!(listed.names_of(&data(OTHER)).count(), 0);
    }

    #[test]
    fn patterns() {
        for (pattern, text) in [("", ""), ("*", ""), ("a*b*c", "a.b.b.c"), ("*b", "abab"), ("??", "町a"), ("a**", "a")]
        {
            assert!(matches_pattern(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("?", ""), ("a*b", "abc"), ("*b", "aba"), ("a", "ab"), ("ab", "a")] {
            assert!(!matches_pattern(pattern, text), "{pattern} {text}");
        }
        // Takes time in proportion to both, whatever the pattern.
        assert!(!matches_pattern(&"*a".repeat(500), &"a".repeat(499)));
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "[ -~\t\n町]{0,80}", options in "[a-z=\",!*0-9Z -]{0,40}") {
            drop(AllowedSigners::parse(&text, &tokyo()));
            drop(AllowedSigners::parse(&format!("a@x.org {options} {KEY}"), &tokyo()));
        }

        #[test]
        fn the_same_text_is_taken_with_and_without_stars(text in "[ab]{0,12}", cut in 0_usize..12) {
            let (before, after) = text.split_at(cut.min(text.len()));
            let pattern = format!("{before}*{after}");
            prop_assert!(matches_pattern(&pattern, &text));
        }
    }
}
