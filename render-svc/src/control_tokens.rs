//! Finds the control tokens of a prompt that come from caller text, so that they are tokenized as
//! text.
//!
//! The prompt alone does not contain the origin of its text. The conversation is therefore rendered
//! a second time with tainted characters, which rendering propagates without interpreting them.
//! Without the taint, the second rendering must equal the prompt; otherwise the request fails. A
//! control token comes from the caller if any of its characters is tainted, however the text was
//! cut, joined or rewritten.
//!
//! The names that an adapter's code compares with stay untainted ([`KnownNames`]). Numbers cannot be
//! tainted: a control token that a format makes of digits is the format's own.
//!
//! `sanitize_control_tokens` of transformers differs in three ways. Its prompt is the rendering
//! with marks, so marks that a template separates from their token remain in it. It marks only
//! control tokens that are complete in one text. It does not mark the keys of objects.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tandem_model_files::tokenizer::{AddedToken, Tokenizer, TokenizerError};
use tandem_template::taint::Stripped;
use tandem_template::{RenderError, Taint};

use crate::adapter::{KnownNames, NameLists};
use crate::conversation::{Conversation, Object};
use crate::error::Error;
use crate::model::Templates;

/// Searches the control tokens of one model's prompts. They are its special tokens, added tokens
/// that its templates or its adapter write, and every other added token in brackets. The rest of a
/// vocabulary is text: white space, words, and tags of HTML.
#[derive(Debug)]
pub struct ControlTokenFinder {
    finder: AhoCorasick,
}

impl ControlTokenFinder {
    /// Creates a finder for a model with this tokenizer and these templates, whose adapter writes
    /// `markup`.
    ///
    /// # Errors
    /// There are too many control tokens to search.
    pub fn new(tokenizer: &Tokenizer, templates: &Templates, markup: &[&str]) -> Result<Self, Error> {
        let is_written = |text: &str| markup.contains(&text) || templates.write(text);
        let is_control = |token: &&AddedToken| token.is_control(is_written);
        let control = tokenizer.added_tokens().iter().filter(is_control);
        let texts = control.map(|token| token.text.as_str()).filter(|text| !text.is_empty());
        Ok(Self { finder: AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts)? })
    }

    /// Returns the bytes of `text` that spell control tokens, in order.
    #[must_use]
    pub fn in_text(&self, text: &str) -> Vec<Range<usize>> {
        self.finder.find_iter(text).map(|found| found.range()).collect()
    }

    /// Returns the bytes of `prompt` that spell control tokens and come from the conversation, in
    /// order. `render` must render as the prompt was rendered, by an adapter with these known
    /// names.
    ///
    /// # Errors
    /// [`Error::ControlTokensUnclear`], a limit of templates, which tainted text reaches earlier, or
    /// a cancellation.
    pub fn users(
        &self,
        prompt: &str,
        conversation: &Conversation,
        known_names: &KnownNames,
        render: impl FnOnce(&Conversation, Taint) -> Result<String, Error>,
    ) -> Result<Vec<Range<usize>>, Error> {
        let mut found = self.in_text(prompt);
        if found.is_empty() {
            return Ok(found);
        }
        let taint = Taint::unused_in(texts(conversation)).ok_or(Error::ControlTokensUnclear)?;
        let tainter = Tainter { taint, names: *known_names };
        let rendered = render(&tainter.conversation(conversation), taint).map_err(|error| match error {
            Error::Template(RenderError::Limit { .. } | RenderError::Cancelled)
            | Error::Tokenizer(TokenizerError::Cancelled) => error,
            _ => Error::ControlTokensUnclear,
        })?;
        let stripped = Stripped::of(&rendered, taint);
        if stripped.text != prompt {
            return Err(Error::ControlTokensUnclear);
        }
        found.retain(|range| stripped.is_tainted(range));
        Ok(found)
    }
}

/// Taints the text of a conversation.
#[derive(Debug, Clone, Copy)]
struct Tainter {
    taint: Taint,
    /// The names that stay as they are.
    names: KnownNames,
}

impl Tainter {
    fn conversation(self, conversation: &Conversation) -> Conversation {
        let Conversation { messages, tools, documents, template_args } = conversation;
        let within = self.within();
        Conversation {
            messages: messages.iter().map(|message| self.message(message)).collect(),
            tools: tools.as_ref().map(|tools| within.value(tools)),
            documents: documents.as_ref().map(|documents| within.value(documents)),
            template_args: template_args.iter().map(|(name, value)| (name.clone(), within.value(value))).collect(),
        }
    }

    /// Returns the tainter of nested objects.
    fn within(self) -> Self {
        Self { names: KnownNames { fields: self.names.nested_fields, ..self.names }, ..self }
    }

    /// Taints a message. Its blocks are tainted as messages are.
    fn message(self, message: &Value) -> Value {
        let Value::Object(fields) = message else { return self.value(message) };
        let field = |(key, value): (&String, &Value)| match value {
            Value::Array(blocks) if key == "content" => {
                (key.clone(), blocks.iter().map(|block| self.value(block)).collect())
            }
            _ => self.field(key, value),
        };
        Value::Object(fields.iter().map(field).collect())
    }

    fn value(self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.taint.taint_text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
            other => other.clone(),
        }
    }

    fn object(self, object: &Object) -> Object {
        object.iter().map(|(key, value)| self.field(key, value)).collect()
    }

    fn field(self, key: &str, value: &Value) -> (String, Value) {
        if !is_in(self.names.fields, key) {
            return (self.taint.taint_text(key), self.within().value(value));
        }
        let is_usual = match (key, value.as_str()) {
            ("role", Some(role)) => is_in(self.names.roles, role),
            ("type", Some(kind)) => is_in(self.names.types, kind),
            _ => false,
        };
        (key.to_owned(), if is_usual { value.clone() } else { self.within().value(value) })
    }
}

fn is_in(lists: NameLists, name: &str) -> bool {
    lists.iter().any(|list| list.contains(&name))
}

/// Returns the values of a conversation that may contain text.
fn texts(conversation: &Conversation) -> impl Iterator<Item = &Value> + Clone {
    let Conversation { messages, tools, documents, template_args } = conversation;
    messages.iter().chain(tools).chain(documents).chain(template_args.values())
}
