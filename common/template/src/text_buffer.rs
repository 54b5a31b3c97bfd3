//! Where text is written: a `String`, or a [`TextBuffer`] that is charged to the render's budget.

use std::convert::Infallible;

use crate::budget;
use crate::error::{Error, Fallible};

/// A destination of text.
pub(crate) trait Sink: Default {
    /// Why a write fails.
    type Error;

    /// Appends a text.
    fn push(&mut self, text: &str) -> Result<(), Self::Error>;

    /// Returns the whole text.
    fn finish(self) -> String;
}

impl Sink for String {
    type Error = Infallible;

    fn push(&mut self, text: &str) -> Result<(), Infallible> {
        self.push_str(text);
        Ok(())
    }

    fn finish(self) -> String {
        self
    }
}

/// A growing text that is charged to the budget.
///
/// A long text is kept in pieces until it is complete. One growing `String` would be reallocated
/// and copied, and would need twice the memory.
#[derive(Debug, Default)]
pub(crate) struct TextBuffer {
    full: Vec<String>,
    last: String,
}

/// The size of a piece in bytes.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

impl TextBuffer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends a text; fails if the budget is exhausted.
    pub(crate) fn push(&mut self, part: &str) -> Fallible<()> {
        budget::alloc(part.len())?;
        if self.last.len() + part.len() > PIECE_BYTES && !self.last.is_empty() {
            let next = String::with_capacity(PIECE_BYTES.max(part.len()));
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        self.last.push_str(part);
        Ok(())
    }

    /// Returns the whole text.
    pub(crate) fn finish(self) -> String {
        if self.full.is_empty() {
            return self.last;
        }
        let len = self.full.iter().map(String::len).sum::<usize>() + self.last.len();
        let mut whole = String::with_capacity(len);
        self.full.into_iter().chain([self.last]).for_each(|piece| whole.push_str(&piece));
        whole
    }
}

impl Sink for TextBuffer {
    type Error = Error;

    fn push(&mut self, text: &str) -> Fallible<()> {
        Self::push(self, text)
    }

    fn finish(self) -> String {
        Self::finish(self)
    }
}
