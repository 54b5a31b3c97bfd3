//! Counts the unsent bytes of an answer among those of all messages in progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::message_bytes::CallBytes;
use super::unsent::Unsent;
use crate::call_layer::CallWork;

/// The work of a call: counts the bytes of its answer.
#[derive(Debug)]
pub(super) struct AnswerBytes {
    call: CallBytes,
    /// None: unsent bytes are unknown. Only the current part is charged.
    unsent: Option<Arc<Unsent>>,
}

impl AnswerBytes {
    pub(super) fn new(call: CallBytes, unsent: Option<Arc<Unsent>>) -> Self {
        Self { call, unsent }
    }

    /// Counts a part of the answer that the transport is about to take.
    fn count(&self, part: &Bytes) {
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.bytes());
        self.call.set_answer(unsent + part.len());
    }
}

impl CallWork for AnswerBytes {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let (head, mut body) = call().await?.into_parts();
        // An answer that is ready is encoded now, so that it can be refused: not after its headers.
        let first = match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(first) => first,
            Poll::Pending => None,
        };
        let data = first.iter().flatten().find_map(Frame::data_ref);
        let counted = data.map_or(Ok(()), |data| self.call.start_answer(data.len()));
        Ok(match counted {
            Ok(()) => Response::from_parts(head, Body::new(CountedAnswer { first, body, bytes: self })),
            Err(failure) => Status::from(failure).into_http(),
        })
    }
}

/// A response body whose unsent bytes are counted.
struct CountedAnswer {
    /// The first part, which is counted already.
    first: Option<Result<Frame<Bytes>, Status>>,
    body: Body,
    bytes: AnswerBytes,
}

impl http_body::Body for CountedAnswer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(part) = frame.data_ref()
        {
            self.bytes.count(part);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_none() { self.body.size_hint() } else { SizeHint::default() }
    }
}
