//! The limit of a request message's size, checked before the message is read.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::health::is_grpc_service;
use crate::status::{Failure, Reason};

/// The bytes before a gRPC message: its compression flag, then its length, big-endian.
const PREFIX_BYTES: usize = 5;

/// Makes the body fail if its message has more than `limit` bytes. gRPC's own services have their
/// own limits.
pub(super) fn with_message_limit(limit: usize, request: Request<Body>) -> Request<Body> {
    if is_grpc_service(&request) {
        return request;
    }
    request.map(|body| Body::new(MessageLimit { body, limit, prefix: [0; PREFIX_BYTES], found: 0 }))
}

struct MessageLimit {
    body: Body,
    limit: usize,
    prefix: [u8; PREFIX_BYTES],
    /// The bytes of `prefix` that have arrived.
    found: usize,
}

impl MessageLimit {
    /// Reads the length of the first message once its prefix is complete. Every method of the
    /// project takes one message.
    fn check(&mut self, data: &[u8]) -> Result<(), Status> {
        if self.found == PREFIX_BYTES {
            return Ok(());
        }
        let missing = &mut self.prefix[self.found..];
        let count = missing.len().min(data.len());
        missing[..count].copy_from_slice(&data[..count]);
        self.found += count;
        let [_, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length) as usize;
        if self.found == PREFIX_BYTES && length > self.limit { Err(too_large(length, self.limit)) } else { Ok(()) }
    }
}

impl http_body::Body for MessageLimit {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.check(data)
        {
            return Poll::Ready(Some(Err(status)));
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

fn too_large(length: usize, limit: usize) -> Status {
    let message = format!("request message has {length} bytes, limit {limit} (--max-message-bytes)");
    Failure::new(Reason::MessageTooLarge, message).into()
}
