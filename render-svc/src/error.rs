//! The errors of requests, and the only table of their statuses.

use std::fmt::Write as _;
use std::path::{self, PathBuf};
use std::sync::Arc;

use tandem_common::field::Path;
use tandem_common::status::{Failure, Reason, chain};
use tandem_common::suggestion::nearest;
use tandem_model_files::tokenizer::TokenizerError;
use tandem_template::{Limit, RenderError, literal};
use tonic::Status;

use crate::conversation::Invalid;
use crate::parse::RulesProblem;

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No model has the requested id.
    #[error("model {model:?} not found; {}", known_models(known))]
    ModelNotFound {
        /// The requested name.
        model: String,
        /// The known names.
        known: Vec<String>,
    },
    /// The request names no model, and the service has several models or none.
    #[error("the request names no model; {}", choices(known))]
    ModelNotNamed {
        /// The known names.
        known: Vec<String>,
    },
    /// The model's files could not be loaded.
    #[error("{}", chain(cause.as_ref()))]
    ModelNotLoaded {
        /// Path of the files.
        path: PathBuf,
        /// The reason.
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// No adapter has the requested name.
    #[error("there is no adapter {adapter:?}; there are {}", known.join(", "))]
    AdapterNotFound {
        /// The requested name.
        adapter: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// The pinned adapter cannot render for the model.
    #[error("adapter {adapter:?} cannot serve model {model:?}: {reason}")]
    AdapterNotApplicable {
        /// The pinned adapter.
        adapter: &'static str,
        model: String,
        reason: String,
    },
    /// A field of the request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A block refers to an attachment that is not declared.
    #[error("{field}: there is no attachment {id:?}")]
    DanglingAttachment {
        /// The path, such as `messages[2].content[0].attachment_id`.
        field: Path,
        id: String,
    },
    /// The model has no template of the requested name, or no default template.
    #[error("the model has no chat template {template:?}; {}", known_templates(known))]
    TemplateNotFound {
        /// The requested name.
        template: String,
        /// The known names.
        known: Vec<String>,
    },
    /// With LITERAL, the prompt contains control tokens, and the service cannot determine which of
    /// them come from the caller. The tainted conversation renders to another prompt or fails, or
    /// the conversation contains tainted characters of every taint.
    #[error(
        "cannot determine which control tokens of the prompt come from the conversation: it renders differently with \
         tainted text"
    )]
    ControlTokensUnclear,
    /// The results of a batch need too much memory.
    #[error("the results of the batch exceed {limit} bytes; earlier results are included")]
    BatchResultsTooLarge {
        /// Maximum bytes.
        limit: usize,
    },
    /// A batch contains too many requests.
    #[error("batch has {found} requests, limit {limit}")]
    BatchTooLarge {
        /// The maximum.
        limit: usize,
        /// The actual number.
        found: usize,
    },
    /// A call has too many token ids to detokenize.
    #[error("must have at most {limit} ids, has {found}")]
    TooManyTokenIds {
        /// The maximum.
        limit: usize,
        /// The actual number.
        found: usize,
    },
    /// The chat template failed.
    #[error("the chat template failed")]
    Template(#[from] RenderError),
    /// The chat template failed for a part of the conversation.
    #[error("the chat template failed")]
    TemplateAt {
        /// The template's error.
        source: RenderError,
        /// The path of the part without which it does not fail, such as `tools[0]`, if it was found.
        field: Option<Path>,
        /// The paths of the messages without content, such as `messages[2]`.
        messages: Vec<Path>,
    },
    /// The model has no tokenizer.
    #[error("model {model:?} has no tokenizer: {problem}")]
    NoTokenizer {
        model: String,
        /// Path of its files.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A token id is not in the model's vocabulary.
    #[error("{id} is no token of this model")]
    UnknownTokenId {
        /// Its position in the request.
        index: usize,
        id: u32,
    },
    /// The rules that read answers cannot be used.
    #[error(transparent)]
    Rules(RulesProblem),
    /// The choice of tools cannot be kept to.
    #[error("{message}")]
    ToolChoiceNotSupported {
        /// The field with the choice.
        field: &'static str,
        message: String,
    },
    /// The task contains images, and the tokenizer has no token for their markers.
    #[error(
        "images have no place in the prompt: the tokenizer of this model has no token for them; \
         use a model with images, or remove them from the conversation"
    )]
    ImagesNotSupported,
    /// No generation service was configured.
    #[error("this server has no generation service: start it with --generate ADDRESS")]
    NoGenerationService,
    /// No replica of the generation service answered.
    #[error("the generation service is unavailable: {message}")]
    GenerationUnavailable {
        /// The transport's message, or the reason why no replica was called.
        message: String,
    },
    /// The prompt has too many bytes.
    #[error("prompt has {found} bytes, limit {limit} (--max-prompt-bytes)")]
    PromptTooLarge {
        /// The maximum.
        limit: u64,
        /// The actual number.
        found: usize,
    },
    /// The caller's deadline passed before the generation began.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// The caller's deadline passed while no replica could be used.
    #[error("the deadline passed: {explanation}")]
    NoReplicaInTime {
        /// Why no replica could be used.
        explanation: String,
    },
    /// The generation service rejected the request. The failure names fields of the task.
    #[error("the generation service answered: {}", .0.message())]
    Generation(Box<Failure>),
    /// The failure of a request whose fields have the paths of the contract.
    #[error("{}", .0.message())]
    Contract(Box<Failure>),
    /// The vocabulary has too many control tokens to search.
    #[error("the control tokens cannot be searched for")]
    ControlTokens(#[from] literal::BuildError),
    /// A defect of this service.
    #[error("internal error")]
    Internal(#[from] tokio::task::JoinError),
}

impl From<literal::Unclear> for Error {
    fn from(_: literal::Unclear) -> Self {
        Self::ControlTokensUnclear
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        match error {
            Error::ModelNotFound { model, known } => Failure::new(Reason::ModelNotFound, not_found(model, known))
                .with_field("model")
                .with_resource("model", model),
            Error::ModelNotNamed { known } => Failure::invalid("model", not_named(known)),
            Error::ModelNotLoaded { path, .. } => {
                Failure::new(Reason::ModelNotLoaded, without_folder(&message, path)).with_field("model")
            }
            Error::AdapterNotFound { adapter, .. } => {
                Failure::new(Reason::AdapterNotFound, message).with_field("adapter").with_resource("adapter", adapter)
            }
            Error::AdapterNotApplicable { .. } => {
                Failure::new(Reason::AdapterNotApplicable, message).with_context("adapter")
            }
            Error::Invalid(Invalid { reason, field, problem }) => {
                Failure::new(*reason, problem).with_field(field.clone())
            }
            Error::DanglingAttachment { field, id } => {
                let message = format!("there is no attachment {id:?}");
                Failure::new(Reason::DanglingAttachment, message).with_field(field.clone())
            }
            Error::TemplateNotFound { template, .. } => Failure::new(Reason::TemplateNotFound, message)
                .with_field("template")
                .with_resource("template", template),
            Error::ControlTokensUnclear => Failure::new(Reason::ControlTokensUnclear, message).with_context("messages"),
            Error::BatchResultsTooLarge { .. } => Failure::new(Reason::BatchResultsTooLarge, message),
            Error::BatchTooLarge { .. } => Failure::invalid("requests", message),
            Error::TooManyTokenIds { .. } => Failure::invalid("token_ids", message),
            Error::Template(RenderError::Cancelled) => Failure::new(Reason::Internal, "internal error"),
            Error::Template(cause) => template_failure(cause, None, &[]),
            Error::TemplateAt { source, field, messages } => template_failure(source, field.as_ref(), messages),
            Error::NoTokenizer { path, .. } => {
                Failure::new(Reason::NoTokenizer, without_folder(&message, path)).with_context("model")
            }
            Error::Tokenizer(TokenizerError::TooLong { .. }) => {
                Failure::new(Reason::TextTooLong, message).with_context("text")
            }
            Error::Tokenizer(TokenizerError::DecodedTooLong { .. }) => {
                Failure::new(Reason::TextTooLong, message).with_field("token_ids")
            }
            Error::UnknownTokenId { index, .. } => Failure::invalid(Path::item("token_ids", *index), message),
            Error::Rules(RulesProblem::Unknown { .. } | RulesProblem::Absent) => Failure::invalid("rules", message),
            Error::Rules(RulesProblem::Template(_) | RulesProblem::Prompt(_)) => {
                Failure::new(Reason::RulesInvalid, message).with_context("model")
            }
            Error::ToolChoiceNotSupported { field, .. } => {
                Failure::new(Reason::ToolChoiceNotSupported, message).with_field(*field)
            }
            Error::ImagesNotSupported => Failure::new(Reason::ImagesNotSupported, message),
            Error::NoGenerationService => Failure::new(Reason::NoGenerationService, message),
            Error::GenerationUnavailable { .. } => Failure::new(Reason::GenerationUnavailable, message),
            Error::PromptTooLarge { .. } => Failure::new(Reason::PromptTooLarge, message).with_context("messages"),
            Error::DeadlineExceeded | Error::NoReplicaInTime { .. } => Failure::new(Reason::DeadlineExceeded, message),
            Error::Generation(failure) | Error::Contract(failure) => (**failure).clone(),
            Error::Tokenizer(_) | Error::ControlTokens(_) | Error::Internal(_) => {
                Failure::new(Reason::Internal, "internal error")
            }
        }
    }
}

/// Returns the text without the folders of a model's path. Callers must not receive these folders.
#[must_use]
pub fn without_folder(text: &str, model: &path::Path) -> String {
    let paths = [Some(model.to_owned()), path::absolute(model).ok(), model.canonicalize().ok()];
    let mut folders: Vec<String> = paths.iter().flatten().filter_map(|path| folder_of(path)).collect();
    // The longest folder comes first, because a folder may be the end of another folder.
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    folders.iter().fold(text.to_owned(), |text, folder| text.replace(folder.as_str(), ""))
}

/// Returns the parent folder of a path, with a slash at its end. None for a path in the current
/// folder, and for a path without a folder.
fn folder_of(path: &path::Path) -> Option<String> {
    let folder = path.parent()?.display().to_string();
    match folder.as_str() {
        "" | "." | "/" => None,
        _ => Some(format!("{folder}/")),
    }
}

fn known_models(known: &[String]) -> String {
    match known {
        [] => "none is loaded, and no .gguf file or model folder has that path".to_owned(),
        known => choices(known),
    }
}

fn choices(known: &[String]) -> String {
    match known {
        [] => "none is loaded".to_owned(),
        [only] => format!("there is {only}"),
        several => format!("there are {}", several.join(", ")),
    }
}

/// Returns the text for callers, who may see every model only in ListModels.
fn not_found(model: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let suggestion = nearest(model, &known).map(|near| format!(", did you mean {near:?}?")).unwrap_or_default();
    format!("model {model:?} not found{suggestion}; {HOW_TO_LIST}")
}

fn not_named(known: &[String]) -> String {
    let how = if known.is_empty() { "none is loaded" } else { HOW_TO_LIST };
    format!("the request names no model; {how}")
}

const HOW_TO_LIST: &str = "ListModels lists the models";

fn known_templates(known: &[String]) -> String {
    if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) }
}

/// Returns the error for a template that failed because of the conversation. `found` is the path of the part
/// at fault, and `empty` has the paths of the messages without content.
fn template_failure(cause: &RenderError, found: Option<&Path>, empty: &[Path]) -> Failure {
    let messages = || Path::from("messages");
    let (reason, field) = match cause {
        RenderError::Raised { .. } => (Reason::TemplateRaised, found.cloned().unwrap_or_else(messages)),
        RenderError::Limit { limit: Limit::Output, .. } => (Reason::PromptTooLarge, messages()),
        RenderError::Limit { .. } => (Reason::TemplateLimit, messages()),
        RenderError::Runtime { .. } => {
            // The template misses a message's content.
            let empty = empty.first().filter(|_| found.is_none() || cause.to_string().contains("'content'"));
            (Reason::TemplateFailed, empty.or(found).cloned().unwrap_or_else(messages))
        }
        RenderError::ContinueFinalMessage { .. } => (Reason::InvalidRequest, "continue_final_message".into()),
        RenderError::Input { .. } => (Reason::InvalidRequest, "template_args".into()),
        RenderError::Cancelled => (Reason::Internal, messages()),
    };
    let mut message = cause.to_string();
    if !empty.is_empty() {
        let empty: Vec<_> = empty.iter().map(Path::to_string).collect();
        let _ = write!(message, "; messages without content: {}; an empty text is content: \"\"", empty.join(", "));
    }
    let failure = Failure::new(reason, message).with_context(field);
    match cause {
        RenderError::Raised { line, .. } | RenderError::Runtime { line, .. } | RenderError::Limit { line, .. }
            if *line > 0 =>
        {
            failure.with_template_line(*line)
        }
        _ => failure,
    }
}

impl Error {
    /// Adds the paths of the part at fault, and of messages without content, to the error of a template.
    #[must_use]
    pub fn at_fault(self, field: Option<Path>, messages: Vec<Path>) -> Self {
        match self {
            Self::Template(source @ (RenderError::Runtime { .. } | RenderError::Raised { .. }))
                if field.is_some() || !messages.is_empty() =>
            {
                Self::TemplateAt { source, field, messages }
            }
            other => other,
        }
    }

    /// Returns the status for the caller. `locate` gives the failure the field paths of the caller's
    /// request.
    pub fn into_status(self, locate: impl FnOnce(Failure) -> Failure) -> Status {
        let failure = Failure::from(&self);
        if failure.reason() == Reason::Internal {
            tracing::error!(error = &self as &dyn std::error::Error, "internal error");
        }
        locate(failure).into()
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        error.into_status(|failure| failure)
    }
}
