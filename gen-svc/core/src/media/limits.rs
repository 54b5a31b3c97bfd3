//! Limits of images.

use tandem_images::Limits as ImageLimits;

/// The limits of the images of a request.
#[derive(Debug, Clone, Copy)]
pub struct MediaLimits {
    /// The most images of a request.
    pub images: usize,
    /// The limits of one image.
    pub image: ImageLimits,
    /// The bytes of prepared images of all requests. A quarter as many more are kept for later requests.
    pub memory_bytes: usize,
}

impl Default for MediaLimits {
    fn default() -> Self {
        Self { images: 64, image: ImageLimits::default(), memory_bytes: 1 << 30 }
    }
}
