//! `TaskService`: render, then run the task.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use tandem_common::pb::generate::v1::Progress;
use tandem_common::pb::task::v1::task_service_server::TaskService;
use tandem_common::pb::task::v1::{RunTaskRequest, RunTaskResponse};
use tandem_common::serve::{Caller, deadline};
use tandem_common::timing::TASK_SILENCE;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::RenderApi;
use super::convert::{cost, task as convert};
use super::task_paths::TaskPaths;
use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::parse::Rules;
use crate::task::generator::Generator;
use crate::task::output::TaskEvent;
use crate::task::request::Task;
use crate::task::{TaskRun, TaskRunner};
use crate::tool_choice::{CallLimits, ToolChoice};

/// The time for a replica to accept a task before the stream begins. An error within this time ends
/// the call before its first event.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// The next event of a task, and the task unless it has failed to start.
type Next<G> = Pin<Box<dyn Future<Output = (Option<Result<TaskEvent, Error>>, Option<TaskRun<G>>)> + Send>>;

/// Serves [`TaskService`].
#[derive(Debug)]
pub struct TaskApi<G> {
    render: RenderApi,
    runner: TaskRunner<G>,
}

impl<G> TaskApi<G> {
    /// Renders with `render` and generates with `runner`.
    #[must_use]
    pub fn new(render: RenderApi, runner: TaskRunner<G>) -> Self {
        Self { render, runner }
    }
}

#[tonic::async_trait]
impl<G: Generator> TaskService for TaskApi<G> {
    type RunTaskStream = Pin<Box<dyn Stream<Item = Result<RunTaskResponse, Status>> + Send>>;

    async fn run_task(&self, request: Request<RunTaskRequest>) -> Result<Response<Self::RunTaskStream>, Status> {
        let (deadline, max_priority) = (deadline(request.metadata()), Caller::of(&request).max_priority);
        let (mut request, mut parameters) = convert::request(request.into_inner());
        let paths = RequestPaths::new(request.conversation.as_ref());
        // The files' markers are found by their offsets in the prompt.
        request.return_offsets = paths.have_media();
        let limits = parameters.call_limits().map_err(|error| paths.status(error.into()))?;
        let needs_tools = limits.choice != ToolChoice::None && (parameters.parse_output || limits.need_grammar());
        let reading = convert::Reading::of(&request, needs_tools);
        let mut reading = reading.map_err(Error::from)?;
        if limits.choice == ToolChoice::None {
            reading = reading.without_tools(&mut request);
        }
        let rules = self.rules(&reading, &parameters, &limits).await.map_err(|error| paths.status(error))?;
        if limits.need_grammar() {
            limits.check(reading.tools.as_ref()).map_err(|error| paths.status(error))?;
        }
        let cost = cost(&request);
        let rendered = self.render.executor.render(convert::TaskRender(request), cost, |rendered| rendered).await;
        let rendered = paths.rendered(rendered.map_err(|error| paths.status(error))?);
        let field = limits.field();
        let grammar = self.grammar(&reading, limits, rendered.prompt()).await.map_err(|error| paths.status(error))?;
        let grammar_field = grammar.is_some().then_some(field);
        grammar.into_iter().for_each(|lark| parameters.set_grammar(lark));
        let paths = TaskPaths::new(paths, &rendered, grammar_field);
        let mut options = parameters.options(&rendered.output_spec);
        // gen-svc sees this service's token, not the caller's.
        options.priority = options.priority.min(max_priority.unwrap_or(i32::MAX));
        let reader = rules.map(|rules| reading.reader(rules, &rendered, &options)).transpose()?;
        let rendered_event = convert::rendered(&rendered, options.output_spec.clone());
        let known_ids = self.render.executor.catalog().models().generation_ids();
        let mut start = Box::pin(self.runner.run(Task { rendered, known_ids, options, deadline, reader }));
        let next_event = match timeout(START_PATIENCE, &mut start).await {
            Ok(run) => next(Some(run.map_err(|error| paths.status(error))?)),
            Err(_) => first(start),
        };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(rendered_event)).chain(responses(next_event, paths)))))
    }
}

impl<G: Generator> TaskApi<G> {
    /// Returns the rules that read the answer, if the caller wants its parts.
    async fn rules(
        &self,
        reading: &convert::Reading,
        parameters: &convert::Parameters,
        limits: &CallLimits,
    ) -> Result<Option<Arc<Rules>>, Error> {
        if !parameters.parse_output {
            return Ok(None);
        }
        let rules = self.render.executor.rules(&reading.model, reading.adapter.clone()).await?;
        Ok(Some(if limits.choice == ToolChoice::None { Arc::new(rules.without_calls()) } else { rules }))
    }

    /// Returns the grammar that keeps the answer to the limits of its calls, if they need one.
    async fn grammar(
        &self,
        reading: &convert::Reading,
        limits: CallLimits,
        prompt: &str,
    ) -> Result<Option<String>, Error> {
        if !limits.need_grammar() {
            return Ok(None);
        }
        let (adapter, tools) = (reading.adapter.clone(), reading.tools.clone());
        self.render.executor.tool_grammar(&reading.model, adapter, limits, tools, prompt.to_owned()).await
    }
}

/// Returns a task's events as a stream. Each is generated when it is polled for. While there is none,
/// for example because the task waits for a replica, an empty `progress` is sent.
fn responses<G: Generator>(
    next_event: Next<G>,
    paths: TaskPaths,
) -> impl Stream<Item = Result<RunTaskResponse, Status>> + Send {
    unfold((next_event, paths), async |(mut next_event, paths)| match timeout(TASK_SILENCE, &mut next_event).await {
        Ok((event, run)) => {
            let response = event?.map(convert::response).map_err(|error| paths.status(error));
            Some((response, (next(run), paths)))
        }
        Err(_) => Some((Ok(convert::response(TaskEvent::Progress(Progress::default()))), (next_event, paths))),
    })
}

/// Returns the first event of a task that no replica has accepted yet.
fn first<G: Generator>(start: impl Future<Output = Result<TaskRun<G>, Error>> + Send + 'static) -> Next<G> {
    Box::pin(async move {
        match start.await {
            Ok(run) => next(Some(run)).await,
            Err(error) => (Some(Err(error)), None),
        }
    })
}

/// Returns the next event of a task. There is none if the task has failed to start.
fn next<G: Generator>(run: Option<TaskRun<G>>) -> Next<G> {
    Box::pin(async move {
        let Some(mut run) = run else { return (None, None) };
        (run.next().await, Some(run))
    })
}
