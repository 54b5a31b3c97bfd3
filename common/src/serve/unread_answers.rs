//! The patience for answers that a client does not read.
//!
//! HTTP/2 sends nothing to a client whose window is closed. The call would keep its place for ever. After
//! the patience, its connection closes. If other answers of the connection are read, as behind a proxy, the
//! unread answer is abandoned instead: its call ends, and its stream once the client reads on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::caller::{Peer, network};
use super::health::is_health;
use super::unsent::{Overdue, Rest, UnreadAnswers, Unsent, Untaken};
use crate::call_layer::CallWork;
use crate::log_limit::{LogLimit, PEER_INTERVAL};

/// The number of checks of a connection within the patience.
const CHECKS: u32 = 4;
/// The maximum size of a part of an answer. A client that reports one as read within the patience keeps its
/// connection. Most HTTP/2 libraries report half of a window together.
const PART_BYTES: usize = 16 << 10;

static LOG_LIMIT: LogLimit = LogLimit::new(PEER_INTERVAL);

/// Watches a client that may not read, or may be gone. The protocol may not notice: HTTP/2 reads nothing while it
/// waits to write, and HTTP/1.1 while it has bytes after the request.
#[derive(Debug)]
pub(super) struct Watch {
    answers: Arc<UnreadAnswers>,
    patience: Duration,
    checks: Interval,
    /// Since when a write waits.
    write_waits: Option<Instant>,
    /// Since when a flush waits.
    flush_waits: Option<Instant>,
    /// True if the client had closed the connection at the last check.
    was_closed: bool,
}

impl Watch {
    pub(super) fn new(answers: Arc<UnreadAnswers>, patience: Duration) -> Self {
        let mut checks = interval(patience / CHECKS);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { answers, patience, checks, write_waits: None, flush_waits: None, was_closed: false }
    }

    /// Records the result of a write.
    pub(super) fn wrote<T>(&mut self, polled: &Poll<T>) {
        self.write_waits = waits(polled, self.write_waits);
    }

    /// Records the result of a flush.
    pub(super) fn flushed<T>(&mut self, polled: &Poll<T>) {
        self.flush_waits = waits(polled, self.flush_waits);
    }

    /// Abandons answers that are unread for longer than the patience. Returns an error if the connection must
    /// be closed instead: because of its answers, because the client takes no byte within the patience, or
    /// because the client has closed it.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, is_closed: impl Fn() -> bool) -> io::Result<()> {
        while self.checks.poll_tick(context).is_ready() {
            let was_closed = std::mem::replace(&mut self.was_closed, is_closed());
            if was_closed && self.was_closed {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let waits = [self.write_waits, self.flush_waits].into_iter().flatten();
            if waits.into_iter().any(|since| since.elapsed() > self.patience) || self.must_close() {
                self.warn("connection closed: its client does not read an answer");
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Abandons the overdue answers. Returns true if the connection must be closed instead.
    fn must_close(&self) -> bool {
        match self.answers.overdue(self.patience) {
            Overdue::None => false,
            Overdue::Answers(answers) if answers.iter().all(|unsent| unsent.abandon()) => {
                self.warn("answer ended: its client does not read it");
                false
            }
            Overdue::Answers(_) | Overdue::Connection => true,
        }
    }

    fn warn(&self, message: &str) {
        if let Some(unlogged) = LOG_LIMIT.permit() {
            tracing::warn!(seconds = self.patience.as_secs(), unlogged, "{message}");
        }
    }
}

/// Returns since when polls are pending.
fn waits<T>(polled: &Poll<T>, since: Option<Instant>) -> Option<Instant> {
    polled.is_pending().then(|| since.unwrap_or_else(Instant::now))
}

/// The work of a call: tracks the unsent bytes of its answer.
#[derive(Debug)]
pub(super) struct AnswerOf(Arc<Unsent>);

impl AnswerOf {
    /// Returns the answer of a request, and attaches its [`Unsent`] bytes to the request.
    pub(super) fn new(request: &mut Request<Body>) -> Self {
        let peer = request.extensions().get::<Peer>();
        let connection = peer.map(|peer| Arc::clone(&peer.unread));
        // A health check needs no credentials, so that its connection is closed instead.
        let address = peer.and_then(|peer| peer.address).filter(|_| !is_health(request));
        let unsent = Arc::new(Unsent::new(connection, address.map(|address| network(address.ip()))));
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
        Ok(call().await?.map(|body| Body::new(Answer { untaken: unsent.untaken(body), unsent })))
    }
}

/// A response body in parts, so that a client which reads slowly makes progress.
struct Answer {
    untaken: Untaken,
    unsent: Arc<Unsent>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut untaken = self.untaken.lock();
        let Some(Rest { body, data }) = &mut *untaken else { return Poll::Ready(Some(Err(abandoned()))) };
        if data.is_empty() {
            let frame = match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(next) => *data = next,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let length = data.len().min(PART_BYTES);
        let part = data.split_to(length);
        drop(untaken);
        Poll::Ready(Some(Ok(Frame::data(self.unsent.track(part)))))
    }

    fn is_end_stream(&self) -> bool {
        let untaken = self.untaken.lock();
        untaken.as_ref().is_some_and(|Rest { body, data }| data.is_empty() && body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        let untaken = self.untaken.lock();
        let Some(Rest { body, data }) = &*untaken else { return hint };
        let (rest, body) = (data.len() as u64, body.size_hint());
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// The error that resets the stream of an answer that is abandoned, with HTTP/2's CANCEL.
fn abandoned() -> Status {
    Status::from_error(Box::new(h2::Error::from(h2::Reason::CANCEL)))
}
