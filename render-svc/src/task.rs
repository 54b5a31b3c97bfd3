//! RunTask behind the rendering: generate → assemble. It is the same for every adapter, and parses
//! nothing out of the answer.
//!
//! If a replica fails or ends the output early, the task resumes on another one from the token ids
//! already delivered.

pub mod generator;
pub mod model_names;
pub mod output;
pub mod prefix;
mod replay;
pub mod request;
mod retry;

use std::sync::Arc;

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::telemetry::Span;

use crate::error::Error;
use crate::metrics::TaskMetrics;
use generator::{FailureClass, GenerationError, GenerationStream as _, Generator};
use output::{Step, TaskEvent, TaskOutput};
use request::{GenerationRequest, Task};
use retry::RetryBudget;

/// Runs tasks on a generator.
#[derive(Debug)]
pub struct TaskRunner<G> {
    generator: Option<Arc<G>>,
    metrics: TaskMetrics,
}

impl<G: Generator> TaskRunner<G> {
    /// Creates a runner. Without a generator, it rejects every task.
    #[must_use]
    pub fn new(generator: Option<G>) -> Self {
        Self { generator: generator.map(Arc::new), metrics: TaskMetrics::default() }
    }

    /// Starts a task.
    ///
    /// # Errors
    /// There is no generator, the task cannot be generated as one text output, or no replica
    /// accepts it.
    pub fn run(&self, mut task: Task) -> impl Future<Output = Result<TaskRun<G>, Error>> + Send + use<G> {
        let (generator, metrics, span) = (self.generator.clone(), self.metrics.clone(), Span::current());
        async move {
            let generator = generator.ok_or(Error::NoGenerationService)?;
            let output = TaskOutput::new(task.options.return_options.token_ids, task.reader.take());
            let request = generation_request(task).await?;
            let stream = span.around(generator.start(&request)).await?;
            Ok(TaskRun {
                generator,
                metrics,
                span,
                request,
                stream,
                has_ended: false,
                last: None,
                has_diverged: false,
                output,
                retries: RetryBudget::default(),
            })
        }
    }
}

/// Returns the request of a task. A long one is created on another thread, so that the calls of the
/// thread's other connections do not wait.
async fn generation_request(task: Task) -> Result<GenerationRequest, Error> {
    if task.has_media() {
        return tokio::task::spawn_blocking(|| GenerationRequest::try_from(task)).await?;
    }
    GenerationRequest::try_from(task)
}

/// A running task. Dropping it cancels the generation.
#[derive(Debug)]
pub struct TaskRun<G: Generator> {
    generator: Arc<G>,
    metrics: TaskMetrics,
    /// Parent of further calls.
    span: Span,
    request: GenerationRequest,
    stream: G::Stream,
    has_ended: bool,
    /// The last event, while an event before it is delivered.
    last: Option<TaskEvent>,
    /// True after a resumed output differed from the delivered one.
    has_diverged: bool,
    output: TaskOutput,
    retries: RetryBudget,
}

impl<G: Generator> TaskRun<G> {
    /// Returns the next event, or None after the last one. Nothing is read ahead of the returned
    /// event.
    ///
    /// # Errors
    /// The output failed, and the task cannot resume it. The task ends.
    pub async fn next(&mut self) -> Option<Result<TaskEvent, Error>> {
        while !self.has_ended {
            if let Some(parsed) = self.output.take_parsed() {
                return Some(Ok(parsed));
            }
            let event = self.stream.next().await;
            match self.advance(event).await {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => {
                    self.has_ended = true;
                    let is_late = matches!(error, Error::DeadlineExceeded | Error::NoReplicaInTime { .. });
                    let end = is_late.then(|| self.output.end_at_deadline()).flatten();
                    return Some(end.map(|end| self.ended(end)).ok_or(error));
                }
            }
        }
        self.last.take().map(Ok)
    }

    /// Ends the task with this event. The last parts of the answer come before it.
    fn ended(&mut self, event: TaskEvent) -> TaskEvent {
        self.has_ended = true;
        match self.output.take_parsed() {
            Some(parsed) => {
                self.last = Some(event);
                parsed
            }
            None => event,
        }
    }

    /// Returns the caller's event for one of the replica's, if any.
    async fn advance(&mut self, event: Result<Event, GenerationError>) -> Result<Option<TaskEvent>, Error> {
        let event = match event {
            Ok(event) => event,
            Err(GenerationError { class, error }) => return self.resume(class, error).await.map(|()| None),
        };
        let tokens = self.output.tokens();
        let step = self.output.advance(event);
        if self.output.tokens() > tokens {
            self.retries.record_progress();
        }
        match step {
            Step::Skip => Ok(None),
            Step::Emit(event) => Ok(Some(event)),
            Step::End(event) => Ok(Some(self.ended(event))),
            Step::Interrupted => {
                let message = "the replica ended the output early, and no other replica continued it".to_owned();
                let error = Error::GenerationUnavailable { message };
                self.resume(FailureClass::Interrupted, error).await.map(|()| None)
            }
            Step::Failed => {
                self.resume_failed().await;
                Ok(None)
            }
            Step::Diverged => self.resume_diverged().await.map(|()| None),
        }
    }

    /// Resumes an output that a replica repeats with other tokens or text: its arithmetic differs, or it
    /// ignores the request to resume. The first time, another replica may repeat it. Else the output
    /// continues after the delivered tokens, without repeating one.
    async fn resume_diverged(&mut self) -> Result<(), Error> {
        let message = "a replica did not repeat the end of the delivered output".to_owned();
        let error = || Error::GenerationUnavailable { message: message.clone() };
        if !std::mem::replace(&mut self.has_diverged, true) {
            match self.resume(FailureClass::RetryElsewhere, error()).await {
                Err(Error::GenerationUnavailable { .. }) => {}
                resumed => return resumed,
            }
        }
        // Only a replica can complete an output with all of its tokens: text may be held back, and the reason of
        // its end is not known.
        let max_tokens = self.request.options.stop.as_ref().and_then(|stop| stop.max_new_tokens);
        if max_tokens.is_some_and(|max_tokens| self.output.tokens() >= max_tokens as usize) {
            return Err(error());
        }
        self.output.keep_last_token();
        self.resume(FailureClass::Interrupted, error()).await
    }

    /// Resumes an output that ended because the model failed. If no other replica accepts it, the output ends
    /// with the failure.
    async fn resume_failed(&mut self) {
        let error = Error::GenerationUnavailable { message: "the model failed during the output".to_owned() };
        if let Err(error) = self.resume(FailureClass::Faulty, error).await {
            tracing::warn!(%error, "the failed output is not resumed");
        }
    }

    /// Resumes the output on a replica that accepts it.
    ///
    /// # Errors
    /// Returns `error` if no replica can help or the retries are used up, else the error of the
    /// last attempt.
    async fn resume(&mut self, class: FailureClass, error: Error) -> Result<(), Error> {
        if class == FailureClass::Permanent || !self.retries.take() {
            return Err(error);
        }
        let tokens = self.output.tokens();
        tracing::warn!(replica = %self.stream.replica(), tokens, %error, "output interrupted, resuming");
        if tokens > 0 {
            self.request.options.return_options.prompt_logprobs = None;
        }
        let resumed = self.generator.resume(&self.request, self.output.resume_after(), &self.stream, class);
        self.stream = match self.span.around(resumed).await {
            Ok(stream) => stream,
            // No replica is left. The error of the last one names its fault.
            Err(Error::GenerationUnavailable { .. }) if class == FailureClass::Faulty => return Err(error),
            Err(_) if class == FailureClass::Doubtful => return Err(error),
            Err(other) => return Err(other),
        };
        self.output.restart();
        self.metrics.resumed();
        Ok(())
    }
}
