//! A render request as the domain sees it, whatever transport it came by.

use tandem_template::LocalTime;

use crate::adapter::Dialect;
use crate::capabilities::Capabilities;
use crate::conversation::Conversation;

/// A conversation to render, and how.
#[derive(Debug, Clone)]
pub struct RenderJob {
    /// The model's id; empty for the only model.
    pub model: String,
    /// The conversation.
    pub conversation: Conversation,
    /// How to render it.
    pub options: RenderOptions,
    /// Tokenize the prompt as well. [`ControlTokenPolicy::Literal`] always does.
    pub return_token_ids: bool,
    /// Return the position of each token in the prompt.
    pub return_offsets: bool,
}

/// How to render.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Default: true, unless the final message is continued.
    pub add_generation_prompt: Option<bool>,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// Pins an adapter by name.
    pub adapter: Option<String>,
    /// The time that templates see.
    pub now: LocalTime,
    /// How messages are rewritten before rendering.
    pub normalization: Normalization,
    /// The name of the model's chat template to render with.
    pub template: Option<String>,
    /// The meaning of control tokens in the conversation's text.
    pub control_tokens: ControlTokenPolicy,
    /// The template's capabilities, in place of the model's.
    pub capabilities: Option<Capabilities>,
    /// The shape in which the conversation came.
    pub dialect: Dialect,
}

/// The meaning of a control token's spelling in caller text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ControlTokenPolicy {
    /// The control token, as in transformers.
    #[default]
    Tokens,
    /// Its letters and nothing else.
    Literal,
}

/// How messages are rewritten before a template sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Normalization {
    /// To the capabilities of the model's template: lists of text blocks become text, consecutive
    /// system messages become one, and the model's capabilities are met.
    #[default]
    Capability,
    /// Not at all: the template sees exactly what transformers would give it.
    None,
}
