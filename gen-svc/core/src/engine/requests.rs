//! The requests in the engine: the state that all outputs of a request share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_common::telemetry::Span;

use super::command::Job;
use super::event::{Accepted, Event, FinishReason, Summary, Timings};
use super::metrics::{EngineMetrics, attribute_count};
use super::progress::RequestProgress;
use super::shared::QueueSlot;
use super::sink::ResponseSink;
use crate::error::RequestError;
use crate::models::Features;
use crate::request::PreparedRequest;

/// The identity of a request: its number in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RequestId(u64);

/// All requests with sequences that wait or run.
#[derive(Debug, Default)]
pub(super) struct Requests {
    states: HashMap<RequestId, RequestState>,
    /// Requests received since the start.
    arrivals: u64,
}

const EXPECT_REQUEST: &str = "a request outlives its sequences";

impl Requests {
    /// Adds a request. It stays until each of its sequences is released.
    pub(super) fn add(&mut self, job: Job) -> RequestId {
        self.arrivals += 1;
        let id = RequestId(self.arrivals);
        self.states.insert(id, RequestState::new(job));
        id
    }

    /// Returns the state of a request that has a sequence.
    pub(super) fn get(&self, id: RequestId) -> &RequestState {
        self.states.get(&id).expect(EXPECT_REQUEST)
    }

    /// Returns the state of a request that has a sequence, to be changed.
    pub(super) fn get_mut(&mut self, id: RequestId) -> &mut RequestState {
        self.states.get_mut(&id).expect(EXPECT_REQUEST)
    }

    /// Releases one sequence of a request. The last one drops the state and with it the response
    /// channel.
    pub(super) fn release_sequence(&mut self, id: RequestId) {
        let state = self.get_mut(id);
        state.sequences = state.sequences.saturating_sub(1);
        if state.sequences == 0 {
            self.states.remove(&id);
        }
    }

    /// Drops all states, also of requests whose sequences were lost in a panic.
    pub(super) fn clear(&mut self) {
        self.states.clear();
    }
}

/// The state that all outputs of a request share.
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) sink: ResponseSink,
    pub(super) request: PreparedRequest,
    pub(super) progress: Arc<RequestProgress>,
    pub(super) span: Span,
    /// Taken when the first output leaves the queue.
    slot: Option<QueueSlot>,
    /// Open until the request leaves the queue.
    queue_span: Span,
    metrics: Arc<EngineMetrics>,
    deadline: Option<Instant>,
    /// Sequences that refer to this state.
    sequences: usize,
    /// Outputs that have not ended.
    unfinished: usize,
    /// Cached tokens of the prompt, once the first output has left the queue.
    cached_tokens: Option<usize>,
    /// True once the prompt is computed: the other outputs then find it in the prefix cache.
    is_prefilled: bool,
    completion_tokens: usize,
    /// Tokens that launched steps choose, and that the host does not know yet.
    pub(super) awaited: usize,
    clock: Clock,
    /// The features of each image of the prompt, once they are computed.
    features: Vec<Option<Arc<Features>>>,
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
pub(super) enum Interruption {
    /// The caller has cancelled the request.
    CallerGone,
    /// The request is rejected while it waits.
    Refused(RequestError),
    /// The request is ended while it runs.
    Ended(FinishReason),
}

impl RequestState {
    fn new(job: Job) -> Self {
        let Job { request, deadline, submitted, span, events, progress, slot } = job;
        let outputs = request.sampling.n as usize;
        Self {
            sink: ResponseSink::new(events),
            progress,
            metrics: Arc::clone(slot.metrics()),
            slot: Some(slot),
            queue_span: span.part("queue", || []),
            span,
            deadline,
            sequences: outputs,
            unfinished: outputs,
            cached_tokens: None,
            is_prefilled: false,
            completion_tokens: request.generated().len(),
            awaited: 0,
            clock: Clock::new(submitted),
            features: vec![None; request.media.as_ref().map_or(0, |media| media.images.len())],
            request,
        }
    }

    /// Returns true if an output of the request has left the queue.
    pub(super) fn is_accepted(&self) -> bool {
        self.cached_tokens.is_some()
    }

    /// Returns the features of an image of the prompt, if they are computed.
    pub(super) fn features(&self, image: usize) -> Option<&Features> {
        self.features[image].as_deref()
    }

    /// Stores the features of an image of the prompt.
    pub(super) fn set_features(&mut self, image: usize, features: Arc<Features>) {
        self.features[image] = Some(features);
    }

    /// Returns true if the prompt is computed.
    pub(super) fn is_prefilled(&self) -> bool {
        self.is_prefilled
    }

    /// Takes the request out of the queue, with the first `computed` tokens found in the prefix
    /// cache.
    pub(super) fn accept(&mut self, computed: usize) {
        self.slot = None;
        self.queue_span = Span::none();
        let prompt_tokens = self.request.prompt_tokens;
        let cached_tokens = computed.min(prompt_tokens);
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

    /// Returns why the request ends now, if it does, and measures its back-pressure.
    pub(super) fn interruption(&mut self, is_stopped: bool, patience: Duration) -> Option<Interruption> {
        let now = Instant::now();
        self.measure_back_pressure(now);
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        if self.sink.is_closed() {
            Some(Interruption::CallerGone)
        } else if self.is_accepted() {
            let is_cancelled = is_stopped || self.sink.is_full_for(patience, now);
            let reason =
                if is_late { Some(FinishReason::Deadline) } else { is_cancelled.then_some(FinishReason::Cancelled) };
            reason.map(Interruption::Ended)
        } else if is_late {
            Some(Interruption::Refused(RequestError::DeadlineInQueue))
        } else {
            is_stopped.then_some(Interruption::Refused(RequestError::Draining))
        }
    }

    /// Measures the back-pressure of the response channel.
    pub(super) fn measure_back_pressure(&mut self, now: Instant) {
        self.sink.measure(self.unfinished, self.awaited, now);
    }

    /// Records a sampled token.
    pub(super) fn record_token(&mut self) {
        let now = Instant::now();
        if self.clock.first_token.is_none() {
            self.metrics.first_token(now - self.clock.submitted);
        }
        self.clock.first_token.get_or_insert(now);
        self.clock.last_token = now;
        self.is_prefilled = true;
        self.completion_tokens += 1;
    }

    /// Records the end of an output. The last one sends the summary.
    pub(super) fn finish_output(&mut self) {
        self.is_prefilled = true;
        self.unfinished = self.unfinished.saturating_sub(1);
        if self.unfinished > 0 {
            return;
        }
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

    /// Rejects a request that waits, with all its outputs. Later calls have no effect.
    pub(super) fn refuse(&mut self, error: RequestError) {
        if std::mem::replace(&mut self.unfinished, 0) == 0 {
            return;
        }
        self.queue_span = Span::none();
        let _entered = self.span.enter();
        tracing::info!(finish = error.reason().name(), tokens = 0, "left the queue");
        self.sink.send(Event::Refused(error));
    }

    /// Ends a running request, with all its outputs, because the engine has failed. Another replica can
    /// resume the outputs. Later calls have no effect.
    pub(super) fn abort(&mut self) {
        if std::mem::replace(&mut self.unfinished, 0) > 0 {
            self.sink.send(Event::Refused(RequestError::EngineFailed));
        }
    }

    /// Counts the end of an output in the metrics.
    pub(super) fn count_output(&self, finish: &'static str) {
        self.metrics.output_ended(finish);
    }

    /// Returns the times of the request's phases so far.
    pub(super) fn timings(&self) -> Timings {
        self.clock.timings()
    }
}
