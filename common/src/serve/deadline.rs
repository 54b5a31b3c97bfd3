//! The caller's deadline, from gRPC's `grpc-timeout` header.

use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;

use crate::call_layer::CallWork;
use crate::status::{Failure, Reason};

/// A call ends here before tonic ends it as CANCELLED without details: earlier by a tenth of its
/// timeout, at most by this.
const MAX_MARGIN: Duration = Duration::from_millis(10);

/// A stream ends earlier than its caller's deadline by a tenth of the timeout, at most by this. Its
/// last event, with the finish reason and the usage, therefore still arrives.
const MAX_STREAM_MARGIN: Duration = Duration::from_millis(100);

/// Returns the time by which a stream must end, shortly before the caller stops waiting. None
/// without a `grpc-timeout` or with a malformed one.
///
/// Format: at most eight digits and a unit (H, M, S, m, u, n), as in the gRPC over HTTP/2
/// specification.
#[must_use]
pub fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let timeout = timeout(metadata.as_ref())?;
    Instant::now().checked_add(timeout - MAX_STREAM_MARGIN.min(timeout / 10))
}

/// Returns the time at which a stream is ended whose source has not ended it by its [`deadline`]: half of the margin
/// later.
#[must_use]
pub fn last_deadline(metadata: &MetadataMap) -> Option<Instant> {
    let timeout = timeout(metadata.as_ref())?;
    Instant::now().checked_add(timeout - MAX_STREAM_MARGIN.min(timeout / 10) / 2)
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

/// Ends a call that has no response before its deadline. A response stream that has begun enforces
/// the deadline itself.
#[derive(Debug)]
pub(super) struct CallTimeout(Option<Duration>);

impl CallTimeout {
    pub(super) fn start(request: &Request<Body>) -> Self {
        Self(timeout(request.headers()).map(|timeout| timeout - MAX_MARGIN.min(timeout / 10)))
    }
}

impl CallWork for CallTimeout {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self.0 {
            None => call().await,
            // Work that does not wait would still be done.
            Some(Duration::ZERO) => Ok(deadline_exceeded()),
            Some(timeout) => {
                let start = Instant::now();
                let answered = tokio::time::timeout(timeout, call()).await;
                // Work that does not wait is late without a time-out.
                answered.ok().filter(|_| start.elapsed() <= timeout).unwrap_or_else(|| Ok(deadline_exceeded()))
            }
        }
    }
}

fn deadline_exceeded() -> Response<Body> {
    let failure = Failure::new(Reason::DeadlineExceeded, "the deadline passed before the call had a response");
    Status::from(failure).into_http()
}
