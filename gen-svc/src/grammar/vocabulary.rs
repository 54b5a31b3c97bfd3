//! A model's tokens as the grammar library wants them.

use std::sync::Arc;

use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use tandem_model_files::tokenizer::Tokenizer;

/// What the library takes for the start of a special token's name. No text starts so, for it is in no UTF-8.
const SPECIAL: u8 = 0xFF;

/// The bytes of every token below `vocabulary`. Special tokens, which no grammar of text allows, are there by name; what the
/// tokenizer does not know is not there. None where there is no eos, which the library cannot do without.
pub(super) fn environment(tokenizer: &Tokenizer, vocabulary: usize, eos: &[u32]) -> Option<TokEnv> {
    let words: Vec<Vec<u8>> = (0..vocabulary as u32).map(|id| word(tokenizer, id)).collect();
    let eos: Vec<u32> = eos.iter().copied().filter(|&id| (id as usize) < vocabulary).collect();
    let first = *eos.first()?;
    let trie = TokTrie::from(&TokRxInfo::new(vocabulary as u32, first), &words).with_eos_tokens(&eos);
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
