//! One request over either route, with the arrival time of each token.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tandem_common::pb::generate::v1::Delta;
use tandem_common::pb::generate::v1::generate_response::Event as Generated;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tonic::transport::Channel;

use super::task::{Answer, Task};

/// The route of a request to gen-svc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To gen-svc, as token ids.
    Direct,
    /// Through render-svc, as a conversation.
    RunTask,
}

impl Route {
    /// Returns both routes, in an order that alternates from round to round.
    pub(super) fn in_turn(round: u32) -> [Self; 2] {
        if round.is_multiple_of(2) { [Self::Direct, Self::RunTask] } else { [Self::RunTask, Self::Direct] }
    }
}

/// A connection to the first service of a route. Clones share the connection.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    Direct(GenerateServiceClient<Channel>),
    RunTask(TaskServiceClient<Channel>),
}

/// An answer and its arrival times.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) answer: Answer,
    /// Time from sending the request to the arrival of each token.
    pub(super) times: Vec<Duration>,
    start: Instant,
}

impl Call {
    fn begin() -> Self {
        Self { answer: Answer::default(), times: Vec::new(), start: Instant::now() }
    }

    fn add(&mut self, delta: &Delta) {
        self.answer.text.push_str(&delta.text);
        self.answer.ids.extend(&delta.token_ids);
        self.times.resize(self.answer.ids.len(), self.start.elapsed());
    }
}

impl Caller {
    /// Sends a task's request. Fails if the answer is not the expected answer.
    pub(super) async fn measure(&mut self, task: &Task) -> Result<Call> {
        let call = self.ask(task).await?;
        ensure!(call.answer == task.answer, "{:?} is not the known answer {:?}", call.answer, task.answer);
        Ok(call)
    }

    pub(super) async fn ask(&mut self, task: &Task) -> Result<Call> {
        match self {
            Self::Direct(client) => direct(client, task).await,
            Self::RunTask(client) => run_task(client, task).await,
        }
    }
}

async fn direct(client: &mut GenerateServiceClient<Channel>, task: &Task) -> Result<Call> {
    let request = task.direct.clone();
    let mut call = Call::begin();
    let mut events = client.generate(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        if let Some(Generated::Delta(delta)) = event.event {
            call.add(&delta);
        }
    }
    Ok(call)
}

async fn run_task(client: &mut TaskServiceClient<Channel>, task: &Task) -> Result<Call> {
    let request = task.run_task.clone();
    let mut call = Call::begin();
    let mut events = client.run_task(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        if let Some(Event::Delta(delta)) = event.event {
            call.add(&delta);
        }
    }
    Ok(call)
}
