//! The output of a render, and the spans of `{% generation %}` blocks in it.

use std::ops::Range;

/// The text so far, followed by the captured texts and by texts that are being joined.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) text: String,
    /// The offsets of the captures, outermost first.
    pub(super) captures: Vec<usize>,
    /// The offsets of generation blocks, and their lengths in characters.
    pub(super) spans: Vec<(usize, usize)>,
}

impl Output {
    /// The length of the text that the template itself has written.
    pub(super) fn written(&self) -> usize {
        self.captures.first().copied().unwrap_or(self.text.len())
    }

    /// Returns the text and the byte ranges of the generation blocks. A block inside a macro has no
    /// place in the text, so its range may be cut.
    pub(super) fn finish(self) -> (String, Vec<Range<usize>>) {
        let Self { text, spans, .. } = self;
        let end = |start: usize, chars| {
            text.get(start..).and_then(|rest| rest.char_indices().nth(chars)).map_or(text.len(), |(at, _)| start + at)
        };
        let spans = spans.into_iter().map(|(start, chars)| start..end(start, chars)).collect();
        (text, spans)
    }
}
