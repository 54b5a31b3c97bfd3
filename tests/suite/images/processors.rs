//! The processors of all families: their names, their limits, and odd settings compared with transformers
//! (`tests/golden/make_image_architectures.py`).

use serde_json::{Map, Value};
use tandem_core::models::vision::families::{self, FAMILIES};
use tandem_images::{Files, ImageError, ImagePlan, Limits, Processor, ProcessorError, RgbImage};
use tandem_tests::repository;

use super::digest;

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).expect("an object")
}

fn files(processor: &str, preprocessor: &str) -> Files {
    Files { processor: object(processor), preprocessor: object(preprocessor), ..Files::default() }
}

/// Returns the class names of all processors.
fn classes() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.processors).copied()
}

/// Returns the processor's file of a class, with a setting that some of them need.
fn processor_of(class: &str) -> String {
    format!(r#"{{"processor_class": "{class}", "patch_size": 16}}"#)
}

/// Sizes of LLaVA-NeXT. Its class has defaults that do not fit each other.
const PINPOINTS: &str = r#"{"image_grid_pinpoints": [[224, 448], [672, 448]]}"#;

fn values(plan: &ImagePlan) -> usize {
    plan.shape.iter().product()
}

#[test]
fn unknown_classes_are_refused_by_name() {
    let error = families::processor(&files(r#"{"processor_class": "LlavaProcessor"}"#, "{}")).expect_err("unknown");
    assert!(error.to_string().starts_with("processor_class \"LlavaProcessor\" is not supported"), "{error}");
    let files =
        files(r#"{"processor_class": "Gemma3Processor"}"#, r#"{"image_processor_type": "SiglipImageProcessor"}"#);
    let error = families::processor(&files).expect_err("another image processor");
    assert!(error.to_string().starts_with("image_processor_type"), "{error}");
    assert!(matches!(families::processor(&Files::default()), Err(ProcessorError::Unnamed)));
}

#[test]
fn the_suffix_fast_changes_nothing() {
    let with = |suffix: &str| {
        let preprocessor = format!(r#"{{"image_processor_type": "Gemma3ImageProcessor{suffix}"}}"#);
        families::processor(&files(r#"{"processor_class": "Gemma3Processor"}"#, &preprocessor)).expect("known")
    };
    assert_eq!(with("").fingerprint(), with("Fast").fingerprint());
}

#[test]
fn the_model_type_names_a_processor() {
    for name in ["qwen3_vl", "qwen3_5", "qwen3_5_moe"] {
        let files = Files { config: object(&format!(r#"{{"model_type": "{name}"}}"#)), ..Files::default() };
        assert_eq!(families::processor(&files).expect("known").placeholder(), "<|image_pad|>");
    }
}

#[test]
fn every_family_loads_with_defaults_and_prepares_one_pixel() {
    for name in classes() {
        let processor = files(&processor_of(name), PINPOINTS);
        let processor = families::processor(&processor).expect(name);
        let image = RgbImage::new(1, 1, vec![7; 3]).expect("one pixel");
        let prepared = processor.prepare_image(&image).expect(name);
        let tokens = prepared.plan.expansion.text.matches(processor.image_token()).count();
        assert_eq!(tokens, prepared.plan.expansion.tokens, "{name}");
    }
}

/// Sides are rounded to whole patches, so that another ratio may have slightly more.
#[test]
fn no_allowed_image_is_much_larger_than_the_largest() {
    for name in classes() {
        for settings in [PINPOINTS, r#"{"do_resize": false}"#] {
            let files = files(&processor_of(name), settings);
            let Ok(processor) = families::processor(&files) else { continue };
            for (max_pixels, max_tiles) in [(3_000_000, 64), (400_000, 7), (1, 1)] {
                let limits = Limits { max_pixels, max_tiles, ..Limits::default() };
                let largest = processor.largest(&limits, usize::MAX).map_or(0, |image| values(&image.plan));
                let sides =
                    (0..12).map(|power| 1 << power).flat_map(|side| [side, side * 3 / 2]).filter(|side| *side > 0);
                for width in sides.clone() {
                    let heights = sides.clone().filter(|height| (width * height) as u64 <= max_pixels);
                    let plans = heights.filter_map(|height| processor.plan(width, height).ok());
                    let allowed = plans.filter(|plan| plan.tiles() <= max_tiles).map(|plan| values(&plan));
                    let most = allowed.max().unwrap_or(0);
                    assert!(most <= largest + largest / 20, "{name} {settings}, {limits:?}: {most}, {largest}");
                }
            }
        }
    }
}

#[test]
fn an_override_changes_the_fingerprint() {
    let mut files = files(r#"{"processor_class": "Gemma3Processor"}"#, r#"{"do_pan_and_scan": true}"#);
    let plain = families::processor(&files).expect("known");
    assert_eq!(plain.plan(2000, 500).expect("any size").shape[0], 1);
    files.overrides = object(r#"{"do_pan_and_scan": true}"#);
    let cut = families::processor(&files).expect("known");
    assert_eq!(cut.plan(2000, 500).expect("any size").shape[0], 5);
    assert_ne!(plain.fingerprint(), cut.fingerprint());
}

/// Returns the image that the goldens' script makes.
fn picture(width: usize, height: usize) -> RgbImage {
    let sample = |index: usize| {
        let (y, x) = (index / 3 / width, index / 3 % width);
        (3 * x * x + 7 * y + x * y + 85 * (index % 3)) as u8
    };
    RgbImage::new(width, height, (0..width * height * 3).map(sample).collect()).expect("pixels")
}

/// Checks the pixel values of an image, or that the processor refuses it.
#[track_caller]
fn check(processor: &Processor, image: &Value, what: &str) {
    let sides: [usize; 2] = serde_json::from_value(image["sides"].clone()).expect("two sides");
    match processor.prepare_image(&picture(sides[0], sides[1])) {
        Ok(prepared) => {
            let shape: Vec<usize> = serde_json::from_value(image["result"]["shape"].clone()).expect(what);
            assert_eq!(digest(&[&prepared], &shape), image["result"]["sha256"], "{what}");
        }
        Err(ImageError::Unfit { .. }) => assert!(image["result"].is_null(), "{what}"),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn odd_settings_give_the_pixel_values_of_the_image_processors() {
    let mut rows = 0;
    for family in FAMILIES {
        let path = repository().join(format!("tests/golden/image_families/{}.json", family.names[0]));
        let golden: Value = serde_json::from_slice(&std::fs::read(path).expect("a golden")).expect("JSON");
        for row in golden["processors"].as_array().expect("a list") {
            let object = |key: &str| row[key].as_object().expect("an object").clone();
            let files =
                Files { processor: object("processor"), preprocessor: object("preprocessor"), ..Files::default() };
            let processor = families::processor(&files).unwrap_or_else(|error| panic!("{files:?}: {error}"));
            for image in row["images"].as_array().expect("a list") {
                check(&processor, image, &format!("{} {}", row["preprocessor"], image["sides"]));
            }
            rows += 1;
        }
    }
    assert!(rows >= 36, "only {rows} rows of settings");
}

/// Settings with which an image could become very large, or very many tiles.
const HOSTILE: [&str; 8] = [
    r#"{"max_image_size": {"longest_edge": 1}}"#,
    r#"{"size": {"height": 8000, "width": 8000}}"#,
    r#"{"patch_size": 8000}"#,
    r#"{"temporal_patch_size": 1000}"#,
    r#"{"max_pixels": 100000000000}"#,
    r#"{"size": {"longest_edge": 8000}}"#,
    r#"{"size": 4000, "max_patches": 200}"#,
    r#"{"image_grid_pinpoints": [[2240000, 2240000]]}"#,
];

/// Four equal copies of 2^25 pixels.
const MOST_VALUES: usize = (4 * 3) << 25;

#[test]
fn settings_that_need_too_much_memory_are_refused() {
    for settings in HOSTILE {
        let mut refused = 0;
        for name in classes() {
            let processor = match families::processor(&files(&processor_of(name), settings)) {
                Ok(processor) => processor,
                Err(error) => {
                    assert!(matches!(error, ProcessorError::Setting { .. }), "{name} {settings}: {error}");
                    refused += 1;
                    continue;
                }
            };
            let plans = [(1, 1), (5000, 5000), (8000, 50)].map(|(width, height)| processor.plan(width, height));
            let most = plans.into_iter().flatten().map(|plan| values(&plan)).max();
            assert!(most.is_none_or(|most| most <= MOST_VALUES), "{name} {settings}: {most:?}");
        }
        assert!(refused > 0, "no family refuses {settings}");
    }
}
