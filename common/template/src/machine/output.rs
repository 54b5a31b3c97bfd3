//! The output of a render, and the spans of `{% generation %}` blocks in it.

use std::ops::Range;

/// The text that was put out, followed by what is being captured and by texts that are being put together.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) text: String,
    /// Where the captures begin, outermost first.
    pub(super) captures: Vec<usize>,
    /// Where generation blocks begin, in bytes, and how many characters they have.
    pub(super) spans: Vec<(usize, usize)>,
}

impl Output {
    /// How much the template itself has put out.
    pub(super) fn written(&self) -> usize {
        self.captures.first().copied().unwrap_or(self.text.len())
    }

    /// The text, and the bytes of the generation blocks. A block inside of a macro has no place of its own and may lie
    /// beyond the end.
    pub(super) fn finish(self) -> (String, Vec<Range<usize>>) {
        let Self { text, spans, .. } = self;
        let end = |start: usize, chars| {
            text.get(start..).and_then(|rest| rest.char_indices().nth(chars)).map_or(text.len(), |(at, _)| start + at)
        };
        let spans = spans.into_iter().map(|(start, chars)| start..end(start, chars)).collect();
        (text, spans)
    }
}
