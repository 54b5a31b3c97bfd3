//! The registry: every adapter in order of precedence, and the choice of exactly one per request.
//!
//! To add a family, write one file in `adapters/` and add one line to [`ADAPTERS`].

mod deepseek;
mod formats;
mod gemma4;
mod plain;
mod tokenizer_template;

use tandem_common::template::LocalTime;

use crate::chat::Conversation;
use crate::error::Error;
use crate::models::Model;

/// Every adapter; the first that serves a model renders its conversations.
pub const ADAPTERS: &[Adapter] = &[
    deepseek::DEEPSEEK_V32,
    deepseek::DEEPSEEK_V4,
    gemma4::GEMMA4,
    tokenizer_template::TOKENIZER_TEMPLATE,
    formats::CHATML,
    formats::LLAMA3,
    formats::TAGGED,
    plain::PLAIN,
];

/// A way to turn conversations into prompts. Input only: an adapter never reads what a model answers.
#[derive(Debug, Clone, Copy)]
pub struct Adapter {
    /// What requests pin it by and responses name it by.
    pub name: &'static str,
    /// Whether it serves this model, and why or why not, for people.
    pub serves: fn(&Model) -> Verdict,
    /// A family's own encoder, which gets the conversation as it was given. The rest get it normalized.
    pub is_family: bool,
    /// Whether images keep it from rendering the conversation, which then becomes HF messages.
    pub stops_at_images: fn(&Conversation) -> bool,
    /// Renders one conversation for a model that it serves.
    pub render: fn(&Model, &Input<'_>) -> Result<Rendering, Error>,
}

/// Whether an adapter serves a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does, because…
    Serves(String),
    /// It does not of itself, because…, but can where it is pinned.
    Passes(String),
    /// It cannot, because…
    Cannot(String),
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
    /// The media that markers in the prompt stand for, in the order of the markers.
    pub attachments: Vec<Attachment>,
    /// What the caller may not expect.
    pub warnings: Vec<Warning>,
}

/// A media file that a marker in the prompt stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What it is.
    pub kind: MediaKind,
    /// The block that shows it, such as `messages[1].content[0]`.
    pub path: String,
    /// Where its data is.
    pub source: MediaSource,
}

/// What a media file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// One image.
    Image,
    /// Sound.
    Audio,
    /// Moving images.
    Video,
}

impl MediaKind {
    /// As the type of a block.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}

/// Where a media file's data is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// Here, as base64 text, kept as it was given.
    Base64(String),
    /// At a URL or path, which nobody here follows.
    Location(String),
    /// In the request, under this id.
    Declared(String),
    /// With the caller, who matches it by its place.
    Elsewhere,
}

/// Something the caller may not expect, that does not fail the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub code: WarningCode,
    /// The request field it is about.
    pub path: String,
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
    /// Consecutive messages became one.
    MessagesMerged,
    /// System messages became the user's.
    SystemRewritten,
}

impl WarningCode {
    /// As the contracts spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolsIgnored => "TOOLS_IGNORED",
            Self::TemplateArgsIgnored => "TEMPLATE_ARGS_IGNORED",
            Self::DocumentsIgnored => "DOCUMENTS_IGNORED",
            Self::MessagesMerged => "MESSAGES_MERGED",
            Self::SystemRewritten => "SYSTEM_REWRITTEN",
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
            Verdict::Passes(reason) | Verdict::Cannot(reason) => rejected.push((adapter.name, reason)),
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
        Verdict::Serves(_) | Verdict::Passes(_) => {
            let reason = "pinned by the request".to_owned();
            Ok((*adapter, Resolution { adapter: adapter.name, reason, rejected: Vec::new() }))
        }
        Verdict::Cannot(reason) => {
            Err(Error::AdapterNotApplicable { adapter: adapter.name, model: model.id.clone(), reason })
        }
    }
}
