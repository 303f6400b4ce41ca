//! The files that AWS tools share: `~/.aws/config` and `~/.aws/credentials`.

use std::collections::BTreeMap;

/// The settings of one profile, by their names in lower case. The credentials file wins over the config file.
pub(super) type Profile = BTreeMap<String, String>;

/// The settings of a profile, out of the contents of both files; none when neither has it.
pub(super) fn profile(name: &str, config: Option<&str>, credentials: Option<&str>) -> Option<Profile> {
    // `[default]` and `[profile name]` in the one file, `[default]` and `[name]` in the other.
    let in_config = |section: &str| match section.split_once(char::is_whitespace) {
        Some(("profile", rest)) => rest.trim() == name,
        _ => section == name && name == "default",
    };
    let sections = [
        config.and_then(|text| section(text, in_config)),
        credentials.and_then(|text| section(text, |section| section == name)),
    ];
    sections.into_iter().flatten().reduce(|mut all, more| {
        all.extend(more);
        all
    })
}

/// The settings of the sections whose names fit. Lines that are indented belong to a setting of their own and are left out.
fn section(text: &str, fits: impl Fn(&str) -> bool) -> Option<Profile> {
    let mut found = None;
    let mut inside = false;
    for line in text.lines() {
        let whole = line.trim();
        if whole.is_empty() || whole.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = whole.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = fits(name.trim());
            if inside {
                found.get_or_insert_with(Profile::new);
            }
        } else if let (true, false, Some((key, value))) =
            (inside, line.starts_with(char::is_whitespace), whole.split_once('='))
        {
            // A comment after a value begins with a space.
            let value = value.split(" #").next().unwrap_or_default();
            let value = value.split(" ;").next().unwrap_or_default().trim();
            found.get_or_insert_with(Profile::new).insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# a comment\n[default]\nregion = eu-west-1 # here\ns3 =\n  endpoint_url = http://nested\n\n\
        [profile lab]\nRegion=lab-1\nendpoint_url = http://localhost:9000/?a=b\naws_access_key_id = old\n[lab]\nregion = no\n\
        [services lab]\nregion = no\n[ profile  odd name ]\nregion = x\n";
    const CREDENTIALS: &str = "\u{feff}\n[default]\naws_access_key_id = AK\naws_secret_access_key = s+e/c=ret\n; no\n\
        [lab]\naws_access_key_id=LAB\naws_secret_access_key=labsecret\n[empty]\n";

    fn value(name: &str, key: &str) -> Option<String> {
        profile(name, Some(CONFIG), Some(CREDENTIALS))?.get(key).cloned()
    }

    #[test]
    fn reads_both_files() {
        assert_eq!(value("default", "region").as_deref(), Some("eu-west-1"));
        assert_eq!(value("default", "aws_access_key_id").as_deref(), Some("AK"));
        assert_eq!(value("default", "aws_secret_access_key").as_deref(), Some("s+e/c=ret"));
        assert_eq!(value("default", "endpoint_url"), None);
        assert_eq!(value("lab", "region").as_deref(), Some("lab-1"));
        assert_eq!(value("lab", "endpoint_url").as_deref(), Some("http://localhost:9000/?a=b"));
        assert_eq!(value("lab", "aws_access_key_id").as_deref(), Some("LAB"));
        assert_eq!(value("odd name", "region").as_deref(), Some("x"));
        assert_eq!(profile("empty", Some(CONFIG), Some(CREDENTIALS)), Some(Profile::new()));
        assert_eq!(profile("absent", Some(CONFIG), Some(CREDENTIALS)), None);
        assert_eq!(profile("default", None, None), None);
    }
}
