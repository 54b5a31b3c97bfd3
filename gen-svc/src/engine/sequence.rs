//! One output of a request: its tokens, where their keys and values lie, and how it goes on.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Span, info_span};

use super::Job;
use super::caller::{Caller, Interruption};
use super::event::{Delta, Event, FinishReason, Finished, Timings, Token, TopToken};
use crate::cache::{BlockPool, BlockTable};
use crate::error::Error;
use crate::grammar::{Constraint, Mask};
use crate::models::{Run, Wanted};
use crate::output::{Matched, OutputPipeline};
use crate::request::{Limits, Returns};
use crate::sampling::{Logprobs, Sampler, Sampling};

/// Tokens of a prompt computed in one step where all their logits are wanted, which take much memory.
const PROMPT_ROWS: usize = 32;

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
    returns: Returns,
    /// Tokens of the prompt whose probabilities were told. Nothing comes before the first.
    reported: usize,
    constraint: Option<Constraint>,
    pipeline: OutputPipeline,
}

impl Sequence {
    /// The outputs of a job, the `arrival`-th there was.
    pub(super) fn of(job: Job, arrival: u64) -> Vec<Self> {
        let caller = Rc::new(Caller::of(&job));
        let Job { work, .. } = job;
        let outputs = work.sampling.n;
        let sequence = |output| Self {
            phase: info_span!(parent: &caller.span, "prefill", output),
            caller: Rc::clone(&caller),
            rank: (Reverse(work.priority), arrival, output),
            output,
            prompt_tokens: work.prompt.len(),
            computed: 0,
            table: BlockTable::default(),
            salt: Arc::clone(&work.cache_salt),
            sampler: Sampler::new(work.sampling.clone(), output, &work.prompt),
            sampling: work.sampling.clone(),
            ids: work.prompt.clone(),
            limits: work.limits.clone(),
            returns: Returns { prompt_logprobs: work.returns.prompt_logprobs.filter(|_| output == 0), ..work.returns },
            reported: 1,
            constraint: work.constraint.as_ref().and_then(Constraint::copy).map(Constraint::begun),
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
        if self.tells_of_prompt() {
            return;
        }
        self.table = pool.find(&self.salt, &self.ids);
        self.computed = self.table.capacity();
    }

    /// Leaves the queue.
    pub(super) fn start(&self) {
        if !self.caller.is_accepted() {
            self.caller.accept(self.computed, self.sampling.clone(), self.limits.clone());
        }
    }

    /// Gives up its memory. What is forgotten is computed again.
    pub(super) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(&mut self.table);
        self.computed = 0;
    }

    /// Whether there are tokens of the prompt whose probabilities are yet to be told. All of it is computed for that.
    fn tells_of_prompt(&self) -> bool {
        self.returns.prompt_logprobs.is_some() && self.reported < self.prompt_tokens
    }

    /// Tokens that it may compute in one step.
    pub(super) fn most(&self) -> usize {
        if self.tells_of_prompt() { PROMPT_ROWS.min(self.pending()) } else { self.pending() }
    }

    /// Its next `count` tokens, to be computed.
    pub(super) fn run(&self, count: usize) -> Run<'_> {
        let until = self.computed + count;
        let wanted = match until == self.ids.len() {
            _ if self.tells_of_prompt() => Wanted::All,
            true => Wanted::Last,
            false => Wanted::Nothing,
        };
        Run { tokens: &self.ids[self.computed..until], past: self.computed, blocks: self.table.blocks(), wanted }
    }

    /// Notes that the next `count` tokens are computed, with the `rows` of logits that were wanted. True if that has ended it.
    pub(super) fn advance(&mut self, count: usize, rows: &mut [&mut [f32]], pool: &mut BlockPool) -> bool {
        if self.tells_of_prompt() {
            self.tell_of_prompt(rows);
        }
        self.computed += count;
        pool.publish(&mut self.table, &self.salt, &self.ids, self.computed);
        match rows.last_mut() {
            Some(last) if self.computed == self.ids.len() => self.sample(last),
            _ => false,
        }
    }

    /// Tells how likely the prompt's tokens were that follow those just computed.
    fn tell_of_prompt(&mut self, rows: &[&mut [f32]]) {
        let count = self.returns.prompt_logprobs.unwrap_or(0) as usize;
        let follow = (self.computed + 1..self.prompt_tokens).zip(rows);
        let new = follow.filter(|(at, _)| *at >= self.reported);
        let tokens: Vec<Token> =
            new.map(|(at, row)| self.token(self.ids[at], &Logprobs::new(row, self.ids[at], count))).collect();
        self.reported += tokens.len();
        self.caller.tell(Event::PromptLogprobs(tokens));
    }

    /// Samples the next token. True if that has ended the output.
    fn sample(&mut self, logits: &mut [f32]) -> bool {
        let raw = self.returns.logprobs.map(|count| (logits.to_vec(), count));
        match self.constraint.as_mut().map(Constraint::mask).transpose() {
            Ok(Some(Mask::Ended)) => {
                let text = self.pipeline.finish();
                self.end(FinishReason::Stop, None, Delta { text, ..self.delta() });
                return true;
            }
            Ok(mask) => mask.iter().for_each(|mask| mask.apply(logits)),
            Err(problem) => return self.fail(&Error::Grammar { problem }),
        }
        let forbidden = if self.generated() < self.limits.min_new_tokens { &*self.limits.stop_token_ids } else { &[] };
        match self.sampler.next(logits, self.ids.len() as u64, forbidden) {
            Ok(id) => {
                let logprobs = raw.map(|(logits, count)| Logprobs::new(&logits, id, count as usize));
                self.take(id, logprobs)
            }
            Err(error) => self.fail(&error),
        }
    }

    fn take(&mut self, id: u32, logprobs: Option<Logprobs>) -> bool {
        self.ids.push(id);
        self.constraint.iter_mut().for_each(|constraint| constraint.advance(Some(id)));
        if self.caller.tick() || self.generated() == 1 {
            self.phase = info_span!(parent: &self.caller.span, "decode", output = self.output);
        }
        let step = self.pipeline.push(id);
        let mut delta = Delta {
            text: step.text,
            token_ids: if self.returns.token_ids { vec![id] } else { Vec::new() },
            tokens: logprobs.iter().map(|logprobs| self.token(id, logprobs)).collect(),
            ..self.delta()
        };
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

    fn token(&self, id: u32, logprobs: &Logprobs) -> Token {
        let bytes = |id| self.pipeline.bytes(id);
        let top = logprobs.top.iter().map(|&(id, logprob)| TopToken { id, bytes: bytes(id), logprob });
        Token { id, bytes: bytes(id), logprob: logprobs.logprob, top: top.collect() }
    }

    fn generated(&self) -> usize {
        self.ids.len() - self.prompt_tokens
    }

    /// Ends it because something failed. True.
    pub(super) fn fail(&mut self, error: &Error) -> bool {
        self.caller.span.in_scope(|| tracing::error!(error = error.chain(), "a step failed"));
        self.end(FinishReason::Error, None, self.delta());
        true
    }

    /// Ends it as its caller was interrupted.
    pub(super) fn interrupt(&mut self, interruption: Interruption) {
        match interruption {
            Interruption::CallerGone => self.log("cancelled"),
            Interruption::Refused(error) => self.caller.refuse(error),
            Interruption::Ended(reason) => {
                let text = self.pipeline.finish();
                self.end(reason, None, Delta { text, ..self.delta() });
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

    /// One without anything in it yet.
    fn delta(&self) -> Delta {
        Delta { output: self.output, ..Delta::default() }
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
