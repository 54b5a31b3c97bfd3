//! One output of a request: its tokens, where their keys and values lie, and how it goes on.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use tandem_common::telemetry::Span;

use super::caller::{Caller, Interruption};
use super::event::{Delta, Event, FinishReason, Finished, Timings, Token, TopToken};
use super::{Job, number};
use crate::cache::{BlockPool, BlockTable};
use crate::error::Error;
use crate::grammar::{Constraint, Mask};
use crate::models::{LogitsFor, SequenceChunk};
use crate::output::{Matched, OutputPipeline, Part, Step, add_part};
use crate::request::PreparedRequest;
use crate::sampling::{Logprobs, Sampler};

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
    /// `prefill` once it has left the queue, then `decode`.
    phase: Span,
    is_decoding: bool,
    work: Rc<PreparedRequest>,
    /// The prompt and what was generated.
    ids: Arc<Vec<u32>>,
    /// How many of the tokens have keys and values.
    computed: usize,
    pub(super) table: BlockTable,
    /// Tokens of the prompt whose probabilities were told. Nothing comes before the first.
    reported: usize,
    /// Made when it first leaves the queue, so that one that waits takes no memory of its own.
    writer: Option<Writer>,
}

/// What makes logits the tokens of an output, and those its text.
#[derive(Debug)]
struct Writer {
    sampler: Sampler,
    constraint: Option<Constraint>,
    pipeline: OutputPipeline,
    /// All that was told, if something is to be extracted from it.
    whole: Vec<Part>,
}

impl Writer {
    fn new(work: &PreparedRequest, output: u32) -> Self {
        Self {
            sampler: Sampler::new(work.sampling.clone(), output, work.prompt()).after(work.generated()),
            constraint: work.grammar.as_ref().map(Constraint::start),
            pipeline: work.output.clone(),
            whole: work.delivered.clone(),
        }
    }
}

impl Sequence {
    /// The outputs of a job, the `arrival`-th there was.
    pub(super) fn of(job: Job, arrival: u64) -> Vec<Self> {
        let caller = Rc::new(Caller::of(&job));
        let work = Rc::new(job.work);
        let outputs = work.first_output..work.first_output + work.sampling.n;
        let sequence = |output| Self {
            phase: Span::none(),
            is_decoding: false,
            caller: Rc::clone(&caller),
            rank: (Reverse(work.priority), arrival, output),
            output,
            ids: Arc::clone(&work.ids),
            work: Rc::clone(&work),
            computed: 0,
            table: BlockTable::default(),
            reported: 1,
            writer: None,
        };
        outputs.map(sequence).collect()
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn priority(&self) -> i32 {
        self.rank.0.0
    }

    /// Whether it should wait for another output of its request to read the prompt for it.
    pub(super) fn awaits_sibling(&self) -> bool {
        !self.is_first() && !self.caller.is_prefilled()
    }

    /// Whether it is the first output of its request.
    fn is_first(&self) -> bool {
        self.output == self.work.first_output
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
        self.table = pool.find(&self.work.cache_salt, &self.ids);
        self.computed = self.table.capacity();
    }

    /// Leaves the queue.
    pub(super) fn start(&mut self) {
        self.writer();
        let (output, cached) = (i64::from(self.output), number(self.computed));
        let attributes = || [KeyValue::new("tandem.output", output), KeyValue::new("tandem.cached_tokens", cached)];
        self.phase = self.caller.span.part("prefill", attributes);
        if !self.caller.is_accepted() {
            self.caller.accept(self.computed, self.work.sampling.clone(), self.work.limits.clone());
        }
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.get_or_insert_with(|| Writer::new(&self.work, self.output))
    }

    /// What was held back, at the end.
    fn rest(&mut self) -> Vec<Part> {
        self.writer.as_mut().map(|writer| writer.pipeline.finish()).unwrap_or_default()
    }

    /// How many likely tokens are to be told of in each place of the prompt. One output tells for all.
    fn prompt_logprobs(&self) -> Option<u32> {
        self.work.returns.prompt_logprobs.filter(|_| self.is_first())
    }

    /// Gives up its memory. What is forgotten is computed again.
    pub(super) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(&mut self.table);
        self.computed = 0;
    }

    /// Gives up its memory, and waits again.
    pub(super) fn preempt(&mut self, pool: &mut BlockPool) {
        self.release(pool);
        let output = i64::from(self.output);
        self.phase = self.caller.span.part("preempted", || [KeyValue::new("tandem.output", output)]);
        self.is_decoding = false;
    }

    /// Whether there are tokens of the prompt whose probabilities are yet to be told. All of it is computed for that.
    fn tells_of_prompt(&self) -> bool {
        self.prompt_logprobs().is_some() && self.reported < self.work.prompt_tokens
    }

    /// Tokens that it may compute in one step.
    pub(super) fn most(&self) -> usize {
        if self.tells_of_prompt() { PROMPT_ROWS.min(self.pending()) } else { self.pending() }
    }

    /// Its next `count` tokens, to be computed.
    pub(super) fn run(&self, count: usize) -> SequenceChunk<'_> {
        let until = self.computed + count;
        let logits = match until == self.ids.len() {
            _ if self.tells_of_prompt() => LogitsFor::All,
            true => LogitsFor::Last,
            false => LogitsFor::Nothing,
        };
        SequenceChunk {
            tokens: &self.ids[self.computed..until],
            past: self.computed,
            blocks: self.table.blocks(),
            logits,
        }
    }

    /// Notes that the next `count` tokens are computed, with the `rows` of logits that were wanted. True if that has ended it.
    pub(super) fn advance(&mut self, count: usize, rows: &mut [&mut [f32]], pool: &mut BlockPool) -> bool {
        if self.tells_of_prompt() {
            self.tell_of_prompt(rows);
        }
        self.computed += count;
        pool.commit(&mut self.table, &self.work.cache_salt, &self.ids, self.computed);
        match rows.last_mut() {
            Some(last) if self.computed == self.ids.len() => self.sample(last),
            _ => false,
        }
    }

    /// Tells how likely the prompt's tokens were that follow those just computed.
    fn tell_of_prompt(&mut self, rows: &[&mut [f32]]) {
        let count = self.prompt_logprobs().unwrap_or(0) as usize;
        let follow = (self.computed + 1..self.work.prompt_tokens).zip(rows);
        let new = follow.filter(|(at, _)| *at >= self.reported);
        let tokens: Vec<Token> =
            new.map(|(at, row)| self.token(self.ids[at], &Logprobs::new(row, self.ids[at], count))).collect();
        self.reported += tokens.len();
        if !tokens.is_empty() {
            self.caller.tell(Event::PromptLogprobs(tokens));
        }
    }

    /// Samples the next token. True if that has ended the output.
    fn sample(&mut self, logits: &mut [f32]) -> bool {
        let raw = self.work.returns.logprobs.map(|count| (logits.to_vec(), count));
        match self.writer().constraint.as_mut().map(Constraint::mask).transpose() {
            Ok(Some(Mask::Ended)) => {
                let rest = self.rest();
                self.end(FinishReason::Stop, None, rest, Delta::default());
                return true;
            }
            Ok(mask) => mask.iter().for_each(|mask| mask.apply(logits)),
            Err(problem) => return self.fail(&Error::Grammar { problem }),
        }
        let work = Rc::clone(&self.work);
        let is_early = self.generated() < work.limits.min_new_tokens;
        let forbidden = if is_early { &*work.limits.stop_token_ids } else { &[] };
        let position = self.ids.len() as u64;
        match self.writer().sampler.next(logits, position, forbidden) {
            Ok(id) => {
                let logprobs = raw.map(|(logits, count)| Logprobs::new(&logits, id, count as usize));
                self.take(id, logprobs)
            }
            Err(error) => self.fail(&error),
        }
    }

    fn take(&mut self, id: u32, logprobs: Option<Logprobs>) -> bool {
        Arc::make_mut(&mut self.ids).push(id);
        self.writer().constraint.iter_mut().for_each(|constraint| constraint.advance(id));
        self.caller.tick();
        if !std::mem::replace(&mut self.is_decoding, true) {
            let output = i64::from(self.output);
            self.phase = self.caller.span.part("decode", || [KeyValue::new("tandem.output", output)]);
        }
        let Step { mut parts, stopped } = self.writer().pipeline.push(id);
        let tokens = Delta {
            token_ids: if self.work.returns.token_ids { vec![id] } else { Vec::new() },
            tokens: logprobs.iter().map(|logprobs| self.token(id, logprobs)).collect(),
            ..Delta::default()
        };
        if stopped.is_some() {
            self.end(FinishReason::Stop, stopped, parts, tokens);
        } else if self.generated() >= self.work.limits.max_new_tokens {
            self.rest().into_iter().for_each(|part| add_part(&mut parts, part));
            let mask = self.writer().constraint.as_mut().map(Constraint::mask);
            let is_whole = matches!(mask, Some(Ok(Mask::Ended)));
            self.end(if is_whole { FinishReason::Stop } else { FinishReason::Length }, None, parts, tokens);
        } else {
            let delta = self.delta(parts, tokens);
            if !delta.is_empty() {
                self.caller.tell(Event::Delta(delta));
            }
            return false;
        }
        true
    }

    /// Returns `tokens`, a delta that has tokens only, with the parts that they brought.
    fn delta(&mut self, mut parts: Vec<Part>, tokens: Delta) -> Delta {
        if let Some(writer) = self.writer.as_mut().filter(|_| self.work.extraction.is_some()) {
            parts.iter().for_each(|part| add_part(&mut writer.whole, part.clone()));
        }
        if parts.is_empty() {
            let reasoning = self.writer.as_ref().is_some_and(|writer| writer.pipeline.is_reasoning());
            parts.push(Part { reasoning, ..Part::default() });
        }
        if !self.work.returns.bytes {
            parts.iter_mut().for_each(|part| part.bytes.clear());
        }
        Delta { output: self.output, parts, ..tokens }
    }

    fn token(&self, id: u32, logprobs: &Logprobs) -> Token {
        let bytes = |id| self.work.output.bytes(id);
        let top = logprobs.top.iter().map(|&(id, logprob)| TopToken { id, bytes: bytes(id), logprob });
        Token { id, bytes: bytes(id), logprob: logprobs.logprob, top: top.collect() }
    }

    fn generated(&self) -> usize {
        self.ids.len() - self.work.prompt_tokens
    }

    /// Ends it because something failed. True.
    pub(super) fn fail(&mut self, error: &Error) -> bool {
        self.caller.span.fail();
        self.caller.span.in_scope(|| match error {
            Error::Grammar { .. } => tracing::warn!(error = error.chain(), "an output cannot go on"),
            _ => tracing::error!(error = error.chain(), "a step failed"),
        });
        self.end(FinishReason::Error, None, Vec::new(), Delta::default());
        true
    }

    /// Ends it as its caller was interrupted.
    pub(super) fn interrupt(&mut self, interruption: Interruption) {
        match interruption {
            Interruption::CallerGone => self.log("cancelled"),
            Interruption::Refused(error) => self.caller.refuse(error),
            Interruption::Ended(reason) => {
                let rest = self.rest();
                self.end(reason, None, rest, Delta::default());
            }
        }
    }

    /// Ends it because the engine is broken.
    pub(super) fn give_up(&mut self) {
        self.caller.span.fail();
        self.interrupt(match self.caller.is_accepted() {
            true => Interruption::Ended(FinishReason::Error),
            false => Interruption::Refused(Error::EngineFailed),
        });
    }

    fn end(&mut self, reason: FinishReason, matched: Option<Matched>, parts: Vec<Part>, tokens: Delta) {
        self.phase = Span::none();
        self.log(reason.name());
        let last = self.delta(parts, tokens);
        let whole = self.writer.as_ref().map_or(&[][..], |writer| &writer.whole);
        let extracted_text = self.work.extraction.as_ref().map(|rules| rules.apply(whole));
        self.caller.tell(Event::Finished(Finished { last, reason, matched, extracted_text }));
        self.caller.end_one();
    }

    fn log(&self, finish: &'static str) {
        self.caller.count(finish);
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
