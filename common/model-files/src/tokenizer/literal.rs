//! Literal ranges of a text, in which no added token is recognized.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::added::AddedToken;
use super::error::TokenizerError;

/// A span of a text that is encoded separately.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    /// The start of the span, in bytes.
    pub(super) start: usize,
    pub(super) is_literal: bool,
    /// True at the start of the text, where some tokenizers add a space. False for literal pieces:
    /// an empty piece comes before them.
    pub(super) is_first: bool,
}

/// Ids and the byte range of each. The ranges are empty if they were not requested.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    pub(super) offsets: Vec<Range<usize>>,
}

impl Tokens {
    /// Appends the tokens of a span that begins at `start`.
    pub(super) fn append(&mut self, other: Self, start: usize) {
        if start == 0 && self.ids.capacity() == 0 {
            *self = other;
            return;
        }
        self.ids.extend(other.ids);
        self.offsets.extend(other.offsets.into_iter().map(|range| range.start + start..range.end + start));
    }
}

/// Splits a text into its literal ranges and the spans between them, in order, without empty ones.
pub(super) fn pieces<'a>(text: &'a str, literal: &[Range<usize>]) -> Result<Vec<Piece<'a>>, TokenizerError> {
    let mut pieces = Vec::with_capacity(2 * literal.len() + 1);
    let mut done = 0;
    for range in literal {
        let invalid = || TokenizerError::Literal { start: range.start, end: range.end, length: text.len() };
        pieces.push(plain(text.get(done..range.start).ok_or_else(invalid)?, done));
        let text = text.get(range.clone()).ok_or_else(invalid)?;
        pieces.push(Piece { text, start: range.start, is_literal: true, is_first: false });
        done = range.end;
    }
    pieces.push(plain(&text[done..], done));
    pieces.retain(|piece| !piece.text.is_empty());
    Ok(pieces)
}

fn plain(text: &str, start: usize) -> Piece<'_> {
    Piece { text, start, is_literal: false, is_first: start == 0 }
}

/// The added tokens that must not appear in literal text, by id.
///
/// White space and single characters are excluded, because they are ordinary text. Often the added
/// token's id is their only id.
pub(super) struct Forbidden {
    texts: HashMap<u32, String>,
}

impl Forbidden {
    pub(super) fn new(added: &[AddedToken]) -> Self {
        let is_text = |char: char| char.is_whitespace() || char == '▁';
        let is_control = |token: &&AddedToken| token.text.chars().nth(1).is_some() && !token.text.chars().all(is_text);
        let texts = added.iter().filter(is_control).map(|token| (token.id, token.text.clone()));
        Self { texts: texts.collect() }
    }

    /// Encodes literal text with a function that recognizes no added token. The vocabulary may also
    /// contain the text of an added token. Then the token's first character is encoded separately,
    /// so that the token's id does not appear.
    pub(super) fn avoid<F>(&self, text: &str, encode: &F) -> Result<Tokens, TokenizerError>
    where
        F: Fn(&str) -> Result<Tokens, TokenizerError>,
    {
        let tokens = encode(text)?;
        let cuts = self.cuts(text, &tokens.ids);
        if cuts.is_empty() {
            return Ok(tokens);
        }
        let mut all = Tokens::default();
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        for (start, end) in starts.zip(cuts.iter().copied().chain([text.len()])) {
            all.append(self.avoid(&text[start..end], encode)?, start);
        }
        Ok(all)
    }

    /// Returns the offsets at which to split the text so that no forbidden id in `ids` appears
    /// again, ascending. A single character cannot be split.
    fn cuts(&self, text: &str, ids: &[u32]) -> Vec<usize> {
        let found: BTreeSet<&str> = ids.iter().filter_map(|id| self.texts.get(id).map(String::as_str)).collect();
        if found.is_empty() {
            return Vec::new();
        }
        let cuts = found.iter().flat_map(|token| {
            let first = token.chars().next().map_or(0, char::len_utf8);
            text.match_indices(token).map(move |(at, _)| at + first)
        });
        let cuts: BTreeSet<usize> = cuts.collect();
        // If a normalizer produces the token from another spelling, the text is halved until the
        // token disappears.
        let half = text.ceil_char_boundary(text.len() / 2);
        let half = (cuts.is_empty() && half < text.len()).then_some(half);
        cuts.into_iter().chain(half).collect()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // A list of one range is meant.
mod tests {
    use super::{TokenizerError, pieces};

    #[test]
    fn a_text_is_split_at_literal_ranges() {
        let split = |literal: &[std::ops::Range<usize>]| {
            let pieces = pieces("abcd", literal).expect("ranges of the text");
            pieces.iter().map(|piece| (piece.text, piece.start, piece.is_literal, piece.is_first)).collect::<Vec<_>>()
        };
        assert_eq!(split(&[]), [("abcd", 0, false, true)]);
        assert_eq!(split(&[1..3]), [("a", 0, false, true), ("bc", 1, true, false), ("d", 3, false, false)]);
        assert_eq!(split(&[0..2, 2..4]), [("ab", 0, true, false), ("cd", 2, true, false)]);
        assert_eq!(split(&[1..1]), [("a", 0, false, true), ("bcd", 1, false, false)]);
    }

    #[test]
    fn a_literal_range_outside_of_the_text_is_refused() {
        #[allow(clippy::reversed_empty_ranges)] // The reversed range is the case under test.
        for literal in [vec![0..3], vec![2..1], vec![1..2, 0..1], vec![1..2]] {
            let refused =
                pieces("é", &literal).is_err_and(|error| matches!(error, TokenizerError::Literal { length: 2, .. }));
            assert!(refused, "{literal:?}");
        }
    }
}
