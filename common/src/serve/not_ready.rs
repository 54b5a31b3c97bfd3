//! Routes that are set after the server starts. Until then their calls are rejected; only gRPC's
//! own services respond.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::sync::SetOnce;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::{Layer, Service};

use super::health::is_grpc_service;
use crate::status::{Failure, Reason};

/// The services of an endpoint, set once they are ready.
pub type DeferredRoutes = Arc<SetOnce<Routes>>;

/// Sends calls to the deferred routes, except those to gRPC's own services, which the wrapped
/// service handles.
#[derive(Debug, Clone)]
pub(super) struct NotReadyLayer {
    routes: DeferredRoutes,
}

impl NotReadyLayer {
    pub(super) fn new(routes: DeferredRoutes) -> Self {
        Self { routes }
    }
}

impl<S> Layer<S> for NotReadyLayer {
    type Service = NotReadyService<S>;

    fn layer(&self, inner: S) -> NotReadyService<S> {
        NotReadyService { inner, routes: Arc::clone(&self.routes) }
    }
}

/// The service of [`NotReadyLayer`].
#[derive(Debug, Clone)]
pub(super) struct NotReadyService<S> {
    inner: S,
    routes: DeferredRoutes,
}

impl<S> Service<Request<Body>> for NotReadyService<S>
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
        if is_grpc_service(&request) {
            return Box::pin(self.inner.call(request));
        }
        // `Routes` is always ready, so it needs no `poll_ready`.
        let response = self.routes.get().cloned().map(|mut routes| routes.call(request));
        Box::pin(async {
            match response {
                Some(response) => response.await.map_err(|never| match never {}),
                None => Ok(loading()),
            }
        })
    }
}

fn loading() -> Response<Body> {
    let failure = Failure::new(Reason::Loading, "the server is loading");
    Status::from(failure).into_http()
}
