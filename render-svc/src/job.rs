//! A render request as a domain type, independent of the transport.

use tandem_template::LocalTime;

use crate::capabilities::Capabilities;
use crate::conversation::Conversation;

/// A conversation and the options for rendering it.
#[derive(Debug, Clone)]
pub struct RenderJob {
    /// The model's id; empty for the only model.
    pub model: String,
    /// The conversation.
    pub conversation: Conversation,
    /// The options for rendering.
    pub options: RenderOptions,
    /// When the prompt is also tokenized. [`ControlTokenPolicy::Literal`] always tokenizes it.
    pub token_ids: ReturnTokenIds,
    /// True if the position of each token in the prompt is returned.
    pub return_offsets: bool,
    /// True if the rendering leaves out the base64 data of media.
    pub omit_media: bool,
}

/// When the rendering has token ids besides the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReturnTokenIds {
    /// Never.
    #[default]
    No,
    /// Where the text alone is not the model's input, because the tokenizer adds the first token.
    IfTextIsNotEnough,
    /// Always.
    Yes,
}

impl From<bool> for ReturnTokenIds {
    fn from(is_wanted: bool) -> Self {
        if is_wanted { Self::Yes } else { Self::No }
    }
}

/// The options for rendering.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// True if the prompt ends with the start of the assistant's turn. The default is true, unless
    /// the final message is continued.
    pub add_generation_prompt: Option<bool>,
    /// True if the last message has no end of turn, so that the model continues it.
    pub continue_final_message: bool,
    /// Pins an adapter by name.
    pub adapter: Option<String>,
    /// The current time in templates.
    pub now: LocalTime,
    /// How messages are rewritten before rendering.
    pub normalization: Normalization,
    /// The name of the model's chat template to render with.
    pub template: Option<String>,
    /// The meaning of control tokens in the conversation's text.
    pub control_tokens: ControlTokenPolicy,
    /// Capabilities of the template that replace the inferred capabilities.
    pub capabilities: Option<Capabilities>,
}

/// The meaning of a control token's spelling in caller text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ControlTokenPolicy {
    /// The control token, as in transformers.
    #[default]
    Tokens,
    /// Plain text.
    Literal,
}

/// The rewriting of messages before rendering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Normalization {
    /// Messages are rewritten to fit the capabilities of the model's template. Lists of text blocks
    /// become text, and consecutive system messages become one message. A family's adapter converts
    /// what its encoder cannot read.
    #[default]
    Capability,
    /// Messages are not rewritten. The template gets the same messages as in transformers, and a
    /// family's adapter behaves as the official encoder.
    None,
}
