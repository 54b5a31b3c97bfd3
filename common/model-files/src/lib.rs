//! Model files: Hugging Face folders, GGUF and safetensors ([`artifacts`]), and the tokenizers in them ([`tokenizer`]).

pub mod artifacts;
pub mod digest;
pub mod tokenizer;
