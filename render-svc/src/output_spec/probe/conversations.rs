//! The probed conversations, and their rendering.

use serde_json::{Value, json};

use crate::conversation::Object;
use crate::model::{Model, NamedTemplate};
use crate::probes::{ArgumentsShape, Outcome, Probe, Renderer};

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

/// Renders probed conversations with a model's default template.
pub(in super::super) struct Prober<'a> {
    named: &'a NamedTemplate,
    special_tokens: &'a Object,
    renderer: Renderer<'a>,
}

impl<'a> Prober<'a> {
    /// Returns a prober of the model's default template. None if there is none.
    pub(in super::super) fn new(model: &'a Model) -> Option<Self> {
        Some(Self::of(model, model.templates.choose(None, false).ok()?))
    }

    /// Returns a prober of the template for conversations with tools, if it is another one.
    pub(in super::super) fn with_tools(model: &'a Model) -> Option<Self> {
        let named = |with_tools| model.templates.choose(None, with_tools).ok();
        let with_tools = named(true)?;
        let is_default = named(false).is_some_and(|default| default.sha256 == with_tools.sha256);
        (!is_default).then(|| Self::of(model, with_tools))
    }

    /// Returns a prober of a template. Its conversations have the form for which the template writes the
    /// messages, if there is one.
    fn of(model: &'a Model, named: &'a NamedTemplate) -> Self {
        let renderer = Renderer::showing(&named.template, model.values(), |renderer| {
            let messages = vec![renderer.message("user", QUESTION), renderer.message("assistant", ANSWER)];
            let prompt = renderer.render(&Probe { messages, has_no_generation_prompt: true, ..Probe::default() });
            prompt.text().is_some_and(|text| text.contains(QUESTION) && text.contains(ANSWER))
        });
        Self { named, special_tokens: &model.special_tokens, renderer }
    }

    /// Returns the text of the tokenizer's eos token. Empty if it has none.
    pub(super) fn eos_token(&self) -> &str {
        self.special_tokens.get("eos_token").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn user(&self, text: &str) -> Value {
        self.renderer.message("user", text)
    }

    pub(super) fn system(&self) -> Value {
        self.renderer.message("system", SYSTEM)
    }

    pub(super) fn assistant(&self, text: &str) -> Value {
        self.renderer.message("assistant", text)
    }

    /// Returns an assistant's message with reasoning before this text. Templates read the reasoning
    /// under different names.
    pub(super) fn reasoned(&self, text: &str) -> Value {
        let content = self.renderer.content(text);
        json!({"role": "assistant", "content": content, "reasoning_content": REASONING, "reasoning": REASONING})
    }

    /// Adds calls of these tools to an assistant's message.
    pub(super) fn with_calls(&self, mut message: Value, names: &[&str]) -> Value {
        let arguments = json!({"value": ARGUMENT});
        let arguments = match self.named.facts.tools.arguments {
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

    /// Renders messages without a generation prompt.
    pub(super) fn render(&self, messages: &[Value]) -> Option<String> {
        self.render_probe(Probe { messages: messages.to_vec(), has_no_generation_prompt: true, ..Probe::default() })
    }

    /// Renders messages that contain calls.
    pub(super) fn render_calls(&self, messages: &[Value]) -> Option<String> {
        let tools = Some(declared_tool());
        self.render_probe(Probe {
            messages: messages.to_vec(),
            tools,
            has_no_generation_prompt: true,
            ..Probe::default()
        })
    }

    /// Renders one question with a generation prompt.
    pub(super) fn render_prompt(&self) -> Option<String> {
        self.render_probe(Probe { messages: vec![self.user(QUESTION)], ..Probe::default() })
    }

    fn render_probe(&self, probe: Probe) -> Option<String> {
        match self.renderer.render(&probe) {
            Outcome::Text(text) => Some(text),
            Outcome::Failed | Outcome::Exceeded => None,
        }
    }
}

fn declared_tool() -> Value {
    let properties = json!({"value": {"type": "string", "description": "A value"}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["value"]});
    let function = json!({"name": "probe", "description": "A tool", "parameters": parameters});
    json!([{"type": "function", "function": function}])
}
