//! Model files: Hugging Face folders, GGUF ([`gguf`]) and safetensors ([`artifacts`]), and their
//! tokenizers ([`tokenizer`]).

pub mod artifacts;
pub mod digest;
pub mod gguf;
mod python_json;
mod source_file;
pub mod tokenizer;

pub use source_file::FileBytes;
