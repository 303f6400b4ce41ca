//! Opening a repository's store with what the session knows, and letting DuckDB itself read what the store does.
//!
//! Credentials come from the first of: the call's `token`, the session's DuckDB secret for the path (where DuckDB lets it
//! be read), the environment and what the machine offers (docs/format.md section 13). None is ever written to a file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::place::expand;
use super::{Code, Context, Error};
use crate::engine::{Connection, Sql, identifier, literal, sql};
use crate::format::Sha256;
use crate::lake;
use crate::store::{self, OpenOptions, S3Options, S3Store, Store, StoreError};

/// How the names of secrets begin that fdl makes.
const OURS: &str = "__fdl_";

/// A store, and how DuckDB gets at it.
#[derive(Clone)]
pub(super) struct Access {
    /// The store.
    pub(super) store: Arc<dyn Store>,
    way: Way,
}

/// How DuckDB gets at the files of a store.
#[derive(Clone)]
enum Way {
    /// By their paths.
    Files,
    /// By S3, with what the store found out.
    S3(Arc<S3Store>),
    /// By HTTP, with this token.
    Http(Option<String>),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Opens the store of a location.
pub(super) fn open(
    context: &Context,
    connection: &Connection,
    location: &str,
    token: Option<&str>,
) -> Result<Access, Error> {
    // Where a store is is shown and written down; who asks is not.
    if let Some((location, credentials)) = store::split_credentials(location) {
        return open(context, connection, &location, token.or(Some(&credentials)));
    }
    let scheme = location.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        None => {
            let store = store::open(&expand(location).to_string_lossy()).map_err(|error| match error {
                // A path that no system takes is no location.
                StoreError::BadKey { why, .. } => StoreError::BadLocation { location: location.to_owned(), why },
                error => error,
            })?;
            Ok(Access { store, way: Way::Files })
        }
        Some("s3") => {
            let secret = secret(connection, location, "s3");
            let has_other = secret.is_none() && has_secret(connection, location, "s3")?;
            // DuckDB passes over its settings where there is a secret.
            let given = secret.clone().or_else(|| settings(connection).filter(|_| !has_other)).unwrap_or_default();
            let s3 = Arc::new(S3Store::open(location, &s3_options(&given))?);
            if secret.is_none() && has_secret(connection, location, "s3")? {
                require_other_keys(context, &s3)?;
            }
            Ok(Access { store: Arc::clone(&s3) as Arc<dyn Store>, way: Way::S3(s3) })
        }
        Some("http" | "https") => {
            let token = match token {
                Some(token) => {
                    context.remember_token(location, token);
                    Some(token.to_owned())
                }
                None => context.token_for(location).or_else(|| {
                    secret(connection, location, "http").and_then(|mut secret| secret.remove("bearer_token"))
                }),
            };
            let extra = secret(connection, location, "http").and_then(|mut secret| secret.remove("extra_http_headers"));
            let headers = extra.map(|text| map_of(&text)).unwrap_or_default();
            // An empty token is one too: anonymous on purpose.
            let token = token.or_else(|| std::env::var("FDL_TOKEN").ok());
            let store =
                store::open_with(location, &OpenOptions { token: token.clone(), headers, ..OpenOptions::default() })?;
            Ok(Access { store, way: Way::Http(token.filter(|token| !token.is_empty())) })
        }
        Some(_) => Ok(Access { store: store::open(location)?, way: Way::Files }),
    }
}

impl Access {
    /// Whether the store is behind HTTP, where DuckDB can read and not write.
    pub(super) fn is_http(&self) -> bool {
        matches!(self.way, Way::Http(_))
    }

    /// What tells this store from others, for what is remembered of it; none for a folder of this machine.
    pub(super) fn identity(&self) -> Option<String> {
        let location = self.store.location();
        match &self.way {
            Way::Files => None,
            Way::S3(s3) => Some(format!("{} {location}", s3.endpoint().unwrap_or_default())),
            Way::Http(_) => Some(location.to_owned()),
        }
    }

    /// The store, where it is in S3.
    pub(super) fn s3(&self) -> Option<Arc<S3Store>> {
        match &self.way {
            Way::S3(s3) => Some(Arc::clone(s3)),
            Way::Files | Way::Http(_) => None,
        }
    }

    /// Makes sure that statements of this session can read the repository's files: loads httpfs and, where the session has
    /// no secret for the path, makes a temporary one for it.
    pub(super) fn let_duckdb_read(&self, context: &Context, connection: &Connection) -> Result<(), Error> {
        let location = self.store.location();
        let (kind, settings) = match &self.way {
            Way::Files => return Ok(()),
            Way::S3(s3) => {
                lake::load_httpfs(connection)?;
                if has_secret(connection, location, "s3")? {
                    return Ok(());
                }
                (sql!("s3"), s3_settings(&context.block_on(s3.session())??))
            }
            Way::Http(token) => {
                lake::load_httpfs(connection)?;
                match token {
                    Some(token) if !has_secret(connection, location, "http")? => (sql!("http"), http_settings(token)),
                    _ => return Ok(()),
                }
            }
        };
        let name = format!("{OURS}{}", Sha256::of(location.as_bytes()).to_string().get(..16).unwrap_or_default());
        let made = connection.execute_with(
            sql!(
                "CREATE OR REPLACE TEMPORARY SECRET {name} (TYPE {kind}, SCOPE {scope}, {settings})",
                name = identifier(&name),
                kind,
                scope = literal(&format!("{location}/")),
                settings = Sql::join(&settings.settings, ", ")
            ),
            &settings.values,
        );
        // DuckDB's message could repeat the statement.
        made.map_err(|_| {
            Error::new(
                Code::DuckDb,
                format!("DuckDB does not take a secret for {location}"),
                "CREATE SECRET for the location yourself, then call again.",
            )
        })
    }
}

/// The settings of a secret. What is secret in them is a value of the statement and no part of its text, which DuckDB may log.
#[derive(Default)]
struct SecretSettings {
    settings: Vec<Sql>,
    values: Vec<String>,
}

impl SecretSettings {
    /// Adds a setting whose template has a `?` for the secret.
    fn secret(&mut self, setting: Sql, value: &str) {
        self.settings.push(setting);
        self.values.push(value.to_owned());
    }
}

/// A token, or a user and a password, as a secret says them.
fn http_settings(token: &str) -> SecretSettings {
    let mut made = SecretSettings::default();
    let setting = match token.starts_with("Basic ") {
        true => sql!("EXTRA_HTTP_HEADERS MAP {{'Authorization': ?}}"),
        false => sql!("BEARER_TOKEN ?"),
    };
    made.secret(setting, token);
    made
}

fn s3_settings(session: &store::S3Session) -> SecretSettings {
    let mut made = SecretSettings::default();
    made.settings.push(sql!("REGION {region}", region = literal(&session.region)));
    if let Some(keys) = &session.keys {
        made.settings.push(sql!("KEY_ID {id}", id = literal(&keys.access_key_id)));
        made.secret(sql!("SECRET ?"), &keys.secret_access_key);
        if let Some(token) = &keys.session_token {
            made.secret(sql!("SESSION_TOKEN ?"), token);
        }
    }
    let endpoint = session.endpoint.iter();
    made.settings.extend(endpoint.map(|endpoint| sql!("ENDPOINT {endpoint}", endpoint = literal(endpoint))));
    made.settings.push(if session.path_style { sql!("URL_STYLE 'path'") } else { sql!("URL_STYLE 'vhost'") });
    made.settings.push(sql!("USE_SSL {use_ssl}", use_ssl = session.use_ssl));
    made
}

/// DuckDB keeps secrets to itself unless the database was opened to tell them.
fn require_other_keys(context: &Context, s3: &S3Store) -> Result<(), Error> {
    match context.block_on(s3.session())?? {
        session if session.keys.is_some() => Ok(()),
        _ => Err(Error::new(
            Code::Permission,
            format!("the session has a secret for {} that fdl may not read", s3.location()),
            "open the database with allow_unredacted_secrets = true, or set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY in the environment.",
        )),
    }
}

/// The fields of the secret that DuckDB would use for a path; nothing when there is none or it may not be read.
fn secret(connection: &Connection, location: &str, kind: &str) -> Option<BTreeMap<String, String>> {
    let name = connection.query(which_secret(location, kind)).ok()?.first()?.text(0).ok()?.to_owned();
    // One of ours says only what was found before, and credentials end.
    if name.starts_with(OURS) {
        return None;
    }
    let rows = connection.query(sql!(
        "SELECT secret_string FROM duckdb_secrets(redact := false) WHERE name = {name} LIMIT 1",
        name = literal(&name)
    ));
    Some(fields(rows.ok()?.first()?.text(0).ok()?))
}

/// What `SET s3_…` says in this session, by the names that secrets use; nothing when it says neither keys nor a place.
fn settings(connection: &Connection) -> Option<BTreeMap<String, String>> {
    let rows = connection
        .query(sql!(
            "SELECT name, value FROM duckdb_settings() WHERE name LIKE 's3\\_%' ESCAPE '\\' AND value IS NOT NULL"
        ))
        .ok()?;
    let mut settings: BTreeMap<String, String> = rows
        .iter()
        .filter_map(|row| {
            let name = match row.text(0).ok()? {
                "s3_access_key_id" => "key_id",
                "s3_secret_access_key" => "secret",
                "s3_session_token" => "session_token",
                "s3_region" => "region",
                "s3_endpoint" => "endpoint",
                "s3_url_style" => "url_style",
                "s3_use_ssl" => "use_ssl",
                _ => return None,
            };
            Some((name.to_owned(), row.text(1).ok()?.to_owned()))
        })
        // AWS itself is what older releases name when nobody set it.
        .filter(|(_, value)| !value.is_empty() && value != "s3.amazonaws.com")
        .collect();
    // DuckDB takes keys and region from the environment, as fdl does: only what differs was set here. The style and TLS have
    // values when nobody set them, and speak of the endpoint.
    let keys = settings.get("key_id").is_some_and(|key| std::env::var("AWS_ACCESS_KEY_ID").ok().as_ref() != Some(key));
    if settings.contains_key("endpoint") {
        return Some(settings);
    }
    settings.retain(|name, _| !matches!(name.as_str(), "url_style" | "use_ssl"));
    keys.then_some(settings)
}

fn has_secret(connection: &Connection, location: &str, kind: &str) -> Result<bool, Error> {
    let found = connection.query(which_secret(location, kind))?;
    // Ours is made anew each time: credentials end.
    Ok(found.first().is_some_and(|row| row.text(0).is_ok_and(|name| !name.starts_with(OURS))))
}

fn which_secret(location: &str, kind: &str) -> Sql {
    sql!(
        "SELECT name FROM which_secret({path}, {kind})",
        path = literal(&format!("{location}/x")),
        kind = literal(kind)
    )
}

/// Takes apart `name=a;type=s3;key_id=…`. A value may hold `;`, so that only a known name begins a field.
fn fields(text: &str) -> BTreeMap<String, String> {
    const NAMES: [&str; 21] = [
        "name",
        "type",
        "provider",
        "serializable",
        "scope",
        "endpoint",
        "key_id",
        "secret",
        "session_token",
        "region",
        "url_style",
        "use_ssl",
        "bearer_token",
        "kms_key_id",
        "url_compatibility_mode",
        "refresh_info",
        "extra_http_headers",
        "http_proxy",
        "http_proxy_username",
        "http_proxy_password",
        "verify_ssl",
    ];
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for part in text.split(';') {
        match (part.split_once('=').filter(|(name, _)| NAMES.contains(name)), &last) {
            (Some((name, value)), _) => {
                fields.insert(name.to_owned(), value.to_owned());
                last = Some(name.to_owned());
            }
            (None, Some(name)) => {
                if let Some(value) = fields.get_mut(name) {
                    value.push(';');
                    value.push_str(part);
                }
            }
            (None, None) => {}
        }
    }
    fields
}

/// Takes apart `{name=value, other='a, value'}`, as DuckDB prints a map of texts.
fn map_of(text: &str) -> Vec<(String, String)> {
    let mut rest = text.trim().trim_start_matches('{').trim_end_matches('}');
    let mut pairs = Vec::new();
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('\'') {
            Some(quoted) => end_of_quoted(quoted),
            None => after.split_once(", ").map_or((after.to_owned(), ""), |(value, after)| (value.to_owned(), after)),
        };
        pairs.push((name.trim().trim_matches('\'').to_owned(), value));
        rest = after.trim_start_matches(',').trim_start();
    }
    pairs
}

/// A text up to its closing quote, and what follows that.
fn end_of_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' => return (value, text.get(at + 1..).unwrap_or_default()),
            c => value.push(c),
        }
    }
    (value, "")
}

fn s3_options(secret: &BTreeMap<String, String>) -> S3Options {
    let text = |name: &str| secret.get(name).filter(|value| !value.is_empty()).cloned();
    S3Options {
        access_key_id: text("key_id"),
        secret_access_key: text("secret"),
        session_token: text("session_token"),
        region: text("region"),
        endpoint: text("endpoint"),
        path_style: text("url_style").map(|style| style == "path"),
        use_ssl: text("use_ssl").map(|value| value != "false" && value != "0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_headers_are_taken_apart() {
        let text = "name=h;type=http;bearer_token=tok;extra_http_headers={Authorization='Basic abc=', X-A='a, b;c=d', X-B=e};verify_ssl=1";
        let headers = map_of(&fields(text)["extra_http_headers"]);
        let expected = [("Authorization", "Basic abc="), ("X-A", "a, b;c=d"), ("X-B", "e")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(map_of("{X='it\\'s'}"), [("X".to_owned(), "it's".to_owned())]);
        assert_eq!(map_of("{}"), []);
    }

    #[test]
    fn a_secret_is_taken_apart() {
        let fields = fields(
            "name=a;type=s3;scope=s3://b/lake;endpoint=localhost:9;key_id=ki;d=x;secret=se'c;url_style=path;use_ssl=false",
        );
        let options = s3_options(&fields);
        assert_eq!(options.access_key_id.as_deref(), Some("ki;d=x"));
        assert_eq!(options.secret_access_key.as_deref(), Some("se'c"));
        assert_eq!(options.endpoint.as_deref(), Some("localhost:9"));
        assert_eq!((options.path_style, options.use_ssl, options.region), (Some(true), Some(false), None));
    }
}
