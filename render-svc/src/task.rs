//! RunTask: render → generate → assemble. The same for every adapter, and nothing is parsed out of the answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tandem_common::call::{BearerToken, CredentialsError};
use tandem_common::pb::chat::v1::{Message, message};
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event as Generated;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{
    Finished, GenerateRequest, GenerateResponse, Grammar, ReturnOptions, Sampling, Stop, Summary, TokenIds,
};
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::{self as pb, RunTaskResponse, TaskFinished};
use tandem_common::tokenizer::Encoding;
use tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::args::GenerationArgs;
use crate::chat::Invalid;
use crate::error::Error;
use crate::grpc::convert;
use crate::render::{Output, Rendered};

/// Runs tasks against one generation service.
#[derive(Debug, Clone)]
pub struct TaskRunner {
    generation: Option<GenerateServiceClient<Channel>>,
    token: Option<BearerToken>,
}

/// A rendered conversation and how to answer it.
#[derive(Debug)]
pub struct Task {
    /// With token ids.
    pub rendered: Rendered,
    /// Goes to the generation service as it is.
    pub sampling: Option<Sampling>,
    /// Goes to the generation service as it is.
    pub stop: Option<Stop>,
    /// Goes to the generation service as it is.
    pub return_options: Option<ReturnOptions>,
    /// Higher goes first.
    pub priority: i32,
    /// Only what was computed for tasks of the same salt is reused.
    pub cache_salt: String,
    /// What the answer must be.
    pub grammar: Option<Grammar>,
    /// When the caller stops waiting; the generation service gets what is left.
    pub deadline: Option<Instant>,
}

impl TaskRunner {
    /// Connects when the first task runs, and again whenever the connection is lost.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn new(args: &GenerationArgs) -> Result<Self, CredentialsError> {
        let credentials = args.credentials();
        let endpoint = args.generate.clone().map(|uri| credentials.endpoint(uri)).transpose()?;
        let generation = endpoint.map(|endpoint| GenerateServiceClient::new(endpoint.connect_lazy()));
        Ok(Self { generation, token: credentials.token()? })
    }

    /// Starts a task; the answer streams. Dropping the answer cancels the generation.
    ///
    /// # Errors
    /// There is no generation service, it cannot be reached, or it refuses.
    pub async fn run(&self, task: Task) -> Result<Answer, Error> {
        let mut generation = self.generation.clone().ok_or(Error::NoGenerationService)?;
        let rendered = rendered_event(&task.rendered);
        let mut request = generate_request(task)?;
        if let Some(token) = &self.token {
            token.add_to(request.metadata_mut());
        }
        let stream = generation.generate(request).await.map_err(refused)?.into_inner();
        Ok(Answer { first: Some(rendered), stream, text: String::new(), finish: None, ended: false })
    }
}

/// A status that the transport made has no details; one that the service made has. A prompt that is too long is the conversation's
/// fault: the caller has sent no token ids.
fn refused(status: Status) -> Error {
    let message = status.message().to_owned();
    let details = status.get_error_details();
    match details.error_info().map(|info| info.reason.as_str()) {
        None if is_late(&status) => Error::DeadlineExceeded,
        None => Error::GenerationUnavailable { message },
        // The caller's own credentials are in order.
        Some("CREDENTIALS_MISSING" | "CREDENTIALS_INVALID") => Error::GenerationUnavailable { message },
        Some("PROMPT_TOO_LONG") => Error::PromptTooLong { message },
        Some(_) => Error::Generation(Box::new(status)),
    }
}

/// tonic reports its own timer as CANCELLED.
fn is_late(status: &Status) -> bool {
    matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
}

fn generate_request(task: Task) -> Result<Request<GenerateRequest>, Error> {
    let Task { rendered, sampling, stop, return_options, priority, cache_salt, grammar, deadline } = task;
    if sampling.as_ref().and_then(|sampling| sampling.n).is_some_and(|n| n > 1) {
        return Err(Invalid::new("sampling.n", "must be 1: a task has one answer").into());
    }
    let output_spec = Some(convert::output_spec(rendered.output_spec()));
    let Output::Prompt { tokens: Some(Encoding { ids, .. }), .. } = rendered.output else {
        return Err(Error::ImagesNotSupported);
    };
    let mut request = Request::new(GenerateRequest {
        model: rendered.model.id.clone(),
        input: Some(Input::TokenIds(TokenIds { ids })),
        sampling,
        stop,
        output_spec,
        return_options,
        expected_tokenizer_sha256: Some(rendered.model.tokenizer()?.sha256().to_owned()),
        priority,
        cache_salt,
        grammar,
        resume: None,
    });
    if let Some(deadline) = deadline {
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    }
    Ok(request)
}

fn rendered_event(rendered: &Rendered) -> Event {
    Event::Rendered(pb::Rendered {
        resolution: Some(convert::resolution(&rendered.resolution)),
        warnings: rendered.warnings.iter().map(convert::warning).collect(),
        fingerprint: Some(convert::fingerprint(rendered)),
    })
}

/// The stream of one task's events.
#[derive(Debug)]
pub struct Answer {
    first: Option<Event>,
    stream: Streaming<GenerateResponse>,
    text: String,
    finish: Option<Finished>,
    ended: bool,
}

impl Stream for Answer {
    type Item = Result<RunTaskResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(RunTaskResponse { event: Some(first) })));
        }
        while !self.ended {
            let next = match ready!(Pin::new(&mut self.stream).poll_next(context)) {
                Some(Ok(response)) => self.advance(response.event).map(Ok),
                Some(Err(status)) => self.end(Err(refused(status).into())),
                None => self.end(Err(cut_short())),
            };
            if let Some(item) = next {
                let response = item.map(|event| RunTaskResponse { event: Some(event) });
                return Poll::Ready(Some(response));
            }
        }
        Poll::Ready(None)
    }
}

impl Answer {
    /// The task's event for one of the generation's. None where the task has none of its own.
    fn advance(&mut self, event: Option<Generated>) -> Option<Event> {
        match event? {
            Generated::Accepted(accepted) => Some(Event::Accepted(accepted)),
            Generated::PromptLogprobs(tokens) => Some(Event::PromptLogprobs(tokens)),
            Generated::Delta(delta) => {
                self.text.push_str(&delta.text);
                Some(Event::Delta(delta))
            }
            Generated::Finished(finished) => {
                self.finish = Some(finished);
                None
            }
            Generated::Summary(summary) => {
                self.ended = true;
                Some(Event::Finished(self.assemble(summary)))
            }
        }
    }

    fn assemble(&mut self, summary: Summary) -> TaskFinished {
        let Summary { usage, timings, seed } = summary;
        let content = message::Content::Text(std::mem::take(&mut self.text));
        let message = Message { role: "assistant".to_owned(), content: Some(content), ..Message::default() };
        TaskFinished { message: Some(message), finish: self.finish.take(), usage, timings, seed }
    }

    fn end(&mut self, item: Result<Event, Status>) -> Option<Result<Event, Status>> {
        self.ended = true;
        Some(item)
    }
}

fn cut_short() -> Status {
    Error::GenerationUnavailable { message: "its stream ended before the answer did".to_owned() }.into()
}
