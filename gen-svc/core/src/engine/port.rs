//! The port of the service to an engine.

use std::fmt;
use std::time::Duration;

use tokio::sync::oneshot;

use super::config::EngineLimits;
use super::metrics::Gauges;
use super::shared::GpuState;
use crate::answer::Answer;
use crate::request::ServedModel;

/// Generates the tokens of requests. Text, limits, deadlines and the queue are above: see [`crate::answer`].
pub trait TokenEngine: fmt::Debug + Send + Sync {
    /// Returns the model.
    fn model(&self) -> &ServedModel;

    /// Returns the limits.
    fn limits(&self) -> EngineLimits;

    /// Starts a request. The engine accepts the answer, adds tokens until each output has ended, and before each
    /// step asks it for an interruption. It adds none while the answer is full. It drops the answer at the end, or
    /// earlier if the engine is lost.
    ///
    /// # Errors
    /// [`EngineEnded`].
    fn start(&self, answer: Box<Answer>) -> Result<(), EngineEnded>;

    /// Returns the current activity. It has no `queued`, which is above the engine.
    fn activity(&self) -> Gauges;

    /// Returns the time since the engine's last sign of life, or None after its end.
    fn age(&self) -> Option<Duration>;

    /// Returns the state of the GPUs, in the order of computation. Empty on a CPU.
    fn gpus(&self) -> Vec<GpuState> {
        Vec::new()
    }

    /// Evicts all unreferenced parts of the prefix cache. The reply is their number of blocks.
    ///
    /// # Errors
    /// [`EngineEnded`].
    fn flush_prefix_cache(&self) -> Result<oneshot::Receiver<usize>, EngineEnded>;
}

/// The engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEnded;
