//! Everything that can go wrong, and what a caller sees of it.

use std::time::Duration;

use tandem_common::status::{Failure, Reason};
use tandem_model_files::artifacts::ArtifactsError;
use tandem_model_files::artifacts::gguf::GgufError;
use tandem_model_files::artifacts::safetensors::SafetensorsError;
use tandem_model_files::tokenizer::TokenizerError;
use tch::TchError;
use tonic::{Code, Status};

/// How long a caller should wait before it asks a full queue again.
const RETRY: Duration = Duration::from_millis(500);

/// A failure of this service. The first group is a caller's to see, the second an operator's, when a model is loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request names a model that is not here.
    #[error("model {asked:?} is not served here; {served:?} is")]
    ModelNotFound {
        /// What the request named.
        asked: String,
        /// The one there is.
        served: String,
    },
    /// A value in the request is not acceptable.
    #[error("{field}: {problem}")]
    Invalid {
        /// The path, in the contract's names.
        field: String,
        /// What is wrong, with the limits.
        problem: String,
    },
    /// The request cannot be read at all.
    #[error("the request is not readable: {problem}")]
    Malformed {
        /// What is wrong.
        problem: String,
    },
    /// The prompt leaves no room for output.
    #[error("the prompt has {tokens} tokens, and prompt and output together may have {context}")]
    PromptTooLong {
        /// The input that held the prompt.
        field: &'static str,
        /// Tokens in the prompt.
        tokens: usize,
        /// Tokens in the context.
        context: usize,
    },
    /// The prompt is longer than the server takes.
    #[error("the prompt has {tokens} tokens, and this server takes {limit}")]
    PromptOverLimit {
        /// The input that held the prompt.
        field: &'static str,
        /// Tokens in the prompt.
        tokens: usize,
        /// Tokens that there may be.
        limit: usize,
    },
    /// The caller tokenizes differently.
    #[error("the model's tokenizer has SHA-256 {found}, the request expects {expected}")]
    TokenizerMismatch {
        /// What the request expects.
        expected: String,
        /// What the model has.
        found: String,
    },
    /// The model reads text only.
    #[error("the model {model} reads text only, not messages with images")]
    ImagesNotSupported {
        /// Its id.
        model: String,
    },
    /// No room in the queue.
    #[error("the queue is full: {limit} requests are waiting")]
    QueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// Too many grammars are being compiled.
    #[error("{limit} grammars are waiting to be compiled")]
    GrammarQueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// The next tokens that a grammar allows cannot be told.
    #[error("the grammar cannot be followed: {problem}")]
    Grammar {
        /// Why.
        problem: String,
    },
    /// The caller's deadline passed before work began.
    #[error("the deadline passed in the queue")]
    DeadlineInQueue,
    /// The model is not loaded yet.
    #[error("the model is being loaded")]
    Loading,
    /// The service is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The engine broke down, and takes no more requests.
    #[error("the engine has failed")]
    EngineFailed,
    /// The prompt's text could not be tokenized.
    #[error("the prompt could not be tokenized")]
    Tokenize(#[source] TokenizerError),
    /// The model computed something that is no probability.
    #[error("the model's output is not finite")]
    NotFinite,
    /// libtorch reported an error.
    #[error("libtorch failed")]
    Torch(#[from] TchError),

    /// The model's files cannot be read.
    #[error("the model cannot be read")]
    Artifacts(#[from] ArtifactsError),
    /// The model's tokenizer cannot be built.
    #[error("the model's tokenizer cannot be built")]
    Tokenizer(#[from] TokenizerError),
    /// The model's safetensors files are not there, or not what they should be.
    #[error("the model's weights are not readable")]
    Safetensors(#[source] Box<SafetensorsError>),
    /// The model file's header holds something else than it should.
    #[error("the model's header is not readable")]
    Header(#[source] Box<GgufError>),
    /// No implementation of this architecture.
    #[error("architecture {found:?} is not supported; these are: {supported}")]
    UnsupportedArchitecture {
        /// What the model's config says.
        found: String,
        /// The registry's names.
        supported: String,
    },
    /// A setting of the model's config is missing or has the wrong type.
    #[error("the model's config is not readable")]
    Config(#[source] serde_json::Error),
    /// A setting of the model's config that this implementation does not have.
    #[error("the model's config has {setting} = {value}, which is not supported")]
    UnsupportedSetting {
        /// The name in `config.json`.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// A tensor that the architecture needs is not in the file.
    #[error("tensor {name} is missing")]
    TensorMissing {
        /// The name in the file.
        name: String,
    },
    /// A tensor has another shape than the config implies.
    #[error("tensor {name} has shape {found:?}, expected {expected:?}")]
    TensorShape {
        /// The name in the file.
        name: String,
        /// What the config implies.
        expected: Vec<i64>,
        /// What the file has.
        found: Vec<i64>,
    },
    /// A tensor is stored in a way that cannot be read.
    #[error("tensor {name} has type {found}, which is not supported")]
    TensorType {
        /// The name in the file.
        name: String,
        /// The storage type.
        found: String,
    },
    /// The device is not there.
    #[error("device {device} is not available: {problem}")]
    Device {
        /// What was asked for.
        device: String,
        /// Why it is not.
        problem: String,
    },
    /// The kernels refused a call.
    #[error("the kernels failed")]
    Kernels(#[from] tandem_kernels::Error),
    /// A step came before there was room for keys and values.
    #[error("there is no memory for keys and values yet")]
    NoKvMemory,
    /// A setting that the device does not have.
    #[error("--quantize {quantize} needs --device cpu")]
    QuantizeDevice {
        /// What was asked for.
        quantize: String,
    },
    /// Settings that exclude each other.
    #[error("--quantize {quantize} is computed in f32; leave out --dtype bf16, or --quantize")]
    QuantizeDtype {
        /// What was asked for.
        quantize: String,
    },
    /// The weights have too little room.
    #[error("the weights take {needed} bytes, and {available} are free")]
    Memory {
        /// As they would be kept.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// Keys and values have too little room.
    #[error("{bytes} bytes are too few for keys and values: the least is {least}; set --kv-memory-mib")]
    KvMemory {
        /// What there would be.
        bytes: u64,
        /// What is needed at least.
        least: u64,
    },
    /// The engine's thread could not be started.
    #[error("the engine's thread cannot be started")]
    Thread(#[source] std::io::Error),
}

impl Error {
    /// A request's value that is not acceptable.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// The stable reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::ModelNotFound { .. } => Reason::ModelNotFound,
            Self::Invalid { .. } => Reason::InvalidRequest,
            Self::Malformed { .. } => Reason::MalformedMessage,
            Self::PromptTooLong { .. } => Reason::PromptTooLong,
            Self::PromptOverLimit { .. } => Reason::PromptOverLimit,
            Self::TokenizerMismatch { .. } => Reason::TokenizerMismatch,
            Self::ImagesNotSupported { .. } => Reason::ImagesNotSupported,
            Self::QueueFull { .. } => Reason::QueueFull,
            Self::GrammarQueueFull { .. } => Reason::GrammarQueueFull,
            Self::Grammar { .. } => Reason::GrammarFailed,
            Self::DeadlineInQueue => Reason::DeadlineInQueue,
            Self::Loading => Reason::Loading,
            Self::Draining => Reason::Draining,
            Self::EngineFailed => Reason::EngineFailed,
            Self::Tokenize(_) => Reason::TokenizerFailed,
            Self::NotFinite | Self::Torch(_) | Self::Kernels(_) | Self::NoKvMemory => Reason::ModelFailed,
            Self::Artifacts(_) | Self::Tokenizer(_) | Self::Safetensors(_) | Self::Header(_) | Self::Config(_) => {
                Reason::ModelUnreadable
            }
            Self::UnsupportedArchitecture { .. } | Self::UnsupportedSetting { .. } | Self::TensorType { .. } => {
                Reason::ModelUnsupported
            }
            Self::TensorMissing { .. } | Self::TensorShape { .. } => Reason::ModelIncomplete,
            Self::QuantizeDevice { .. } => Reason::DeviceUnsupported,
            Self::QuantizeDtype { .. } => Reason::SettingsConflict,
            Self::Memory { .. } => Reason::MemoryTooSmall,
            Self::KvMemory { .. } => Reason::KvMemoryTooSmall,
            Self::Device { .. } => Reason::DeviceUnavailable,
            Self::Thread(_) => Reason::ThreadFailed,
        }
    }

    /// What a caller sees. INTERNAL is generic there; the chain of causes is for the log.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let reason = self.reason();
        match self {
            Self::Invalid { field, problem } => Failure::new(reason, problem).with_field(field),
            Self::PromptTooLong { field, .. } | Self::PromptOverLimit { field, .. } => {
                Failure::new(reason, self.to_string()).with_field(*field)
            }
            Self::ModelNotFound { asked, .. } => Failure::new(reason, self.to_string()).with_resource("model", asked),
            Self::QueueFull { .. } | Self::GrammarQueueFull { .. } | Self::Loading | Self::Draining => {
                Failure::new(reason, self.to_string()).retry_after(RETRY)
            }
            _ if reason.code() == Code::Internal => Failure::new(reason, "internal error"),
            _ => Failure::new(reason, self.to_string()),
        }
    }

    /// This error and its causes, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            line = format!("{line}: {error}");
            cause = error.source();
        }
        line
    }
}

/// What an operator reads when the program ends with this error: the stable reason, then the causes.
#[must_use]
pub fn describe(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Error>() {
        Some(error) => format!("{}: {}", error.reason().name(), error.chain()),
        None => format!("{error:#}"),
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let failure = error.failure();
        if failure.code() == Code::Internal {
            tracing::error!(error = error.chain(), "request failed");
        }
        failure.into()
    }
}
