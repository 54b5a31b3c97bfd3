//! The handle on the engine.

use std::sync::mpsc::Sender;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use tandem_common::telemetry::Span;
use tandem_common::thread_priority;
use tokio::sync::{mpsc as events, oneshot};

use super::command::{Command, Job};
use super::config::{Config, DeviceChoice, EngineLimits};
use super::event::Event;
use super::memory;
use super::metrics::{self, Gauges, attribute_count};
use super::progress::RequestProgress;
use super::shared::{GpuState, QueueSlot, Shared};
use super::thread::EngineThread;
use crate::cache::BlockPool;
use crate::error::{LoadError, RequestError};
use crate::lifecycle::{Lifecycle, ServerState};
use crate::models::{DevicePart, LoadedModel, Tower};
use crate::request::{PreparedRequest, ServedModel};

/// A handle on the engine. After the last handle is dropped, running requests finish, and then the
/// thread ends.
#[derive(Debug, Clone)]
pub struct Engine {
    commands: Sender<Command>,
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts the engine's thread, which calls `load` for its model.
    ///
    /// # Errors
    /// Fails with the error of `load`, or if the KV cache cannot be allocated.
    pub fn start_with<M: Into<LoadedModel>>(
        config: Config,
        load: impl FnOnce(&Config) -> Result<(ServedModel, M), LoadError> + Send + 'static,
    ) -> Result<(Self, JoinHandle<()>), LoadError> {
        let lifecycle = Lifecycle::default();
        let started = Self::start_loading_with(config, lifecycle.clone(), load)?;
        lifecycle.serve();
        Ok(started)
    }

    /// Returns the time since the engine's thread finished a step or had none to compute, or None after
    /// the thread has ended.
    #[must_use]
    pub fn step_age(&self) -> Option<Duration> {
        self.shared.step_clock.age()
    }

    /// Starts the engine's thread under a server's lifecycle. The thread calls `load` for its
    /// model.
    ///
    /// # Errors
    /// Fails as [`start_with`](Self::start_with) does.
    pub fn start_loading_with<M: Into<LoadedModel>>(
        config: Config,
        lifecycle: Lifecycle,
        load: impl FnOnce(&Config) -> Result<(ServedModel, M), LoadError> + Send + 'static,
    ) -> Result<(Self, JoinHandle<()>), LoadError> {
        let (loaded, result) = mpsc::channel();
        let main = move || {
            // The threads of products are started by this one, and have its priority.
            thread_priority::lower();
            match load(&config).and_then(|(served, model)| build(&config, lifecycle, served, model.into())) {
                Ok((engine, thread)) => {
                    let _ = loaded.send(Ok(engine));
                    thread.run();
                }
                Err(error) => {
                    let _ = loaded.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(main).map_err(LoadError::Thread)?;
        let engine = result.recv().map_err(|_| LoadError::Panicked)??;
        Ok((engine, thread))
    }

    /// Returns the model that the engine serves.
    #[must_use]
    pub fn model(&self) -> &ServedModel {
        &self.shared.model
    }

    /// Returns the current gauges.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.shared.gauges()
    }

    /// Returns the state of the GPUs, in the order of computation. Empty on a CPU.
    #[must_use]
    pub fn gpus(&self) -> Vec<GpuState> {
        let kv_blocks = self.gauges().kv_blocks;
        let state = |DevicePart { gpu, layers, block_bytes }: &DevicePart| {
            let gpu = gpu.as_ref()?;
            Some(GpuState {
                device: DeviceChoice::Cuda(gpu.index).to_string(),
                name: gpu.name.clone(),
                memory: gpu.memory()?,
                layers: *layers,
                kv_bytes: kv_blocks.total as u64 * block_bytes,
                kv_blocks,
            })
        };
        self.shared.parts.iter().filter_map(state).collect()
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> EngineLimits {
        self.shared.limits
    }

    /// Returns the lifecycle that the engine observes. The engine sets it to Failed after a panic.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.shared.lifecycle
    }

    /// Evicts all unreferenced blocks between two steps. Returns the number of evicted blocks.
    ///
    /// # Errors
    /// The engine's thread has ended.
    pub async fn flush_prefix_cache(&self) -> Result<usize, RequestError> {
        let (reply, flushed) = oneshot::channel();
        self.commands.send(Command::FlushPrefixCache(reply)).map_err(|_| self.lost())?;
        flushed.await.map_err(|_| self.lost())
    }

    /// Reserves a slot in the queue for a caller's request that is not prepared yet.
    ///
    /// # Errors
    /// The queue or the caller's share of it is full, or requests are not accepted.
    pub fn reserve(&self, caller: &Arc<str>) -> Result<QueueSlot, RequestError> {
        self.shared.reserve(caller)
    }

    /// Queues a request. Dropping the receiver cancels the request. The request's span is a child
    /// of the current span.
    ///
    /// # Errors
    /// The queue is full, or requests are not accepted.
    pub fn submit(
        &self,
        request: PreparedRequest,
        deadline: Option<Instant>,
    ) -> Result<events::Receiver<Event>, RequestError> {
        self.submit_to(self.reserve(&request.caller)?, request, deadline, Arc::default())
    }

    /// Queues a request in a reserved slot. The engine's thread reports to `progress`.
    ///
    /// # Errors
    /// The engine's thread has ended.
    pub fn submit_to(
        &self,
        slot: QueueSlot,
        request: PreparedRequest,
        deadline: Option<Instant>,
        progress: Arc<RequestProgress>,
    ) -> Result<events::Receiver<Event>, RequestError> {
        let capacity = self.shared.event_capacity + 2 * request.sampling.n as usize + 1;
        let (events, receiver) = events::channel(capacity);
        let span = span(&self.shared.model, &request);
        self.shared.metrics.request_arrived(!request.generated().is_empty());
        let job = Job { request, deadline, submitted: Instant::now(), span, events, progress, slot };
        // Until the thread reads the command: it may be in the middle of a step.
        job.progress.set_queue_place(self.gauges().queued.max(1));
        self.commands.send(Command::Generate(Box::new(job))).map_err(|_| self.lost())?;
        Ok(receiver)
    }

    /// Returns the error of a request whose channel closed before its last event.
    #[must_use]
    pub fn lost(&self) -> RequestError {
        if self.lifecycle().state() == ServerState::Draining {
            RequestError::Draining
        } else {
            RequestError::EngineFailed
        }
    }
}

/// Allocates the KV cache, and creates the handle and the thread's state. The model's context is
/// limited to the size of the cache.
fn build(
    config: &Config,
    lifecycle: Lifecycle,
    mut served: ServedModel,
    LoadedModel { mut backend, mut tower }: LoadedModel,
) -> Result<(Engine, EngineThread), LoadError> {
    let shape = backend.shape();
    let tower_of = tower.as_deref_mut().map(|tower| tower as &mut dyn Tower).zip(served.vision.as_ref());
    let blocks = memory::divide(config, backend.as_mut(), tower_of)?;
    backend.allocate(blocks)?;
    let limit = blocks as usize * shape.block;
    if limit < served.context_length {
        tracing::warn!(context = served.context_length, limit, "context limited by the KV cache");
        served.context_length = limit;
    }
    let (commands, receiver) = mpsc::channel();
    let parts = backend.device_parts();
    metrics::observe_gpus(parts.iter().filter_map(|part| part.gpu.clone()));
    let shared = Arc::new(Shared::new(served, parts, config, lifecycle));
    let observed = Arc::downgrade(&shared);
    metrics::observe(config.limits(), move || observed.upgrade().map(|shared| shared.gauges()));
    let engine = Engine { commands, shared: Arc::clone(&shared) };
    let pool = BlockPool::new(blocks, shape.block);
    let thread = EngineThread::new(backend, tower, pool, shared, receiver, config.reader_patience);
    Ok((engine, thread))
}

/// Returns the span of a request in the engine, from the queue to the last token.
fn span(model: &ServedModel, request: &PreparedRequest) -> Span {
    Span::current().part("generation", || {
        [
            KeyValue::new("gen_ai.operation.name", "text_completion"),
            KeyValue::new("gen_ai.provider.name", "tandem"),
            KeyValue::new("gen_ai.request.model", model.id.clone()),
            KeyValue::new("gen_ai.usage.input_tokens", attribute_count(request.prompt_tokens)),
            KeyValue::new("tandem.resumed_tokens", attribute_count(request.generated().len())),
        ]
    })
}
