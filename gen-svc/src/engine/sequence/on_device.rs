//! Rows of logits that stay on the device: a sequence plans their use, and receives the tokens that are
//! chosen there.

use std::ops::Range;
use std::time::Instant;

use tch::Tensor;

use super::{Awaited, Ending, Row, Sequence, forbidden, token};
use crate::cache::BlockPool;
use crate::engine::requests::RequestState;
use crate::engine::row_sampler::{RowSampler, is_lost};
use crate::error::Error;
use crate::grammar::Mask;
use crate::sampling::device::{Chosen, DeviceSampler, Draw, History, RowPlan, TokenPlan};
use crate::sampling::uniform;

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
    /// The device's sampler does not support the parameters: the host samples.
    Fetched,
    /// The tokens that the grammar allows are not known yet.
    Late,
    /// A token is drawn.
    Drawn,
    /// The output ends without a token.
    Ended(Ending),
}

impl Turn {
    /// Returns true if a row travels to the host.
    pub(in crate::engine) fn is_fetched(&self) -> bool {
        matches!(self.next, Next::Fetched)
    }

    /// Returns true if the tokens that a grammar allows are not known yet.
    pub(in crate::engine) fn is_late(&self) -> bool {
        matches!(self.next, Next::Late)
    }

    /// Returns true if the next step can be launched before the host has the token of this one.
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
        sampler: &mut DeviceSampler,
    ) -> Turn {
        let rows = first_row..first_row + self.logits_for(state, count).of(count).len();
        let past = self.computed;
        let is_last = past + count == self.length() && !rows.is_empty();
        let next = if is_last { self.next(state, Instant::now(), sampler) } else { Next::Nothing };
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
        sampler: &mut DeviceSampler,
    ) {
        if turn.is_late() {
            turn.next = self.next(state, masks_by, sampler);
        }
    }

    fn next(&mut self, state: &RequestState, masks_by: Instant, sampler: &mut DeviceSampler) -> Next {
        let sampling = &state.request.sampling;
        if !DeviceSampler::supports(sampling) {
            return Next::Fetched;
        }
        if !self.writer(&state.request).is_mask_known_by(masks_by) {
            return Next::Late;
        }
        if self.slot.is_none() {
            self.slot = sampler.slot(sampling);
        }
        self.allowed(state).map_or_else(Next::Ended, |()| Next::Drawn)
    }

    /// Returns the plans of the rows for the sampler.
    pub(in crate::engine) fn plans<'a>(&'a self, state: &'a RequestState, turn: &Turn) -> Vec<RowPlan<'a>> {
        let logprobs = self.prompt_logprobs(state).map(|count| count as usize);
        let given = self.predicted(state, turn).map(|(at, row)| {
            let token = TokenPlan::Given(self.ids[at]);
            RowPlan { row, token, logprobs }
        });
        given.chain(self.drawn(state, turn)).collect()
    }

    /// Returns the plan of the row whose token is drawn.
    pub(in crate::engine) fn drawn<'a>(&'a self, state: &'a RequestState, turn: &Turn) -> Option<RowPlan<'a>> {
        matches!(turn.next, Next::Drawn).then(|| self.draw(state, turn.end() - 1, turn.position()))
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

    /// Records that a step computes the tokens of a turn. The sequence's last result among those of the
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

    /// Discards the tokens computed after an awaited token that the device could not choose yet.
    pub(in crate::engine) fn discard_later(&mut self, state: &mut RequestState, sampler: &mut DeviceSampler) {
        let later = self.awaited.len().saturating_sub(1);
        self.awaited.truncate(1);
        self.computed = self.computed.saturating_sub(later);
        state.awaited -= later;
        self.slot = sampler.slot(&state.request.sampling);
    }

    /// Receives the results of a turn, one for each plan, and all rows of the step. Returns true if that
    /// ends the output.
    ///
    /// # Errors
    /// libtorch failed.
    pub(in crate::engine) fn finish_turn(
        &mut self,
        state: &mut RequestState,
        turn: Turn,
        outcomes: Vec<Result<Chosen, Error>>,
        rows: Option<&Tensor>,
        (device, pool): (&mut RowSampler<'_>, &mut BlockPool),
    ) -> Result<bool, Error> {
        let mut outcomes = outcomes.into_iter();
        let mut tokens = Vec::new();
        for (at, _) in self.predicted(state, &turn) {
            if let Some(Chosen { logprobs: Some(logprobs), .. }) = outcomes.next().transpose()? {
                tokens.push(token(&state.request, self.ids[at], &logprobs));
            }
        }
        self.send_prompt(state, tokens);
        let last = || rows.ok_or(Error::EngineFailed)?.f_narrow(0, turn.end() as i64 - 1, 1).map_err(Error::from);
        match turn.next {
            Next::Nothing => Ok(false),
            Next::Fetched => {
                self.unsampled = Some(Row::Host(device.fetch(&last()?)?));
                self.sample_late(state, None)
            }
            Next::Late => {
                self.unsampled = Some(Row::Device(device.keep(&last()?)?));
                Ok(false)
            }
            Next::Drawn => {
                self.awaited.remove(0);
                state.awaited -= 1;
                let ended = self.push_chosen(state, outcomes.next());
                self.commit(state, pool);
                Ok(ended)
            }
            Next::Ended(ending) => Ok(self.conclude(state, ending)),
        }
    }

    /// Samples the token of a row whose mask is known now. Returns true if that ends the output.
    ///
    /// # Errors
    /// The device has failed for good.
    pub(super) fn sample_late_on_device(
        &mut self,
        state: &mut RequestState,
        row: &Tensor,
        device: &mut RowSampler<'_>,
    ) -> Result<bool, Error> {
        Ok(match self.next(state, Instant::now(), device.sampler) {
            Next::Drawn => match device.choose(row, &self.draw(state, 0, self.ids.len())) {
                Ok(chosen) => self.push_chosen(state, chosen),
                Err(error) if is_lost(&error) => return Err(error),
                Err(error) => self.fail(state, &error),
            },
            Next::Ended(ending) => self.conclude(state, ending),
            Next::Nothing | Next::Fetched | Next::Late => false,
        })
    }

    fn push_chosen(&mut self, state: &mut RequestState, chosen: Option<Result<Chosen, Error>>) -> bool {
        match chosen.unwrap_or(Err(Error::NotFinite)) {
            Ok(Chosen { id, logprobs }) => self.push(state, id, logprobs),
            Err(error) => self.fail(state, &error),
        }
    }
}
