//! Model files: Hugging Face folders, GGUF and safetensors ([`artifacts`]), and their tokenizers
//! ([`tokenizer`]).

pub mod artifacts;
pub mod digest;
pub mod tokenizer;
