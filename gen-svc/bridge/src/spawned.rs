//! The reports of a call that is a task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinError, JoinHandle};

use crate::call::{Call, CallEnd, CallError, Report, Reports};
use crate::protocol::Protocol;

/// The reports that may wait. Then the task waits, and the engine's connection with it.
const WAITING: usize = 16;

/// A task and its reports. Dropping it ends the task.
pub(crate) struct Spawned {
    reports: Receiver<Report>,
    /// None after its end.
    task: Option<JoinHandle<Result<CallEnd, CallError>>>,
}

impl Spawned {
    /// Starts a call. Dropping its reports cancels it.
    pub(crate) fn reports(protocol: Arc<dyn Protocol>, call: Call) -> Reports {
        let (sender, reports) = mpsc::channel(WAITING);
        let run = async move { protocol.run(call, &sender).await };
        Box::pin(Self { reports, task: Some(tokio::spawn(run)) })
    }
}

impl Stream for Spawned {
    type Item = Result<Report, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(report) = ready!(self.reports.poll_recv(context)) {
            return Poll::Ready(Some(Ok(report)));
        }
        let Some(task) = &mut self.task else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(task).poll(context));
        self.task = None;
        let lost = |error: JoinError| CallError::Lost(error.to_string());
        Poll::Ready(Some(ended.map_err(lost).and_then(|ended| ended.map(Report::Ended))))
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Sends a report. Fails if no task reads them, which ends the call.
///
/// # Errors
/// [`CallError::Lost`].
pub(crate) async fn send(reports: &Sender<Report>, report: Report) -> Result<(), CallError> {
    reports.send(report).await.map_err(|_| CallError::Lost("the call is cancelled".to_owned()))
}
