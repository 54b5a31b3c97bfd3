//! The patience for answers that a client does not read.
//!
//! HTTP/2 sends nothing to a client whose window is closed. The call would keep its place for ever. After
//! the patience, its connection closes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::caller::Peer;
use super::unsent::{UnreadAnswers, Unsent};
use crate::call_layer::CallWork;
use crate::log_limit::{LogLimit, PEER_INTERVAL};

/// The number of checks of a connection within the patience.
const CHECKS: u32 = 4;
/// The maximum size of a part of an answer. A client that reports one as read within the patience keeps its
/// connection. Most HTTP/2 libraries report half of a window together.
const PART_BYTES: usize = 16 << 10;

static LOG_LIMIT: LogLimit = LogLimit::new(PEER_INTERVAL);

/// Watches the unread answers of a connection.
#[derive(Debug)]
pub(super) struct Watch {
    answers: Arc<UnreadAnswers>,
    patience: Duration,
    checks: Interval,
}

impl Watch {
    pub(super) fn new(answers: Arc<UnreadAnswers>, patience: Duration) -> Self {
        let mut checks = interval(patience / CHECKS);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { answers, patience, checks }
    }

    /// Returns an error if an answer is unread for longer than the patience.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.checks.poll_tick(context).is_ready() {
            if self.answers.has_older(self.patience) {
                if let Some(unlogged) = LOG_LIMIT.permit() {
                    let seconds = self.patience.as_secs();
                    tracing::warn!(seconds, unlogged, "connection closed: its client does not read an answer");
                }
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

/// The work of a call: tracks the unsent bytes of its answer.
#[derive(Debug)]
pub(super) struct AnswerOf(Arc<Unsent>);

impl AnswerOf {
    /// Returns the answer of a request, and attaches its [`Unsent`] bytes to the request.
    pub(super) fn new(request: &mut Request<Body>) -> Self {
        let connection = request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.unread));
        let unsent = Arc::new(Unsent::new(connection));
        unsent.attach(request);
        Self(unsent)
    }
}

impl CallWork for AnswerOf {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let Self(unsent) = self;
        Ok(call().await?.map(|body| Body::new(Answer { body, rest: Bytes::new(), unsent })))
    }
}

/// A response body in parts, so that a client which reads slowly makes progress.
struct Answer {
    body: Body,
    /// The rest of the body's last data.
    rest: Bytes,
    unsent: Arc<Unsent>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let length = self.rest.len().min(PART_BYTES);
        let part = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(self.unsent.track(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
