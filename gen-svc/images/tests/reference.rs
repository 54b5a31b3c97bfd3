//! Odd files, compared with transformers' loader (`tests/golden/make_image_processors.py`).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tandem_images::{ImageError, Limits, decode};

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
