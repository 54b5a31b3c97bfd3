//! Renders probes within a budget.

use std::cell::Cell;

use serde_json::{Value, json};
use tandem_template::{ChatTemplate, Input, Limits, LocalTime, RenderError};

use super::finding::Finding;
use crate::conversation::Object;

/// The limits of one rendering. The largest known template needs 4,000 steps for a probe.
pub(crate) const LIMITS: Limits = Limits { steps: 20_000, bytes: 4 << 20, output: 1 << 20 };
/// The most renderings that may exceed the limits. No further ones are tried then.
const MAX_EXCEEDED: u32 = 2;
/// The most renderings of a template's probes.
const MAX_RENDERINGS: u32 = 600;

/// The form in which a template shows the words of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserForm {
    Text,
    /// Only in a list of blocks.
    Blocks,
}

/// A conversation of a probe.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub messages: Vec<Value>,
    pub tools: Option<Value>,
    pub documents: Option<Value>,
    pub args: Object,
    pub has_no_generation_prompt: bool,
}

impl Probe {
    /// Returns a probe of these messages.
    pub(super) fn of<const N: usize>(messages: [Value; N]) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// Returns the probe without a generation prompt.
    pub(super) fn ended(self) -> Self {
        Self { has_no_generation_prompt: true, ..self }
    }
}

/// The outcome of a rendering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Text(String),
    /// The template raised, or failed.
    Failed,
    /// The budget is used up.
    Exceeded,
}

impl Outcome {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Failed | Self::Exceeded => None,
        }
    }

    /// Returns true if the prompt contains every mark.
    pub(super) fn shows(&self, marks: &[&str]) -> bool {
        self.text().is_some_and(|text| marks.iter().all(|mark| text.contains(mark)))
    }

    /// Returns what became of a mark.
    pub(super) fn finding(&self, mark: &str) -> Finding {
        match self {
            Self::Text(text) if text.contains(mark) => Finding::Shown,
            Self::Text(_) => Finding::LeftOut,
            Self::Failed => Finding::Refused,
            Self::Exceeded => Finding::Unknown,
        }
    }
}

/// Renders probes with one template.
pub(super) struct Renderer<'a> {
    pub(super) template: &'a ChatTemplate,
    special_tokens: &'a Object,
    user: UserForm,
    /// Given to probes without tools, for a template that fails without any.
    tools: Option<Value>,
    exceeded: Cell<u32>,
    rendered: Cell<u32>,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(template: &'a ChatTemplate, special_tokens: &'a Object) -> Self {
        let (exceeded, rendered) = (Cell::new(0), Cell::new(0));
        Self { template, special_tokens, user: UserForm::Text, tools: None, exceeded, rendered }
    }

    /// Returns a renderer whose users say their words in this form.
    pub(super) fn with_user(self, user: UserForm) -> Self {
        Self { user, ..self }
    }

    /// Returns a renderer that gives these tools to probes without tools.
    pub(super) fn with_tools(self, tools: Value) -> Self {
        Self { tools: Some(tools), ..self }
    }

    /// Returns a message with content in the form that the template shows.
    pub(super) fn message(&self, role: &str, text: &str) -> Value {
        json!({"role": role, "content": self.content(text)})
    }

    /// Returns content in the form that the template shows.
    pub(super) fn content(&self, text: &str) -> Value {
        match self.user {
            UserForm::Text => text.into(),
            UserForm::Blocks => json!([{"type": "text", "text": text}]),
        }
    }

    pub(super) fn is_special_token(&self, name: &str) -> bool {
        self.special_tokens.contains_key(name)
    }

    pub(super) fn render(&self, probe: &Probe) -> Outcome {
        if self.exceeded.get() >= MAX_EXCEEDED || self.rendered.get() >= MAX_RENDERINGS {
            return Outcome::Exceeded;
        }
        self.rendered.set(self.rendered.get() + 1);
        let input = Input {
            messages: &probe.messages,
            tools: probe.tools.as_ref().or(self.tools.as_ref()),
            documents: probe.documents.as_ref(),
            args: &probe.args,
            special_tokens: self.special_tokens,
            add_generation_prompt: !probe.has_no_generation_prompt,
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint: None,
        };
        match self.template.apply(&input, &LIMITS) {
            Ok(applied) => Outcome::Text(applied.text),
            Err(RenderError::Limit { .. } | RenderError::Cancelled) => {
                self.exceeded.set(self.exceeded.get() + 1);
                Outcome::Exceeded
            }
            Err(_) => Outcome::Failed,
        }
    }

    /// Returns what became of a mark in a probe, if the template renders the same conversation
    /// without it.
    pub(super) fn finding(&self, probe: &Probe, mark: &str, without: &Probe) -> Finding {
        match self.render(probe).finding(mark) {
            Finding::Refused if self.render(without).text().is_none() => Finding::Unknown,
            finding => finding,
        }
    }
}
