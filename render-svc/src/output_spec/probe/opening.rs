//! The turn and the reasoning that the generation prompt opens.

use tandem_model_files::tokenizer::Tokenizer;

use super::conversations::{Prober, QUESTION};
use crate::model::Model;
use crate::output_spec::reasoning::{self, PAIRS, Reasoning};
use crate::output_spec::vocabulary::Vocabulary;

/// The start of an answer, which the model continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// The text that starts the assistant's turn, without special tokens and reasoning. Empty if
    /// there is none.
    pub head: String,
    /// True if the prompt ends inside reasoning.
    pub reasoning: bool,
}

/// Returns the start of an answer in the generation prompt of the model's default template, without
/// arguments of the template. It is empty if the template does not render one question.
#[must_use]
pub fn opens(model: &Model) -> Opened {
    Prober::new(model).map(|prober| opened(model, &prober)).unwrap_or_default()
}

pub(in super::super) fn opened(model: &Model, prober: &Prober<'_>) -> Opened {
    let Some(prompt) = prober.render_prompt() else { return Opened::default() };
    let after = prompt.rsplit_once(QUESTION).map_or("", |(_, after)| after);
    Opened { head: head(model, prober, &prompt).unwrap_or_default(), reasoning: ends_in_reasoning(after) }
}

/// Returns true if the last marker of reasoning in this text is a start.
fn ends_in_reasoning(text: &str) -> bool {
    PAIRS.iter().any(|(start, end)| text.rfind(start).is_some_and(|at| !text[at..].contains(end)))
}

/// Returns the text that the generation prompt adds, up to the first marker of reasoning.
fn head(model: &Model, prober: &Prober<'_>, prompt: &str) -> Option<String> {
    let tokenizer = model.tokenizer.as_ref().ok()?;
    let without = prober.render(&[prober.user(QUESTION)])?;
    let added = prompt.strip_prefix(&without)?;
    shown(tokenizer, added, reasoning::of_model(model, &Vocabulary::new(tokenizer, &model.artifacts)))
}

/// Returns the text that a prompt's end shows, without special tokens, up to the first of these
/// markers of reasoning.
pub(in super::super) fn shown(tokenizer: &Tokenizer, added: &str, markers: Option<Reasoning>) -> Option<String> {
    let is_marker = |id: u32| matches!(markers, Some(Reasoning::Tokens(start, end)) if [start, end].contains(&id));
    let ids = tokenizer.encode(added, false).ok()?.into_iter().take_while(|&id| !is_marker(id));
    let shown = ids.filter(|&id| !tokenizer.is_special(id));
    let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(id).unwrap_or_default().to_vec()).collect();
    let mut head = String::from_utf8(bytes).ok()?;
    if let Some(Reasoning::Text(start, end)) = markers {
        let first = [start, end].iter().filter_map(|marker| head.find(marker)).min();
        head.truncate(first.unwrap_or(head.len()));
    }
    (!head.trim().is_empty()).then_some(head)
}
