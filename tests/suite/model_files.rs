//! Model files: Hugging Face folders, GGUF and safetensors.

mod artifacts;
mod gguf;
mod gguf_parts;
mod safetensors;
