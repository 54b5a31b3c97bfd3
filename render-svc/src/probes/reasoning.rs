//! The assistant's reasoning in a conversation.

use serde_json::{Value, json};

use super::conversation::{ASSISTANT, REASONING, SECOND_ASSISTANT, SECOND_USER, USER};
use super::finding::Finding;
use super::renderer::{Outcome, Probe, Renderer};
use super::tools::ToolFacts;
use crate::conversation::REASONING_CONTENT;

/// The usual start of reasoning in a text.
pub(crate) const START: &str = "<think>";
/// The usual end. A template that writes it opens reasoning, or opens an answer without any.
pub(crate) const END: &str = "</think>";

/// The key under which few templates read reasoning.
const OTHER_KEY: &str = "reasoning";

/// The facts about reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReasoningFacts {
    /// The key under which the template reads reasoning, unless it is `reasoning_content`.
    pub key: Option<&'static str>,
    /// Reasoning of the last message.
    pub last: Finding,
    /// Reasoning of a message before a later question.
    pub earlier: Finding,
    /// Reasoning of a message with a call whose result follows.
    pub beside_call: Finding,
    /// A block of the type `thinking` before the text of the last message. Unknown if the template
    /// prints it as it prints any object.
    pub in_blocks: Finding,
    /// True if a `<think>` section in the text of an earlier message is left out.
    pub is_cut_from_text: bool,
    /// True if the template writes a `<think>` section for an answer without reasoning, or describes
    /// one in its system message.
    is_written: bool,
}

impl ReasoningFacts {
    pub(super) fn of(renderer: &Renderer<'_>, tools: &ToolFacts) -> Self {
        let user = || renderer.message("user", USER);
        let again = || renderer.message("user", SECOND_USER);
        let answer = || renderer.message("assistant", ASSISTANT);
        let section = renderer.message("assistant", &section(ASSISTANT));
        // Some templates cut reasoning only from answers before the last one.
        let cut = Probe::of([user(), section, again(), renderer.message("assistant", SECOND_ASSISTANT), user()]);
        let cut = renderer.render(&cut);
        let plain = renderer.render(&Probe::of([user(), answer(), again()]));
        let usual = of_key(renderer, tools, REASONING_CONTENT);
        let is_shown = |found: &[Finding; 3]| found.contains(&Finding::Shown);
        let other = if is_shown(&usual) { None } else { Some(of_key(renderer, tools, OTHER_KEY)).filter(is_shown) };
        let [last, earlier, beside_call] = other.unwrap_or(usual);
        Self {
            key: other.map(|_| OTHER_KEY),
            last,
            earlier,
            beside_call,
            in_blocks: in_blocks(renderer),
            is_cut_from_text: cut.shows(&[ASSISTANT]) && !cut.shows(&[REASONING]),
            is_written: plain.shows(&[END]),
        }
    }

    /// Returns true if the template writes reasoning, or removes it from a text.
    #[must_use]
    pub fn is_read(self) -> bool {
        self.is_cut_from_text
            || self.is_written
            || [self.last, self.earlier, self.beside_call, self.in_blocks].contains(&Finding::Shown)
    }
}

/// Returns the findings about reasoning under this key: in the last message, before a later question,
/// and with a call.
fn of_key(renderer: &Renderer<'_>, tools: &ToolFacts, key: &str) -> [Finding; 3] {
    let user = || renderer.message("user", USER);
    let again = || renderer.message("user", SECOND_USER);
    let answer = || renderer.message("assistant", ASSISTANT);
    let thought = |mut message: Value| {
        message[key] = REASONING.into();
        message
    };
    let last = Probe::of([user(), thought(answer())]).ended();
    let earlier = Probe::of([user(), thought(answer()), again()]);
    let beside_call = tools.shape.map_or(Finding::Unknown, |shape| {
        let without = shape.answered(renderer, json!("result"));
        let mut with = shape.answered(renderer, json!("result"));
        with.messages[1] = thought(with.messages[1].take());
        renderer.finding(&with, REASONING, &without)
    });
    [
        renderer.finding(&last, REASONING, &Probe::of([user(), answer()]).ended()),
        renderer.finding(&earlier, REASONING, &Probe::of([user(), answer(), again()])),
        beside_call,
    ]
}

/// Returns an answer's text after a section of reasoning.
pub(super) fn section(text: &str) -> String {
    format!("{START}\n{REASONING}\n{END}\n\n{text}")
}

/// Returns the finding about a block of the type `thinking`.
fn in_blocks(renderer: &Renderer<'_>) -> Finding {
    let text = json!({"type": "text", "text": ASSISTANT});
    let answered = |blocks: Vec<Value>| {
        Probe::of([renderer.message("user", USER), json!({"role": "assistant", "content": blocks})]).ended()
    };
    let with = answered(vec![json!({"type": "thinking", "thinking": REASONING}), text.clone()]);
    // Python and JSON print a quotation mark before a text.
    let is_printed = |prompt: &str| {
        let before = prompt.split_once(REASONING).map(|(before, _)| before);
        before.is_some_and(|before| before.ends_with(['"', '\'']))
    };
    match renderer.render(&with) {
        Outcome::Text(prompt) if is_printed(&prompt) => Finding::Unknown,
        _ => renderer.finding(&with, REASONING, &answered(vec![text])),
    }
}
