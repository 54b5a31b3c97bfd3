//! Odd files and odd settings, compared with transformers' loader and image processors
//! (`tests/golden/make_image_processors.py`).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tandem_images::{Files, ImageError, Limits, Processor, RgbImage, decode};

fn golden(part: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/image_processors.json");
    let golden: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    golden[part].as_array().unwrap().clone()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn odd_files_are_decoded_or_refused_as_by_the_default_loader() {
    let files = golden("files");
    for file in &files {
        let data = BASE64_STANDARD.decode(file["data"].as_str().unwrap()).unwrap();
        let found = match decode(&data, &Limits::default()) {
            Ok(image) => {
                json!({"width": image.width(), "height": image.height(), "sha256": sha256(image.bytes())})
            }
            Err(ImageError::Damaged { .. }) => Value::Null,
            Err(error) => panic!("{}: {error}", file["name"]),
        };
        // libjpeg-turbo decodes some damaged files differently without vector instructions.
        if file.get("portable") != Some(&found) {
            assert_eq!(found, file["result"], "{}", file["name"]);
        }
    }
    assert_eq!(files.len(), 78);
}

/// Returns the image that the goldens' script makes.
fn picture(width: usize, height: usize) -> RgbImage {
    let sample = |index: usize| {
        let (y, x) = (index / 3 / width, index / 3 % width);
        (3 * x * x + 7 * y + x * y + 85 * (index % 3)) as u8
    };
    RgbImage::new(width, height, (0..width * height * 3).map(sample).collect()).unwrap()
}

/// Returns the shape and the digest of the pixel values, or null if the processor refuses the image.
fn prepared(processor: &Processor, sides: &Value, what: &str) -> Value {
    let [width, height] = [0, 1].map(|at| sides[at].as_u64().unwrap() as usize);
    match processor.prepare_image(&picture(width, height)) {
        Ok(image) => {
            let batch = processor.join(&[&image]).unwrap();
            let bytes: Vec<u8> = batch.pixels.iter().flat_map(|value| value.to_le_bytes()).collect();
            json!({"shape": batch.shape, "sha256": sha256(&bytes)})
        }
        Err(ImageError::Unfit { .. }) => Value::Null,
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn odd_settings_give_the_pixel_values_of_the_image_processors() {
    let rows = golden("processors");
    for row in &rows {
        let object = |key: &str| row[key].as_object().unwrap().clone();
        let files = Files { processor: object("processor"), preprocessor: object("preprocessor"), ..Files::default() };
        let processor = Processor::new(&files).unwrap_or_else(|error| panic!("{}: {error}", row["preprocessor"]));
        for image in row["images"].as_array().unwrap() {
            let what = format!("{} {}", row["preprocessor"], image["sides"]);
            assert_eq!(prepared(&processor, &image["sides"], &what), image["result"], "{what}");
        }
    }
    assert_eq!(rows.len(), 36);
}
