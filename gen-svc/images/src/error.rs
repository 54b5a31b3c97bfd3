//! What can fail: an image or a prompt of the caller, or a processor's configuration.

use crate::format::Format;

/// An image or prompt is refused. All are errors of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The first bytes are not those of a supported format.
    #[error("image format is unknown: supported are JPEG, PNG, WebP, GIF and BMP")]
    Format,
    /// The encoded image is too long.
    #[error("image has {bytes} bytes, limit {limit}")]
    Bytes { bytes: usize, limit: usize },
    /// The header declares too many pixels.
    #[error("image has {width} x {height} pixels, limit {limit} pixels (--max-image-pixels)")]
    Pixels { width: u64, height: u64, limit: u64 },
    /// The header declares a side that is too long.
    #[error("image has {width} x {height} pixels, limit {limit} for a side")]
    Side { width: u64, height: u64, limit: u64 },
    /// The header declares a side of zero pixels.
    #[error("image has {width} x {height} pixels, each side must have at least 1")]
    Empty { width: u64, height: u64 },
    /// The processor would cut the image into too many parts.
    #[error("image has {tiles} tiles, limit {limit}")]
    Tiles { tiles: usize, limit: usize },
    /// A JPEG file has more scans than any encoder writes. Each scan costs a pass over the image.
    #[error("JPEG image has {scans} scans, limit {limit}")]
    Scans { scans: usize, limit: usize },
    /// The file is damaged, truncated or uses a feature that its decoder lacks.
    #[error("{format} image cannot be decoded: {reason}")]
    Damaged { format: Format, reason: String },
    /// The processor cannot map the image's shape to a grid.
    #[error("image of {width} x {height} pixels has an unsupported aspect ratio: {reason}")]
    AspectRatio { width: usize, height: usize, reason: &'static str },
    /// The tower cannot take the image in the shape that the processor gives it.
    #[error("image of {width} x {height} pixels does not fit the model: {problem}")]
    Unfit { width: usize, height: usize, problem: String },
    /// The rendered prompt and the request differ in their number of images.
    #[error("prompt has {placeholders} placeholders {placeholder:?} for {images} images")]
    Placeholders { placeholder: String, placeholders: usize, images: usize },
}

/// A model's processor cannot be loaded. All are errors of the model's files or their support.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// The files name no processor.
    #[error("image processor is not named: processor_class and model_type are absent")]
    Unnamed,
    /// The named processor is not supported.
    #[error("{key} {name:?} is not supported: supported are {supported}")]
    Unknown { key: &'static str, name: String, supported: String },
    /// A setting has a value that is invalid or not supported.
    #[error("image processor setting {setting:?} is not supported: {value}, expected {expected}")]
    Setting { setting: &'static str, value: String, expected: String },
}
