//! RunTask: render → generate → assemble. The same for every adapter, and nothing is parsed out of the answer.
//!
//! A generation service that breaks down, or gives up what it has, does not end the answer: it goes on at another replica from the ids
//! told so far. The last of them is generated once more, so that an answer that was complete but for its end is no special case, and
//! what is told twice is left out.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tandem_common::call::CredentialsError;
use tandem_common::pb::chat::v1::{Message, message};
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event as Generated;
use tandem_common::pb::generate::v1::{
    Delta, FinishReason, Finished, GenerateRequest, GenerateResponse, Grammar, OutputSpec, PromptLogprobs, Resume,
    ReturnOptions, Sampling, Stop, Summary, TokenIds,
};
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::{self as pb, RunTaskResponse, TaskFinished};
use tandem_common::random::random_u64;
use tandem_common::status::Reason;
use tandem_common::telemetry::Span;
use tandem_model_files::tokenizer::Encoding;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::args::GenerationArgs;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::generation::{Generation, Lease, PrefixKey};
use crate::grpc::convert;
use crate::metrics::{self, TaskMetrics};
use crate::render::{Output, Rendered};

/// How often a task may go on elsewhere, in all, and without a new token in between: what it asks may be what breaks a replica.
const FAILURES: (usize, usize) = (64, 3);
/// How early a timer may be.
const TIMER: Duration = Duration::from_millis(20);
/// How long after the deadline a replica may say so.
const LATE: Duration = Duration::from_millis(500);
/// How long a call may take to end after its last event.
const CLOSE: Duration = Duration::from_millis(100);
/// Events that may wait for a caller to read them.
const EVENTS: usize = 16;

/// Runs tasks against the generation service.
#[derive(Debug, Clone)]
pub struct TaskRunner {
    generation: Option<Arc<Generation>>,
    meters: TaskMetrics,
}

/// A rendered conversation and how to answer it.
#[derive(Debug)]
pub struct Task {
    /// With token ids.
    pub rendered: Rendered,
    /// Goes to the generation service as it is, with a seed.
    pub sampling: Option<Sampling>,
    /// Goes to the generation service as it is.
    pub stop: Option<Stop>,
    /// Goes to the generation service with a wish for token ids.
    pub return_options: Option<ReturnOptions>,
    /// Higher goes first.
    pub priority: i32,
    /// Only what was computed for tasks of the same salt is reused.
    pub cache_salt: String,
    /// What the answer must be.
    pub grammar: Option<Grammar>,
    /// How the output is read, in place of what the rendering says of it.
    pub output_spec: Option<OutputSpec>,
    /// When the caller stops waiting; the generation service gets what is left.
    pub deadline: Option<std::time::Instant>,
}

/// The stream of one task's events. Dropping it cancels the generation.
pub struct Answer {
    /// What makes the events, until it has made them all. It goes on when the next event is asked for, which spares a task of its own.
    following: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    events: Receiver<Result<RunTaskResponse, Status>>,
}

impl Stream for Answer {
    type Item = Result<RunTaskResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.following.as_mut().is_some_and(|following| following.as_mut().poll(context).is_ready()) {
            self.following = None;
        }
        self.events.poll_recv(context)
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

impl TaskRunner {
    /// Looks for the generation service's replicas, from now on.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn new(args: &GenerationArgs) -> Result<Self, CredentialsError> {
        let generation = Generation::new(args)?.map(Arc::new);
        generation.iter().for_each(|generation| metrics::observe(&Arc::downgrade(generation)));
        Ok(Self { generation, meters: TaskMetrics::default() })
    }

    /// Starts a task; the answer streams.
    ///
    /// # Errors
    /// There is no generation service, none can be reached, or all that can refuse.
    pub async fn run(&self, mut task: Task) -> Result<Answer, Error> {
        let generation = self.generation.clone().ok_or(Error::NoGenerationService)?;
        let of_render = convert::output_spec(&task.rendered.output_spec);
        let output_spec = task.output_spec.get_or_insert_with(|| of_render.clone());
        if output_spec.eos_token_ids.is_empty() {
            output_spec.eos_token_ids = of_render.eos_token_ids;
        }
        let rendered = rendered_event(&task.rendered, output_spec.clone());
        let mut run = Run::new(generation, task, self.meters.clone())?;
        let upstream = run.open(HashSet::new()).await?;
        let (sender, events) = mpsc::channel(EVENTS);
        let following = async move {
            if sender.send(told(rendered)).await.is_ok() {
                run.follow(upstream, &sender).await;
            }
        };
        Ok(Answer { following: Some(Box::pin(following)), events })
    }
}

/// One task under way.
struct Run {
    generation: Arc<Generation>,
    meters: TaskMetrics,
    /// What further calls belong to.
    span: Span,
    /// As it was sent first.
    request: GenerateRequest,
    prompt: Vec<u32>,
    key: PrefixKey,
    deadline: Option<Instant>,
    /// Whether the caller asked for token ids.
    wants_ids: bool,
    is_accepted: bool,
    ids: Vec<u32>,
    text: String,
    /// What was told before the last ids were.
    mark: Told,
    /// What was told when the last ids were. A token's text may come in several events, of which the last has its id.
    next_mark: Told,
    /// What was told in all.
    now: Told,
    /// What is told again, and left out.
    skip: Told,
    finish: Option<Finished>,
    /// In all, and since the last new token.
    failures: (usize, usize),
}

/// How much was told of an answer: ids, and bytes of its text, twice if the caller asked for them as bytes too.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// Tokens of the prompt, with how likely they were.
    prompt: usize,
    ids: usize,
    text: usize,
    bytes: usize,
}

impl Told {
    fn since(self, mark: Self) -> Self {
        Self {
            prompt: self.prompt - mark.prompt,
            ids: self.ids - mark.ids,
            text: self.text - mark.text,
            bytes: self.bytes - mark.bytes,
        }
    }
}

/// A replica at work.
struct Upstream {
    lease: Lease,
    stream: Streaming<GenerateResponse>,
}

impl Upstream {
    /// Lets the call end as it ends, which is to follow at once, rather than as one that was given up.
    async fn close(mut self) {
        let _ = tokio::time::timeout(CLOSE, self.stream.message()).await;
    }
}

/// What becomes of an event.
enum Step {
    /// Nothing, or nothing yet.
    Pass,
    Tell(Event),
    End(Event),
    /// The replica gives the task up.
    GivenUp(Finished),
}

impl Run {
    fn new(generation: Arc<Generation>, task: Task, meters: TaskMetrics) -> Result<Self, Error> {
        let Task { rendered, sampling, stop, return_options, priority, cache_salt, grammar, output_spec, deadline } =
            task;
        if sampling.as_ref().and_then(|sampling| sampling.n).is_some_and(|n| n > 1) {
            return Err(Invalid::new("sampling.n", "must be 1: a task has one answer").into());
        }
        let Output::Prompt { tokens: Some(Encoding { ids: prompt, .. }), .. } = rendered.output else {
            return Err(Error::ImagesNotSupported);
        };
        let (mut sampling, return_options) = (sampling.unwrap_or_default(), return_options.unwrap_or_default());
        // Another replica must draw the same random numbers.
        sampling.seed.get_or_insert_with(random_u64);
        Ok(Self {
            generation,
            meters,
            span: Span::current(),
            key: PrefixKey::new(&cache_salt, &prompt),
            wants_ids: return_options.token_ids,
            request: GenerateRequest {
                model: rendered.model.id.clone(),
                input: None,
                sampling: Some(sampling),
                stop,
                output_spec,
                return_options: Some(ReturnOptions { token_ids: true, ..return_options }),
                expected_tokenizer_sha256: Some(rendered.model.tokenizer()?.sha256().to_owned()),
                priority,
                cache_salt,
                grammar,
                resume: None,
            },
            prompt,
            deadline: deadline.map(Instant::from_std),
            is_accepted: false,
            ids: Vec::new(),
            text: String::new(),
            mark: Told::default(),
            next_mark: Told::default(),
            now: Told::default(),
            skip: Told::default(),
            finish: None,
            failures: (0, 0),
        })
    }

    /// Starts the generation, or goes on with it, at a replica that takes it.
    async fn open(&mut self, mut tried: HashSet<u64>) -> Result<Upstream, Error> {
        let mut refusal = None;
        while let Some(lease) = self.generation.pick(self.key, &tried, self.deadline).await {
            match lease.client().generate(self.request()).await {
                Ok(response) => {
                    self.skip = self.now.since(self.mark);
                    return Ok(Upstream { lease, stream: response.into_inner() });
                }
                Err(status) => match self.trouble(&status) {
                    Trouble::Here => return Err(self.refused(status)),
                    trouble => {
                        trouble.report(&lease);
                        tried.insert(lease.replica().id());
                        refusal = Some(self.refused(status));
                    }
                },
            }
        }
        Err(match refusal {
            Some(refusal) => refusal,
            None if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => Error::DeadlineExceeded,
            None => Error::GenerationUnavailable { message: "no replica of it is well".to_owned() },
        })
    }

    /// As it is to be sent now.
    fn request(&self) -> Request<GenerateRequest> {
        let mut message = self.request.clone();
        let generated = &self.ids[..self.mark.ids];
        let ids = [&self.prompt, generated].concat();
        message.input = Some(Input::TokenIds(TokenIds { ids }));
        if !generated.is_empty() {
            message.resume = Some(Resume { generated_tokens: generated.len() as u32, output_index: 0 });
        }
        if let Some(options) = message.return_options.as_mut().filter(|_| self.now.ids > 0) {
            options.prompt_logprobs = None;
        }
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(token) = self.generation.token() {
            token.add_to(request.metadata_mut());
        }
        request
    }

    /// Tells the caller what the replica tells, and of another what the first could not.
    async fn follow(mut self, mut upstream: Upstream, events: &Sender<Result<RunTaskResponse, Status>>) {
        loop {
            let (trouble, error, given_up) = match self.next(&mut upstream).await {
                Ok(Some(response)) => match response.event.map_or(Step::Pass, |event| self.advance(event)) {
                    Step::Pass => continue,
                    Step::Tell(event) => match events.send(told(event)).await {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                    Step::End(event) => {
                        end(events, told(event)).await;
                        return upstream.close().await;
                    }
                    Step::GivenUp(finished) => (Trouble::GaveUp, cut_short(), Some(finished)),
                },
                Ok(None) => (Trouble::Broken, cut_short(), None),
                Err(status) => (self.trouble(&status), self.refused(status), None),
            };
            let span = self.span.clone();
            match (span.around(self.reopen(&upstream, trouble, error)).await, given_up) {
                (Ok(other), _) => upstream = other,
                // Its own end follows.
                (Err(_), Some(finished)) => self.finish = Some(finished),
                (Err(error), None) => return end(events, Err(error.into())).await,
            }
        }
    }

    /// What the replica tells next. It ends the answer at the deadline, but if it does not, we do.
    async fn next(&self, upstream: &mut Upstream) -> Result<Option<GenerateResponse>, Status> {
        let message = upstream.stream.message();
        match self.deadline {
            None => message.await,
            Some(deadline) => tokio::time::timeout_at(deadline + LATE, message)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("the deadline passed"))),
        }
    }

    /// Goes on at another replica, if that may help.
    async fn reopen(&mut self, upstream: &Upstream, trouble: Trouble, error: Error) -> Result<Upstream, Error> {
        let (all, in_a_row) = self.failures;
        if matches!(trouble, Trouble::Here) || all >= FAILURES.0 || in_a_row >= FAILURES.1 {
            return Err(error);
        }
        self.failures = (all + 1, in_a_row + 1);
        trouble.report(&upstream.lease);
        let replica = upstream.lease.replica();
        tracing::warn!(replica = %replica.address(), tokens = self.ids.len(), "a task goes on elsewhere: {error}");
        let tried = if trouble == Trouble::Elsewhere { HashSet::from([replica.id()]) } else { HashSet::new() };
        let other = self.open(tried).await?;
        self.meters.resumed();
        Ok(other)
    }

    /// A status that the transport made has no details; one that a service made has.
    fn trouble(&self, status: &Status) -> Trouble {
        match status.get_error_details().error_info().map(|info| info.reason.as_str()) {
            None if self.is_late(status) => Trouble::Here,
            None | Some("ENGINE_FAILED") => Trouble::Broken,
            Some("LOADING" | "DRAINING" | "QUEUE_FULL" | "GRAMMAR_QUEUE_FULL" | "OVERLOADED") => Trouble::Elsewhere,
            Some(_) => Trouble::Here,
        }
    }

    /// What the caller is told. A prompt that is too long is the conversation's fault: the caller has sent no token ids.
    fn refused(&self, status: Status) -> Error {
        let message = status.message().to_owned();
        let details = status.get_error_details();
        // What is wrong, without the field of a request that the caller has not made.
        let problem = || {
            let violation = details.bad_request().and_then(|request| request.field_violations.first());
            violation.map_or_else(|| message.clone(), |violation| violation.description.clone())
        };
        match details.error_info().map(|info| info.reason.as_str()) {
            None if self.is_late(&status) => Error::DeadlineExceeded,
            None => Error::GenerationUnavailable { message },
            // The caller's own credentials are in order.
            Some("CREDENTIALS_MISSING" | "CREDENTIALS_INVALID") => Error::GenerationUnavailable { message },
            Some("PROMPT_TOO_LONG") => Error::PromptTooLong { reason: Reason::PromptTooLong, message: problem() },
            Some("PROMPT_OVER_LIMIT") => Error::PromptTooLong { reason: Reason::PromptOverLimit, message: problem() },
            Some(_) => Error::Generation(Box::new(status)),
        }
    }

    /// tonic reports its own timer as CANCELLED, and a connection that closes before it takes a call as well.
    fn is_late(&self, status: &Status) -> bool {
        let has_passed = |deadline: Instant| deadline <= Instant::now() + TIMER;
        match status.code() {
            Code::DeadlineExceeded => true,
            Code::Cancelled => self.deadline.is_some_and(has_passed),
            _ => false,
        }
    }

    fn advance(&mut self, event: Generated) -> Step {
        match event {
            Generated::Accepted(accepted) => match std::mem::replace(&mut self.is_accepted, true) {
                false => Step::Tell(Event::Accepted(accepted)),
                true => Step::Pass,
            },
            Generated::PromptLogprobs(tokens) => self.prompt_logprobs(tokens),
            Generated::Delta(delta) => self.delta(delta),
            Generated::Finished(finished) if finished.reason() == FinishReason::Cancelled => Step::GivenUp(finished),
            Generated::Finished(finished) => {
                self.finish = Some(finished);
                Step::Pass
            }
            Generated::Summary(summary) => Step::End(Event::Finished(self.assemble(summary))),
        }
    }

    fn prompt_logprobs(&mut self, mut logprobs: PromptLogprobs) -> Step {
        leave_out(&mut logprobs.tokens, &mut self.skip.prompt);
        self.now.prompt += logprobs.tokens.len();
        if logprobs.tokens.is_empty() { Step::Pass } else { Step::Tell(Event::PromptLogprobs(logprobs)) }
    }

    fn delta(&mut self, mut delta: Delta) -> Step {
        delta.tokens.drain(..self.skip.ids.min(delta.tokens.len()));
        leave_out(&mut delta.token_ids, &mut self.skip.ids);
        leave_out(&mut delta.bytes, &mut self.skip.bytes);
        let again = delta.text.floor_char_boundary(self.skip.text);
        delta.text.drain(..again);
        self.skip.text -= again;
        let has_ids = !delta.token_ids.is_empty();
        if has_ids {
            self.mark = self.next_mark;
            self.failures.1 = 0;
        }
        self.ids.extend(&delta.token_ids);
        self.text.push_str(&delta.text);
        self.now.ids += delta.token_ids.len();
        self.now.text += delta.text.len();
        self.now.bytes += delta.bytes.len();
        if has_ids {
            self.next_mark = self.now;
        }
        if !self.wants_ids {
            delta.token_ids.clear();
        }
        let says_nothing = delta.text.is_empty() && delta.token_ids.is_empty() && delta.tokens.is_empty();
        if says_nothing { Step::Pass } else { Step::Tell(Event::Delta(delta)) }
    }

    fn assemble(&mut self, summary: Summary) -> TaskFinished {
        let Summary { usage, timings, seed } = summary;
        let content = message::Content::Text(std::mem::take(&mut self.text));
        let message = Message { role: "assistant".to_owned(), content: Some(content), ..Message::default() };
        TaskFinished { message: Some(message), finish: self.finish.take(), usage, timings, seed }
    }
}

/// Leaves out what was told before: so many of the first.
fn leave_out<T>(items: &mut Vec<T>, again: &mut usize) {
    let count = items.len().min(*again);
    items.drain(..count);
    *again -= count;
}

fn told(event: Event) -> Result<RunTaskResponse, Status> {
    Ok(RunTaskResponse { event: Some(event) })
}

/// Tells the last that there is to tell. Who asked may have gone.
async fn end(events: &Sender<Result<RunTaskResponse, Status>>, last: Result<RunTaskResponse, Status>) {
    let _ = events.send(last).await;
}

/// Where the trouble lies that a status tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// In the request: another replica would say the same.
    Here,
    /// This replica takes nothing on, now.
    Elsewhere,
    /// This replica gave the answer up: it ends, or nobody read. Whether it takes more on is for it, or who stands behind it, to say.
    GaveUp,
    /// This replica is broken, or cannot be reached.
    Broken,
}

impl Trouble {
    fn report(self, lease: &Lease) {
        if self == Self::Broken {
            lease.broke();
        }
    }
}

fn rendered_event(rendered: &Rendered, output_spec: OutputSpec) -> Event {
    Event::Rendered(pb::Rendered {
        resolution: Some(convert::resolution(&rendered.resolution)),
        warnings: rendered.warnings.iter().map(convert::warning).collect(),
        fingerprint: Some(convert::fingerprint(rendered)),
        output_spec: Some(output_spec),
    })
}

fn cut_short() -> Error {
    Error::GenerationUnavailable { message: "its stream ended before the answer did".to_owned() }
}
