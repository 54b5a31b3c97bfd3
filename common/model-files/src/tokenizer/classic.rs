//! The classic encoder: the released `tokenizers` library. It is slow, but it supports offsets and
//! every component of a `tokenizer.json`. Its ids are the reference.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    Encoding, Model, ModelWrapper, NormalizedString, Normalizer, OffsetType, PostProcessor, PreTokenizedString,
    PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior,
};

use super::cancel;
use super::error::{TokenizerError, encode_error};
use super::literal::{Forbidden, Piece, Tokens};
use super::parts::{PART_SIZES, PartSizes, Parts};
use super::pre;
use super::turn::Turn;

/// The maximum size of a text.
const MAX_BYTES: usize = 256 << 10;
/// The size of the pieces in which a text is measured.
const MEASURED_BYTES: usize = 1 << 10;

/// A way to encode a text that is not cut.
type Encode = fn(&Classic, &str) -> Result<Tokens, TokenizerError>;
/// Returns the sizes of the parts of a text.
type Sizes<'a> = &'a dyn Fn(&str) -> PartSizes;

pub(super) struct Classic {
    pub(super) encoder: tokenizers::Tokenizer,
    /// True if a word ends at each space between two letters. Otherwise a word may be as long as the text.
    ends_words: bool,
    /// The ids of a line break, encoded alone.
    newline: Vec<u32>,
}

impl Classic {
    pub(super) fn new(mut encoder: tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        without_cache(&mut encoder);
        let newline = guarded(|| encoder.encode_fast("\n", false))?.get_ids().to_vec();
        let ends_words = encoder.get_pre_tokenizer().is_some_and(ends_words_at_spaces);
        Ok(Self { encoder, ends_words, newline })
    }

    /// Encodes the pieces of a text, in order.
    pub(super) fn ids(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Vec<u32>, TokenizerError> {
        match pieces {
            [piece] if piece.is_first && piece.text.len() <= MEASURED_BYTES => {
                Ok(guarded(|| self.encoder.encode_fast(piece.text, false))?.get_ids().to_vec())
            }
            _ => Ok(self.tokens(pieces, forbidden)?.ids),
        }
    }

    /// Encodes the pieces of a text, with the byte range of each id.
    pub(super) fn tokens(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Tokens, TokenizerError> {
        let bytes = pieces.iter().map(|piece| piece.text.len()).sum();
        check(bytes, MAX_BYTES)?;
        let _turn = Turn::of(bytes.min(PART_SIZES.whole()))?;
        self.tokens_of(pieces, forbidden, &|text| self.sizes(text))
    }

    /// As [`tokens`](Self::tokens), but each piece at once, whatever memory it takes.
    pub(super) fn reference(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Tokens, TokenizerError> {
        self.tokens_of(pieces, forbidden, &|text| PartSizes { part: text.len(), ..PART_SIZES })
    }

    fn tokens_of(
        &self,
        pieces: &[Piece<'_>],
        forbidden: &Forbidden,
        sizes: Sizes<'_>,
    ) -> Result<Tokens, TokenizerError> {
        let mut all = Tokens::default();
        for piece in pieces {
            cancel::check()?;
            let tokens = match piece {
                Piece { is_literal: true, .. } => {
                    forbidden.avoid(piece.text, &|text: &str| self.long_inside(text, Self::span, sizes))?
                }
                Piece { is_first: true, .. } => self.long_start(piece.text, Self::with_added, sizes)?,
                _ => self.long_inside(piece.text, Self::with_added, sizes)?,
            };
            all.append(tokens, piece.start);
        }
        Ok(all)
    }

    /// Encodes a span as if it was a whole text, in parts if it is long.
    fn long_start(&self, text: &str, encode: Encode, sizes: Sizes<'_>) -> Result<Tokens, TokenizerError> {
        self.long(text, sizes(text), |text| encode(self, text), |text| self.inside(text, encode))
    }

    /// As [`inside`](Self::inside), in parts if the span is long.
    fn long_inside(&self, text: &str, encode: Encode, sizes: Sizes<'_>) -> Result<Tokens, TokenizerError> {
        let inside = |text: &str| self.inside(text, encode);
        self.long(text, sizes(text), inside, inside)
    }

    /// Encodes a text in parts if it is long and can be cut. `later` encodes all but the first part.
    fn long(
        &self,
        text: &str,
        sizes: PartSizes,
        first: impl Fn(&str) -> Result<Tokens, TokenizerError>,
        later: impl Fn(&str) -> Result<Tokens, TokenizerError>,
    ) -> Result<Tokens, TokenizerError> {
        if text.len() <= sizes.part {
            return first(text);
        }
        let parts = if self.ends_words { Parts { text, sizes }.encode(&first, later)? } else { None };
        match parts {
            Some(tokens) => Ok(tokens),
            None => check(text.len(), sizes.whole()).and_then(|()| first(text)),
        }
    }

    /// Returns the sizes of parts that the normalizer makes at most as long as those of an unchanged text.
    fn sizes(&self, text: &str) -> PartSizes {
        let PartSizes { part, context } = PART_SIZES;
        PartSizes { part: part / self.expansion(text), context }
    }

    /// Returns how many times as long the normalizer makes a part of the text. Some characters become 11 times
    /// as long in Unicode's normal forms.
    fn expansion(&self, text: &str) -> usize {
        let Some(normalizer) = self.encoder.get_normalizer() else { return 1 };
        let mut most = 1;
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.ceil_char_boundary(MEASURED_BYTES.min(rest.len())));
            let mut normalized = NormalizedString::from(part);
            if normalizer.normalize(&mut normalized).is_ok() {
                most = most.max(normalized.len().div_ceil(part.len()));
            }
            rest = after;
        }
        most
    }

    /// Encodes a span that is not the start of the whole text. A line break is added before the
    /// span, and its ids are removed from the result. A tokenizer with a space prefix therefore
    /// adds no space here, as in transformers.
    fn inside(&self, text: &str, encode: Encode) -> Result<Tokens, TokenizerError> {
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
        let _turn = Turn::of(text.len().min(PART_SIZES.whole()))?;
        self.long_start(text, Self::span, &|text| self.sizes(text))
    }

    /// Encodes a span without recognizing added tokens.
    fn span(&self, text: &str) -> Result<Tokens, TokenizerError> {
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

/// Returns true if no word reaches over a space between two letters. Otherwise a word may be as long as the
/// text.
fn ends_words_at_spaces(pre_tokenizer: &PreTokenizerWrapper) -> bool {
    match pre_tokenizer {
        PreTokenizerWrapper::Metaspace(metaspace) => metaspace.split,
        PreTokenizerWrapper::ByteLevel(byte_level) => byte_level.use_regex,
        PreTokenizerWrapper::Sequence(steps) => steps.as_ref().iter().any(ends_words_at_spaces),
        PreTokenizerWrapper::BertPreTokenizer(_)
        | PreTokenizerWrapper::Whitespace(_)
        | PreTokenizerWrapper::WhitespaceSplit(_) => true,
        PreTokenizerWrapper::Split(split) => match &split.pattern {
            SplitPattern::Regex(regex) => is_isolated(split) && pre::ends_words_at_spaces(regex),
            SplitPattern::String(_) => false,
        },
        _ => false,
    }
}

/// Returns true if every match is a word, and the text between two matches is one too.
fn is_isolated(split: &Split) -> bool {
    split.behavior == SplitDelimiterBehavior::Isolated && !split.invert
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

fn check(bytes: usize, limit: usize) -> Result<(), TokenizerError> {
    if bytes > limit { Err(TokenizerError::TooLong { bytes, limit }) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    /// Sizes with which short texts have several parts.
    const SMALL: PartSizes = PartSizes { part: 96, context: 32 };

    fn unigram() -> Value {
        let tokens = ["<unk>", "▁", "a", "b", "c", "▁a", "▁ab", "bc", "▁bca", "\n", "é", "1"];
        let vocabulary: Vec<_> = tokens.iter().zip(1..).map(|(token, rank)| json!([token, -f64::from(rank)])).collect();
        json!({"type": "Unigram", "unk_id": 0, "vocab": vocabulary, "byte_fallback": false})
    }

    fn word_piece() -> Value {
        let tokens = ["[UNK]", "a", "b", "c", "##a", "##b", "##c", "ab", "##bc", "bca", "1", "é", "##1"];
        let vocabulary: Map<_, _> =
            tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
        json!({"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100})
    }

    /// A byte-level vocabulary without most bytes.
    fn bpe() -> Value {
        let tokens = ["a", "b", "c", "1", "Ġ", "Ċ", "Ã", "©", "ab", "Ġa", "Ġab", "ĠĠ"];
        let vocabulary: Map<_, _> =
            tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
        json!({"type": "BPE", "vocab": vocabulary, "merges": ["a b", "Ġ a", "Ġa b", "Ġ Ġ"]})
    }

    /// Returns encoders whose words depend on their surroundings in different ways.
    fn encoders() -> Vec<Classic> {
        let metaspace =
            |scheme| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        let collapse = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
        let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
        let all = json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, strip, collapse]});
        let (lower, bert) = (json!({"type": "Lowercase"}), json!({"type": "BertPreTokenizer"}));
        let regex = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let words = json!({"type": "Sequence", "pretokenizers": [split, bytes]});
        let files = [
            json!({"normalizer": all, "pre_tokenizer": metaspace("always"), "model": unigram()}),
            json!({"pre_tokenizer": metaspace("first"), "model": unigram()}),
            json!({"normalizer": lower, "pre_tokenizer": bert, "model": word_piece()}),
            json!({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": word_piece()}),
            json!({"normalizer": {"type": "NFC"}, "pre_tokenizer": words, "model": bpe()}),
        ];
        let added = json!([{"id": 40, "content": "<s>", "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false}]);
        let encoder = |mut file: Value| {
            (file["version"], file["added_tokens"]) = (json!("1.0"), added.clone());
            let encoder = tokenizers::Tokenizer::from_bytes(file.to_string()).expect("a tokenizer.json");
            Classic::new(encoder).expect("an encoder")
        };
        files.into_iter().map(encoder).collect()
    }

    /// Returns a text of 300 parts that `state` selects.
    fn text(state: &mut u64) -> String {
        let parts =
            ["a b", "ab", "abc", "bca 1", " ", " ", "ab a", "  ", "\n", "a b", "1", "é", "<s>", "x", "A", "\u{3000}"];
        let part = |_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            parts[(*state >> 60) as usize]
        };
        (0..300).map(part).collect()
    }

    #[test]
    fn parts_have_the_tokens_of_the_whole() {
        for (i, encoder) in encoders().iter().enumerate() {
            let (mut state, mut cut) = (i as u64, 0);
            for _ in 0..300 {
                let text = text(&mut state);
                let later = |text: &str| encoder.inside(text, Classic::with_added);
                let parts = encoder.long(&text, SMALL, |text| encoder.with_added(text), later);
                let Ok(parts) = parts else { continue };
                let is_cut = text.len() > SMALL.whole();
                let whole = encoder.with_added(&text).expect("tokens");
                assert_eq!((parts.ids, parts.offsets), (whole.ids, whole.offsets), "encoder {i}: {text:?}");
                cut += usize::from(is_cut);
            }
            // The first encoder strips the space before a part, so that the word after it has other offsets.
            assert!(cut > 30 || i == 0, "encoder {i}: only {cut} texts were cut");
        }
    }
    fn encode(encoder: &Classic, text: &str) -> Result<Tokens, TokenizerError> {
        encoder.long_start(text, Classic::with_added, &|text| encoder.sizes(text))
    }

    #[test]
    fn a_long_text_that_cannot_be_cut_is_refused() {
        let unigram = &encoders()[1];
        let text = "a".repeat(PART_SIZES.whole());
        encode(unigram, &text).expect("tokens");
        let refused = encode(unigram, &(text + "b"));
        assert!(matches!(refused, Err(TokenizerError::TooLong { limit, .. }) if limit == PART_SIZES.whole()));
        encode(unigram, &"ab ".repeat(PART_SIZES.part)).expect("tokens");
    }

    #[test]
    fn a_text_that_becomes_longer_is_encoded_in_smaller_parts() {
        let nfkc = &encoders()[0];
        assert_eq!((nfkc.expansion("ab \u{fb01}"), nfkc.expansion(&"\u{fdfa}".repeat(10))), (1, 11));
        let longest = |letters: usize| "\u{fdfa}".repeat(letters);
        encode(nfkc, &longest(PART_SIZES.part / 11 / 3)).expect("tokens");
        assert!(matches!(encode(nfkc, &longest(PART_SIZES.part / 3)), Err(TokenizerError::TooLong { .. })));
        // The text around it has the same limit.
        assert!(encode(nfkc, &("a".repeat(PART_SIZES.part) + &longest(1000))).is_err());
    }
}
