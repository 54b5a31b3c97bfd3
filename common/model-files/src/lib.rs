//! Model files: Hugging Face folders, GGUF ([`gguf`]) and safetensors ([`artifacts`]), and their
//! tokenizers ([`tokenizer`]).

pub mod artifacts;
mod cancel;
pub mod digest;
mod excerpt;
pub mod gguf;
mod python_json;
mod source_file;
pub mod tokenizer;
pub mod utf8;

pub use excerpt::{Excerpt, excerpt, shown};
pub use source_file::FileBytes;
