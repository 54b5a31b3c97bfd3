//! Folders in the forms of other tools: computed as transformers does, or refused with the cause.

use serde_json::{Value, json};
use tandem_core::error::LoadError;
use tandem_core::models::{self, CpuDecoder, Precision};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::excerpt;
use tandem_tests::gguf_file::File;
use tandem_tests::safetensors_file::{file, folder};
use tandem_tests::{error_texts, repository};
use tempfile::TempDir;

use super::gguf_keys::last_logprobs;

/// A file of a folder: its name and its content.
type Content<'a> = (&'a str, Vec<u8>);

/// Returns a file of the tiny model.
fn of_model(name: &str) -> Vec<u8> {
    std::fs::read(repository().join("tests/contract/model").join(name)).expect("a file")
}

/// Returns the config of the tiny model with another setting.
fn config_with(setting: &str, value: Value) -> Vec<u8> {
    let mut config: Value = serde_json::from_slice(&of_model("config.json")).expect("JSON");
    config[setting] = value;
    config.to_string().into_bytes()
}

/// Returns the weights of the tiny model under new names. `None` leaves a tensor out.
fn renamed(rename: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let weights = of_model("model.safetensors");
    let (length, rest) = weights.split_first_chunk::<8>().expect("a length");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).expect("JSON");
    let header: serde_json::Map<_, _> =
        header.into_iter().filter_map(|(name, at)| Some((rename(&name)?, at))).collect();
    file(&Value::Object(header).to_string(), data)
}

/// Computes the logits after some tokens.
fn logits(folder: &TempDir) -> Result<Vec<f32>, LoadError> {
    let file = models::open(&Artifacts::load(folder.path())?)?;
    let decoder = models::describe(&file)?;
    Ok(last_logprobs(CpuDecoder::backend(decoder, &file, Precision::F32, 1)?.as_mut(), &[5, 45, 100, 22, 7]))
}

/// Returns the error of a folder with these files.
fn refused(files: &[Content<'_>]) -> String {
    let folder = folder(files);
    let error = logits(&folder).expect_err("it is refused");
    format!("{}: {}", error.reason().name(), error.chain()).replace(&folder.path().display().to_string(), "FOLDER")
}

/// `safetensors.torch.save_model` writes a tensor of two names under the first in the order of the alphabet.
#[test]
fn embeddings_under_the_name_of_a_tied_output_matrix_give_the_same_logits() {
    let is_head = |name: &str| name == "lm_head.weight";
    let usual = renamed(|name| (!is_head(name)).then(|| name.to_owned()));
    let other = renamed(|name| match name {
        "model.embed_tokens.weight" => Some("lm_head.weight".to_owned()),
        name => (!is_head(name)).then(|| name.to_owned()),
    });
    let logits_of = |is_tied: bool, weights: &[u8]| {
        let config = config_with("tie_word_embeddings", json!(is_tied));
        logits(&folder(&[("config.json", config), ("model.safetensors", weights.to_vec())]))
    };
    let expected = logits_of(true, &usual).expect("loads");
    assert_eq!(logits_of(true, &other).expect("loads"), expected);
    let error = logits_of(false, &other).expect_err("without embeddings");
    assert!(error.chain().contains("model.embed_tokens.weight is missing"), "{}", error.chain());
    // The default of a model with images, whatever that of its language model is.
    let mut text: Value = serde_json::from_slice(&of_model("config.json")).expect("JSON");
    text.as_object_mut().expect("settings").remove("tie_word_embeddings");
    let of_images = |tied: Value, weights: &[u8]| {
        let config = json!({"model_type": "internvl", "text_config": text, "tie_word_embeddings": tied}).to_string();
        logits(&folder(&[("config.json", config.into_bytes()), ("model.safetensors", weights.to_vec())]))
    };
    for weights in [&usual, &other] {
        assert_eq!(of_images(json!(null), weights).expect("loads"), expected);
        assert_eq!(of_images(json!(true), weights).expect("loads"), expected);
        assert!(matches!(of_images(json!(false), weights), Err(LoadError::TensorMissing { .. })));
    }
}

/// transformers converts them to the dtype of the config.
#[test]
fn weights_of_double_precision_are_refused_with_a_remedy() {
    let header = r#"{"model.embed_tokens.weight": {"dtype": "F64", "shape": [302, 32], "data_offsets": [0, 77312]}}"#;
    let files = [("config.json", of_model("config.json")), ("model.safetensors", file(header, &[0; 77_312]))];
    error_texts::check("load/double", refused(&files));
}

/// A terminal obeys such characters.
#[test]
fn control_characters_of_the_names_of_files_are_escaped_in_errors() {
    let names = ["a\u{1b}[31m\n.gguf", "b\u{9b}.gguf"];
    let header = || b"GGUF".to_vec();
    let errors = [refused(&names.map(|name| (name, header()))), refused(&[(names[0], header())])];
    assert!(errors.iter().all(|error| !error.contains(char::is_control)), "{errors:?}");
    error_texts::check_rows("load/file-names", errors);
}

#[test]
fn a_folder_without_the_name_of_an_architecture_is_refused_with_the_cause() {
    let weights = || ("model.safetensors", of_model("model.safetensors"));
    let tokenizer = || ("tokenizer.json", of_model("tokenizer.json"));
    let errors = [
        refused(&[weights(), tokenizer()]),
        refused(&[weights(), ("config.json", config_with("model_type", Value::Null))]),
        refused(&[("adapter_model.safetensors", Vec::new()), ("adapter_config.json", Vec::new()), tokenizer()]),
        refused(&[("consolidated.safetensors", Vec::new()), ("params.json", Vec::new()), tokenizer()]),
    ];
    error_texts::check_rows("load/no-architecture", errors);
}

#[test]
fn weights_under_other_names_are_named_with_a_remedy() {
    let names = [
        "adapter_model.safetensors",
        "consolidated.safetensors",
        "model-00001-of-00002.safetensors",
        "diffusion.safetensors",
    ];
    let errors = names.map(|name| refused(&[("config.json", of_model("config.json")), (name, Vec::new())]));
    error_texts::check_rows("load/other-weights", errors);
}

#[test]
fn weights_of_gptq_and_of_mlx_are_named_beside_the_tensor() {
    let config = || ("config.json", of_model("config.json"));
    let gptq = || ("quantize_config.json", br#"{"bits": 4, "group_size": 128, "desc_act": false}"#.to_vec());
    let packed = || renamed(|name| Some(name.replace("down_proj.weight", "down_proj.qweight")));
    let mlx = config_with("quantization", json!({"group_size": 64, "bits": 8}));
    let errors = [
        refused(&[config(), gptq(), ("model.safetensors", packed())]),
        refused(&[config(), gptq(), ("gptq_model-4bit-128g.safetensors", Vec::new())]),
        refused(&[config(), gptq()]),
        refused(&[("config.json", mlx), ("model.safetensors", packed())]),
    ];
    error_texts::check_rows("load/quantized", errors);
    let plain = folder(&[config(), gptq(), ("model.safetensors", of_model("model.safetensors"))]);
    logits(&plain).expect("weights that are not quantized");
}

#[test]
fn long_values_and_names_of_files_are_cut_in_errors() {
    let long = "é".repeat(1 << 20);
    let config = |setting: &str| ("config.json", config_with(setting, json!(long)));
    let tied = ("config.json", config_with("tie_word_embeddings", json!(true)));
    let with_name = renamed(|name| Some(if name == "lm_head.weight" { long.clone() } else { name.to_owned() }));
    let weights = || ("model.safetensors", of_model("model.safetensors"));
    let typed = format!(r#"{{"a": {{"dtype": "{long}", "shape": "{long}", "data_offsets": [0, 0]}}}}"#);
    let header = File::new().text("general.architecture", "llama").u32("llama.block_count", 2);
    let header = header.i32s("llama.attention.head_count", &[7; 1 << 20]);
    let errors = [
        refused(&[("model.gguf", header.bytes())]),
        refused(&[config("hidden_size"), weights()]),
        refused(&[config("hidden_act"), weights()]),
        refused(&[config("model_type"), weights()]),
        refused(&[("config.json", json!(long).to_string().into_bytes()), weights()]),
        refused(&[tied, ("model.safetensors", with_name)]),
        refused(&[config("unread"), ("model.safetensors", file(&typed, &[]))]),
    ];
    for error in errors {
        assert!(error.len() < 1000 && error.contains('…'), "{} bytes: {}", error.len(), excerpt(&error));
    }
}

/// transformers ignores the older name of the key in this architecture, and so does not scale.
#[test]
fn an_older_key_without_effect_is_refused_with_the_newer_one() {
    let mut config: Value = serde_json::from_slice(&of_model("config.json")).expect("JSON");
    config["model_type"] = json!("gemma3_text");
    config["rope_scaling"] = json!({"type": "linear", "factor": 2.0});
    let files =
        [("config.json", config.to_string().into_bytes()), ("model.safetensors", of_model("model.safetensors"))];
    error_texts::check("load/older-rope-type", refused(&files));
}
