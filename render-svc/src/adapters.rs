//! The registry: every adapter in order of precedence, and the choice of exactly one per request.
//!
//! To add a family, write one file in `adapters/` and add one line to [`ADAPTERS`].

mod deepseek;
mod formats;
mod gemma4;
mod plain;
mod tokenizer_template;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tandem_template::{ArgumentsShape, LocalTime, Taint};

use crate::chat::Conversation;
use crate::error::Error;
use crate::limits::Limits;
use crate::media::MediaKind;
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
    /// What it renders, in a sentence for people.
    pub description: &'static str,
    /// Whether it serves this model, and why or why not, for people.
    pub serves: fn(&Model) -> Verdict,
    /// Of what kind it is.
    pub kind: Kind,
    /// Whether images keep it from rendering the conversation, which then becomes HF messages.
    pub stops_at_images: fn(&Conversation) -> bool,
    /// What it writes that tokenizers know as a token but do not call special, such as `<think>`. What the model's own templates
    /// write need not be listed.
    pub markup: &'static [&'static str],
    /// What it writes at the end of an assistant's turn, the longer of two spellings first. What the model's own template writes there
    /// is found by rendering and need not be listed.
    pub turn_ends: &'static [&'static str],
    /// The JSON type that the arguments of calls must have. Where a family's encoder takes one only, those of the other are converted
    /// in the contract's dialect.
    pub arguments: ArgumentsShape,
    /// Whether its prompts lack the token that the tokenizer puts before a text, so that the token ids begin with it.
    pub leaves_bos_to_tokenizer: bool,
    /// Renders one conversation for a model that it serves.
    pub render: fn(&Model, &Input<'_>) -> Result<Rendering, Error>,
}

/// Kinds of adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A family's own encoder, which gets the conversation as it was given. The others get it normalized.
    Family,
    /// The model's own chat template.
    Template,
    /// A fixed format that many models share.
    Format,
}

/// Whether an adapter serves a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does, because…
    Serves(String),
    /// It does, since it is likelier than any other: nothing names the model's own format. Because…
    Guesses(String),
    /// It does not match this model, because…, but can render if it is pinned.
    Passes(String),
    /// It cannot, because…
    Cannot(String),
}

/// The shape in which a conversation came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The contract's typed messages, one shape for every model: what a family's encoder takes in another form is converted.
    Contract,
    /// JSON as Hugging Face's libraries take it: a family's encoder reads it as the official one does.
    #[default]
    HuggingFace,
}

/// What an adapter renders.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Checked, and normalized as asked.
    pub conversation: &'a Conversation,
    /// End with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// Which of the model's chat templates to render with, where the request names one.
    pub template: Option<&'a str>,
    /// In which shape the conversation came.
    pub dialect: Dialect,
    /// What templates see as now.
    pub now: LocalTime,
    /// What rendering may take.
    pub limits: Limits,
    /// How letters of the conversation are marked. Letters and marked letters are to be treated alike.
    pub marks: Option<Taint>,
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
    /// Where its marker starts in the prompt, in bytes of UTF-8. Text of the caller that spells a marker has no attachment.
    pub offset: usize,
    /// Such as `image/png`; None if unknown.
    pub mime_type: Option<String>,
    /// Where its data is.
    pub source: MediaSource,
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

/// The most warnings of one code that a rendering comes with.
const WARNINGS_OF_A_CODE: usize = 16;

/// Leaves out warnings of a code that has many. The last one that is kept says how many there are.
#[must_use]
pub fn bounded(warnings: Vec<Warning>) -> Vec<Warning> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kept: Vec<Warning> = Vec::with_capacity(warnings.len().min(WARNINGS_OF_A_CODE));
    for warning in warnings {
        let count = counts.entry(warning.code.name()).or_default();
        *count += 1;
        if *count <= WARNINGS_OF_A_CODE {
            kept.push(warning);
        }
    }
    for (code, count) in counts.into_iter().filter(|(_, count)| *count > WARNINGS_OF_A_CODE) {
        if let Some(last) = kept.iter_mut().rfind(|warning| warning.code.name() == code) {
            last.text.push_str(&format!("; further warnings of this code: {}", count - WARNINGS_OF_A_CODE));
        }
    }
    kept
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
    /// The model's template never reads this argument.
    TemplateArgUnknown,
    /// A tool call's arguments are text where the template wants an object, or the reverse.
    ToolArgumentsType,
    /// What renders has no place for this option.
    OptionIgnored,
    /// Nothing names the model's format: the likeliest was taken.
    FormatGuessed,
    /// The data of images is not in the prompt of a pinned adapter.
    ImagesIgnored,
    /// The argument is a parameter of apply_chat_template, not a variable of templates.
    TemplateArgReserved,
    /// A tool's parameters are of a shape that the adapter cannot show.
    ToolParametersIgnored,
    /// A tool's result answers no call: it is not shown, or shown under another name.
    ToolResultUnpaired,
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
            Self::TemplateArgUnknown => "TEMPLATE_ARG_UNKNOWN",
            Self::ToolArgumentsType => "TOOL_ARGUMENTS_TYPE",
            Self::OptionIgnored => "OPTION_IGNORED",
            Self::FormatGuessed => "FORMAT_GUESSED",
            Self::ImagesIgnored => "IMAGES_IGNORED",
            Self::TemplateArgReserved => "TEMPLATE_ARG_RESERVED",
            Self::ToolParametersIgnored => "TOOL_PARAMETERS_IGNORED",
            Self::ToolResultUnpaired => "TOOL_RESULT_UNPAIRED",
        }
    }
}

/// Warns of tools, documents or template_args that the adapter called `name` does not show to the model, as far as they are given.
#[must_use]
pub fn ignored(name: &str, conversation: &Conversation, codes: &[WarningCode]) -> Vec<Warning> {
    let given = [
        (WarningCode::ToolsIgnored, "tools", conversation.has_tools()),
        (WarningCode::DocumentsIgnored, "documents", conversation.has_documents()),
        (WarningCode::TemplateArgsIgnored, "template_args", !conversation.template_args.is_empty()),
    ];
    let ignored = given.into_iter().filter(|(code, _, is_given)| *is_given && codes.contains(code));
    let warning = |(code, path, _): (WarningCode, &str, bool)| Warning {
        code,
        path: path.to_owned(),
        text: format!("{name} cannot show {path} to the model: ignored"),
    };
    ignored.map(warning).collect()
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

/// The adapter for a model, and why it is the one.
#[derive(Debug, Clone)]
pub struct Choice {
    /// What renders.
    pub adapter: Adapter,
    /// Why.
    pub resolution: Arc<Resolution>,
    /// Whether it was named by the request or by the model's settings: then it renders, always.
    pub is_pinned: bool,
    /// Whether nothing names the model's format, so that the likeliest was taken.
    pub is_guess: bool,
}

/// Adapters in order of precedence.
#[derive(Debug, Clone)]
pub struct Registry(Cow<'static, [Adapter]>);

impl Default for Registry {
    /// [`ADAPTERS`].
    fn default() -> Self {
        Self(Cow::Borrowed(ADAPTERS))
    }
}

impl From<Vec<Adapter>> for Registry {
    fn from(adapters: Vec<Adapter>) -> Self {
        Self(Cow::Owned(adapters))
    }
}

impl Registry {
    /// Every adapter, in order of precedence.
    #[must_use]
    pub fn adapters(&self) -> &[Adapter] {
        &self.0
    }

    /// The first adapter that serves the model.
    ///
    /// # Errors
    /// None does, which cannot be while the last of [`ADAPTERS`] serves every model.
    pub fn resolve(&self, model: &Model) -> Result<Choice, Error> {
        let mut rejected = Vec::new();
        for adapter in self.adapters() {
            let verdict = (adapter.serves)(model);
            let is_guess = matches!(verdict, Verdict::Guesses(_));
            match verdict {
                Verdict::Serves(reason) | Verdict::Guesses(reason) => {
                    let resolution = Arc::new(Resolution { adapter: adapter.name, reason, rejected });
                    return Ok(Choice { adapter: *adapter, resolution, is_pinned: false, is_guess });
                }
                Verdict::Passes(reason) | Verdict::Cannot(reason) => rejected.push((adapter.name, reason)),
            }
        }
        Err(Error::AdapterNotFound { adapter: "any".to_owned(), known: self.names() })
    }

    /// The adapter of that name; `by` tells who pins it.
    ///
    /// # Errors
    /// There is none of that name, or it cannot serve the model.
    pub fn pinned(&self, name: &str, model: &Model, by: &str) -> Result<Choice, Error> {
        let Some(adapter) = self.adapters().iter().find(|adapter| adapter.name == name) else {
            return Err(Error::AdapterNotFound { adapter: name.to_owned(), known: self.names() });
        };
        if let Verdict::Cannot(reason) = (adapter.serves)(model) {
            return Err(Error::AdapterNotApplicable { adapter: adapter.name, model: model.id.clone(), reason });
        }
        let resolution = Resolution { adapter: adapter.name, reason: format!("pinned by {by}"), rejected: Vec::new() };
        Ok(Choice { adapter: *adapter, resolution: Arc::new(resolution), is_pinned: true, is_guess: false })
    }

    fn names(&self) -> Vec<&'static str> {
        self.adapters().iter().map(|adapter| adapter.name).collect()
    }
}
