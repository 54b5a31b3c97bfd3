//! The search of parts in a prompt.

use std::ops::Range;

use super::part::{Group, Part};
use super::texts::MIN_BYTES;
use crate::probes::Finding;
use crate::warning::WarningCode;

/// The bytes that are searched at most, as a multiple of the prompt's size.
const MAX_SEARCHES: usize = 64;
/// The bytes of a prompt between a part and the one before it at most, such as the start of a turn.
const MAX_GAP_BYTES: usize = 1024;
/// The bytes of a text that are searched. The rest is compared where they are found.
const PREFIX_BYTES: usize = 16;
/// The most places where the first bytes of a text are found and the rest differs.
const MAX_PLACES: usize = 8;

/// The place in a prompt where a part is found.
pub(super) enum Found {
    /// After the part before it.
    InOrder,
    /// Before the end of the part before it.
    Elsewhere,
    Nowhere,
    /// Too much was searched.
    Unsearched,
}

/// Searches the texts of a conversation in the prompt, each after the one of its group before it where
/// it can.
pub(super) struct Search<'p> {
    prompt: &'p str,
    /// The end of the last text that was found, by group.
    at: [usize; Group::COUNT],
    /// The start of the last call. Templates differ in the order of its arguments.
    call: usize,
    /// Bytes that may still be searched.
    left: usize,
}

impl<'p> Search<'p> {
    pub(super) fn new(prompt: &'p str) -> Self {
        Self { prompt, at: [0; Group::COUNT], call: 0, left: prompt.len().saturating_mul(MAX_SEARCHES) }
    }

    pub(super) fn find_all(&mut self, parts: &[Part<'_>]) -> Vec<Found> {
        let following = |i: usize| parts.get(i + 1).filter(|next| next.message() == parts[i].message());
        parts.iter().enumerate().map(|(i, part)| self.find_part(part, following(i))).collect()
    }

    /// Searches a text of the part. Reasoning that the template usually leaves out, and the name of a call,
    /// are searched only before the text that follows in their message.
    fn find_part(&mut self, part: &Part<'_>, following: Option<&Part<'_>>) -> Found {
        let is_reasoning = part.code == WarningCode::ReasoningIgnored && part.finding == Finding::LeftOut;
        let is_near = is_reasoning || part.call_of_name().is_some();
        let end = is_near.then(|| self.end_before(part, following));
        let from = match part.call_of_argument() {
            Some(_) => self.call,
            None => self.at[part.group as usize],
        };
        self.call = from;
        let mut found = Found::Nowhere;
        if part.is_repeat {
            let is_found = part.texts.all().iter().any(|text| self.find(self.prompt, text.trim()).is_some());
            return if is_found { Found::Elsewhere } else { found };
        }
        for text in part.texts.all().iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
            match self.find_text(text, part.group, from..end.unwrap_or(self.prompt.len())) {
                Found::InOrder => return Found::InOrder,
                Found::Elsewhere => found = Found::Elsewhere,
                Found::Unsearched => return Found::Unsearched,
                Found::Nowhere => {}
            }
        }
        found
    }

    /// Returns the start of the text that follows a part, or a place not far behind the part before it.
    fn end_before(&mut self, part: &Part<'_>, following: Option<&Part<'_>>) -> usize {
        let at = self.at[part.group as usize];
        let size = part.texts.all().iter().map(|text| text.len()).sum::<usize>();
        let far = self.prompt.floor_char_boundary(at + size + MAX_GAP_BYTES);
        let prompt = self.prompt;
        let texts = following.into_iter().flat_map(|next| next.texts.all()).map(|text| text.trim());
        texts
            .filter(|text| !text.is_empty())
            .find_map(|text| self.find(&prompt[at..], text))
            .map_or(far, |end| at + end)
    }

    /// Searches a text in its order, and only there unless the range extends to the prompt's end.
    fn find_text(&mut self, text: &str, group: Group, range: Range<usize>) -> Found {
        if self.left == 0 && !self.prompt.is_empty() {
            return Found::Unsearched;
        }
        let prompt = self.prompt;
        if let Some(found) = self.find(&prompt[range.clone()], text) {
            let at = &mut self.at[group as usize];
            *at = (*at).max(range.start + found + text.len());
            return Found::InOrder;
        }
        let is_elsewhere = range.end == prompt.len() && self.find(prompt, text).is_some();
        if is_elsewhere { Found::Elsewhere } else { Found::Nowhere }
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
