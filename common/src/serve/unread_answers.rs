//! The patience for answers that a client does not read.
//!
//! HTTP/2 sends nothing to a client whose window is closed, and asks the body for nothing more. The
//! call would keep its place for ever. After the patience, its connection closes.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

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
pub(super) struct AnswerOf(Option<Arc<UnreadAnswers>>);

impl AnswerOf {
    /// An answer on a connection. None: not of a connection.
    pub(super) fn new(connection: Option<Arc<UnreadAnswers>>) -> Self {
        Self(connection)
    }
}

impl CallWork for AnswerOf {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let response = call().await?;
        Ok(match self.0 {
            None => response,
            Some(answers) => {
                let id = IDS.fetch_add(1, Ordering::Relaxed);
                response.map(|body| Body::new(Answer { body, id, answers }))
            }
        })
    }
}

/// A response body. It is unread from one part until the next is asked for.
struct Answer {
    body: Body,
    id: u64,
    answers: Arc<UnreadAnswers>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let mut unread = self.answers.0.lock();
        if matches!(polled, Poll::Ready(Some(Ok(_)))) {
            unread.insert(self.id, Instant::now());
        } else {
            unread.remove(&self.id);
        }
        drop(unread);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.answers.0.lock().remove(&self.id);
    }
}
