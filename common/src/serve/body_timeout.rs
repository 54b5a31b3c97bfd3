//! A timeout for the request message. Until the message has arrived, the call counts towards
//! `--max-calls`.

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

/// The maximum time for the whole request message. Every method of the project has exactly one
/// request message.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes the body fail if its end does not arrive within [`READ_TIMEOUT`].
pub(super) fn with_body_timeout(request: Request<Body>) -> Request<Body> {
    request.map(|body| Body::new(BodyTimeout { body, timer: Box::pin(tokio::time::sleep(READ_TIMEOUT)) }))
}

struct BodyTimeout {
    body: Body,
    timer: Pin<Box<Sleep>>,
}

impl http_body::Body for BodyTimeout {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(request_timeout())));
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

fn request_timeout() -> Status {
    let message = format!("the request message did not arrive within {} s", READ_TIMEOUT.as_secs());
    Failure::new(Reason::RequestTooSlow, message).into()
}
