//! Memory-mapped safetensors files: tensors by name, in the file's own bytes. Format:
//! <https://github.com/huggingface/safetensors>.
//!
//! A file is untrusted. Every length, offset and shape is checked against the file's size before
//! any allocation. The reader is not the safetensors crate's, which silently keeps the last of two
//! tensors with the same name and rejects unknown dtypes.

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
