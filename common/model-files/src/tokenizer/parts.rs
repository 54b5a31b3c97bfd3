//! Long texts in the classic encoder, part by part. The library needs up to 430 times the size of the text
//! that it encodes in one call.
//!
//! A text is cut at spaces that end a word. The text around a cut is also encoded alone: if its tokens are those of
//! both parts, the cut changes none, because the tokens of a word depend on its surroundings only. If
//! they differ, the text is not cut.

use super::cancel;
use super::error::TokenizerError;
use super::literal::Tokens;

/// The sizes of parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartSizes {
    /// The most bytes of a part.
    pub(super) part: usize,
    /// The bytes before and after a cut that are also encoded alone. The tokens of the inner half are
    /// compared.
    pub(super) context: usize,
}

impl PartSizes {
    /// Returns the most bytes of a text that cannot be cut.
    pub(super) fn whole(self) -> usize {
        4 * self.part
    }
}

/// Those of all texts.
pub(super) const PART_SIZES: PartSizes = PartSizes { part: 16 << 10, context: 2 << 10 };

/// A text that is encoded in parts.
pub(super) struct Parts<'a> {
    pub(super) text: &'a str,
    pub(super) sizes: PartSizes,
}

impl Parts<'_> {
    /// Encodes the text. `first` encodes the start of the text, `later` a part after another one.
    /// Returns None if the text cannot be cut.
    pub(super) fn encode<F, L>(&self, first: F, later: L) -> Result<Option<Tokens>, TokenizerError>
    where
        F: FnOnce(&str) -> Result<Tokens, TokenizerError>,
        L: Fn(&str) -> Result<Tokens, TokenizerError>,
    {
        if self.sizes.part < 2 * self.sizes.context {
            return Ok(None);
        }
        let Some(mut end) = self.end(0) else { return Ok(None) };
        // Memory that is not written costs nothing. Growth in steps would hold two copies.
        let most = self.text.len() + 1;
        let mut all = Tokens { ids: Vec::with_capacity(most), offsets: Vec::with_capacity(most) };
        all.append(first(&self.text[..end])?, 0);
        while end < self.text.len() {
            cancel::check()?;
            let start = end;
            let Some(next) = self.end(start) else { return Ok(None) };
            end = next;
            let tokens = all.ids.len();
            all.append(later(&self.text[start..end])?, start);
            if !self.agrees(start, &all, tokens, &later)? {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    /// Returns the end of the part at `start`. None if there is no place to cut.
    fn end(&self, start: usize) -> Option<usize> {
        let most = start + self.sizes.part;
        if most >= self.text.len() {
            return Some(self.text.len());
        }
        let least = start + self.sizes.part / 2;
        (least..most).rev().find(|&at| self.is_between_words(at))
    }

    /// Returns true if there is a space at `at`, between two letters or digits of ASCII.
    fn is_between_words(&self, at: usize) -> bool {
        let bytes = self.text.as_bytes();
        bytes[at] == b' ' && bytes[at - 1].is_ascii_alphanumeric() && bytes[at + 1].is_ascii_alphanumeric()
    }

    /// Returns true if the text around a cut has the tokens of both parts.
    fn agrees<L>(&self, cut: usize, all: &Tokens, tokens: usize, encode: L) -> Result<bool, TokenizerError>
    where
        L: Fn(&str) -> Result<Tokens, TokenizerError>,
    {
        let PartSizes { context, .. } = self.sizes;
        let start = self.text.floor_char_boundary(cut - context);
        let end = self.text.ceil_char_boundary((cut + context).min(self.text.len()));
        let mut around = Tokens::default();
        around.append(encode(&self.text[start..end])?, start);
        let inner = cut - context / 2..cut + context / 2;
        let near = all.offsets[..tokens].iter().rposition(|range| range.end < start).map_or(0, |last| last + 1);
        let found = all.ids[near..].iter().zip(&all.offsets[near..]).filter(|(_, range)| inner.contains(&range.start));
        let expected = around.ids.iter().zip(&around.offsets).filter(|(_, range)| inner.contains(&range.start));
        Ok(found.eq(expected))
    }
}
