//! The type of an adapter: the rule that selects it for a model, the facts about its prompts, and
//! the function that renders them.

use tandem_common::field::Path;
use tandem_template::literal::KnownNames;
use tandem_template::{LocalTime, Taint};

use crate::conversation::media::{self, MediaKind};
use crate::conversation::{self, Conversation};
use crate::error::Error;
use crate::limits::Limits;
use crate::model::{Model, NamedTemplate};
use crate::probes::ArgumentsShape;
use crate::warning::Warning;

/// A way to turn conversations into prompts. An adapter never reads a model's output.
#[derive(Debug, Clone, Copy)]
pub struct Adapter {
    /// The name with which a request pins the adapter, and which responses contain.
    pub name: &'static str,
    /// The adapter's output in one sentence, for display.
    pub description: &'static str,
    /// Decides whether the adapter renders for a model.
    pub matches: fn(&Model) -> Match,
    /// Renders one conversation for a model that is not [`Match::Incompatible`].
    pub render: fn(&Model, &Input<'_>) -> Result<AdapterOutput, Error>,
    /// The kind of the adapter.
    pub kind: Kind,
    /// Returns true if the adapter cannot render the images of a conversation with images. Unless the adapter is
    /// pinned, the response then has HF messages instead of a prompt.
    pub stops_at_images: fn(&Conversation) -> bool,
    /// Texts that the adapter writes and that may be tokens without being special, such as
    /// `<think>`. Texts that the model's own templates write need not be listed.
    pub markup: &'static [&'static str],
    /// Texts that the adapter writes at the end of an assistant's turn. If a text has two
    /// spellings, the longer one is first. The end that the model's own template writes is found by
    /// rendering and need not be listed.
    pub turn_ends: &'static [&'static str],
    /// The texts around reasoning, if the adapter writes a pair.
    pub reasoning: Option<(&'static str, &'static str)>,
    /// The JSON type that tool call arguments must have. Under CAPABILITY, a family's adapter gets
    /// other types converted.
    pub arguments: ArgumentsShape,
    /// True if the adapter does not write the bos token. The tokenizer then adds it.
    pub leaves_bos_to_tokenizer: bool,
    /// The names in a conversation that the adapter's code compares with.
    pub known_names: KnownNames,
    /// The fields of the final message that the prompt can end within. None if this depends on the
    /// model's template.
    pub continued_fields: Option<&'static [&'static str]>,
    /// True if template_args that the adapter does not define have no effect, also the
    /// parameters of `apply_chat_template` of transformers.
    pub drops_unknown_args: bool,
    /// The template_args that have one meaning. If a request sets one of them, the configured
    /// arguments of these names do not count.
    pub switches: &'static [&'static str],
    /// The template_args that a family's encoder reads. Special tokens, which the tokenizer sets, need
    /// not be listed.
    pub template_args: &'static [EncoderArgument],
    /// Returns how the model's own chat template differs from the adapter's prompts; None if it
    /// does not, or if the model ships none. Called once per load, for an adapter that is selected.
    pub differs: fn(&Model) -> Option<String>,
}

/// The names that every conversation may contain, at any depth.
const KNOWN_NAMES: KnownNames = KnownNames::with(&[conversation::FIELDS, conversation::TOOL_FIELDS, media::FIELDS]);

impl Adapter {
    /// Creates an adapter from the fields that have no default. The defaults of the other fields
    /// fit a fixed text format.
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
            stops_at_images: |_| true,
            markup: &[],
            turn_ends: &[],
            reasoning: None,
            arguments: ArgumentsShape::Either,
            leaves_bos_to_tokenizer: false,
            known_names: KNOWN_NAMES,
            continued_fields: Some(&[conversation::CONTENT]),
            drops_unknown_args: false,
            switches: &[],
            template_args: &[],
            differs: |_| None,
        }
    }
}

/// One of the template_args that a family's encoder reads.
#[derive(Debug, Clone, Copy)]
pub struct EncoderArgument {
    pub name: &'static str,
    /// The words that the encoder accepts. Empty if the argument is a boolean or a list.
    pub words: &'static [&'static str],
    /// The boolean argument without which this one has no effect.
    pub needs: Option<&'static str>,
}

impl EncoderArgument {
    /// Returns a boolean argument, or one that is a list.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, words: &[], needs: None }
    }
}

/// Kinds of adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The native encoder of a model family. It gets the messages of the caller, and under CAPABILITY
    /// converts what its encoder cannot read; other kinds get a normalized conversation.
    Family,
    /// The model's own chat template.
    Template,
    /// A fixed format that many models share.
    Format,
}

/// The result of matching an adapter against a model. Each variant has the reason as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// The adapter renders for the model.
    Selected(String),
    /// No adapter is known to match the model's format. This adapter is the best guess.
    Guessed(String),
    /// The adapter is the maker's encoder for the model's family, and the model ships a chat
    /// template of another behaviour. An adapter after it renders, and its reason includes this one.
    Yields(String),
    /// The adapter does not match the model, but can render if a request pins it.
    NotSelected(String),
    /// The adapter cannot render for the model.
    Incompatible(String),
}

/// The input of an adapter.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The conversation, already checked, and normalized as requested.
    pub conversation: &'a Conversation,
    /// True if the prompt ends with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The field of the last message that the model continues: the prompt ends within it.
    pub continue_final_message: Option<&'a str>,
    /// The chat template to render with, chosen once per request. None for an adapter that renders
    /// without one; `tokenizer-template` then renders with the model's default for the
    /// conversation.
    pub template: Option<&'a NamedTemplate>,
    /// True if the policy is CAPABILITY: a family's adapter converts what its encoder cannot read.
    /// Otherwise it reads the conversation as the official encoder does, errors included.
    pub is_normalized: bool,
    /// The current time in templates.
    pub now: LocalTime,
    /// Limits of the rendering.
    pub limits: Limits,
    /// The taint of the conversation's text, if it is tainted. An adapter must treat tainted and
    /// untainted text alike.
    pub taint: Option<Taint>,
}

impl<'a> Input<'a> {
    /// Returns the input of a conversation as an adapter gets it by default, at the start of time.
    #[must_use]
    pub fn of(conversation: &'a Conversation) -> Self {
        Self {
            conversation,
            add_generation_prompt: true,
            continue_final_message: None,
            template: None,
            is_normalized: true,
            now: LocalTime::EPOCH,
            limits: Limits::default(),
            taint: None,
        }
    }
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
    /// The path of its block, such as `messages[1].content[0]`.
    pub path: Path,
    /// The byte offset of its marker in the prompt. A marker in the caller's text has no
    /// attachment.
    pub offset: usize,
    /// The MIME type, such as `image/png`. None if unknown.
    pub mime_type: Option<String>,
    /// The location of the data.
    pub source: MediaSource,
}

impl Attachment {
    /// Removes the base64 data. The caller finds its own by the path.
    pub fn omit_data(&mut self) {
        if matches!(self.source, MediaSource::Base64(_)) {
            self.source = MediaSource::Elsewhere;
        }
    }
}

/// The location of a media file's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// In this value, as base64 text, unchanged.
    Base64(String),
    /// At a URL or path, which the service never opens.
    Location(String),
    /// In the request, under this id.
    Declared(String),
    /// Not in the request. The caller pairs it with its marker by position.
    Elsewhere,
}
