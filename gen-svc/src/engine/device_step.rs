//! Steps whose tokens the device chooses: launched, and later finished.
//!
//! One upload has the inputs of the model and of the sampler, and one download has the tokens. A step
//! can be launched before the tokens of the last one are known on the host. They stay on the device as
//! its inputs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tch::Tensor;

use super::metrics::SampledRows;
use super::requests::RequestState;
use super::row_sampler::{RowSampler, is_lost, is_out_of_memory};
use super::schedule::Scheduler;
use super::sequence::on_device::Turn;
use super::sequence::{Sequence, SequenceId};
use crate::device::event::Event;
use crate::device::upload::Upload;
use crate::error::Error;
use crate::models::{DeviceRows, Logits, Model, SequenceChunk};
use crate::sampling::device::{Chosen, DeviceSampler, Launched, Planned, RowOutcome, RowPlan};

/// The parts of the engine that compute steps.
pub(super) struct Parts<'a> {
    pub(super) model: &'a mut dyn Model,
    pub(super) logits: &'a mut Logits,
    pub(super) sampler: &'a mut DeviceSampler,
    pub(super) scheduler: &'a mut Scheduler,
    /// How long a step waits for the tokens that grammars allow, after the model.
    pub(super) mask_patience: Duration,
}

/// A launched step.
#[derive(Debug)]
pub(super) struct DeviceStep {
    pub(super) start: Instant,
    /// The tokens that it computes.
    pub(super) tokens: usize,
    number: u64,
    shares: Vec<Share>,
    /// `[rows, vocabulary]`. `None`: no logits are needed.
    rows: Option<Tensor>,
    /// `None`: the device chooses no token.
    launched: Option<Launched>,
    /// The end of a step of which the device chooses no token. `None` on the CPU too.
    end: Option<Event>,
}

/// The share of one sequence.
#[derive(Debug)]
struct Share {
    id: SequenceId,
    turn: Turn,
    /// The number of results.
    results: usize,
}

/// The work of a finished step.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Tokens of outputs.
    pub(super) tokens: usize,
    /// Rows whose tokens were chosen.
    pub(super) rows: SampledRows,
}

impl DeviceStep {
    /// Launches a step of the sequences with a count above zero. `last` is the step before, if the host
    /// does not know its tokens.
    ///
    /// # Errors
    /// The backend's. Nothing is recorded then.
    pub(super) fn launch(
        parts: &mut Parts<'_>,
        counts: &[usize],
        number: u64,
        last: Option<&Self>,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let mut step = Self {
            start,
            tokens: counts.iter().sum(),
            number,
            shares: shares(parts, counts),
            rows: None,
            launched: None,
            end: None,
        };
        let mut upload = Upload::default();
        let planned = if step.is_late() { None } else { step.plan(parts, counts, &mut upload) };
        parts.logits.stay_with(upload, last.and_then(Self::chosen));
        with_chunks(parts.scheduler, counts, |chunks| parts.model.forward(chunks, parts.logits))?;
        if let Some(rows) = parts.logits.take_from_device() {
            step.launched = step.sample(parts, counts, planned, &rows, last.is_none())?;
            step.rows = Some(rows.rows);
        }
        if let (None, Some(device)) = (&step.launched, parts.model.rows_device()) {
            step.end = Event::record(device)?;
        }
        step.record(parts.scheduler, counts);
        Ok(step)
    }

    /// Returns true if the next step can be launched before the host has the tokens of this one.
    pub(super) fn is_open(&self) -> bool {
        self.shares.iter().all(|share| share.turn.is_open())
    }

    /// Returns true if a grammar's mask is not known yet.
    fn is_late(&self) -> bool {
        self.shares.iter().any(|share| share.turn.is_late())
    }

    /// Returns the tokens on the device, `[n, 1]`.
    fn chosen(&self) -> Option<Tensor> {
        self.launched.as_ref().map(|launched| launched.ids().shallow_clone())
    }

    /// Adds the sampler's inputs to an upload. Returns None if the device chooses no token.
    fn plan(&mut self, parts: &mut Parts<'_>, counts: &[usize], upload: &mut Upload) -> Option<Planned> {
        let Parts { sampler, scheduler, .. } = parts;
        let taking_part = taking_part(scheduler, counts).zip(&mut self.shares);
        let mut plans = Vec::new();
        let mut rows = 0;
        for ((sequence, state, _), share) in taking_part {
            let own = sequence.plans(state, &share.turn);
            share.results = own.len();
            rows = share.turn.end();
            plans.extend(own);
        }
        (!plans.is_empty()).then(|| sampler.plan(rows, &plans, upload))
    }

    /// Chooses the tokens as planned. If a grammar's mask was not known before the step, waits for it and
    /// plans now. If the device has too little memory, a step that `may_repeat` frees libtorch's unused
    /// memory and tries a second time.
    fn sample(
        &mut self,
        parts: &mut Parts<'_>,
        counts: &[usize],
        planned: Option<Planned>,
        DeviceRows { rows, sent }: &DeviceRows,
        may_repeat: bool,
    ) -> Result<Option<Launched>, Error> {
        let first = match planned {
            Some(planned) => parts.sampler.launch(planned, rows, sent).map(Some),
            None => {
                self.decide(parts, counts);
                self.sample_now(parts, counts, rows)
            }
        };
        match first {
            Err(error) if is_out_of_memory(&error) && may_repeat => {
                parts.model.free_cache();
                self.sample_now(parts, counts, rows)
            }
            launched => launched,
        }
    }

    /// Plans and chooses the tokens, with an upload for them alone.
    fn sample_now(
        &mut self,
        parts: &mut Parts<'_>,
        counts: &[usize],
        rows: &Tensor,
    ) -> Result<Option<Launched>, Error> {
        let mut upload = Upload::default();
        let Some(planned) = self.plan(parts, counts, &mut upload) else { return Ok(None) };
        let sent = upload.send(rows.device())?;
        parts.sampler.launch(planned, rows, &sent).map(Some)
    }

    /// Waits for masks of grammars.
    fn decide(&mut self, parts: &mut Parts<'_>, counts: &[usize]) {
        let Parts { sampler, scheduler, mask_patience, .. } = parts;
        let Scheduler { running, requests, .. } = &mut **scheduler;
        let masks_by = Instant::now() + *mask_patience;
        let taking_part = running.iter_mut().zip(counts).filter(|(_, count)| **count > 0);
        for ((sequence, _), share) in taking_part.zip(&mut self.shares) {
            sequence.decide(requests.get(sequence.request), &mut share.turn, masks_by, sampler);
        }
    }

    /// Records that the tokens of the step are computed.
    fn record(&self, scheduler: &mut Scheduler, counts: &[usize]) {
        let Scheduler { running, requests, pool, .. } = scheduler;
        let taking_part = running.iter_mut().zip(counts).filter(|(_, count)| **count > 0);
        let mut results = 0;
        for ((sequence, _), Share { turn, results: own, .. }) in taking_part.zip(&self.shares) {
            results += own;
            let state = requests.get_mut(sequence.request);
            sequence.record_launched(state, turn, self.number, results.saturating_sub(1), pool);
        }
    }

    /// Waits for the tokens, and gives them to the sequences. A sequence that has ended receives none.
    ///
    /// # Errors
    /// The device has failed for good.
    pub(super) fn finish(mut self, parts: &mut Parts<'_>) -> Result<Finished, Error> {
        match self.outcomes(parts) {
            Ok(outcomes) => self.distribute(outcomes, parts),
            Err(error) if is_lost(&error) => Err(error),
            Err(error) => {
                let has_share = |id| self.shares.iter().any(|share| share.id == id);
                parts.scheduler.remove(|sequence, state| has_share(sequence.id()) && sequence.fail(state, &error));
                Ok(Finished::default())
            }
        }
    }

    /// Waits for the results. Rows that the device could not decide at first are decided now.
    fn outcomes(&mut self, parts: &mut Parts<'_>) -> Result<Vec<Result<Chosen, Error>>, Error> {
        self.end.take().map_or(Ok(()), Event::wait)?;
        let outcomes = self.launched.take().map_or(Ok(Vec::new()), Launched::finish)?;
        let undecided = self.undecided(&outcomes, parts);
        let mut outcomes: Vec<_> = outcomes.into_iter().map(RowOutcome::chosen).collect();
        let Some(rows) = self.rows.as_ref().filter(|_| !undecided.is_empty()) else { return Ok(outcomes) };
        let Parts { model, sampler, scheduler, .. } = parts;
        let plan = |(_, share): &(usize, &Share)| {
            let (sequence, state) = scheduler.find(share.id)?;
            sequence.drawn(state, &share.turn)
        };
        let plans: Vec<RowPlan<'_>> = undecided.iter().filter_map(plan).collect();
        let decided = RowSampler { model: *model, sampler }.decide(rows, &plans.iter().collect::<Vec<_>>())?;
        undecided.iter().zip(decided).for_each(|((at, _), outcome)| outcomes[*at] = outcome);
        Ok(outcomes)
    }

    /// Returns the shares of sequences whose last row is undecided, with the index of its result. Later
    /// tokens are discarded.
    fn undecided(&self, outcomes: &[RowOutcome], parts: &mut Parts<'_>) -> Vec<(usize, &Share)> {
        let Parts { sampler, scheduler, .. } = parts;
        let (mut end, mut undecided) = (0, Vec::new());
        for share in &self.shares {
            end += share.results;
            if share.results == 0 || outcomes[end - 1] != RowOutcome::Undecided {
                continue;
            }
            if let Some((sequence, state)) = scheduler.find_mut(share.id)
                && sequence.awaits(&share.turn, self.number)
            {
                sequence.discard_later(state, sampler);
                undecided.push((end - 1, share));
            }
        }
        undecided
    }

    /// Gives each sequence its results. Later steps may have been launched with a sequence that ends.
    /// Once the device is lost, it is not called again.
    fn distribute(self, outcomes: Vec<Result<Chosen, Error>>, parts: &mut Parts<'_>) -> Result<Finished, Error> {
        let Parts { model, sampler, scheduler, .. } = parts;
        let mut device = RowSampler { model: *model, sampler };
        let Self { number, shares, rows, .. } = self;
        let mut outcomes = outcomes.into_iter();
        let share = |Share { id, turn, results }: Share| (id, (turn, outcomes.by_ref().take(results).collect()));
        let mut shares: HashMap<SequenceId, (Turn, Vec<Result<Chosen, Error>>)> =
            shares.into_iter().map(share).collect();
        let (mut finished, mut lost) = (Finished::default(), Ok(()));
        scheduler.settle(|sequence, state, pool| {
            if lost.is_err() {
                return false;
            }
            let Some((turn, outcomes)) =
                shares.remove(&sequence.id()).filter(|(turn, _)| sequence.awaits(turn, number))
            else {
                return false;
            };
            finished.rows += SampledRows { device: outcomes.len() as u64, host: u64::from(turn.is_fetched()) };
            let before = sequence.known();
            let with = (&mut device, pool);
            let ended = sequence.finish_turn(state, turn, outcomes, rows.as_ref(), with).unwrap_or_else(|error| {
                if is_lost(&error) {
                    lost = Err(error);
                    return false;
                }
                sequence.fail(state, &error)
            });
            finished.tokens += sequence.known() - before;
            ended
        });
        lost.map(|()| finished)
    }
}

/// Decides the use of the rows of a step, as far as it is known.
fn shares(parts: &mut Parts<'_>, counts: &[usize]) -> Vec<Share> {
    let Parts { sampler, scheduler, .. } = parts;
    let Scheduler { running, requests, .. } = &mut **scheduler;
    let taking_part = running.iter_mut().zip(counts).filter(|(_, count)| **count > 0);
    let mut end = 0;
    let share = |(sequence, &count): (&mut Sequence, &usize)| {
        let turn = sequence.turn(requests.get(sequence.request), count, end, sampler);
        end = turn.end();
        Share { id: sequence.id(), turn, results: 0 }
    };
    taking_part.map(share).collect()
}

/// Returns the sequences with a count above zero, with their requests and counts.
fn taking_part<'a>(
    scheduler: &'a Scheduler,
    counts: &'a [usize],
) -> impl Iterator<Item = (&'a Sequence, &'a RequestState, usize)> {
    let taking_part = scheduler.running.iter().zip(counts).filter(|(_, count)| **count > 0);
    taking_part.map(|(sequence, &count)| (sequence, scheduler.requests.get(sequence.request), count))
}

/// Calls `then` with the chunks of the sequences with a count above zero.
pub(super) fn with_chunks<T>(
    scheduler: &Scheduler,
    counts: &[usize],
    then: impl FnOnce(&[SequenceChunk<'_>]) -> T,
) -> T {
    let media: Vec<_> = taking_part(scheduler, counts)
        .map(|(sequence, state, count)| (sequence.image_rows(state, count), sequence.axes(state, count)))
        .collect();
    let chunks: Vec<_> = taking_part(scheduler, counts)
        .zip(&media)
        .map(|((sequence, state, count), (images, positions))| {
            sequence.chunk(state, count, images, positions.as_deref())
        })
        .collect();
    then(&chunks)
}
