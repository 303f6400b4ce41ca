//! Who makes a version (docs/sql.md): `FDL_AUTHOR`, then Git's identity, then the user of this machine.

use std::env;
use std::process::{Command, Stdio};

/// The author where the call names none.
pub(super) fn default_author() -> String {
    let given = env::var("FDL_AUTHOR").ok().map(|text| text.trim().to_owned());
    given.filter(|author| !author.is_empty()).or_else(from_git).unwrap_or_else(from_machine)
}

fn from_git() -> Option<String> {
    let get = |key: &str| {
        let output = Command::new("git")
            .args(["config", "--get", key])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    Some(format!("{} <{}>", get("user.name")?, get("user.email")?))
}

fn from_machine() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| env::var(name).ok());
    let host = std::fs::read_to_string("/etc/hostname").ok().map(|name| name.trim().to_owned());
    let host = env::var("HOSTNAME").ok().or(host).filter(|host| !host.is_empty());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host.unwrap_or_else(|| "localhost".to_owned()))
}
