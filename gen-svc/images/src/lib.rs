//! Images of vision-language models: decoding ([`decode`]), the parts that the preparation of a family
//! is made of ([`recipe`]), and the text that replaces a placeholder ([`expand`]).
//!
//! Images are untrusted. Limits are checked on an image's header, before its pixels are decoded.
//! The same bytes and settings always produce the same bits.

mod arrange;
mod cache;
mod decode;
mod decoding;
mod error;
mod expand;
mod files;
mod format;
mod image;
mod parallel;
mod prepared;
mod processor;
pub mod recipe;
mod resize;
mod settings;
mod spare;
mod values;

pub use cache::PreparedCache;
pub use decode::{Limits, decode};
pub use error::{ImageError, ProcessorError};
pub use expand::{Expanded, expand, expand_outside};
pub use files::Files;
pub use format::{Format, sniff};
pub use image::RgbImage;
pub use prepared::{Expansion, ImagePlan, Layout, Order, Prepared, PreparedImage};
pub use processor::Processor;
pub use resize::{Filter, resize};
