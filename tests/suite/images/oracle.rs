//! Comparison with the vision oracle: decoded images, pixel tensors, fields and token ids of every
//! conversation. It is no part of the repository: `TANDEM_VISION_ORACLE` names its folder, by default
//! `../shared/vision` beside the repository. Without it, the tests are skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;
use tandem_core::models::vision::families;
use tandem_images::{Files, Layout, Limits, Prepared, RgbImage, decode};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::tokenizer::Tokenizer;
use tandem_tests::repository;

use super::digest;

/// Returns the folder of the oracle, or prints that it does not exist.
fn oracle() -> Option<PathBuf> {
    let default = || repository().join("../shared/vision");
    let folder = env::var_os("TANDEM_VISION_ORACLE").map_or_else(default, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: folder {} does not exist (TANDEM_VISION_ORACLE)", folder.display());
    None
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the oracle")).expect("the oracle")
}

fn image(folder: &Path, file: &str) -> RgbImage {
    decode(&fs::read(folder.join("images").join(file)).expect("the oracle"), &Limits::default()).expect("the oracle")
}

/// Returns the files of a conversation's images.
fn image_files(case: &Value) -> Vec<&str> {
    let messages = case["messages"].as_array().expect("the oracle").iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().expect("the oracle"));
    blocks.filter_map(|block| block["image_file"].as_str()).collect()
}

/// Returns the goldens' files by family.
fn families(folder: &Path) -> BTreeMap<String, Value> {
    let files =
        fs::read_dir(folder.join("goldens")).expect("the oracle").map(|entry| entry.expect("the oracle").path());
    let name = |path: &PathBuf| path.file_stem().expect("the oracle").to_str().expect("the oracle").to_owned();
    let goldens = files.map(|path| (name(&path), json(&path)));
    goldens.filter(|(_, golden)| golden.get("cases").is_some()).collect()
}

#[test]
fn every_image_is_decoded_as_by_the_goldens_loader() {
    let Some(folder) = oracle() else { return };
    let images = json(&folder.join("goldens/images.json"));
    for (file, golden) in images.as_object().expect("the oracle") {
        let loader = if golden["golden_loader"] == "pil" { "pil_rgb" } else { "default" };
        let decoded = image(&folder, file);
        assert_eq!(golden[loader]["sha256_rgb_hwc"], hex_sha256(decoded.bytes()), "{file}");
        assert_eq!(golden[loader]["width"], decoded.width(), "{file}");
    }
    eprintln!("{} images equal", images.as_object().expect("the oracle").len());
}

#[test]
fn every_conversation_has_the_goldens_tensors_fields_and_ids() {
    let Some(folder) = oracle() else { return };
    let (mut tensors, mut prompts) = (0, 0);
    for (family, golden) in families(&folder) {
        let model = folder.join("models").join(&family);
        let tokenizer = Artifacts::load(&model).expect("a folder").tokenizer().expect("a tokenizer");
        for (name, case) in golden["cases"].as_object().expect("the oracle") {
            let name = format!("{family} {name}");
            tensors += check_case(&folder, &model, &tokenizer, case, &name);
            prompts += 1;
        }
    }
    eprintln!("{tensors} pixel tensors and {prompts} prompts equal");
    assert!(prompts > 0);
}

/// Returns how many pixel tensors were compared.
fn check_case(folder: &Path, model: &Path, tokenizer: &Tokenizer, case: &Value, name: &str) -> usize {
    let read = |file: &str| fs::read(model.join(file)).ok().map(|bytes| serde_json::from_slice(&bytes)).transpose();
    let mut files = Files::read(read).expect("the files");
    if let Some(overrides) = case.pointer("/processor_kwargs/images_kwargs") {
        files.overrides = overrides.as_object().expect("an object").clone();
    }
    let processor = families::processor(&files).expect(name);
    let images: Vec<RgbImage> = image_files(case).into_iter().map(|file| image(folder, file)).collect();
    let prepared = processor.prepare(&images).expect(name);
    let expanded = prepared.expand(case["prompt"].as_str().expect("a prompt")).expect(name);
    assert_eq!(case["input_ids"], Value::from(tokenizer.encode(&expanded.text, false).expect(name)), "{name}");
    let parts: Vec<_> = prepared.images.iter().map(|image| &**image).collect();
    if parts.is_empty() {
        return 0;
    }
    let golden = &case["pixel_tensors"]["pixel_values"];
    let shape: Vec<usize> = serde_json::from_value(golden["shape"].clone()).expect("a shape");
    assert_eq!(golden["sha256_f32le"], digest(&parts, &shape), "{name}");
    check_fields(&case["fields"], &prepared, name);
    1
}

fn check_fields(golden: &Value, prepared: &Prepared, name: &str) {
    for (field, value) in [
        ("image_grid_thw", per_image(prepared, grid)),
        ("image_sizes", per_image(prepared, size)),
        ("num_soft_tokens_per_image", per_image(prepared, |_, tokens| tokens.into())),
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
