//! A tower layer that runs work around every call, in a server or in a client.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tower::{Layer, Service};

/// Work around one call. It starts when the request arrives.
pub trait CallWork: Sized + Send + 'static {
    /// Returns the response to the caller. `call` starts the inner service; work that rejects a
    /// request does not call it.
    fn run<E: 'static, F>(
        self,
        call: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<Response<Body>, E>> + Send + 'static
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static;
}

/// The layer. `start` creates the work of each call from its request.
#[derive(Debug, Clone)]
pub(crate) struct CallLayer<F> {
    start: F,
}

impl<F> CallLayer<F> {
    pub(crate) fn new(start: F) -> Self {
        Self { start }
    }
}

impl<F: Clone, S> Layer<S> for CallLayer<F> {
    type Service = CallService<F, S>;

    fn layer(&self, inner: S) -> CallService<F, S> {
        CallService { inner, start: self.start.clone() }
    }
}

/// A service with work around its calls.
#[derive(Debug, Clone)]
pub struct CallService<F, S> {
    inner: S,
    start: F,
}

impl<W: CallWork, F, S> Service<Request<Body>> for CallService<F, S>
where
    F: Fn(&mut Request<Body>) -> W,
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let work = (self.start)(&mut request);
        // `poll_ready` prepared `self.inner`, so the call takes it and leaves a clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(work.run(move || inner.call(request)))
    }
}

/// Observes a response body and lives as long as it.
pub(crate) trait BodyGuard: Unpin + Send + 'static {
    /// Observes the trailers, which end the body.
    fn on_trailers(&mut self, _trailers: &HeaderMap) {}

    /// Observes the error that ends the body.
    fn on_error(&mut self, _error: &Status) {}
}

/// Attaches `guard` to the response body. It is dropped when the body ends or the caller cancels.
pub(crate) fn on_body_end<G: BodyGuard>(response: Response<Body>, guard: G) -> Response<Body> {
    response.map(|body| Body::new(GuardedBody { body, guard }))
}

struct GuardedBody<G> {
    body: Body,
    guard: G,
}

impl<G: BodyGuard> http_body::Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.guard.on_trailers(trailers);
                }
            }
            Poll::Ready(Some(Err(error))) => self.guard.on_error(error),
            _ => {}
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
