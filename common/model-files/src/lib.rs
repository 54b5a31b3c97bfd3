//! Model files: Hugging Face folders, GGUF ([`gguf`]) and safetensors ([`artifacts`]), and their
//! tokenizers ([`tokenizer`]).

pub mod artifacts;
pub mod digest;
pub mod gguf;
mod map;
pub mod tokenizer;
