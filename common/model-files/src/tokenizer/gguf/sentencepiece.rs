//! SentencePiece BPE, tokenizer model `llama`: Llama 2, Mistral, Phi-3, Gemma 1 to 3.
//!
//! The encoder equals the `tokenizer.json` that transformers converts such a model to. The digest
//! covers nine lists, in this order. The first has two strings: the tokenizer model and the place
//! of the space prefix. Then follow tokens, scores (the bits of a 32-bit float), ids of added
//! tokens, and ids of special tokens. Next are the ids of tokens that strip the white space after
//! them, and the id of the unknown token (if any). The last two are the ids added before a text,
//! and the ids added after it.

use std::borrow::Cow;
use std::collections::HashSet;

use tokenizers::decoders::{byte_fallback::ByteFallback, fuse::Fuse, sequence::Sequence, strip::Strip};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{self, Prepend, Replace};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper};

use super::super::affixes::Affixes;
use super::merges;
use super::vocabulary::{self, Built, CONTROL, Digest, Kinds, UNKNOWN, USER_DEFINED, added_token, unusable};
use crate::gguf::{Gguf, GgufError, Value};
use crate::tokenizer::error::TokenizerError;

pub(super) const MODEL: &str = "llama";

/// The vocabulary's spelling of a space.
const SPACE: &str = "▁";

/// The types of added tokens.
const ADDED: &[i32] = &[CONTROL, UNKNOWN, USER_DEFINED];

/// Keys of text normalization that is not implemented. No known model of this kind has them.
const UNSUPPORTED: &[&str] = &["tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.precompiled_charsmap"];

/// The tokenizer's values in the header.
struct Vocabulary<'a> {
    /// The tokens in the file's spelling.
    tokens: &'a [String],
    /// The tokens in the encoder's spelling.
    pieces: Vec<Cow<'a, str>>,
    scores: &'a [f32],
    kinds: Kinds,
    space: SpaceBefore,
    unknown: Option<u32>,
    /// Control tokens that strip the white space after them.
    stripping: Vec<u32>,
}

/// The places where a space is added before text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpaceBefore {
    Nothing,
    /// At the start of the text, unless it starts with a space.
    Text,
    /// At the start of the text and after every added token.
    Everything,
}

pub(super) fn build(gguf: &Gguf) -> Result<Built, TokenizerError> {
    let vocabulary = Vocabulary::read(gguf)?;
    let mut encoder = tokenizers::Tokenizer::new(vocabulary.bpe()?);
    vocabulary.space.apply(&mut encoder)?;
    encoder.add_tokens(vocabulary.added_tokens()).map_err(unusable)?;
    let affixes = Affixes::of_gguf(gguf, true, vocabulary.tokens.len())?;
    let sha256 = vocabulary.digest(&affixes);
    Ok(Built { encoder, affixes, sha256 })
}

impl<'a> Vocabulary<'a> {
    fn read(gguf: &'a Gguf) -> Result<Self, TokenizerError> {
        refuse_unsupported(gguf)?;
        let tokens = vocabulary::tokens(gguf)?;
        let scores = scores(gguf, tokens.len())?;
        let kinds = Kinds::read(gguf, tokens.len())?;
        let unknown = unknown(gguf, tokens, &kinds)?;
        let space = SpaceBefore::read(gguf, tokens, &kinds)?;
        let stripping = if is_phi3(gguf)? { stripping(tokens, &kinds) } else { Vec::new() };
        Ok(Self { tokens, pieces: pieces(tokens, &kinds), scores, kinds, space, unknown, stripping })
    }

    fn bpe(&self) -> Result<BPE, TokenizerError> {
        let ids = vocabulary::ids(&self.pieces)?;
        let merges = merges::derive(&self.pieces, &self.ranks())?;
        let vocab: Vocab = ids.into_iter().map(|(piece, id)| (piece.to_owned(), id)).collect();
        let builder = BPE::builder().vocab_and_merges(vocab, merges).fuse_unk(true).byte_fallback(true);
        let builder = match self.unknown {
            Some(id) => builder.unk_token(self.pieces[id as usize].to_string()),
            None => builder,
        };
        builder.build().map_err(unusable)
    }

    /// Returns the scores for merging. User-defined pieces are merged first.
    fn ranks(&self) -> Vec<f32> {
        let rank = |(&score, &kind): (&f32, &i32)| if kind == USER_DEFINED { f32::INFINITY } else { score };
        self.scores.iter().zip(&self.kinds.0).map(rank).collect()
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        let added = self.kinds.ids(ADDED).into_iter().map(|id| {
            let is_special = self.kinds.0[id as usize] != USER_DEFINED;
            added_token(&self.pieces[id as usize], is_special).rstrip(self.stripping.binary_search(&id).is_ok())
        });
        added.collect()
    }

    fn digest(&self, affixes: &Affixes) -> String {
        let mut digest = Digest::default();
        digest.strings(&[MODEL, self.space.name()]);
        digest.strings(self.tokens);
        digest.numbers(&self.scores.iter().map(|score| score.to_bits()).collect::<Vec<_>>());
        digest.numbers(&self.kinds.ids(ADDED));
        digest.numbers(&self.kinds.ids(&[CONTROL, UNKNOWN]));
        digest.numbers(&self.stripping);
        digest.numbers(self.unknown.as_slice());
        digest.numbers(&affixes.before);
        digest.numbers(&affixes.after);
        digest.hex()
    }
}

impl SpaceBefore {
    /// Reads the places from the header, which states only whether a space is added at all. With
    /// the control token `[INST]` (Mistral since version 2), it is added only at the start of the
    /// text, as in transformers.
    fn read(gguf: &Gguf, tokens: &[String], kinds: &Kinds) -> Result<Self, TokenizerError> {
        let is_mistral = || tokens.iter().zip(&kinds.0).any(|(token, &kind)| token == "[INST]" && kind == CONTROL);
        Ok(match gguf.find("tokenizer.ggml.add_space_prefix")? {
            Some(false) => Self::Nothing,
            _ if is_mistral() => Self::Text,
            _ => Self::Everything,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Text => "text",
            Self::Everything => "everything",
        }
    }

    /// Configures the encoder to replace spaces by [`SPACE`] and to add the prefix. The decoder
    /// removes the prefix of the whole text.
    fn apply(self, encoder: &mut tokenizers::Tokenizer) -> Result<(), TokenizerError> {
        let respell: NormalizerWrapper = Replace::new(" ", SPACE).map_err(unusable)?.into();
        let mut decoders: Vec<DecoderWrapper> =
            vec![Replace::new(SPACE, " ").map_err(unusable)?.into(), ByteFallback::new().into(), Fuse::new().into()];
        match self {
            Self::Nothing => encoder.with_normalizer(Some(respell)).map_err(unusable)?,
            Self::Text => encoder.with_pre_tokenizer(Some(Metaspace::new('▁', PrependScheme::First, false))),
            Self::Everything => {
                let steps = vec![Prepend::new(SPACE.to_owned()).into(), respell];
                encoder.with_normalizer(Some(normalizers::Sequence::new(steps))).map_err(unusable)?
            }
        };
        if self != Self::Nothing {
            decoders.push(Strip::new(' ', 1, 0).into());
        }
        encoder.with_decoder(Some(Sequence::new(decoders)));
        Ok(())
    }
}

fn refuse_unsupported(gguf: &Gguf) -> Result<(), TokenizerError> {
    let is_set = |key: &&&str| gguf.metadata(key).is_some_and(|value| *value != Value::Bool(false));
    match UNSUPPORTED.iter().find(is_set) {
        Some(key) => Err(TokenizerError::Unsupported { key: (*key).to_owned(), model: MODEL }),
        None => Ok(()),
    }
}

fn scores(gguf: &Gguf, size: usize) -> Result<&[f32], TokenizerError> {
    let scores: &[f32] = gguf.get("tokenizer.ggml.scores")?;
    if scores.len() != size {
        return Err(TokenizerError::ScoreCount { tokens: size, scores: scores.len() });
    }
    match scores.iter().position(|score| !score.is_finite()) {
        Some(index) => Err(TokenizerError::Score { index, found: scores[index] }),
        None => Ok(scores),
    }
}

/// Returns the id for characters outside of the vocabulary. It is optional only if the vocabulary
/// has all bytes.
fn unknown(gguf: &Gguf, tokens: &[String], kinds: &Kinds) -> Result<Option<u32>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.unknown_token_id";
    let size = tokens.len();
    match gguf.find::<u32>(KEY)?.or_else(|| kinds.ids(&[UNKNOWN]).first().copied()) {
        Some(id) if id as usize >= size => Err(TokenizerError::UnknownId { id, size }),
        None if !has_every_byte(tokens) => Err(GgufError::Missing { key: KEY.to_owned() }.into()),
        found => Ok(found),
    }
}

fn has_every_byte(tokens: &[String]) -> bool {
    let tokens: HashSet<&str> = tokens.iter().map(String::as_str).collect();
    (0..=u8::MAX).all(|byte| tokens.contains(format!("<0x{byte:02X}>").as_str()))
}

/// Returns the tokens in the encoder's spelling. GGUF spells user-defined runs of spaces with
/// spaces. If all shorter runs are in the vocabulary too, the encoder must merge them like other
/// pieces. These runs are then spelled with [`SPACE`].
fn pieces<'a>(tokens: &'a [String], kinds: &Kinds) -> Vec<Cow<'a, str>> {
    let marked: HashSet<usize> = tokens.iter().filter_map(|token| run_of(token, SPACE)).collect();
    let of_user = |(token, &kind): (&String, &i32)| {
        run_of(token, " ").filter(|length| kind == USER_DEFINED && !marked.contains(length))
    };
    let spaces: Vec<_> = tokens.iter().zip(&kinds.0).map(of_user).collect();
    let all: HashSet<usize> = marked.iter().copied().chain(spaces.iter().flatten().copied()).collect();
    let longest = (1..).take_while(|length| all.contains(length)).last().unwrap_or(0);
    let piece = |(token, length): (&'a String, Option<usize>)| match length {
        Some(length) if length <= longest => Cow::Owned(SPACE.repeat(length)),
        _ => Cow::Borrowed(token.as_str()),
    };
    tokens.iter().zip(spaces).map(piece).collect()
}

/// Returns the count of `unit` in a text that consists only of it.
fn run_of(text: &str, unit: &str) -> Option<usize> {
    let is_run = !text.is_empty() && text.split(unit).all(str::is_empty);
    is_run.then_some(text.len() / unit.len())
}

fn is_phi3(gguf: &Gguf) -> Result<bool, TokenizerError> {
    Ok(gguf.find::<&str>("general.architecture")? == Some("phi3"))
}

/// Returns Phi-3's control tokens except those at a text's edges: these strip the white space after
/// them. No key of the file states this.
fn stripping(tokens: &[String], kinds: &Kinds) -> Vec<u32> {
    let is_edge = |id: &u32| ["<unk>", "<s>", "<|endoftext|>"].contains(&tokens[*id as usize].as_str());
    let mut ids = kinds.ids(ADDED);
    ids.retain(|id| !is_edge(id));
    ids
}
