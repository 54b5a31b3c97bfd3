//! The errors of tokenizers.

use std::path::PathBuf;

use crate::excerpt::{excerpt, shown};
use crate::gguf::GgufError;

/// Why a tokenizer could not be built, or could not encode or decode.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// `tokenizer.json` cannot be read.
    #[error("cannot read {}", shown(path))]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The folder has no `tokenizer.json`.
    #[error(
        "{} does not exist; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers makes it",
        shown(path)
    )]
    Absent { path: PathBuf },
    /// `tokenizer.json` is invalid.
    #[error("invalid tokenizer.json: {}", excerpt(reason))]
    Json { reason: String },
    /// The encoder could not be built from a GGUF's vocabulary.
    #[error("invalid vocabulary in GGUF: {reason}")]
    Vocabulary { reason: String },
    /// A tokenizer key of the GGUF header is missing or has the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The GGUF's tokenizer model is not supported.
    #[error("unsupported tokenizer model {found:?} in GGUF; supported are \"gpt2\" and \"llama\"")]
    Model { found: String },
    /// The GGUF's pre-tokenizer is not supported. With another pre-tokenizer, the same text would
    /// have other ids.
    #[error("unsupported pre-tokenizer {found:?} in GGUF; supported are {known}")]
    PreTokenizer { found: String, known: String },
    /// A merge is not a pair of tokens whose join is a token.
    #[error("merge {index} {merge:?} does not join two tokens of the vocabulary into a third")]
    Merge { index: usize, merge: String },
    /// Two ids have the same text.
    #[error("token {token:?} is in the vocabulary twice, as {first} and {second}")]
    Duplicate { token: String, first: u32, second: u32 },
    /// The lists of tokens and of their types differ in length.
    #[error("{tokens} tokens have {types} token types")]
    TypeCount { tokens: usize, types: usize },
    /// The lists of tokens and of their scores differ in length.
    #[error("{tokens} tokens have {scores} scores in tokenizer.ggml.scores")]
    ScoreCount { tokens: usize, scores: usize },
    /// A score is not finite, so merges cannot be ordered by it.
    #[error("score {index} in tokenizer.ggml.scores is {found}, expected a finite number")]
    Score { index: usize, found: f32 },
    /// The vocabulary has too many merges.
    #[error("the merges of tokenizer.ggml.tokens need more than {limit} bytes")]
    Merges { limit: usize },
    /// The GGUF has a setting that is not supported for its tokenizer model.
    #[error("unsupported key {key:?} in GGUF for tokenizer model {model:?}")]
    Unsupported { key: String, model: &'static str },
    /// An id exceeds the limit.
    #[error("vocabulary has id {largest}, limit {limit}")]
    TooLarge { largest: usize, limit: usize },
    /// The files of a folder add too many tokens.
    #[error("the folder adds {count} tokens with {bytes} bytes of text, limits {max_count} and {max_bytes}")]
    AddedTokens { count: usize, max_count: usize, bytes: usize, max_bytes: usize },
    /// The decoder of `tokenizer.json` is not supported.
    #[error("unsupported decoder {found:?}")]
    Decoder { found: String },
    /// The post-processor of `tokenizer.json` is not supported.
    #[error("unsupported post-processor {found:?}")]
    PostProcessor { found: String },
    /// A literal range is outside of the text, splits a character or is out of order.
    #[error(
        "literal range {start}..{end} is out of order or not a range of whole characters in a text of {length} bytes"
    )]
    Literal { start: usize, end: usize, length: usize },
    /// The text is too long for the classic encoder, which computes offsets and supports all
    /// tokenizers.
    #[error("text has {bytes} bytes, limit {limit} with offsets or for this model's tokenizer")]
    TooLong { bytes: usize, limit: usize },
    /// The text of the ids is too long.
    #[error("text of these token ids has more than {limit} bytes")]
    DecodedTooLong { limit: usize },
    /// The caller of the work has gone.
    #[error("cancelled")]
    Cancelled,
    /// The encoder failed.
    #[error("cannot encode text: {reason}")]
    Encode { reason: String },
    /// The decoder failed.
    #[error("cannot decode token ids: {reason}")]
    Decode { reason: String },
    /// An id is outside of the vocabulary.
    #[error("token id {id} is not in the vocabulary of {size} tokens")]
    UnknownId { id: u32, size: usize },
}

/// Returns the error for a failed encoder.
pub(super) fn encode_error(error: impl Into<tokenizers::Error>) -> TokenizerError {
    TokenizerError::Encode { reason: error.into().to_string() }
}
