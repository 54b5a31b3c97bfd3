//! The errors of this service, and the failure that a caller sees for each.

mod config;
mod device;
mod fetch;

use std::path::PathBuf;

use tandem_common::status::{Failure, Reason, chain};
use tandem_images::{ImageError, ProcessorError};
use tandem_model_files::artifacts::ArtifactsError;
use tandem_model_files::artifacts::safetensors::SafetensorsError;
use tandem_model_files::gguf::GgufError;
use tandem_model_files::tokenizer::TokenizerError;
use tandem_template::literal::Unclear;
use tandem_template::{CompileError, RenderError};
use tch::TchError;
use tonic::{Code, Status};

pub use config::ConfigError;
pub use device::{DeviceFault, DeviceNeed, KvNeed};
pub use fetch::FetchError;

/// An error of this service. Callers see the first group, operators the second, when a model is
/// loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request names a model that is not served.
    #[error("model {asked:?} not found; there is {served}")]
    ModelNotFound {
        /// The id in the request.
        asked: String,
        /// The id of the served model.
        served: String,
    },
    /// A value in the request is invalid.
    #[error("{field}: {problem}")]
    Invalid {
        /// The path of the field, in the protocol's names.
        field: String,
        /// The rule, with the limits, and the value.
        problem: String,
    },
    /// The request cannot be parsed.
    #[error("request cannot be parsed: {problem}")]
    Malformed {
        /// The problem.
        problem: String,
    },
    /// The prompt leaves no room for output.
    #[error("prompt has {tokens} tokens, context length {context} (prompt and output together)")]
    PromptTooLong {
        /// The path of the input.
        field: &'static str,
        /// Tokens in the prompt.
        tokens: usize,
        /// Tokens in the context.
        context: usize,
    },
    /// The images leave no room for output.
    #[error("images up to this one have {tokens} tokens, context length {context} (prompt and output together)")]
    ImagesTooLong {
        /// The path of an image.
        field: String,
        /// Tokens of the prepared images. The others are not prepared.
        tokens: usize,
        /// Tokens in the context.
        context: usize,
    },
    /// The prepared images of all requests take too much memory.
    #[error(
        "prepared images of all requests, or of this caller, take more than {limit_mib} MiB (--max-image-memory-mib)"
    )]
    ImageMemoryFull {
        /// The configured limit, or the part of one caller.
        limit_mib: usize,
    },
    /// The prompt has too many bytes for the context, whatever its tokens.
    #[error("prompt has {bytes} bytes, more than {context} tokens can have (the context length)")]
    PromptTooLarge {
        /// The path of the input.
        field: &'static str,
        /// Bytes of the prompt.
        bytes: usize,
        /// Tokens in the context.
        context: usize,
    },
    /// The prompt has more bytes than the tokenizer can encode.
    #[error("prompt has {bytes} bytes, limit {limit} for this model's tokenizer")]
    TextTooLong {
        /// The path of the input.
        field: &'static str,
        /// Bytes of the prompt.
        bytes: usize,
        /// The tokenizer's limit.
        limit: usize,
    },
    /// The prompt is longer than the server accepts.
    #[error("prompt has {tokens} tokens, limit {limit} (--max-prompt-tokens)")]
    PromptOverLimit {
        /// The path of the input.
        field: &'static str,
        /// Tokens in the prompt.
        tokens: usize,
        /// The configured limit.
        limit: usize,
    },
    /// The caller used another tokenizer.
    #[error("tokenizer has SHA-256 {found}, request expects {expected}")]
    TokenizerMismatch {
        /// The hash in the request.
        expected: String,
        /// The hash of the model's tokenizer.
        found: String,
    },
    /// The model supports text only.
    #[error("model {model:?} supports text only, not messages with images")]
    ImagesNotSupported {
        /// The model's id.
        model: String,
    },
    /// An image of the request is damaged or over a limit, or the prompt has another number of places
    /// for images.
    #[error("{source}")]
    Image {
        /// The path of the image.
        field: String,
        /// The problem.
        source: ImageError,
    },
    /// An image at a URL was not fetched.
    #[error("{source}")]
    Fetch {
        /// The path of the URL.
        field: String,
        /// The problem.
        source: FetchError,
    },
    /// The request has too many images.
    #[error("request has more than {limit} images (--max-images)")]
    TooManyImages {
        /// The path of the first image too many.
        field: String,
        /// The limit.
        limit: usize,
    },
    /// The model's chat template fails with the messages.
    #[error("{source}")]
    Template {
        /// The path of the messages.
        field: &'static str,
        /// The failure.
        source: Box<RenderError>,
    },
    /// Control tokens of messages shall stay text, and it is unclear which come from the messages. They
    /// render to another text when tainted.
    #[error(
        "cannot determine which control tokens of the prompt come from the messages: they render differently with \
         tainted text"
    )]
    ControlTokensUnclear,
    /// The queue is full.
    #[error("queue is full: {limit} requests wait (--max-queue)")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The caller's share of the queue is full.
    #[error("the caller's share of the queue is full: {limit} of its requests wait, three quarters of --max-queue")]
    QueueShareFull {
        /// The limit of one caller.
        limit: usize,
    },
    /// Too many grammars wait to be compiled.
    #[error("grammar queue is full: {limit} grammars wait to be compiled")]
    GrammarQueueFull {
        /// The limit.
        limit: usize,
    },
    /// The caller's share of the grammars that may wait is full.
    #[error("the caller's share of the grammar queue is full: {limit} of its grammars wait to be compiled")]
    GrammarShareFull {
        /// The limit of one caller.
        limit: usize,
    },
    /// The tokens that a grammar allows next cannot be computed.
    #[error("grammar failed: {problem}")]
    Grammar {
        /// The problem.
        problem: String,
    },
    /// The request's deadline passed in the queue.
    #[error("deadline passed in the queue")]
    DeadlineInQueue,
    /// The model is still loading.
    #[error("model is loading")]
    Loading,
    /// The service is shutting down.
    #[error("server is shutting down")]
    Draining,
    /// The load was cancelled, because the server is shutting down.
    #[error("load cancelled: server is shutting down")]
    LoadCancelled,
    /// The engine failed, and rejects new requests.
    #[error("engine failed")]
    EngineFailed,
    /// The prompt cannot be tokenized.
    #[error("prompt cannot be tokenized")]
    Tokenize(#[source] TokenizerError),
    /// The model computed logits that are not finite.
    #[error("logits are not finite")]
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
    /// The model's safetensors files are missing or malformed.
    #[error("the model's weights are not readable")]
    Safetensors(#[source] Box<SafetensorsError>),
    /// The header of the model's file is malformed.
    #[error("the model's header is not readable")]
    Header(#[source] Box<GgufError>),
    /// The model's image processor cannot be used.
    #[error("the model's image processor cannot be used")]
    Processor(#[from] ProcessorError),
    /// The model with images has no chat template.
    #[error("the model has no chat template, which places images")]
    NoTemplate,
    /// The model's chat template does not compile.
    #[error("the model's chat template does not compile")]
    TemplateSource(#[from] CompileError),
    /// The token of images is not in the vocabulary.
    #[error("the vocabulary has no image token {token:?}")]
    ImageToken {
        /// The token.
        token: String,
    },
    /// The projector of an `mmproj` file is not supported.
    #[error("{}: projector {found:?} is not supported; these are: {supported}", file.display())]
    UnsupportedProjector {
        /// The file.
        file: PathBuf,
        /// The value of `clip.projector_type`.
        found: String,
        /// The names of the supported projectors.
        supported: String,
    },
    /// The projector of an `mmproj` file is for other language models.
    #[error("{}: projector {projector:?} needs a language model of {expected}, the model is {found}", file.display())]
    ProjectorOfOthers {
        /// The file.
        file: PathBuf,
        /// The projector.
        projector: &'static str,
        /// The names of its language models.
        expected: String,
        /// The name of the language model.
        found: String,
    },
    /// The rows of an `mmproj` file do not have the language model's hidden size.
    #[error("{}: projector has rows of {found} numbers, the model's hidden size is {expected}", file.display())]
    ProjectorRows {
        /// The file.
        file: PathBuf,
        /// The value of `clip.vision.projection_dim`.
        found: u32,
        /// The hidden size.
        expected: u32,
    },
    /// The image processor's settings do not suit the vision tower.
    #[error("the settings of the image processor do not fit the model's config: {problem}")]
    ProcessorOfOthers {
        /// What does not fit.
        problem: String,
    },
    /// A setting of the `mmproj` file is not supported.
    #[error("the mmproj file has {key} = {value}, which is not supported")]
    MmprojSetting {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Several `mmproj` files beside the model fit it.
    #[error("several mmproj files beside the model fit it: {names}; name one with --mmproj")]
    SeveralMmproj {
        /// Their names.
        names: String,
    },
    /// An `mmproj` file is given for a folder with safetensors.
    #[error("--mmproj needs a GGUF file as the model, {} is a folder with its own tower", model.display())]
    MmprojOfFolder {
        /// The folder.
        model: PathBuf,
    },
    /// The architecture is not supported.
    #[error("architecture {found:?} is not supported; these are: {supported}")]
    UnsupportedArchitecture {
        /// The architecture in the model's config.
        found: String,
        /// The names of the supported architectures.
        supported: String,
    },
    /// A setting of the model's config is missing or has the wrong type.
    #[error("the model's config is not readable")]
    Config(#[source] ConfigError),
    /// A setting of the model's config is not supported.
    #[error("the model's config has {setting} = {value}, which is not supported")]
    UnsupportedSetting {
        /// The name in `config.json`.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// A sampling default of the model is out of range.
    #[error("{}: {parameter} {problem}; correct it, or name another file with --generation-config", file.display())]
    SamplingDefault {
        /// The file that has the value.
        file: PathBuf,
        /// The name of the parameter.
        parameter: String,
        /// The range and the value.
        problem: String,
    },
    /// A tensor of the architecture is missing in the file.
    #[error("tensor {name} is missing")]
    TensorMissing {
        /// The name in the file.
        name: String,
    },
    /// The data of a tensor cannot be read, or the file was changed.
    #[error("tensor {name} cannot be read")]
    TensorRead {
        /// The name in the file.
        name: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A tensor that is a setting has a value that is NaN or infinite.
    #[error("tensor {name} has the value {found}, expected finite numbers")]
    TensorNotFinite {
        /// The name in the file.
        name: String,
        /// The value.
        found: f32,
    },
    /// A tensor has another shape than the config implies.
    #[error("tensor {name} has shape {found:?}, expected {expected:?}")]
    TensorShape {
        /// The name in the file.
        name: String,
        /// The shape that the config implies.
        expected: Vec<i64>,
        /// The shape in the file.
        found: Vec<i64>,
    },
    /// A tensor has a storage type that is not supported.
    #[error("tensor {name} has type {found}, which is not supported")]
    TensorType {
        /// The name in the file.
        name: String,
        /// The storage type.
        found: String,
    },
    /// The device is not available.
    #[error("device {device} is not available: {problem}")]
    Device {
        /// The configured device.
        device: String,
        /// The problem.
        problem: String,
    },
    /// The CPU's own kernels compute, which have one device.
    #[error("--device {devices} needs --runtime torch: the CPU's own kernels compute on one device")]
    DevicesOfKernels {
        /// The configured devices.
        devices: String,
    },
    /// The model has fewer parts than there are devices.
    #[error(
        "--device names {devices} devices, limit {limit}: the parts into which the layers of this model can be divided"
    )]
    TooManyDevices {
        /// The number of configured devices.
        devices: usize,
        /// The number of parts.
        limit: usize,
    },
    /// The kernels rejected a call.
    #[error("the kernels failed")]
    Kernels(#[from] tandem_kernels::Error),
    /// A step came before the KV cache was allocated.
    #[error("KV cache is not allocated")]
    NoKvMemory,
    /// libtorch computes, which does not support the quantization.
    #[error("--quantize {quantize} needs --device cpu, without --runtime torch or --dtype f16")]
    QuantizeDevice {
        /// The configured quantization.
        quantize: &'static str,
    },
    /// A GPU computes 4 bits, which needs bf16.
    #[error("--quantize int4 on a GPU needs --dtype bf16")]
    QuantizeGpuDtype,
    /// The quantization and the dtype exclude each other.
    #[error("--quantize {quantize} is computed in f32; leave out --dtype bf16, or --quantize")]
    QuantizeDtype {
        /// The configured quantization.
        quantize: &'static str,
    },
    /// The weights need more memory than is free.
    #[error("weights need {needed} bytes, {available} bytes are free")]
    Memory {
        /// Bytes of the loaded weights.
        needed: u64,
        /// Free bytes.
        available: u64,
    },
    /// The weights and the KV cache need more memory than a GPU has left for this process.
    #[error(
        "weights need {} MiB and {kv}, {} MiB of {device} are left: --gpu-memory {share} of {} MiB, less the used memory",
        needed.div_ceil(1 << 20),
        available >> 20,
        total >> 20
    )]
    GpuMemory {
        /// The configured device.
        device: String,
        /// Bytes of the loaded weights.
        needed: u64,
        /// The KV cache beside them.
        kv: KvNeed,
        /// Bytes of the share that are not used.
        available: u64,
        /// The configured share.
        share: f64,
        /// All bytes of the GPU.
        total: u64,
    },
    /// The configured KV cache needs more memory than the weights and a step leave on a GPU.
    #[error(
        "KV cache needs {} MiB (--kv-memory-mib), weights and a step leave {} MiB of {device}: --gpu-memory {share} of {} MiB",
        needed.div_ceil(1 << 20),
        available >> 20,
        total >> 20
    )]
    GpuKvMemory {
        /// The configured device.
        device: String,
        /// Bytes of its part of the KV cache.
        needed: u64,
        /// Bytes of the share that are not used.
        available: u64,
        /// The configured share.
        share: f64,
        /// All bytes of the GPU.
        total: u64,
    },
    /// A step of the largest shapes needs more memory than the weights leave.
    #[error(
        "a step of {prefill_chunk} prompt tokens (--prefill-chunk) and {max_running} outputs (--max-running){} \
         exceeds the memory that the weights leave",
        if *has_image { " beside the largest image (--max-image-pixels, --max-image-tiles)" } else { "" }
    )]
    StepMemory {
        /// The configured tokens.
        prefill_chunk: usize,
        /// The configured outputs.
        max_running: usize,
        /// True if the model has images.
        has_image: bool,
        /// libtorch's error.
        source: Box<Error>,
    },
    /// The largest image needs more memory than the weights leave.
    #[error(
        "the largest image, of {} MiB of pixel values {shape:?}, exceeds the memory that the weights leave \
         (--max-image-pixels, --max-image-tiles)",
        shape.iter().product::<usize>() >> 18
    )]
    ImageMemory {
        /// The shape of its pixel values.
        shape: Vec<usize>,
        /// libtorch's error.
        source: Box<Error>,
    },
    /// A part of the weights needs more memory than its GPU has left for this process.
    #[error("weights need {}: --gpu-memory {share} of each, less the used memory", DeviceNeed::list(needs))]
    GpuMemories {
        /// The bytes on each GPU, divided so that the fewest are missing on one.
        needs: Vec<DeviceNeed>,
        /// The configured share.
        share: f64,
    },
    /// The KV cache has no room for a usable context.
    #[error("KV cache has {} MiB, minimum {} MiB (--kv-memory-mib)", bytes >> 20, least.div_ceil(1 << 20))]
    KvMemory {
        /// The size in bytes.
        bytes: u64,
        /// The least size in bytes.
        least: u64,
    },
    /// The engine's thread, or the thread that compiles a grammar, could not be started.
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
}

impl From<Unclear> for Error {
    fn from(_: Unclear) -> Self {
        Self::ControlTokensUnclear
    }
}

impl Error {
    /// Returns the error of an invalid value in a request.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// Returns the error of a text that cannot be tokenized.
    pub(crate) fn encode(field: &'static str, error: TokenizerError) -> Self {
        match error {
            TokenizerError::TooLong { bytes, limit } => Self::TextTooLong { field, bytes, limit },
            other => Self::Tokenize(other),
        }
    }

    /// Returns the failure of the device that the error reports, if it does.
    #[must_use]
    pub fn device_fault(&self) -> Option<DeviceFault> {
        match self {
            Self::Torch(TchError::Torch(text)) => DeviceFault::of(text),
            _ => None,
        }
    }

    /// Returns the stable reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::ModelNotFound { .. } => Reason::ModelNotFound,
            Self::Invalid { .. } => Reason::InvalidRequest,
            Self::Malformed { .. } => Reason::MalformedMessage,
            Self::PromptTooLong { .. } | Self::PromptTooLarge { .. } | Self::ImagesTooLong { .. } => {
                Reason::PromptTooLong
            }
            Self::TextTooLong { .. } => Reason::TextTooLong,
            Self::PromptOverLimit { .. } => Reason::PromptOverLimit,
            Self::TokenizerMismatch { .. } => Reason::TokenizerMismatch,
            Self::ImagesNotSupported { .. } => Reason::ImagesNotSupported,
            Self::Image { source, .. } => image_reason(source),
            Self::Fetch { source: FetchError::TooLarge { .. } | FetchError::TooLargeTogether { .. }, .. }
            | Self::TooManyImages { .. } => Reason::ImageOverLimit,
            Self::Fetch { .. } => Reason::ImageNotFetched,
            Self::Template { source, .. } => template_reason(source),
            Self::ControlTokensUnclear => Reason::ControlTokensUnclear,
            Self::QueueFull { .. } | Self::QueueShareFull { .. } | Self::ImageMemoryFull { .. } => Reason::QueueFull,
            Self::GrammarQueueFull { .. } | Self::GrammarShareFull { .. } => Reason::GrammarQueueFull,
            Self::Grammar { .. } => Reason::GrammarFailed,
            Self::DeadlineInQueue => Reason::DeadlineInQueue,
            Self::Loading => Reason::Loading,
            Self::Draining | Self::LoadCancelled => Reason::Draining,
            Self::EngineFailed => Reason::EngineFailed,
            Self::Tokenize(_) => Reason::TokenizerFailed,
            Self::NotFinite | Self::Torch(_) | Self::Kernels(_) | Self::NoKvMemory => Reason::ModelFailed,
            Self::Artifacts(_)
            | Self::Tokenizer(_)
            | Self::Safetensors(_)
            | Self::Header(_)
            | Self::Config(_)
            | Self::SamplingDefault { .. }
            | Self::TemplateSource(_)
            | Self::TensorRead { .. }
            | Self::TensorNotFinite { .. } => Reason::ModelUnreadable,
            Self::UnsupportedArchitecture { .. }
            | Self::UnsupportedProjector { .. }
            | Self::MmprojSetting { .. }
            | Self::UnsupportedSetting { .. }
            | Self::Processor(_)
            | Self::TensorType { .. } => Reason::ModelUnsupported,
            Self::TensorMissing { .. } | Self::TensorShape { .. } | Self::NoTemplate | Self::ImageToken { .. } => {
                Reason::ModelIncomplete
            }
            Self::QuantizeDevice { .. } => Reason::DeviceUnsupported,
            Self::QuantizeDtype { .. }
            | Self::QuantizeGpuDtype
            | Self::DevicesOfKernels { .. }
            | Self::TooManyDevices { .. }
            | Self::ProjectorOfOthers { .. }
            | Self::ProjectorRows { .. }
            | Self::ProcessorOfOthers { .. }
            | Self::SeveralMmproj { .. }
            | Self::MmprojOfFolder { .. } => Reason::SettingsConflict,
            Self::Memory { .. }
            | Self::GpuMemory { .. }
            | Self::GpuMemories { .. }
            | Self::StepMemory { .. }
            | Self::ImageMemory { .. } => Reason::MemoryTooSmall,
            Self::KvMemory { .. } | Self::GpuKvMemory { .. } => Reason::KvMemoryTooSmall,
            Self::Device { .. } => Reason::DeviceUnavailable,
            Self::Thread(_) => Reason::ThreadFailed,
        }
    }

    /// Returns the failure that a caller sees. INTERNAL is generic; the log has the chain of
    /// causes.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let reason = self.reason();
        match self {
            Self::Invalid { field, problem } => Failure::new(reason, problem).with_field(field),
            Self::Image { field, .. }
            | Self::Fetch { field, .. }
            | Self::TooManyImages { field, .. }
            | Self::ImagesTooLong { field, .. } => Failure::new(reason, self.to_string()).with_field(field),
            Self::PromptTooLong { field, .. }
            | Self::PromptTooLarge { field, .. }
            | Self::TextTooLong { field, .. }
            | Self::Template { field, .. }
            | Self::PromptOverLimit { field, .. } => Failure::new(reason, self.to_string()).with_field(*field),
            Self::ModelNotFound { asked, .. } => {
                Failure::new(reason, self.to_string()).with_field("model").with_resource("model", asked)
            }
            _ if reason.code() == Code::Internal => Failure::new(reason, "internal error"),
            _ => Failure::new(reason, self.to_string()),
        }
    }

    /// Returns this error and its causes in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unsupported { name, value } => Self::UnsupportedSetting { setting: name, value },
            error => Self::Config(error),
        }
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

/// Returns the reason of a template's error.
fn template_reason(error: &RenderError) -> Reason {
    match error {
        RenderError::Raised { .. } => Reason::TemplateRaised,
        RenderError::Limit { .. } => Reason::TemplateLimit,
        RenderError::Runtime { .. } => Reason::TemplateFailed,
        RenderError::ContinueFinalMessage { .. } | RenderError::Input { .. } => Reason::InvalidRequest,
        RenderError::Cancelled => Reason::Internal,
    }
}

/// Returns the reason of a refused image.
fn image_reason(error: &ImageError) -> Reason {
    match error {
        ImageError::Bytes { .. }
        | ImageError::Pixels { .. }
        | ImageError::Side { .. }
        | ImageError::Tiles { .. }
        | ImageError::Scans { .. } => Reason::ImageOverLimit,
        _ => Reason::InvalidImage,
    }
}
