//! The table of error reasons: wire name, gRPC code, retry class with its delay, marks, and meaning.
//! `proto/ERRORS.md` is generated from it.

use std::str::FromStr;
use std::time::Duration;

use tonic::Code;

/// The caller's remedy for a failure; [`remedy`](Self::remedy) states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryClass {
    /// The request would fail again.
    Never,
    /// The same replica may accept it after a delay.
    Later,
    /// Only another replica may accept it.
    OtherReplica,
}

impl RetryClass {
    /// Every class, in the order of the page of reasons.
    pub const ALL: [Self; 3] = [Self::Never, Self::Later, Self::OtherReplica];

    /// Returns the name on the page of reasons.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Later => "later",
            Self::OtherReplica => "other replica",
        }
    }

    /// Returns the remedy, as a sentence in Markdown.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Never => "Do not retry: the same request is expected to fail again, at every replica.",
            Self::Later => "Retry after `RetryInfo.retry_delay`, or at another replica without delay.",
            Self::OtherReplica => "Retry at another replica: this one answers no request until it is restarted.",
        }
    }
}

/// A property of a reason, in its row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// The server or its replicas are at fault, not the request. Alerts count these failures.
    Fault,
    /// Any method can fail with the reason, so that the comments of methods do not list it.
    AnyMethod,
    /// A server prints the reason when it cannot start. No call fails with it.
    AtStart,
}

/// No reason has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown error reason")]
pub struct UnknownReason;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $code:ident, $retry:ident $(($delay:literal ms))? $(, $mark:ident)*;)+) => {
        /// Why a request failed. Stable: programs compare it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the name on the wire, in UPPER_SNAKE.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// Returns the gRPC code of failures with this reason.
            #[must_use]
            pub fn code(self) -> Code {
                match self {
                    $(Self::$name => Code::$code,)+
                }
            }

            /// Returns the caller's remedy for failures with this reason.
            #[must_use]
            pub fn retry_class(self) -> RetryClass {
                match self {
                    $(Self::$name => RetryClass::$retry,)+
                }
            }

            /// Returns the delay of RetryInfo. None unless the retry class is [`RetryClass::Later`].
            #[must_use]
            pub fn retry_delay(self) -> Option<Duration> {
                match self {
                    $(Self::$name => None$(.or(Some(Duration::from_millis($delay))))?,)+
                }
            }

            fn marks(self) -> &'static [Mark] {
                match self {
                    $(Self::$name => &[$(Mark::$mark),*],)+
                }
            }

            /// Returns the text for people: the cause and, where there is one, the remedy.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

impl Reason {
    /// Returns true if the server or its replicas are at fault. Alerts count these failures.
    #[must_use]
    pub fn is_fault(self) -> bool {
        self.marks().contains(&Mark::Fault)
    }

    /// Returns true if any method can fail with the reason.
    #[must_use]
    pub fn is_of_any_method(self) -> bool {
        self.marks().contains(&Mark::AnyMethod)
    }

    /// Returns true if a server prints the reason when it cannot start, and no call fails with it.
    #[must_use]
    pub fn is_at_start(self) -> bool {
        self.marks().contains(&Mark::AtStart)
    }

    /// Returns the reason with a wire name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(name: &str) -> Result<Self, UnknownReason> {
        Self::from_name(name).ok_or(UnknownReason)
    }
}

reasons! {
    /// A field of the request is invalid; BadRequest names it.
    InvalidRequest = "INVALID_REQUEST", InvalidArgument, Never;
    /// The request body is not a valid protobuf message of the method's type.
    MalformedMessage = "MALFORMED_MESSAGE", InvalidArgument, Never, AnyMethod;
    /// A content block has an unknown type.
    UnknownBlock = "UNKNOWN_BLOCK", InvalidArgument, Never;
    /// A content block refers to an attachment that the request does not declare.
    DanglingAttachment = "DANGLING_ATTACHMENT", InvalidArgument, Never;
    /// An image cannot be decoded, or the numbers of images and of image placeholders differ.
    InvalidImage = "INVALID_IMAGE", InvalidArgument, Never;
    /// An image or the number of images is over a limit of the service.
    ImageOverLimit = "IMAGE_OVER_LIMIT", InvalidArgument, Never;
    /// The host of an image's URL is not allowed, or does not send the image.
    ImageNotFetched = "IMAGE_NOT_FETCHED", InvalidArgument, Never;
    /// The text is longer than the tokenizer can encode.
    TextTooLong = "TEXT_TOO_LONG", InvalidArgument, Never;
    /// The rendered prompt has more bytes than `--max-prompt-bytes`.
    PromptTooLarge = "PROMPT_TOO_LARGE", InvalidArgument, Never;
    /// The conversation has more images than `--max-images`.
    TooManyImages = "TOO_MANY_IMAGES", InvalidArgument, Never;
    /// An image has more pixels than `--max-image-pixels`.
    ImageTooLarge = "IMAGE_TOO_LARGE", InvalidArgument, Never;
    /// The prompt does not fit into the model's context; the message has the context in tokens, and the
    /// prompt in tokens, or in bytes if it was not tokenized.
    PromptTooLong = "PROMPT_TOO_LONG", InvalidArgument, Never;
    /// The prompt has more tokens than `--max-prompt-tokens`; the message has both numbers.
    PromptOverLimit = "PROMPT_OVER_LIMIT", InvalidArgument, Never;
    /// With control_tokens LITERAL: the service cannot determine which control tokens come from
    /// user text.
    ControlTokensUnclear = "CONTROL_TOKENS_UNCLEAR", InvalidArgument, Never;
    /// The chat template rejected the conversation; the message is the template's own.
    TemplateRaised = "TEMPLATE_RAISED", InvalidArgument, Never;
    /// The chat template failed on the conversation.
    TemplateFailed = "TEMPLATE_FAILED", InvalidArgument, Never;
    /// The chat template exceeded its limit of steps, memory or output on the conversation.
    TemplateLimit = "TEMPLATE_LIMIT", InvalidArgument, Never;
    /// The engine behind this replica does not have a feature that the field needs. GetLoadedModel lists them.
    UnsupportedByEngine = "UNSUPPORTED_BY_ENGINE", InvalidArgument, Never;
    /// The engine behind this replica rejected the request; the message is the engine's own.
    EngineRejected = "ENGINE_REJECTED", InvalidArgument, Never;
    /// No model has this name; ResourceInfo contains the name.
    ModelNotFound = "MODEL_NOT_FOUND", NotFound, Never;
    /// No adapter has this name; ResourceInfo contains the name.
    AdapterNotFound = "ADAPTER_NOT_FOUND", NotFound, Never;
    /// The model has no chat template with this name; ResourceInfo contains the name.
    TemplateNotFound = "TEMPLATE_NOT_FOUND", NotFound, Never;
    /// The server does not have this method.
    UnknownMethod = "UNKNOWN_METHOD", Unimplemented, Never, AnyMethod;
    /// gRPC's own health service or reflection has no service, symbol or file with this name.
    UnknownName = "UNKNOWN_NAME", NotFound, Never, AnyMethod;
    /// The request message is compressed in a way that the server does not support; the header
    /// grpc-accept-encoding lists the supported ones.
    UnsupportedEncoding = "UNSUPPORTED_ENCODING", Unimplemented, Never, AnyMethod;
    /// The model's files cannot be loaded.
    ModelNotLoaded = "MODEL_NOT_LOADED", FailedPrecondition, Never;
    /// The adapter that the request names does not support the model.
    AdapterNotApplicable = "ADAPTER_NOT_APPLICABLE", FailedPrecondition, Never;
    /// The model has no tokenizer.
    NoTokenizer = "NO_TOKENIZER", FailedPrecondition, Never;
    /// The model's own rules for reading answers (`response_template` in tokenizer_config.json) cannot be used;
    /// the message names the part at fault. Other rules can be pinned.
    RulesInvalid = "RULES_INVALID", FailedPrecondition, Never;
    /// A grammar of the calls cannot be made from the model's way to write them, so that `tool_choice` or
    /// `parallel_tool_calls` cannot be kept.
    ToolChoiceNotSupported = "TOOL_CHOICE_NOT_SUPPORTED", FailedPrecondition, Never;
    /// The token ids come from another tokenizer than the server's.
    TokenizerMismatch = "TOKENIZER_MISMATCH", FailedPrecondition, Never;
    /// The model or the task does not support images.
    ImagesNotSupported = "IMAGES_NOT_SUPPORTED", FailedPrecondition, Never;
    /// The render service was started without a generation service (`--generate`).
    NoGenerationService = "NO_GENERATION_SERVICE", FailedPrecondition, Never;
    /// The call has no bearer token.
    CredentialsMissing = "CREDENTIALS_MISSING", Unauthenticated, Never, AnyMethod;
    /// The call's bearer token is unknown or has expired.
    CredentialsInvalid = "CREDENTIALS_INVALID", Unauthenticated, Never, AnyMethod;
    /// The calls have reached `--max-calls`, or the caller's share of it; retry after RetryInfo.retry_delay.
    Overloaded = "OVERLOADED", ResourceExhausted, Later(1000 ms), AnyMethod;
    /// The messages of all calls have reached four times `--max-message-bytes`, or the caller's three; retry
    /// after RetryInfo.retry_delay.
    TotalMessageBytes = "TOTAL_MESSAGE_BYTES", ResourceExhausted, Later(1000 ms), AnyMethod;
    /// The request queue is full, or the caller's share of it; retry after RetryInfo.retry_delay.
    QueueFull = "QUEUE_FULL", ResourceExhausted, Later(500 ms);
    /// The queue of grammars to compile is full, or the caller's share of it; retry after
    /// RetryInfo.retry_delay.
    GrammarQueueFull = "GRAMMAR_QUEUE_FULL", ResourceExhausted, Later(500 ms);
    /// The request message has more bytes than `--max-message-bytes`, more than 65,536 nested
    /// messages and repeated strings, or more than 131,072 JSON values in one conversation; or the
    /// headers of the call have more than 16 KiB. Clients limit responses too, mostly to 4 MB.
    MessageTooLarge = "MESSAGE_TOO_LARGE", ResourceExhausted, Never, AnyMethod;
    /// The batch exceeded its result limit; earlier results are included.
    BatchResultsTooLarge = "BATCH_RESULTS_TOO_LARGE", ResourceExhausted, Never;
    /// The deadline passed before the response was complete.
    DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded, Never, Fault, AnyMethod;
    /// The deadline passed while the request was in the queue.
    DeadlineInQueue = "DEADLINE_IN_QUEUE", DeadlineExceeded, Never, Fault;
    /// The request message did not arrive within the read timeout.
    RequestTooSlow = "REQUEST_TOO_SLOW", DeadlineExceeded, Never, AnyMethod;
    /// The server is still loading; retry after RetryInfo.retry_delay.
    Loading = "LOADING", Unavailable, Later(1000 ms), Fault, AnyMethod;
    /// The server is shutting down; retry on another replica.
    Draining = "DRAINING", Unavailable, Later(500 ms), Fault;
    /// No generation service can be reached; retry after RetryInfo.retry_delay.
    GenerationUnavailable = "GENERATION_UNAVAILABLE", Unavailable, Later(1000 ms), Fault;
    /// The engine behind this replica cannot resume the output: it counts a presence penalty or follows a grammar
    /// from the start only. Another replica may.
    ResumeUnsupported = "RESUME_UNSUPPORTED", Unavailable, Later(500 ms);
    /// The engine behind this replica does not answer; retry on another replica.
    EngineUnavailable = "ENGINE_UNAVAILABLE", Unavailable, Later(1000 ms), Fault;
    /// The engine has failed; the server must be restarted. Retry on another replica.
    EngineFailed = "ENGINE_FAILED", Internal, OtherReplica, Fault;
    /// The computation of the model failed.
    ModelFailed = "MODEL_FAILED", Internal, Never, Fault;
    /// The tokenizer failed.
    TokenizerFailed = "TOKENIZER_FAILED", Internal, Never, Fault;
    /// The grammar failed during generation.
    GrammarFailed = "GRAMMAR_FAILED", Internal, Never, Fault;
    /// The server has a defect; its log contains the cause.
    Internal = "INTERNAL", Internal, Never, Fault, AnyMethod;
    /// The generation service returned an error with a reason that this version does not define. A
    /// defined reason keeps its name and code, and names the field of the task.
    GenerationFailed = "GENERATION_FAILED", Unknown, Never, Fault;
    /// The gRPC transport rejected the call, with its own code and message.
    Transport = "TRANSPORT", Unknown, Never, AnyMethod;
    /// The model's files cannot be read.
    ModelUnreadable = "MODEL_UNREADABLE", FailedPrecondition, Never, AtStart;
    /// The model's architecture, a setting or a tensor type is not supported.
    ModelUnsupported = "MODEL_UNSUPPORTED", FailedPrecondition, Never, AtStart;
    /// A tensor is missing from the model's files or has another shape.
    ModelIncomplete = "MODEL_INCOMPLETE", FailedPrecondition, Never, AtStart;
    /// The engine behind the bridge serves another model than its files say, lacks a setting, or rejects the
    /// bridge's token.
    EngineUnusable = "ENGINE_UNUSABLE", FailedPrecondition, Never, AtStart;
    /// The device does not support a setting.
    DeviceUnsupported = "DEVICE_UNSUPPORTED", FailedPrecondition, Never, AtStart;
    /// The device does not exist or is not available.
    DeviceUnavailable = "DEVICE_UNAVAILABLE", FailedPrecondition, Never, AtStart;
    /// Two settings exclude each other.
    SettingsConflict = "SETTINGS_CONFLICT", FailedPrecondition, Never, AtStart;
    /// The model needs more memory than is free.
    MemoryTooSmall = "MEMORY_TOO_SMALL", FailedPrecondition, Never, AtStart;
    /// Too little memory is left for the KV cache.
    KvMemoryTooSmall = "KV_MEMORY_TOO_SMALL", FailedPrecondition, Never, AtStart;
    /// The operating system did not start a thread.
    ThreadFailed = "THREAD_FAILED", Internal, Never, Fault;
}
