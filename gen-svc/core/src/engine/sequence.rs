//! One output of a request: its tokens, its blocks in the KV cache, and its next step.

pub(super) mod turn;

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::{RequestId, RequestState};
use crate::answer::{FinishReason, Flow, Interruption};
use crate::cache::{BlockPool, BlockTable, ImageSpan};
use crate::error::{RequestError, StepError};
use crate::grammar::{Constraint, Mask, MaskError};
use crate::models::{ImageRows, KeptRow, LogitsFor, SequenceChunk};
use crate::request::{PreparedRequest, Stage};
use crate::sampling::{Chosen, Logprobs, Slot};

/// The identity of a sequence: its request, and the output.
pub(super) type SequenceId = (RequestId, u32);

/// The order of sequences: by priority, then by arrival, then by output.
pub(super) type Rank = (Reverse<i32>, RequestId, u32);

/// One output of a request.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: RequestId,
    priority: i32,
    /// The caller of the request.
    pub(super) caller: Arc<str>,
    /// Since when it waits, while it waits.
    waits_since: Instant,
    output: u32,
    /// True for the first output of its request. Only this output reports the prompt's
    /// log-probabilities.
    is_first: bool,
    is_decoding: bool,
    /// The prompt and the generated tokens.
    ids: Arc<Vec<u32>>,
    /// The most tokens that it has without being long. `None`: it never is.
    long_after: Option<usize>,
    /// True if its keys and values are those of a long sequence.
    is_long: bool,
    /// Number of tokens whose keys and values are computed.
    computed: usize,
    pub(super) table: BlockTable,
    /// The number of the last step with one token of it.
    pub(super) last_step: u64,
    /// Number of prompt tokens whose log-probabilities were sent. The first token of a prompt has
    /// no log-probability.
    reported: usize,
    /// The logits of the next token, while the tokens that its grammar allows are not known yet.
    unsampled: Option<KeptRow>,
    /// The counts of its tokens, if its request has penalties.
    slot: Option<Slot>,
    /// The tokens after `ids` that only the backend has. Steps that compute them are launched.
    awaited: Vec<Awaited>,
    /// The tokens after its next one that the backend drafts in the planned step.
    drafted: usize,
    /// The tokens that the grammar allows next, once they are asked for.
    mask: Option<Mask>,
    /// What its grammar allows. Created when the sequence first leaves the queue.
    constraint: Option<Constraint>,
}

/// A token that a launched step chooses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Awaited {
    /// The number of the step.
    step: u64,
    /// The index among the step's plans.
    result: usize,
}

/// Takes the place of a token that only the backend has.
const AWAITED: [u32; 1] = [0];

/// How an output ends without a further token.
#[derive(Debug)]
enum Ending {
    Finished(FinishReason),
    Failed(RequestError),
}

impl Sequence {
    /// Creates the sequences of a request, one for each output. They are long with more than `long_after` tokens.
    pub(super) fn of(id: RequestId, request: &PreparedRequest, long_after: Option<usize>) -> Vec<Self> {
        let outputs = request.first_output..request.first_output + request.sampling.n;
        let sequence = |output| Self {
            request: id,
            priority: request.priority,
            caller: Arc::clone(&request.caller),
            waits_since: Instant::now(),
            output,
            is_first: output == request.first_output,
            is_decoding: false,
            ids: Arc::clone(&request.ids),
            long_after,
            is_long: false,
            computed: 0,
            table: BlockTable::default(),
            last_step: 0,
            reported: 1,
            unsampled: None,
            slot: None,
            awaited: Vec::new(),
            drafted: 0,
            mask: None,
            constraint: None,
        };
        outputs.map(sequence).collect()
    }

    pub(super) fn id(&self) -> SequenceId {
        (self.request, self.output)
    }

    pub(super) fn rank(&self) -> Rank {
        (Reverse(self.priority), self.request, self.output)
    }

    /// Returns the priority, higher first: the request's, or the highest once it has waited long.
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns how long it has waited since it was queued.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.waits_since)
    }

    /// Raises the priority to the highest, until it is preempted.
    pub(super) fn raise(&mut self) {
        self.priority = i32::MAX;
    }

    /// Returns true if the first output of the request must compute the prompt before this output
    /// starts.
    pub(super) fn awaits_sibling(&self, state: &RequestState) -> bool {
        !self.is_first && !state.is_prefilled()
    }

    /// Returns the number of prompt and generated tokens, awaited ones included.
    pub(super) fn length(&self) -> usize {
        self.ids.len() + self.awaited.len()
    }

    /// Returns the number of prompt and generated tokens, without awaited ones.
    pub(super) fn known(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of tokens to compute: more than one during prefill.
    pub(super) fn pending(&self) -> usize {
        self.length() - self.computed
    }

    /// Returns the positions in use after `count` more tokens are computed.
    pub(super) fn length_after(&self, count: usize) -> usize {
        self.computed + count
    }

    /// Returns how many tokens after the next one the backend may draft, of at most `most`.
    pub(super) fn can_draft(&self, state: &RequestState, most: usize) -> usize {
        let request = &state.answer.request;
        let left = request.limits.max_new_tokens.saturating_sub(self.generated(request) + 1);
        let before_long = if self.is_long { None } else { self.long_after };
        let most = before_long.map_or(most, |after| most.min(after.saturating_sub(self.length())));
        if request.is_guided() || self.reports_prompt(state) { 0 } else { most.min(left) }
    }

    /// Sets how many tokens after the next one the backend drafts.
    pub(super) fn set_drafted(&mut self, count: usize) {
        self.drafted = count;
    }

    /// Returns true if it has this number of tokens, and its keys and values must be those of a long sequence.
    fn lengthens(&self, tokens: usize) -> bool {
        !self.is_long && self.long_after.is_some_and(|after| tokens > after)
    }

    /// Starts again if the sequence has become long: all of its tokens are to compute.
    pub(super) fn restart_if_long(&mut self, state: &mut RequestState, pool: &mut BlockPool) {
        if self.lengthens(self.known()) {
            debug_assert!(self.awaited.is_empty(), "no step computes the token that makes the sequence long");
            self.release(pool);
            self.find_cached(state, pool);
            let has_state = pool.take_state(&mut self.table);
            debug_assert!(has_state, "its slot was released");
            self.is_decoding = false;
            state.answer.enter_phase(self.output, "prefill", Some(self.computed));
        }
    }

    /// Finds the parts of the prefix cache that contain the first tokens, and references them.
    pub(super) fn find_cached(&mut self, state: &RequestState, pool: &mut BlockPool) {
        self.is_long |= self.lengthens(self.known());
        let mut found = pool.find(state.answer.request.content(&self.ids, self.is_long));
        if self.reports_prompt(state) {
            found.truncate(0);
        }
        // A part before an image may contain the end of another image.
        while let Some(span) = cut_span(state, found.positions()) {
            found.truncate(span.positions.start);
        }
        self.computed = found.positions();
        self.table = pool.take(&found);
    }

    /// Computes the last tokens of the found prefix instead of copying them, so that their block can
    /// be evicted. Returns false if nothing had to be copied.
    pub(super) fn cancel_copy(&mut self, pool: &mut BlockPool) -> bool {
        let left = pool.cancel_copy(&mut self.table);
        self.computed = left.unwrap_or(self.computed);
        left.is_some()
    }

    /// Returns the number of next tokens that can be computed: up to the first image whose features are missing. An
    /// awaited token is computed alone, unless the output ends with it or becomes long.
    pub(super) fn available(&self, state: &RequestState) -> usize {
        let is_last = self.length() - state.answer.request.prompt_tokens >= state.answer.request.limits.max_new_tokens;
        let is_known = self.computed < self.ids.len() || is_last || self.lengthens(self.length());
        let end = if is_known { self.ids.len() } else { self.length() };
        self.missing_image(state).map_or(end, |span| span.positions.start).saturating_sub(self.computed)
    }

    /// Returns the first image span that must be computed and whose features are missing.
    pub(super) fn missing_image<'a>(&self, state: &'a RequestState) -> Option<&'a ImageSpan> {
        let spans = state.answer.request.media.iter().flat_map(|media| &media.spans);
        let mut missing = spans.filter(|span| state.features(span.image).is_none());
        missing.find(|span| span.positions.end > self.computed)
    }

    /// Returns the images whose tokens attend to each other, by their distance from the next token.
    pub(super) fn whole_images(&self, state: &RequestState) -> Vec<Range<usize>> {
        let media = state.answer.request.media.iter().filter(|media| media.is_mutual);
        let left = media.flat_map(|media| &media.spans).filter(|span| span.positions.end > self.computed);
        let distance = |position: usize| position.saturating_sub(self.computed);
        left.map(|ImageSpan { positions, .. }| distance(positions.start)..distance(positions.end)).collect()
    }

    /// Returns the image tokens among the next `count` tokens.
    pub(super) fn image_rows<'a>(&self, state: &'a RequestState, count: usize) -> Vec<ImageRows<'a>> {
        let chunk = self.computed..self.computed + count;
        let spans = state.answer.request.media.iter().flat_map(|media| &media.spans);
        let rows = spans.filter_map(|span| {
            let (start, end) = (span.positions.start.max(chunk.start), span.positions.end.min(chunk.end));
            let first = span.first_row + start.checked_sub(span.positions.start)?;
            let features = state.features(span.image).filter(|_| start < end)?;
            let rows = first..first + end - start;
            Some(ImageRows {
                start: start - chunk.start,
                rows: features.rows(rows.clone()),
                deep: features.deep(rows),
                block: span.positions.clone(),
            })
        });
        rows.collect()
    }

    /// Returns the positions of the next `count` tokens, if the model has three axes.
    pub(super) fn axes(&self, state: &RequestState, count: usize) -> Option<Vec<[u32; 3]>> {
        let positions = state.answer.request.media.as_ref()?.positions.as_ref()?;
        Some(positions.range(self.computed, count))
    }

    /// Records that the sequence has left the queue.
    pub(super) fn start(&mut self, state: &mut RequestState) {
        if self.constraint.is_none() && state.answer.stage(self.output) != Stage::Waiting {
            self.start_grammar(&state.answer.request);
        }
        state.answer.enter_phase(self.output, "prefill", Some(self.computed));
        if !state.answer.is_accepted() {
            state.answer.accept(self.computed);
        }
    }

    fn start_grammar(&mut self, request: &PreparedRequest) {
        let grammar = request.grammar.as_ref();
        self.constraint = grammar.map(|grammar| Constraint::start(grammar, &request.caller));
    }

    /// Follows a token: the grammar begins, or takes it, or waits for the end of reasoning.
    fn advance(&mut self, request: &PreparedRequest, id: u32, (before, after): (Stage, Stage)) {
        match (before, after) {
            (Stage::Waiting, Stage::Bound) => self.start_grammar(request),
            (_, Stage::Waiting) => self.constraint = None,
            _ => self.constraint.iter_mut().for_each(|constraint| constraint.advance(id)),
        }
    }

    /// Returns true if the tokens that the grammar allows next are known by that time.
    fn is_mask_known_by(&mut self, time: Instant) -> bool {
        self.constraint.as_mut().is_none_or(|constraint| constraint.is_computed_by(time))
    }

    /// Returns the number of alternatives to report for each prompt token, or None if they are not
    /// requested of this output.
    fn prompt_logprobs(&self, state: &RequestState) -> Option<u32> {
        state.answer.request.returns.prompt_logprobs.filter(|_| self.is_first)
    }

    /// Returns true if log-probabilities of the prompt must still be sent. The prefix cache does
    /// not contain them.
    pub(super) fn reports_prompt(&self, state: &RequestState) -> bool {
        self.prompt_logprobs(state).is_some() && self.reported < state.answer.request.prompt_tokens
    }

    /// Releases the blocks. If a block is evicted, its tokens are computed again.
    pub(super) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(&mut self.table);
        self.computed = 0;
        self.unsampled = None;
        self.slot = None;
    }

    /// Releases the blocks, before the sequence returns to the queue with the priority of its request.
    pub(super) fn preempt(&mut self, state: &mut RequestState, pool: &mut BlockPool) {
        self.release(pool);
        state.answer.enter_phase(self.output, "preempted", None);
        self.is_decoding = false;
        self.priority = state.answer.request.priority;
        self.waits_since = Instant::now();
    }

    /// Returns the next `count` tokens for the model, with the image tokens among them and their
    /// positions.
    pub(super) fn chunk<'a>(
        &'a self,
        state: &RequestState,
        count: usize,
        images: &'a [ImageRows<'a>],
        positions: Option<&'a [[u32; 3]]>,
    ) -> SequenceChunk<'a> {
        let known = self.ids.get(self.computed..self.computed + count);
        SequenceChunk {
            tokens: known.unwrap_or(&AWAITED),
            chosen: self.awaited.last().filter(|_| known.is_none()).map(|awaited| awaited.result),
            drafted: self.drafted,
            past: self.computed,
            is_long: self.is_long,
            blocks: self.table.blocks(),
            copy: self.table.copy(),
            states: self.table.states(self.computed),
            logits: self.logits_for(state, count),
            images,
            positions,
        }
    }

    /// Returns the tokens among the next `count` whose logits are needed.
    fn logits_for(&self, state: &RequestState, count: usize) -> LogitsFor {
        if self.reports_prompt(state) {
            LogitsFor::All
        } else if self.computed + count == self.length() {
            LogitsFor::Last
        } else {
            LogitsFor::Nothing
        }
    }

    fn record_computed(&mut self, state: &RequestState, count: usize, pool: &mut BlockPool) {
        self.computed += count;
        if self.is_first {
            state.answer.progress.set_computed(self.computed.min(state.answer.request.prompt_tokens));
        }
        pool.copied(&mut self.table);
        self.commit(state, pool);
    }

    /// Adds the computed tokens, without awaited ones, to the prefix cache.
    fn commit(&mut self, state: &RequestState, pool: &mut BlockPool) {
        let content = state.answer.request.content(&self.ids, self.is_long);
        pool.commit(&mut self.table, content, self.computed.min(self.ids.len()));
    }

    /// Sends the log-probabilities of the next prompt tokens.
    fn send_prompt(&mut self, state: &RequestState, tokens: Vec<(u32, Logprobs)>) {
        self.reported += tokens.len();
        state.answer.send_prompt(tokens);
    }

    /// Sets the mask of the tokens that may come next, once they are known. None: all.
    fn allowed(&mut self, state: &RequestState) -> Result<(), Ending> {
        let forced = state.answer.forced(self.output);
        let (stage, rule) = (state.answer.stage(self.output), &state.answer.request.reasoning);
        let mask = match (self.mask.take(), forced) {
            (None, Some(id)) => Ok(Some(Mask::only(id, rule.vocabulary))),
            (None, None) => self.constraint.as_mut().map(Constraint::mask).transpose().map(|mut mask| {
                mask.iter_mut().filter(|_| stage == Stage::Opening).for_each(|mask| mask.add(&rule.start));
                mask
            }),
            (known, _) => Ok(known),
        };
        match mask {
            Ok(mask) => {
                self.mask = mask;
                let is_ended = self.mask == Some(Mask::Ended);
                if is_ended { Err(Ending::Finished(FinishReason::Stop)) } else { Ok(()) }
            }
            Err(MaskError::Limit(problem)) => {
                state.answer.span.in_scope(|| tracing::info!(problem, "output ended: the grammar exceeds a limit"));
                Err(Ending::Finished(FinishReason::GrammarLimit))
            }
            Err(MaskError::Failed(problem)) => Err(Ending::Failed(RequestError::Grammar { problem })),
        }
    }

    /// Ends the output without a further token. Returns true.
    fn conclude(&mut self, state: &mut RequestState, ending: Ending) -> bool {
        match ending {
            Ending::Finished(reason) => {
                state.answer.end(self.output, reason);
                self.ended(state)
            }
            Ending::Failed(error) => {
                state.answer.span.in_scope(|| tracing::warn!(error = error.chain(), "grammar failed"));
                state.answer.fail(self.output);
                self.ended(state)
            }
        }
    }

    /// Appends drawn tokens, up to one that ends the output. Sends one event. Returns true if the output ends.
    fn push(&mut self, state: &mut RequestState, drawn: impl IntoIterator<Item = Chosen>) -> bool {
        for chosen in drawn {
            let id = chosen.id;
            Arc::make_mut(&mut self.ids).push(id);
            self.mask = None;
            state.set_prefilled();
            if !std::mem::replace(&mut self.is_decoding, true) {
                state.answer.enter_phase(self.output, "decode", None);
            }
            let before = state.answer.stage(self.output);
            let constraint = &mut self.constraint;
            let completes = |id| constraint.as_mut().is_some_and(|constraint| constraint.completes_with(id));
            if state.answer.push(self.output, chosen, completes) == Flow::Ended {
                return self.ended(state);
            }
            let after = state.answer.stage(self.output);
            self.advance(&state.answer.request, id, (before, after));
        }
        state.answer.deliver(self.output);
        false
    }

    fn generated(&self, request: &PreparedRequest) -> usize {
        self.ids.len() - request.prompt_tokens
    }

    /// Ends the output with an error. Returns true.
    pub(super) fn fail(&mut self, state: &mut RequestState, error: &StepError) -> bool {
        state.answer.span.in_scope(|| tracing::error!(error = error.chain(), "step failed"));
        state.answer.fail(self.output);
        self.ended(state)
    }

    /// Ends the output because its request was interrupted.
    pub(super) fn interrupt(&mut self, state: &mut RequestState, interruption: Interruption) {
        state.answer.interrupt(self.output, interruption);
        self.ended(state);
    }

    /// Ends the output because the engine has failed.
    pub(super) fn abort(&mut self, state: &mut RequestState) {
        state.answer.abort(self.output);
        self.ended(state);
    }

    /// Records that the answer has ended the output. Returns true.
    fn ended(&mut self, state: &mut RequestState) -> bool {
        state.answer.awaited -= std::mem::take(&mut self.awaited).len();
        state.set_prefilled();
        true
    }
}

/// Returns the tokens that must not be at a position: stop tokens of an output that is too short, and ends of the
/// turn before a grammar that waits.
fn forbidden(request: &PreparedRequest, position: usize, stage: Stage) -> &[u32] {
    let is_early = position - request.prompt_tokens < request.limits.min_new_tokens;
    match stage {
        _ if is_early => &request.limits.stop_token_ids,
        Stage::Waiting => &request.reasoning.ends_of_turn,
        _ => &[],
    }
}

/// Returns the image span with tokens on both sides of `end`, if the tokens of an image attend to each
/// other.
fn cut_span(state: &RequestState, end: usize) -> Option<&ImageSpan> {
    let media = state.answer.request.media.as_ref().filter(|media| media.is_mutual)?;
    media.span_at(end).filter(|span| span.positions.start < end)
}
