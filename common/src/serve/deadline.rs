//! The caller's deadline, as gRPC carries it.

use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;

use crate::around::Around;
use crate::status::{Failure, Reason};

/// How much sooner a call ends here than in tonic, which ends it as CANCELLED, without details: a tenth of its time, at most this.
const MARGIN: Duration = Duration::from_millis(10);

/// When the caller stops waiting, from its `grpc-timeout`. None without one, and for one that is malformed.
///
/// Format: at most eight digits and a unit (H, M, S, m, u, n), as in the gRPC over HTTP/2 specification.
#[must_use]
pub fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    Instant::now().checked_add(timeout(metadata.as_ref())?)
}

fn timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.to_str().ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// Ends a call whose deadline passes before it has an answer. A stream, once it has begun, sees to its deadline itself.
#[derive(Debug)]
pub(super) struct Limit(Option<Duration>);

impl Limit {
    pub(super) fn begin(request: &Request<Body>) -> Self {
        Self(timeout(request.headers()).map(|time| time - MARGIN.min(time / 10)))
    }
}

impl Around for Limit {
    async fn finish<E, F>(self, answer: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self.0 {
            None => answer().await,
            Some(time) => tokio::time::timeout(time, answer()).await.unwrap_or_else(|_| Ok(late())),
        }
    }
}

fn late() -> Response<Body> {
    let failure = Failure::new(Reason::DeadlineExceeded, "the deadline passed before there was an answer");
    Status::from(failure).into_http()
}
