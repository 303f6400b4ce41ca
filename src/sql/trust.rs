//! Signatures as calls ask for them: whom to trust, and what signs.

use std::io::ErrorKind;

use chrono::Local;

use super::place::expand;
use super::{Arguments, Code, Context, Error};
use crate::format::{AllowedSigners, Author, Settings, Status, Trust, VersionId, signer_of};
use crate::repo::{self, Checked, Repository};
use crate::sign::{Signer, read_keys};

/// The keys of the file that the call names.
pub(super) fn allowed_signers(arguments: &Arguments) -> Result<Option<AllowedSigners>, Error> {
    let Some(given) = arguments.text("allowed_signers") else {
        return Ok(None);
    };
    if given.trim().is_empty() {
        return Err(Error::bad_argument("allowed_signers is empty; it is the path of a file"));
    }
    let bytes = read_keys(&expand(given)).map_err(|error| {
        let code = match error.kind() {
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::PermissionDenied => Code::Permission,
            _ => Code::BadArgument,
        };
        let sentence = format!("allowed_signers: {given} cannot be read: {error}");
        Error::new(code, sentence, "give the path of a file with a line for each key, as docs/signing.md shows.")
    })?;
    // Times without Z are those of this machine, as for ssh-keygen.
    let parsed = AllowedSigners::parse(&String::from_utf8_lossy(&bytes), &Local);
    let signers = parsed.map_err(|error| {
        Error::bad_argument(format!("allowed_signers: {error}"))
            .with_hint("correct the line, or take it out; docs/signing.md tells what may stand there.")
    })?;
    Ok(Some(signers))
}

/// Whom to trust: nobody but the allowed signers. What `fdl.json` lists is for telling.
pub(super) fn trust(allowed: Option<AllowedSigners>, settings: &Settings) -> Trust {
    Trust { allowed: allowed.unwrap_or_default(), listed: AllowedSigners::of_lines(&settings.signers, &Local) }
}

/// A version that one of the allowed signers has signed.
///
/// # Errors
/// FDL-UNTRUSTED when it is not.
pub(super) fn require_good(
    context: &Context,
    repository: &Repository,
    version: VersionId,
    trust: &Trust,
) -> Result<Checked, Error> {
    let checked = context.block_on(repo::check_version(repository.store(), version, trust))??;
    let verdict = &checked.verdict;
    let note = verdict.note.as_deref().unwrap_or_default();
    let key = verdict.key.as_deref().unwrap_or_default();
    let sentence = match verdict.status {
        Status::Good => return Ok(checked),
        Status::Unsigned => format!("version {version} is not signed"),
        Status::Bad => format!("the signature of version {version} is bad: {note}"),
        Status::UnknownSigner => format!("version {version} is signed by an unknown signer with the key {key}: {note}"),
    };
    let hint = "ask the publisher; FROM fdl_verify('…', allowed_signers := '…') shows every version.";
    Err(Error::new(Code::Untrusted, sentence, hint))
}

/// What signs a version that `author` makes.
pub(super) fn signer(arguments: &Arguments, author: &str) -> Result<Option<Signer>, Error> {
    let Some(given) = arguments.text("sign_with") else {
        return Ok(None);
    };
    if given.trim().is_empty() {
        return Err(Error::bad_argument("sign_with is empty; it is the path of a key file"));
    }
    if signer_of(&Author::Text(author.to_owned())).is_none() {
        let sentence = format!("the author {author:?} has no mail address, and a signature is made in its name");
        return Err(Error::bad_argument(sentence).with_hint("give author := 'Name <mail>', or set FDL_AUTHOR."));
    }
    Ok(Some(Signer::open(&expand(given))?))
}
