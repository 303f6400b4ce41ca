//! Who may read and who may write (docs/format.md section 13, tokens).

use std::fmt;

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::format::Code;

use super::answer::Refusal;
use super::options::HostError;

/// A bearer token. Only its hash is kept, so it is in no message, log or memory dump.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// A token that clients send as `Authorization: Bearer <token>`.
    ///
    /// # Errors
    /// [`HostError::BadToken`] for what cannot stand in a header.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let good = (1..=1024).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        good.then(|| Self::hash(text.as_bytes())).ok_or(HostError::BadToken)
    }

    fn hash(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Compares in a time that tells nothing of either token, its length included.
    fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The tokens of a host.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) read: Option<Token>,
    pub(super) write: Option<Token>,
}

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Unknown { sent_token: bool },
    Reader,
    Writer,
}

impl Access {
    /// Whether what is read may be kept by caches that serve others too.
    pub(super) fn is_public(&self) -> bool {
        self.read.is_none()
    }

    /// Lets a request pass that reads. A host without a read token is open, whatever a client sends.
    pub(super) fn check_read(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.read.is_none() {
            return Ok(());
        }
        match self.caller(headers) {
            Caller::Reader | Caller::Writer => Ok(()),
            Caller::Unknown { sent_token } => Err(unauthorized(sent_token)),
        }
    }

    /// Lets a request pass that writes.
    pub(super) fn check_write(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.write.is_none() {
            return Err(Refusal::forbidden("this host is read-only"));
        }
        match self.caller(headers) {
            Caller::Writer => Ok(()),
            Caller::Reader => Err(Refusal::forbidden("this token is for reading only")),
            Caller::Unknown { sent_token } => Err(unauthorized(sent_token)),
        }
    }

    fn caller(&self, headers: &HeaderMap) -> Caller {
        let mut lines = headers.get_all(header::AUTHORIZATION).iter();
        let (first, another) = (lines.next(), lines.next());
        let Some(sent) = first.and_then(|line| bearer(line.as_bytes())).filter(|_| another.is_none()) else {
            return Caller::Unknown { sent_token: first.is_some() };
        };
        let is = |token: &Option<Token>| token.as_ref().is_some_and(|token| token.is(&sent));
        // Both are compared, so that the time does not tell which one was near.
        match (is(&self.write), is(&self.read)) {
            (true, _) => Caller::Writer,
            (false, true) => Caller::Reader,
            (false, false) => Caller::Unknown { sent_token: true },
        }
    }
}

/// The token of an `Authorization` header.
fn bearer(line: &[u8]) -> Option<Token> {
    let (scheme, token) = line.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then(|| Token::hash(token))
}

fn unauthorized(sent_token: bool) -> Refusal {
    let (message, challenge) = match sent_token {
        true => ("this host does not know the token", "Bearer realm=\"fdl\", error=\"invalid_token\""),
        false => ("this host asks for a token", "Bearer realm=\"fdl\""),
    };
    Refusal::new(StatusCode::UNAUTHORIZED, Code::Permission, message).with(header::WWW_AUTHENTICATE, challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (header::AUTHORIZATION, line.parse().unwrap())).collect()
    }

    #[test]
    fn who_may_do_what() {
        let token = |text: &str| Some(Token::new(text).unwrap());
        let both = Access { read: token("r"), write: token("w") };
        let open = Access { read: None, write: token("w") };
        let closed = Access { read: None, write: None };
        // What is sent; what reading and writing is answered on each of the three hosts (0 is yes).
        for (sent, read, write) in [
            (vec![], [401, 0, 0], [401, 401, 403]),
            (vec!["Bearer r"], [0, 0, 0], [403, 401, 403]),
            (vec!["bearer  w "], [0, 0, 0], [0, 0, 403]),
            (vec!["Bearer x"], [401, 0, 0], [401, 401, 403]),
            (vec!["Bearer "], [401, 0, 0], [401, 401, 403]),
            (vec!["Basic w"], [401, 0, 0], [401, 401, 403]),
            (vec!["w"], [401, 0, 0], [401, 401, 403]),
            (vec!["Bearer w", "Bearer w"], [401, 0, 0], [401, 401, 403]),
        ] {
            let headers = headers(&sent);
            let status = |answer: Result<(), Refusal>| answer.err().map_or(0, |refusal| refusal.status.as_u16());
            for (at, host) in [&both, &open, &closed].into_iter().enumerate() {
                assert_eq!(status(host.check_read(&headers)), read[at], "{sent:?} reads from host {at}");
                assert_eq!(status(host.check_write(&headers)), write[at], "{sent:?} writes to host {at}");
            }
        }
    }

    #[test]
    fn tokens_are_never_shown() {
        assert_eq!(format!("{:?}", Token::new("secret").unwrap()), "Token(…)");
        for bad in ["", "a b", "a\n", "é", &"x".repeat(1025)] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
    }
}
