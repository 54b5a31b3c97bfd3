//! A step of the engine: launched, and later finished.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::metrics::SampledRows;
use super::requests::RequestState;
use super::schedule::Scheduler;
use super::sequence::turn::Turn;
use super::sequence::{Sequence, SequenceId};
use crate::error::StepError;
use crate::models::{Backend, Drawn, KeptRow, SequenceChunk};
use crate::sampling::RowPlan;

/// The parts of the engine that compute steps.
pub(super) struct Parts<'a> {
    pub(super) backend: &'a mut dyn Backend,
    pub(super) scheduler: &'a mut Scheduler,
    /// How long a step waits for the tokens that grammars allow, after the model.
    pub(super) mask_patience: Duration,
}

/// A launched step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) start: Instant,
    /// The tokens that it computes.
    pub(super) tokens: usize,
    number: u64,
    turns: Vec<Turn>,
}

/// The work of a finished step.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Tokens of outputs.
    pub(super) tokens: usize,
    /// Rows whose tokens were chosen.
    pub(super) rows: SampledRows,
}

impl Step {
    /// Launches a step of the sequences with a count above zero. If a grammar's mask is not known, the plans of
    /// the rows follow after the model.
    ///
    /// # Errors
    /// The backend's. Nothing is recorded then.
    pub(super) fn launch(parts: &mut Parts<'_>, counts: &[usize], number: u64) -> Result<Self, StepError> {
        let (start, tokens) = (Instant::now(), counts.iter().sum());
        let mut step = Self { start, tokens, number, turns: turns(parts, counts) };
        let is_late = step.turns.iter().any(Turn::is_late);
        let Parts { backend, scheduler, .. } = parts;
        let plans = (!is_late).then(|| step.plan(scheduler, counts));
        with_chunks(scheduler, counts, |chunks| backend.launch(chunks, plans.as_deref()))?;
        drop(plans);
        if is_late {
            step.decide(parts, counts);
            parts.backend.draw(&step.plan(parts.scheduler, counts))?;
        }
        step.record(parts.scheduler, counts);
        Ok(step)
    }

    /// Returns true if the next step can be launched before the tokens of this one are known.
    pub(super) fn is_open(&self) -> bool {
        self.turns.iter().all(Turn::is_open)
    }

    /// Plans the use of the rows.
    fn plan<'a>(&mut self, scheduler: &'a Scheduler, counts: &'a [usize]) -> Vec<RowPlan<'a>> {
        let mut plans = Vec::new();
        for ((sequence, state, _), turn) in taking_part(scheduler, counts).zip(&mut self.turns) {
            let own = sequence.plans(state, turn);
            turn.plans = own.len();
            plans.extend(own);
        }
        plans
    }

    /// Waits for masks of grammars.
    fn decide(&mut self, parts: &mut Parts<'_>, counts: &[usize]) {
        let Parts { backend, scheduler, mask_patience } = parts;
        let masks_by = Instant::now() + *mask_patience;
        for ((sequence, state), turn) in scheduler.taking_part(counts).zip(&mut self.turns) {
            sequence.decide(state, turn, masks_by, &mut **backend);
        }
    }

    /// Records that the tokens of the step are computed.
    fn record(&self, scheduler: &mut Scheduler, counts: &[usize]) {
        let Scheduler { running, requests, pool, .. } = scheduler;
        let taking_part = running.iter_mut().zip(counts).filter(|(_, count)| **count > 0);
        let mut plans = 0;
        for ((sequence, _), turn) in taking_part.zip(&self.turns) {
            plans += turn.plans;
            let state = requests.get_mut(sequence.request);
            sequence.record_launched(state, turn, self.number, plans.saturating_sub(1), pool);
        }
    }

    /// Waits for the tokens, and gives them to the sequences. A sequence that has ended receives none.
    ///
    /// # Errors
    /// The device has failed for good.
    pub(super) fn finish(self, parts: &mut Parts<'_>) -> Result<Finished, StepError> {
        match self.drawn(parts) {
            Ok(drawn) => self.distribute(drawn, parts),
            Err(error) if error.is_device_lost() => Err(error),
            Err(error) => {
                parts.scheduler.fail_sequences(&self.turns.iter().map(|turn| turn.id).collect::<Vec<_>>(), &error);
                Ok(Finished::default())
            }
        }
    }

    /// Waits for the results. Rows that the backend could not decide at first are decided now.
    fn drawn(&self, parts: &mut Parts<'_>) -> Result<Vec<Drawn>, StepError> {
        let mut drawn = parts.backend.finish()?;
        let undecided = self.undecided(&mut drawn, parts);
        if !undecided.is_empty() {
            let Parts { backend, scheduler, .. } = parts;
            let plans = |(_, turn): &(usize, &Turn)| {
                let found = scheduler.find(turn.id);
                let plans = found.map(|(sequence, state)| sequence.last_plans(state, turn));
                plans.into_iter().flatten().take(1)
            };
            let decided = backend.draw_again(&undecided.iter().flat_map(plans).collect::<Vec<_>>())?;
            undecided.iter().zip(decided).for_each(|((at, _), result)| drawn[*at] = result);
        }
        Ok(drawn)
    }

    /// Returns the turns of sequences whose first drawn row is undecided, with the index of its result. Later
    /// tokens are discarded. From an undecided row behind it on, drafted tokens are rejected.
    fn undecided(&self, drawn: &mut [Drawn], parts: &mut Parts<'_>) -> Vec<(usize, &Turn)> {
        let Parts { backend, scheduler, .. } = parts;
        let (mut end, mut undecided) = (0, Vec::new());
        for turn in &self.turns {
            end += turn.plans;
            let first = end - turn.drawn().max(1).min(turn.plans);
            let of_turn = drawn.get_mut(first..end).unwrap_or_default();
            let Some(at) = of_turn.iter().position(|drawn| matches!(drawn, Drawn::Undecided)) else { continue };
            of_turn.iter_mut().skip(at.max(1)).for_each(|later| *later = Drawn::Rejected);
            if at == 0
                && let Some((sequence, state)) = scheduler.find_mut(turn.id)
                && sequence.awaits(turn, self.number)
            {
                sequence.discard_later(state, turn, &mut **backend);
                undecided.push((first, turn));
            }
        }
        undecided
    }

    /// Gives each sequence its results. Later steps may have been launched with a sequence that ends.
    /// Once the device is lost, it is not called again.
    fn distribute(self, drawn: Vec<Drawn>, parts: &mut Parts<'_>) -> Result<Finished, StepError> {
        let Parts { backend, scheduler, .. } = parts;
        let Self { number, turns, .. } = self;
        let (mut drawn, mut finished) = (drawn.into_iter(), Finished::default());
        let own = |turn: Turn| (turn.id, (drawn.by_ref().take(turn.plans).collect(), turn));
        let mut turns: HashMap<SequenceId, (Vec<Drawn>, Turn)> = turns.into_iter().map(own).collect();
        scheduler.settle(|sequence, state, pool| {
            let own = turns.remove(&sequence.id()).filter(|(_, turn)| sequence.awaits(turn, number));
            let Some((drawn, turn)) = own else { return Ok(false) };
            finished.rows += rows(&drawn, backend.is_pipelined());
            let before = sequence.known();
            let ended = match sequence.finish_turn(state, turn, drawn, (&mut **backend, pool)) {
                Err(error) if !error.is_device_lost() => sequence.fail(state, &error),
                ended => ended?,
            };
            finished.tokens += sequence.known() - before;
            Ok(ended)
        })?;
        Ok(finished)
    }
}

/// Counts rows by the place where their tokens are chosen. A row that is kept on the device is not counted yet.
fn rows(drawn: &[Drawn], on_device: bool) -> SampledRows {
    let kept = drawn.iter().filter(|drawn| matches!(drawn, Drawn::Kept(_) | Drawn::Rejected)).count();
    let fetched = drawn.iter().filter(|drawn| matches!(drawn, Drawn::Kept(KeptRow::Host(_)))).count();
    let [chosen, fetched] = [drawn.len() - kept, fetched].map(|count| count as u64);
    if on_device {
        SampledRows { device: chosen, host: fetched }
    } else {
        SampledRows { device: 0, host: chosen + fetched }
    }
}

/// Decides the use of the rows of a step, as far as it is known.
fn turns(parts: &mut Parts<'_>, counts: &[usize]) -> Vec<Turn> {
    let Parts { backend, scheduler, .. } = parts;
    let mut end = 0;
    let turn = |((sequence, state), &count): ((&mut Sequence, &RequestState), &usize)| {
        let turn = sequence.turn(state, count, end, &mut **backend);
        end = turn.end();
        turn
    };
    scheduler.taking_part(counts).zip(counts.iter().filter(|count| **count > 0)).map(turn).collect()
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
fn with_chunks<T>(scheduler: &Scheduler, counts: &[usize], then: impl FnOnce(&[SequenceChunk<'_>]) -> T) -> T {
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
