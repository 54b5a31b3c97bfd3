//! The rows of a sequence in a step: the sequence plans their use, and receives the tokens.

use std::ops::Range;
use std::time::Instant;

use super::{Awaited, Ending, Sequence, SequenceId, forbidden};
use crate::cache::BlockPool;
use crate::engine::requests::RequestState;
use crate::error::StepError;
use crate::grammar::Mask;
use crate::models::{Backend, Drawn, KeptRow};
use crate::sampling::{Chosen, Draw, History, RowPlan, TokenPlan, uniform};

/// The rows of a sequence in one step.
#[derive(Debug)]
pub(in crate::engine) struct Turn {
    pub(in crate::engine) id: SequenceId,
    /// The number of plans.
    pub(in crate::engine) plans: usize,
    /// The tokens before those of the step.
    past: usize,
    /// The tokens that the step computes.
    count: usize,
    /// The tokens after these that the backend drafts.
    drafted: usize,
    /// The sequence's rows among those of the step. The last ones are of drafted tokens.
    rows: Range<usize>,
    next: Next,
    /// True if the next step does not depend on the token: it has no grammar, and the rows predict no
    /// tokens of the prompt.
    is_open: bool,
}

/// The use of the last rows: that of the last token, and those of drafted ones.
#[derive(Debug)]
enum Next {
    /// More of the prompt follows.
    Nothing,
    /// The backend does not support the parameters in a step.
    Fetched,
    /// The tokens that the grammar allows are not known yet.
    Late,
    /// A token is drawn from each.
    Drawn,
    /// The output ends without a token.
    Ended(Ending),
}

impl Turn {
    /// Returns true if the tokens that a grammar allows are not known yet.
    pub(in crate::engine) fn is_late(&self) -> bool {
        matches!(self.next, Next::Late)
    }

    /// Returns true if the next step can be launched before the token of this one is known.
    pub(in crate::engine) fn is_open(&self) -> bool {
        self.is_open && self.drafted == 0 && matches!(self.next, Next::Nothing | Next::Drawn)
    }

    /// Returns the index after the last row.
    pub(in crate::engine) fn end(&self) -> usize {
        self.rows.end
    }

    /// Returns the last rows, with the positions of the tokens that they predict.
    fn last_rows(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (last, position) = (self.rows.end.saturating_sub(1 + self.drafted), self.past + self.count);
        (last..self.rows.end).zip(position..)
    }

    /// Returns the number of drawn tokens.
    pub(in crate::engine) fn drawn(&self) -> usize {
        if matches!(self.next, Next::Drawn) { 1 + self.drafted } else { 0 }
    }
}

impl Sequence {
    /// Decides the use of the sequence's rows in a step of its next `count` tokens, as far as it is
    /// known. `first_row` is the first of them among the rows of the step.
    pub(in crate::engine) fn turn(
        &mut self,
        state: &RequestState,
        count: usize,
        first_row: usize,
        backend: &mut dyn Backend,
    ) -> Turn {
        let (past, drafted) = (self.computed, self.drafted);
        let rows = first_row..first_row + self.logits_for(state, count).of(count).len() + drafted;
        let is_last = past + count == self.length() && !rows.is_empty();
        let next = if is_last { self.next(state, Instant::now(), backend) } else { Next::Nothing };
        let is_open = !state.answer.request.is_guided() && !self.reports_prompt(state);
        Turn { id: self.id(), plans: 0, past, count, drafted, rows, next, is_open }
    }

    /// Decides the use of rows that was not known, and waits until `masks_by` for the tokens that a
    /// grammar allows.
    pub(in crate::engine) fn decide(
        &mut self,
        state: &RequestState,
        turn: &mut Turn,
        masks_by: Instant,
        backend: &mut dyn Backend,
    ) {
        if turn.is_late() {
            turn.next = self.next(state, masks_by, backend);
        }
    }

    fn next(&mut self, state: &RequestState, masks_by: Instant, backend: &mut dyn Backend) -> Next {
        if !backend.can_draw(&state.answer.request.sampling) {
            return Next::Fetched;
        }
        if !self.is_mask_known_by(masks_by) {
            return Next::Late;
        }
        self.prepare_draw(state, backend).map_or_else(Next::Ended, |()| Next::Drawn)
    }

    /// Sets the slot and the mask for the plan of the next token. Precondition: the tokens that its grammar
    /// allows are known.
    fn prepare_draw(&mut self, state: &RequestState, backend: &mut dyn Backend) -> Result<(), Ending> {
        if self.slot.is_none() {
            self.slot = backend.slot(&state.answer.request.sampling);
        }
        self.allowed(state)
    }

    /// Returns the plans of the rows.
    pub(in crate::engine) fn plans<'a>(&'a self, state: &'a RequestState, turn: &Turn) -> Vec<RowPlan<'a>> {
        let logprobs = self.prompt_logprobs(state).map(|count| count as usize);
        let given = self.predicted(state, turn).map(|(at, row)| {
            let token = TokenPlan::Given(self.ids[at]);
            RowPlan { row, token, logprobs }
        });
        given.chain(self.last_plans(state, turn)).collect()
    }

    /// Returns the plans of the last rows.
    pub(in crate::engine) fn last_plans<'a>(&'a self, state: &'a RequestState, turn: &Turn) -> Vec<RowPlan<'a>> {
        let plan = |(row, position)| match turn.next {
            Next::Nothing | Next::Ended(_) => None,
            Next::Fetched => Some(RowPlan { row, token: TokenPlan::Fetched, logprobs: None }),
            Next::Late => Some(RowPlan { row, token: TokenPlan::Kept, logprobs: None }),
            Next::Drawn => Some(self.draw(state, row, position)),
        };
        let most = turn.drawn().max(1);
        turn.last_rows().take(most).filter_map(plan).collect()
    }

    /// Returns the prompt tokens whose log-probabilities are reported, and the rows that predict them.
    fn predicted(&self, state: &RequestState, turn: &Turn) -> impl Iterator<Item = (usize, usize)> {
        let prompt = if self.reports_prompt(state) { state.answer.request.prompt_tokens } else { 0 };
        let reported = self.reported;
        (turn.past + 1..prompt).zip(turn.rows.clone()).filter(move |(at, _)| *at >= reported)
    }

    /// Plans the token at `position`, which a row predicts.
    fn draw<'a>(&'a self, state: &'a RequestState, row: usize, position: usize) -> RowPlan<'a> {
        let request = &state.answer.request;
        let (prompt, output) = self.ids.split_at(request.prompt_tokens);
        let awaited = position - self.ids.len();
        let draw = Draw {
            sampling: &request.sampling,
            random: uniform(request.sampling.seed, self.output, position as u64),
            forbidden: forbidden(request, position, state.answer.stage(self.output)),
            allowed: match &self.mask {
                Some(Mask::Tokens(words)) => Some(words),
                _ => None,
            },
            history: self.slot.as_ref().map(|slot| History { slot, prompt, output, awaited }),
        };
        let logprobs = request.returns.logprobs.map(|count| count as usize);
        RowPlan { row, token: TokenPlan::Drawn(draw), logprobs }
    }

    /// Records that a step computes the tokens of a turn. The sequence's last plan among those of the
    /// step has the index `result`.
    pub(in crate::engine) fn record_launched(
        &mut self,
        state: &mut RequestState,
        turn: &Turn,
        step: u64,
        result: usize,
        pool: &mut BlockPool,
    ) {
        if turn.count == 1 {
            self.last_step = step;
        }
        self.record_computed(state, turn.count + turn.drawn().saturating_sub(1), pool);
        self.awaited.extend((0..turn.drawn()).map(|_| Awaited { step, result }));
        state.answer.awaited += turn.drawn();
    }

    /// Returns true if the sequence still awaits the token of a turn in this step.
    pub(in crate::engine) fn awaits(&self, turn: &Turn, step: u64) -> bool {
        !matches!(turn.next, Next::Drawn) || self.awaited.first().is_some_and(|awaited| awaited.step == step)
    }

    /// Discards the tokens computed after those of a turn whose token is not decided yet.
    pub(in crate::engine) fn discard_later(
        &mut self,
        state: &mut RequestState,
        turn: &Turn,
        backend: &mut dyn Backend,
    ) {
        let own = turn.drawn().max(1);
        let later = self.awaited.len().saturating_sub(own);
        self.awaited.truncate(own);
        state.answer.awaited -= later;
        self.cut(state, later, backend);
    }

    /// Removes the last `count` computed tokens. Their counts are wrong.
    fn cut(&mut self, state: &RequestState, count: usize, backend: &mut dyn Backend) {
        self.computed = self.computed.saturating_sub(count);
        self.slot = backend.slot(&state.answer.request.sampling);
    }

    /// Receives `count` drawn tokens, of which a prefix is accepted. Blocks of the others are released. Returns true if
    /// a token ends the output.
    ///
    /// # Errors
    /// The first row failed.
    fn receive(
        &mut self,
        state: &mut RequestState,
        count: usize,
        drawn: Vec<Drawn>,
        (backend, pool): (&mut dyn Backend, &mut BlockPool),
    ) -> Result<bool, StepError> {
        self.awaited.drain(..count);
        state.answer.awaited -= count;
        let mut drawn = drawn.into_iter();
        let first = chosen(drawn.next())?;
        let more = drawn.map_while(|drawn| match drawn {
            Drawn::Chosen(chosen) => Some(chosen),
            _ => None,
        });
        let accepted: Vec<Chosen> = std::iter::once(first).chain(more).collect();
        if accepted.len() < count {
            self.cut(state, count - accepted.len(), backend);
            pool.cut(&mut self.table, self.computed);
        }
        let ended = self.push(state, accepted);
        self.commit(state, pool);
        Ok(ended)
    }

    /// Receives the results of a turn, one for each plan. Returns true if that ends the output.
    ///
    /// # Errors
    /// A row failed.
    pub(in crate::engine) fn finish_turn(
        &mut self,
        state: &mut RequestState,
        turn: Turn,
        results: Vec<Drawn>,
        (backend, pool): (&mut dyn Backend, &mut BlockPool),
    ) -> Result<bool, StepError> {
        let mut results = results.into_iter();
        let mut tokens = Vec::new();
        for (at, _) in self.predicted(state, &turn) {
            if let Chosen { logprobs: Some(logprobs), .. } = chosen(results.next())? {
                tokens.push((self.ids[at], logprobs));
            }
        }
        self.send_prompt(state, tokens);
        let mut last: Vec<Drawn> = results.collect();
        let count = turn.drawn();
        match turn.next {
            Next::Nothing => Ok(false),
            Next::Ended(ending) => Ok(self.conclude(state, ending)),
            Next::Drawn => self.receive(state, count, last, (backend, pool)),
            Next::Fetched | Next::Late => match last.pop() {
                Some(Drawn::Kept(row)) => {
                    self.unsampled = Some(row);
                    self.sample_late(state, backend)
                }
                failed => chosen(failed).map(|_| false),
            },
        }
    }

    /// Draws the token of a kept row, if the tokens that its grammar allows are known now. Returns true if that
    /// ends the output.
    ///
    /// # Errors
    /// The device has failed for good.
    pub(in crate::engine) fn sample_late(
        &mut self,
        state: &mut RequestState,
        backend: &mut dyn Backend,
    ) -> Result<bool, StepError> {
        if self.unsampled.is_none() || state.answer.is_full() {
            return Ok(false);
        }
        let now = Instant::now();
        if !self.is_mask_known_by(now) {
            return Ok(false);
        }
        let Some(row) = self.unsampled.take() else { return Ok(false) };
        let ended = match self.prepare_draw(state, backend) {
            Err(ending) => self.conclude(state, ending),
            Ok(()) => match backend.draw_kept(row, &self.draw(state, 0, self.ids.len())) {
                Ok(chosen) => self.push(state, [chosen]),
                Err(error) if error.is_device_lost() => return Err(error),
                Err(error) => self.fail(state, &error),
            },
        };
        state.answer.measure_back_pressure(now);
        Ok(ended)
    }

    /// Returns true if the row of its next token waits on the device for the tokens that its grammar allows.
    pub(in crate::engine) fn is_late_on_device(&self) -> bool {
        matches!(self.unsampled, Some(KeptRow::Device(_)))
    }
}

/// Returns the token of a row.
fn chosen(drawn: Option<Drawn>) -> Result<Chosen, StepError> {
    match drawn {
        Some(Drawn::Chosen(chosen)) => Ok(chosen),
        Some(Drawn::Failed(error)) => Err(error),
        None | Some(Drawn::Kept(_) | Drawn::Undecided | Drawn::Rejected) => Err(StepError::Broken),
    }
}
