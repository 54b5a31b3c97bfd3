//! The limits of a request message, checked while its bytes arrive and before it is decoded.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::element_count::{ElementCount, MAX_ELEMENTS, MAX_JSON_VALUES, TooMany};
use super::health::is_health;
use super::message_bytes::CallBytes;
use super::message_types::{MessageIndex, streams_requests};
use super::reflection::{self, is_reflection};
use crate::status::{Failure, Reason};

/// The bytes before a gRPC message: its compression flag, then its length, big-endian.
const PREFIX_BYTES: usize = 5;

/// Makes the body fail if a message has more than `limit` bytes or too many elements, if another one
/// follows it, or if the messages of all calls together have too many bytes. Health checks have their own limit, and
/// reflection has a lower one.
pub(super) fn with_message_limit(limit: usize, request: Request<Body>) -> Request<Body> {
    if is_health(&request) {
        return request;
    }
    let is_reflection = is_reflection(&request);
    let size = if is_reflection {
        SizeLimit { bytes: reflection::MAX_MESSAGE_BYTES, setting: "" }
    } else {
        SizeLimit { bytes: limit, setting: " (--max-message-bytes)" }
    };
    let streams = streams_requests(request.uri().path());
    let message = MessageIndex::of_request(request.uri().path());
    let elements = message.map(ElementCount::new);
    let bytes = request.extensions().get().filter(|_| !is_reflection).cloned();
    let max_messages = if is_reflection || streams { usize::MAX } else { 1 };
    let repeated = message.filter(|_| streams);
    let prefix = [0; PREFIX_BYTES];
    request.map(|body| {
        Body::new(MessageLimit {
            body,
            size,
            prefix,
            found: 0,
            left: 0,
            messages: 0,
            max_messages,
            elements,
            repeated,
            bytes,
        })
    })
}

struct MessageLimit {
    body: Body,
    size: SizeLimit,
    prefix: [u8; PREFIX_BYTES],
    /// The bytes of `prefix` that have arrived.
    found: usize,
    /// The bytes of the message that have not arrived.
    left: usize,
    /// The number of messages whose prefix has arrived.
    messages: usize,
    /// The maximum number of messages.
    max_messages: usize,
    /// None for an unknown method, and for reflection.
    elements: Option<ElementCount>,
    /// The type of the messages of a stream, whose elements count alone. None for one message.
    repeated: Option<MessageIndex>,
    /// None for reflection, whose messages are small and do not stay in memory.
    bytes: Option<CallBytes>,
}

/// The maximum size of one message.
struct SizeLimit {
    bytes: usize,
    /// The setting in brackets, after a space. Empty for a fixed limit.
    setting: &'static str,
}

impl MessageLimit {
    /// Reads the length of each message once its prefix is complete, and then counts the message's
    /// bytes and elements. Reflection and methods with a stream take many messages, the others one.
    fn check(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        let (mut count, before) = (0, self.memory());
        while !data.is_empty() {
            if self.found < PREFIX_BYTES {
                data = &data[self.read_prefix(data)?..];
            } else {
                let read = self.read_message(data)?;
                count += read;
                data = &data[read..];
            }
        }
        let memory = self.memory() - before;
        self.bytes.as_ref().map_or(Ok(()), |bytes| bytes.add(count + memory))
    }

    /// Fails if the body ends within a message. The second call succeeds: an error ends the body too.
    fn check_end(&mut self) -> Result<(), Failure> {
        let is_incomplete = std::mem::take(&mut self.left) > 0 || std::mem::take(&mut self.found) > 0;
        match is_incomplete {
            true => Err(Failure::new(Reason::MalformedMessage, "the request ends within a message")),
            false => Ok(()),
        }
    }

    /// Reads bytes of a prefix, and returns their number.
    fn read_prefix(&mut self, data: &[u8]) -> Result<usize, Failure> {
        if self.messages == self.max_messages {
            return Err(Failure::new(Reason::MalformedMessage, "the request has more bytes than its one message"));
        }
        let missing = &mut self.prefix[self.found..];
        let count = missing.len().min(data.len());
        missing[..count].copy_from_slice(&data[..count]);
        self.found += count;
        if self.found == PREFIX_BYTES {
            let [_, length @ ..] = self.prefix;
            self.left = u32::from_be_bytes(length) as usize;
            self.size.check(self.left)?;
            self.messages += 1;
            if let Some(message) = self.repeated {
                self.elements = Some(ElementCount::new(message));
            }
            self.end_message();
        }
        Ok(count)
    }

    /// Reads bytes of a message, and returns their number.
    fn read_message(&mut self, data: &[u8]) -> Result<usize, Failure> {
        let count = self.left.min(data.len());
        if let Some(elements) = &mut self.elements {
            elements.read(&data[..count]).map_err(too_many)?;
        }
        self.left -= count;
        self.end_message();
        Ok(count)
    }

    /// Expects the prefix of the next message if this one is complete.
    fn end_message(&mut self) {
        if self.left == 0 {
            self.found = 0;
        }
    }

    /// Returns the bytes in memory that the elements so far take beyond those on the wire. The messages of a stream do
    /// not stay in memory.
    fn memory(&self) -> usize {
        self.elements.as_ref().filter(|_| self.repeated.is_none()).map_or(0, ElementCount::memory)
    }
}

impl SizeLimit {
    fn check(&self, length: usize) -> Result<(), Failure> {
        let Self { bytes: limit, setting } = self;
        if length <= *limit {
            return Ok(());
        }
        let message = format!("request message has {length} bytes, limit {limit}{setting}");
        Err(Failure::new(Reason::MessageTooLarge, message))
    }
}

impl http_body::Body for MessageLimit {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let checked = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(Ok(()), |data| self.check(data)),
            Poll::Ready(None) => self.check_end(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => Ok(()),
        };
        match checked {
            Ok(()) => polled,
            Err(failure) => Poll::Ready(Some(Err(failure.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
