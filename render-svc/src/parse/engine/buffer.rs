//! The text that is not parsed yet.

/// The most bytes of parsed text that are kept.
const KEPT: usize = 1 << 16;

/// A text that grows at its end. Places are byte offsets in all of it, although its start is dropped.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    text: String,
    /// The place of the first byte that is kept.
    base: usize,
    /// The place up to which the text is parsed.
    start: usize,
}

impl Buffer {
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Returns the place up to which the text is parsed.
    pub(super) fn start(&self) -> usize {
        self.start
    }

    pub(super) fn end(&self) -> usize {
        self.base + self.text.len()
    }

    /// Returns the text between two places. Text before the start may be gone.
    pub(super) fn text(&self, start: usize, end: usize) -> &str {
        let offset = |place: usize| place.checked_sub(self.base);
        offset(start).zip(offset(end)).and_then(|(start, end)| self.text.get(start..end)).unwrap_or_default()
    }

    /// Returns the character before a place that is not before the start.
    pub(super) fn before(&self, place: usize) -> Option<char> {
        self.text(self.base, place).chars().next_back()
    }

    /// Marks the text before a place as parsed. Most of it is dropped once that is cheap.
    pub(super) fn advance(&mut self, place: usize) {
        self.start = self.start.max(place);
        let parsed = self.start - self.base;
        if parsed > KEPT && parsed > self.text.len() / 2 {
            // The last character stays: conditions depend on it.
            let kept = self.before(self.start).map_or(0, char::len_utf8);
            self.text.drain(..parsed - kept);
            self.base = self.start - kept;
        }
    }
}
