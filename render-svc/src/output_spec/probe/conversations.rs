//! The probed conversations, and their rendering.

use std::cell::Cell;

use serde_json::{Value, json};
use tandem_template::{ArgumentsShape, ChatTemplate, Input, Limits, LocalTime, RenderError};

use crate::conversation::Object;
use crate::model::Model;

// The texts of the probed messages. A template may move or trim them, but not change them. None
// contains another.

/// The system message.
pub(super) const SYSTEM: &str = "tandem-system-probe";
/// The user's first message.
pub(super) const QUESTION: &str = "tandem-question-probe";
/// The assistant's message.
pub(super) const ANSWER: &str = "tandem-answer-probe";
/// The user's second message.
pub(super) const NEXT: &str = "tandem-next-probe";
/// The assistant's reasoning.
pub(super) const REASONING: &str = "tandem-reasoning-probe";
/// The names of the called tools, and the argument of every call. The declared tool has another
/// name, since a template may write it anywhere.
pub(super) const CALLS: [&str; 2] = ["tandem_first_probe", "tandem_second_probe"];
pub(super) const ARGUMENT: &str = "tandem-argument-probe";

/// Limits of one rendering. Templates are not trusted, and a model is probed about twenty times. The
/// steps are in addition to those for the texts, which suffice for every known template.
const LIMITS: Limits = Limits { steps: 8_000, bytes: 4 * 1024 * 1024, output: 256 * 1024 };

/// Renders probed conversations with a model's default template.
pub(in super::super) struct Prober<'a> {
    template: &'a ChatTemplate,
    special_tokens: &'a Object,
    shape: Shape,
    /// True if a rendering reached a limit. No further probes are rendered then.
    is_exhausted: Cell<bool>,
}

/// The form of conversations that a template requires.
#[derive(Clone, Copy, Default)]
struct Shape {
    /// Content is a list of blocks.
    has_blocks: bool,
    /// Tools are declared.
    has_tools: bool,
}

impl<'a> Prober<'a> {
    /// Returns a prober of the model's default template with the first shape of conversations for
    /// which the template writes the messages. None if there is no default template.
    pub(in super::super) fn new(model: &'a Model) -> Option<Self> {
        const SHAPES: [Shape; 4] = [
            Shape { has_blocks: false, has_tools: false },
            Shape { has_blocks: true, has_tools: false },
            Shape { has_blocks: false, has_tools: true },
            Shape { has_blocks: true, has_tools: true },
        ];
        let template = &model.templates.choose(None, false).ok()?.template;
        let mut prober = Self {
            template,
            special_tokens: &model.special_tokens,
            shape: Shape::default(),
            is_exhausted: Cell::new(false),
        };
        for shape in SHAPES {
            prober.shape = shape;
            let messages = [prober.user(QUESTION), prober.assistant(ANSWER)];
            if prober.render(&messages).is_some_and(|text| text.contains(QUESTION) && text.contains(ANSWER)) {
                return Some(prober);
            }
        }
        prober.shape = Shape::default();
        Some(prober)
    }

    /// Returns the text of the tokenizer's eos token. Empty if it has none.
    pub(super) fn eos_token(&self) -> &str {
        self.special_tokens.get("eos_token").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn user(&self, text: &str) -> Value {
        json!({"role": "user", "content": self.content(text)})
    }

    pub(super) fn system(&self) -> Value {
        json!({"role": "system", "content": self.content(SYSTEM)})
    }

    pub(super) fn assistant(&self, text: &str) -> Value {
        json!({"role": "assistant", "content": self.content(text)})
    }

    /// Returns an assistant's message with reasoning before this text. Templates read the reasoning
    /// under different names.
    pub(super) fn reasoned(&self, text: &str) -> Value {
        let content = self.content(text);
        json!({"role": "assistant", "content": content, "reasoning_content": REASONING, "reasoning": REASONING})
    }

    /// Adds calls of these tools to an assistant's message.
    pub(super) fn with_calls(&self, mut message: Value, names: &[&str]) -> Value {
        let arguments = json!({"value": ARGUMENT});
        let arguments = match self.template.arguments() {
            ArgumentsShape::Text => arguments.to_string().into(),
            _ => arguments,
        };
        // Some templates require ids of nine letters and digits.
        let call = |(name, id): (&&str, u8)| {
            json!({"id": format!("probe000{id}"), "type": "function",
                   "function": {"name": name, "arguments": arguments}})
        };
        message["tool_calls"] = names.iter().zip(1..).map(call).collect();
        message
    }

    fn content(&self, text: &str) -> Value {
        if self.shape.has_blocks { json!([{"type": "text", "text": text}]) } else { text.into() }
    }

    /// Renders messages without a generation prompt.
    pub(super) fn render(&self, messages: &[Value]) -> Option<String> {
        self.render_as(messages, self.shape.has_tools, false)
    }

    /// Renders messages that contain calls.
    pub(super) fn render_calls(&self, messages: &[Value]) -> Option<String> {
        self.render_as(messages, true, false)
    }

    /// Renders one question with a generation prompt.
    pub(super) fn render_prompt(&self) -> Option<String> {
        self.render_as(&[self.user(QUESTION)], self.shape.has_tools, true)
    }

    fn render_as(&self, messages: &[Value], has_tools: bool, add_generation_prompt: bool) -> Option<String> {
        if self.is_exhausted.get() {
            return None;
        }
        let tools = has_tools.then(declared_tool);
        let input = Input {
            messages,
            tools: tools.as_ref(),
            documents: None,
            args: &Object::new(),
            special_tokens: self.special_tokens,
            add_generation_prompt,
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint: None,
        };
        match self.template.apply(&input, &LIMITS) {
            Ok(applied) => Some(applied.text),
            Err(error) => {
                self.is_exhausted.set(matches!(error, RenderError::Limit { .. }));
                None
            }
        }
    }
}

fn declared_tool() -> Value {
    let properties = json!({"value": {"type": "string", "description": "A value"}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["value"]});
    let function = json!({"name": "probe", "description": "A tool", "parameters": parameters});
    json!([{"type": "function", "function": function}])
}
