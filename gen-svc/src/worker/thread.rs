//! The thread: loads the model, then gives everyone who runs one step after another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tandem_common::artifacts::Artifacts;
use tch::{Device, Kind, Tensor};
use tokio::sync::watch;

use super::sequence::{Sequence, Turn};
use super::{Config, Engine, Job, Over, Shared, Stage, placement};
use crate::cache::KvCache;
use crate::error::Error;
use crate::models::{self, Model};
use crate::request::{SamplingOptions, ServedModel};
use crate::sampling::Sampler;
use crate::weights::{ModelFile, Placement};

/// How often an idle thread looks whether it should stop.
const IDLE: Duration = Duration::from_millis(100);

/// How long the thread sleeps when every running request waits for its reader.
const NAP: Duration = Duration::from_millis(2);

/// The thread's own state.
pub(super) struct EngineThread {
    compute: Compute,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    waiting: VecDeque<Job>,
    running: Vec<Sequence>,
    max_running: usize,
    reader_patience: Duration,
}

/// What a step computes with.
pub(super) struct Compute {
    model: Box<dyn Model>,
    device: Device,
    /// Tokens computed in one step at most.
    pub(super) chunk: usize,
    /// Tokens sampled since the start.
    sampled: u64,
    /// Reused: V logits.
    logits: Vec<f32>,
}

impl EngineThread {
    /// Loads the model. To be called on the thread itself: libtorch's settings are each thread's own.
    pub(super) fn load(config: &Config) -> Result<(Engine, Self), Error> {
        let start = Instant::now();
        tch::set_num_threads(threads(config.threads));
        let placement = placement::choose(config.device, config.dtype)?;
        let artifacts = Artifacts::load(&config.model)?;
        let model = models::load(&ModelFile::new(&artifacts)?, placement)?;
        let served = describe(&artifacts, config, model.as_ref(), placement)?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(model = served.id, dtype = served.dtype, device = served.device, seconds, "model loaded");
        let (sender, jobs) = mpsc::channel();
        let shared = Arc::new(share(served, config));
        let engine = Engine { jobs: sender, shared: Arc::clone(&shared) };
        let thread = Self {
            compute: Compute::new(model, placement.device, config.prefill_chunk.max(1)),
            shared,
            jobs,
            waiting: VecDeque::new(),
            running: Vec::new(),
            max_running: config.max_running.max(1),
            reader_patience: config.reader_patience,
        };
        Ok((engine, thread))
    }

    /// Works until every handle is dropped, or until it is told to stop and nothing is left. A panic fails all requests, then and from then on; the process lives.
    pub(super) fn main(mut self) {
        let _no_grad = tch::no_grad_guard();
        let worked = catch_unwind(AssertUnwindSafe(|| while self.round() {}));
        if worked.is_err() {
            tracing::error!("the engine panicked and serves no more");
            self.shared.advance(Stage::Failed);
            self.fail_everything();
        }
    }

    /// One step for everyone who runs. False when there is nothing left to do, ever.
    fn round(&mut self) -> bool {
        if !self.receive() {
            return false;
        }
        self.sweep_queue();
        self.start_waiting();
        if !self.step_all() && !self.running.is_empty() {
            thread::sleep(NAP);
        }
        true
    }

    /// Takes what has been submitted; waits for it when there is nothing else to do.
    fn receive(&mut self) -> bool {
        while self.waiting.is_empty() && self.running.is_empty() {
            match self.jobs.recv_timeout(IDLE) {
                Ok(job) => self.waiting.push_back(job),
                Err(RecvTimeoutError::Timeout) if self.shared.stage() < Stage::Stopping => {}
                Err(_) => return false,
            }
        }
        self.waiting.extend(self.jobs.try_iter());
        true
    }

    /// Ends what need not wait any longer.
    fn sweep_queue(&mut self) {
        let Self { shared, waiting, .. } = self;
        let stage = shared.stage();
        waiting.retain(|job| match job.over(stage) {
            None => true,
            Some(over) => {
                shared.leave_queue();
                job.end(over);
                false
            }
        });
    }

    fn start_waiting(&mut self) {
        while self.running.len() < self.max_running
            && let Some(job) = self.waiting.pop_front()
        {
            self.running.push(Sequence::start(job, KvCache::new(self.compute.model.cache_shape())));
            self.count();
            self.shared.leave_queue();
        }
    }

    /// True if anyone could take a step or came to an end.
    fn step_all(&mut self) -> bool {
        let stopping = self.shared.stage() >= Stage::Stopping;
        let mut moved = false;
        self.running.retain_mut(|sequence| {
            let turn = sequence.turn(&mut self.compute, stopping, self.reader_patience);
            moved |= turn != Turn::Passed;
            turn != Turn::Ended
        });
        self.count();
        moved
    }

    fn fail_everything(&mut self) {
        for mut sequence in self.running.drain(..) {
            sequence.fail();
        }
        self.count();
        while let Some(job) = self.waiting.pop_front().or_else(|| self.jobs.recv().ok()) {
            self.shared.leave_queue();
            job.end(Over::Refused(Error::EngineFailed));
        }
    }

    fn count(&self) {
        self.shared.running.store(self.running.len(), Ordering::Relaxed);
        self.shared.tokens.store(self.compute.sampled, Ordering::Relaxed);
    }
}

impl Compute {
    fn new(model: Box<dyn Model>, device: Device, chunk: usize) -> Self {
        Self { logits: vec![0.0; model.vocabulary()], model, device, chunk, sampled: 0 }
    }

    /// Adds `ids` to what `cache` holds: `[L] -> [L, E]`
    pub(super) fn forward(&self, ids: &[u32], cache: &mut KvCache) -> Result<Tensor, Error> {
        let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        self.model.forward(&Tensor::f_from_slice(&ids)?.f_to_device(self.device)?, cache)
    }

    /// The token that `sampler` chooses to follow the last of `hidden`, `[L, E]`, at `position`.
    pub(super) fn sample(&mut self, hidden: &Tensor, sampler: &mut Sampler, position: usize) -> Result<u32, Error> {
        let last = hidden.f_narrow(0, -1, 1)?;
        let logits = self.model.logits(&last)?.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?;
        logits.f_copy_data(&mut self.logits, logits.numel())?;
        self.sampled += 1;
        sampler.next(&mut self.logits, position as u64)
    }
}

/// libtorch's threads: as asked, or one per core.
fn threads(asked: usize) -> i32 {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    i32::try_from(if asked == 0 { cores() } else { asked }).unwrap_or(i32::MAX)
}

fn share(model: ServedModel, config: &Config) -> Shared {
    Shared {
        model,
        max_queue: config.max_queue.max(1),
        event_buffer: config.event_buffer.max(3), // `accepted`, a delta, and the last slot for the end
        stage: watch::Sender::new(Stage::Serving),
        queued: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        tokens: AtomicU64::new(0),
    }
}

fn describe(
    artifacts: &Artifacts,
    config: &Config,
    model: &dyn Model,
    placement: Placement,
) -> Result<ServedModel, Error> {
    Ok(ServedModel {
        id: config.model_id.clone().unwrap_or_else(|| artifacts.name.clone()),
        architecture: artifacts.architecture.clone().unwrap_or_default(),
        context_length: model.cache_shape().context as usize,
        vocabulary_size: model.vocabulary(),
        dtype: placement::dtype_name(placement.dtype).to_owned(),
        device: placement::device_name(placement.device),
        tokenizer: artifacts.tokenizer()?,
        eos_token_ids: artifacts.eos_token_ids()?,
        defaults: SamplingOptions::recommended(&artifacts.generation),
    })
}
