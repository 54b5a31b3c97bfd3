//! Prepared images by the digest of their bytes.

use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::decode::Limits;
use crate::decoding::Decoding;
use crate::error::ImageError;
use crate::prepared::PreparedImage;
use crate::processor::Processor;

/// The memory of an entry in addition to its pixels and its text.
const OVERHEAD_BYTES: u64 = 256;

/// About the size of an entry, from which the number of entries is estimated.
const ENTRY_BYTES: u64 = 1 << 20;

/// SHA-256 of the processor's fingerprint and the image's bytes.
type Key = [u8; 32];

/// Prepared images, bounded in bytes. The least used are evicted.
#[derive(Debug)]
pub struct PreparedCache {
    images: Cache<Key, Arc<PreparedImage>, Weight>,
    decoding: Decoding,
}

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Key, Arc<PreparedImage>> for Weight {
    fn weight(&self, _: &Key, image: &Arc<PreparedImage>) -> u64 {
        let places = image.plan.order.as_ref().map_or(0, |order| size_of_val(order.places.as_slice()));
        (image.bytes.len() + image.plan.expansion.text.len() + places) as u64 + OVERHEAD_BYTES
    }
}

impl PreparedCache {
    /// Returns an empty cache. With zero bytes, nothing is kept.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        let entries = usize::try_from(max_bytes / ENTRY_BYTES).unwrap_or(usize::MAX).max(1);
        let options = OptionsBuilder::new()
            .shards(1)
            .weight_capacity(max_bytes)
            .estimated_items_capacity(entries)
            .build()
            .expect("all options are set");
        let images = Cache::with_options(options, Weight, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { images, decoding: Decoding::default() }
    }

    /// Decodes and prepares an image, or returns it from the cache, with its digest of
    /// [`Processor::digest`]. A second call with the same image waits for the first, and a large image for
    /// other large ones that are being decoded. Errors are not kept.
    pub fn prepare(
        &self,
        processor: &Processor,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<(Arc<PreparedImage>, [u8; 32]), ImageError> {
        if bytes.len() > limits.max_bytes {
            return Err(ImageError::Bytes { bytes: bytes.len(), limit: limits.max_bytes });
        }
        let key: Key = processor.digest(bytes);
        let prepare = || processor.prepare_encoded(bytes, limits, &self.decoding).map(Arc::new);
        Ok((self.images.get_or_insert_with(&key, prepare)?, key))
    }

    /// Returns the bytes of all kept images.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.images.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{CHANNELS, RgbImage};
    use crate::prepared::{Expansion, ImagePlan, Layout};
    use crate::recipe::{Basics, HALF, Recipe, ValueTable};
    use crate::resize::{Filter, resize};

    /// Stretches an image to a square of this side. Each of its rows is a tile.
    #[derive(Debug)]
    struct Square(usize, Basics);

    impl Recipe for Square {
        fn basics(&self) -> &Basics {
            &self.1
        }

        fn plan(&self, _: usize, _: usize) -> Result<ImagePlan, ImageError> {
            let shape = vec![self.0, self.0, CHANNELS];
            Ok(ImagePlan::new(shape, Layout::Tiles, Expansion::new("", "i", 1, "")))
        }

        fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
            Ok(resize(image, self.0, self.0, Filter::Bilinear).bytes().to_vec())
        }
    }

    fn processor(side: usize) -> Processor {
        let basics = Basics {
            resizes: true,
            filter: Filter::Bilinear,
            values: Arc::new(ValueTable::new(1.0, Some(HALF))),
            placeholder: "i".to_owned(),
            image_token: "i".to_owned(),
        };
        Processor::new(Box::new(Square(side, basics)))
    }

    /// A BMP file of one pixel.
    fn bmp(blue: u8) -> Vec<u8> {
        let mut bytes = b"BM".to_vec();
        bytes.extend([58, 0, 54, 40, 1, 1, 1 | 24 << 16, 0, 4, 0, 0, 0, 0].map(u32::to_le_bytes).concat());
        bytes.extend([blue, 0, 0, 0]);
        bytes
    }

    #[test]
    fn the_same_image_is_prepared_once_per_processor() {
        let (cache, limits) = (PreparedCache::new(1 << 20), Limits::default());
        let prepare = |size, blue| cache.prepare(&processor(size), &bmp(blue), &limits).expect("an image").0;
        assert!(Arc::ptr_eq(&prepare(8, 1), &prepare(8, 1)));
        assert!(!Arc::ptr_eq(&prepare(8, 1), &prepare(9, 1)));
        assert_ne!(prepare(8, 1), prepare(8, 2));
    }

    #[test]
    fn the_bytes_are_bounded() {
        let (cache, limits) = (PreparedCache::new(100_000), Limits::default());
        for blue in 0..100 {
            cache.prepare(&processor(64), &bmp(blue), &limits).expect("an image");
            assert!(cache.bytes() <= 100_000);
        }
        assert!(cache.bytes() > 0);
    }

    /// The file ends after its header: an error of the pixels would be another one.
    #[test]
    fn tiles_are_counted_before_pixels_are_decoded() {
        let prepare = |max_tiles| {
            let limits = Limits { max_tiles, ..Limits::default() };
            PreparedCache::new(0).prepare(&processor(8), &bmp(0)[..54], &limits).expect_err("a header")
        };
        assert_eq!(prepare(7), ImageError::Tiles { tiles: 8, limit: 7 });
        assert!(matches!(prepare(8), ImageError::Damaged { .. }));
    }

    #[test]
    fn errors_are_not_kept() {
        let cache = PreparedCache::new(1 << 20);
        let none = Limits { max_bytes: 1, ..Limits::default() };
        assert!(cache.prepare(&processor(8), &bmp(0), &none).is_err());
        assert!(cache.prepare(&processor(8), &bmp(0), &Limits::default()).is_ok());
    }
}
