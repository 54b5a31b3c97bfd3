//! The vocabulary of a GGUF header, as both tokenizer models read it.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use tokenizers::AddedToken;

use crate::gguf::Gguf;
use crate::tokenizer::affixes::Affixes;
use crate::tokenizer::bytes::MAX_IDS;
use crate::tokenizer::error::TokenizerError;

/// Token types, as llama.cpp numbers them.
pub(super) const NORMAL: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;

pub(in crate::tokenizer) struct Built {
    pub(in crate::tokenizer) encoder: tokenizers::Tokenizer,
    pub(in crate::tokenizer) affixes: Affixes,
    pub(in crate::tokenizer) sha256: String,
}

pub(super) fn tokens(gguf: &Gguf) -> Result<&[String], TokenizerError> {
    let tokens: &[String] = gguf.get("tokenizer.ggml.tokens")?;
    match tokens.len() {
        len if len > MAX_IDS => Err(TokenizerError::TooLarge { largest: len - 1, limit: MAX_IDS - 1 }),
        _ => Ok(tokens),
    }
}

pub(super) fn ids<T: AsRef<str>>(tokens: &[T]) -> Result<HashMap<&str, u32>, TokenizerError> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (second, token) in (0..).zip(tokens) {
        if let Some(first) = ids.insert(token.as_ref(), second) {
            return Err(TokenizerError::Duplicate { token: token.as_ref().to_owned(), first, second });
        }
    }
    Ok(ids)
}

pub(super) fn unusable(error: impl Into<tokenizers::Error>) -> TokenizerError {
    TokenizerError::Vocabulary { reason: error.into().to_string() }
}

pub(super) fn added_token(text: &str, is_special: bool) -> AddedToken {
    AddedToken::from(text, is_special).normalized(false)
}

/// The type of every token.
pub(super) struct Kinds(pub(super) Vec<i32>);

impl Kinds {
    /// Reads the types. Tokens that begin or end a turn are control tokens, even if they have
    /// another type.
    pub(super) fn read(gguf: &Gguf, size: usize) -> Result<Self, TokenizerError> {
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

    pub(super) fn ids(&self, wanted: &[i32]) -> Vec<u32> {
        (0..).zip(&self.0).filter(|(_, kind)| wanted.contains(kind)).map(|(id, _)| id).collect()
    }
}

/// A hash over lists.
#[derive(Default)]
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn strings(&mut self, all: &[impl AsRef<str>]) {
        self.0.update((all.len() as u64).to_le_bytes());
        for text in all {
            self.0.update((text.as_ref().len() as u64).to_le_bytes());
            self.0.update(text.as_ref());
        }
    }

    pub(super) fn numbers(&mut self, all: &[u32]) {
        self.0.update((all.len() as u64).to_le_bytes());
        all.iter().for_each(|&number| self.0.update(u64::from(number).to_le_bytes()));
    }

    pub(super) fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
