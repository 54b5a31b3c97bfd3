//! One log line per call, when it ends: at the trailers of a stream, or when the caller goes away.

use std::time::Instant;

use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use super::around::{Around, Keep, keep_with};
use crate::status::code_name;

/// A call under way. Logged when dropped, with the last status seen; without one the caller went away.
pub(super) struct Call {
    path: String,
    start: Instant,
    code: Option<Code>,
}

impl Call {
    pub(super) fn begin(request: &Request<Body>) -> Self {
        Self { path: request.uri().path().to_owned(), start: Instant::now(), code: None }
    }
}

impl Around for Call {
    async fn finish<E, F>(mut self, answer: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let response = answer().await?;
        self.see_trailers(response.headers());
        Ok(keep_with(response, self))
    }
}

impl Keep for Call {
    fn see_trailers(&mut self, trailers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(trailers) {
            self.code = Some(status.code());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let code = self.code.map_or("CANCELLED_BY_CALLER", code_name);
        let milliseconds = self.start.elapsed().as_secs_f64() * 1e3;
        if self.path.starts_with("/grpc.") {
            tracing::debug!(method = self.path, code, milliseconds, "call");
        } else {
            tracing::info!(method = self.path, code, milliseconds, "call");
        }
    }
}
