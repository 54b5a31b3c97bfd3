//! The port to an engine's protocol.

use std::fmt;

use tokio::sync::mpsc::Sender;

use crate::call::{Call, CallEnd, CallError, Report};
use crate::lack::Lack;

/// Asks one engine at one address.
#[tonic::async_trait]
pub trait Protocol: fmt::Debug + Send + Sync {
    /// Returns whether the engine generates.
    async fn state(&self) -> EngineState;

    /// Returns the engine's report of itself. It is asked every second.
    ///
    /// # Errors
    /// It does not answer as its protocol says.
    async fn facts(&self) -> Result<Facts, CallError>;

    /// Completes the report by requests that cost more. They are made when the engine is proven.
    ///
    /// # Errors
    /// As [`facts`](Self::facts).
    async fn details(&self, facts: Facts) -> Result<Facts, CallError> {
        Ok(facts)
    }

    /// Returns the ids of a text in which control tokens are recognized. None is added.
    ///
    /// # Errors
    /// As [`facts`](Self::facts).
    async fn tokenize(&self, text: &str) -> Result<Vec<u32>, CallError>;

    /// Returns the text of ids. None: the protocol has no way to ask for it.
    ///
    /// # Errors
    /// As [`facts`](Self::facts).
    async fn detokenize(&self, ids: &[u32]) -> Result<Option<String>, CallError>;

    /// Generates, and sends each report but for the end.
    ///
    /// # Errors
    /// The engine fails, rejects the call, or contradicts its protocol.
    async fn run(&self, call: Call, reports: &Sender<Report>) -> Result<CallEnd, CallError>;

    /// Returns the engine's current load.
    ///
    /// # Errors
    /// As [`facts`](Self::facts).
    async fn load(&self) -> Result<Load, CallError>;
}

/// Whether an engine generates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineState {
    /// It answers, and generates.
    Ready,
    /// It loads its model.
    Loading,
    /// It does not answer, or says that it has failed.
    Lost(String),
}

/// An engine's report of itself.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The version. Empty: not reported.
    pub version: String,
    /// The model's name at the engine.
    pub model: String,
    /// The most tokens of prompt and output together.
    pub context: usize,
    /// The outputs that it generates at once. None: not reported.
    pub slots: Option<usize>,
    /// The size of the vocabulary. None: not reported.
    pub vocabulary: Option<usize>,
    /// The dtype. Empty: not reported.
    pub dtype: String,
    /// The quantization. Empty: not reported.
    pub quantization: String,
    /// Settings of the engine that the operator should change, each with its effect.
    pub advice: Vec<String>,
    /// The fields that the engine lacks with its settings, of [`crate::kind::EngineKind::lacks_by_settings`].
    pub lacks: Vec<&'static Lack>,
}

impl Facts {
    /// Returns true if another report is of the same engine, with the same model. A version may be a detail.
    #[must_use]
    pub fn is_of(&self, other: &Self) -> bool {
        let versions = [&self.version, &other.version];
        let has_version = versions.into_iter().all(|version| !version.is_empty());
        let rows = [self.vocabulary, other.vocabulary];
        let has_rows = rows.iter().all(Option::is_some);
        (&self.model, self.context) == (&other.model, other.context)
            && !(has_version && versions[0] != versions[1])
            && !(has_rows && rows[0] != rows[1])
    }
}

/// The load of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Requests that wait inside the engine.
    pub waiting: usize,
    /// Outputs that it generates.
    pub running: usize,
    /// The used share of its KV cache, from 0 to 1. None: not reported.
    pub kv_used: Option<f64>,
    /// Blocks of its KV cache. 0: not reported.
    pub kv_blocks: usize,
    /// Positions of a block. 0: not reported.
    pub kv_block_size: usize,
    /// Preemptions since its start.
    pub preemptions: u64,
    /// Steps since its start. 0: not reported.
    pub steps: u64,
}

impl Load {
    /// Returns true if the load changes while the engine computes a prompt. An engine without statistics reports zeros.
    #[must_use]
    pub fn shows_work(&self) -> bool {
        self.steps > 0 || self.kv_used.is_some_and(|used| used > 0.0)
    }
}
