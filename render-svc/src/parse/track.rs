//! A text that grows, without white space at its ends.

use super::engine::{is_space, strip};

/// The content or the reasoning of an answer.
#[derive(Debug, Default)]
pub(super) struct Track {
    text: String,
    /// White space that belongs to the text only if more text follows.
    held: String,
    /// True if the prompt has a part of the text.
    pub(super) began: bool,
}

impl Track {
    /// Adds a text, and returns the part that is certain. White space at the start and at the end is left out.
    pub(super) fn push(&mut self, text: &str) -> Option<String> {
        let is_start = self.text.is_empty() && !self.began;
        if strip(text).is_empty() {
            self.held.push_str(if is_start { "" } else { text });
            return None;
        }
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        let from = if is_start { all.trim_start_matches(is_space) } else { &all };
        let certain = from.trim_end_matches(is_space);
        self.held = from.get(certain.len()..).unwrap_or_default().to_owned();
        self.text.push_str(certain);
        (!certain.is_empty()).then(|| certain.to_owned())
    }

    /// Adds a text with all of its white space.
    pub(super) fn push_whole(&mut self, text: &str) -> Option<String> {
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        self.text.push_str(&all);
        (!all.is_empty()).then_some(all)
    }

    /// Puts a text in place of white space between the parts before and after, if both exist.
    pub(super) fn join(&mut self, join: &str) {
        if !self.text.is_empty() {
            join.clone_into(&mut self.held);
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
