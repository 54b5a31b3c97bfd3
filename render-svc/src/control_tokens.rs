//! Which control tokens in a prompt the caller has written, so that they can be read as nothing but their letters.
//!
//! The prompt alone does not tell. So the conversation is rendered once more with marks on its letters, which rendering does not
//! see, but carries along. Without its marks that must be the prompt, letter by letter; else nothing is guessed. A control token
//! in it is the caller's if any of its letters is marked, however the text was cut, joined or rewritten before.
//!
//! Not marked is what formats are asked to write themselves: the usual roles of messages, the usual types of blocks, and the names
//! of fields that are looked up by the code. None of them is a control token, so each of those has a letter of somebody else.
//! Numbers cannot be marked: a format that makes a control token of digits has made it itself.
//!
//! What transformers does for `sanitize_control_tokens` differs in three ways: there the prompt is the marked rendering, so marks
//! that a template separated from their token leave traces in it; only control tokens that stand whole in a text are marked; and
//! the keys of objects are not.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tandem_model_files::tokenizer::{AddedToken, Tokenizer};
use tandem_template::{RenderError, Taint};

use crate::adapters::Kind;
use crate::chat::{Conversation, Object};
use crate::error::Error;
use crate::models::Templates;

/// The roles that formats write themselves.
const ROLES: &[&str] = &[
    "system",
    "developer",
    "user",
    "assistant",
    "model",
    "tool",
    "function",
    "ipython",
    "latest_reminder",
    "direct_search_results",
];

/// The types of blocks that formats write something for.
const TYPES: &[&str] = &[
    "text",
    "image",
    "image_url",
    "input_image",
    "audio",
    "input_audio",
    "audio_url",
    "video",
    "video_url",
    "tool_use",
    "tool_result",
    "function",
];

/// Fields of messages and blocks that are looked up around a template, which itself finds marked names too.
const TEMPLATE_FIELDS: &[&str] = &["role", "content", "type", "text", "reasoning_content", "thinking", "reasoning"];

/// Fields that the built-in formats and the encoders of families look up, at any depth.
const FIELDS: &[&str] = &[
    "role",
    "content",
    "type",
    "text",
    "reasoning_content",
    "thinking",
    "reasoning",
    "name",
    "id",
    "function",
    "arguments",
    "description",
    "parameters",
    "properties",
    "required",
    "nullable",
    "items",
    "enum",
    "response",
    "input",
    "tools",
    "tool_calls",
    "tool_call_id",
    "tool_use_id",
    "tool_responses",
    "response_format",
    "task",
    "wo_eos",
    "attachment_id",
    "base64",
    "data",
    "url",
    "path",
    "image",
    "image_url",
    "audio",
    "input_audio",
    "video",
];

/// The elements of HTML whose tags are text wherever no format writes them.
const HTML: &[&str] = &[
    "a",
    "b",
    "blockquote",
    "body",
    "br",
    "caption",
    "code",
    "div",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "hr",
    "html",
    "i",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
];

/// What stands around control tokens.
const BRACKETS: &[char] = &['<', '>', '[', ']', '{', '}', '|', '｜'];

/// The control tokens of one model's prompts: its special tokens, what its templates or its adapter write, and every other added
/// token that is written like one, in brackets. The rest of a vocabulary is text: white space, words, and the tags of HTML.
#[derive(Debug)]
pub struct ControlTokens {
    finder: AhoCorasick,
}

impl ControlTokens {
    /// Those of a model with this tokenizer and these templates, whose adapter writes `markup`.
    ///
    /// # Errors
    /// They are too many to be searched for.
    pub fn new(tokenizer: &Tokenizer, templates: &Templates, markup: &[&str]) -> Result<Self, Error> {
        let is_written = |text: &str| markup.contains(&text) || templates.write(text);
        let is_control = |token: &&AddedToken| {
            let text = token.text.as_str();
            token.is_special || (!text.trim().is_empty() && (looks_like_control(text) || is_written(text)))
        };
        let control = tokenizer.added_tokens().iter().filter(is_control);
        let texts = control.map(|token| token.text.as_str()).filter(|text| !text.is_empty());
        Ok(Self { finder: AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts)? })
    }

    /// The bytes of `text` that spell control tokens, in order.
    #[must_use]
    pub fn in_text(&self, text: &str) -> Vec<Range<usize>> {
        self.finder.find_iter(text).map(|found| found.range()).collect()
    }

    /// The bytes of `prompt` that spell control tokens and come from the conversation, in order. `render` must render as the prompt
    /// was rendered, by an adapter of this kind.
    ///
    /// # Errors
    /// [`Error::ControlTokensUnclear`]; a limit of templates, which marked letters reach sooner.
    pub fn users(
        &self,
        prompt: &str,
        conversation: &Conversation,
        kind: Kind,
        render: impl FnOnce(&Conversation, Taint) -> Result<String, Error>,
    ) -> Result<Vec<Range<usize>>, Error> {
        let mut found = self.in_text(prompt);
        if found.is_empty() {
            return Ok(found);
        }
        let marks = unused_marks(conversation).ok_or(Error::ControlTokensUnclear)?;
        let marking = match kind {
            Kind::Template => Marking { marks, fields: TEMPLATE_FIELDS, fields_within: &[] },
            Kind::Family | Kind::Format => Marking { marks, fields: FIELDS, fields_within: FIELDS },
        };
        let rendered = render(&marking.conversation(conversation), marks).map_err(|error| match error {
            Error::Template(RenderError::Limit { .. }) => error,
            _ => Error::ControlTokensUnclear,
        })?;
        let unmarked = Unmarked::of(&rendered, marks);
        if unmarked.text != prompt {
            return Err(Error::ControlTokensUnclear);
        }
        found.retain(|range| unmarked.is_users(range));
        Ok(found)
    }
}

/// Whether an added token that nobody calls special is written as control tokens are.
fn looks_like_control(text: &str) -> bool {
    text.contains(BRACKETS) && !is_html(text)
}

fn is_html(text: &str) -> bool {
    let tag = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    let element = tag.map(|tag| tag.strip_prefix('/').unwrap_or(tag));
    element.is_some_and(|element| HTML.contains(&element))
}

/// Marks the letters of a conversation.
#[derive(Debug, Clone, Copy)]
struct Marking {
    marks: Taint,
    /// The fields of messages and blocks that stay as they are.
    fields: &'static [&'static str],
    /// Those of all objects in them and of everything else.
    fields_within: &'static [&'static str],
}

impl Marking {
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

    fn within(self) -> Self {
        Self { fields: self.fields_within, ..self }
    }

    /// A message's blocks are marked as messages are.
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
            Value::String(text) => Value::String(self.marks.taint_text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
            other => other.clone(),
        }
    }

    fn object(self, object: &Object) -> Object {
        object.iter().map(|(key, value)| self.field(key, value)).collect()
    }

    fn field(self, key: &str, value: &Value) -> (String, Value) {
        if !self.fields.contains(&key) {
            return (self.marks.taint_text(key), self.within().value(value));
        }
        let is_usual = match (key, value.as_str()) {
            ("role", Some(role)) => ROLES.contains(&role),
            ("type", Some(kind)) => TYPES.contains(&kind),
            _ => false,
        };
        (key.to_owned(), if is_usual { value.clone() } else { self.within().value(value) })
    }
}

/// A rendering whose marks were taken off.
#[derive(Debug, Default)]
struct Unmarked {
    text: String,
    /// The parts whose letters were marked, in order.
    parts: Vec<Range<usize>>,
}

impl Unmarked {
    fn of(rendered: &str, marks: Taint) -> Self {
        let mut unmarked = Self::default();
        for (is_marked, stretch) in marks.runs(rendered) {
            let start = unmarked.text.len();
            unmarked.text.push_str(&marks.strip(stretch));
            if is_marked {
                unmarked.parts.push(start..unmarked.text.len());
            }
        }
        unmarked
    }

    /// Whether a control token here is the user's: letters of it were marked.
    fn is_users(&self, range: &Range<usize>) -> bool {
        let next = self.parts.partition_point(|part| part.end <= range.start);
        self.parts.get(next).is_some_and(|part| part.start < range.end)
    }
}

/// Marks whose marked letters stand nowhere in a conversation.
fn unused_marks(conversation: &Conversation) -> Option<Taint> {
    let Conversation { messages, tools, documents, template_args } = conversation;
    let values = || messages.iter().chain(tools).chain(documents).chain(template_args.values());
    Taint::ALL.into_iter().find(|&marks| !values().any(|value| are_in(marks, value)))
}

fn are_in(marks: Taint, value: &Value) -> bool {
    match value {
        Value::String(text) => marks.is_in(text),
        Value::Array(items) => items.iter().any(|item| are_in(marks, item)),
        Value::Object(object) => object.iter().any(|(key, value)| marks.is_in(key) || are_in(marks, value)),
        _ => false,
    }
}
