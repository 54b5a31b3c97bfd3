//! How long a request's message may take to arrive: until then the call has a place that others lack.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use crate::status::{Failure, Reason};

/// Time for a whole request. Every call of ours has a single message.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that must be whole in time.
pub(super) fn in_time(request: Request<Body>) -> Request<Body> {
    request.map(|body| Body::new(Timely { body, patience: Box::pin(tokio::time::sleep(PATIENCE)) }))
}

struct Timely {
    body: Body,
    patience: Pin<Box<Sleep>>,
}

impl http_body::Body for Timely {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.patience.as_mut().poll(context).is_ready() {
            let message = "the request did not arrive in time";
            let failure = Failure::new(Reason::RequestTooSlow, message);
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
