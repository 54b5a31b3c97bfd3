//! A model's tokens in the form of the grammar library.

use std::collections::HashMap;
use std::sync::Arc;

use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use tandem_model_files::tokenizer::Tokenizer;

/// The byte that starts the name of a special token in the library. No text has it: UTF-8 does not
/// use it.
const SPECIAL: u8 = 0xFF;

/// Returns the bytes of every token below `vocabulary`. Special tokens, which no grammar of text
/// allows, are entered by name; ids without a token are empty.
pub(super) fn words(tokenizer: &Tokenizer, vocabulary: usize) -> Vec<Vec<u8>> {
    (0..vocabulary as u32).map(|id| word(tokenizer, id)).collect()
}

/// Returns the words of special tokens, by id.
pub(super) fn special_words(tokenizer: &Tokenizer, vocabulary: usize) -> HashMap<u32, Vec<u8>> {
    let special = (0..vocabulary as u32).filter(|&id| tokenizer.is_special(id));
    special.map(|id| (id, word(tokenizer, id))).collect()
}

/// Returns the tokens with these words. `None` if `eos` has no token of them, which the library
/// requires.
pub(super) fn environment(words: &[Vec<u8>], eos: &[u32]) -> Option<TokEnv> {
    let eos: Vec<u32> = eos.iter().copied().filter(|&id| (id as usize) < words.len()).collect();
    let first = *eos.first()?;
    let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, first), words).with_eos_tokens(&eos);
    Some(Arc::new(ApproximateTokEnv::new(trie)))
}

fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    match bytes {
        _ if tokenizer.is_special(id) => [&[SPECIAL], bytes].concat(),
        [SPECIAL, _, ..] => Vec::new(),
        _ => bytes.to_vec(),
    }
}
