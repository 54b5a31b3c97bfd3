//! Bearer tokens: who may call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, Request, Response};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tonic::body::Body;
use tonic::{Code, Status};

use super::around::Around;
use super::is_health;
use crate::reload::{Cause, Reloaded};
use crate::status::Failure;

/// The tokens that are let in.
#[derive(Clone)]
pub(super) struct Tokens(Arc<Reloaded<Vec<Token>>>);

/// Kept as a digest: what is compared is of one length, and memory holds no secret.
struct Token {
    sha256: [u8; 32],
    until: Option<SystemTime>,
}

impl Tokens {
    /// One token per line, and behind it, if it expires, when: `2027-01-31T00:00:00Z`. Empty lines, and lines that start with `#`,
    /// do not count.
    pub(super) fn watch(file: PathBuf) -> Result<Self, Cause> {
        Reloaded::watch(vec![file], |contents| parse(&contents[0])).map(Self)
    }

    /// What becomes of a call with such headers.
    pub(super) fn check(&self, request: &Request<Body>) -> Admission {
        if is_health(request) {
            return Admission::Granted;
        }
        match bearer(request.headers()) {
            None => Admission::Missing,
            Some(token) if self.has(token) => Admission::Granted,
            Some(_) => Admission::Invalid,
        }
    }

    /// Looks at all tokens, whichever it is, so that time tells nothing.
    fn has(&self, token: &[u8]) -> bool {
        let (sha256, now) = (Sha256::digest(token), SystemTime::now());
        let known = self.0.get().iter().fold(Choice::from(0), |known, token| {
            let counts = token.until.is_none_or(|until| now < until);
            known | token.sha256.ct_eq(&sha256) & Choice::from(u8::from(counts))
        });
        known.into()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(http::header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn parse(content: &[u8]) -> Result<Vec<Token>, Cause> {
    let text = std::str::from_utf8(content)?;
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let until = words.next().map(|time| time.parse::<Timestamp>().map(SystemTime::from)).transpose();
        let until = until.map_err(|error| format!("line {}: when the token expires: {error}", number + 1))?;
        if words.next().is_some() {
            return Err(format!("line {}: more than a token and a time", number + 1).into());
        }
        tokens.push(Token { sha256: Sha256::digest(token).into(), until });
    }
    if tokens.is_empty() { Err("there is no token in it".into()) } else { Ok(tokens) }
}

/// Whether a call is let in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Admission {
    Granted,
    Missing,
    /// Unknown or expired; which, is not told.
    Invalid,
}

impl Around for Admission {
    async fn finish<E>(
        self,
        answer: impl Future<Output = Result<Response<Body>, E>> + Send,
    ) -> Result<Response<Body>, E> {
        let (reason, message) = match self {
            Self::Granted => return answer.await,
            Self::Missing => ("CREDENTIALS_MISSING", "calls need a header `authorization: Bearer TOKEN`"),
            Self::Invalid => ("CREDENTIALS_INVALID", "the bearer token is not one that is let in"),
        };
        Ok(Status::from(Failure::new(Code::Unauthenticated, reason, message)).into_http())
    }
}
