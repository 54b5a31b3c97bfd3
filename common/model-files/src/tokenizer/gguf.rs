//! Encoders from GGUF headers, by tokenizer model: `gpt2` is byte-level BPE, `llama` is
//! SentencePiece.
//!
//! The digest is a SHA-256 of lists. The tokenizer model determines the lists. A list is its
//! element count followed by its elements. A string is its byte length followed by its bytes. Every
//! number is eight bytes, little-endian.

mod byte_level;
mod merges;
mod sentencepiece;
mod vocabulary;

use super::error::TokenizerError;
use crate::gguf::Gguf;
use vocabulary::Built;

pub(super) fn build(gguf: &Gguf) -> Result<Built, TokenizerError> {
    match gguf.get("tokenizer.ggml.model")? {
        byte_level::MODEL => byte_level::build(gguf),
        sentencepiece::MODEL => sentencepiece::build(gguf),
        found => Err(TokenizerError::Model { found: found.to_owned() }),
    }
}
