//! Rows of logits that stay on the device: a sequence plans their use, and receives the tokens that are
//! chosen there.

use std::ops::Range;
use std::time::Instant;

use tch::{Device, Tensor};

use super::{Ending, Row, Sequence, token};
use crate::cache::BlockPool;
use crate::engine::requests::RequestState;
use crate::error::Error;
use crate::grammar::Mask;
use crate::sampling::device::{Chosen, DeviceSampler, Draw, History, RowPlan, TokenPlan};
use crate::sampling::uniform;

/// The rows of a sequence in one step.
#[derive(Debug)]
pub(in crate::engine) struct Turn {
    /// The tokens that the step computes.
    count: usize,
    /// The sequence's rows among those of the step.
    rows: Range<usize>,
    next: Next,
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
    /// One of these tokens is drawn. None: one of all.
    Drawn(Option<Mask>),
    /// The output ends without a token.
    Ended(Ending),
}

impl Turn {
    /// Returns true if a row travels to the host.
    pub(in crate::engine) fn is_fetched(&self) -> bool {
        matches!(self.next, Next::Fetched)
    }
}

impl Sequence {
    /// Decides the use of the sequence's rows, after a step of `count` tokens. Waits until
    /// `masks_by` for the tokens that a grammar allows.
    pub(in crate::engine) fn turn(
        &mut self,
        state: &RequestState,
        count: usize,
        rows: Range<usize>,
        masks_by: Instant,
        sampler: &mut DeviceSampler,
    ) -> Turn {
        let is_last = self.computed + count == self.ids.len() && !rows.is_empty();
        let next = if is_last { self.next(state, masks_by, sampler) } else { Next::Nothing };
        Turn { count, rows, next }
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
        self.allowed(state).map_or_else(Next::Ended, Next::Drawn)
    }

    /// Returns the plans of the rows for the sampler.
    pub(in crate::engine) fn plans<'a>(&'a self, state: &'a RequestState, turn: &'a Turn) -> Vec<RowPlan<'a>> {
        let logprobs = self.prompt_logprobs(state).map(|count| count as usize);
        let given = self.predicted(state, turn).map(|(at, row)| {
            let token = TokenPlan::Given(self.ids[at]);
            RowPlan { row, token, logprobs }
        });
        let drawn = match &turn.next {
            Next::Drawn(mask) => Some(self.draw(state, turn.rows.end - 1, mask.as_ref())),
            _ => None,
        };
        given.chain(drawn).collect()
    }

    /// Returns the prompt tokens whose log-probabilities are reported, and the rows that predict them.
    fn predicted(&self, state: &RequestState, turn: &Turn) -> impl Iterator<Item = (usize, usize)> {
        let prompt = if self.reports_prompt(state) { state.request.prompt_tokens } else { 0 };
        let reported = self.reported;
        (self.computed + 1..prompt).zip(turn.rows.clone()).filter(move |(at, _)| *at >= reported)
    }

    fn draw<'a>(&'a self, state: &'a RequestState, row: usize, mask: Option<&'a Mask>) -> RowPlan<'a> {
        let request = &state.request;
        let (prompt, output) = self.ids.split_at(request.prompt_tokens);
        let draw = Draw {
            sampling: &request.sampling,
            random: uniform(request.sampling.seed, self.output, self.ids.len() as u64),
            forbidden: self.forbidden(request),
            allowed: match mask {
                Some(Mask::Tokens(words)) => Some(words),
                _ => None,
            },
            history: self.slot.as_ref().map(|slot| History { slot, prompt, output }),
        };
        let logprobs = request.returns.logprobs.map(|count| count as usize);
        RowPlan { row, token: TokenPlan::Drawn(draw), logprobs }
    }

    /// Records that the tokens of a turn are computed, with one result for each plan and all rows of the
    /// step. Returns true if that ends the output.
    ///
    /// # Errors
    /// libtorch failed.
    pub(in crate::engine) fn advance_on_device(
        &mut self,
        state: &mut RequestState,
        turn: Turn,
        mut chosen: impl Iterator<Item = Result<Chosen, Error>>,
        rows: &Tensor,
        pool: &mut BlockPool,
    ) -> Result<bool, Error> {
        let mut tokens = Vec::new();
        for (at, _) in self.predicted(state, &turn) {
            if let Some(Chosen { logprobs: Some(logprobs), .. }) = chosen.next().transpose()? {
                tokens.push(token(&state.request, self.ids[at], &logprobs));
            }
        }
        self.send_prompt(state, tokens);
        self.record_computed(state, turn.count, pool);
        let last = || rows.f_narrow(0, turn.rows.end as i64 - 1, 1);
        match turn.next {
            Next::Nothing => Ok(false),
            Next::Fetched => {
                self.unsampled = Some(Row::Host(fetched(&last()?)?));
                Ok(self.sample_late(state, &mut None))
            }
            Next::Late => {
                self.unsampled = Some(Row::Device(copied(&last()?)?));
                Ok(false)
            }
            Next::Drawn(_) => Ok(self.push_chosen(state, chosen.next())),
            Next::Ended(ending) => Ok(self.conclude(state, ending)),
        }
    }

    /// Samples the token of a row whose mask is known now. Returns true if that ends the output.
    pub(super) fn sample_late_on_device(
        &mut self,
        state: &mut RequestState,
        row: &Tensor,
        sampler: &mut DeviceSampler,
    ) -> bool {
        match self.next(state, Instant::now(), sampler) {
            Next::Drawn(mask) => match sampler.run(row, &[self.draw(state, 0, mask.as_ref())]) {
                Ok(chosen) => self.push_chosen(state, chosen.into_iter().next()),
                Err(error) => self.fail(state, &error),
            },
            Next::Ended(ending) => self.conclude(state, ending),
            Next::Nothing | Next::Fetched | Next::Late => false,
        }
    }

    fn push_chosen(&mut self, state: &mut RequestState, chosen: Option<Result<Chosen, Error>>) -> bool {
        match chosen.unwrap_or(Err(Error::NotFinite)) {
            Ok(Chosen { id, logprobs }) => self.push(state, id, logprobs),
            Err(error) => self.fail(state, &error),
        }
    }
}

fn fetched(row: &Tensor) -> Result<Vec<f32>, Error> {
    let mut numbers = vec![0.0; row.numel()];
    row.f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data(&mut numbers, row.numel())?;
    Ok(numbers)
}

/// Copies a row, so that the other rows of its step are freed.
fn copied(row: &Tensor) -> Result<Tensor, Error> {
    let mut copy = row.f_empty_like()?;
    copy.f_copy_(row)?;
    Ok(copy)
}
