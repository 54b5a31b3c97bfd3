//! Long words, which are encoded in windows. The library needs 48 bytes of memory for each byte of
//! a word.
//!
//! Windows do not change the ids. BPE applies the merge of the lowest rank first, and of equal
//! ranks the leftmost one. If no merge crosses a boundary, the merges on its two sides are
//! independent. It follows that tokens are the encoding of a word exactly if every two neighbours
//! are the encoding of the text of both. If two overlapping windows have a token in common, the
//! tokens of the first window up to it and those of the second one after it fulfil this condition.

use tokenizers_fast::pipeline::PipelineToken;

use super::bytes::{byte_fallback, byte_level};
use super::classic::Classic;
use super::error::TokenizerError;

/// The size of a window. Longer words are encoded in windows.
pub(super) const WINDOW_BYTES: usize = 16 << 10;
/// How far the next window reaches into the previous one.
const OVERLAP_BYTES: usize = 2 << 10;

/// A word over [`WINDOW_BYTES`].
pub(super) struct LongWord<'a> {
    pub(super) text: &'a str,
    pub(super) classic: &'a Classic,
    /// True if tokens are spelled in the byte-level alphabet.
    pub(super) is_byte_level: bool,
}

/// The tokens of a part of a word.
struct Window {
    /// The start of the part in the word.
    start: usize,
    tokens: Vec<PipelineToken>,
    /// The end of each token in the word.
    ends: Vec<usize>,
}

impl LongWord<'_> {
    /// Encodes the word with a function that encodes a part of it.
    pub(super) fn encode<F>(&self, mut encode: F) -> Result<Vec<PipelineToken>, TokenizerError>
    where
        F: FnMut(&str) -> Result<Vec<PipelineToken>, TokenizerError>,
    {
        match self.in_windows(&mut encode)? {
            Some(tokens) => Ok(tokens),
            None => encode(self.text),
        }
    }

    /// Returns None if two windows have no token in common, or if a token does not spell its text,
    /// such as the unknown token.
    fn in_windows<F>(&self, encode: &mut F) -> Result<Option<Vec<PipelineToken>>, TokenizerError>
    where
        F: FnMut(&str) -> Result<Vec<PipelineToken>, TokenizerError>,
    {
        let mut done = Vec::with_capacity(self.text.len() / 4);
        let Some(mut window) = self.window(0, encode)? else { return Ok(None) };
        while window.end() < self.text.len() {
            let Some(kept) = self.kept(&window) else { return Ok(None) };
            let Some(mut next) = self.window(window.ends[kept - 1], encode)? else { return Ok(None) };
            let Some((last, common)) = window.common(kept, &next) else { return Ok(None) };
            done.extend_from_slice(&window.tokens[..kept]);
            next.replace(common, &window, kept..last);
            window = next;
        }
        done.extend_from_slice(&window.tokens);
        Ok(Some(done))
    }

    /// Encodes the window at `start`.
    fn window<F>(&self, start: usize, encode: &mut F) -> Result<Option<Window>, TokenizerError>
    where
        F: FnMut(&str) -> Result<Vec<PipelineToken>, TokenizerError>,
    {
        let end = self.text.floor_char_boundary(start + WINDOW_BYTES);
        let tokens = encode(&self.text[start..end])?;
        let mut at = start;
        let ends = tokens.iter().map(|token| {
            at += self.length(token.id(), &self.text.as_bytes()[at..end])?;
            Some(at)
        });
        let ends: Option<Vec<usize>> = ends.collect();
        Ok(ends.filter(|_| at == end).map(|ends| Window { start, tokens, ends }))
    }

    /// Returns the number of bytes at the start of `text` that a token spells.
    fn length(&self, id: u32, text: &[u8]) -> Option<usize> {
        let token = self.classic.encoder.id_to_token(id)?;
        if self.is_byte_level {
            return byte_level(&token).filter(|bytes| text.starts_with(bytes)).map(|bytes| bytes.len());
        }
        if text.starts_with(token.as_bytes()) {
            return Some(token.len());
        }
        (byte_fallback(&token)? == *text.first()?).then_some(1)
    }

    /// Returns the number of tokens before the next window. It starts at a boundary of two tokens
    /// and of two characters.
    fn kept(&self, window: &Window) -> Option<usize> {
        let limit = window.end().checked_sub(OVERLAP_BYTES)?;
        let kept = window.ends.partition_point(|&end| end <= limit);
        let starts = |&kept: &usize| {
            let end = window.ends[kept - 1];
            end > window.start && self.text.is_char_boundary(end)
        };
        (1..=kept).rev().find(starts)
    }
}

impl Window {
    fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or(self.start)
    }

    fn token(&self, index: usize) -> (usize, usize, PipelineToken) {
        let start = if index == 0 { self.start } else { self.ends[index - 1] };
        (start, self.ends[index], self.tokens[index])
    }

    /// Returns the indexes of the first token from `from` on that `next` has too, in each window.
    fn common(&self, from: usize, next: &Self) -> Option<(usize, usize)> {
        let (mut own, mut other) = (from, 0);
        while own < self.tokens.len() && other < next.tokens.len() {
            if self.token(own) == next.token(other) {
                return Some((own, other));
            }
            if self.ends[own] <= next.ends[other] { own += 1 } else { other += 1 }
        }
        None
    }

    /// Replaces the first `count` tokens by some of another window.
    fn replace(&mut self, count: usize, other: &Self, range: std::ops::Range<usize>) {
        self.tokens.splice(..count, other.tokens[range.clone()].iter().copied());
        self.ends.splice(..count, other.ends[range].iter().copied());
    }
}
