//! Files that llama.cpp reads too. `golden/check_mmproj.py` compares its answers.

use std::path::PathBuf;

use serde_json::{Value, json};
use tandem_core::answer::Token;
use tandem_tests::gguf_pair::{MMPROJ, MODEL, Pair};
use tandem_tests_full::image_checkpoint::Goldens;
use tandem_tests_full::image_model::{ImageModel, bitmap, rows};
use tempfile::TempDir;

use super::super::encoded;
use super::{ask, prepare, request, start, text, user};

/// The tokens of an answer.
const TOKENS: u32 = 16;

/// A model, and an image that neither project resamples.
struct Case {
    name: &'static str,
    folder: TempDir,
    image: Vec<u8>,
    /// The keys that are removed from the tower's file, because llama.cpp has one value for them.
    fixed: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let mut models = ImageModel::all();
    let mut model = |name: &str| models.remove(name).expect("a model");
    let case = |name, model: ImageModel, image, fixed| Case { name, folder: model.folder(), image, fixed };
    let windows = &["window_size", "image_min_pixels", "image_max_pixels"];
    vec![
        case("gemma3", model("gemma3"), bitmap(112, 112, 7), &[]),
        case("qwen2_5_vl", with_windows_of_llama_cpp(model("qwen2_5_vl")), bitmap(168, 140, 7), windows),
        // As many patches as the tower has positions, between which llama.cpp interpolates otherwise. The
        // first tokens of the answer are whole characters, whose probabilities llama.cpp returns.
        Case { name: "qwen3_vl", folder: qwen3_vl(), image: bitmap(48, 48, 27), fixed: &[] },
        // The whole image is reduced to half its width: its rows have one colour.
        case("smolvlm", with_token_of_two_lines(model("smolvlm")), rows(128, 64, 7), &[]),
    ]
}

fn qwen3_vl() -> TempDir {
    let goldens = Goldens::read();
    goldens.folder(goldens.cases.iter().find(|case| case.name == "qwen3_vl").expect("a model"))
}

/// llama.cpp has windows of 112 pixels only.
fn with_windows_of_llama_cpp(mut model: ImageModel) -> ImageModel {
    for (file, setting, value) in [
        ("config.json", "/vision_config/patch_size", 14),
        ("config.json", "/vision_config/window_size", 112),
        ("preprocessor_config.json", "/patch_size", 14),
        ("preprocessor_config.json", "/min_pixels", 8 * 28 * 28),
        ("preprocessor_config.json", "/max_pixels", 4096 * 28 * 28),
    ] {
        model.set(file, setting, json!(value));
    }
    model.reshape("visual.patch_embed.proj.weight", &[32, 3, 2, 14, 14]);
    model
}

/// llama.cpp writes the two line feeds before the whole image as one token.
fn with_token_of_two_lines(mut model: ImageModel) -> ImageModel {
    model.add_token("\n\n");
    model.set("config.json", "/text_config/vocab_size", json!(268));
    model.reshape("model.text_model.embed_tokens.weight", &[268, 40]);
    model
}

/// Writes the files, the prompts and the answers to the folder TANDEM_KEEP, if set.
#[test]
fn files_for_llama_cpp_have_the_answers_of_their_folders() {
    let kept = std::env::var_os("TANDEM_KEEP").map(PathBuf::from);
    for Case { name, folder, image, fixed } in cases() {
        let mut pair = Pair::of(folder.path());
        for key in fixed {
            pair.tower.metadata.remove(&format!("clip.vision.{key}"));
        }
        let files = pair.folder();
        let (converted, expected) = (start(files.path(), |_| {}), start(folder.path(), |_| {}));
        let mut request = request(user([text("What is "), encoded(&image), text(" this?")]));
        request.sampling.temperature = Some(0.0);
        request.stop.max_new_tokens = Some(TOKENS);
        request.returns.logprobs = Some(20);
        let answer = ask(&converted, request.clone());
        answer.is_same(&ask(&expected, request.clone()), name);
        let Some(kept) = &kept else { continue };
        let ids = prepare(&converted, request).ids;
        let prompt = converted.model().tokenizer.decode(&ids, false).expect("text");
        let steps: Vec<Value> = answer.outputs[0].iter().map(step).collect();
        let case = json!({"prompt": prompt, "tokens": ids.len(), "image": encoded(&image)["base64"], "steps": steps});
        std::fs::write(kept.join(format!("{name}.json")), case.to_string()).expect("a folder");
        for (from, to) in [(MODEL, format!("{name}.gguf")), (MMPROJ, format!("mmproj-{name}.gguf"))] {
            std::fs::copy(files.path().join(from), kept.join(to)).expect("a folder");
        }
    }
}

/// Returns a token and the likeliest tokens of its step.
fn step(token: &Token) -> Value {
    let top: Vec<_> = token.top.iter().map(|top| (top.id, top.logprob)).collect();
    json!({"id": token.id, "top": top})
}
