//! The engine in this process: one thread, to which handles send commands.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_common::thread_priority;
use tokio::sync::oneshot;

use super::command::Command;
use super::config::{Config, DeviceChoice, EngineLimits};
use super::memory;
use super::metrics::{self, Gauges};
use super::port::{EngineEnded, TokenEngine};
use super::shared::{GpuState, Shared};
use super::thread::EngineThread;
use crate::answer::Answer;
use crate::cache::BlockPool;
use crate::error::LoadError;
use crate::lifecycle::Lifecycle;
use crate::models::{DevicePart, LoadedModel, Tower};
use crate::request::ServedModel;

/// The handle on the thread. After it is dropped, running requests finish, and then the thread ends.
#[derive(Debug)]
pub(super) struct LocalEngine {
    commands: Sender<Command>,
    shared: Arc<Shared>,
}

impl LocalEngine {
    /// Starts the thread under a server's lifecycle. The thread calls `load` for its model.
    ///
    /// # Errors
    /// Fails with the error of `load`, or if the KV cache cannot be allocated.
    pub(super) fn start<M: Into<LoadedModel>>(
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
}

impl TokenEngine for LocalEngine {
    fn model(&self) -> &ServedModel {
        &self.shared.model
    }

    fn limits(&self) -> EngineLimits {
        self.shared.limits
    }

    fn start(&self, answer: Box<Answer>) -> Result<(), EngineEnded> {
        self.commands.send(Command::Generate(answer)).map_err(|_| EngineEnded)
    }

    fn activity(&self) -> Gauges {
        self.shared.activity()
    }

    fn age(&self) -> Option<Duration> {
        self.shared.step_clock.age()
    }

    fn gpus(&self) -> Vec<GpuState> {
        let kv_blocks = self.activity().kv_blocks;
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

    fn flush_prefix_cache(&self) -> Result<oneshot::Receiver<usize>, EngineEnded> {
        let (reply, flushed) = oneshot::channel();
        self.commands.send(Command::FlushPrefixCache(reply)).map_err(|_| EngineEnded)?;
        Ok(flushed)
    }
}

/// Allocates the KV cache, and creates the handle and the thread's state. The model's context is
/// limited to the size of the cache.
fn build(
    config: &Config,
    lifecycle: Lifecycle,
    mut served: ServedModel,
    LoadedModel { mut backend, mut tower }: LoadedModel,
) -> Result<(LocalEngine, EngineThread), LoadError> {
    let shape = backend.shape();
    let tower_of = tower.as_deref_mut().map(|tower| tower as &mut dyn Tower).zip(served.vision.as_ref());
    let size = memory::divide(config, backend.as_mut(), tower_of)?;
    backend.allocate(size)?;
    let limit = size.blocks as usize * shape.block;
    if limit < served.context_length {
        tracing::warn!(context = served.context_length, limit, "context limited by the KV cache");
        served.context_length = limit;
    }
    let (commands, receiver) = mpsc::channel();
    let parts = backend.device_parts();
    metrics::observe_gpus(parts.iter().filter_map(|part| part.gpu.clone()));
    let shared = Arc::new(Shared::new(served, parts, config.limits(), lifecycle));
    let engine = LocalEngine { commands, shared: Arc::clone(&shared) };
    let pool = BlockPool::new(size, shape.block);
    let thread = EngineThread::new(backend, tower, pool, shared, receiver, config.reader_patience);
    Ok((engine, thread))
}
