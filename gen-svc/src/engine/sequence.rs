//! One output of a request: its tokens, where their keys and values lie, and how it goes on.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Span, info_span};

use super::Job;
use super::caller::{Caller, Interruption};
use super::event::{Delta, Event, FinishReason, Finished, Timings};
use crate::cache::{BlockPool, BlockTable};
use crate::error::Error;
use crate::models::{Run, Wanted};
use crate::output::{Matched, OutputPipeline};
use crate::request::Limits;
use crate::sampling::{Sampler, Sampling};

/// Who comes first: by priority, then by arrival.
pub(super) type Rank = (Reverse<i32>, u64, u32);

/// One output of a request.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) caller: Rc<Caller>,
    rank: Rank,
    output: u32,
    /// `prefill`, then `decode`.
    phase: Span,
    /// The prompt and what was generated.
    ids: Vec<u32>,
    prompt_tokens: usize,
    /// How many of the tokens have keys and values.
    computed: usize,
    pub(super) table: BlockTable,
    /// Only what was computed for requests of the same salt is reused.
    salt: Arc<str>,
    sampling: Sampling,
    sampler: Sampler,
    limits: Limits,
    return_token_ids: bool,
    pipeline: OutputPipeline,
}

impl Sequence {
    /// The outputs of a job, the `arrival`-th there was.
    pub(super) fn of(job: Job, arrival: u64) -> Vec<Self> {
        let caller = Rc::new(Caller::of(&job));
        let Job { work, .. } = job;
        let outputs = work.outputs;
        let sequence = |output| Self {
            phase: info_span!(parent: &caller.span, "prefill", output),
            caller: Rc::clone(&caller),
            rank: (Reverse(work.priority), arrival, output),
            output,
            prompt_tokens: work.prompt.len(),
            computed: 0,
            table: BlockTable::default(),
            salt: Arc::clone(&work.cache_salt),
            sampling: work.sampling,
            sampler: Sampler::new(work.sampling, output, &work.prompt),
            ids: work.prompt.clone(),
            limits: work.limits.clone(),
            return_token_ids: work.return_token_ids,
            pipeline: work.output.clone(),
        };
        (0..outputs).map(sequence).collect()
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn priority(&self) -> i32 {
        self.rank.0.0
    }

    /// Whether it should wait for another output of its request to read the prompt for it.
    pub(super) fn awaits_sibling(&self) -> bool {
        self.output > 0 && !self.caller.is_prefilled()
    }

    /// Positions that it needs room for now.
    pub(super) fn length(&self) -> usize {
        self.ids.len()
    }

    /// Tokens that are yet to be computed: more than one while the prompt is read.
    pub(super) fn pending(&self) -> usize {
        self.ids.len() - self.computed
    }

    /// Positions that there must be room for when `count` more are computed.
    pub(super) fn length_after(&self, count: usize) -> usize {
        self.computed + count
    }

    /// Takes the blocks that hold the start of its tokens already.
    pub(super) fn find_cached(&mut self, pool: &mut BlockPool) {
        self.table = pool.find(&self.salt, &self.ids);
        self.computed = self.table.capacity();
    }

    /// Leaves the queue.
    pub(super) fn start(&self) {
        if !self.caller.is_accepted() {
            self.caller.accept(self.computed, self.sampling, self.limits.clone());
        }
    }

    /// Gives up its memory. What is forgotten is computed again.
    pub(super) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(&mut self.table);
        self.computed = 0;
    }

    /// Its next `count` tokens, to be computed.
    pub(super) fn run(&self, count: usize) -> Run<'_> {
        let until = self.computed + count;
        let wanted = if until == self.ids.len() { Wanted::Last } else { Wanted::Nothing };
        Run { tokens: &self.ids[self.computed..until], past: self.computed, blocks: self.table.blocks(), wanted }
    }

    /// Notes that the next `count` tokens are computed. True if another is to be sampled.
    pub(super) fn advance(&mut self, count: usize, pool: &mut BlockPool) -> bool {
        self.computed += count;
        pool.publish(&mut self.table, &self.salt, &self.ids, self.computed);
        self.computed == self.ids.len()
    }

    /// Adds the token that is sampled from the logits to the output. True if that has ended it.
    pub(super) fn sample(&mut self, logits: &mut [f32]) -> bool {
        match self.sampler.next(logits, self.ids.len() as u64) {
            Ok(id) => self.take(id),
            Err(error) => {
                self.fail(&error);
                true
            }
        }
    }

    fn take(&mut self, id: u32) -> bool {
        self.ids.push(id);
        if self.caller.tick() || self.generated() == 1 {
            self.phase = info_span!(parent: &self.caller.span, "decode", output = self.output);
        }
        let step = self.pipeline.push(id);
        let token_ids = if self.return_token_ids { vec![id] } else { Vec::new() };
        let mut delta = Delta { output: self.output, text: step.text, token_ids };
        if let Some(matched) = step.stopped {
            self.end(FinishReason::Stop, Some(matched), delta);
        } else if self.generated() >= self.limits.max_new_tokens {
            delta.text += &self.pipeline.finish();
            self.end(FinishReason::Length, None, delta);
        } else {
            if !delta.is_empty() {
                self.caller.tell(Event::Delta(delta));
            }
            return false;
        }
        true
    }

    fn generated(&self) -> usize {
        self.ids.len() - self.prompt_tokens
    }

    /// Ends it because something failed.
    pub(super) fn fail(&mut self, error: &Error) {
        self.caller.span.in_scope(|| tracing::error!(error = error.chain(), "a step failed"));
        self.end(FinishReason::Error, None, self.delta(String::new()));
    }

    /// Ends it as its caller was interrupted.
    pub(super) fn interrupt(&mut self, interruption: Interruption) {
        match interruption {
            Interruption::CallerGone => self.log("cancelled"),
            Interruption::Refused(error) => self.caller.refuse(error),
            Interruption::Ended(reason) => {
                let last = self.pipeline.finish();
                self.end(reason, None, self.delta(last));
            }
        }
    }

    /// Ends it because the engine is broken.
    pub(super) fn give_up(&mut self) {
        self.interrupt(match self.caller.is_accepted() {
            true => Interruption::Ended(FinishReason::Error),
            false => Interruption::Refused(Error::EngineFailed),
        });
    }

    fn delta(&self, text: String) -> Delta {
        Delta { output: self.output, text, token_ids: Vec::new() }
    }

    fn end(&mut self, reason: FinishReason, matched: Option<Matched>, last: Delta) {
        self.log(reason.name());
        self.caller.tell(Event::Finished(Finished { last, reason, matched }));
        self.caller.end_one();
    }

    fn log(&self, finish: &str) {
        let Timings { queue, prefill, decode } = self.caller.timings();
        let _entered = self.caller.span.enter();
        tracing::info!(
            finish,
            output = self.output,
            tokens = self.generated(),
            queue_ms = milliseconds(queue),
            prefill_ms = milliseconds(prefill),
            decode_ms = milliseconds(decode),
            "generation ended"
        );
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
