//! Prepares an image by arbitrary settings. The first line of the bytes is the JSON text of
//! `preprocessor_config.json`, the second that of `processor_config.json`; the rest is an image file,
//! or else the bytes of an image.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use tandem_core::models::vision::families;
use tandem_images::{Files, Limits, RgbImage, decode, expand};

/// The most values of a prepared image. Larger ones take long, and test nothing more.
const MAX_VALUES: usize = 4 << 20;
const LIMITS: Limits = Limits { max_bytes: 1 << 20, max_pixels: 1 << 16, max_tiles: 1 };

fn object(text: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(text).unwrap_or_default()
}

/// Returns the decoded file, or an image of the bytes: the first is the width.
fn image(bytes: &[u8]) -> Option<RgbImage> {
    if let Ok(image) = decode(bytes, &LIMITS) {
        return Some(image);
    }
    let (width, bytes) = bytes.split_first()?;
    let row = usize::from(*width) * 3;
    let height = bytes.len().checked_div(row)?;
    RgbImage::new(usize::from(*width), height, bytes[..row * height].to_vec())
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let [preprocessor, processor, file] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let files = Files { preprocessor: object(preprocessor), processor: object(processor), ..Files::default() };
    let Ok(model) = families::processor(&files) else { return };
    let Some(image) = image(file) else { return };
    let Ok(plan) = model.plan(image.width(), image.height()) else { return };
    if plan.shape.iter().product::<usize>() > MAX_VALUES {
        return;
    }
    let prepared = model.prepare_image(&image).expect("a planned image");
    assert_eq!(prepared.pixels().len(), prepared.plan.shape.iter().product::<usize>());
    let expansions = [prepared.plan.expansion.text.as_str()];
    let _ = expand(&format!("a{}b", model.placeholder()), model.placeholder(), &expansions);
});
