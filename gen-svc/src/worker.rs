//! The one thread that owns the model and every tensor. Handlers give it jobs and get events, both by channel.
//!
//! Running requests take turns, one step each: a chunk of the prompt, or one token. Before each step a request is looked at: a
//! caller that is gone, a deadline that has passed, or a shutdown ends it there. A caller that reads too slowly is passed over
//! while its channel is full, so it holds nobody up and its memory stays bounded; after [`Config::reader_patience`] it is given up.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc as events, watch};
use tracing::Span;

use crate::error::Error;
use crate::request::{ServedModel, Work};

mod event;
mod placement;
mod sequence;
mod thread;

pub use event::{Accepted, Delta, Event, FinishReason, Finished, Timings};
pub use placement::{DeviceChoice, DtypeChoice};
use thread::EngineThread;

/// How to run the engine.
#[derive(Debug, Clone)]
pub struct Config {
    /// A `.gguf` file.
    pub model: PathBuf,
    /// What requests call the model. None: the file's stem.
    pub model_id: Option<String>,
    /// Where to compute.
    pub device: DeviceChoice,
    /// What to compute in.
    pub dtype: DtypeChoice,
    /// Threads that libtorch computes with. 0: one per core.
    pub threads: usize,
    /// Requests that may wait.
    pub max_queue: usize,
    /// Requests that run at once. Each holds its own cache.
    pub max_running: usize,
    /// Prompt tokens computed in one step.
    pub prefill_chunk: usize,
    /// Events that may wait for a caller to read them. At least 3.
    pub event_buffer: usize,
    /// How long a caller may leave its channel full.
    pub reader_patience: Duration,
}

impl Config {
    /// Every default, for the model at `model`.
    #[must_use]
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            model_id: None,
            device: DeviceChoice::Cpu,
            dtype: DtypeChoice::Auto,
            threads: 0,
            max_queue: 256,
            max_running: 8,
            prefill_chunk: 512,
            event_buffer: 64,
            reader_patience: Duration::from_secs(60),
        }
    }
}

/// What the engine is doing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that wait.
    pub queued: usize,
    /// Requests that run.
    pub running: usize,
    /// Tokens generated since the start, for all requests.
    pub tokens: u64,
}

/// A handle on the engine. When the last clone is dropped, the engine ends what it has and its thread stops.
#[derive(Debug, Clone)]
pub struct Engine {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

/// What the thread and its handles share.
#[derive(Debug)]
struct Shared {
    model: ServedModel,
    max_queue: usize,
    event_buffer: usize,
    stage: watch::Sender<Stage>,
    queued: AtomicUsize,
    running: AtomicUsize,
    tokens: AtomicU64,
}

/// How far the engine is in its life. It only goes on, never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    /// Nothing new is taken on.
    Draining,
    /// What runs is given up.
    Stopping,
    /// It broke.
    Failed,
}

/// A request on its way to the thread.
#[derive(Debug)]
struct Job {
    work: Work,
    deadline: Option<Instant>,
    submitted: Instant,
    span: Span,
    events: events::Sender<Event>,
}

impl Engine {
    /// Starts the thread and loads the model in it. Returns when requests can be served, with the thread to join at the end.
    ///
    /// # Errors
    /// The model cannot be loaded as configured.
    pub fn start(config: Config) -> Result<(Self, JoinHandle<()>), Error> {
        let (loaded, result) = mpsc::channel();
        let main = move || match EngineThread::load(&config) {
            Ok((engine, thread)) => {
                let _ = loaded.send(Ok(engine));
                thread.main();
            }
            Err(error) => {
                let _ = loaded.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(main).map_err(Error::Thread)?;
        let engine = result.recv().map_err(|_| Error::EngineFailed)??;
        Ok((engine, thread))
    }

    /// The model that is served.
    #[must_use]
    pub fn model(&self) -> &ServedModel {
        &self.shared.model
    }

    /// What the engine is doing now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.shared.gauges()
    }

    /// Waits until nothing is taken on any more.
    pub async fn draining(&self) {
        self.shared.reached(Stage::Draining).await;
    }

    /// Waits until the engine has broken down.
    pub async fn failed(&self) {
        self.shared.reached(Stage::Failed).await;
    }

    /// Puts a request in the queue. Dropping the receiver cancels it. The work's span is a child of the current one.
    ///
    /// # Errors
    /// The queue is full, or the engine takes nothing on.
    pub fn submit(&self, work: Work, deadline: Option<Instant>) -> Result<events::Receiver<Event>, Error> {
        self.shared.admit()?;
        let (sender, receiver) = events::channel(self.shared.event_buffer);
        let span = tracing::info_span!("generation", prompt_tokens = work.prompt.len());
        let job = Job { work, deadline, submitted: Instant::now(), span, events: sender };
        self.jobs.send(job).map_err(|_| Error::EngineFailed)?;
        Ok(receiver)
    }

    /// Takes nothing on any more. What waits and what runs goes on.
    pub fn drain(&self) {
        self.shared.advance(Stage::Draining);
    }

    /// Gives up what waits and what runs, within one step.
    pub fn stop(&self) {
        self.shared.advance(Stage::Stopping);
    }
}

impl Shared {
    fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }

    /// Waits until the engine has come as far as `stage`.
    async fn reached(&self, stage: Stage) {
        let reached = self.stage.subscribe().wait_for(|now| *now >= stage).await.map(drop);
        reached.expect("the sender lives as long as self");
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            queued: self.queued.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
        }
    }

    /// Takes a place in the queue.
    fn admit(&self) -> Result<(), Error> {
        match self.stage() {
            Stage::Serving => {}
            Stage::Draining | Stage::Stopping => return Err(Error::Draining),
            Stage::Failed => return Err(Error::EngineFailed),
        }
        let room = |queued| (queued < self.max_queue).then_some(queued + 1);
        let taken = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.map(drop).map_err(|_| Error::QueueFull { limit: self.max_queue })
    }

    fn leave_queue(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Job {
    /// Why the request should leave the queue unserved, if it should.
    fn over(&self, stage: Stage) -> Option<Over> {
        if self.events.is_closed() {
            Some(Over::Abandoned)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(Over::Refused(Error::DeadlineInQueue))
        } else if stage >= Stage::Stopping {
            Some(Over::Refused(Error::Draining))
        } else {
            None
        }
    }

    /// Ends a request that never ran.
    fn end(&self, over: Over) {
        let _entered = self.span.enter();
        match over {
            Over::Abandoned => tracing::info!(finish = "cancelled", tokens = 0, "left the queue"),
            Over::Refused(error) => {
                tracing::info!(finish = error.kind().1, tokens = 0, "left the queue");
                let _ = self.events.try_send(Event::Refused(error)); // the channel is empty, or its reader has just gone
            }
        }
    }
}

/// How a request ends that never ran.
#[derive(Debug)]
enum Over {
    /// Its caller is gone.
    Abandoned,
    /// Its caller is told why.
    Refused(Error),
}
