//! Why a request fails, and the failure that its caller sees.

use tandem_common::field::Path;
use tandem_common::status::{Failure, Reason, chain};
use tandem_images::ImageError;
use tandem_model_files::tokenizer::TokenizerError;
use tandem_template::RenderError;
use tandem_template::literal::Unclear;
use tonic::{Code, Status};

use super::fetch::FetchError;

/// An error of a request. Its caller sees the text, unless the reason is INTERNAL.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
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
        field: Path,
        /// The rule, with the limits, and the value.
        problem: String,
    },
    /// The request cannot be parsed.
    #[error("request cannot be parsed: {problem}")]
    Malformed { problem: String },
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
    #[error(
        "this image and the images before it have {tokens} tokens, context length {context} (prompt and output together)"
    )]
    ImagesTooLong {
        /// The path of an image.
        field: Path,
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
    #[error("model {model:?} is served for text only, not for messages with images")]
    ImagesNotSupported {
        /// The model's id.
        model: String,
    },
    /// An image of the request is damaged or over a limit, or the numbers of images and of image
    /// placeholders differ.
    #[error("{source}")]
    Image {
        /// The path of the image.
        field: Path,
        /// The problem.
        source: ImageError,
    },
    /// An image at a URL was not fetched.
    #[error("{source}")]
    Fetch {
        /// The path of the URL.
        field: Path,
        /// The problem.
        source: FetchError,
    },
    /// The request has too many images.
    #[error("request has more than {limit} images (--max-images)")]
    TooManyImages {
        /// The path of the first image too many.
        field: Path,
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
    QueueFull { limit: usize },
    /// The caller's share of the queue is full.
    #[error("the caller's share of the queue is full: {limit} of its requests wait, three quarters of --max-queue")]
    QueueShareFull {
        /// The limit of one caller.
        limit: usize,
    },
    /// Too many grammars wait to be compiled.
    #[error("grammar queue is full: {limit} grammars wait to be compiled")]
    GrammarQueueFull { limit: usize },
    /// The caller's share of the grammars that may wait is full.
    #[error("the caller's share of the grammar queue is full: {limit} of its grammars wait to be compiled")]
    GrammarShareFull {
        /// The limit of one caller.
        limit: usize,
    },
    /// The tokens that a grammar allows next cannot be computed.
    #[error("grammar failed: {problem}")]
    Grammar { problem: String },
    /// The request's deadline passed in the queue.
    #[error("deadline passed in the queue")]
    DeadlineInQueue,
    /// The model is still loading.
    #[error("model is loading")]
    Loading,
    /// The service is shutting down.
    #[error("server is shutting down")]
    Draining,
    /// The engine failed, and rejects new requests.
    #[error("engine failed")]
    EngineFailed,
    /// The engine behind this replica has no feature that the field needs.
    #[error("{engine} does not support this: {problem}")]
    UnsupportedByEngine {
        /// The path of the field.
        field: Path,
        /// The name of the engine.
        engine: &'static str,
        /// The missing feature, and the remedy of a caller.
        problem: &'static str,
    },
    /// The engine behind this replica cannot resume the output.
    #[error("{engine} cannot resume an output with {feature}")]
    ResumeUnsupported {
        /// The name of the engine.
        engine: &'static str,
        /// The feature that it cannot continue.
        feature: &'static str,
    },
    /// The engine behind this replica rejected the request.
    #[error("{problem}")]
    EngineRejected {
        /// The engine's own message.
        problem: String,
    },
    /// The engine behind this replica does not answer.
    #[error("engine does not answer")]
    EngineUnavailable,
    /// The prompt cannot be tokenized.
    #[error("prompt cannot be tokenized")]
    Tokenize(#[source] TokenizerError),
    /// A thread that compiles a grammar could not be started.
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
}

impl RequestError {
    /// Returns the error of an invalid value.
    pub fn invalid(field: impl Into<Path>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// Returns the error of a text that cannot be tokenized.
    pub(crate) fn encode(field: &'static str, error: TokenizerError) -> Self {
        match error {
            TokenizerError::TooLong { bytes, limit } => Self::TextTooLong { field, bytes, limit },
            other => Self::Tokenize(other),
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
            Self::Draining => Reason::Draining,
            Self::EngineFailed => Reason::EngineFailed,
            Self::UnsupportedByEngine { .. } => Reason::UnsupportedByEngine,
            Self::ResumeUnsupported { .. } => Reason::ResumeUnsupported,
            Self::EngineRejected { .. } => Reason::EngineRejected,
            Self::EngineUnavailable => Reason::EngineUnavailable,
            Self::Tokenize(_) => Reason::TokenizerFailed,
            Self::Thread(_) => Reason::ThreadFailed,
        }
    }

    /// Returns the failure that a caller sees. INTERNAL is generic; the log has the chain of
    /// causes.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let reason = self.reason();
        match self {
            Self::Invalid { field, problem } => Failure::new(reason, problem).with_field(field.clone()),
            Self::Image { field, .. }
            | Self::Fetch { field, .. }
            | Self::TooManyImages { field, .. }
            | Self::UnsupportedByEngine { field, .. }
            | Self::ImagesTooLong { field, .. } => Failure::new(reason, self.to_string()).with_field(field.clone()),
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

impl From<Unclear> for RequestError {
    fn from(_: Unclear) -> Self {
        Self::ControlTokensUnclear
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
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
