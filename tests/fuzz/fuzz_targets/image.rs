//! Decodes arbitrary bytes as an image.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_images::{Limits, decode};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { max_bytes: 1 << 20, max_pixels: 1 << 20, max_tiles: 1 };
    if let Ok(image) = decode(bytes, &limits) {
        assert!((image.width() * image.height()) as u64 <= limits.max_pixels);
    }
});
