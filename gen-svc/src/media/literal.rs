//! The control tokens of a prompt that come from its messages, and stay text if the caller asks for it.
//!
//! As in render-svc: the messages are rendered a second time with tainted characters, which the
//! template propagates without interpreting them.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};
use tandem_model_files::tokenizer::{AddedToken, Tokenizer};
use tandem_template::Taint;
use tandem_template::taint::Stripped;

use super::messages::HfMessages;
use crate::error::Error;

/// The roles that models are trained with. They may be part of a control token of the format.
const ROLES: [&str; 7] = ["assistant", "developer", "function", "model", "system", "tool", "user"];

/// Finds the control tokens in a model's prompts, and the placeholders of its images.
#[derive(Debug)]
pub(super) struct ControlTokens(AhoCorasick);

impl ControlTokens {
    /// Returns the finder of a model with this chat template.
    pub(super) fn new(tokenizer: &Tokenizer, template: &str, placeholder: &str) -> Result<Self, Error> {
        let is_control = |token: &&AddedToken| token.is_control(|text| template.contains(text));
        let tokens = tokenizer.added_tokens().iter().filter(is_control).map(|token| token.text.as_str());
        let texts = tokens.chain([placeholder]).filter(|text| !text.is_empty());
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        finder.map(Self).map_err(|_| Error::ControlTokensUnclear)
    }

    /// Returns the bytes of `prompt` that spell control tokens and come from the messages, in order.
    ///
    /// # Errors
    /// `render` renders tainted messages to another text.
    pub(super) fn of_messages(
        &self,
        prompt: &str,
        messages: &HfMessages,
        render: impl FnOnce(&HfMessages, Taint) -> Result<String, Error>,
    ) -> Result<Vec<Range<usize>>, Error> {
        let mut found: Vec<Range<usize>> = self.0.find_iter(prompt).map(|found| found.range()).collect();
        if found.is_empty() {
            return Ok(found);
        }
        let taint = Taint::unused_in(texts(messages)).ok_or(Error::ControlTokensUnclear)?;
        let stripped = Stripped::of(&render(&tainted(messages, taint), taint)?, taint);
        if stripped.text != prompt {
            return Err(Error::ControlTokensUnclear);
        }
        found.retain(|range| stripped.is_tainted(range));
        Ok(found)
    }
}

fn texts(messages: &HfMessages) -> impl Iterator<Item = &Value> + Clone {
    let HfMessages { messages, tools, documents, template_args, .. } = messages;
    messages.iter().chain(tools).chain(documents).chain(template_args.values())
}

fn tainted(messages: &HfMessages, taint: Taint) -> HfMessages {
    let args = messages.template_args.iter();
    HfMessages {
        messages: messages.messages.iter().map(|message| tainted_message(message, taint)).collect(),
        tools: messages.tools.clone().map(|tools| taint.taint_json(tools)),
        documents: messages.documents.clone().map(|documents| taint.taint_json(documents)),
        template_args: args.map(|(name, value)| (name.clone(), taint.taint_json(value.clone()))).collect(),
        ..messages.clone()
    }
}

/// Taints a message, except for the names of its fields and a usual role.
fn tainted_message(message: &Value, taint: Taint) -> Value {
    let Value::Object(fields) = message else { return taint.taint_json(message.clone()) };
    let field = |(key, value): (&String, &Value)| {
        let is_role = key == "role" && value.as_str().is_some_and(|role| ROLES.contains(&role));
        (key.clone(), if is_role { value.clone() } else { taint.taint_json(value.clone()) })
    };
    Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
}
