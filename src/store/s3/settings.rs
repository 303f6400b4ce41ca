//! Where a bucket is and with which credentials, from what was given and what the machine knows (format.md section 13).

use std::path::{Path, PathBuf};

use url::Url;

use super::options::{S3Keys, S3Options};
use super::profile::{Profile, profile};

/// Where credentials come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Keys(S3Keys),
    /// A role that is taken with the token in a file.
    WebIdentity {
        token_file: String,
        role_arn: String,
        session_name: Option<String>,
    },
    /// A path of the service of ECS.
    Container(String),
    /// The service of EKS, and the file with the token for it.
    Pod {
        url: String,
        token_file: String,
    },
    /// The service of an instance, if there is one; otherwise none.
    Instance,
    None,
}

/// A settled answer to all of [`S3Options`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) credentials: Credentials,
    pub(super) region: Option<String>,
    /// Without the bucket and without `/` at its end; none for AWS itself.
    pub(super) endpoint: Option<Url>,
    pub(super) path_style: Option<bool>,
}

/// The machine, as far as it has a say.
pub(super) struct Machine<'a> {
    /// A variable of the environment.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The content of a file, if it can be read.
    pub(super) file: &'a dyn Fn(&Path) -> Option<String>,
}

impl Machine<'_> {
    /// A variable that says something.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn shared_file(&self, variable: &str, name: &str) -> Option<String> {
        let path = match self.get(variable) {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(self.get("HOME").or_else(|| self.get("USERPROFILE"))?).join(".aws").join(name),
        };
        (self.file)(&path)
    }

    fn profile(&self) -> Result<Profile, String> {
        let named = self.get("AWS_PROFILE");
        let name = named.as_deref().unwrap_or("default");
        let config = self.shared_file("AWS_CONFIG_FILE", "config");
        let credentials = self.shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        match (profile(name, config.as_deref(), credentials.as_deref()), named) {
            (Some(profile), _) => Ok(profile),
            (None, None) => Ok(Profile::new()),
            (None, Some(name)) => Err(format!("AWS_PROFILE names {name:?}, which is in no shared file of AWS")),
        }
    }
}

/// Answers what `options` leave open. An error says what is set in a way that makes no sense.
pub(super) fn settle(options: &S3Options, machine: &Machine<'_>) -> Result<Settings, String> {
    let given = match &options.access_key_id {
        Some(_) => true,
        None if options.secret_access_key.is_some() => {
            return Err("a secret key was given without its access key".to_owned());
        }
        None => false,
    };
    // A profile that makes no sense must not stand in the way of what wins over it.
    let profile = match machine.profile() {
        Err(_) if given || machine.get("AWS_ACCESS_KEY_ID").is_some() => Profile::new(),
        profile => profile?,
    };
    let credentials = match given {
        true => given_keys(options)?,
        false => found_keys(machine, &profile)?,
    };
    let region = options.region.clone().filter(|region| !region.is_empty());
    let region = region.or_else(|| machine.get("AWS_REGION")).or_else(|| machine.get("AWS_DEFAULT_REGION"));
    let region = region.or_else(|| profile.get("region").cloned());
    let endpoint = options.endpoint.clone().filter(|endpoint| !endpoint.is_empty());
    let endpoint = endpoint.or_else(|| machine.get("AWS_ENDPOINT_URL_S3")).or_else(|| machine.get("AWS_ENDPOINT_URL"));
    let endpoint = endpoint.or_else(|| profile.get("endpoint_url").cloned());
    let endpoint = match endpoint {
        Some(endpoint) => parse_endpoint(&endpoint, options.use_ssl.unwrap_or(true))?,
        None => None,
    };
    check(region.as_deref(), "the region")?;
    if let Credentials::Keys(keys) = &credentials {
        check(Some(&keys.access_key_id), "the access key")?;
        check(Some(&keys.secret_access_key), "the secret key")?;
        check(keys.session_token.as_deref(), "the session token")?;
    }
    Ok(Settings { credentials, region, endpoint, path_style: options.path_style })
}

/// These go into headers.
fn check(text: Option<&str>, what: &str) -> Result<(), String> {
    match text.is_none_or(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())) {
        true => Ok(()),
        false => Err(format!("{what} is empty or holds a space or another character that cannot be part of it")),
    }
}

fn given_keys(options: &S3Options) -> Result<Credentials, String> {
    match (
        options.access_key_id.as_deref().unwrap_or_default(),
        options.secret_access_key.as_deref().unwrap_or_default(),
    ) {
        ("", "") => Ok(Credentials::None),
        ("", _) => Err("a secret key was given without its access key".to_owned()),
        (_, "") => Err("an access key was given without its secret key".to_owned()),
        (key, secret) => Ok(keys(key, secret, options.session_token.clone())),
    }
}

fn keys(key: &str, secret: &str, token: Option<String>) -> Credentials {
    let session_token = token.filter(|token| !token.is_empty());
    Credentials::Keys(S3Keys { access_key_id: key.to_owned(), secret_access_key: secret.to_owned(), session_token })
}

fn found_keys(machine: &Machine<'_>, profile: &Profile) -> Result<Credentials, String> {
    match (machine.get("AWS_ACCESS_KEY_ID"), machine.get("AWS_SECRET_ACCESS_KEY")) {
        (Some(key), Some(secret)) => return Ok(keys(&key, &secret, machine.get("AWS_SESSION_TOKEN"))),
        (None, None) => {}
        (Some(_), None) => return Err("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY".to_owned()),
        (None, Some(_)) => return Err("AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID".to_owned()),
    }
    let of_profile = |key: &str| profile.get(key).filter(|value| !value.is_empty()).cloned();
    if let (Some(key), Some(secret)) = (of_profile("aws_access_key_id"), of_profile("aws_secret_access_key")) {
        return Ok(keys(&key, &secret, of_profile("aws_session_token")));
    }
    let role = |token_file, role_arn, session_name| Credentials::WebIdentity { token_file, role_arn, session_name };
    if let (Some(file), Some(arn)) = (machine.get("AWS_WEB_IDENTITY_TOKEN_FILE"), machine.get("AWS_ROLE_ARN")) {
        return Ok(role(file, arn, machine.get("AWS_ROLE_SESSION_NAME")));
    }
    if let (Some(file), Some(arn)) = (of_profile("web_identity_token_file"), of_profile("role_arn")) {
        return Ok(role(file, arn, of_profile("role_session_name")));
    }
    // Silence here would end in a refusal that nobody can explain.
    for setting in ["credential_process", "sso_session", "sso_start_url", "source_profile", "credential_source"] {
        if profile.contains_key(setting) {
            return Err(format!(
                "the AWS profile gets its credentials by {setting}, which fdl does not do; \
                 `aws configure export-credentials --format env` prints some that it reads"
            ));
        }
    }
    if let Some(path) = machine.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Ok(Credentials::Container(path));
    }
    let pod =
        (machine.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"), machine.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
    match pod {
        (Some(url), Some(token_file)) => return Ok(Credentials::Pod { url, token_file }),
        // Silence would end in a long look for another service.
        (Some(_), None) => {
            return Err(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is set without AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, and fdl \
                        asks such a service with the token of that file alone"
                    .to_owned(),
            );
        }
        (None, _) => {}
    }
    let disabled = machine.get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Ok(if disabled { Credentials::None } else { Credentials::Instance })
}

/// A URL, or a host as DuckDB's secrets name it. None for AWS itself.
fn parse_endpoint(endpoint: &str, use_ssl: bool) -> Result<Option<Url>, String> {
    let wrong = || format!("the endpoint {endpoint:?} is no URL of a service, such as https://storage.example.org");
    let scheme = if use_ssl { "https" } else { "http" };
    let text = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("{scheme}://{endpoint}"),
    };
    // What stands before an @ is a secret, and would be part of messages.
    let url = Url::parse(text.trim_end_matches('/')).map_err(|_| wrong())?;
    let plain = url.username().is_empty() && url.password().is_none();
    if !plain {
        return Err("an endpoint holds no user and no password".to_owned());
    }
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() || url.query().or(url.fragment()).is_some() {
        return Err(wrong());
    }
    Ok(Some(url).filter(|url| url.host_str() != Some("s3.amazonaws.com")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle_with(
        options: &S3Options,
        variables: &[(&str, &str)],
        files: &[(&str, &str)],
    ) -> Result<Settings, String> {
        let find =
            |name: &str, of: &[(&str, &str)]| of.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned());
        let variable = |name: &str| find(name, variables);
        let file = |path: &Path| find(path.to_str()?, files);
        settle(options, &Machine { variable: &variable, file: &file })
    }

    fn key_of(settings: Result<Settings, String>) -> String {
        match settings.unwrap().credentials {
            Credentials::Keys(keys) => keys.access_key_id,
            other => format!("{other:?}"),
        }
    }

    const FILES: &[(&str, &str)] = &[
        (
            "/h/.aws/credentials",
            "[default]\naws_access_key_id=DEF\naws_secret_access_key=s\n[p]\naws_access_key_id=P\naws_secret_access_key=s",
        ),
        (
            "/h/.aws/config",
            "[default]\nregion=r-def\n[profile sso]\nsso_session=x\n[profile web]\nweb_identity_token_file=/t\nrole_arn=a\nendpoint_url=http://e/",
        ),
    ];

    #[test]
    fn takes_the_first_credentials_that_fit() {
        let given = S3Options {
            access_key_id: Some("GIVEN".to_owned()),
            secret_access_key: Some("s".to_owned()),
            ..S3Options::default()
        };
        let environment =
            [("HOME", "/h"), ("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_PROFILE", "none")];
        let none = S3Options::default();
        assert_eq!(key_of(settle_with(&given, &environment, FILES)), "GIVEN");
        assert_eq!(key_of(settle_with(&none, &environment, FILES)), "ENV");
        assert_eq!(key_of(settle_with(&none, &environment[..1], FILES)), "DEF");
        assert_eq!(key_of(settle_with(&none, &[("HOME", "/h"), ("AWS_PROFILE", "p")], FILES)), "P");
        let web = settle_with(&none, &[("HOME", "/h"), ("AWS_PROFILE", "web")], FILES).unwrap();
        assert!(matches!(web.credentials, Credentials::WebIdentity { .. }));
        assert_eq!(web.endpoint.unwrap().as_str(), "http://e/");
        let container = settle_with(&none, &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")], FILES);
        assert_eq!(container.unwrap().credentials, Credentials::Container("/x".to_owned()));
        assert_eq!(settle_with(&none, &[], &[]).unwrap().credentials, Credentials::Instance);
        let disabled = settle_with(&none, &[("AWS_EC2_METADATA_DISABLED", "True")], &[]);
        assert_eq!(disabled.unwrap().credentials, Credentials::None);
        let anonymous = S3Options { access_key_id: Some(String::new()), ..S3Options::default() };
        assert_eq!(settle_with(&anonymous, &environment, FILES).unwrap().credentials, Credentials::None);
    }

    #[test]
    fn says_what_makes_no_sense() {
        let none = S3Options::default();
        for (variables, word) in [
            (vec![("AWS_ACCESS_KEY_ID", "x")], "AWS_SECRET_ACCESS_KEY"),
            (vec![("AWS_PROFILE", "absent")], "absent"),
            (vec![("HOME", "/h"), ("AWS_PROFILE", "sso")], "sso_session"),
            (vec![("AWS_ENDPOINT_URL", "ftp://x")], "endpoint"),
            (vec![("AWS_ENDPOINT_URL", "https://user:hush@x")], "endpoint"),
            (vec![("AWS_REGION", "eu\nwest")], "region"),
            (vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/x")], "TOKEN_FILE"),
        ] {
            let error = settle_with(&none, &variables, FILES).unwrap_err();
            assert!(error.contains(word) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn finds_the_place() {
        let place = |options: &S3Options, variables: &[(&str, &str)]| {
            let settings = settle_with(options, variables, FILES).unwrap();
            (settings.region.unwrap_or_default(), settings.endpoint.map(String::from).unwrap_or_default())
        };
        let none = S3Options::default();
        let environment =
            [("AWS_REGION", "r"), ("AWS_ENDPOINT_URL", "https://all"), ("AWS_ENDPOINT_URL_S3", "http://s3:9")];
        assert_eq!(place(&none, &environment), ("r".to_owned(), "http://s3:9/".to_owned()));
        assert_eq!(place(&none, &environment[..2]), ("r".to_owned(), "https://all/".to_owned()));
        assert_eq!(place(&none, &[("HOME", "/h")]), ("r-def".to_owned(), String::new()));
        let host = S3Options {
            endpoint: Some("localhost:9000".to_owned()),
            use_ssl: Some(false),
            region: Some("g".to_owned()),
            ..S3Options::default()
        };
        assert_eq!(place(&host, &environment), ("g".to_owned(), "http://localhost:9000/".to_owned()));
        let aws = S3Options { endpoint: Some("s3.amazonaws.com".to_owned()), ..S3Options::default() };
        assert_eq!(place(&aws, &environment).1, "");
    }

    #[test]
    fn hides_secrets() {
        let options = S3Options {
            access_key_id: Some("AK".to_owned()),
            secret_access_key: Some("hush".to_owned()),
            session_token: Some("hush".to_owned()),
            ..S3Options::default()
        };
        let settings = settle_with(&options, &[], &[]).unwrap();
        let shown = format!("{options:?} {settings:?}");
        assert!(shown.contains("AK") && !shown.contains("hush"), "{shown}");
    }
}
