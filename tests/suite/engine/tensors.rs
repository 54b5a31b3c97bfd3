//! Tensors of folders that a model does not usually have, and values that are not numbers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tandem_core::error::{LoadError, StepError};
use tandem_core::models::{self, CpuDecoder, Precision, architectures};
use tandem_core::sampling::{Sampling, distribution};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::gguf_file::File;
use tandem_tests::safetensors_file::{file, folder};
use tandem_tests::{error_texts, repository, scramble};

use super::gguf_keys::last_logprobs;

const PROMPT: &[u32] = &[0, 5, 45, 22, 7];
const EXPERTS: usize = 4;
const LAYER: &str = "model.layers.0";

/// The shape and the numbers of each tensor.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn config() -> Value {
    json!({
        "model_type": "qwen3_moe", "hidden_size": 32, "moe_intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 64, "num_experts": EXPERTS,
        "num_experts_per_tok": 2, "norm_topk_prob": true, "max_position_embeddings": 64,
    })
}

/// Returns a tensor of scrambled numbers.
fn tensor(name: &str, shape: &[usize]) -> (String, (Vec<usize>, Vec<f32>)) {
    let seed = name.bytes().fold(0, |seed, byte| scramble(seed ^ u64::from(byte)));
    let number = |place| (scramble(seed.wrapping_add(place)) >> 40) as f32 / (1 << 24) as f32 - 0.5;
    (name.to_owned(), (shape.to_vec(), (0..shape.iter().product::<usize>() as u64).map(number).collect()))
}

/// Returns a mixture of experts with stacked matrices.
fn stacked() -> Tensors {
    let of_layer: [(&str, &[usize]); 11] = [
        ("input_layernorm.weight", &[32]),
        ("post_attention_layernorm.weight", &[32]),
        ("self_attn.q_proj.weight", &[64, 32]),
        ("self_attn.k_proj.weight", &[32, 32]),
        ("self_attn.v_proj.weight", &[32, 32]),
        ("self_attn.o_proj.weight", &[32, 64]),
        ("self_attn.q_norm.weight", &[32]),
        ("self_attn.k_norm.weight", &[32]),
        ("mlp.gate.weight", &[EXPERTS, 32]),
        ("mlp.experts.gate_up_proj", &[EXPERTS, 64, 32]),
        ("mlp.experts.down_proj", &[EXPERTS, 32, 32]),
    ];
    let whole: [(&str, &[usize]); 3] =
        [("model.embed_tokens.weight", &[64, 32]), ("model.norm.weight", &[32]), ("lm_head.weight", &[64, 32])];
    let of_layer = of_layer.iter().map(|(name, shape)| tensor(&format!("{LAYER}.{name}"), shape));
    of_layer.chain(whole.iter().map(|(name, shape)| tensor(name, shape))).collect()
}

/// Returns the same model with a tensor for each matrix of an expert.
fn split() -> Tensors {
    let mut tensors = stacked();
    for (name, parts) in [("gate_up_proj", &["gate_proj", "up_proj"][..]), ("down_proj", &["down_proj"])] {
        let (_, numbers) = tensors.remove(&format!("{LAYER}.mlp.experts.{name}")).expect("a stacked tensor");
        let names = (0..EXPERTS).flat_map(|expert| parts.iter().map(move |part| (expert, part)));
        for ((expert, part), numbers) in names.zip(numbers.chunks_exact(32 * 32)) {
            tensors.insert(format!("{LAYER}.mlp.experts.{expert}.{part}.weight"), (vec![32, 32], numbers.to_vec()));
        }
    }
    tensors
}

fn with(mut tensors: Tensors, name: &str, shape: &[usize]) -> Tensors {
    tensors.extend([tensor(name, shape)]);
    tensors
}

fn weights(tensors: &Tensors) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, (shape, numbers)) in tensors {
        let start = data.len();
        data.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    file(&Value::Object(header).to_string(), &data)
}

/// Computes the log-probabilities after the prompt.
fn logprobs_of(config: &Value, tensors: &Tensors, precision: Precision) -> Result<Vec<f32>, LoadError> {
    let folder = folder(&[("config.json", config.to_string().into_bytes()), ("model.safetensors", weights(tensors))]);
    let file = models::open(&Artifacts::load(folder.path())?)?;
    let decoder = models::describe(&file)?;
    Ok(last_logprobs(CpuDecoder::backend(decoder, &file, precision, 1)?.as_mut(), PROMPT))
}

fn logprobs(tensors: &Tensors) -> Result<Vec<f32>, LoadError> {
    logprobs_of(&config(), tensors, Precision::F32)
}

fn refused(tensors: &Tensors) -> String {
    let error = logprobs(tensors).expect_err("it is refused");
    format!("{}: {}", error.reason().name(), error.chain())
}

/// transformers 5 has the matrices so in memory, and writes them so with `save_original_format=False`.
#[test]
fn stacked_matrices_of_experts_are_those_of_single_tensors() {
    let expected = logprobs(&split()).expect("loads");
    assert_eq!(logprobs(&stacked()).expect("loads"), expected);
    let path = |name: &str| format!("{LAYER}.mlp.experts.{name}");
    let errors = [
        with(stacked(), &path("gate_up_proj"), &[EXPERTS + 1, 64, 32]),
        with(stacked(), &path("gate_up_proj"), &[EXPERTS - 1, 64, 32]),
        with(stacked(), &path("gate_up_proj"), &[EXPERTS, 32, 64]),
        with(split(), &path("gate_up_proj"), &[EXPERTS, 64, 32]),
        with(split(), &path("gate_up_proj"), &[EXPERTS, 63, 32]),
        with(stacked(), &path("3.up_proj.bias"), &[32]),
    ];
    error_texts::check_rows("load/experts", errors.map(|tensors| refused(&tensors)));
}

/// Answers do not depend on a value head, on layers that draft tokens, or on a classifier beside the output matrix. A
/// bias would change them.
#[test]
fn heads_beside_the_language_model_have_no_effect_or_are_refused() {
    let expected = logprobs(&split()).expect("loads");
    for name in [
        "v_head.summary.weight",
        "mtp.layers.0.mlp.up_proj.weight",
        "model.mtp.norm.weight",
        "score.weight",
        "classifier.dense.bias",
    ] {
        assert_eq!(logprobs(&with(split(), name, &[32])).expect(name), expected, "{name}");
    }
    let names = ["lm_head.bias", "model.layers.1.mtp.weight", "model.score.weight"];
    error_texts::check_rows("load/heads", names.map(|name| refused(&with(split(), name, &[32]))));
}

#[test]
fn a_classifier_in_place_of_the_output_matrix_is_refused() {
    let (mut tied, mut tensors) = (config(), split());
    tied["tie_word_embeddings"] = json!(true);
    tensors.remove("lm_head.weight");
    logprobs_of(&tied, &tensors, Precision::F32).expect("loads");
    for name in ["score.weight", "classifier.weight"] {
        let error = logprobs_of(&tied, &with(tensors.clone(), name, &[32]), Precision::F32).expect_err(name);
        assert!(matches!(&error, LoadError::TensorUnused { name: found } if found == name), "{}", error.chain());
    }
}

/// Returns the load of the tiny model with images, whose files have another tensor, and whose config is changed.
fn described_with_images(name: &str, change: impl Fn(&mut Value)) -> Result<bool, LoadError> {
    let read = |name: &str| std::fs::read(repository().join("tests/contract/vision").join(name)).expect("a file");
    let mut config: Value = serde_json::from_slice(&read("config.json")).expect("JSON");
    change(&mut config);
    let weights = read("model.safetensors");
    let (length, rest) = weights.split_first_chunk::<8>().expect("a length");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).expect("JSON");
    header[name] = json!({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]});
    let weights = file(&header.to_string(), data);
    let folder = folder(&[("config.json", config.to_string().into_bytes()), ("model.safetensors", weights)]);
    let file = models::open(&Artifacts::load(folder.path())?)?;
    Ok(models::describe(&file)?.head.is_none())
}

#[test]
fn heads_of_models_with_images_are_refused_too() {
    let describe = |name: &str| described_with_images(name, |_| {});
    for name in ["v_head.weight", "mtp.norm.weight", "audio_tower.norm.weight", "vision_tower.other.weight"] {
        assert!(describe(name).expect(name), "{name}");
    }
    for name in ["score.weight", "classifier.weight", "lm_head.bias", "model.layers.9.norm.weight"] {
        let error = describe(name).expect_err(name);
        assert!(matches!(&error, LoadError::TensorUnused { name: found } if found == name), "{}", error.chain());
    }
}

/// As in transformers, which reads the setting from the whole config; true by default in this family. A file without
/// an output matrix whose config denies the tie is refused.
#[test]
fn the_tie_of_a_model_with_images_is_that_of_the_whole_config() {
    for (whole, of_text) in [
        (json!(null), json!(null)),
        (json!(null), json!(false)),
        (json!(null), json!(true)),
        (json!(true), json!(false)),
    ] {
        let change = |config: &mut Value| {
            config["tie_word_embeddings"] = whole.clone();
            config["text_config"]["tie_word_embeddings"] = of_text.clone();
        };
        assert!(described_with_images("v_head.weight", change).expect("loads"), "{whole}, {of_text}");
    }
    let denied = described_with_images("v_head.weight", |config| config["tie_word_embeddings"] = json!(false));
    assert!(matches!(denied, Err(LoadError::TensorMissing { name }) if name.contains("lm_head")));
}

/// transformers refuses them, llama.cpp reads them.
#[test]
fn outer_dimensions_of_one_do_not_matter() {
    let expected = logprobs(&split()).expect("loads");
    let reshaped = |name: &str, shape: &[usize]| {
        let mut tensors = split();
        tensors.get_mut(name).expect("a tensor").0 = shape.to_vec();
        logprobs(&tensors)
    };
    for (name, shape) in [("model.norm.weight", &[1, 32][..]), ("lm_head.weight", &[1, 1, 64, 32])] {
        assert_eq!(reshaped(name, shape).expect("loads"), expected, "{name}");
    }
    for (name, shape) in [("model.norm.weight", &[32, 1][..]), ("lm_head.weight", &[2, 32, 32])] {
        assert!(matches!(reshaped(name, shape), Err(LoadError::TensorShape { .. })), "{name}");
    }
}

#[test]
fn weights_that_are_not_numbers_are_refused_by_name() {
    let numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (i, name) in split().into_keys().enumerate() {
        let mut tensors = split();
        let values = &mut tensors.get_mut(&name).expect("a tensor").1;
        let place = values.len() * i / 32;
        values[place] = numbers[i % 3];
        for precision in [Precision::F32, Precision::Bf16, Precision::Keep, Precision::Int8, Precision::Int4] {
            let error = logprobs_of(&config(), &tensors, precision).expect_err("it is refused");
            let LoadError::TensorNotFinite { name: found, found: number } = &error else { panic!("{}", error.chain()) };
            assert_eq!((found, number.to_bits()), (&name, numbers[i % 3].to_bits()), "{precision:?}");
        }
    }
    let mut tensors = stacked();
    tensors.get_mut(&format!("{LAYER}.mlp.experts.gate_up_proj")).expect("a tensor").1[5 * 32 * 32] = f32::NAN;
    error_texts::check("load/not-finite", refused(&tensors));
}

/// The first step fails instead of repeating a token.
#[test]
fn weights_beyond_the_range_of_the_computation_make_a_step_fail() {
    for precision in [Precision::F32, Precision::Bf16, Precision::Keep, Precision::Int8, Precision::Int4] {
        let is_refused = |tensors: &Tensors| {
            let logprobs = logprobs_of(&config(), tensors, precision).expect("loads");
            matches!(distribution(&Sampling::NEUTRAL, &[], PROMPT, &logprobs), Err(StepError::NotFinite))
        };
        assert!(!is_refused(&stacked()), "{precision:?}");
        let mut tensors = stacked();
        tensors.get_mut("model.norm.weight").expect("a tensor").1.fill(f32::MAX);
        assert!(is_refused(&tensors), "{precision:?}");
    }
}

/// A terminal obeys such characters.
#[test]
fn control_characters_of_files_are_escaped_in_errors() {
    const RED: &str = "a\u{1b}[31m\n\0";
    let other = |setting: &str, value: Value| {
        let mut config = config();
        config[setting] = value;
        let mut tensors = split();
        tensors.remove("model.norm.weight");
        logprobs_of(&config, &tensors, Precision::F32).expect_err("a tensor is missing").chain()
    };
    let typed = json!({RED: {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}).to_string();
    let index = json!({"weight_map": {"a": RED}}).to_string().into_bytes();
    let gguf = File::new().text("general.architecture", "llama").u32(RED, 1).u32(RED, 1);
    let files = [
        ("model.safetensors", file(&typed, &[0; 8])),
        ("model.safetensors.index.json", index),
        ("model.gguf", gguf.bytes()),
        ("generation_config.json", json!({"temperature": RED}).to_string().into_bytes()),
    ];
    let of_files = files.map(|one| {
        let is_gguf = one.0 == "model.gguf";
        let config = (!is_gguf).then(|| ("config.json", config().to_string().into_bytes()));
        let folder = folder(&[one].into_iter().chain(config).collect::<Vec<_>>());
        let load = || {
            let artifacts = Artifacts::load(folder.path())?;
            artifacts.sampling_defaults()?;
            models::open(&artifacts).map(drop)
        };
        let error: LoadError = load().expect_err("it is refused");
        error.chain().replace(&folder.path().display().to_string(), "FOLDER")
    });
    let errors = [
        refused(&with(split(), &format!("model.{RED}"), &[32])),
        other("model_type", json!(RED)).replace(&architectures::listed(), "NAMES"),
        other("hidden_act", json!(RED)),
        other("rope_scaling", json!({"rope_type": RED})),
        other("per_layer_config", json!({RED: 1})),
        other("quantization_config", json!({"quant_method": RED})),
    ];
    let errors: Vec<_> = errors.into_iter().chain(of_files).collect();
    assert!(errors.iter().all(|error| !error.contains(char::is_control)), "{errors:?}");
    error_texts::check_rows("load/control-characters", errors);
}
