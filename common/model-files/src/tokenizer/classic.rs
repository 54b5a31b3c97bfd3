//! The encoder of the released `tokenizers` library. Slow, but it takes every component and knows where each token came
//! from; what it says is right.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::{
    Encoding, Model, NormalizedString, Normalizer, OffsetType, PostProcessor, PreTokenizedString, PreTokenizer,
};

use super::literal::{Forbidden, Piece, Tokens};
use super::{TokenizerError, encode_error};

/// Bytes of the longest text: the library takes a hundred and fifty times as much memory.
const MAX_BYTES: usize = 4 << 20;

pub(super) struct Classic {
    pub(super) encoder: tokenizers::Tokenizer,
    /// What a line break encodes to.
    newline: Vec<u32>,
}

impl Classic {
    pub(super) fn new(encoder: tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let newline = guarded(|| encoder.encode_fast("\n", false))?.get_ids().to_vec();
        Ok(Self { encoder, newline })
    }

    /// The ids of the pieces of a text, one piece after the other.
    pub(super) fn ids(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Vec<u32>, TokenizerError> {
        check(pieces.iter().map(|piece| piece.text.len()).sum())?;
        match pieces {
            [piece] if piece.is_first => {
                Ok(guarded(|| self.encoder.encode_fast(piece.text, false))?.get_ids().to_vec())
            }
            _ => Ok(self.tokens(pieces, forbidden)?.ids),
        }
    }

    /// The same with the bytes that each id came from.
    pub(super) fn tokens(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Tokens, TokenizerError> {
        check(pieces.iter().map(|piece| piece.text.len()).sum())?;
        let mut all = Tokens::default();
        for piece in pieces {
            let tokens = match piece {
                Piece { is_literal: true, .. } => {
                    forbidden.avoid(piece.text, &|text: &str| self.inside(text, Self::without_added))?
                }
                Piece { is_first: true, .. } => self.with_added(piece.text)?,
                _ => self.inside(piece.text, Self::with_added)?,
            };
            all.append(tokens, piece.start);
        }
        Ok(all)
    }

    /// Encodes what does not begin a text. A line break is put before it and taken away again, so that a tokenizer which
    /// puts a space before a text does not put one here; this is how transformers does it.
    fn inside(
        &self,
        text: &str,
        encode: fn(&Self, &str) -> Result<Tokens, TokenizerError>,
    ) -> Result<Tokens, TokenizerError> {
        let Tokens { ids, offsets } = encode(self, &format!("\n{text}"))?;
        match ids.strip_prefix(self.newline.as_slice()) {
            Some(ids) => Ok(Tokens { ids: ids.to_vec(), offsets: shifted(&offsets[self.newline.len()..]) }),
            None => encode(self, text),
        }
    }

    fn with_added(&self, text: &str) -> Result<Tokens, TokenizerError> {
        Ok(tokens(text, &guarded(|| self.encoder.encode(text, false))?))
    }

    /// A whole text in which no added token is searched for.
    pub(super) fn without_added(&self, text: &str) -> Result<Tokens, TokenizerError> {
        check(text.len())?;
        Ok(tokens(text, &guarded(|| self.encode_without_added(text))?))
    }

    /// What the library does with a text in which it has found no added token.
    fn encode_without_added(&self, text: &str) -> tokenizers::Result<Encoding> {
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = self.encoder.get_normalizer() {
            normalizer.normalize(&mut normalized)?;
        }
        let mut cut = PreTokenizedString::from(normalized);
        if let Some(pre_tokenizer) = self.encoder.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut cut)?;
        }
        cut.tokenize(|part| self.encoder.get_model().tokenize(part.get()))?;
        let encoding = cut.into_encoding(None, 0, OffsetType::Byte)?;
        match self.encoder.get_post_processor() {
            Some(processor) => processor.process(encoding, None, false),
            None => Ok(encoding),
        }
    }
}

fn check(bytes: usize) -> Result<(), TokenizerError> {
    if bytes > MAX_BYTES { Err(TokenizerError::TooLong { bytes, limit: MAX_BYTES }) } else { Ok(()) }
}

/// The regex engine panics where it would search for too long, as in millions of spaces. That must be an error.
fn guarded(encode: impl FnOnce() -> tokenizers::Result<Encoding>) -> Result<Encoding, TokenizerError> {
    match catch_unwind(AssertUnwindSafe(encode)) {
        Ok(encoded) => encoded.map_err(encode_error),
        Err(_) => Err(TokenizerError::Encode { reason: "it takes too long to cut".to_owned() }),
    }
}

/// Offsets without the line break before the text.
fn shifted(offsets: &[Range<usize>]) -> Vec<Range<usize>> {
    offsets.iter().map(|range| range.start.saturating_sub(1)..range.end.saturating_sub(1)).collect()
}

/// Ranges are widened to whole characters.
fn tokens(text: &str, encoding: &Encoding) -> Tokens {
    let widen = |&(start, end): &(usize, usize)| text.floor_char_boundary(start)..text.ceil_char_boundary(end);
    Tokens { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().iter().map(widen).collect() }
}
