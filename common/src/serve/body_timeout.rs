//! A timeout for the request message. Until the message has arrived, the call counts towards
//! `--max-calls`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::health::is_health_check;
use super::message_types::streams_requests;
use crate::status::{Failure, Reason};

/// The maximum time for the whole request message.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum time for the request message of a health check, which has some bytes.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time to the next message of a stream, and to its end. The output of a busy model may pause.
const STREAM_TIMEOUT: Duration = Duration::from_secs(600);

/// Makes the body fail if its end does not arrive within the timeout.
pub(super) fn with_body_timeout(request: Request<Body>) -> Request<Body> {
    let streams = streams_requests(request.uri().path());
    let limit = match streams {
        true => STREAM_TIMEOUT,
        false if is_health_check(&request) => CHECK_TIMEOUT,
        false => READ_TIMEOUT,
    };
    request.map(|body| Body::new(BodyTimeout { body, limit, streams, timer: Box::pin(tokio::time::sleep(limit)) }))
}

struct BodyTimeout {
    body: Body,
    limit: Duration,
    /// True if each part of the body has its own time.
    streams: bool,
    timer: Pin<Box<Sleep>>,
}

impl http_body::Body for BodyTimeout {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(request_timeout(self.limit))));
        }
        if self.streams && polled.is_ready() {
            let next = Instant::now() + self.limit;
            self.timer.as_mut().reset(next);
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

fn request_timeout(limit: Duration) -> Status {
    let message = format!("the request message did not arrive within {} s", limit.as_secs());
    Failure::new(Reason::RequestTooSlow, message).into()
}
