//! Warns of each part of a conversation that is not in the prompt.
//!
//! Most parts are found in the prompt as they are. A template may also change a text, cut it, or leave
//! it out. The parts that are not found therefore get marks, and the conversation is rendered again. A
//! part none of whose marks is in that prompt was left out. A text that lacks one of them was cut.

use std::collections::HashSet;

use serde_json::Value;

use super::marks::{FoundMarks, Marked};
use super::parts::{self, List, MIN_BYTES, Part};
use crate::conversation::{CONTENT, Conversation};
use crate::probes::{Finding, TemplateFacts};
use crate::warning::{self, IS_ERROR, Warning, WarningCode};

/// The bytes that are searched at most, as a multiple of the prompt's size.
const MAX_SEARCHES: usize = 64;
/// The bytes of a prompt between a part and the one before it at most, such as the start of a turn.
const MAX_GAP_BYTES: usize = 1024;
/// The bytes of a text that are searched. The rest is compared where they are found.
const PREFIX_BYTES: usize = 16;
/// The most places where the first bytes of a text are found and the rest differs.
const MAX_PLACES: usize = 8;
/// The most parts that are replaced by marks. A response names few of each kind.
const MAX_MARKED: usize = 1024;

/// The text of a warning.
const LEFT_OUT: &str = "not in the prompt: the model's chat template leaves it out";

/// Returns a warning for each part that is not in the prompt. `render` renders a changed
/// conversation as the prompt was rendered, and returns None if it fails.
pub(super) fn warnings(
    conversation: &Conversation,
    facts: &TemplateFacts,
    prompt: &str,
    render: impl FnOnce(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let parts = parts::of(conversation, facts);
    let mut search = Search { prompt, at: 0, left: prompt.len().saturating_mul(MAX_SEARCHES) };
    let (mut lost, mut doubtful) = (Vec::new(), Vec::new());
    for part in &parts {
        let is_call = part.code == WarningCode::ToolCallsIgnored;
        match (search.find_part(part), part.finding) {
            // Other calls often have the same arguments, and tools the same name.
            (Found::Elsewhere, _) if is_call => doubtful.push(part),
            (Found::InOrder | Found::Elsewhere, _) if part.is_shared => doubtful.push(part),
            (Found::Elsewhere, _) if !part.is_long() => doubtful.push(part),
            (Found::InOrder | Found::Elsewhere, Finding::Shown) => {}
            (Found::InOrder | Found::Elsewhere, Finding::Unknown) if part.is_long() => {}
            (Found::Nowhere, Finding::LeftOut) => lost.push(part),
            _ => doubtful.push(part),
        }
    }
    doubtful.truncate(MAX_MARKED);
    let mut cut = Vec::new();
    if !doubtful.is_empty() {
        let marked = Marked::new(conversation, &doubtful);
        let prompt = render(&marked.conversation);
        let found = prompt.into_iter().flat_map(|prompt| marked.found(&prompt));
        for (part, found) in doubtful.into_iter().zip(found) {
            match found {
                FoundMarks::All => {}
                FoundMarks::Some => cut.push(part),
                FoundMarks::None => lost.push(part),
            }
        }
    }
    lost.sort_by_key(|part| part.place);
    let mut warnings = summed(&lost, &parts);
    let text = "partly not in the prompt: the model's chat template cuts it";
    let of_cut = |part: &Part<'_>| Warning { code: part.code, path: part.path_of_text(), text: text.to_owned() };
    warnings.extend(cut.into_iter().map(of_cut));
    warnings
}

/// Returns the warnings of parts that are left out. A list of which every item is lost has one, and the
/// fields of an item that is lost have none.
fn summed(lost: &[&Part<'_>], parts: &[Part<'_>]) -> Vec<Warning> {
    let items: HashSet<_> = lost.iter().filter_map(|part| part.whole_item()).collect();
    let is_left = |item: &(List, usize)| !items.contains(item);
    let mut warnings: Vec<Warning> = Vec::new();
    for part in lost {
        let path = match part.item() {
            Some((list, _))
                if !parts.iter().filter_map(Part::whole_item).any(|item| item.0 == list && is_left(&item)) =>
            {
                list.name().to_owned()
            }
            Some(item) if part.whole_item().is_none() && !is_left(&item) => continue,
            _ => part.path(),
        };
        if warnings.last().is_none_or(|last| (last.code, &last.path) != (part.code, &path)) {
            warnings.push(Warning { code: part.code, text: LEFT_OUT.to_owned(), path });
        }
    }
    warnings
}

/// Returns a warning for each mark of a failed result, if the prompt is the same without them.
pub(super) fn failures(
    conversation: &Conversation,
    prompt: &str,
    render: impl FnOnce(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let warnings = warning::failed_results(conversation, LEFT_OUT);
    if warnings.is_empty() {
        return warnings;
    }
    let mut without = conversation.clone();
    for message in &mut without.messages {
        let blocks = message.get_mut(CONTENT).and_then(Value::as_array_mut).map(std::mem::take);
        let mut blocks = blocks.unwrap_or_default();
        let values = blocks.iter_mut().chain([&mut *message]);
        values.filter_map(Value::as_object_mut).for_each(|fields| _ = fields.shift_remove(IS_ERROR));
        if !blocks.is_empty() {
            message[CONTENT] = blocks.into();
        }
    }
    if render(&without).is_some_and(|same| same == prompt) { warnings } else { Vec::new() }
}

/// The place in a prompt where a part is found.
enum Found {
    /// After the part before it.
    InOrder,
    /// Before the end of the part before it.
    Elsewhere,
    Nowhere,
    /// Too much was searched.
    Unsearched,
}

/// Searches the texts of a conversation in the prompt, each after the one before it where it can.
struct Search<'p> {
    prompt: &'p str,
    at: usize,
    /// Bytes that may still be searched.
    left: usize,
}

impl Search<'_> {
    /// Searches a text of the part. Reasoning that the template usually leaves out is searched only
    /// before the answer.
    fn find_part(&mut self, part: &Part<'_>) -> Found {
        let is_near = part.code == WarningCode::ReasoningIgnored && part.finding == Finding::LeftOut;
        let mut found = Found::Nowhere;
        for text in part.texts.all().iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
            match if is_near { self.find_next(text) } else { self.find_text(text) } {
                Found::InOrder => return Found::InOrder,
                Found::Elsewhere => found = Found::Elsewhere,
                Found::Unsearched => return Found::Unsearched,
                Found::Nowhere => {}
            }
        }
        found
    }

    fn find_next(&self, text: &str) -> Found {
        let end = self.prompt.floor_char_boundary(self.at + text.len() + MAX_GAP_BYTES);
        if find(&self.prompt[self.at..end], text).is_some() { Found::InOrder } else { Found::Nowhere }
    }

    fn find_text(&mut self, text: &str) -> Found {
        if self.left == 0 && !self.prompt.is_empty() {
            return Found::Unsearched;
        }
        let rest = &self.prompt[self.at..];
        if let Some(found) = self.find(rest, text) {
            self.at += found + text.len();
            return Found::InOrder;
        }
        if self.find(self.prompt, text).is_some() { Found::Elsewhere } else { Found::Nowhere }
    }

    fn find(&mut self, prompt: &str, text: &str) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        let found = find(prompt, text);
        self.left = self.left.saturating_sub(found.unwrap_or(prompt.len()) + text.len());
        found
    }
}

/// Returns the first place of a text. A short one is found as words only. Preparing the search of a
/// long text takes longer than finding its first bytes.
fn find(prompt: &str, text: &str) -> Option<usize> {
    if text.len() < MIN_BYTES {
        return prompt.match_indices(text).map(|(at, _)| at).find(|&at| is_whole(prompt, at, text));
    }
    let prefix = &text[..text.floor_char_boundary(PREFIX_BYTES)];
    let mut from = 0;
    for _ in 0..MAX_PLACES {
        let at = from + prompt[from..].find(prefix)?;
        if prompt[at..].starts_with(text) {
            return Some(at);
        }
        from = prompt.ceil_char_boundary(at + 1);
    }
    prompt[from..].find(text).map(|at| from + at)
}

/// Returns true if no letter or digit in the prompt continues the text at this place.
fn is_whole(prompt: &str, at: usize, text: &str) -> bool {
    let is_word = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    let (before, after) = (prompt[..at].chars().next_back(), prompt[at + text.len()..].chars().next());
    let is_continued = is_word(text.chars().next_back()) && is_word(after);
    let continues = is_word(before) && is_word(text.chars().next());
    !(is_continued || continues)
}
