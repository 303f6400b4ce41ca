//! Sending a request to the server of a repository: who may see the token, and where redirects may lead.

use std::fmt;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION};
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

use super::root::Root;
use crate::store::net::{Answer, Client, Content, Incoming, NetError, Outgoing, Repeat, Retry};

/// How many redirects a read follows.
const MOST_REDIRECTS: usize = 10;

/// A token, which no message shows.
#[derive(Clone)]
pub(super) struct Token {
    text: String,
    header: HeaderValue,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// An error says what is wrong with it, without showing it.
    pub(super) fn new(token: &str) -> Result<Self, &'static str> {
        // A user and a password, as the header says them.
        let basic = token.strip_prefix("Basic ");
        let sayable = basic.unwrap_or(token).chars().all(|c| c.is_ascii_graphic());
        let value = if basic.is_some() { token.to_owned() } else { format!("Bearer {token}") };
        match HeaderValue::from_str(&value) {
            Ok(mut header) if sayable => {
                header.set_sensitive(true);
                Ok(Self { text: basic.unwrap_or(token).to_owned(), header })
            }
            _ => Err("the token holds a space or another character that cannot be part of one"),
        }
    }

    /// A server may give back what it was sent.
    fn hide(&self, text: &str) -> String {
        text.replace(&self.text, "…")
    }
}

/// What is asked of the server.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) content: Content,
    pub(super) repeat: Repeat,
}

impl Ask {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self { method, url, headers: HeaderMap::new(), content: Content::Empty, repeat: Repeat::Same }
    }
}

/// The server of a repository.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) root: Root,
    token: Option<Token>,
    /// Headers of the caller's own, for the origin of the repository alone.
    headers: HeaderMap,
    pub(super) retry: Retry,
    client: Client,
    uploads: Client,
}

impl Server {
    pub(super) fn new(root: Root, token: Option<Token>, headers: HeaderMap, retry: Retry) -> Result<Self, NetError> {
        let client = Client::new(retry)?;
        let uploads = client.with_retry(Retry { connect_tries: retry.connect_tries.min(2), ..retry });
        Ok(Self { root, token, headers, retry, client, uploads })
    }

    /// Sends a request; reads follow redirects. The token goes to the origin of the repository alone, and no more once a
    /// redirect has left it.
    pub(super) async fn send(&self, ask: Ask) -> Result<Incoming, NetError> {
        let Ask { method, url, mut headers, content, repeat } = ask;
        // Ranges and states are those of the object's own bytes.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let reads = method == Method::GET || method == Method::HEAD;
        let mut request = Outgoing { method, url, headers, content };
        let mut trusted = true;
        for _ in 0..=MOST_REDIRECTS {
            trusted = trusted && self.root.is_same_origin(&request.url);
            for (name, value) in &self.headers {
                match trusted {
                    true => request.headers.insert(name, value.clone()),
                    false => request.headers.remove(name),
                };
            }
            let own = self.headers.contains_key(AUTHORIZATION) && trusted;
            match self.token.as_ref().filter(|_| trusted) {
                Some(token) => request.headers.insert(AUTHORIZATION, token.header.clone()),
                None if own => None,
                None => request.headers.remove(AUTHORIZATION),
            };
            let incoming = self.client.send(&request, repeat).await?;
            let redirects = matches!(incoming.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(target) = incoming.header(LOCATION).filter(|_| redirects && reads) else {
                return Ok(incoming);
            };
            // Not shown in a message: it may be a signed URL.
            let target = request.url.join(target).ok().filter(|target| self.root.is_as_safe(target));
            request.url = target.ok_or_else(|| odd("the server redirects to what is no URL, or to one without TLS"))?;
        }
        Err(odd("the server redirects without end"))
    }

    /// Sends content to a URL that was given for it, and nothing of ours with it. A place that is out of reach is given up
    /// soon: there is another way.
    pub(super) async fn send_to(&self, url: Url, headers: HeaderMap, content: Content) -> Result<Incoming, NetError> {
        let request = Outgoing { method: Method::PUT, url, headers, content };
        self.uploads.send(&request, Repeat::Same).await
    }

    /// What an answer that is no success says.
    pub(super) async fn answer(&self, incoming: Incoming) -> Answer {
        let mut answer = incoming.into_answer().await;
        if let Some(token) = &self.token {
            answer.message = answer.message.map(|message| token.hide(&message));
            answer.code = answer.code.map(|code| token.hide(&code));
        }
        answer
    }
}

fn odd(why: &str) -> NetError {
    NetError::Request(why.to_owned())
}

/// How long before its end an upload URL is not used any more (format.md section 14).
pub(super) const TOO_SHORT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_are_not_shown_either() {
        let token = Token::new("Basic aHVzaA==").unwrap();
        assert_eq!(token.header, "Basic aHVzaA==");
        assert_eq!(token.hide("you sent Basic aHVzaA=="), "you sent Basic …");
        assert!(Token::new("Basic a b").is_err());
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = Token::new("hush-1").unwrap();
        assert!(!format!("{token:?}").contains("hush"));
        assert_eq!(token.hide("you sent Bearer hush-1"), "you sent Bearer …");
        for odd in ["a b", "a\nb", "ä"] {
            assert!(!Token::new(odd).unwrap_err().contains(odd));
        }
    }
}
