//! The engine's thread: computes one step after another for all running requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::command::Command;
use super::images::ImageEncoder;
use super::metrics::Gauges;
use super::pace::Pace;
use super::schedule::Scheduler;
use super::shared::Shared;
use crate::cache::BlockPool;
use crate::error::{DeviceFault, Error};
use crate::models::vision::TorchTower;
use crate::models::{Logits, Model};

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
            logits: Logits::default(),
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

    /// Runs steps until no work is left, or none can be computed any more.
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
        let Self { scheduler, sampled, .. } = self;
        scheduler.remove(|sequence, state| {
            let before = sequence.length();
            let ended = sequence.sample_late(state);
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
        let computed = self.forward(&mut counts);
        if let Err(error) = &computed
            && error.device_fault() == Some(DeviceFault::Lost)
        {
            return computed.map(|_| true);
        }
        self.advance(counts, computed);
        Ok(true)
    }

    /// Computes a step, and returns the number of rows of each chunk. If the device has too little
    /// memory, frees what libtorch keeps, preempts half of the step's sequences and tries again, until
    /// one sequence is left. That one is tried once more.
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
        pace.observe(chunks.iter().map(|chunk| chunk.tokens.len()).sum(), start.elapsed());
        Ok(chunks.iter().map(|chunk| chunk.logit_rows().len()).collect())
    }

    /// Gives the sequences of a step their rows. If the step failed, they end.
    fn advance(&mut self, counts: Vec<usize>, computed: Result<Vec<usize>, Error>) {
        let Self { logits, scheduler, sampled, .. } = self;
        let Scheduler { running, pool, requests, .. } = scheduler;
        let masks_by = Instant::now() + MASK_WAIT;
        let mut rows = logits.rows();
        let (mut counts, mut row_counts) = (counts.into_iter(), computed.iter().flatten());
        running.retain_mut(|sequence| {
            let count = counts.next().unwrap_or(0);
            if count == 0 {
                return true;
            }
            let mut rows: Vec<_> = rows.by_ref().take(row_counts.next().copied().unwrap_or(0)).collect();
            let before = sequence.length();
            let state = requests.get_mut(sequence.request);
            let ended = match &computed {
                Ok(_) => sequence.advance(state, count, &mut rows, masks_by, pool),
                Err(error) => sequence.fail(state, error),
            };
            *sampled += (sequence.length() - before) as u64;
            if ended {
                sequence.release(pool);
                requests.release_sequence(sequence.request);
            }
            !ended
        });
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
