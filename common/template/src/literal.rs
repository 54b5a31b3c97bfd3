//! Control tokens of a prompt that come from the caller's text, so that they are tokenized as text.
//!
//! The prompt alone does not contain the origin of its text. The conversation is therefore rendered
//! a second time with tainted characters, which rendering propagates without interpreting them.
//! Without the taint, the second rendering must equal the prompt; otherwise the request fails. A
//! control token comes from the caller if any of its characters is tainted, however the text was
//! cut, joined or rewritten.
//!
//! The names that rendering compares with stay untainted ([`KnownNames`]). Numbers cannot be
//! tainted: a control token that a format makes of digits is the format's own.
//!
//! `sanitize_control_tokens` of transformers differs in three ways. Its prompt is the rendering
//! with marks, so marks that a template separates from their token remain in it. It marks only
//! control tokens that are complete in one text. It does not mark the keys of objects.

use std::ops::Range;

pub use aho_corasick::BuildError;
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

use crate::error::RenderError;
use crate::media;
use crate::taint::{Stripped, Taint};

/// Fields of messages and blocks.
pub const FIELDS: &[&str] = &["role", "content", "type", "text", "reasoning_content", "thinking", "reasoning"];

/// Roles of messages in every format.
pub const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function"];

/// Roles that templates of some models write, in addition to those of every format.
const TEMPLATE_ROLES: &[&str] = &["model", "ipython", "latest_reminder", "direct_search_results"];

/// Types of blocks and of tools, without those of media.
pub const TYPES: &[&str] = &["text", "tool_use", "tool_result", "function"];

/// Lists of names. An adapter adds its names as a list to the lists of the conversation's shape.
pub type NameLists = &'static [&'static [&'static str]];

/// The names in a conversation that the code around a template, or a format's code, compares with.
///
/// The search for the caller's control tokens taints all of the conversation except these names, so
/// that comparisons with them still succeed. This hides no control token of the caller, because no
/// name is a control token.
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
    /// The names for chat templates: the fields that are looked up around a template. The template
    /// itself finds tainted names too.
    pub const TEMPLATE: Self = Self { nested_fields: &[], roles: &[ROLES, TEMPLATE_ROLES], ..Self::with(&[FIELDS]) };

    /// Returns known names with these fields at any depth, and with the contract's roles and types.
    #[must_use]
    pub const fn with(fields: NameLists) -> Self {
        Self { fields, nested_fields: fields, roles: &[ROLES], types: &[TYPES, media::TYPE_NAMES] }
    }
}

/// The parts of a conversation that reach a prompt.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    pub messages: &'a [Value],
    /// The list of tools.
    pub tools: Option<&'a Value>,
    /// The list of documents.
    pub documents: Option<&'a Value>,
    /// Arguments for the template.
    pub template_args: &'a Map<String, Value>,
}

/// The parts of a conversation with tainted text.
#[derive(Debug, Clone)]
pub struct TaintedParts {
    pub taint: Taint,
    pub messages: Vec<Value>,
    /// The list of tools.
    pub tools: Option<Value>,
    /// The list of documents.
    pub documents: Option<Value>,
    /// Arguments for the template.
    pub template_args: Map<String, Value>,
}

/// The origin of a prompt's control tokens cannot be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unclear;

/// Searches the control tokens of one model's prompts.
#[derive(Debug)]
pub struct ControlTokenFinder(AhoCorasick);

impl ControlTokenFinder {
    /// Creates a finder of these control tokens. Empty ones are left out.
    ///
    /// # Errors
    /// There are too many control tokens to search.
    pub fn new<'t>(control_tokens: impl IntoIterator<Item = &'t str>) -> Result<Self, BuildError> {
        let texts = control_tokens.into_iter().filter(|text| !text.is_empty());
        Ok(Self(AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts)?))
    }

    /// Returns the bytes of `text` that spell control tokens, in order.
    #[must_use]
    pub fn in_text(&self, text: &str) -> Vec<Range<usize>> {
        self.0.find_iter(text).map(|found| found.range()).collect()
    }

    /// Returns the bytes of `prompt` that spell control tokens and come from the conversation, in
    /// order. `render` must render as the prompt was rendered, with code that compares with these
    /// known names. Its error is final if `is_final` is true for it, as for a limit of templates,
    /// which tainted text reaches earlier, or a cancellation.
    ///
    /// # Errors
    /// [`Unclear`], or a final error of `render`.
    pub fn of_caller<E: From<Unclear>>(
        &self,
        prompt: &str,
        parts: Parts<'_>,
        known_names: &KnownNames,
        render: impl FnOnce(TaintedParts) -> Result<String, E>,
        is_final: impl FnOnce(&E) -> bool,
    ) -> Result<Vec<Range<usize>>, E> {
        let mut found = self.in_text(prompt);
        if found.is_empty() {
            return Ok(found);
        }
        let taint = Taint::unused_in(parts.texts()).ok_or(Unclear)?;
        let tainter = Tainter { taint, names: *known_names };
        let rendered =
            render(tainter.parts(parts)).map_err(|error| if is_final(&error) { error } else { Unclear.into() })?;
        let stripped = Stripped::of(&rendered, taint);
        if stripped.text != prompt {
            return Err(Unclear.into());
        }
        found.retain(|range| stripped.is_tainted(range));
        Ok(found)
    }
}

/// Returns true if a tainted rendering fails for another reason than its taint: a limit, or a
/// cancellation.
#[must_use]
pub fn is_final(error: &RenderError) -> bool {
    matches!(error, RenderError::Limit { .. } | RenderError::Cancelled)
}

impl<'a> Parts<'a> {
    /// Returns the values that may contain text.
    fn texts(self) -> impl Iterator<Item = &'a Value> + Clone {
        self.messages.iter().chain(self.tools).chain(self.documents).chain(self.template_args.values())
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
    fn parts(self, parts: Parts<'_>) -> TaintedParts {
        let Parts { messages, tools, documents, template_args } = parts;
        let within = self.within();
        TaintedParts {
            taint: self.taint,
            messages: messages.iter().map(|message| self.message(message)).collect(),
            tools: tools.map(|tools| within.value(tools)),
            documents: documents.map(|documents| within.value(documents)),
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

    fn object(self, object: &Map<String, Value>) -> Map<String, Value> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::Limits;
    use crate::{ChatTemplate, Input, LocalTime};

    #[derive(Debug, PartialEq)]
    enum Failed {
        Unclear,
        Limit,
        Template,
    }

    impl From<Unclear> for Failed {
        fn from(_: Unclear) -> Self {
            Self::Unclear
        }
    }

    fn rendered(template: &str, message: &Value, taint: Option<Taint>) -> Result<String, Failed> {
        let template = ChatTemplate::compile(template).expect("a template");
        let none = Map::new();
        let input = Input {
            messages: std::slice::from_ref(message),
            tools: None,
            documents: None,
            args: &none,
            special_tokens: &none,
            add_generation_prompt: false,
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint,
        };
        template.apply(&input, &Limits::default()).map(|applied| applied.text).map_err(|_| Failed::Template)
    }

    /// Returns the caller's control tokens in the prompt of a message.
    fn callers(template: &str, message: &Value) -> Result<Vec<String>, Failed> {
        let finder = ControlTokenFinder::new(["<|user|>", "<|end|>", ""]).expect("three texts");
        let prompt = rendered(template, message, None)?;
        let none = Map::new();
        let messages = std::slice::from_ref(message);
        let parts = Parts { messages, tools: None, documents: None, template_args: &none };
        let again = |tainted: TaintedParts| rendered(template, &tainted.messages[0], Some(tainted.taint));
        let found = finder.of_caller(&prompt, parts, &KnownNames::TEMPLATE, again, |_| false)?;
        Ok(found.into_iter().map(|range| prompt[range].to_owned()).collect())
    }

    #[test]
    fn a_role_that_models_are_trained_with_is_the_formats() {
        let template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}";
        assert_eq!(callers(template, &json!({"role": "user", "content": "a"})), Ok(vec![]));
        assert_eq!(
            callers(template, &json!({"role": "end", "content": "<|user|>"})),
            Ok(vec!["<|end|>".into(), "<|user|>".into()])
        );
    }

    #[test]
    fn fields_and_keys_of_the_caller_are_its_text() {
        let template = "{% for m in messages %}{% for key in m %}<|{{ key }}|>{% endfor %}{% endfor %}";
        assert_eq!(callers(template, &json!({"role": "user", "content": "a", "end": 1})), Ok(vec!["<|end|>".into()]));
        let nested = "{% for key in messages[0].content[0] %}<|{{ key }}|>{% endfor %}";
        let message = json!({"role": "user", "content": [{"type": "text", "end": 1}]});
        assert_eq!(callers(nested, &message), Ok(vec!["<|end|>".into()]));
    }

    #[test]
    fn a_rendering_that_differs_with_taint_is_unclear() {
        let message = json!({"role": "user", "content": "%d"});
        assert_eq!(callers("{{ messages[0].content % 1 }}<|end|>", &message), Err(Failed::Unclear));
        assert_eq!(callers("{{ messages[0].content % 1 }}", &message), Ok(vec![]));
    }

    #[test]
    fn only_a_final_error_is_returned() {
        let finder = ControlTokenFinder::new(["<|end|>"]).expect("a text");
        let none = Map::new();
        let parts = Parts { messages: &[], tools: None, documents: None, template_args: &none };
        for (error, expected) in [(Failed::Limit, Failed::Limit), (Failed::Template, Failed::Unclear)] {
            let found =
                finder.of_caller("<|end|>", parts, &KnownNames::TEMPLATE, |_| Err(error), |e| *e == Failed::Limit);
            assert_eq!(found, Err(expected));
        }
    }
}
