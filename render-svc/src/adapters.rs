//! The registry: every adapter in order of precedence, and the choice of exactly one per request.
//!
//! To add a family, write one file in `adapters/` and add one line to [`ADAPTERS`].

mod plain;
mod tokenizer_template;

use tandem_common::template::LocalTime;

use crate::chat::Conversation;
use crate::error::Error;
use crate::models::Model;

/// Every adapter; the first that serves a model renders its conversations.
pub const ADAPTERS: &[Adapter] = &[tokenizer_template::TOKENIZER_TEMPLATE, plain::PLAIN];

/// A way to turn conversations into prompts. Input only: an adapter never reads what a model answers.
#[derive(Debug, Clone, Copy)]
pub struct Adapter {
    /// What requests pin it by and responses name it by.
    pub name: &'static str,
    /// Whether it serves this model, and why or why not, for people.
    pub serves: fn(&Model) -> Verdict,
    /// Renders one conversation for a model that it serves.
    pub render: fn(&Model, &Input<'_>) -> Result<Rendering, Error>,
}

/// Whether an adapter serves a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does, because…
    Serves(String),
    /// It does not, because…
    Passes(String),
}

/// What an adapter renders.
#[derive(Debug)]
pub struct Input<'a> {
    /// Checked, and normalized as asked.
    pub conversation: &'a Conversation,
    /// End with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// What templates see as now.
    pub now: LocalTime,
}

/// What an adapter made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    /// The exact prompt.
    pub prompt: String,
    /// What the caller may not expect.
    pub warnings: Vec<Warning>,
}

/// Something the caller may not expect, that does not fail the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub code: WarningCode,
    /// The request field it is about.
    pub path: &'static str,
    /// For people.
    pub text: String,
}

/// What a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningCode {
    /// The adapter cannot show tools to the model.
    ToolsIgnored,
    /// The adapter takes no template_args.
    TemplateArgsIgnored,
    /// The adapter cannot show documents to the model.
    DocumentsIgnored,
}

impl WarningCode {
    /// As the contracts spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolsIgnored => "TOOLS_IGNORED",
            Self::TemplateArgsIgnored => "TEMPLATE_ARGS_IGNORED",
            Self::DocumentsIgnored => "DOCUMENTS_IGNORED",
        }
    }
}

/// Which adapter was chosen, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// Its name; empty when no adapter renders the request.
    pub adapter: &'static str,
    /// For people.
    pub reason: String,
    /// The adapters before it, each with why it does not serve the model.
    pub rejected: Vec<(&'static str, String)>,
}

/// The first adapter that serves the model.
///
/// # Errors
/// None does, which cannot be while the last of [`ADAPTERS`] serves every model.
pub fn resolve(model: &Model) -> Result<(Adapter, Resolution), Error> {
    let mut rejected = Vec::new();
    for adapter in ADAPTERS {
        match (adapter.serves)(model) {
            Verdict::Serves(reason) => {
                return Ok((*adapter, Resolution { adapter: adapter.name, reason, rejected }));
            }
            Verdict::Passes(reason) => rejected.push((adapter.name, reason)),
        }
    }
    Err(Error::AdapterNotFound { adapter: "any".to_owned() })
}

/// The adapter of that name, for a request that pins it.
///
/// # Errors
/// There is none of that name, or it cannot serve the model.
pub fn pinned(name: &str, model: &Model) -> Result<(Adapter, Resolution), Error> {
    let Some(adapter) = ADAPTERS.iter().find(|adapter| adapter.name == name) else {
        return Err(Error::AdapterNotFound { adapter: name.to_owned() });
    };
    match (adapter.serves)(model) {
        Verdict::Serves(_) => {
            let reason = "pinned by the request".to_owned();
            Ok((*adapter, Resolution { adapter: adapter.name, reason, rejected: Vec::new() }))
        }
        Verdict::Passes(reason) => {
            Err(Error::AdapterNotApplicable { adapter: adapter.name, model: model.id.clone(), reason })
        }
    }
}
