//! gRPC reflection, and the errors of its request messages.
//!
//! The library ends an answer without an error when it cannot read the next request message. So the
//! error is kept here, and becomes the status of the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic_reflection::server::Builder;

use super::error::ServeError;
use crate::call_layer::CallWork;
use crate::pb;

/// The maximum size of a request message, which contains one name. The answer repeats the message,
/// and several copies of it are in memory.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// Returns a builder of reflection. It lists the services of one endpoint and describes every
/// service by name.
pub(super) fn service(names: &[&'static str]) -> Result<Builder<'static>, ServeError> {
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection");
    Ok(names.iter().fold(builder, |builder, name| builder.with_service_name(*name)))
}

/// Returns true if the request is for reflection.
pub(super) fn is_reflection<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with("/grpc.reflection.")
}

/// The work of a call: ends the answer of reflection with the error of its request. None for every
/// other method.
#[derive(Debug)]
pub(super) struct ReflectionErrors(Option<FirstError>);

/// The first error of a request body.
type FirstError = Arc<Mutex<Option<Status>>>;

impl ReflectionErrors {
    pub(super) fn of(request: &mut Request<Body>) -> Self {
        if !is_reflection(request) {
            return Self(None);
        }
        let error = FirstError::default();
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = Body::new(ObservedRequest { body, error: Arc::clone(&error) });
        Self(Some(error))
    }
}

impl CallWork for ReflectionErrors {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let response = call().await?;
        Ok(match self.0 {
            Some(error) => response.map(|body| Body::new(FailingAnswer { body, error })),
            None => response,
        })
    }
}

/// A request body whose first error is kept.
struct ObservedRequest {
    body: Body,
    error: FirstError,
}

impl http_body::Body for ObservedRequest {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(error))) = &polled {
            self.error.lock().get_or_insert_with(|| error.clone());
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

/// A response body that ends with the error of its request.
struct FailingAnswer {
    body: Body,
    error: FirstError,
}

impl http_body::Body for FailingAnswer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
            && let Some(error) = self.error.lock().take()
        {
            trailers.clear();
            // Fails only for details that no header can have.
            let _ = error.add_header(trailers);
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
