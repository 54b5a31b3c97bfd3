//! One log line per call, when it ends: at the trailers of a stream, or when the caller goes away.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};

use super::around::Around;
use crate::status::code_name;

/// A call under way. Logged when dropped, with the last status seen; without one the caller went away.
pub(super) struct Call {
    path: String,
    start: Instant,
    code: Option<Code>,
}

impl Around for Call {
    fn begin(request: &Request<Body>) -> Self {
        Self { path: request.uri().path().to_owned(), start: Instant::now(), code: None }
    }

    async fn finish<E>(
        mut self,
        answer: impl Future<Output = Result<Response<Body>, E>> + Send,
    ) -> Result<Response<Body>, E> {
        let response = answer.await?;
        self.read_status(response.headers());
        Ok(response.map(|body| Body::new(LoggedBody { body, call: self })))
    }
}

impl Call {
    fn read_status(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
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

/// A response body that tells its call of the status in its trailers.
struct LoggedBody {
    body: Body,
    call: Call,
}

impl http_body::Body for LoggedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
        {
            self.call.read_status(trailers);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
