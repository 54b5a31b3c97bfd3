//! Safetensors files. The header is read at once, and a tensor, which is found by name, on request.
//! Format: <https://github.com/huggingface/safetensors>.
//!
//! A file is untrusted. Every length, offset and shape is checked against the file's size before
//! any allocation. The safetensors crate is not used: it silently keeps the last of two tensors
//! with the same name, and it rejects unknown dtypes.

mod checkpoint;
mod error;
mod file;
mod header;
mod names;
mod view;

pub use checkpoint::Checkpoint;
pub use error::SafetensorsError;
pub use file::Safetensors;
pub use header::{Header, HeaderError};
pub use view::TensorView;
