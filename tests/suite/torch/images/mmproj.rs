//! Models with images in two GGUF files: the answers of their Hugging Face folders, and the choice of
//! the second file.

mod llama_cpp;
mod refused;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tandem_core::engine::Engine;
use tandem_core::models::{self, Features};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::gguf_pair::{Entry, MMPROJ, MODEL, Pair};
use tandem_tests_full::image_checkpoint::Goldens;
use tandem_tests_full::vision_oracle;
use tandem_torch::{TorchTarget, TorchTower};
use tempfile::TempDir;

use super::{Case, ask, finish, for_each, image, prepare, request, requests, start, submit, text, user};

/// Calls `check` with each model's name, its folder, and its two files.
fn for_each_pair(check: impl Fn(&str, &Path, Pair)) {
    for_each(|name, folder| check(name, folder, Pair::of(folder)));
}

/// Checks that the files have the answers of another model to all conversations.
#[track_caller]
fn has_answers_of(pair: &Pair, expected: &Engine, what: &str) {
    has_answers(pair, expected, usize::MAX, what);
}

/// Checks that the files have the answers of another model to the first `count` conversations.
#[track_caller]
fn has_answers(pair: &Pair, expected: &Engine, count: usize, what: &str) {
    let folder = pair.folder();
    let engine = start(folder.path(), |_| {});
    for (i, request) in requests().into_iter().take(count).enumerate() {
        let what = format!("{what}, conversation {i}");
        assert_eq!(prepare(&engine, request.clone()).ids, prepare(expected, request.clone()).ids, "{what}: prompt");
        ask(&engine, request.clone()).is_same(&ask(expected, request), &what);
    }
}

#[test]
fn two_gguf_files_have_the_answers_of_their_folder() {
    for_each_pair(|name, folder, pair| has_answers_of(&pair, &start(folder, |_| {}), name));
}

/// Returns the files of Qwen 3.5, whose projector is that of Qwen3-VL, and their folder.
fn qwen3_5() -> (Pair, TempDir) {
    let goldens = Goldens::read();
    let folder = goldens.folder(goldens.cases.iter().find(|case| case.name == "qwen3_5").expect("a model"));
    (Pair::of(folder.path()), folder)
}

#[test]
fn two_gguf_files_of_qwen_3_5_have_the_answers_of_their_folder() {
    // Its template takes lists of blocks, which the last conversation does not have.
    const COUNT: usize = 4;
    let (mut pair, folder) = qwen3_5();
    let expected = start(folder.path(), |_| {});
    has_answers(&pair, &expected, COUNT, "qwen3_5");
    let flags = pair.tower.metadata.remove("clip.vision.is_deepstack_layers");
    assert!(matches!(flags, Some(Entry::Bools(flags)) if !flags.contains(&true)));
    has_answers(&pair, &expected, COUNT, "qwen3_5 without flags");
}

/// Converters write matrices as f16.
#[test]
fn a_tower_of_f16_has_the_answers_of_its_rounded_weights() {
    for_each_pair(|name, _, mut pair| {
        pair.tower.tensors.values_mut().for_each(|tensor| tensor.round_to_half());
        let rounded = pair.folder();
        pair.tower.half = true;
        has_answers_of(&pair, &start(rounded.path(), |_| {}), name);
    });
}

/// Early converters exchanged the names of an MLP's first and last matrix.
#[test]
fn exchanged_names_of_an_mlp_are_recognized() {
    for_each_pair(|name, folder, mut pair| {
        let exchanged = |name: &String| match name.contains(".ffn_up.") {
            true => name.replace(".ffn_up.", ".ffn_down."),
            false => name.replace(".ffn_down.", ".ffn_up."),
        };
        pair.tower.tensors =
            pair.tower.tensors.iter().map(|(name, tensor)| (exchanged(name), tensor.clone())).collect();
        has_answers_of(&pair, &start(folder, |_| {}), name);
    });
}

/// llama.cpp's defaults: the published models leave these keys out.
#[test]
fn keys_that_files_leave_out_have_the_values_of_published_models() {
    for_each_pair(|name, folder, mut pair| {
        let expected = start(folder, |_| {});
        let Some(key) = ["gemma3", "smolvlm"].contains(&name).then_some("clip.vision.projector.scale_factor") else {
            return;
        };
        let written = pair.tower.metadata.remove(key);
        let image = |engine: &Engine| prepare(engine, request(user([image(1)]))).media.expect("an image").tokens();
        let found = image(&start(pair.folder().path(), |_| {}));
        match (name, written) {
            // 8 x 8 patches, in squares of 4 x 4 instead of 2 x 2.
            ("gemma3", Some(Entry::U32(2))) => assert_eq!((found, image(&expected)), (4, 16)),
            ("smolvlm", Some(Entry::U32(2))) => assert_eq!(found, image(&expected)),
            (_, written) => panic!("{name}: {written:?}"),
        }
    });
}

// ---- the choice of the file ----

fn takes_images(engine: &Engine) -> bool {
    engine.model().vision.is_some()
}

#[test]
fn the_file_beside_the_model_is_used_or_the_one_that_is_named() {
    for_each_pair(|name, _, pair| {
        let folder = pair.folder();
        let model = folder.path().join(MODEL);
        let beside = start(&model, |_| {});
        assert!(takes_images(&beside), "{name}: beside the model");
        let other = TempDir::new().expect("a temporary folder");
        let tower = other.path().join("vision.gguf");
        std::fs::rename(folder.path().join(MMPROJ), &tower).expect("the folders are writable");
        for path in [&model, folder.path()] {
            assert!(!takes_images(&start(path, |_| {})), "{name}: without a tower");
        }
        let named = start(&model, |config| config.mmproj = Some(tower.clone()));
        let request = request(user([image(1), text("What is this?")]));
        ask(&named, request.clone()).is_same(&ask(&beside, request), name);
    });
}

/// A folder may have the files of several models.
#[test]
fn towers_of_other_models_are_not_used() {
    let pairs = pairs();
    let (gemma, smol) = (&pairs["gemma3"], &pairs["smolvlm"]);
    let folder = gemma.folder();
    std::fs::write(folder.path().join("smol.gguf"), smol.text.bytes()).expect("the folder is writable");
    assert!(!takes_images(&start(&folder.path().join("smol.gguf"), |_| {})), "another language model");
    let mut narrow = pairs["qwen2_5_vl"].clone();
    narrow.tower.set("clip.vision.projection_dim", Entry::U32(64));
    let folder = narrow.folder();
    assert!(!takes_images(&start(&folder.path().join(MODEL), |_| {})), "other rows");
    let text_only = gemma.folder();
    std::fs::write(text_only.path().join(MMPROJ), smol.text.bytes()).expect("the folder is writable");
    assert!(!takes_images(&start(&text_only.path().join(MODEL), |_| {})), "a language model with such a name");
}

/// Returns the files of every model.
fn pairs() -> BTreeMap<String, Pair> {
    let all = std::sync::Mutex::new(BTreeMap::new());
    for_each_pair(|name, _, pair| {
        all.lock().expect("no panic").insert(name.to_owned(), pair);
    });
    all.into_inner().expect("no panic")
}

// ---- the oracle ----

/// The models of the oracle that are converted.
const CONVERTED: [&str; 4] = ["smolvlm", "gemma3", "qwen2_5_vl", "qwen3_vl"];

/// The largest difference of a feature from transformers'. Features are up to 30.
const FEATURE_TOLERANCE: f32 = 1e-4;

/// Some numbers of all rows of a conversation's images.
#[derive(Debug, Deserialize)]
struct Projected {
    shape: [usize; 2],
    index: Vec<usize>,
    value: Vec<f32>,
}

fn tower(folder: &Path) -> TorchTower {
    let artifacts = Artifacts::load(folder).expect("artifacts");
    let file = models::open(&artifacts).expect("a model");
    TorchTower::open(&file, TorchTarget::REFERENCE).expect("it loads").expect("a tower")
}

/// Computes the rows of a conversation's images.
fn features(tower: &TorchTower, engine: &Engine, case: &Case, oracle: &Path) -> Vec<f32> {
    let images = prepare(engine, case.request(oracle)).media.expect("images").images;
    let all = images.iter().map(|image| {
        let mut run = tower.start(image).expect("computes");
        loop {
            let Some(Features { rows, .. }) = run.advance(tower).expect("computes") else { continue };
            break rows;
        }
    });
    all.flatten().collect()
}

impl Projected {
    #[track_caller]
    fn check(&self, found: &[f32], what: &str) {
        assert_eq!(found.len(), self.shape.iter().product::<usize>(), "{what}: rows");
        for (at, expected) in self.index.iter().zip(&self.value) {
            let distance = (found[*at] - expected).abs();
            assert!(distance <= FEATURE_TOLERANCE, "{what}: feature {at} is {}, expected {expected}", found[*at]);
        }
    }
}

#[test]
fn converted_conversations_of_the_oracle_have_the_features_and_tokens_of_transformers() {
    let Some(oracle) = vision_oracle::folder() else { return };
    for model in CONVERTED {
        let cases = vision_oracle::golden(&oracle, model)["cases"].take();
        let cases: BTreeMap<String, Value> = serde_json::from_value(cases).expect("cases");
        let folder = Pair::of(&oracle.join("models").join(model)).folder();
        let (engine, tower) = (start(folder.path(), |_| {}), tower(folder.path()));
        for (name, value) in &cases {
            let (what, case) = (format!("{model}, {name}"), Case::deserialize(value).expect("a case"));
            assert_eq!(*prepare(&engine, case.request(&oracle)).ids, case.input_ids, "{what}: prompt");
            if let Some(projected) = value.get("vision_features") {
                let projected = Projected::deserialize(&projected["projected"]).expect("features");
                projected.check(&features(&tower, &engine, &case, &oracle), &what);
            }
            case.check(&finish(submit(&engine, case.request(&oracle))), &what);
        }
        eprintln!("{model} as two GGUF files: {} cases checked", cases.len());
    }
}
