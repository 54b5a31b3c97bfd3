//! The rows of a sequence in a step: the sequence plans their use, and receives the tokens.

use std::ops::Range;
use std::time::Instant;

use super::{Awaited, Ending, Sequence, forbidden, token};
use crate::cache::BlockPool;
use crate::engine::requests::RequestState;
use crate::error::{DeviceFault, Error};
use crate::grammar::Mask;
use crate::models::{Backend, Drawn, KeptRow};
use crate::sampling::{Chosen, Draw, History, RowPlan, TokenPlan, uniform};

/// The rows of a sequence in one step.
#[derive(Debug)]
pub(in crate::engine) struct Turn {
    /// The tokens before those of the step.
    past: usize,
    /// The tokens that the step computes.
    count: usize,
    /// The sequence's rows among those of the step.
    rows: Range<usize>,
    next: Next,
    /// True if the next step does not depend on the token: it has no grammar, and the rows predict no
    /// tokens of the prompt.
    is_open: bool,
}

/// The use of the last row.
#[derive(Debug)]
enum Next {
    /// More of the prompt follows.
    Nothing,
    /// The backend does not support the parameters in a step.
    Fetched,
    /// The tokens that the grammar allows are not known yet.
    Late,
    /// A token is drawn.
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
        self.is_open && matches!(self.next, Next::Nothing | Next::Drawn)
    }

    /// Returns the index after the last row.
    pub(in crate::engine) fn end(&self) -> usize {
        self.rows.end
    }

    /// Returns the position of the token that the last row predicts.
    fn position(&self) -> usize {
        self.past + self.count
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
        let rows = first_row..first_row + self.logits_for(state, count).of(count).len();
        let past = self.computed;
        let is_last = past + count == self.length() && !rows.is_empty();
        let next = if is_last { self.next(state, Instant::now(), backend) } else { Next::Nothing };
        let is_open = state.request.grammar.is_none() && !self.reports_prompt(state);
        Turn { past, count, rows, next, is_open }
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
        if !backend.can_draw(&state.request.sampling) {
            return Next::Fetched;
        }
        if !self.writer(&state.request).is_mask_known_by(masks_by) {
            return Next::Late;
        }
        self.prepare_draw(state, backend).map_or_else(Next::Ended, |()| Next::Drawn)
    }

    /// Sets what the plan of the next token needs. Precondition: the tokens that its grammar allows are known.
    fn prepare_draw(&mut self, state: &RequestState, backend: &mut dyn Backend) -> Result<(), Ending> {
        if self.slot.is_none() {
            self.slot = backend.slot(&state.request.sampling);
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
        given.chain(self.last_plan(state, turn)).collect()
    }

    /// Returns the plan of the last row. `None`: it has no use.
    pub(in crate::engine) fn last_plan<'a>(&'a self, state: &'a RequestState, turn: &Turn) -> Option<RowPlan<'a>> {
        let row = turn.end().checked_sub(1)?;
        match turn.next {
            Next::Nothing | Next::Ended(_) => None,
            Next::Fetched => Some(RowPlan { row, token: TokenPlan::Fetched, logprobs: None }),
            Next::Late => Some(RowPlan { row, token: TokenPlan::Kept, logprobs: None }),
            Next::Drawn => Some(self.draw(state, row, turn.position())),
        }
    }

    /// Returns the prompt tokens whose log-probabilities are reported, and the rows that predict them.
    fn predicted(&self, state: &RequestState, turn: &Turn) -> impl Iterator<Item = (usize, usize)> {
        let prompt = if self.reports_prompt(state) { state.request.prompt_tokens } else { 0 };
        let reported = self.reported;
        (turn.past + 1..prompt).zip(turn.rows.clone()).filter(move |(at, _)| *at >= reported)
    }

    /// Plans the token at `position`, which a row predicts.
    fn draw<'a>(&'a self, state: &'a RequestState, row: usize, position: usize) -> RowPlan<'a> {
        let request = &state.request;
        let (prompt, output) = self.ids.split_at(request.prompt_tokens);
        let awaited = position - self.ids.len();
        let draw = Draw {
            sampling: &request.sampling,
            random: uniform(request.sampling.seed, self.output, position as u64),
            forbidden: forbidden(request, position),
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
        self.record_computed(state, turn.count, pool);
        if matches!(turn.next, Next::Drawn) {
            self.awaited.push(Awaited { step, result });
            state.awaited += 1;
        }
    }

    /// Returns true if the sequence still awaits the token of a turn in this step.
    pub(in crate::engine) fn awaits(&self, turn: &Turn, step: u64) -> bool {
        !matches!(turn.next, Next::Drawn) || self.awaited.first().is_some_and(|awaited| awaited.step == step)
    }

    /// Discards the tokens computed after an awaited token that is not decided yet.
    pub(in crate::engine) fn discard_later(&mut self, state: &mut RequestState, backend: &mut dyn Backend) {
        let later = self.awaited.len().saturating_sub(1);
        self.awaited.truncate(1);
        self.computed = self.computed.saturating_sub(later);
        state.awaited -= later;
        self.slot = backend.slot(&state.request.sampling);
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
    ) -> Result<bool, Error> {
        let mut results = results.into_iter();
        let mut tokens = Vec::new();
        for (at, _) in self.predicted(state, &turn) {
            if let Chosen { logprobs: Some(logprobs), .. } = chosen(results.next())? {
                tokens.push(token(&state.request, self.ids[at], &logprobs));
            }
        }
        self.send_prompt(state, tokens);
        match (turn.next, results.next()) {
            (Next::Nothing, _) => Ok(false),
            (Next::Ended(ending), _) => Ok(self.conclude(state, ending)),
            (Next::Drawn, drawn) => {
                self.awaited.remove(0);
                state.awaited -= 1;
                let Chosen { id, logprobs } = chosen(drawn)?;
                let ended = self.push(state, id, logprobs);
                self.commit(state, pool);
                Ok(ended)
            }
            (Next::Fetched | Next::Late, Some(Drawn::Kept(row))) => {
                self.unsampled = Some(row);
                self.sample_late(state, backend)
            }
            (Next::Fetched | Next::Late, drawn) => chosen(drawn).map(|_| false),
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
    ) -> Result<bool, Error> {
        if self.unsampled.is_none() || state.sink.is_full() {
            return Ok(false);
        }
        let now = Instant::now();
        if !self.writer(&state.request).is_mask_known_by(now) {
            return Ok(false);
        }
        let Some(row) = self.unsampled.take() else { return Ok(false) };
        let ended = match self.prepare_draw(state, backend) {
            Err(ending) => self.conclude(state, ending),
            Ok(()) => match backend.draw_kept(row, &self.draw(state, 0, self.ids.len())) {
                Ok(Chosen { id, logprobs }) => self.push(state, id, logprobs),
                Err(error) if error.device_fault() == Some(DeviceFault::Lost) => return Err(error),
                Err(error) => self.fail(state, &error),
            },
        };
        state.measure_back_pressure(now);
        Ok(ended)
    }

    /// Returns true if the row of its next token waits on the device for the tokens that its grammar allows.
    pub(in crate::engine) fn is_late_on_device(&self) -> bool {
        matches!(self.unsampled, Some(KeptRow::Device(_)))
    }
}

/// Returns the token of a row.
fn chosen(drawn: Option<Drawn>) -> Result<Chosen, Error> {
    match drawn {
        Some(Drawn::Chosen(chosen)) => Ok(chosen),
        Some(Drawn::Failed(error)) => Err(error),
        None | Some(Drawn::Kept(_) | Drawn::Undecided) => Err(Error::NotFinite),
    }
}
