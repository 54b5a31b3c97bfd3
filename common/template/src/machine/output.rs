//! The output of a render, and the spans of `{% generation %}` blocks in it.

use std::ops::Range;

/// The rendered text, followed by the text of each open capture. A capture collects text that is
/// not yet part of the output, such as the result of a macro.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) text: String,
    /// The byte offsets at which the open captures start, outermost first.
    pub(super) captures: Vec<usize>,
    /// The byte offsets of generation blocks, and their lengths in characters.
    pub(super) spans: Vec<(usize, usize)>,
}

impl Output {
    /// Returns the length in bytes of the text outside of all captures.
    pub(super) fn written(&self) -> usize {
        self.captures.first().copied().unwrap_or(self.text.len())
    }

    /// Returns the text and the byte ranges of the generation blocks. A block inside a capture has
    /// no final position, so its range may be cut at the end of the text.
    pub(super) fn finish(self) -> (String, Vec<Range<usize>>) {
        let Self { text, spans, .. } = self;
        let end = |start: usize, chars| {
            text.get(start..).and_then(|rest| rest.char_indices().nth(chars)).map_or(text.len(), |(at, _)| start + at)
        };
        let spans = spans.into_iter().map(|(start, chars)| start..end(start, chars)).collect();
        (text, spans)
    }
}
