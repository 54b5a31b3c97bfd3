//! The one thread that owns the model and every tensor. Handlers give it jobs and get events, both by channel.
//!
//! Running requests are computed together, step by step: one token of each that generates, and a chunk of the prompts that are
//! yet to be read, shared fairly. Between steps requests join and leave: a caller that is gone, a deadline that has passed, or a
//! shutdown ends a request there. A caller that reads too slowly is passed over while its channel is full, so it holds nobody up and
//! its memory stays bounded; after [`Config::reader_patience`] it is given up. When the memory for keys and values runs out, who came
//! last waits again, and goes on later with the same tokens.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use tandem_common::telemetry::Span;
use tokio::sync::{mpsc as events, oneshot, watch};

use crate::cache::Usage;
use crate::error::Error;
use crate::models::Model;
use crate::request::{PreparedRequest, ServedModel};

mod backend;
mod caller;
mod event;
mod memory;
mod metrics;

mod schedule;
mod sequence;
mod thread;

pub use backend::{DeviceChoice, DtypeChoice, Quantize};
pub use event::{Accepted, Delta, Event, FinishReason, Finished, Summary, Timings, Token, TopToken};
use metrics::EngineMetrics;
use thread::EngineThread;

/// How to run the engine.
#[derive(Debug, Clone)]
pub struct Config {
    /// A `.gguf` file, or a folder with safetensors.
    pub model: PathBuf,
    /// What requests call the model. None: the file's stem, or the folder's name.
    pub model_id: Option<String>,
    /// Where to compute.
    pub device: DeviceChoice,
    /// What to compute in.
    pub dtype: DtypeChoice,
    /// How weights are made smaller. None: a GGUF's own blocks are kept, unless a dtype is asked for.
    pub quantize: Option<Quantize>,
    /// Compute on the CPU with libtorch, as on any other device.
    pub reference: bool,
    /// Threads that compute. 0: one per core.
    pub threads: usize,
    /// Requests that may wait.
    pub max_queue: usize,
    /// Outputs that are generated at once.
    pub max_running: usize,
    /// Tokens that a prompt may have. None: as many as the context.
    pub max_prompt_tokens: Option<usize>,
    /// Prompt tokens computed in one step, for all requests together.
    pub prefill_chunk: usize,
    /// Bytes for keys and values. None: what is reasonable.
    pub kv_memory: Option<u64>,
    /// Events that may wait for a caller to read them. At least 3.
    pub event_buffer: usize,
    /// How long a caller may leave its channel full.
    pub reader_patience: Duration,
    /// Once it is true, a load that is under way is given up, between two tensors.
    pub cancel_load: Arc<AtomicBool>,
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
            quantize: None,
            reference: false,
            threads: 0,
            max_queue: 256,
            max_running: 64,
            max_prompt_tokens: None,
            prefill_chunk: 512,
            kv_memory: None,
            event_buffer: 64,
            reader_patience: Duration::from_secs(60),
            cancel_load: Arc::default(),
        }
    }
}

/// What the engine is doing now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that wait.
    pub queued: usize,
    /// Outputs that are generated.
    pub running: usize,
    /// Tokens generated since the start, for all requests.
    pub tokens: u64,
    /// Outputs that had to give their memory up and wait again, since the start.
    pub preemptions: u64,
    /// Blocks of the memory for keys and values.
    pub kv_blocks: Usage,
}

/// A handle on the engine. When the last clone is dropped, the engine ends what it has and its thread stops.
#[derive(Debug, Clone)]
pub struct Engine {
    orders: Sender<Order>,
    shared: Arc<Shared>,
}

/// What the thread and its handles share.
#[derive(Debug)]
struct Shared {
    model: ServedModel,
    limits: EngineLimits,
    event_buffer: usize,
    stage: watch::Sender<Stage>,
    /// Whether its end was asked for, broken or not.
    is_stopped: AtomicBool,
    queued: AtomicUsize,
    /// What the thread does, but for `queued`.
    activity: Mutex<Gauges>,
    metrics: EngineMetrics,
}

/// How much the engine takes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineLimits {
    /// Requests that may wait.
    pub max_queue: usize,
    /// Outputs that are generated at once.
    pub max_running: usize,
    /// Prompt tokens computed in one step, for all requests together.
    pub prefill_chunk: usize,
}

/// How far the engine is in its life. It only goes on, never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It takes requests on.
    Serving,
    /// Nothing new is taken on.
    Draining,
    /// What runs is given up.
    Stopping,
    /// It broke.
    Failed,
}

/// What the thread is told to do.
#[derive(Debug)]
enum Order {
    Generate(Box<Job>),
    /// Forget what was computed for earlier requests, and tell how many blocks that were.
    FlushPrefixCache(oneshot::Sender<usize>),
}

/// A request on its way to the thread.
#[derive(Debug)]
struct Job {
    work: PreparedRequest,
    deadline: Option<Instant>,
    submitted: Instant,
    span: Span,
    events: events::Sender<Event>,
    place: Arc<Place>,
}

/// A place in the queue, given back when the last who holds it drops it.
#[derive(Debug)]
pub struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Starts the thread and loads the model in it. Returns when requests can be served, with the thread to join at the end.
    ///
    /// # Errors
    /// The model cannot be loaded as configured; [`Error::Draining`] if that was given up.
    pub fn start(config: Config) -> Result<(Self, JoinHandle<()>), Error> {
        Self::start_with(config, thread::load)
    }

    /// Starts the thread with a model that `load` makes there.
    ///
    /// # Errors
    /// That of `load`, or there is no memory for keys and values.
    pub fn start_with(
        config: Config,
        load: impl FnOnce(&Config) -> Result<(ServedModel, Box<dyn Model>), Error> + Send + 'static,
    ) -> Result<(Self, JoinHandle<()>), Error> {
        let (loaded, result) = mpsc::channel();
        let main = move || match load(&config).and_then(|(served, model)| EngineThread::new(&config, served, model)) {
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

    /// How much it takes on.
    #[must_use]
    pub fn limits(&self) -> EngineLimits {
        self.shared.limits
    }

    /// How far it is in its life.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.shared.stage()
    }

    /// Forgets what was computed for earlier requests, between two steps. Gives how many blocks that were.
    ///
    /// # Errors
    /// The engine is no more.
    pub async fn flush_prefix_cache(&self) -> Result<usize, Error> {
        let (sender, flushed) = oneshot::channel();
        self.orders.send(Order::FlushPrefixCache(sender)).map_err(|_| self.lost())?;
        flushed.await.map_err(|_| self.lost())
    }

    /// Waits until nothing is taken on any more.
    pub async fn draining(&self) {
        self.shared.reached(|stage| matches!(stage, Stage::Draining | Stage::Stopping)).await;
    }

    /// Waits until the engine has broken down.
    pub async fn failed(&self) {
        self.shared.reached(|stage| stage == Stage::Failed).await;
    }

    /// Takes a place in the queue for a request that is yet to be prepared.
    ///
    /// # Errors
    /// The queue is full, or the engine takes nothing on.
    pub fn reserve(&self) -> Result<Arc<Place>, Error> {
        self.shared.admit()
    }

    /// Puts a request in the queue. Dropping the receiver cancels it. The work's span is a child of the current one.
    ///
    /// # Errors
    /// The queue is full, or the engine takes nothing on.
    pub fn submit(&self, work: PreparedRequest, deadline: Option<Instant>) -> Result<events::Receiver<Event>, Error> {
        self.submit_at(self.reserve()?, work, deadline)
    }

    /// The same in a place that was taken before.
    ///
    /// # Errors
    /// The engine is no more.
    pub fn submit_at(
        &self,
        place: Arc<Place>,
        work: PreparedRequest,
        deadline: Option<Instant>,
    ) -> Result<events::Receiver<Event>, Error> {
        let (sender, receiver) = events::channel(self.shared.event_buffer + 2 * work.sampling.n as usize + 1);
        let span = span(&self.shared.model, &work);
        self.shared.metrics.arrived(!work.generated().is_empty());
        let job = Job { work, deadline, submitted: Instant::now(), span, events: sender, place };
        self.orders.send(Order::Generate(Box::new(job))).map_err(|_| self.lost())?;
        Ok(receiver)
    }

    /// What became of a request that the engine did not end: its thread had stopped by then, or it broke.
    #[must_use]
    pub fn lost(&self) -> Error {
        match self.stage() {
            Stage::Draining | Stage::Stopping => Error::Draining,
            Stage::Serving | Stage::Failed => Error::EngineFailed,
        }
    }

    /// Takes nothing on any more. What waits and what runs goes on.
    pub fn drain(&self) {
        self.shared.advance(Stage::Draining);
    }

    /// Gives up what waits and what runs, within one step.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.shared.advance(Stage::Stopping);
    }
}

/// A count as spans take it: others become text there.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What a request does in the engine, from the queue to the last token.
fn span(model: &ServedModel, work: &PreparedRequest) -> Span {
    Span::current().part("generation", || {
        [
            KeyValue::new("gen_ai.operation.name", "text_completion"),
            KeyValue::new("gen_ai.provider.name", "tandem"),
            KeyValue::new("gen_ai.request.model", model.id.clone()),
            KeyValue::new("gen_ai.usage.input_tokens", number(work.prompt_tokens)),
            KeyValue::new("tandem.resumed_tokens", number(work.generated().len())),
        ]
    })
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

    /// Waits until the engine is at such a stage.
    async fn reached(&self, is_there: impl Fn(Stage) -> bool) {
        let reached = self.stage.subscribe().wait_for(|now| is_there(*now)).await.map(drop);
        reached.expect("the sender lives as long as self");
    }

    fn gauges(&self) -> Gauges {
        let activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        Gauges { queued: self.queued.load(Ordering::Relaxed), ..*activity }
    }

    fn report(&self, activity: Gauges) {
        *self.activity.lock().unwrap_or_else(PoisonError::into_inner) = activity;
    }

    /// Takes a place in the queue.
    fn admit(self: &Arc<Self>) -> Result<Arc<Place>, Error> {
        match self.stage() {
            Stage::Serving => {}
            Stage::Draining | Stage::Stopping => return Err(Error::Draining),
            Stage::Failed => return Err(Error::EngineFailed),
        }
        let room = |queued| (queued < self.limits.max_queue).then_some(queued + 1);
        let taken = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        match taken {
            Ok(_) => Ok(Arc::new(Place(Arc::clone(self)))),
            Err(_) => Err(Error::QueueFull { limit: self.limits.max_queue }),
        }
    }
}
