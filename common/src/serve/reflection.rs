//! gRPC reflection, and its errors.
//!
//! The library ends an answer without an error when it cannot read or decode the next request message. So
//! the request is observed here, and its error becomes the status of the answer. The library's own errors get
//! details.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};
use tonic_reflection::server::Builder;

use super::error::ServeError;
use super::typed_errors::typed_status;
use crate::call_layer::CallWork;
use crate::pb;
use crate::status::{Failure, Reason};

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

/// The work of a call: ends the answer of reflection with the error of its request, or adds details to the
/// library's own error. None for every other method.
#[derive(Debug)]
pub(super) struct ReflectionErrors(Option<Arc<Mutex<Observed>>>);

/// The state of a request body.
#[derive(Debug)]
struct Observed {
    /// Its first error.
    error: Option<Status>,
    /// True if it was read to its end.
    has_ended: bool,
}

impl Observed {
    /// Returns the error of an answer with these trailers.
    fn error_of(&mut self, trailers: &HeaderMap) -> Option<Status> {
        let is_undecoded = !self.has_ended && Status::from_header_map(trailers)?.code() == Code::Ok;
        let undecoded =
            || is_undecoded.then(|| Failure::new(Reason::MalformedMessage, "invalid reflection request").into());
        self.error.take().or_else(undecoded).or_else(|| typed_status(trailers))
    }
}

impl ReflectionErrors {
    pub(super) fn of(request: &mut Request<Body>) -> Self {
        if !is_reflection(request) {
            return Self(None);
        }
        let has_ended = request.body().is_end_stream();
        let observed = Arc::new(Mutex::new(Observed { error: None, has_ended }));
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = Body::new(ObservedRequest { body, observed: Arc::clone(&observed) });
        Self(Some(observed))
    }
}

impl CallWork for ReflectionErrors {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let response = call().await?;
        Ok(match self.0 {
            Some(request) => response.map(|body| Body::new(FailingAnswer { body, request })),
            None => response,
        })
    }
}

/// A request body that is observed.
struct ObservedRequest {
    body: Body,
    observed: Arc<Mutex<Observed>>,
}

impl http_body::Body for ObservedRequest {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let mut observed = self.observed.lock();
        match &polled {
            Poll::Ready(Some(Err(error))) => {
                observed.error.get_or_insert_with(|| error.clone());
            }
            Poll::Ready(Some(Ok(frame))) => observed.has_ended = frame.is_trailers(),
            Poll::Ready(None) => observed.has_ended = true,
            Poll::Pending => {}
        }
        drop(observed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that ends with the error of its request, or with details of the library's error.
struct FailingAnswer {
    body: Body,
    request: Arc<Mutex<Observed>>,
}

impl http_body::Body for FailingAnswer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
            && let Some(error) = self.request.lock().error_of(trailers)
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
