//! The classic encoder: the released `tokenizers` library. It is slow, but it supports offsets and
//! every component of a `tokenizer.json`. Its ids are the reference.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::{
    Encoding, Model, ModelWrapper, NormalizedString, Normalizer, OffsetType, PostProcessor, PreTokenizedString,
    PreTokenizer,
};

use super::cancel;
use super::error::{TokenizerError, encode_error};
use super::literal::{Forbidden, Piece, Tokens};
use super::turn::Turn;

/// The maximum size of a text. The library needs 150 times this size in memory.
const MAX_BYTES: usize = 1 << 20;

pub(super) struct Classic {
    pub(super) encoder: tokenizers::Tokenizer,
    /// The ids of a line break, encoded alone.
    newline: Vec<u32>,
}

impl Classic {
    pub(super) fn new(mut encoder: tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        without_cache(&mut encoder);
        let newline = guarded(|| encoder.encode_fast("\n", false))?.get_ids().to_vec();
        Ok(Self { encoder, newline })
    }

    /// Encodes the pieces of a text, in order.
    pub(super) fn ids(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Vec<u32>, TokenizerError> {
        let _turn = turn(pieces.iter().map(|piece| piece.text.len()).sum())?;
        match pieces {
            [piece] if piece.is_first => {
                Ok(guarded(|| self.encoder.encode_fast(piece.text, false))?.get_ids().to_vec())
            }
            _ => Ok(self.tokens_of(pieces, forbidden)?.ids),
        }
    }

    /// Encodes the pieces of a text, with the byte range of each id.
    pub(super) fn tokens(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Tokens, TokenizerError> {
        let _turn = turn(pieces.iter().map(|piece| piece.text.len()).sum())?;
        self.tokens_of(pieces, forbidden)
    }

    fn tokens_of(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Tokens, TokenizerError> {
        let mut all = Tokens::default();
        for piece in pieces {
            cancel::check()?;
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

    /// Encodes a span that is not the start of the whole text. A line break is added before the
    /// span, and its ids are removed from the result. A tokenizer with a space prefix therefore
    /// adds no space here, as in transformers.
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

    /// Encodes a whole text without recognizing added tokens.
    pub(super) fn without_added(&self, text: &str) -> Result<Tokens, TokenizerError> {
        check(text.len())?;
        Ok(tokens(text, &guarded(|| self.encode_without_added(text))?))
    }

    /// Performs the library's steps for a text without added tokens.
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

/// Makes a BPE model keep no words. The library keeps them on every thread that encodes, for the life of
/// the thread, so that a reloaded model would leave its words behind.
fn without_cache(encoder: &mut tokenizers::Tokenizer) {
    let bpe = match encoder.get_model() {
        ModelWrapper::BPE(bpe) => bpe.clone(),
        _ => return,
    };
    let mut model = ModelWrapper::BPE(bpe);
    model.resize_cache(0);
    encoder.with_model(model);
}

fn check(bytes: usize) -> Result<(), TokenizerError> {
    if bytes > MAX_BYTES { Err(TokenizerError::TooLong { bytes, limit: MAX_BYTES }) } else { Ok(()) }
}

/// Waits for the turn of a text of this size.
fn turn(bytes: usize) -> Result<Turn, TokenizerError> {
    check(bytes)?;
    Turn::of(bytes)
}

/// Turns a panic of the library into an error. Its regex engine panics on long searches, such as in
/// a text of a million spaces.
fn guarded(encode: impl FnOnce() -> tokenizers::Result<Encoding>) -> Result<Encoding, TokenizerError> {
    match catch_unwind(AssertUnwindSafe(encode)) {
        Ok(encoded) => encoded.map_err(encode_error),
        Err(_) => Err(TokenizerError::Encode { reason: "the tokenizer library panicked".to_owned() }),
    }
}

/// Subtracts the length of the added line break from the offsets.
fn shifted(offsets: &[Range<usize>]) -> Vec<Range<usize>> {
    offsets.iter().map(|range| range.start.saturating_sub(1)..range.end.saturating_sub(1)).collect()
}

/// Returns the ids and their byte ranges. Ranges are widened to whole characters.
fn tokens(text: &str, encoding: &Encoding) -> Tokens {
    let widen = |&(start, end): &(usize, usize)| text.floor_char_boundary(start)..text.ceil_char_boundary(end);
    Tokens { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().iter().map(widen).collect() }
}
