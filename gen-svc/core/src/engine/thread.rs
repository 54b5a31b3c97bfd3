//! The engine's thread: computes one step after another for all running requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::command::Command;
use super::config::EngineLimits;
use super::images::ImageEncoder;
use super::metrics::{Gauges, SampledRows};
use super::pace::Pace;
use super::schedule::Scheduler;
use super::sequence::SequenceId;
use super::shared::Shared;
use super::step::{Finished, Parts, Step};
use crate::cache::BlockPool;
use crate::error::StepError;
use crate::models::{Backend, Tower};

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
    backend: Box<dyn Backend>,
    images: ImageEncoder,
    scheduler: Scheduler,
    /// The step whose tokens are not known yet.
    launched: Option<Step>,
    /// True if a step may be launched before the last one is finished.
    overlaps: bool,
    /// Steps launched since the start, failed ones included.
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
        backend: Box<dyn Backend>,
        tower: Option<Box<dyn Tower>>,
        pool: BlockPool,
        shared: Arc<Shared>,
        commands: Receiver<Command>,
        reader_patience: Duration,
    ) -> Self {
        let max_decodes = shared.limits.max_decodes.min(backend.max_decodes());
        let limits = EngineLimits { max_decodes, ..shared.limits };
        let scheduler = Scheduler::new(pool, limits, backend.as_ref());
        let overlaps = shared.limits.overlaps_steps && backend.is_pipelined();
        let thread = Self {
            backend,
            images: ImageEncoder::new(tower),
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
            Ok::<_, StepError>(())
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
    fn step(&mut self) -> Result<bool, StepError> {
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
            Command::Generate(answer) => self.scheduler.enqueue(*answer),
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
        scheduler.remove(|sequence, state| match state.answer.interruption(is_stopped, *reader_patience) {
            None => {
                if !state.answer.is_accepted() {
                    // The outputs of a request are adjacent.
                    place += usize::from(last.replace(sequence.request) != Some(sequence.request));
                    state.answer.progress.set_queue_place(place);
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
    fn sample_late(&mut self) -> Result<(), StepError> {
        let Self { backend, scheduler, sampled, rows, .. } = self;
        scheduler.settle(|sequence, state, _| {
            let (before, was_on_device) = (sequence.known(), sequence.is_late_on_device());
            let ended = sequence.sample_late(state, backend.as_mut())?;
            let tokens = (sequence.known() - before) as u64;
            *sampled += tokens;
            // Rows of the host are counted with their step.
            rows.device += if was_on_device { tokens } else { 0 };
            Ok(ended)
        })
    }

    /// Launches the next step of all sequences that are ready, then finishes the last one. If the next step
    /// may be launched before this one is finished, it stays launched. Returns false if no sequence is ready.
    /// `spent` is the part of the step's budget that images took.
    ///
    /// # Errors
    /// The device has failed for good.
    fn compute(&mut self, spent: usize) -> Result<bool, StepError> {
        let mut counts = self.scheduler.plan(spent);
        let last = self.launched.take();
        if counts.iter().all(|count| *count == 0) {
            return last.map_or(Ok(false), |step| self.finish(step).map(|()| true));
        }
        let step = if last.is_none() { self.launch_alone(&mut counts) } else { self.launch(&counts) };
        match step {
            Err(error) if error.is_device_lost() => return Err(error),
            Err(error) if last.is_none() => {
                let ids: Vec<SequenceId> = self.scheduler.taking_part(&counts).map(|(it, _)| it.id()).collect();
                self.scheduler.fail_sequences(&ids, &error);
            }
            Err(error) => {
                tracing::warn!(error = error.chain(), "step failed beside another one, computing it alone");
                self.backend.free_cache();
            }
            Ok(step) => self.launched = Some(step),
        }
        last.map_or(Ok(()), |last| self.finish(last))?;
        let is_idle = self.scheduler.is_empty();
        let closed = self.launched.take_if(|step| is_idle || !self.overlaps || !step.is_open());
        closed.map_or(Ok(()), |step| self.finish(step)).map(|()| true)
    }

    /// Launches a step while no other is in flight. If the device has too little memory, frees the
    /// backend's unused memory, preempts half of the step's sequences and tries again, until one
    /// sequence is left. That one is tried a second time.
    fn launch_alone(&mut self, counts: &mut Vec<usize>) -> Result<Step, StepError> {
        let mut is_last = false;
        loop {
            let error = match self.launch(counts) {
                Err(error) if error.is_out_of_memory() && !is_last => error,
                done => return done,
            };
            is_last = !self.scheduler.halve(counts);
            let sequences = counts.iter().filter(|count| **count > 0).count();
            tracing::warn!(
                error = error.chain(),
                sequences,
                "step exceeds the device's memory, computing a smaller one"
            );
            self.backend.free_cache();
        }
    }

    /// Launches a step once.
    fn launch(&mut self, counts: &[usize]) -> Result<Step, StepError> {
        self.launches += 1;
        let number = self.launches;
        Step::launch(&mut self.parts(), counts, number)
    }

    /// Waits for the tokens of a launched step, and sends them. The device may compute the step until
    /// then, so the time of the step ends here.
    ///
    /// # Errors
    /// The device has failed for good.
    fn finish(&mut self, step: Step) -> Result<(), StepError> {
        let (start, tokens) = (self.finished.map_or(step.start, |last| last.max(step.start)), step.tokens);
        let Finished { tokens: sampled, rows } = step.finish(&mut self.parts())?;
        let now = Instant::now();
        self.finished = Some(now);
        self.pace.observe(tokens, now - start);
        self.steps += 1;
        self.sampled += sampled as u64;
        self.rows += rows;
        Ok(())
    }

    fn parts(&mut self) -> Parts<'_> {
        let Self { backend, scheduler, shared, .. } = self;
        Parts { backend: backend.as_mut(), scheduler, mask_patience: shared.limits.mask_patience }
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
                Ok(Command::Generate(answer)) => self.scheduler.enqueue(*answer),
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
            states: self.scheduler.pool.state_usage(),
            rows: self.rows,
        });
    }
}
