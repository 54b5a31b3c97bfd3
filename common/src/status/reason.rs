//! Why requests fail: the one table of reasons. `proto/ERRORS.md` is made of it.

use tonic::Code;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $code:ident;)+) => {
        /// Why a request failed: stable, and what programs should test.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The one of that name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.name() == name)
            }

            /// As it is on the wire, UPPER_SNAKE.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The gRPC code that it comes with.
            #[must_use]
            pub fn code(self) -> Code {
                match self {
                    $(Self::$name => Code::$code,)+
                }
            }

            /// What it means, and what to do.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// A field of the request is not acceptable; BadRequest names it.
    InvalidRequest = "INVALID_REQUEST", InvalidArgument;
    /// The message is not of its type.
    MalformedMessage = "MALFORMED_MESSAGE", InvalidArgument;
    /// A content block of a kind that is not known.
    UnknownBlock = "UNKNOWN_BLOCK", InvalidArgument;
    /// A block refers to an attachment that is not there.
    DanglingAttachment = "DANGLING_ATTACHMENT", InvalidArgument;
    /// The text is longer than can be tokenized.
    TextTooLong = "TEXT_TOO_LONG", InvalidArgument;
    /// The rendered prompt has more bytes than the server allows (`--max-prompt-bytes`).
    PromptTooLarge = "PROMPT_TOO_LARGE", InvalidArgument;
    /// More images in a conversation than the server allows (`--max-images`).
    TooManyImages = "TOO_MANY_IMAGES", InvalidArgument;
    /// An image has more pixels than the server allows (`--max-image-pixels`).
    ImageTooLarge = "IMAGE_TOO_LARGE", InvalidArgument;
    /// The prompt is longer than the model's context; the message has both numbers.
    PromptTooLong = "PROMPT_TOO_LONG", InvalidArgument;
    /// The prompt has more tokens than the server takes (`--max-prompt-tokens`); the message has both numbers.
    PromptOverLimit = "PROMPT_OVER_LIMIT", InvalidArgument;
    /// With control_tokens LITERAL: which control tokens of the prompt are the caller's cannot be told.
    ControlTokensUnclear = "CONTROL_TOKENS_UNCLEAR", InvalidArgument;
    /// The chat template refused the conversation, in its own words.
    TemplateRaised = "TEMPLATE_RAISED", InvalidArgument;
    /// The chat template failed on the conversation.
    TemplateFailed = "TEMPLATE_FAILED", InvalidArgument;
    /// The chat template takes more time, memory or output for the conversation than is allowed.
    TemplateLimit = "TEMPLATE_LIMIT", InvalidArgument;
    /// There is no such model; ResourceInfo names it.
    ModelNotFound = "MODEL_NOT_FOUND", NotFound;
    /// There is no such adapter; ResourceInfo names it.
    AdapterNotFound = "ADAPTER_NOT_FOUND", NotFound;
    /// The model has no template of that name; ResourceInfo names it.
    TemplateNotFound = "TEMPLATE_NOT_FOUND", NotFound;
    /// This server has no such method.
    UnknownMethod = "UNKNOWN_METHOD", Unimplemented;
    /// The model's files cannot be used.
    ModelNotLoaded = "MODEL_NOT_LOADED", FailedPrecondition;
    /// The adapter that the request names cannot serve the model.
    AdapterNotApplicable = "ADAPTER_NOT_APPLICABLE", FailedPrecondition;
    /// The model has no tokenizer.
    NoTokenizer = "NO_TOKENIZER", FailedPrecondition;
    /// The token ids were made by another tokenizer than the server's.
    TokenizerMismatch = "TOKENIZER_MISMATCH", FailedPrecondition;
    /// The model, or the task, takes no images.
    ImagesNotSupported = "IMAGES_NOT_SUPPORTED", FailedPrecondition;
    /// The render service was started without a generation service.
    NoGenerationService = "NO_GENERATION_SERVICE", FailedPrecondition;
    /// The call has no credentials.
    CredentialsMissing = "CREDENTIALS_MISSING", Unauthenticated;
    /// The call's credentials are unknown, or have expired.
    CredentialsInvalid = "CREDENTIALS_INVALID", Unauthenticated;
    /// The server works on as many calls as it takes; RetryInfo says when to come again.
    Overloaded = "OVERLOADED", ResourceExhausted;
    /// As many requests wait as may; RetryInfo says when to come again.
    QueueFull = "QUEUE_FULL", ResourceExhausted;
    /// As many grammars are being compiled as may; RetryInfo says when to come again.
    GrammarQueueFull = "GRAMMAR_QUEUE_FULL", ResourceExhausted;
    /// The message is larger than the server takes.
    MessageTooLarge = "MESSAGE_TOO_LARGE", ResourceExhausted;
    /// The results of a batch take more memory than they may; those before are there.
    BatchResultsTooLarge = "BATCH_RESULTS_TOO_LARGE", ResourceExhausted;
    /// The deadline passed.
    DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded;
    /// The deadline passed before the request's turn came.
    DeadlineInQueue = "DEADLINE_IN_QUEUE", DeadlineExceeded;
    /// The request's message did not arrive in time.
    RequestTooSlow = "REQUEST_TOO_SLOW", DeadlineExceeded;
    /// The server is not ready yet; RetryInfo says when to come again.
    Loading = "LOADING", Unavailable;
    /// The server ends, and takes nothing new on; RetryInfo says when to come again, to another.
    Draining = "DRAINING", Unavailable;
    /// No generation service can be reached; RetryInfo says when to come again.
    GenerationUnavailable = "GENERATION_UNAVAILABLE", Unavailable;
    /// The engine has broken down; the server has to be started again.
    EngineFailed = "ENGINE_FAILED", Internal;
    /// The model could not be computed.
    ModelFailed = "MODEL_FAILED", Internal;
    /// The tokenizer failed.
    TokenizerFailed = "TOKENIZER_FAILED", Internal;
    /// A grammar failed while it was followed.
    GrammarFailed = "GRAMMAR_FAILED", Internal;
    /// A defect of the server.
    Internal = "INTERNAL", Internal;
    /// The generation service answered with an error; on the wire that error is passed on as it is.
    GenerationFailed = "GENERATION_FAILED", Unknown;
    /// What the transport itself says, with a code of its own.
    Transport = "TRANSPORT", Unknown;
    /// At start: the model's files cannot be read.
    ModelUnreadable = "MODEL_UNREADABLE", FailedPrecondition;
    /// At start: the model is of a kind that is not supported.
    ModelUnsupported = "MODEL_UNSUPPORTED", FailedPrecondition;
    /// At start: the model's files lack a tensor, or one has another shape.
    ModelIncomplete = "MODEL_INCOMPLETE", FailedPrecondition;
    /// At start: the device does not have what is asked for.
    DeviceUnsupported = "DEVICE_UNSUPPORTED", FailedPrecondition;
    /// At start: there is no such device.
    DeviceUnavailable = "DEVICE_UNAVAILABLE", FailedPrecondition;
    /// At start: settings exclude each other.
    SettingsConflict = "SETTINGS_CONFLICT", FailedPrecondition;
    /// At start: the weights take more memory than there is.
    MemoryTooSmall = "MEMORY_TOO_SMALL", FailedPrecondition;
    /// At start: there is too little memory for keys and values.
    KvMemoryTooSmall = "KV_MEMORY_TOO_SMALL", FailedPrecondition;
    /// At start: a thread could not be started.
    ThreadFailed = "THREAD_FAILED", Internal;
}
