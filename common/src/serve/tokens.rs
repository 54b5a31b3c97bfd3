//! Bearer tokens: who may call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, Request, Response};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tonic::Status;
use tonic::body::Body;

use super::health::is_health;
use crate::around::Around;
use crate::bearer::{Line, counts, lines};
use crate::reload::{Cause, Reloaded};
use crate::status::{Failure, Reason};

/// The tokens that are let in.
#[derive(Clone)]
pub(super) struct Tokens(Arc<Reloaded<Vec<Token>>>);

/// Kept as a digest: what is compared is of one length, and memory holds no secret.
struct Token {
    sha256: [u8; 32],
    until: Option<SystemTime>,
}

impl Tokens {
    /// Those of a file. At first there must be one; later a file without any lets nobody in.
    pub(super) fn watch(file: PathBuf) -> Result<Self, Cause> {
        let tokens = Reloaded::watch(vec![file], |contents| parse(&contents[0]))?;
        if tokens.get().is_empty() { Err("there is no token in it".into()) } else { Ok(Self(tokens)) }
    }

    /// What becomes of a call.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Admission {
        if is_health(request) { Admission::Granted } else { self.admit(request.headers()) }
    }

    /// What becomes of a call with such headers, whatever is asked for.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Admission {
        match bearer(headers) {
            None => Admission::Missing,
            Some(token) if self.has(token) => Admission::Granted,
            Some(_) => Admission::Invalid,
        }
    }

    /// Looks at all tokens, whichever it is, so that time tells nothing.
    fn has(&self, token: &[u8]) -> bool {
        let sha256 = Sha256::digest(token);
        let known = self.0.get().iter().fold(Choice::from(0), |known, token| {
            known | token.sha256.ct_eq(&sha256) & Choice::from(u8::from(counts(token.until)))
        });
        known.into()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(http::header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn parse(content: &[u8]) -> Result<Vec<Token>, Cause> {
    let token = |Line { token, until }: Line<'_>| Token { sha256: Sha256::digest(token).into(), until };
    Ok(lines(content)?.into_iter().map(token).collect())
}

/// Whether a call is let in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Admission {
    Granted,
    Missing,
    /// Unknown or expired; which, is not told.
    Invalid,
}

impl Admission {
    /// Of a call that was looked at; any other is not let in.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or(Self::Missing)
    }

    pub(super) fn is_granted(self) -> bool {
        matches!(self, Self::Granted)
    }
}

impl Around for Admission {
    async fn finish<E, F>(self, answer: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let (reason, message) = match self {
            Self::Granted => return answer().await,
            Self::Missing => (Reason::CredentialsMissing, "calls need a header `authorization: Bearer TOKEN`"),
            Self::Invalid => (Reason::CredentialsInvalid, "the bearer token is not one that is let in"),
        };
        Ok(Status::from(Failure::new(reason, message)).into_http())
    }
}
