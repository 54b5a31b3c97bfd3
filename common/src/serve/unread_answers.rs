//! The patience for answers that a client does not read.
//!
//! HTTP/2 sends nothing to a client whose window is closed, and asks the body for nothing more. The
//! call would keep its place for ever. After the patience, its connection closes. A call lasts until its
//! answer is sent, see [`Unsent`].

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::caller::Peer;
use super::unsent::Unsent;
use crate::call_layer::CallWork;
use crate::log_limit::{LogLimit, PEER_INTERVAL};

/// The number of checks of a connection within the patience.
const CHECKS: u32 = 4;

static LOG_LIMIT: LogLimit = LogLimit::new(PEER_INTERVAL);

/// The answers of one connection of which a part waits to be sent, and since when.
#[derive(Debug, Default)]
pub(super) struct UnreadAnswers(Mutex<HashMap<u64, Instant>>);

impl UnreadAnswers {
    fn has_older(&self, age: Duration) -> bool {
        self.0.lock().values().any(|since| since.elapsed() > age)
    }
}

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

/// The work of a call: marks its answer as unread while a part of it waits to be sent.
#[derive(Debug)]
pub(super) struct AnswerOf {
    /// None: not of a connection.
    connection: Option<Arc<UnreadAnswers>>,
    unsent: Arc<Unsent>,
}

impl AnswerOf {
    /// Returns the answer of a request, and attaches its [`Unsent`] bytes to the request.
    pub(super) fn new(request: &mut Request<Body>) -> Self {
        let unsent = Arc::<Unsent>::default();
        request.extensions_mut().insert(Arc::clone(&unsent));
        Self { connection: request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.unread)), unsent }
    }
}

impl CallWork for AnswerOf {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let response = call().await?;
        let Self { connection, unsent } = self;
        Ok(match connection {
            None => response,
            Some(answers) => response.map(|body| Body::new(Answer::new(body, answers, unsent))),
        })
    }
}

/// A response body. It is unread until its first part is asked for, and from one part until the next.
struct Answer {
    body: Body,
    id: u64,
    answers: Arc<UnreadAnswers>,
    unsent: Arc<Unsent>,
    /// The end of `body`, which waits until the parts before it are sent.
    end: Option<End>,
}

/// What ends a body: trailers, an error or nothing.
type End = Option<Result<Frame<Bytes>, Status>>;

impl Answer {
    fn new(body: Body, answers: Arc<UnreadAnswers>, unsent: Arc<Unsent>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let answer = Self { body, id: IDS.fetch_add(1, Ordering::Relaxed), answers, unsent, end: None };
        answer.mark_unread();
        answer
    }

    fn mark_unread(&self) {
        self.answers.0.lock().insert(self.id, Instant::now());
    }

    fn mark_read(&self) {
        self.answers.0.lock().remove(&self.id);
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.end.is_none() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                    self.mark_unread();
                    return Poll::Ready(Some(Ok(frame.map_data(|data| self.unsent.track(data)))));
                }
                Poll::Ready(end) => self.end = Some(end),
                Poll::Pending => {
                    self.mark_read();
                    return Poll::Pending;
                }
            }
        }
        ready!(self.unsent.poll_sent(context));
        self.mark_read();
        Poll::Ready(self.end.take().flatten())
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.mark_read();
    }
}
