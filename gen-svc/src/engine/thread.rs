//! The thread: loads the model, then takes one step after another for everyone who runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tandem_model_files::artifacts::Artifacts;
use tokio::sync::watch;

use super::metrics::{self, EngineMetrics};
use super::schedule::Scheduler;
use super::sequence::Sequence;
use super::{Config, Engine, EngineLimits, Gauges, Job, Order, Shared, Stage, backend, memory};
use crate::cache::{BLOCK, BlockPool};
use crate::error::Error;
use crate::grammar::Grammars;
use crate::models::{self, Backend, Logits, Model};
use crate::request::{SamplingOptions, ServedModel};
use crate::weights::ModelFile;

/// How often an idle thread looks whether it should stop.
const IDLE: Duration = Duration::from_millis(100);

/// How long the thread sleeps when every request waits for its reader.
const NAP: Duration = Duration::from_millis(2);

/// The thread's own state.
pub(super) struct EngineThread {
    model: Box<dyn Model>,
    /// Reused.
    logits: Logits,
    scheduler: Scheduler,
    shared: Arc<Shared>,
    orders: Receiver<Order>,
    /// Jobs taken since the start.
    arrivals: u64,
    /// Tokens sampled since the start.
    sampled: u64,
    reader_patience: Duration,
}

impl EngineThread {
    /// Makes room for keys and values. The model's context is cut to what they have room for.
    pub(super) fn new(
        config: &Config,
        mut served: ServedModel,
        mut model: Box<dyn Model>,
    ) -> Result<(Engine, Self), Error> {
        let shape = model.shape();
        let blocks = memory::blocks(config, &shape)?;
        model.allocate(blocks)?;
        let room = blocks as usize * BLOCK;
        if room < served.context_length {
            tracing::warn!(context = served.context_length, room, "the memory for keys and values limits the context");
            served.context_length = room;
        }
        let (sender, orders) = mpsc::channel();
        let shared = Arc::new(share(served, config));
        metrics::observe(&Arc::downgrade(&shared));
        let engine = Engine { orders: sender, shared: Arc::clone(&shared) };
        let thread = Self {
            model,
            logits: Logits::default(),
            scheduler: Scheduler::new(BlockPool::new(blocks), config.max_running, config.prefill_chunk),
            shared,
            orders,
            arrivals: 0,
            sampled: 0,
            reader_patience: config.reader_patience,
        };
        thread.count();
        Ok((engine, thread))
    }

    /// Works until every handle is dropped, or until it is told to stop and nothing is left. A panic fails all requests, then and from
    /// then on; the process lives.
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
        self.sweep();
        self.scheduler.admit();
        let moved = self.step();
        self.count();
        if !moved && !self.scheduler.is_empty() {
            thread::sleep(NAP);
        }
        true
    }

    /// Takes what has been submitted; waits for it when there is nothing else to do.
    fn receive(&mut self) -> bool {
        while self.scheduler.is_empty() {
            match self.orders.recv_timeout(IDLE) {
                Ok(order) => self.obey(order),
                Err(RecvTimeoutError::Timeout) if self.shared.stage() < Stage::Stopping => {}
                Err(_) => return false,
            }
        }
        while let Ok(order) = self.orders.try_recv() {
            self.obey(order);
        }
        true
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Generate(job) => self.enqueue(*job),
            Order::FlushPrefixCache(told) => {
                let flushed = self.scheduler.pool.clear();
                self.count();
                // Whoever asked may be gone.
                let _ = told.send(flushed);
            }
        }
    }

    fn enqueue(&mut self, job: Job) {
        self.arrivals += 1;
        Sequence::of(job, self.arrivals).into_iter().for_each(|sequence| self.scheduler.enqueue(sequence));
    }

    /// Ends whatever need not go on.
    fn sweep(&mut self) {
        let Self { shared, scheduler, reader_patience, .. } = self;
        let stage = shared.stage();
        scheduler.remove(|sequence| match sequence.caller.interruption(stage, *reader_patience) {
            None => false,
            Some(interruption) => {
                sequence.interrupt(interruption);
                true
            }
        });
    }

    /// Computes the next tokens of everyone who can go on. False if nobody can.
    fn step(&mut self) -> bool {
        let Self { model, logits, scheduler, sampled, .. } = self;
        let counts = scheduler.plan();
        let taking_part = scheduler.running.iter().zip(&counts).filter(|(_, count)| **count > 0);
        let runs: Vec<_> = taking_part.map(|(sequence, &count)| sequence.run(count)).collect();
        if runs.is_empty() {
            return false;
        }
        let computed = model.forward(&runs, logits);
        let wanted: Vec<usize> = runs.iter().map(|run| run.logit_rows().len()).collect();
        drop(runs);
        let mut rows = logits.rows();
        let (mut counts, mut wanted) = (counts.into_iter(), wanted.into_iter());
        let Scheduler { running, pool, .. } = scheduler;
        running.retain_mut(|sequence| {
            let count = counts.next().unwrap_or(0);
            if count == 0 {
                return true;
            }
            let mut rows: Vec<_> = rows.by_ref().take(wanted.next().unwrap_or(0)).collect();
            let before = sequence.length();
            let ended = match &computed {
                Ok(()) => sequence.advance(count, &mut rows, pool),
                Err(error) => sequence.fail(error),
            };
            *sampled += (sequence.length() - before) as u64;
            if ended {
                sequence.release(pool);
            }
            !ended
        });
        true
    }

    fn fail_everything(&mut self) {
        loop {
            self.scheduler.remove(|sequence| {
                sequence.give_up();
                true
            });
            self.count();
            match self.orders.recv_timeout(IDLE) {
                Ok(Order::Generate(job)) => self.enqueue(*job),
                Ok(Order::FlushPrefixCache(_)) => {}
                Err(RecvTimeoutError::Timeout) if !self.shared.is_stopped.load(Ordering::Relaxed) => {}
                Err(_) => return,
            }
        }
    }

    fn count(&self) {
        self.shared.report(Gauges {
            queued: 0,
            running: self.scheduler.running.len(),
            tokens: self.sampled,
            preemptions: self.scheduler.preemptions,
            kv_blocks: self.scheduler.pool.usage(),
        });
    }
}

/// Loads the model that is configured. To be called on the engine's thread: libtorch's settings are each thread's own.
pub(super) fn load(config: &Config) -> Result<(ServedModel, Box<dyn Model>), Error> {
    let start = Instant::now();
    let runtime = backend::choose(config)?;
    let threads = backend::threads(config.threads);
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    let artifacts = Artifacts::load(&config.model)?;
    let file = ModelFile::new(&artifacts)?.until(Arc::clone(&config.cancel_load));
    memory::require(models::weight_bytes(&file, runtime)?, config.device)?;
    let model = models::load(&file, runtime)?;
    let served = describe(&artifacts, config, model.as_ref(), runtime)?;
    let seconds = start.elapsed().as_secs_f64();
    tracing::info!(
        model = served.id,
        dtype = served.dtype,
        quantization = served.quantization,
        device = served.device,
        seconds,
        "model loaded"
    );
    Ok((served, model))
}

fn share(model: ServedModel, config: &Config) -> Shared {
    Shared {
        metrics: EngineMetrics::new(&model.id),
        model,
        limits: EngineLimits {
            max_queue: config.max_queue.max(1),
            max_running: config.max_running.max(1),
            prefill_chunk: config.prefill_chunk.max(1),
        },
        event_buffer: config.event_buffer.max(3), // `accepted`, a delta, and the last slot for the summary
        stage: watch::Sender::new(Stage::Serving),
        is_stopped: AtomicBool::new(false),
        queued: AtomicUsize::new(0),
        activity: Mutex::default(),
    }
}

fn describe(artifacts: &Artifacts, config: &Config, model: &dyn Model, runtime: Backend) -> Result<ServedModel, Error> {
    let [device, dtype, quantization] = backend::names(runtime);
    let shape = model.shape();
    let (tokenizer, eos_token_ids) = (artifacts.tokenizer()?, artifacts.eos_token_ids()?);
    Ok(ServedModel {
        id: config.model_id.clone().unwrap_or_else(|| artifacts.name.clone()),
        architecture: artifacts.architecture.clone().unwrap_or_default(),
        context_length: shape.context,
        max_prompt_tokens: config.max_prompt_tokens.unwrap_or(usize::MAX),
        vocabulary_size: shape.vocabulary,
        dtype,
        quantization,
        device,
        grammars: Grammars::new(tokenizer.clone(), shape.vocabulary, eos_token_ids.clone()),
        tokenizer,
        eos_token_ids,
        defaults: SamplingOptions::recommended(&artifacts.generation),
    })
}
