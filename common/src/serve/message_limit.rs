//! The limits of a request message, checked while its bytes arrive and before it is decoded.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::element_count::{ElementCount, MAX_ELEMENTS, MAX_JSON_VALUES, TooMany};
use super::health::is_grpc_service;
use super::message_bytes::CallBytes;
use super::message_types::MessageIndex;
use crate::status::{Failure, Reason};

/// The bytes before a gRPC message: its compression flag, then its length, big-endian.
const PREFIX_BYTES: usize = 5;

/// Makes the body fail if its message has more than `limit` bytes or too many elements, or if the
/// messages of all calls together have too many bytes. gRPC's own services have their own limits.
pub(super) fn with_message_limit(limit: usize, request: Request<Body>) -> Request<Body> {
    if is_grpc_service(&request) {
        return request;
    }
    let elements = MessageIndex::of_request(request.uri().path()).map(ElementCount::new);
    let bytes = request.extensions().get().cloned();
    request.map(|body| Body::new(MessageLimit { body, limit, prefix: [0; PREFIX_BYTES], found: 0, elements, bytes }))
}

struct MessageLimit {
    body: Body,
    limit: usize,
    prefix: [u8; PREFIX_BYTES],
    /// The bytes of `prefix` that have arrived.
    found: usize,
    /// None for an unknown method.
    elements: Option<ElementCount>,
    bytes: Option<CallBytes>,
}

impl MessageLimit {
    /// Reads the length of the first message once its prefix is complete, and then counts the
    /// message's bytes and elements. Every method of the project takes one message.
    fn check(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        if self.found < PREFIX_BYTES {
            let missing = &mut self.prefix[self.found..];
            let count = missing.len().min(data.len());
            missing[..count].copy_from_slice(&data[..count]);
            self.found += count;
            data = &data[count..];
            let [_, length @ ..] = self.prefix;
            let length = u32::from_be_bytes(length) as usize;
            if self.found == PREFIX_BYTES && length > self.limit {
                return Err(too_large(length, self.limit));
            }
        }
        let mut added = 0;
        if let Some(elements) = &mut self.elements {
            let before = elements.memory();
            elements.read(data).map_err(too_many)?;
            added = elements.memory() - before;
        }
        self.bytes.as_ref().map_or(Ok(()), |bytes| bytes.add(data.len() + added))
    }
}

impl http_body::Body for MessageLimit {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(failure) = self.check(data)
        {
            return Poll::Ready(Some(Err(failure.into())));
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

fn too_large(length: usize, limit: usize) -> Failure {
    let message = format!("request message has {length} bytes, limit {limit} (--max-message-bytes)");
    Failure::new(Reason::MessageTooLarge, message)
}

fn too_many(too_many: TooMany) -> Failure {
    let (field, message) = match too_many {
        TooMany::Elements(field) => {
            (field, format!("the request has more than {MAX_ELEMENTS} nested messages and repeated strings"))
        }
        TooMany::JsonValues(field) => (field, format!("the JSON texts have more than {MAX_JSON_VALUES} values")),
    };
    Failure::new(Reason::MessageTooLarge, message).with_field(field)
}
