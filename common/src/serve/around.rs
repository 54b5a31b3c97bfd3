//! Work around every call, as a layer of the server.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::body::Body;
use tower::layer::layer_fn;
use tower::{Layer, Service};

/// Work around a call, from its request to its answer.
pub(super) trait Around: Sized + Send + 'static {
    fn begin(request: &Request<Body>) -> Self;

    /// What the caller gets, from what the service answers.
    fn finish<E: 'static>(
        self,
        answer: impl Future<Output = Result<Response<Body>, E>> + Send + 'static,
    ) -> impl Future<Output = Result<Response<Body>, E>> + Send + 'static;
}

/// Does the work around every call of the service it wraps.
pub(super) fn around<A, S>() -> impl Layer<S, Service = AroundService<A, S>> + Clone {
    layer_fn(|inner| AroundService { inner, around: PhantomData })
}

/// A service with work around its calls.
#[derive(Debug)]
pub(super) struct AroundService<A, S> {
    inner: S,
    around: PhantomData<fn() -> A>,
}

impl<A, S: Clone> Clone for AroundService<A, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), around: PhantomData }
    }
}

impl<A: Around, S> Service<Request<Body>> for AroundService<A, S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let around = A::begin(&request);
        Box::pin(around.finish(self.inner.call(request)))
    }
}
