//! The handle on an engine, with all that is above it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;

use super::config::{Config, EngineLimits};
use super::local::LocalEngine;
use super::metrics::{self, Gauges};
use super::port::{ExternalEngine, TokenEngine};
use super::shared::GpuState;
use crate::answer::{Answer, Event, Queue, QueueSlot, RequestProgress};
use crate::error::{LoadError, RequestError};
use crate::lifecycle::{Lifecycle, ServerState};
use crate::models::LoadedModel;
use crate::request::{PreparedRequest, ServedModel};

/// A handle on an engine and its queue.
#[derive(Debug, Clone)]
pub struct Engine {
    queue: Queue,
    source: Arc<dyn TokenEngine>,
}

impl Engine {
    /// Creates the handle on an engine, under a server's lifecycle. `event_capacity` is the number of events that
    /// a request's channel has room for, without the last ones.
    #[must_use]
    pub fn new(source: Arc<dyn TokenEngine>, lifecycle: Lifecycle, event_capacity: usize) -> Self {
        let limits = source.limits();
        let queue = Queue::new(limits.max_queue, lifecycle, event_capacity, &source.model().id);
        let (observed, waiting) = (Arc::downgrade(&source), queue.clone());
        metrics::observe(limits, move || observed.upgrade().map(|source| gauges(&waiting, source.as_ref())));
        Self { queue, source }
    }

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

    /// Starts the engine's thread under a server's lifecycle. The thread calls `load` for its
    /// model. After the last handle is dropped, running requests finish, and then the thread ends.
    ///
    /// # Errors
    /// Fails as [`start_with`](Self::start_with) does.
    pub fn start_loading_with<M: Into<LoadedModel>>(
        config: Config,
        lifecycle: Lifecycle,
        load: impl FnOnce(&Config) -> Result<(ServedModel, M), LoadError> + Send + 'static,
    ) -> Result<(Self, JoinHandle<()>), LoadError> {
        let event_capacity = config.event_capacity();
        let (local, thread) = LocalEngine::start(config, lifecycle.clone(), load)?;
        Ok((Self::new(Arc::new(local), lifecycle, event_capacity), thread))
    }

    /// Returns the time since the engine's last sign of life: it finished a step or had none to compute. None
    /// after its end.
    #[must_use]
    pub fn step_age(&self) -> Option<Duration> {
        self.source.age()
    }

    /// Returns the model that the engine serves.
    #[must_use]
    pub fn model(&self) -> &ServedModel {
        self.source.model()
    }

    /// Returns the current gauges.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        gauges(&self.queue, self.source.as_ref())
    }

    /// Returns the engine in another process, with the features that it lacks. None: the engine of this process.
    #[must_use]
    pub fn external(&self) -> Option<ExternalEngine> {
        self.source.external()
    }

    /// Returns the state of the GPUs, in the order of computation. Empty on a CPU.
    #[must_use]
    pub fn gpus(&self) -> Vec<GpuState> {
        self.source.gpus()
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> EngineLimits {
        self.source.limits()
    }

    /// Returns the lifecycle that the engine observes. The engine sets it to Failed after a panic.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        self.queue.lifecycle()
    }

    /// Evicts all unreferenced blocks between two steps. Returns the number of evicted blocks.
    ///
    /// # Errors
    /// The engine has ended.
    pub async fn flush_prefix_cache(&self) -> Result<usize, RequestError> {
        let flushed = self.source.flush_prefix_cache().map_err(|_| self.lost())?;
        flushed.await.map_err(|_| self.lost())
    }

    /// Reserves a slot in the queue for a caller's request that is not prepared yet.
    ///
    /// # Errors
    /// The queue or the caller's share of it is full, or requests are not accepted.
    pub fn reserve(&self, caller: &Arc<str>) -> Result<QueueSlot, RequestError> {
        self.queue.reserve(caller)
    }

    /// Queues a request. Dropping the receiver cancels the request. The request's span is a child
    /// of the current span.
    ///
    /// # Errors
    /// The queue is full, or requests are not accepted.
    pub fn submit(&self, request: PreparedRequest, deadline: Option<Instant>) -> Result<Receiver<Event>, RequestError> {
        self.submit_to(self.reserve(&request.caller)?, request, deadline, Arc::default())
    }

    /// Queues a request in a reserved slot. The engine reports to `progress`.
    ///
    /// # Errors
    /// The engine has ended, or lacks a feature that the request needs.
    pub fn submit_to(
        &self,
        slot: QueueSlot,
        request: PreparedRequest,
        deadline: Option<Instant>,
        progress: Arc<RequestProgress>,
    ) -> Result<Receiver<Event>, RequestError> {
        self.source.check(&request)?;
        let (answer, receiver) = Answer::new(request, slot, deadline, progress);
        self.source.start(Box::new(answer)).map_err(|_| self.lost())?;
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

fn gauges(queue: &Queue, source: &dyn TokenEngine) -> Gauges {
    Gauges { queued: queue.len(), ..source.activity() }
}
