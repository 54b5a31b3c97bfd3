//! Encoders from GGUF headers, by tokenizer model: `gpt2` is byte-level BPE, `llama` is
//! SentencePiece.
//!
//! The digest is a SHA-256 over lists, which depend on the tokenizer model. A list is its element
//! count followed by its elements; a string is its byte length followed by its bytes; every number
//! is eight bytes, little-endian.

mod byte_level;
mod merges;
mod sentencepiece;

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use tokenizers::AddedToken;

use super::affixes::Affixes;
use super::{MAX_IDS, TokenizerError};
use crate::artifacts::gguf::Gguf;

/// Token types, as llama.cpp numbers them.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

pub(super) struct Built {
    pub(super) encoder: tokenizers::Tokenizer,
    pub(super) affixes: Affixes,
    pub(super) sha256: String,
}

pub(super) fn build(gguf: &Gguf) -> Result<Built, TokenizerError> {
    match gguf.get("tokenizer.ggml.model")? {
        byte_level::MODEL => byte_level::build(gguf),
        sentencepiece::MODEL => sentencepiece::build(gguf),
        found => Err(TokenizerError::Model { found: found.to_owned() }),
    }
}

fn tokens(gguf: &Gguf) -> Result<&[String], TokenizerError> {
    let tokens: &[String] = gguf.get("tokenizer.ggml.tokens")?;
    match tokens.len() {
        len if len > MAX_IDS => Err(TokenizerError::TooLarge { largest: len - 1, limit: MAX_IDS - 1 }),
        _ => Ok(tokens),
    }
}

fn ids<T: AsRef<str>>(tokens: &[T]) -> Result<HashMap<&str, u32>, TokenizerError> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (second, token) in (0..).zip(tokens) {
        if let Some(first) = ids.insert(token.as_ref(), second) {
            return Err(TokenizerError::Duplicate { token: token.as_ref().to_owned(), first, second });
        }
    }
    Ok(ids)
}

fn unusable(error: impl Into<tokenizers::Error>) -> TokenizerError {
    TokenizerError::Vocabulary { reason: error.into().to_string() }
}

fn added_token(text: &str, is_special: bool) -> AddedToken {
    AddedToken::from(text, is_special).normalized(false)
}

/// The type of every token.
struct Kinds(Vec<i32>);

impl Kinds {
    /// Reads the types. Tokens that begin or end a turn are control tokens, even if they have
    /// another type.
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

    fn ids(&self, wanted: &[i32]) -> Vec<u32> {
        (0..).zip(&self.0).filter(|(_, kind)| wanted.contains(kind)).map(|(id, _)| id).collect()
    }
}

/// A hash over lists.
#[derive(Default)]
struct Digest(Sha256);

impl Digest {
    fn strings(&mut self, all: &[impl AsRef<str>]) {
        self.0.update((all.len() as u64).to_le_bytes());
        for text in all {
            self.0.update((text.as_ref().len() as u64).to_le_bytes());
            self.0.update(text.as_ref());
        }
    }

    fn numbers(&mut self, all: &[u32]) {
        self.0.update((all.len() as u64).to_le_bytes());
        all.iter().for_each(|&number| self.0.update(u64::from(number).to_le_bytes()));
    }

    fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
