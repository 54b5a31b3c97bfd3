//! Bearer tokens of incoming calls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, Request, Response};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tonic::Status;
use tonic::body::Body;

use super::health::is_health;
use crate::bearer::{Line, is_unexpired, lines};
use crate::call_layer::CallWork;
use crate::reload::{Cause, Reloaded, SourceFile, named};
use crate::status::{Failure, Reason};

/// The highest priority of a holder whose line states none, which is that of requests without a priority: no holder
/// delays others unless the operator lets it.
const DEFAULT_MAX_PRIORITY: i32 = 0;

/// The accepted tokens.
#[derive(Clone)]
pub(super) struct Tokens(Arc<Reloaded<Vec<Token>>>);

/// An accepted token, as its digest: all comparisons have the same length, and memory contains no
/// secret.
struct Token {
    sha256: [u8; 32],
    until: Option<SystemTime>,
    holder: Arc<Holder>,
}

/// The holder of a token.
#[derive(Debug)]
pub(super) struct Holder {
    /// The name in logs, metrics and limits.
    pub(super) name: Option<Arc<str>>,
    /// The highest priority of the holder's requests. None: as the server.
    pub(super) max_priority: Option<i32>,
    /// True if the holder may call on behalf of others.
    pub(super) is_delegate: bool,
}

impl Tokens {
    /// Fails if the file has no token at start; if it becomes empty later, every call is rejected.
    pub(super) fn watch(file: PathBuf) -> Result<Self, Cause> {
        let tokens = Reloaded::watch(vec![file.clone()], |files| parse(&files[0]))?;
        if tokens.get().is_empty() { Err(named(&file, "the file contains no token")) } else { Ok(Self(tokens)) }
    }

    /// Checks a gRPC call. Health checks need no token.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Admission {
        if is_health(request) { Admission::Granted(None) } else { self.admit(request.headers()) }
    }

    /// Checks the headers of a request, for any path.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Admission {
        bearer(headers).map_or(Admission::Missing, |token| self.find(token))
    }

    /// Looks a token up. Compares with every token, so that the time reveals nothing.
    fn find(&self, token: &[u8]) -> Admission {
        let sha256 = Sha256::digest(token);
        self.0.get().iter().fold(Admission::Invalid, |admission, token| {
            let is_accepted = token.sha256.ct_eq(&sha256) & Choice::from(u8::from(is_unexpired(token.until)));
            if is_accepted.into() { Admission::Granted(Some(Arc::clone(&token.holder))) } else { admission }
        })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(http::header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn parse(file: &SourceFile) -> Result<Vec<Token>, Cause> {
    let token = |Line { token, until, name, max_priority, is_delegate }: Line<'_>| {
        // A delegate has limited the priorities of its callers.
        let max_priority = max_priority.or((!is_delegate).then_some(DEFAULT_MAX_PRIORITY));
        let holder = Arc::new(Holder { name: name.map(Arc::from), max_priority, is_delegate });
        Token { sha256: Sha256::digest(token).into(), until, holder }
    };
    let tokens: Vec<Token> = lines(file)?.into_iter().map(token).collect();
    if tokens.is_empty() {
        tracing::warn!(file = %file.path.display(), "the file contains no token: every call is rejected");
    }
    Ok(tokens)
}

/// The result of the token check.
#[derive(Debug, Clone)]
pub(super) enum Admission {
    /// With the token's holder. None where no token is needed.
    Granted(Option<Arc<Holder>>),
    Missing,
    /// Unknown or expired. Callers cannot distinguish the two.
    Invalid,
}

impl Admission {
    /// Returns the result that the server stored in the request. Without one the call is rejected.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self::Missing)
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// Returns the holder of the token.
    pub(super) fn holder(&self) -> Option<&Holder> {
        if let Self::Granted(holder) = self { holder.as_deref() } else { None }
    }
}

impl CallWork for Admission {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let (reason, message) = match self {
            Self::Granted(_) => return call().await,
            Self::Missing => (Reason::CredentialsMissing, "missing header `authorization: Bearer TOKEN`"),
            Self::Invalid => (Reason::CredentialsInvalid, "the bearer token is unknown or has expired"),
        };
        Ok(Status::from(Failure::new(reason, message)).into_http())
    }
}
