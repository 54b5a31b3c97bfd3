//! A request's caller: what all its outputs share, and the only way to tell it anything.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_common::telemetry::Span;
use tokio::sync::mpsc::Sender;

use super::event::{Accepted, Event, FinishReason, Summary, Timings};
use super::{Job, Place, Shared, Stage, number};
use crate::error::Error;
use crate::request::Limits;
use crate::sampling::Sampling;

/// The receiver of a request's events. A step sends at most one event about the prompt and one about each output. It is only taken
/// where that leaves room for the end of each output and for the summary, so that these arrive however slowly the caller reads.
#[derive(Debug)]
pub(super) struct Caller {
    events: Sender<Event>,
    /// Its place in the queue, until it leaves that.
    place: RefCell<Option<Arc<Place>>>,
    shared: Arc<Shared>,
    deadline: Option<Instant>,
    pub(super) span: Span,
    /// Until it leaves the queue.
    queued: RefCell<Span>,
    outputs: usize,
    /// Tokens that were generated before, elsewhere.
    resumed: usize,
    prompt_tokens: usize,
    seed: u64,
    /// Outputs that have not ended.
    unfinished: Cell<usize>,
    /// Set once the first output has left the queue: the prompt's tokens that were cached then.
    cached: Cell<Option<usize>>,
    /// Whether the prompt is computed, so that other outputs find it.
    prefilled: Cell<bool>,
    completion_tokens: Cell<usize>,
    clock: Cell<Clock>,
    /// Since when there has been no room.
    full_since: Cell<Option<Instant>>,
}

/// When what happened.
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
}

/// Why a request goes no further.
#[derive(Debug)]
pub(super) enum Interruption {
    /// Nobody is left to tell.
    CallerGone,
    /// It never ran, and its caller is told why.
    Refused(Error),
    /// It ran, and its caller is told why.
    Ended(FinishReason),
}

impl Caller {
    pub(super) fn of(job: &Job) -> Self {
        let Job { work, deadline, submitted, span, events, place } = job;
        Self {
            events: events.clone(),
            place: RefCell::new(Some(Arc::clone(place))),
            shared: Arc::clone(&place.0),
            deadline: *deadline,
            queued: RefCell::new(span.part("queue", || [])),
            span: span.clone(),
            outputs: work.sampling.n as usize,
            resumed: work.generated().len(),
            prompt_tokens: work.prompt_tokens,
            seed: work.sampling.seed,
            unfinished: Cell::new(work.sampling.n as usize),
            cached: Cell::new(None),
            prefilled: Cell::new(false),
            completion_tokens: Cell::new(work.generated().len()),
            clock: Cell::new(Clock::new(*submitted)),
            full_since: Cell::new(None),
        }
    }

    /// Whether any of its outputs has left the queue.
    pub(super) fn is_accepted(&self) -> bool {
        self.cached.get().is_some()
    }

    /// Tells that the first output leaves the queue, with `cached` tokens of the prompt already computed.
    pub(super) fn accept(&self, cached: usize, sampling: Sampling, limits: Limits) {
        self.place.take();
        self.queued.replace(Span::none());
        let cached = cached.min(self.prompt_tokens);
        self.cached.set(Some(cached));
        let started = Instant::now();
        self.clock.set(Clock { started, last_token: started, ..self.clock.get() });
        let queue = self.timings().queue;
        self.shared.metrics.started(queue, cached);
        let prompt_tokens = self.prompt_tokens;
        self.tell(Event::Accepted(Accepted { sampling, limits, prompt_tokens, cached_tokens: cached, queue }));
    }

    pub(super) fn is_prefilled(&self) -> bool {
        self.prefilled.get()
    }

    /// Whether it must read before more can be computed for it.
    pub(super) fn is_full(&self) -> bool {
        self.full_since.get().is_some()
    }

    /// Whether there has been no room for so long.
    pub(super) fn is_unread_for(&self, time: Duration) -> bool {
        self.full_since.get().is_some_and(|since| since.elapsed() > time)
    }

    /// Why the request is to end now, if it is.
    pub(super) fn interruption(&self, stage: Stage, patience: Duration) -> Option<Interruption> {
        let now = Instant::now();
        let full = self.events.capacity() <= 2 * self.unfinished.get() + 1;
        self.full_since.set(if full { self.full_since.get().or(Some(now)) } else { None });
        let late = self.deadline.is_some_and(|deadline| now >= deadline);
        let impatient = self.full_since.get().is_some_and(|since| now - since > patience);
        if self.events.is_closed() {
            Some(Interruption::CallerGone)
        } else if self.is_accepted() {
            let cancelled = stage >= Stage::Stopping || impatient;
            let reason = if late { Some(FinishReason::Deadline) } else { cancelled.then_some(FinishReason::Cancelled) };
            reason.map(Interruption::Ended)
        } else if late {
            Some(Interruption::Refused(Error::DeadlineInQueue))
        } else {
            (stage >= Stage::Stopping).then_some(Interruption::Refused(Error::Draining))
        }
    }

    /// Notes a token.
    pub(super) fn tick(&self) {
        let now = Instant::now();
        let mut clock = self.clock.get();
        if clock.first_token.is_none() {
            self.shared.metrics.first_token(now - clock.submitted);
        }
        clock.first_token.get_or_insert(now);
        clock.last_token = now;
        self.clock.set(clock);
        self.prefilled.set(true);
        self.completion_tokens.set(self.completion_tokens.get() + 1);
    }

    /// There is room: a step is only taken where there is, and what the end needs is kept for it. A caller that has just gone away is
    /// noticed before the next step.
    pub(super) fn tell(&self, event: Event) {
        let _ = self.events.try_send(event);
    }

    /// Notes that an output has ended, and sums up after the last.
    pub(super) fn end_one(&self) {
        self.prefilled.set(true);
        self.unfinished.set(self.unfinished.get().saturating_sub(1));
        if self.unfinished.get() == 0 {
            let generated = self.completion_tokens.get();
            self.span.set("gen_ai.usage.output_tokens", number(generated));
            self.shared.metrics.request_ended(
                self.timings(),
                self.prompt_tokens,
                generated - self.resumed,
                self.outputs,
            );
            self.tell(Event::Summary(Summary {
                prompt_tokens: self.prompt_tokens,
                cached_tokens: self.cached.get().unwrap_or(0),
                completion_tokens: self.completion_tokens.get(),
                timings: self.timings(),
                seed: self.seed,
            }));
        }
    }

    /// Ends a request that never ran. All its outputs end with it, and its caller is told once.
    pub(super) fn refuse(&self, error: Error) {
        if self.unfinished.replace(0) == 0 {
            return;
        }
        self.queued.replace(Span::none());
        let _entered = self.span.enter();
        tracing::info!(finish = error.reason().name(), tokens = 0, "left the queue");
        self.tell(Event::Refused(error));
    }

    /// Notes how an output ended.
    pub(super) fn count(&self, finish: &'static str) {
        self.shared.metrics.output_ended(finish);
    }

    pub(super) fn timings(&self) -> Timings {
        let Clock { submitted, started, first_token, last_token } = self.clock.get();
        let first_token = first_token.unwrap_or(last_token);
        Timings { queue: started - submitted, prefill: first_token - started, decode: last_token - first_token }
    }
}
