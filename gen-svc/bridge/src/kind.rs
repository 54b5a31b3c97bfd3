//! A kind of engine: a row of [`crate::protocols::ENGINES`].

use std::sync::Arc;

use tandem_core::engine::Promise;
use tandem_core::error::LoadError;
use tandem_model_files::tokenizer::Tokenizer;

use crate::lack::Lack;
use crate::protocol::Protocol;
use crate::target::Target;

/// A kind of engine.
#[derive(Debug)]
pub struct EngineKind {
    /// The value of `--engine`.
    pub flag: &'static str,
    /// The name in messages and in GetLoadedModel.
    pub name: &'static str,
    /// The help of the value.
    pub help: &'static str,
    /// The fields that the engine cannot honor.
    pub lacks: &'static [Lack],
    /// The fields that it cannot honor without some of its settings.
    pub lacks_by_settings: &'static [Lack],
    /// The promises of the contract that do not hold.
    pub missing_promises: &'static [Promise],
    /// Returns the protocol, which has not connected yet. The tokenizer is that of the bridge's files.
    pub(crate) connect: fn(&Target, Tokenizer) -> Connected,
}

/// A protocol that can be used, or why its address or credentials cannot.
pub(crate) type Connected = Result<Arc<dyn Protocol>, LoadError>;
