//! `fdl_serve(repository)`: serves a repository over HTTP, in the background.

use std::io::Write;
use std::sync::Arc;

use super::{catalog_files, column, flag, number, text};
use crate::format::DataDir;
use crate::host::{Host, HostError, HostOptions, MoveRefs, SignedUrls, Token};
use crate::lake;
use crate::repo::{RepoError, Repository};
use crate::sql::place::of_call;
use crate::sql::trust::allowed_signers;
use crate::sql::{Arguments, Code, ColumnType, Command, Context, Error, Output, Value};

/// Where a host listens when the call does not say: this machine alone can reach it.
const ADDRESS: &str = "127.0.0.1:8080";

pub(super) const COMMAND: Command = Command {
    name: "fdl_serve",
    positional: Some("repository"),
    named: &[
        text("address"),
        text("read_token"),
        text("write_token"),
        text("move_refs"),
        number("max_upload"),
        number("max_catalog"),
        text("allowed_signers"),
        flag("log"),
    ],
    columns: &[column("address", ColumnType::Text), column("url", ColumnType::Text)],
    run,
};

fn run(context: &Context, arguments: &Arguments) -> Result<Output, Error> {
    let place = of_call(context, arguments)?;
    let mut options = HostOptions::new(arguments.text("address").unwrap_or(ADDRESS));
    options.read_token = token(arguments, "read_token")?;
    options.write_token = token(arguments, "write_token")?;
    options.move_refs = match arguments.text("move_refs") {
        None | Some("writers") => MoveRefs::Writers,
        Some("nobody") => MoveRefs::Nobody,
        Some(other) => {
            return Err(Error::bad_argument(format!("move_refs is {other:?}; it is 'writers' or 'nobody'")));
        }
    };
    if let Some(max_upload) = arguments.count("max_upload")? {
        options.max_upload = max_upload;
    }
    if let Some(max_catalog) = arguments.count("max_catalog")? {
        options.max_catalog = max_catalog;
    }
    options.allowed_signers = allowed_signers(arguments)?;
    if arguments.boolean("log") || is_asked_for_log() {
        options.log = Some(Arc::new(to_stderr));
    }
    let data_dir = match context.block_on(Repository::open(Arc::clone(&place.access.store)))? {
        Ok(repository) => repository.settings().data_dir.clone(),
        // Whoever holds the write token starts the repository.
        Err(RepoError::NotARepository { .. }) if options.write_token.is_some() => DataDir::default(),
        Err(error) => return Err(error.into()),
    };
    // Without ducklake in the session the host believes files.json.
    if lake::load_extensions(&*context.connection()?).is_ok() {
        options.catalog_files = Some(Arc::new(catalog_files(&data_dir)));
    }
    if let Some(s3) = place.access.s3() {
        options.upload_urls = Some(Arc::new(SignedUrls::new(s3, Arc::clone(&options.clock))));
    }
    let location = place.access.store.location().to_owned();
    let host = Host::start(place.access.store, options, context.runtime()?.handle())?;
    let (address, url) = (host.address().to_string(), host.url());
    context.add_host(host, location);
    Ok(Output::row([Value::from(address), Value::from(url)]))
}

/// Whether the environment asks for the log of hosts: `FDL_LOG=host`, also among other words.
fn is_asked_for_log() -> bool {
    std::env::var("FDL_LOG").is_ok_and(|words| words.split([',', ' ']).any(|word| word == "host"))
}

/// A line of the log. Nobody can be told that it cannot be written.
fn to_stderr(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

fn token(arguments: &Arguments, name: &str) -> Result<Option<Token>, Error> {
    Ok(arguments.text(name).map(Token::new).transpose()?)
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        let sentence = error.to_string();
        match error {
            HostError::Listen { .. } => Self::new(
                Code::BadArgument,
                sentence,
                "choose another port with address := '127.0.0.1:0', which takes a free one.",
            ),
            HostError::BadToken => {
                Self::new(Code::BadArgument, sentence, "choose a longer random text without spaces.")
            }
        }
    }
}
