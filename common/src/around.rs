//! Work around every call, as a layer of a server or of a client.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tower::layer::layer_fn;
use tower::{Layer, Service};

/// Work around one call, begun with its request.
pub trait Around: Sized + Send + 'static {
    /// What the caller gets, from what the service answers once it is asked. What is not asked for is not even begun.
    fn finish<E: 'static, F>(
        self,
        answer: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<Response<Body>, E>> + Send + 'static
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static;
}

/// Does the work that `begin` begins around every call of the service it wraps.
pub(crate) fn around<F: Clone, S>(begin: F) -> impl Layer<S, Service = AroundService<F, S>> + Clone {
    layer_fn(move |inner| AroundService { inner, begin: begin.clone() })
}

/// A service with work around its calls.
#[derive(Debug, Clone)]
pub struct AroundService<F, S> {
    inner: S,
    begin: F,
}

impl<A: Around, F, S> Service<Request<Body>> for AroundService<F, S>
where
    F: Fn(&mut Request<Body>) -> A,
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
        let around = (self.begin)(&mut request);
        // The one that is ready.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(around.finish(move || inner.call(request)))
    }
}

/// What lives as long as an answer.
pub(crate) trait Keep: Unpin + Send + 'static {
    /// The answer ends with these.
    fn see_trailers(&mut self, _trailers: &HeaderMap) {}

    /// The answer breaks off with this.
    fn see_error(&mut self, _error: &Status) {}
}

/// Drops `keep` when the answer has ended, or the caller has gone.
pub(crate) fn keep_with<K: Keep>(response: Response<Body>, keep: K) -> Response<Body> {
    response.map(|body| Body::new(KeepingBody { body, keep }))
}

struct KeepingBody<K> {
    body: Body,
    keep: K,
}

impl<K: Keep> http_body::Body for KeepingBody<K> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.trailers_ref().into_iter().for_each(|it| self.keep.see_trailers(it)),
            Poll::Ready(Some(Err(error))) => self.keep.see_error(error),
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
