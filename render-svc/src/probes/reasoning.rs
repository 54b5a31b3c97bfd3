//! The assistant's reasoning in a conversation.

use serde_json::{Value, json};

use super::conversation::{ASSISTANT, REASONING, SECOND_USER, USER};
use super::finding::Finding;
use super::renderer::{Probe, Renderer};
use super::tools::ToolFacts;

/// The usual start of reasoning in a text.
pub(super) const START: &str = "<think>";

/// What a template does with reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReasoningFacts {
    /// `reasoning_content` of the last message.
    pub last: Finding,
    /// `reasoning_content` of a message before a later question.
    pub earlier: Finding,
    /// `reasoning_content` of a message with a call whose result follows.
    pub beside_call: Finding,
    /// True if a `<think>` section in the text of an earlier message is left out.
    pub is_cut_from_text: bool,
}

impl ReasoningFacts {
    pub(super) fn of(renderer: &Renderer<'_>, tools: &ToolFacts) -> Self {
        let user = || renderer.message("user", USER);
        let again = || renderer.message("user", SECOND_USER);
        let thought = |mut message: Value| {
            message["reasoning_content"] = REASONING.into();
            message
        };
        let answer = || renderer.message("assistant", ASSISTANT);
        let last = Probe::of([user(), thought(answer())]).ended();
        let earlier = Probe::of([user(), thought(answer()), again()]);
        let section = format!("{START}\n{REASONING}\n</think>\n\n{ASSISTANT}");
        let cut = Probe::of([user(), renderer.message("assistant", &section), again()]);
        let cut = renderer.render(&cut);
        Self {
            last: renderer.finding(&last, REASONING, &Probe::of([user(), answer()]).ended()),
            earlier: renderer.finding(&earlier, REASONING, &Probe::of([user(), answer(), again()])),
            beside_call: tools.shape.map_or(Finding::Unknown, |shape| {
                let without = shape.answered(renderer, json!("result"));
                let mut with = shape.answered(renderer, json!("result"));
                with.messages[1] = thought(with.messages[1].take());
                renderer.finding(&with, REASONING, &without)
            }),
            is_cut_from_text: cut.shows(&[ASSISTANT]) && !cut.shows(&[REASONING]),
        }
    }

    /// Returns true if the template writes reasoning, or removes it from a text.
    #[must_use]
    pub fn is_read(self) -> bool {
        self.is_cut_from_text || [self.last, self.earlier, self.beside_call].contains(&Finding::Shown)
    }
}
