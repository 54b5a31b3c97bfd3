//! The markers around a model's reasoning.

use super::vocabulary::Vocabulary;
use crate::model::Model;
use crate::probes::Finding;

/// The markers around reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasoning {
    /// The ids of the first and the last marker.
    Tokens(u32, u32),
    /// The texts of both markers, each of several tokens.
    Text(&'static str, &'static str),
}

/// Pairs of markers that tokenizers and chat templates contain.
pub(super) const PAIRS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>", "<channel|>"),
    ("<reasoning>", "</reasoning>"),
    ("<mm:think>", "</mm:think>"),
];

/// Returns a pair of markers that are tokens of the tokenizer. Without one, returns the pair of [`of_text`].
pub(super) fn of_model(model: &Model, vocabulary: &Vocabulary<'_>) -> Option<Reasoning> {
    let tokens = |(start, end): &(&str, &str)| Some(Reasoning::Tokens(vocabulary.id(start)?, vocabulary.id(end)?));
    PAIRS.iter().find_map(tokens).or_else(|| of_text(model))
}

/// Returns the pair of markers that a template writes as text, else the usual pair of a model with reasoning. A template
/// that writes reasoning otherwise has other markers.
pub(super) fn of_text(model: &Model) -> Option<Reasoning> {
    let is_written = |(_, end): &&(&str, &str)| model.templates.write(end);
    let has_others = || model.templates.iter().any(|named| named.facts.reasoning.last == Finding::Shown);
    let written = PAIRS.iter().find(is_written);
    let usual = || PAIRS.first().filter(|_| model.capabilities.supports_reasoning && !has_others());
    written.or_else(usual).map(|(start, end)| Reasoning::Text(start, end))
}
