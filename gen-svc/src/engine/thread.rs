//! The engine's thread: computes one step after another for all running requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::command::Command;
use super::device_step::{DeviceStep, Finished, Parts, with_chunks};
use super::images::ImageEncoder;
use super::metrics::{Gauges, SampledRows};
use super::pace::Pace;
use super::requests::RequestState;
use super::row_sampler::{RowSampler, is_lost, is_out_of_memory};
use super::schedule::Scheduler;
use super::sequence::Sequence;
use super::shared::Shared;
use crate::cache::BlockPool;
use crate::error::Error;
use crate::models::vision::TorchTower;
use crate::models::{Logits, Model};
use crate::sampling::device::DeviceSampler;

/// The interval at which an idle thread checks for a requested stop.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the thread checks for free channel slots while all sequences wait for
/// their readers.
const FULL_POLL_INTERVAL: Duration = Duration::from_millis(2);

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
    /// `None`: rows of logits are on the host.
    sampler: Option<DeviceSampler>,
    scheduler: Scheduler,
    /// The step whose tokens the host does not know yet.
    launched: Option<DeviceStep>,
    /// True if a step may be launched before the last one is finished.
    overlaps: bool,
    /// Steps launched on a device since the start, failed ones included.
    launches: u64,
    /// Steps computed since the start.
    steps: u64,
    /// The end of the last of them.
    finished: Option<Instant>,
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    /// Tokens sampled since the start.
    sampled: u64,
    /// Rows whose tokens were chosen since the start.
    rows: SampledRows,
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
        let sampler = model.sampler();
        let overlaps = shared.limits.overlaps_steps;
        let thread = Self {
            model,
            images: ImageEncoder::new(tower),
            logits: Logits::default(),
            sampler,
            scheduler,
            launched: None,
            overlaps,
            launches: 0,
            steps: 0,
            finished: None,
            shared,
            commands,
            sampled: 0,
            rows: SampledRows::default(),
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
        if !self.receive() {
            return Ok(false);
        }
        self.reap_interrupted();
        self.sample_late()?;
        self.scheduler.admit();
        // A caller that was accepted finds itself among the running, also during its first step.
        self.report();
        let spent = self.images.advance(&mut self.scheduler, self.shared.limits.prefill_chunk, self.pace)?;
        let has_computed = self.compute(spent)? || spent > 0;
        self.report();
        // Without a step, outputs that wait for their readers or grammars are no stall. Others are one.
        if has_computed || !self.scheduler.must_compute() {
            self.shared.step_clock.beat();
        }
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
    ///
    /// # Errors
    /// The device has failed for good.
    fn sample_late(&mut self) -> Result<(), Error> {
        let Self { model, scheduler, sampler, sampled, rows, .. } = self;
        let mut device = sampler.as_mut().map(|sampler| RowSampler { model: model.as_mut(), sampler });
        let mut lost = Ok(());
        scheduler.remove(|sequence, state| {
            if lost.is_err() {
                return false;
            }
            let (before, was_on_device) = (sequence.known(), sequence.is_late_on_device());
            let ended = sequence.sample_late(state, device.as_mut()).unwrap_or_else(|error| {
                lost = Err(error);
                false
            });
            let tokens = (sequence.known() - before) as u64;
            *sampled += tokens;
            // Rows of the host are counted with their step.
            rows.device += if was_on_device { tokens } else { 0 };
            ended
        });
        lost
    }

    /// Computes the next tokens of all sequences that are ready. Returns false if none is.
    /// `spent` is the part of the step's budget that images took.
    ///
    /// # Errors
    /// The device has failed for good.
    fn compute(&mut self, spent: usize) -> Result<bool, Error> {
        let mut counts = self.scheduler.plan(spent);
        if counts.iter().all(|count| *count == 0) {
            let last = self.launched.take();
            return last.map_or(Ok(false), |step| self.finish(step).map(|()| true));
        }
        if self.sampler.is_some() {
            return self.compute_on_device(counts).map(|()| true);
        }
        match self.forward(&mut counts, Self::forward_on_host) {
            Err(error) if is_lost(&error) => return Err(error),
            computed => self.advance(counts, computed),
        }
        Ok(true)
    }

    /// Computes a step. If the device has too little memory, frees libtorch's unused memory, preempts
    /// half of the step's sequences and tries again, until one sequence is left. That one is tried a
    /// second time.
    fn forward<T>(
        &mut self,
        counts: &mut Vec<usize>,
        attempt: fn(&mut Self, &[usize]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut is_last = false;
        loop {
            let error = match attempt(self, counts) {
                Err(error) if is_out_of_memory(&error) && !is_last => error,
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

    /// Computes a step once, with rows on the host. Returns the number of rows of each chunk.
    fn forward_on_host(&mut self, counts: &[usize]) -> Result<Vec<usize>, Error> {
        let Self { model, logits, scheduler, pace, steps, .. } = self;
        let start = Instant::now();
        let rows = with_chunks(scheduler, counts, |chunks| {
            model.forward(chunks, logits)?;
            Ok::<_, Error>(chunks.iter().map(|chunk| chunk.logit_rows().len()).collect())
        })?;
        pace.observe(counts.iter().sum(), start.elapsed());
        *steps += 1;
        Ok(rows)
    }

    /// Gives the sequences of a step their rows. If the step failed, they end.
    fn advance(&mut self, counts: Vec<usize>, computed: Result<Vec<usize>, Error>) {
        let Self { logits, scheduler, sampled, .. } = self;
        let masks_by = Instant::now() + self.shared.limits.mask_patience;
        self.rows.host += computed.iter().flatten().map(|rows| *rows as u64).sum::<u64>();
        let (mut rows, mut row_counts) = (logits.rows(), computed.iter().flatten());
        *sampled += advance_each(scheduler, counts, |sequence, state, count, pool| {
            let mut rows: Vec<_> = rows.by_ref().take(row_counts.next().copied().unwrap_or(0)).collect();
            match &computed {
                Ok(_) => sequence.advance(state, count, &mut rows, masks_by, pool),
                Err(error) => sequence.fail(state, error),
            }
        });
    }

    /// Launches a step on the device, then finishes the last one. If the next step may be launched
    /// before this one is finished, it stays launched.
    ///
    /// # Errors
    /// The device has failed for good.
    fn compute_on_device(&mut self, mut counts: Vec<usize>) -> Result<(), Error> {
        let last = self.launched.take();
        let step = match &last {
            None => self.forward(&mut counts, |thread, counts| thread.launch(counts, None)),
            last => self.launch(&counts, last.as_ref()),
        };
        let is_alone = last.is_none();
        match step {
            Err(error) if is_lost(&error) => return Err(error),
            Err(error) if is_alone => self.advance(counts, Err(error)),
            Err(error) => {
                tracing::warn!(error = error.chain(), "step failed beside another one, computing it alone");
                self.model.free_cache();
            }
            Ok(step) => self.launched = Some(step),
        }
        last.map_or(Ok(()), |last| self.finish(last))?;
        let is_idle = self.scheduler.is_empty();
        match self.launched.take_if(|step| is_idle || !self.overlaps || !step.is_open()) {
            None => Ok(()),
            Some(step) => self.finish(step),
        }
    }

    /// Launches a step once. `last` is the step before, if it is not finished.
    fn launch(&mut self, counts: &[usize], last: Option<&DeviceStep>) -> Result<DeviceStep, Error> {
        self.launches += 1;
        let number = self.launches;
        self.with_parts(|parts| DeviceStep::launch(parts, counts, number, last))
    }

    /// Waits for the tokens of a launched step, and sends them. The device may compute the step until
    /// then, so the time of the step ends here.
    ///
    /// # Errors
    /// The device has failed for good.
    fn finish(&mut self, step: DeviceStep) -> Result<(), Error> {
        let (start, tokens) = (self.finished.map_or(step.start, |last| last.max(step.start)), step.tokens);
        let Finished { tokens: sampled, rows } = self.with_parts(|parts| step.finish(parts))?;
        let now = Instant::now();
        self.finished = Some(now);
        self.pace.observe(tokens, now - start);
        self.steps += 1;
        self.sampled += sampled as u64;
        self.rows += rows;
        Ok(())
    }

    /// Calls `then` with what computes steps on a device.
    fn with_parts<T>(&mut self, then: impl FnOnce(&mut Parts<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let Self { model, logits, sampler, scheduler, shared, .. } = self;
        let sampler = sampler.as_mut().ok_or(Error::EngineFailed)?;
        let mask_patience = shared.limits.mask_patience;
        then(&mut Parts { model: model.as_mut(), logits, sampler, scheduler, mask_patience })
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
            steps: self.steps,
            kv_blocks: self.scheduler.pool.usage(),
            rows: self.rows,
        });
    }
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
        let before = sequence.known();
        let ended = advance(sequence, requests.get_mut(sequence.request), count, pool);
        sampled += (sequence.known() - before) as u64;
        if ended {
            sequence.release(pool);
            requests.release_sequence(sequence.request);
        }
        !ended
    });
    sampled
}
