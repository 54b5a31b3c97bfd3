//! The engine's thread: computes one step after another for all running requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tch::Tensor;

use super::command::Command;
use super::images::ImageEncoder;
use super::metrics::Gauges;
use super::pace::Pace;
use super::requests::RequestState;
use super::schedule::Scheduler;
use super::sequence::Sequence;
use super::sequence::on_device::Turn;
use super::shared::Shared;
use crate::cache::BlockPool;
use crate::error::{DeviceFault, Error};
use crate::models::vision::TorchTower;
use crate::models::{Logits, Model};
use crate::sampling::device::{Chosen, DeviceSampler, RowPlan};

/// The interval at which an idle thread checks for a requested stop.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the thread checks for free channel slots while all sequences wait for
/// their readers.
const FULL_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How long a step waits for the tokens that grammars allow, after the model. The other outputs wait
/// as long.
const MASK_WAIT: Duration = Duration::from_millis(10);

/// How the steps ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// No work is left.
    Done,
    /// No further step can be computed.
    Failed,
}

/// The state of the thread.
pub(super) struct EngineThread {
    model: Box<dyn Model>,
    images: ImageEncoder,
    /// Reused by all steps.
    logits: Logits,
    /// Created with the first rows that stay on the device.
    sampler: Option<DeviceSampler>,
    scheduler: Scheduler,
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    /// Tokens sampled since the start.
    sampled: u64,
    pace: Pace,
    reader_patience: Duration,
}

impl EngineThread {
    /// Creates the state, for a model with room for the blocks of `pool`.
    pub(super) fn new(
        model: Box<dyn Model>,
        tower: Option<TorchTower>,
        pool: BlockPool,
        shared: Arc<Shared>,
        commands: Receiver<Command>,
        reader_patience: Duration,
    ) -> Self {
        let scheduler = Scheduler::new(pool, shared.limits);
        let thread = Self {
            model,
            images: ImageEncoder::new(tower),
            logits: Logits::staying(),
            sampler: None,
            scheduler,
            shared,
            commands,
            sampled: 0,
            pace: Pace::default(),
            reader_patience,
        };
        thread.report();
        thread
    }

    /// Runs until no work is left, and either all handles are dropped or a stop is requested. After
    /// a panic or a failure of the device, all current and later requests fail.
    pub(super) fn run(mut self) {
        let _no_grad = tch::no_grad_guard();
        if self.steps() == Outcome::Failed {
            self.shared.lifecycle.fail();
            self.fail_all();
        }
        self.shared.step_clock.end();
    }

    /// Runs steps until no work is left, or the engine has failed.
    fn steps(&mut self) -> Outcome {
        let run = || {
            while self.step()? {}
            Ok::<_, Error>(())
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => return Outcome::Done,
            Ok(Err(error)) => tracing::error!(error = error.chain(), "device failed"),
            Err(_) => tracing::error!("engine panicked"),
        }
        Outcome::Failed
    }

    /// Runs one step. Returns false if no work is left and none can arrive.
    ///
    /// # Errors
    /// The device has failed for good.
    fn step(&mut self) -> Result<bool, Error> {
        self.shared.step_clock.beat();
        if !self.receive() {
            return Ok(false);
        }
        self.reap_interrupted();
        self.sample_late();
        self.scheduler.admit();
        // A caller that was accepted finds itself among the running, also during its first step.
        self.report();
        let spent = self.images.advance(&mut self.scheduler, self.shared.limits.prefill_chunk, self.pace)?;
        let has_computed = self.compute(spent)? || spent > 0;
        self.report();
        if !has_computed && !self.scheduler.is_empty() {
            thread::sleep(FULL_POLL_INTERVAL);
        }
        Ok(true)
    }

    /// Handles all queued commands. While no sequence exists, waits for a command. Returns false if
    /// none can arrive.
    fn receive(&mut self) -> bool {
        while self.scheduler.is_empty() {
            self.shared.step_clock.beat();
            match self.commands.recv_timeout(IDLE_POLL_INTERVAL) {
                Ok(command) => self.handle(command),
                Err(RecvTimeoutError::Timeout) if !self.shared.lifecycle.is_stopped() => {}
                Err(_) => return false,
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            self.handle(command);
        }
        true
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Generate(job) => self.scheduler.enqueue(*job),
            Command::FlushPrefixCache(reply) => {
                let flushed = self.scheduler.pool.clear();
                self.report();
                // The caller may have cancelled the call.
                let _ = reply.send(flushed);
            }
        }
    }

    /// Ends the sequences of requests that are cancelled, past their deadline, or read too slowly,
    /// and all sequences after a stop. Reports the places of the others in the queue.
    fn reap_interrupted(&mut self) {
        let Self { shared, scheduler, reader_patience, .. } = self;
        let is_stopped = shared.lifecycle.is_stopped();
        let (mut place, mut last) = (0, None);
        scheduler.remove(|sequence, state| match state.interruption(is_stopped, *reader_patience) {
            None => {
                if !state.is_accepted() {
                    // The outputs of a request are adjacent.
                    place += usize::from(last.replace(sequence.request) != Some(sequence.request));
                    state.progress.set_queue_place(place);
                }
                false
            }
            Some(interruption) => {
                sequence.interrupt(state, interruption);
                true
            }
        });
    }

    /// Samples the tokens whose masks were not known at the end of their step.
    fn sample_late(&mut self) {
        let Self { scheduler, sampler, sampled, .. } = self;
        scheduler.remove(|sequence, state| {
            let before = sequence.length();
            let ended = sequence.sample_late(state, sampler);
            *sampled += (sequence.length() - before) as u64;
            ended
        });
    }

    /// Computes the next tokens of all sequences that are ready. Returns false if none is.
    /// `spent` is the part of the step's budget that images took.
    ///
    /// # Errors
    /// The device has failed for good.
    fn compute(&mut self, spent: usize) -> Result<bool, Error> {
        let mut counts = self.scheduler.plan(spent);
        if counts.iter().all(|count| *count == 0) {
            return Ok(false);
        }
        let start = Instant::now();
        let computed = self.forward(&mut counts);
        match computed {
            Err(error) if is_lost(&error) => return Err(error),
            Ok(rows) if self.logits.on_device().is_some() => self.advance_on_device(counts, &rows, start)?,
            computed => self.advance(counts, computed),
        }
        Ok(true)
    }

    /// Computes a step, and returns the number of rows of each chunk. If the device has too little
    /// memory, frees libtorch's unused memory, preempts half of the step's sequences and tries again,
    /// until one sequence is left. That one is tried a second time.
    fn forward(&mut self, counts: &mut Vec<usize>) -> Result<Vec<usize>, Error> {
        let mut is_last = false;
        loop {
            let error = match self.attempt(counts) {
                Err(error) if error.device_fault() == Some(DeviceFault::OutOfMemory) && !is_last => error,
                done => return done,
            };
            is_last = !self.scheduler.halve(counts);
            let sequences = counts.iter().filter(|count| **count > 0).count();
            tracing::warn!(
                error = error.chain(),
                sequences,
                "step exceeds the device's memory, computing a smaller one"
            );
            self.model.free_cache();
        }
    }

    /// Computes a step once. Returns the number of rows of each chunk.
    fn attempt(&mut self, counts: &[usize]) -> Result<Vec<usize>, Error> {
        let Self { model, logits, scheduler, pace, .. } = self;
        let Scheduler { running, requests, .. } = scheduler;
        let planned = || running.iter().zip(counts).filter(|(_, count)| **count > 0);
        let media: Vec<_> = planned()
            .map(|(sequence, &count)| {
                let state = requests.get(sequence.request);
                (sequence.image_rows(state, count), sequence.axes(state, count))
            })
            .collect();
        let with_media = planned().zip(&media);
        let chunks: Vec<_> = with_media
            .map(|((sequence, &count), (images, positions))| {
                sequence.chunk(requests.get(sequence.request), count, images, positions.as_deref())
            })
            .collect();
        let start = Instant::now();
        model.forward(&chunks, logits)?;
        if logits.on_device().is_none() {
            pace.observe(counts.iter().sum(), start.elapsed());
        }
        Ok(chunks.iter().map(|chunk| chunk.logit_rows().len()).collect())
    }

    /// Gives the sequences of a step their rows. If the step failed, they end.
    fn advance(&mut self, counts: Vec<usize>, computed: Result<Vec<usize>, Error>) {
        let Self { logits, scheduler, sampled, shared, .. } = self;
        let masks_by = Instant::now() + MASK_WAIT;
        shared.metrics.rows_sampled("host", computed.iter().flatten().sum());
        let (mut rows, mut row_counts) = (logits.rows(), computed.iter().flatten());
        *sampled += advance_each(scheduler, counts, |sequence, state, count, pool| {
            let mut rows: Vec<_> = rows.by_ref().take(row_counts.next().copied().unwrap_or(0)).collect();
            match &computed {
                Ok(_) => sequence.advance(state, count, &mut rows, masks_by, pool),
                Err(error) => sequence.fail(state, error),
            }
        });
    }

    /// Gives the sequences of a step the tokens that the device chooses of their rows. The device may
    /// compute the step until then, so the time of the step ends here.
    ///
    /// # Errors
    /// The device has failed for good.
    fn advance_on_device(&mut self, counts: Vec<usize>, row_counts: &[usize], start: Instant) -> Result<(), Error> {
        let Self { model, logits, sampler, scheduler, shared, sampled, pace, .. } = self;
        let Some(rows) = logits.on_device() else { return Ok(()) };
        let sampler = sampler.get_or_insert_with(|| DeviceSampler::new(rows.size()[1] as usize, rows.device()));
        let turns = turns(scheduler, &counts, row_counts, sampler);
        let (chosen, sizes) = {
            let plans = plans(scheduler, &counts, &turns);
            let sizes: Vec<usize> = plans.iter().map(Vec::len).collect();
            (choose(model.as_mut(), sampler, rows, &plans.into_iter().flatten().collect::<Vec<_>>()), sizes)
        };
        pace.observe(counts.iter().sum(), start.elapsed());
        shared.metrics.rows_sampled("host", turns.iter().filter(|turn| turn.is_fetched()).count());
        shared.metrics.rows_sampled("device", sizes.iter().sum());
        let (mut chosen, error) = match chosen {
            Err(error) if is_lost(&error) => return Err(error),
            Err(error) => (Vec::new().into_iter(), Some(error)),
            Ok(chosen) => (chosen.into_iter(), None),
        };
        let (mut turns, mut lost) = (turns.into_iter().zip(sizes), Ok(()));
        *sampled += advance_each(scheduler, counts, |sequence, state, _, pool| {
            let (Some((turn, size)), None) = (turns.next(), &error) else {
                return error.as_ref().is_some_and(|error| sequence.fail(state, error));
            };
            let chosen: Vec<_> = chosen.by_ref().take(size).collect();
            match sequence.advance_on_device(state, turn, chosen.into_iter(), rows, pool) {
                Ok(ended) => ended,
                Err(error) if is_lost(&error) => {
                    lost = Err(error);
                    false
                }
                Err(error) => sequence.fail(state, &error),
            }
        });
        lost
    }

    /// Fails all requests until a stop is requested or all handles are dropped.
    fn fail_all(&mut self) {
        loop {
            self.scheduler.remove(|sequence, state| {
                sequence.abort(state);
                true
            });
            self.scheduler.requests.clear();
            self.report();
            match self.commands.recv_timeout(IDLE_POLL_INTERVAL) {
                Ok(Command::Generate(job)) => self.scheduler.enqueue(*job),
                Ok(Command::FlushPrefixCache(_)) => {}
                Err(RecvTimeoutError::Timeout) if !self.shared.lifecycle.is_stopped() => {}
                Err(_) => return,
            }
        }
    }

    fn report(&self) {
        self.shared.report(Gauges {
            queued: 0,
            running: self.scheduler.running.len(),
            tokens: self.sampled,
            preemptions: self.scheduler.preemptions,
            kv_blocks: self.scheduler.pool.usage(),
        });
    }
}

/// Returns true if the device has failed for good.
fn is_lost(error: &Error) -> bool {
    error.device_fault() == Some(DeviceFault::Lost)
}

/// Advances the sequences with a count above zero, and removes the ended ones. Returns the number of
/// sampled tokens.
fn advance_each(
    scheduler: &mut Scheduler,
    counts: Vec<usize>,
    mut advance: impl FnMut(&mut Sequence, &mut RequestState, usize, &mut BlockPool) -> bool,
) -> u64 {
    let Scheduler { running, pool, requests, .. } = scheduler;
    let (mut counts, mut sampled) = (counts.into_iter(), 0);
    running.retain_mut(|sequence| {
        let count = counts.next().unwrap_or(0);
        if count == 0 {
            return true;
        }
        let before = sequence.length();
        let ended = advance(sequence, requests.get_mut(sequence.request), count, pool);
        sampled += (sequence.length() - before) as u64;
        if ended {
            sequence.release(pool);
            requests.release_sequence(sequence.request);
        }
        !ended
    });
    sampled
}

/// Decides the use of the rows of a step.
fn turns(scheduler: &mut Scheduler, counts: &[usize], row_counts: &[usize], sampler: &mut DeviceSampler) -> Vec<Turn> {
    let Scheduler { running, requests, .. } = scheduler;
    let masks_by = Instant::now() + MASK_WAIT;
    let mut end = 0;
    let taking_part = running.iter_mut().zip(counts).filter(|(_, count)| **count > 0);
    let turn = |((sequence, &count), &rows): ((&mut Sequence, &usize), &usize)| {
        let rows = end..end + rows;
        end = rows.end;
        let state = requests.get(sequence.request);
        sequence.turn(state, count, rows, masks_by, sampler)
    };
    taking_part.zip(row_counts).map(turn).collect()
}

/// Returns the plans of the rows of each sequence.
fn plans<'a>(scheduler: &'a Scheduler, counts: &[usize], turns: &'a [Turn]) -> Vec<Vec<RowPlan<'a>>> {
    let Scheduler { running, requests, .. } = scheduler;
    let taking_part = running.iter().zip(counts).filter(|(_, count)| **count > 0).zip(turns);
    taking_part.map(|((sequence, _), turn)| sequence.plans(requests.get(sequence.request), turn)).collect()
}

/// Chooses tokens on the device. If it has too little memory, frees libtorch's unused memory and tries a
/// second time.
fn choose(
    model: &mut dyn Model,
    sampler: &mut DeviceSampler,
    rows: &Tensor,
    plans: &[RowPlan<'_>],
) -> Result<Vec<Result<Chosen, Error>>, Error> {
    match sampler.run(rows, plans) {
        Err(error) if error.device_fault() == Some(DeviceFault::OutOfMemory) => {
            model.free_cache();
            sampler.run(rows, plans)
        }
        chosen => chosen,
    }
}
