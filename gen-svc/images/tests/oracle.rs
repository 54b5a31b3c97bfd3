//! Comparison with transformers: decoded images, pixel tensors, fields and token ids of every
//! golden conversation. The goldens are no part of the repository: `TANDEM_VISION_ORACLE` names
//! their folder, by default `../shared/vision` beside the repository. Without it, the tests pass
//! and print so.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tandem_images::{Files, Layout, Limits, PixelBatch, Prepared, Processor, RgbImage, decode};
use tokenizers::Tokenizer;

/// Returns the folder of the goldens, or prints that it does not exist.
fn oracle() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vision");
    let folder = env::var_os("TANDEM_VISION_ORACLE").map_or_else(default, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: folder {} does not exist (TANDEM_VISION_ORACLE)", folder.display());
    None
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn sha256(bytes: impl IntoIterator<Item = u8>) -> String {
    let bytes: Vec<u8> = bytes.into_iter().collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn image(folder: &Path, file: &str) -> RgbImage {
    decode(&fs::read(folder.join("images").join(file)).unwrap(), &Limits::default()).unwrap()
}

/// Returns the files of a conversation's images.
fn image_files(case: &Value) -> Vec<&str> {
    let messages = case["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    blocks.filter_map(|block| block["image_file"].as_str()).collect()
}

/// Returns the goldens' files by family.
fn families(folder: &Path) -> BTreeMap<String, Value> {
    let files = fs::read_dir(folder.join("goldens")).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let goldens = files.map(|path| (name(&path), json(&path)));
    goldens.filter(|(_, golden)| golden.get("cases").is_some()).collect()
}

#[test]
fn every_image_is_decoded_as_by_the_goldens_loader() {
    let Some(folder) = oracle() else { return };
    let images = json(&folder.join("goldens/images.json"));
    for (file, golden) in images.as_object().unwrap() {
        let loader = if golden["golden_loader"] == "pil" { "pil_rgb" } else { "default" };
        let decoded = image(&folder, file);
        assert_eq!(golden[loader]["sha256_rgb_hwc"], sha256(decoded.bytes().to_vec()), "{file}");
        assert_eq!(golden[loader]["width"], decoded.width(), "{file}");
    }
    println!("{} images equal", images.as_object().unwrap().len());
}

#[test]
fn every_conversation_has_the_goldens_tensors_fields_and_ids() {
    let Some(folder) = oracle() else { return };
    let (mut tensors, mut prompts) = (0, 0);
    for (family, golden) in families(&folder) {
        let model = folder.join("models").join(&family);
        let tokenizer = Tokenizer::from_file(model.join("tokenizer.json")).unwrap();
        for (name, case) in golden["cases"].as_object().unwrap() {
            let name = format!("{family} {name}");
            tensors += check_case(&folder, &model, &tokenizer, case, &name);
            prompts += 1;
        }
    }
    println!("{tensors} pixel tensors and {prompts} prompts equal");
    assert!(prompts > 0);
}

/// Returns how many pixel tensors were compared.
fn check_case(folder: &Path, model: &Path, tokenizer: &Tokenizer, case: &Value, name: &str) -> usize {
    let read =
        |file: &str| std::fs::read(model.join(file)).ok().map(|bytes| serde_json::from_slice(&bytes)).transpose();
    let mut files = Files::read(read).unwrap();
    if let Some(overrides) = case.pointer("/processor_kwargs/images_kwargs") {
        files.overrides = overrides.as_object().unwrap().clone();
    }
    let processor = Processor::new(&files).unwrap();
    let images: Vec<RgbImage> = image_files(case).into_iter().map(|file| image(folder, file)).collect();
    let prepared = processor.prepare(&images).unwrap();
    let prompt = case["prompt"].as_str().unwrap();
    let expanded = prepared.expand(prompt).unwrap();
    let ids = tokenizer.encode(expanded.text, false).unwrap().get_ids().to_vec();
    assert_eq!(case["input_ids"], Value::from(ids), "{name}");
    let parts: Vec<_> = prepared.images.iter().map(|image| &**image).collect();
    let Some(batch) = processor.join(&parts) else { return 0 };
    check_tensor(&case["pixel_tensors"]["pixel_values"], &batch, name);
    check_fields(&case["fields"], &prepared, &batch, name);
    1
}

fn check_tensor(golden: &Value, batch: &PixelBatch, name: &str) {
    assert_eq!(golden["shape"], Value::from(batch.shape.clone()), "{name}");
    let digest = sha256(batch.pixels.iter().flat_map(|value| value.to_le_bytes()));
    assert_eq!(golden["sha256_f32le"], digest, "{name}");
}

fn check_fields(golden: &Value, prepared: &Prepared, batch: &PixelBatch, name: &str) {
    if let Some(positions) = golden.get("image_position_ids") {
        let digest = sha256(batch.positions.iter().flatten().flat_map(|position| position.to_le_bytes()));
        assert_eq!(positions["sha256_i64le"], digest, "{name}");
    }
    for (field, value) in [
        ("image_grid_thw", per_image(prepared, grid)),
        ("image_sizes", per_image(prepared, size)),
        ("num_soft_tokens_per_image", per_image(prepared, |_, tokens| tokens.into())),
        ("num_crops", per_image(prepared, crops)),
    ] {
        if let Some(expected) = golden.get(field) {
            assert_eq!(*expected, value, "{name} {field}");
        }
    }
}

fn per_image(prepared: &Prepared, field: fn(&Layout, usize) -> Value) -> Value {
    let plans = prepared.images.iter().map(|image| &image.plan);
    plans.map(|plan| field(&plan.layout, plan.expansion.tokens)).collect()
}

fn grid(layout: &Layout, _: usize) -> Value {
    match layout {
        Layout::Grid { time, rows, columns } => Value::from(vec![*time, *rows, *columns]),
        _ => Value::Null,
    }
}

fn size(layout: &Layout, _: usize) -> Value {
    match layout {
        Layout::Whole { height, width } => Value::from(vec![*height, *width]),
        _ => Value::Null,
    }
}

fn crops(layout: &Layout, _: usize) -> Value {
    match layout {
        Layout::Crops { crops } => Value::from(*crops),
        _ => Value::Null,
    }
}
