//! One log line per call, when it ends: at the trailers of a stream, or when the caller goes away.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::status::code_name;

/// Logs every call of the service it wraps.
#[derive(Debug, Clone, Copy)]
pub(super) struct AccessLogLayer;

impl<S> Layer<S> for AccessLogLayer {
    type Service = AccessLog<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AccessLog { inner }
    }
}

/// A service whose calls are logged.
#[derive(Debug, Clone)]
pub(super) struct AccessLog<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for AccessLog<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut call = Call::started(request.uri().path());
        let answered = self.inner.call(request);
        Box::pin(async move {
            let response = answered.await?;
            call.read_status(response.headers());
            Ok(response.map(|body| Body::new(LoggedBody { body, call })))
        })
    }
}

/// A call under way. Logged when dropped, with the last status seen; without one the caller went away.
struct Call {
    path: String,
    start: Instant,
    code: Option<Code>,
}

impl Call {
    fn started(path: &str) -> Self {
        Self { path: path.to_owned(), start: Instant::now(), code: None }
    }

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
