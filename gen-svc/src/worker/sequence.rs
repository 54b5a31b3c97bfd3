//! One running request: its tokens, its cache, and what its caller still has to be told.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;
use tracing::{Span, info_span};

use super::Job;
use super::event::{Accepted, Delta, Event, FinishReason, Finished, Timings};
use super::thread::Compute;
use crate::cache::KvCache;
use crate::error::Error;
use crate::output::{Matched, OutputPipeline};
use crate::request::Limits;
use crate::sampling::Sampler;

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A step was taken.
    Moved,
    /// None was: the caller has to read first.
    Passed,
    /// The request is over, and its caller knows.
    Ended,
}

/// A request that runs.
pub(super) struct Sequence {
    /// The last free slot is kept for the end, so that a caller is told of it however slowly it reads.
    events: Sender<Event>,
    deadline: Option<Instant>,
    span: Span,
    /// `prefill`, then `decode`.
    phase: Span,
    /// The prompt and what was generated. Those beyond the cache's length are yet to be computed.
    ids: Vec<u32>,
    prompt_tokens: usize,
    limits: Limits,
    return_token_ids: bool,
    cache: KvCache,
    sampler: Sampler,
    output: OutputPipeline,
    clock: Clock,
    full_since: Option<Instant>,
}

/// When things happened.
struct Clock {
    submitted: Instant,
    started: Instant,
    first_token: Option<Instant>,
    last_token: Instant,
}

/// Why a request goes no further.
enum Interruption {
    /// Nobody is left to tell.
    CallerGone,
    Told(FinishReason),
}

impl Sequence {
    /// Takes a job out of the queue, and tells its caller.
    pub(super) fn start(job: Job, cache: KvCache) -> Self {
        let Job { work, deadline, submitted, span, events } = job;
        let sequence = Self {
            phase: info_span!(parent: &span, "prefill"),
            events,
            deadline,
            span,
            prompt_tokens: work.prompt.len(),
            sampler: Sampler::new(work.sampling, 0, &work.prompt),
            ids: work.prompt,
            limits: work.limits,
            return_token_ids: work.return_token_ids,
            cache,
            output: work.output,
            clock: Clock::start(submitted),
            full_since: None,
        };
        sequence.tell(Event::Accepted(Accepted {
            sampling: work.sampling,
            limits: sequence.limits.clone(),
            prompt_tokens: sequence.prompt_tokens,
            queue: sequence.clock.timings().queue,
        }));
        sequence
    }

    /// Takes one step, unless the request is to end or to wait.
    pub(super) fn turn(&mut self, compute: &mut Compute, stopping: bool, patience: Duration) -> Turn {
        if let Some(interruption) = self.interruption(stopping, patience) {
            self.interrupt(interruption);
            return Turn::Ended;
        }
        if self.full_since.is_some() {
            return Turn::Passed;
        }
        let phase = self.phase.clone();
        let stepped = phase.in_scope(|| self.step(compute));
        stepped.unwrap_or_else(|error| {
            self.span.in_scope(|| tracing::error!(error = error.chain(), "a step failed"));
            self.fail();
            Turn::Ended
        })
    }

    /// Ends the request because the model failed.
    pub(super) fn fail(&mut self) {
        self.end(FinishReason::Error, None, Delta::default());
    }

    fn interruption(&mut self, stopping: bool, patience: Duration) -> Option<Interruption> {
        let now = Instant::now();
        let full = self.events.capacity() <= 1;
        self.full_since = if full { self.full_since.or(Some(now)) } else { None };
        if self.events.is_closed() {
            Some(Interruption::CallerGone)
        } else if self.deadline.is_some_and(|deadline| now >= deadline) {
            Some(Interruption::Told(FinishReason::Deadline))
        } else if stopping || self.full_since.is_some_and(|since| now - since > patience) {
            Some(Interruption::Told(FinishReason::Cancelled))
        } else {
            None
        }
    }

    fn interrupt(&mut self, interruption: Interruption) {
        match interruption {
            Interruption::CallerGone => self.log("cancelled"),
            Interruption::Told(reason) => {
                let last = Delta { text: self.output.finish(), token_ids: Vec::new() };
                self.end(reason, None, last);
            }
        }
    }

    /// Computes the next tokens: a part of the prompt, or the last one generated.
    fn step(&mut self, compute: &mut Compute) -> Result<Turn, Error> {
        let computed = self.computed();
        let until = self.ids.len().min(computed + compute.chunk);
        let hidden = compute.forward(&self.ids[computed..until], &mut self.cache)?;
        if until < self.ids.len() {
            return Ok(Turn::Moved);
        }
        let id = compute.sample(&hidden, &mut self.sampler, self.ids.len())?;
        Ok(self.take(id))
    }

    fn computed(&self) -> usize {
        usize::try_from(self.cache.length()).expect("lengths are not negative")
    }

    /// Adds a sampled token to the output.
    fn take(&mut self, id: u32) -> Turn {
        self.ids.push(id);
        if self.clock.tick() {
            self.phase = info_span!(parent: &self.span, "decode");
        }
        let step = self.output.push(id);
        let mut delta = Delta { text: step.text, token_ids: Vec::new() };
        if self.return_token_ids {
            delta.token_ids.push(id);
        }
        if let Some(matched) = step.stopped {
            self.end(FinishReason::Stop, Some(matched), delta);
        } else if self.generated() >= self.limits.max_new_tokens {
            delta.text += &self.output.finish();
            self.end(FinishReason::Length, None, delta);
        } else {
            if !delta.is_empty() {
                self.tell(Event::Delta(delta));
            }
            return Turn::Moved;
        }
        Turn::Ended
    }

    fn generated(&self) -> usize {
        self.ids.len() - self.prompt_tokens
    }

    fn end(&mut self, reason: FinishReason, matched: Option<Matched>, last: Delta) {
        self.log(reason.name());
        self.tell(Event::Finished(Finished {
            last,
            reason,
            matched,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.generated(),
            timings: self.clock.timings(),
            seed: self.sampler.seed(),
        }));
    }

    /// There is room: a step is only taken with two slots free, and only the end takes the last. A caller that has just gone away
    /// is noticed at the next turn.
    fn tell(&self, event: Event) {
        let _ = self.events.try_send(event);
    }

    fn log(&self, finish: &str) {
        let Timings { queue, prefill, decode } = self.clock.timings();
        let _entered = self.span.enter();
        tracing::info!(
            finish,
            tokens = self.generated(),
            queue_ms = milliseconds(queue),
            prefill_ms = milliseconds(prefill),
            decode_ms = milliseconds(decode),
            "generation ended"
        );
    }
}

impl Clock {
    fn start(submitted: Instant) -> Self {
        let started = Instant::now();
        Self { submitted, started, first_token: None, last_token: started }
    }

    /// Notes a token. True for the first.
    fn tick(&mut self) -> bool {
        self.last_token = Instant::now();
        let first = self.first_token.is_none();
        self.first_token.get_or_insert(self.last_token);
        first
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

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
