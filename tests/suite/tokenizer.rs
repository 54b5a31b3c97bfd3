//! Tokenizers: text to token ids and back.

mod encoders;
mod folder;
mod pre_tokenizers;
mod sentencepiece;
mod vocabulary;
mod well_known;
