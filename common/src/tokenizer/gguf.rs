//! Builds the encoder from a GGUF header: byte-level BPE, tokenizer model `gpt2`.
//!
//! The digest is the SHA-256 over eight lists, in this order: the tokenizer model (one string), the pre-tokenizer name (one
//! string), the tokens, the ids of tokens that are searched for in text, the ids of special tokens, the merges, the ids put
//! before a text, the ids put after it. A list is its element count followed by its elements; a string is its byte length
//! followed by its bytes; every number is eight bytes, little-endian.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use tokenizers::AddedToken;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};

use super::affixes::Affixes;
use super::pre::PreTokenizer;
use super::{MAX_IDS, TokenizerError};
use crate::artifacts::gguf::Gguf;

/// Token types, as llama.cpp numbers them.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

pub(super) struct Built {
    pub(super) encoder: tokenizers::Tokenizer,
    pub(super) affixes: Affixes,
    pub(super) sha256: String,
}

/// The part of the header that makes a tokenizer.
struct Vocabulary<'a> {
    model: &'a str,
    pre: &'a str,
    tokens: &'a [String],
    merges: &'a [String],
    /// Ids of the tokens that are searched for in text before it is cut, ascending; special ones are among them.
    added: Vec<u32>,
    special: Vec<u32>,
}

pub(super) fn build(gguf: &Gguf) -> Result<Built, TokenizerError> {
    let vocabulary = Vocabulary::read(gguf)?;
    let rules = PreTokenizer::named(vocabulary.pre)?;
    let mut encoder = tokenizers::Tokenizer::new(vocabulary.bpe(rules.whole_pieces)?);
    encoder.with_pre_tokenizer(Some(rules.pre_tokenizer()?));
    encoder.with_decoder(Some(ByteLevel::default()));
    let unusable = |error: tokenizers::Error| TokenizerError::Vocabulary { reason: error.to_string() };
    encoder.with_normalizer(rules.normalizer()).map_err(unusable)?;
    encoder.add_tokens(vocabulary.added_tokens()).map_err(unusable)?;
    let affixes = Affixes::of_gguf(gguf, rules.bos_by_default, vocabulary.tokens.len())?;
    let sha256 = vocabulary.digest(&affixes);
    Ok(Built { encoder, affixes, sha256 })
}

impl<'a> Vocabulary<'a> {
    fn read(gguf: &'a Gguf) -> Result<Self, TokenizerError> {
        let model: &str = gguf.get("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::Model { found: model.to_owned() });
        }
        let tokens: &[String] = gguf.get("tokenizer.ggml.tokens")?;
        if tokens.len() > MAX_IDS {
            return Err(TokenizerError::TooLarge { largest: tokens.len() - 1, limit: MAX_IDS - 1 });
        }
        let kinds = Kinds::read(gguf, tokens.len())?;
        let special = kinds.ids(|kind| kind == CONTROL);
        let added = kinds.ids(|kind| kind == CONTROL || kind == USER_DEFINED);
        let pre = gguf.get("tokenizer.ggml.pre")?;
        let merges = gguf.get("tokenizer.ggml.merges")?;
        Ok(Self { model, pre, tokens, merges, added, special })
    }

    fn bpe(&self, whole_pieces: bool) -> Result<BPE, TokenizerError> {
        let ids = self.ids()?;
        let merges = self.merges.iter().enumerate().map(|(index, merge)| {
            let pair = split_merge(merge).filter(|(left, right)| is_merge(&ids, left, right));
            let (left, right) = pair.ok_or_else(|| TokenizerError::Merge { index, merge: merge.clone() })?;
            Ok((left.to_owned(), right.to_owned()))
        });
        let merges = merges.collect::<Result<Vec<_>, TokenizerError>>()?;
        let vocab: Vocab = ids.into_iter().map(|(token, id)| (token.to_owned(), id)).collect();
        let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(whole_pieces).build();
        bpe.map_err(|error| TokenizerError::Vocabulary { reason: error.to_string() })
    }

    fn ids(&self) -> Result<HashMap<&'a str, u32>, TokenizerError> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (second, token) in (0..).zip(self.tokens) {
            if let Some(first) = ids.insert(token.as_str(), second) {
                return Err(TokenizerError::Duplicate { token: token.clone(), first, second });
            }
        }
        Ok(ids)
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        let added = self.added.iter().map(|id| {
            let text = self.tokens[*id as usize].as_str();
            AddedToken::from(text, self.special.contains(id)).normalized(false)
        });
        added.collect()
    }

    fn digest(&self, affixes: &Affixes) -> String {
        let mut digest = Sha256::new();
        hash_strings(&mut digest, &[self.model]);
        hash_strings(&mut digest, &[self.pre]);
        hash_strings(&mut digest, self.tokens);
        hash_numbers(&mut digest, &self.added);
        hash_numbers(&mut digest, &self.special);
        hash_strings(&mut digest, self.merges);
        hash_numbers(&mut digest, &affixes.before);
        hash_numbers(&mut digest, &affixes.after);
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The type of every token.
struct Kinds(Vec<i32>);

impl Kinds {
    /// A token that ends or begins a turn is control whatever its type says.
    fn read(gguf: &Gguf, size: usize) -> Result<Self, TokenizerError> {
        let found: &[i32] = gguf.find("tokenizer.ggml.token_type")?.unwrap_or_default();
        let mut kinds = if found.is_empty() { vec![NORMAL; size] } else { found.to_vec() };
        if kinds.len() != size {
            return Err(TokenizerError::TypeCount { tokens: size, types: kinds.len() });
        }
        for name in ["bos", "eos", "eot", "eom"] {
            if let Some(id) = gguf.find::<u32>(&format!("tokenizer.ggml.{name}_token_id"))? {
                *kinds.get_mut(id as usize).ok_or(TokenizerError::UnknownId { id, size })? = CONTROL;
            }
        }
        Ok(Self(kinds))
    }

    fn ids(&self, wanted: impl Fn(i32) -> bool) -> Vec<u32> {
        (0..).zip(&self.0).filter(|&(_, &kind)| wanted(kind)).map(|(id, _)| id).collect()
    }
}

/// Two tokens around a space. A token may itself start with one.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge.get(first..)?.find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}

fn is_merge(ids: &HashMap<&str, u32>, left: &str, right: &str) -> bool {
    let joined = [left, right].concat();
    [left, right, &joined].iter().all(|token| ids.contains_key(token))
}

fn hash_strings(digest: &mut Sha256, all: &[impl AsRef<str>]) {
    digest.update((all.len() as u64).to_le_bytes());
    for text in all {
        digest.update((text.as_ref().len() as u64).to_le_bytes());
        digest.update(text.as_ref());
    }
}

fn hash_numbers(digest: &mut Sha256, all: &[u32]) {
    digest.update((all.len() as u64).to_le_bytes());
    all.iter().for_each(|&number| digest.update(u64::from(number).to_le_bytes()));
}
