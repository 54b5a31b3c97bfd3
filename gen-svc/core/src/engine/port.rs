//! The port of the service to an engine.

use std::fmt;
use std::time::Duration;

use tokio::sync::oneshot;

use super::config::EngineLimits;
use super::metrics::Gauges;
use super::shared::GpuState;
use crate::answer::Answer;
use crate::error::RequestError;
use crate::request::{PreparedRequest, ServedModel};

/// Generates the tokens of requests. Text, limits, deadlines and the queue are above: see [`crate::answer`].
pub trait TokenEngine: fmt::Debug + Send + Sync {
    /// Returns the model.
    fn model(&self) -> &ServedModel;

    /// Returns the limits.
    fn limits(&self) -> EngineLimits;

    /// Returns the engine in another process, with the features that it lacks. None: the engine of this process.
    fn external(&self) -> Option<ExternalEngine> {
        None
    }

    /// Fails if the engine lacks a feature that a request needs.
    ///
    /// # Errors
    /// [`RequestError::UnsupportedByEngine`] with the field, or [`RequestError::ResumeUnsupported`].
    fn check(&self, _request: &PreparedRequest) -> Result<(), RequestError> {
        Ok(())
    }

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

/// An engine in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalEngine {
    /// The name, such as `llama.cpp`.
    pub name: &'static str,
    /// The version, as the engine reports it. Empty: it does not.
    pub version: String,
    /// The fields of a request that are refused.
    pub unsupported_fields: Vec<&'static str>,
    /// The promises of the contract that do not hold.
    pub missing_promises: &'static [Promise],
}

/// A promise of the contract that engines in other processes may not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// A resumed output has the tokens that it would have had without the interruption, sampled ones too.
    SameTokensAfterResume,
    /// The tokens of an output do not depend on the other requests.
    IndependentOfBatch,
    /// A seed gives the same tokens on every replica of the model.
    SeedsAcrossReplicas,
}

/// The engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEnded;
