//! Images of vision-language models: decoding ([`decode`]), preparation as the model's processor
//! in transformers does it ([`Processor`]), and the text that replaces a placeholder ([`expand`]).
//!
//! Images are untrusted. Limits are checked on an image's header, before its pixels are decoded.
//! The same bytes and settings always produce the same bits.

mod arrange;
mod cache;
mod decode;
mod decoding;
mod error;
mod expand;
mod format;
mod image;
mod parallel;
mod prepared;
mod processor;
mod processors;
mod recipe;
mod resize;
mod settings;
mod spare;
mod values;

pub use cache::PreparedCache;
pub use decode::{Limits, decode};
pub use error::{ImageError, ProcessorError};
pub use expand::{Expanded, expand, expand_outside};
pub use format::{Format, sniff};
pub use image::RgbImage;
pub use prepared::{Expansion, ImagePlan, Layout, PixelBatch, Prepared, PreparedImage};
pub use processor::{Files, Processor};
pub use resize::{Filter, resize};
