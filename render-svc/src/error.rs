//! Everything that can go wrong in a request, and the one table of what the caller sees of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_common::status::{Failure, Reason, chain};
use tandem_model_files::tokenizer::TokenizerError;
use tandem_template::{Limit, RenderError};
use tonic::{Code, Status};

use crate::conversation::Invalid;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No model of that id.
    #[error("there is no model {model:?}; {}", known_models(known))]
    ModelNotFound {
        /// What was asked for.
        model: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The request names no model and there are several, or none.
    #[error("name a model; {}", known_models(known))]
    ModelNotNamed {
        /// What there is.
        known: Vec<String>,
    },
    /// The model's files cannot be loaded.
    #[error("{}", chain(cause.as_ref()))]
    ModelNotLoaded {
        /// Where they are.
        path: PathBuf,
        /// Why not.
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// No adapter of that name.
    #[error("there is no adapter {adapter:?}; there are {}", known.join(", "))]
    AdapterNotFound {
        /// What was asked for.
        adapter: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The pinned adapter cannot serve the model.
    #[error("adapter {adapter:?} cannot serve model {model:?}: {reason}")]
    AdapterNotApplicable {
        /// The adapter that was pinned.
        adapter: &'static str,
        /// The model.
        model: String,
        /// Why it cannot.
        reason: String,
    },
    /// A part of the request is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A block refers to an attachment that is not declared.
    #[error("{field}: there is no attachment {id:?}")]
    DanglingAttachment {
        /// The path, such as `messages[2].content[0].attachment_id`.
        field: String,
        /// The id.
        id: String,
    },
    /// The model's templates have names, and none of them is the one to use.
    #[error("the model has no chat template {template:?}; {}", known_templates(known))]
    TemplateNotFound {
        /// What was asked for.
        template: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// With LITERAL: the prompt holds control tokens, and which of them the caller has written cannot be told: with marks on its
    /// letters, the conversation renders to another prompt, or not at all, or it holds every letter that could be a mark.
    #[error(
        "the prompt holds control tokens, and which of them come from the conversation cannot be told: with its letters marked \
         it renders differently"
    )]
    ControlTokensUnclear,
    /// The prompts of a batch take too much memory.
    #[error("the results of a batch may take {limit} bytes, and those before this one do")]
    BatchResultsTooLarge {
        /// How many bytes.
        limit: usize,
    },
    /// A batch holds too many requests.
    #[error("a batch holds at most {limit} requests, not {found}")]
    BatchTooLarge {
        /// How many there may be.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// The template did not render.
    #[error("the chat template failed")]
    Template(#[from] RenderError),
    /// The model has no tokenizer.
    #[error("model {model:?} has no tokenizer: {problem}")]
    NoTokenizer {
        /// The model.
        model: String,
        /// Where its files are.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A token id that the model does not have.
    #[error("{id} is no token of this model")]
    UnknownTokenId {
        /// Its position in the request.
        index: usize,
        /// The id.
        id: u32,
    },
    /// The task holds images, and generation takes text only.
    #[error("tasks with images are not supported: the generation service takes text only")]
    ImagesNotSupported,
    /// No generation service was configured.
    #[error("this server has no generation service: start it with --generate ADDRESS")]
    NoGenerationService,
    /// No replica of the generation service answered.
    #[error("the generation service is unavailable: {message}")]
    GenerationUnavailable {
        /// The transport's message, or why no replica was called.
        message: String,
    },
    /// The prompt has too many bytes.
    #[error("a prompt may have {limit} bytes, and this has {found}")]
    PromptTooLarge {
        /// How many there may be.
        limit: u64,
        /// How many there are.
        found: usize,
    },
    /// The rendered conversation does not fit in the model's context, or has more tokens than the generation service takes.
    #[error("{message}")]
    PromptTooLong {
        /// Which of both.
        reason: Reason,
        /// With both numbers.
        message: String,
    },
    /// The caller's deadline passed before the generation began.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// The generation service refused, in its own words.
    #[error("the generation service answered: {}", .0.message())]
    Generation(Box<Status>),
    /// A vocabulary with too many control tokens to search for.
    #[error("the control tokens cannot be searched for")]
    ControlTokens(#[from] aho_corasick::BuildError),
    /// A defect of this service.
    #[error("internal error")]
    Internal(#[from] tokio::task::JoinError),
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        match error {
            Error::ModelNotFound { model, .. } => {
                Failure::new(Reason::ModelNotFound, message).with_field("model").with_resource("model", model)
            }
            Error::ModelNotNamed { .. } => Failure::invalid("model", message),
            Error::ModelNotLoaded { path, .. } => {
                Failure::new(Reason::ModelNotLoaded, without_folder(&message, path)).with_field("model")
            }
            Error::AdapterNotFound { adapter, .. } => {
                Failure::new(Reason::AdapterNotFound, message).with_field("adapter").with_resource("adapter", adapter)
            }
            Error::AdapterNotApplicable { .. } => {
                Failure::new(Reason::AdapterNotApplicable, message).with_context("adapter")
            }
            Error::Invalid(Invalid { reason, field, problem }) => Failure::new(*reason, problem).with_field(field),
            Error::DanglingAttachment { field, id } => {
                let message = format!("there is no attachment {id:?}");
                Failure::new(Reason::DanglingAttachment, message).with_field(field)
            }
            Error::TemplateNotFound { template, .. } => Failure::new(Reason::TemplateNotFound, message)
                .with_field("template")
                .with_resource("template", template),
            Error::ControlTokensUnclear => Failure::new(Reason::ControlTokensUnclear, message).with_context("messages"),
            Error::BatchResultsTooLarge { .. } => Failure::new(Reason::BatchResultsTooLarge, message),
            Error::BatchTooLarge { .. } => Failure::invalid("requests", message),
            Error::Template(cause) => template_failure(cause),
            Error::NoTokenizer { path, .. } => {
                Failure::new(Reason::NoTokenizer, without_folder(&message, path)).with_context("model")
            }
            Error::Tokenizer(TokenizerError::TooLong { .. }) => {
                Failure::new(Reason::TextTooLong, message).with_context("text")
            }
            Error::UnknownTokenId { index, .. } => Failure::invalid(format!("token_ids[{index}]"), message),
            Error::ImagesNotSupported => Failure::new(Reason::ImagesNotSupported, message),
            Error::NoGenerationService => Failure::new(Reason::NoGenerationService, message),
            Error::GenerationUnavailable { .. } => {
                Failure::new(Reason::GenerationUnavailable, message).retry_after(std::time::Duration::from_secs(1))
            }
            Error::PromptTooLarge { .. } => Failure::new(Reason::PromptTooLarge, message).with_context("messages"),
            Error::PromptTooLong { reason, .. } => Failure::new(*reason, message).with_field("conversation"),
            Error::DeadlineExceeded => Failure::new(Reason::DeadlineExceeded, message),
            Error::Generation(status) => Failure::new(Reason::GenerationFailed, message).with_code(status.code()),
            Error::Tokenizer(_) | Error::ControlTokens(_) | Error::Internal(_) => {
                Failure::new(Reason::Internal, "internal error")
            }
        }
    }
}

/// The text without the folders that lead to a model: where a server keeps its files is not for callers.
#[must_use]
pub fn without_folder(text: &str, model: &Path) -> String {
    let paths = [Some(model.to_owned()), std::path::absolute(model).ok(), model.canonicalize().ok()];
    let mut folders: Vec<String> = paths.iter().flatten().filter_map(|path| folder_of(path)).collect();
    // The longest first: one may be the end of another.
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    folders.iter().fold(text.to_owned(), |text, folder| text.replace(folder.as_str(), ""))
}

/// The folder that a path lies in, with the slash behind it. None for the current folder and for no folder.
fn folder_of(path: &Path) -> Option<String> {
    let folder = path.parent()?.display().to_string();
    match folder.as_str() {
        "" | "." | "/" => None,
        _ => Some(format!("{folder}/")),
    }
}

fn known_models(known: &[String]) -> String {
    match known.is_empty() {
        true => "none is loaded, and no .gguf file or model folder has that path".to_owned(),
        false => format!("there are {}", known.join(", ")),
    }
}

fn known_templates(known: &[String]) -> String {
    match known.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", known.join(", ")),
    }
}

/// A template fails because of the conversation it was given.
fn template_failure(cause: &RenderError) -> Failure {
    let (reason, field) = match cause {
        RenderError::Raised { .. } => (Reason::TemplateRaised, "messages"),
        RenderError::Limit { limit: Limit::Output, .. } => (Reason::PromptTooLarge, "messages"),
        RenderError::Limit { .. } => (Reason::TemplateLimit, "messages"),
        RenderError::Runtime { .. } => (Reason::TemplateFailed, "messages"),
        RenderError::ContinueFinalMessage { .. } => (Reason::InvalidRequest, "continue_final_message"),
        RenderError::Input { .. } => (Reason::InvalidRequest, "template_args"),
    };
    let failure = Failure::new(reason, cause.to_string()).with_context(field);
    match cause {
        RenderError::Raised { line, .. } | RenderError::Runtime { line, .. } | RenderError::Limit { line, .. }
            if *line > 0 =>
        {
            failure.with_template_line(*line)
        }
        _ => failure,
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let failure = Failure::from(&error);
        if failure.code() == Code::Internal {
            tracing::error!(error = &error as &dyn std::error::Error, "internal error");
        }
        match error {
            Error::Generation(status) => *status,
            _ => failure.into(),
        }
    }
}
