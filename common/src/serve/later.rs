//! Services that are yet to be made: until then their calls are refused, and only gRPC's own services answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::SetOnce;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::layer::layer_fn;
use tower::{Layer, Service};

use crate::status::{Failure, Reason};

/// When a refused caller should try again.
const RETRY: Duration = Duration::from_secs(1);

/// Where services are put once they are made.
pub type DeferredRoutes = Arc<SetOnce<Routes>>;

/// Sends calls there, but for those of gRPC's own services, which the wrapped one answers.
pub(super) fn later<S>(routes: DeferredRoutes) -> impl Layer<S, Service = LaterService<S>> + Clone {
    layer_fn(move |inner| LaterService { inner, routes: Arc::clone(&routes) })
}

/// A service before services that are yet to be made.
#[derive(Debug, Clone)]
pub(super) struct LaterService<S> {
    inner: S,
    routes: DeferredRoutes,
}

impl<S> Service<Request<Body>> for LaterService<S>
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
        if request.uri().path().starts_with("/grpc.") {
            return Box::pin(self.inner.call(request));
        }
        // Always ready.
        let answer = self.routes.get().cloned().map(|mut routes| routes.call(request));
        Box::pin(async {
            match answer {
                Some(answer) => answer.await.map_err(|never| match never {}),
                None => Ok(loading()),
            }
        })
    }
}

fn loading() -> Response<Body> {
    let failure = Failure::new(Reason::Loading, "the server is loading").retry_after(RETRY);
    Status::from(failure).into_http()
}
