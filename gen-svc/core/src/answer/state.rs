//! The state of an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use tandem_common::telemetry::Span;
use tokio::sync::mpsc;

use super::event::{Accepted, Event, FinishReason, Finished, Summary, Timings};
use super::metrics::{RequestMetrics, attribute_count};
use super::output::{self, Output};
use super::progress::RequestProgress;
use super::queue::QueueSlot;
use super::sink::EventSink;
use crate::error::RequestError;
use crate::output::Matched;
use crate::request::{PreparedRequest, Stage};
use crate::sampling::{Chosen, Logprobs};

/// The answer to a request. Dropped before its end, the caller gets no further event.
#[derive(Debug)]
pub struct Answer {
    pub(crate) request: PreparedRequest,
    pub(crate) progress: Arc<RequestProgress>,
    pub(crate) span: Span,
    /// Tokens that launched steps choose, and that the answer does not have yet.
    pub(crate) awaited: usize,
    sink: EventSink,
    /// Taken when the request leaves the queue.
    slot: Option<QueueSlot>,
    /// Open until the request leaves the queue.
    queue_span: Span,
    metrics: Arc<RequestMetrics>,
    deadline: Option<Instant>,
    /// The spans of the outputs' current phases, such as `prefill`, then `decode`.
    phases: Vec<Span>,
    /// One for each output. Created with its first token, so that a queued request needs little memory.
    outputs: Vec<Option<Output>>,
    /// Outputs that have not ended.
    unfinished: usize,
    /// Cached tokens of the prompt, once the request has left the queue.
    cached_tokens: Option<usize>,
    completion_tokens: usize,
    clock: Clock,
}

/// The times of a request.
#[derive(Debug, Clone, Copy)]
struct Clock {
    submitted: Instant,
    started: Instant,
    first_token: Option<Instant>,
    last_token: Instant,
}

impl Clock {
    fn new(submitted: Instant) -> Self {
        Self { submitted, started: submitted, first_token: None, last_token: submitted }
    }

    fn timings(&self) -> Timings {
        let first_token = self.first_token.unwrap_or(self.last_token);
        Timings {
            queue: self.started - self.submitted,
            prefill: first_token - self.started,
            decode: self.last_token - first_token,
        }
    }
}

/// Why a request ends before its outputs do.
#[derive(Debug)]
pub enum Interruption {
    /// The caller has cancelled the request.
    CallerGone,
    /// The request is rejected while it waits.
    Refused(RequestError),
    /// The request is ended while it runs.
    Ended(FinishReason),
}

/// Whether an output continues after a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The engine generates the next token.
    Continues,
    /// The output has ended.
    Ended,
}

impl Answer {
    /// Creates the answer to a request with a place in the queue, and the channel of its events. Dropping the
    /// receiver cancels the request. The request's span is a child of the current span.
    #[must_use]
    pub fn new(
        request: PreparedRequest,
        slot: QueueSlot,
        deadline: Option<Instant>,
        progress: Arc<RequestProgress>,
    ) -> (Self, mpsc::Receiver<Event>) {
        let outputs = request.sampling.n as usize;
        let (events, receiver) = mpsc::channel(slot.event_capacity() + 2 * outputs + 1);
        let span = span(slot.model(), &request);
        let metrics = Arc::clone(slot.metrics());
        metrics.request_arrived(!request.generated().is_empty());
        // Until the engine reads the request: it may be in the middle of a step.
        progress.set_queue_place(slot.queued().max(1));
        progress.set_completion(request.generated().len());
        let answer = Self {
            sink: EventSink::new(events),
            progress,
            metrics,
            slot: Some(slot),
            queue_span: span.part("queue", || []),
            span,
            deadline,
            phases: (0..outputs).map(|_| Span::none()).collect(),
            outputs: (0..outputs).map(|_| None).collect(),
            unfinished: outputs,
            cached_tokens: None,
            completion_tokens: request.generated().len(),
            awaited: 0,
            clock: Clock::new(Instant::now()),
            request,
        };
        (answer, receiver)
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &PreparedRequest {
        &self.request
    }

    /// Returns true if the request has left the queue.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.cached_tokens.is_some()
    }

    /// Takes the request out of the queue, with the first `cached` tokens of the prompt found in a prefix cache.
    pub fn accept(&mut self, cached: usize) {
        self.slot = None;
        self.queue_span = Span::none();
        let prompt_tokens = self.request.prompt_tokens;
        let cached_tokens = cached.min(prompt_tokens);
        self.cached_tokens = Some(cached_tokens);
        self.progress.leave_queue();
        self.progress.set_computed(cached_tokens);
        let started = Instant::now();
        self.clock = Clock { started, last_token: started, ..self.clock };
        let queue = self.timings().queue;
        self.metrics.request_started(queue, cached_tokens);
        let (sampling, limits) = (self.request.sampling.clone(), self.request.limits.clone());
        let image_tokens = self.request.image_tokens();
        self.sink.send(Event::Accepted(Accepted {
            sampling,
            limits,
            prompt_tokens,
            cached_tokens,
            image_tokens,
            queue,
        }));
    }

    /// Sets the cached tokens of the prompt of an accepted request.
    pub(super) fn set_cached(&mut self, cached: usize) {
        self.cached_tokens = Some(cached);
    }

    /// Returns how far the request is.
    pub(super) fn progress(&self) -> &RequestProgress {
        &self.progress
    }

    /// Returns when the request ends at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns why the request ends now, if it does, and measures its back-pressure. `is_stopped`: the engine
    /// ends. `patience`: how long a reader may leave the channel full.
    pub fn interruption(&mut self, is_stopped: bool, patience: Duration) -> Option<Interruption> {
        let now = Instant::now();
        self.measure_back_pressure(now);
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        if self.sink.is_closed() {
            Some(Interruption::CallerGone)
        } else if self.is_accepted() {
            let is_cancelled = is_stopped || self.sink.unread(now) > patience;
            let reason =
                if is_late { Some(FinishReason::Deadline) } else { is_cancelled.then_some(FinishReason::Cancelled) };
            reason.map(Interruption::Ended)
        } else if is_late {
            Some(Interruption::Refused(RequestError::DeadlineInQueue))
        } else {
            is_stopped.then_some(Interruption::Refused(RequestError::Draining))
        }
    }

    /// Measures the back-pressure of the caller.
    pub fn measure_back_pressure(&mut self, now: Instant) {
        self.sink.measure(self.unfinished, self.awaited, now);
    }

    /// Returns true if the caller had no room for a further token of each output, when this was last measured. The
    /// engine then waits: a token that is added has no place in the channel.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.sink.is_full()
    }

    /// Returns how long the caller has had no room.
    #[must_use]
    pub fn unread(&self, now: Instant) -> Duration {
        self.sink.unread(now)
    }

    /// Sends the log-probabilities of the next prompt tokens.
    pub fn send_prompt(&self, tokens: Vec<(u32, Logprobs)>) {
        if !tokens.is_empty() {
            let token = |(id, logprobs): &(u32, Logprobs)| output::token(&self.request, *id, logprobs);
            self.sink.send(Event::PromptLogprobs(tokens.iter().map(token).collect()));
        }
    }

    /// Records the phase of an output, with the number of its cached tokens if it starts with some. It ends before
    /// the last event of the output.
    pub fn enter_phase(&mut self, output: u32, name: &'static str, cached: Option<usize>) {
        let of_output = || KeyValue::new("tandem.output", i64::from(output));
        let of_cached = |cached| KeyValue::new("tandem.cached_tokens", attribute_count(cached));
        let index = self.index(output);
        self.phases[index] = match cached {
            Some(cached) => self.span.part(name, || [of_output(), of_cached(cached)]),
            None => self.span.part(name, || [of_output()]),
        };
    }

    /// Adds a token to an output. Its text is sent with [`deliver`](Self::deliver), or with the end of the output.
    /// `completes`: whether a token completes the text of a grammar. It is asked at the limit of tokens.
    pub fn push(&mut self, output: u32, Chosen { id, logprobs }: Chosen, completes: impl FnOnce(u32) -> bool) -> Flow {
        self.record_token();
        let limit = self.request.limits.max_new_tokens;
        let (request, state) = self.output(output);
        let matched = state.push(request, id, logprobs.as_ref());
        let reason = match (&matched, state.tokens() >= limit) {
            (Some(_), _) => FinishReason::Stop,
            (None, true) if completes(id) => FinishReason::Stop,
            (None, true) => FinishReason::Length,
            (None, false) => return Flow::Continues,
        };
        state.flush();
        self.finish(output, reason, matched);
        Flow::Ended
    }

    /// Returns whether the grammar of an output binds its next token.
    #[must_use]
    pub fn stage(&self, output: u32) -> Stage {
        self.outputs[self.index(output)].as_ref().map_or(self.request.stage, Output::stage)
    }

    /// Returns the token that must come next in an output because its reasoning has reached its limit.
    pub(crate) fn forced(&self, output: u32) -> Option<u32> {
        let request = &self.request;
        let limit = request.limits.max_reasoning_tokens;
        let first = || request.reasoning.forced(limit, &request.output);
        self.outputs[self.index(output)].as_ref().map_or_else(first, |state| state.forced(request))
    }

    /// Sends the text and the tokens that were added to an output.
    pub fn deliver(&mut self, output: u32) {
        let (request, state) = self.output(output);
        let delta = state.take(request, output);
        if !delta.is_empty() {
            self.sink.send(Event::Delta(delta));
        }
    }

    /// Ends an output without a further token. Text that is held back is sent.
    pub fn end(&mut self, output: u32, reason: FinishReason) {
        self.output(output).1.flush();
        self.finish(output, reason, None);
    }

    /// Ends an output because its computation failed.
    pub fn fail(&mut self, output: u32) {
        self.span.fail();
        self.finish(output, FinishReason::Error, None);
    }

    /// Ends an output because its request was interrupted.
    pub fn interrupt(&mut self, output: u32, interruption: Interruption) {
        match interruption {
            Interruption::CallerGone => self.log(output, "cancelled"),
            Interruption::Refused(error) => self.refuse(error),
            Interruption::Ended(reason) => self.end(output, reason),
        }
    }

    /// Rejects a request that waits, with all its outputs. Later calls have no effect.
    pub fn refuse(&mut self, error: RequestError) {
        if std::mem::replace(&mut self.unfinished, 0) == 0 {
            return;
        }
        self.queue_span = Span::none();
        let _entered = self.span.enter();
        tracing::info!(finish = error.reason().name(), tokens = 0, "left the queue");
        self.sink.send(Event::Refused(error));
    }

    /// Ends an output because the engine has failed, and with the first one the request. Another replica can resume
    /// the outputs.
    pub fn abort(&mut self, output: u32) {
        self.span.fail();
        if !self.is_accepted() {
            return self.refuse(RequestError::EngineFailed);
        }
        self.end_phase(output);
        self.log(output, FinishReason::Error.name());
        if std::mem::replace(&mut self.unfinished, 0) > 0 {
            self.sink.send(Event::Refused(RequestError::EngineFailed));
        }
    }

    /// Returns the request, and the state of an output.
    fn output(&mut self, output: u32) -> (&PreparedRequest, &mut Output) {
        let index = self.index(output);
        let Self { request, outputs, .. } = self;
        let state = outputs[index].get_or_insert_with(|| Output::new(request));
        (request, state)
    }

    fn index(&self, output: u32) -> usize {
        (output - self.request.first_output) as usize
    }

    fn end_phase(&mut self, output: u32) {
        let index = self.index(output);
        self.phases[index] = Span::none();
    }

    fn record_token(&mut self) {
        let now = Instant::now();
        if self.clock.first_token.is_none() {
            self.metrics.first_token(now - self.clock.submitted);
        }
        self.clock.first_token.get_or_insert(now);
        self.clock.last_token = now;
        self.completion_tokens += 1;
        self.progress.set_completion(self.completion_tokens);
    }

    fn finish(&mut self, output: u32, reason: FinishReason, matched: Option<Matched>) {
        self.end_phase(output);
        self.log(output, reason.name());
        let (request, state) = self.output(output);
        let last = state.take(request, output);
        let extracted_text = state.extracted(request);
        let grammar_not_reached = state.grammar_not_reached();
        self.sink.send(Event::Finished(Finished { last, reason, matched, extracted_text, grammar_not_reached }));
        self.unfinished = self.unfinished.saturating_sub(1);
        if self.unfinished == 0 {
            self.sum_up();
        }
    }

    /// Sends the summary, after the last output.
    fn sum_up(&self) {
        let (request, completion_tokens) = (&self.request, self.completion_tokens);
        self.span.set("gen_ai.usage.output_tokens", attribute_count(completion_tokens));
        let generated = completion_tokens - request.generated().len();
        let (prompt_tokens, outputs) = (request.prompt_tokens, request.sampling.n as usize);
        self.metrics.request_ended(self.timings(), prompt_tokens, generated, outputs);
        self.sink.send(Event::Summary(Summary {
            prompt_tokens,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            image_tokens: request.image_tokens(),
            completion_tokens,
            timings: self.timings(),
            seed: request.sampling.seed,
        }));
    }

    fn timings(&self) -> Timings {
        self.clock.timings()
    }

    fn log(&self, output: u32, finish: &'static str) {
        self.metrics.output_ended(finish);
        let Timings { queue, prefill, decode } = self.timings();
        let tokens = self.outputs[self.index(output)].as_ref().map_or(self.request.generated().len(), Output::tokens);
        let _entered = self.span.enter();
        tracing::info!(
            finish,
            output,
            tokens,
            queue_ms = milliseconds(queue),
            prefill_ms = milliseconds(prefill),
            decode_ms = milliseconds(decode),
            "generation ended"
        );
    }
}

/// Returns the span of a request in the engine, from the queue to the last token.
fn span(model: &str, request: &PreparedRequest) -> Span {
    Span::current().part("generation", || {
        [
            KeyValue::new("gen_ai.operation.name", "text_completion"),
            KeyValue::new("gen_ai.provider.name", "tandem"),
            KeyValue::new("gen_ai.request.model", model.to_owned()),
            KeyValue::new("gen_ai.usage.input_tokens", attribute_count(request.prompt_tokens)),
            KeyValue::new("tandem.resumed_tokens", attribute_count(request.generated().len())),
        ]
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
