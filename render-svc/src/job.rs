//! A render request as a domain type, independent of the transport.

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::LocalTime;

use crate::capabilities::Capabilities;
use crate::conversation::{CONTENT, Conversation, Invalid, Object};

/// A conversation and the options for rendering it.
#[derive(Debug, Clone)]
pub struct RenderJob {
    /// The model's id; empty for the only model.
    pub model: String,
    pub conversation: Conversation,
    /// The options for rendering.
    pub options: RenderOptions,
    /// When the prompt is also tokenized. [`ControlTokenPolicy::Literal`] always tokenizes it.
    pub token_ids: ReturnTokenIds,
    /// True if the position of each token in the prompt is returned.
    pub return_offsets: bool,
    /// True if the rendering leaves out the base64 data of media.
    pub omit_media: bool,
    /// True for a task. The task requests token ids and offsets itself, so that the caller is not
    /// warned where they have no effect.
    pub is_task: bool,
}

impl RenderJob {
    /// Moves template arguments to the options of the same name if the request leaves these unset.
    /// transformers takes both as parameters of `apply_chat_template`. An argument that contradicts
    /// its option stays.
    ///
    /// # Errors
    /// An argument has the wrong type.
    pub fn take_template_args(&mut self) -> Result<(), Invalid> {
        let (args, options) = (&mut self.conversation.template_args, &mut self.options);
        let flag = |value: &Value| value.as_bool().ok_or("must be true or false");
        take(args, "add_generation_prompt", &mut options.add_generation_prompt, flag)?;
        take(args, "continue_final_message", &mut options.continue_final_message, FinalMessage::read)
    }
}

/// Moves the argument `name` to an option, unless they differ. A null argument is the same as none.
fn take<T: PartialEq>(
    args: &mut Object,
    name: &'static str,
    option: &mut Option<T>,
    read: impl FnOnce(&Value) -> Result<T, &'static str>,
) -> Result<(), Invalid> {
    let value = args.get(name).filter(|value| !value.is_null()).map(read).transpose();
    let value = value.map_err(|problem| Invalid::new(Path::from("template_args").key(name), problem))?;
    if option.is_none() || value.is_none() || *option == value {
        args.shift_remove(name);
        *option = option.take().or(value);
    }
    Ok(())
}

/// The end of the final message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinalMessage {
    /// The message has its end of turn.
    Ended,
    /// The prompt ends within this field of the message, so that the model continues the field.
    Continued(String),
}

impl FinalMessage {
    /// Reads transformers' `continue_final_message`.
    ///
    /// # Errors
    /// The value is neither a boolean nor the name of a field.
    pub fn read(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::Bool(is_continued) => Ok(Self::from(*is_continued)),
            Value::String(field) if !field.is_empty() => Ok(Self::Continued(field.clone())),
            _ => Err("must be true, false or the name of a field"),
        }
    }

    /// Returns the name of the continued field, if any.
    #[must_use]
    pub fn continued(&self) -> Option<&str> {
        match self {
            Self::Ended => None,
            Self::Continued(field) => Some(field),
        }
    }
}

impl From<bool> for FinalMessage {
    fn from(is_continued: bool) -> Self {
        if is_continued { Self::Continued(CONTENT.to_owned()) } else { Self::Ended }
    }
}

/// When the rendering has token ids in addition to the text.
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
    /// The end of the final message. None means that the message has its end of turn.
    pub continue_final_message: Option<FinalMessage>,
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

impl RenderOptions {
    /// Returns the name of the field of the final message that the model continues, if any.
    #[must_use]
    pub fn continued_field(&self) -> Option<&str> {
        self.continue_final_message.as_ref().and_then(FinalMessage::continued)
    }
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
