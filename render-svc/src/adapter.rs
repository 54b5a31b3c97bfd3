//! What an adapter is: the rule that selects it for a model, the facts about its prompts, and the
//! function that renders them.

use tandem_template::{ArgumentsShape, LocalTime, Taint};

use crate::conversation::media::{self, MediaKind};
use crate::conversation::{self, Conversation};
use crate::error::Error;
use crate::limits::Limits;
use crate::model::{Model, NamedTemplate};
use crate::warning::Warning;

/// A way to turn conversations into prompts. An adapter never reads a model's output.
#[derive(Debug, Clone, Copy)]
pub struct Adapter {
    /// The name that requests pin it by and that responses contain.
    pub name: &'static str,
    /// Its output in one sentence, for people.
    pub description: &'static str,
    /// Decides whether it renders for a model.
    pub matches: fn(&Model) -> Match,
    /// Renders one conversation for a model that is not [`Match::Incompatible`].
    pub render: fn(&Model, &Input<'_>) -> Result<AdapterOutput, Error>,
    /// Its kind.
    pub kind: Kind,
    /// Returns true if images keep it from rendering the conversation, which then becomes HF
    /// messages.
    pub stops_at_images: fn(&Conversation) -> bool,
    /// Texts that it writes and that tokenizers may have as tokens without calling them special,
    /// such as `<think>`. Texts that the model's own templates write need not be listed.
    pub markup: &'static [&'static str],
    /// Texts that it writes at the end of an assistant's turn, the longer of two spellings first.
    /// The end that the model's own template writes is found by rendering and need not be listed.
    pub turn_ends: &'static [&'static str],
    /// The texts around reasoning, if the adapter writes a pair.
    pub reasoning: Option<(&'static str, &'static str)>,
    /// The JSON type that tool call arguments must have. For a family, arguments of the other type
    /// are converted in the contract's dialect.
    pub arguments: ArgumentsShape,
    /// True if its prompts lack the token that the tokenizer puts before a text, so that the
    /// tokenizer adds it.
    pub leaves_bos_to_tokenizer: bool,
    /// The names in a conversation that its code compares with.
    pub known_names: KnownNames,
}

impl Adapter {
    /// Creates an adapter from the parts without a default. The default for the others is a fixed
    /// format of text.
    #[must_use]
    pub const fn new(
        name: &'static str,
        description: &'static str,
        matches: fn(&Model) -> Match,
        render: fn(&Model, &Input<'_>) -> Result<AdapterOutput, Error>,
    ) -> Self {
        Self {
            name,
            description,
            matches,
            render,
            kind: Kind::Format,
            stops_at_images: Conversation::has_images,
            markup: &[],
            turn_ends: &[],
            reasoning: None,
            arguments: ArgumentsShape::Either,
            leaves_bos_to_tokenizer: false,
            known_names: KnownNames::CONVERSATION,
        }
    }
}

/// Kinds of adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The native encoder of a model family, which gets the conversation as the caller sent it. The
    /// others get it normalized.
    Family,
    /// The model's own chat template.
    Template,
    /// A fixed format that many models share.
    Format,
}

/// The result of matching an adapter against a model, each with the reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// The adapter renders for the model.
    Selected(String),
    /// Nothing identifies the model's own format: the adapter renders as the likeliest one.
    Guessed(String),
    /// The adapter does not match the model, but can render if a request pins it.
    NotSelected(String),
    /// The adapter cannot render for the model.
    Incompatible(String),
}

/// Lists of names; an adapter adds its own list to those of the conversation's shape.
pub type NameLists = &'static [&'static [&'static str]];

/// The names in a conversation that an adapter's code compares with.
///
/// They stay untainted when control tokens of the caller are searched for, so that comparisons
/// still succeed. None of them is a control token, so every control token of the caller contains
/// other letters.
#[derive(Debug, Clone, Copy)]
pub struct KnownNames {
    /// Fields of messages and of blocks in their content.
    pub fields: NameLists,
    /// Fields of all other objects: deeper ones, tools, documents and template_args.
    pub nested_fields: NameLists,
    /// Roles of messages.
    pub roles: NameLists,
    /// Types of blocks and of tools.
    pub types: NameLists,
}

impl KnownNames {
    /// The names of the conversation's own shape, at any depth.
    pub const CONVERSATION: Self = Self::with(&[conversation::FIELDS, conversation::TOOL_FIELDS, media::FIELDS]);

    /// Returns known names with these fields at any depth, and the roles and types of the
    /// conversation's own shape.
    #[must_use]
    pub const fn with(fields: NameLists) -> Self {
        Self {
            fields,
            nested_fields: fields,
            roles: &[conversation::ROLES],
            types: &[conversation::TYPES, media::TYPE_NAMES],
        }
    }
}

/// The JSON shape in which a conversation came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The contract's typed messages, one shape for every model. Arguments of another type than a
    /// family's encoder reads are converted.
    Contract,
    /// JSON as Hugging Face's libraries read it: a family's encoder reads it as the official one
    /// does.
    #[default]
    HuggingFace,
}

/// The input of an adapter.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Checked, and normalized as requested.
    pub conversation: &'a Conversation,
    /// End with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// The chat template to render with. None: the model's own choice for the conversation.
    pub template: Option<&'a NamedTemplate>,
    /// The shape in which the conversation came.
    pub dialect: Dialect,
    /// The time that templates see.
    pub now: LocalTime,
    /// Limits of the rendering.
    pub limits: Limits,
    /// The marks on letters of the conversation, if any. Adapters must treat marked and unmarked
    /// letters alike.
    pub marks: Option<Taint>,
}

/// The output of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterOutput {
    /// The exact prompt.
    pub prompt: String,
    /// The media for the markers in the prompt, in the order of the markers.
    pub attachments: Vec<Attachment>,
    /// Warnings about the conversation.
    pub warnings: Vec<Warning>,
}

/// A media file that a marker in the prompt represents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The kind of media.
    pub kind: MediaKind,
    /// The block that shows it, such as `messages[1].content[0]`.
    pub path: String,
    /// Start of its marker in the prompt, in bytes of UTF-8. Caller text that spells a marker has
    /// no attachment.
    pub offset: usize,
    /// Such as `image/png`; None if unknown.
    pub mime_type: Option<String>,
    /// Where its data is.
    pub source: MediaSource,
}

/// Where the data of a media file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// In this value, as base64 text, unchanged.
    Base64(String),
    /// At a URL or path, which the service never opens.
    Location(String),
    /// In the request, under this id.
    Declared(String),
    /// With the caller, who pairs it with its marker by position.
    Elsewhere,
}
