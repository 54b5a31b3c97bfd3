//! Tokenizers: text to token ids and back.

mod encoders;
mod sentencepiece;
mod vocabulary;
mod well_known;
