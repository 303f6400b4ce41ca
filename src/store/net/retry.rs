//! When a request is sent again (format.md section 13).

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode, header};

use super::client::{Incoming, NetError};

/// How often and how long a request is tried again. Waits double from one to the next and are cut by a random part; an
/// answer's Retry-After makes them longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often a request is sent at most, the first time included.
    pub tries: u32,
    /// How often a connection is tried when none comes about: fewer, as a wrong name would otherwise take a minute.
    pub connect_tries: u32,
    /// No try begins after this time since the first.
    pub total: Duration,
    /// The wait before the second try.
    pub first_wait: Duration,
    /// The longest wait, unless the server asks for more.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            tries: 10,
            connect_tries: 5,
            total: Duration::from_secs(180),
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(15),
        }
    }
}

/// What it would mean to carry out a request twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Repeat {
    /// The same as once.
    Same,
    /// The second time refuses: the write is on a condition that the first one has ended. So it is sent again only where
    /// the first was surely not carried out (no connection), or where the server says that it turned it away (408, 429,
    /// 503). A refusal may all the same be our own success; whoever asked reads back (format.md section 9).
    Refuses,
}

/// What came of one try.
#[derive(Debug, Clone, Copy)]
enum Tried<'a> {
    Answered(StatusCode),
    Failed(&'a NetError),
}

impl Retry {
    /// Sends a request until it is answered by something else than a passing error, or until time is up; then the last
    /// answer or error is given.
    pub(in crate::store) async fn run<F, Fut>(&self, repeat: Repeat, mut attempt: F) -> Result<Incoming, NetError>
    where
        F: FnMut() -> Fut + Send,
        Fut: Future<Output = Result<Incoming, NetError>> + Send,
    {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let outcome = attempt().await;
            tries += 1;
            let (tried, asked) = match &outcome {
                Ok(answer) if answer.status().is_success() => return outcome,
                Ok(answer) => (Tried::Answered(answer.status()), retry_after(answer.headers(), Utc::now())),
                Err(error) => (Tried::Failed(error), None),
            };
            match self.next_wait(repeat, tried, tries, began.elapsed(), asked, fastrand::f64()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return outcome,
            }
        }
    }

    /// How long to wait before the next try; none when there is to be none. `asked` is what the server asked for, `chance`
    /// lies between 0 and 1.
    fn next_wait(
        &self,
        repeat: Repeat,
        tried: Tried<'_>,
        tries: u32,
        elapsed: Duration,
        asked: Option<Duration>,
        chance: f64,
    ) -> Option<Duration> {
        let (passes, most) = match tried {
            Tried::Answered(status) => (passes(repeat, status), self.tries),
            Tried::Failed(NetError::Connect(_)) => (true, self.connect_tries),
            Tried::Failed(NetError::Idle(_) | NetError::Broken(_)) => (repeat == Repeat::Same, self.tries),
            Tried::Failed(NetError::Body(_) | NetError::Request(_) | NetError::Slow(_)) => (false, 0),
        };
        match passes && tries < most {
            true => self.wait_after(tries, elapsed, asked, chance),
            false => None,
        }
    }

    /// How long to wait after so many tries of something that passes; none when there is to be no other.
    pub(in crate::store) fn wait_after(
        &self,
        tries: u32,
        elapsed: Duration,
        asked: Option<Duration>,
        chance: f64,
    ) -> Option<Duration> {
        if tries >= self.tries {
            return None;
        }
        let doubled = self.first_wait.saturating_mul(1 << (tries.saturating_sub(1)).min(16));
        let wait = doubled.min(self.longest_wait).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        let wait = wait.max(asked.unwrap_or_default());
        (elapsed.saturating_add(wait) <= self.total).then_some(wait)
    }
}

/// Whether another try may be answered better.
fn passes(repeat: Repeat, status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 429 | 503 => true,
        _ => repeat == Repeat::Same && is_passing(status),
    }
}

/// Whether an answer speaks of the moment and not of the request, which may have been carried out: 499 is a proxy's word
/// for a connection that it lost, those above 511 are those of content networks.
pub(super) fn is_passing(status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 429 | 499 => true,
        501 | 505..=508 | 510 | 511 => false,
        status => status >= 500,
    }
}

/// The wait that a server asks for: seconds, or a time.
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTime::parse_from_rfc2822(value).ok()?;
    Some((at.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(repeat: Repeat, tried: Tried<'_>, tries: u32, elapsed: u64, asked: Option<u64>) -> Option<u64> {
        let asked = asked.map(Duration::from_secs);
        let wait = Retry::default().next_wait(repeat, tried, tries, Duration::from_secs(elapsed), asked, 1.0);
        wait.map(|wait| u64::try_from(wait.as_millis()).unwrap())
    }

    fn status(code: u16) -> Tried<'static> {
        Tried::Answered(StatusCode::from_u16(code).unwrap())
    }

    #[test]
    fn waits_longer_each_time_and_gives_up() {
        let waits: Vec<_> = (1..=10).map(|tries| next(Repeat::Same, status(503), tries, 0, None)).collect();
        let expected = [200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000].map(Some);
        assert_eq!(waits, [&expected[..], &[None]].concat());
        assert_eq!(next(Repeat::Same, status(503), 1, 180, None), None);
        assert_eq!(next(Repeat::Same, status(503), 1, 100, Some(60)), Some(60_000));
        assert_eq!(next(Repeat::Same, status(503), 1, 150, Some(60)), None);
    }

    #[test]
    fn repeats_what_may_be_repeated() {
        fn same(tried: Tried<'_>) -> bool {
            next(Repeat::Same, tried, 1, 0, None).is_some()
        }
        fn refuses(tried: Tried<'_>) -> bool {
            next(Repeat::Refuses, tried, 1, 0, None).is_some()
        }
        for code in [408, 429, 503] {
            assert!(same(status(code)) && refuses(status(code)), "{code}");
        }
        for code in [499, 500, 502, 504, 520, 524] {
            assert!(same(status(code)) && !refuses(status(code)), "{code}");
        }
        for code in [301, 400, 401, 403, 404, 405, 409, 412, 413, 416, 501, 507] {
            assert!(!same(status(code)) && !refuses(status(code)), "{code}");
        }
        let connect = NetError::Connect("refused".to_owned());
        assert!(refuses(Tried::Failed(&connect)));
        assert_eq!(next(Repeat::Same, Tried::Failed(&connect), 5, 0, None), None);
        for error in [NetError::Broken("gone".to_owned()), NetError::Idle(Duration::ZERO)] {
            assert!(same(Tried::Failed(&error)) && !refuses(Tried::Failed(&error)), "{error}");
        }
        assert!(!same(Tried::Failed(&NetError::Body("no file".to_owned()))));
    }

    #[test]
    fn reads_what_the_server_asks_for() {
        let asked = |value: &str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().unwrap())]);
            retry_after(&headers, DateTime::from_timestamp(1_445_412_478, 0).unwrap())
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::from_secs(2)));
        assert_eq!(asked("Wed, 21 Oct 2015 07:27:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("soon"), None);
    }
}
