//! Byte-level BPE, tokenizer model `gpt2`.
//!
//! The digest covers eight lists, in this order. The first two have one string each: the tokenizer
//! model and the pre-tokenizer name. Then follow tokens, ids of added tokens, ids of special
//! tokens, and merges. The last two are the ids added before a text, and the ids added after it.

use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};

use super::super::affixes::Affixes;
use super::super::pre::PreTokenizer;
use super::vocabulary::{self, Built, CONTROL, Digest, Kinds, USER_DEFINED, added_token, unusable};
use crate::gguf::Gguf;
use crate::tokenizer::error::TokenizerError;

pub(super) const MODEL: &str = "gpt2";

/// The tokenizer's values in the header.
struct Vocabulary<'a> {
    pre: &'a str,
    tokens: &'a [String],
    merges: &'a [String],
    /// Ids of the added tokens, special ones included, ascending.
    added: Vec<u32>,
    special: Vec<u32>,
}

pub(super) fn build(gguf: &Gguf) -> Result<Built, TokenizerError> {
    let vocabulary = Vocabulary::read(gguf)?;
    let rules = PreTokenizer::named(vocabulary.pre)?;
    let mut encoder = tokenizers::Tokenizer::new(vocabulary.bpe(rules.whole_pieces)?);
    encoder.with_pre_tokenizer(Some(rules.pre_tokenizer()?));
    encoder.with_decoder(Some(ByteLevel::default()));
    encoder.with_normalizer(rules.normalizer()).map_err(unusable)?;
    encoder.add_tokens(vocabulary.added_tokens()).map_err(unusable)?;
    let affixes = Affixes::of_gguf(gguf, rules.bos_by_default, vocabulary.tokens.len())?;
    let sha256 = vocabulary.digest(&affixes);
    Ok(Built { encoder, affixes, sha256 })
}

impl<'a> Vocabulary<'a> {
    fn read(gguf: &'a Gguf) -> Result<Self, TokenizerError> {
        let tokens = vocabulary::tokens(gguf)?;
        let kinds = Kinds::read(gguf, tokens.len())?;
        let special = kinds.ids(&[CONTROL]);
        let added = kinds.ids(&[CONTROL, USER_DEFINED]);
        let pre = gguf.get("tokenizer.ggml.pre")?;
        let merges = gguf.get("tokenizer.ggml.merges")?;
        Ok(Self { pre, tokens, merges, added, special })
    }

    fn bpe(&self, whole_pieces: bool) -> Result<BPE, TokenizerError> {
        let ids = vocabulary::ids(self.tokens)?;
        let merges = self.merges.iter().enumerate().map(|(index, merge)| {
            let pair = split_merge(merge).filter(|(left, right)| is_merge(&ids, left, right));
            let (left, right) = pair.ok_or_else(|| TokenizerError::Merge { index, merge: merge.clone() })?;
            Ok((left.to_owned(), right.to_owned()))
        });
        let merges = merges.collect::<Result<Vec<_>, TokenizerError>>()?;
        let vocab: Vocab = ids.into_iter().map(|(token, id)| (token.to_owned(), id)).collect();
        BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(whole_pieces).build().map_err(unusable)
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        let added = self.added.iter();
        added.map(|id| added_token(&self.tokens[*id as usize], self.special.binary_search(id).is_ok())).collect()
    }

    fn digest(&self, affixes: &Affixes) -> String {
        let mut digest = Digest::default();
        digest.strings(&[MODEL]);
        digest.strings(&[self.pre]);
        digest.strings(self.tokens);
        digest.numbers(&self.added);
        digest.numbers(&self.special);
        digest.strings(self.merges);
        digest.numbers(&affixes.before);
        digest.numbers(&affixes.after);
        digest.hex()
    }
}

/// Splits a merge at its space. A token may itself start with a space.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge.get(first..)?.find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}

fn is_merge(ids: &HashMap<&str, u32>, left: &str, right: &str) -> bool {
    let joined = [left, right].concat();
    [left, right, &joined].iter().all(|token| ids.contains_key(token))
}
