//! GGUF files with changed keys and tensors, compared with llama.cpp (`golden/make_gguf_keys.py`). Each
//! key and tensor has llama.cpp's effect, or the file is refused with the name of the key or tensor.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tandem_core::cache::{BLOCK, BlockId, CacheSize, ChunkStates, StateId};
use tandem_core::error::LoadError;
use tandem_core::models::{self, CpuDecoder, LogitsFor, Precision, SequenceChunk};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::gguf_file::{ARRAY, BOOL, F32, File, I32, STRING, U32, array, string};
use tandem_tests::{error_texts, repository, scramble};

#[derive(Debug, Deserialize)]
struct Goldens {
    prompts: Vec<Vec<u32>>,
    /// The tokens whose log-probabilities are shown.
    shown: Vec<usize>,
    models: BTreeMap<String, Model>,
    cases: Vec<Case>,
}

/// A tiny model.
#[derive(Debug, Deserialize)]
struct Model {
    /// Type and value by key.
    keys: BTreeMap<String, (String, Value)>,
    /// Shapes, outermost dimension first.
    tensors: BTreeMap<String, Vec<usize>>,
    /// For each prompt.
    logprobs: Vec<Vec<f32>>,
}

/// A changed model. None removes a key or a tensor.
#[derive(Debug, Deserialize)]
struct Case {
    model: String,
    keys: BTreeMap<String, Option<(String, Value)>>,
    tensors: BTreeMap<String, Option<Vec<usize>>>,
    /// "same": as the model. Null: llama.cpp refuses the file.
    logprobs: Value,
}

/// Keys and tensors that llama.cpp ignores or supports, and that are refused here: they may be meant to
/// have an effect, or the decoder has no such function.
const REFUSED: &[&str] = &[
    "attention.causal",
    "attention.clamp_kqv",
    "attention.head_count",
    "attention.key_length_swa",
    "attention.max_alibi_bias",
    "attention.output_scale",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_scale",
    "attn_logit_softcapping",
    "embedding_length_out",
    "embedding_scale",
    "expert_gating_func",
    "expert_shared_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "feed_forward_length",
    "final_logit_softcapping",
    "leading_dense_block_count",
    "logit_scale",
    "n_deepstack_layers",
    "residual_scale",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.dimension_sections",
    "rope.freq_base_swa",
    "rope.scaling.alpha",
    "rope.scaling.finetuned",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "unknown",
    "use_parallel_residual",
    "blk.1.attn_k.bias",
    "blk.1.attn_q.bias",
    "blk.1.attn_q.scale",
    "blk.1.attn_v.bias",
    "cls.output.weight",
    "output.bias",
    "rope_factors_long.weight",
];

/// Files that llama.cpp refuses, and that are read here: the sizes that the key leaves out follow from
/// the tensors, the tensor has a use here, or the layers that draft tokens are not loaded.
const READ: &[(&str, &str)] = &[
    ("gemma2", "output.weight"),
    ("gemma2", "attention.sliding_window_pattern"),
    ("gemma3", "attention.sliding_window_pattern"),
    ("gemma2", "attention.value_length"),
    ("gemma3", "attention.value_length"),
    ("qwen3", "attention.value_length"),
    ("qwen3moe", "attention.value_length"),
    ("qwen3vl", "attention.value_length"),
    ("qwen35", "attention.value_length"),
    ("qwen35moe", "attention.value_length"),
    ("qwen3next", "attention.value_length"),
    ("qwen35", "rope.dimension_sections"),
    ("qwen35moe", "rope.dimension_sections"),
    ("qwen35", "nextn_predict_layers"),
    ("qwen35moe", "nextn_predict_layers"),
    ("qwen3next", "nextn_predict_layers"),
];

/// llama.cpp computes GELU from a table of f16, and normalizes the keys of DeltaNets with another epsilon.
fn tolerance(model: &str) -> f32 {
    match model {
        _ if model.starts_with("gemma") => 3e-3,
        "qwen35" | "qwen35moe" | "qwen3next" => 1e-3,
        _ => 2e-4,
    }
}

fn goldens() -> Goldens {
    let text = std::fs::read_to_string(repository().join("tests/golden/gguf_keys.json")).expect("the goldens");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the 64-bit FNV-1a hash.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns number `i` of a tensor, as the golden's script does.
fn number(name: &str, rank: usize, i: u64) -> f32 {
    if name.starts_with("rope_") {
        return 1.0 + if name.contains("long") { 0.5 } else { 0.25 } * i as f32;
    }
    let around = match name {
        _ if name.ends_with("ssm_a") => -0.375,
        _ if rank == 1 && name.ends_with(".weight") => 1.0,
        _ => 0.0,
    };
    around + ((scramble(fnv(name).wrapping_add(i)) >> 58) as f32 - 32.0) / 128.0
}

fn entry(file: File, key: &str, kind: &str, value: &Value) -> File {
    let whole = |value: &Value| (value.as_i64().expect("a whole number") as u32).to_le_bytes().to_vec();
    let flag = |value: &Value| vec![u8::from(value.as_bool().expect("a flag"))];
    let list = |id, encode: &dyn Fn(&Value) -> Vec<u8>| {
        let items = value.as_array().expect("a list");
        array(id, items.len() as u64, &items.iter().flat_map(encode).collect::<Vec<u8>>())
    };
    match kind {
        "u32" => file.entry(key, U32, &whole(value)),
        "f32" => file.entry(key, F32, &(value.as_f64().expect("a number") as f32).to_le_bytes()),
        "bool" => file.entry(key, BOOL, &flag(value)),
        "str" => file.entry(key, STRING, &string(value.as_str().expect("a text"))),
        "[u32]" => file.entry(key, ARRAY, &list(U32, &whole)),
        "[i32]" => file.entry(key, ARRAY, &list(I32, &whole)),
        "[bool]" => file.entry(key, ARRAY, &list(BOOL, &flag)),
        other => panic!("type {other}"),
    }
}

/// Returns the file of a model with changes.
fn file(name: &str, model: &Model, case: Option<&Case>) -> File {
    part(name, model, case, |_| true)
}

/// Returns a file with the tensors that `has` selects.
fn part(name: &str, model: &Model, case: Option<&Case>, has: impl Fn(&str) -> bool) -> File {
    let (mut keys, mut tensors) = (model.keys.clone(), model.tensors.clone());
    for (key, value) in case.iter().flat_map(|case| &case.keys) {
        keys.remove(key);
        keys.extend(value.clone().map(|value| (key.clone(), value)));
    }
    for (tensor, shape) in case.iter().flat_map(|case| &case.tensors) {
        tensors.remove(tensor);
        tensors.extend(shape.clone().map(|shape| (tensor.clone(), shape)));
    }
    let texts: Vec<String> = (0..64).map(|id| char::from_u32(0x4e00 + id).expect("a character").to_string()).collect();
    let tokens: Vec<&str> = texts.iter().map(String::as_str).collect();
    let file = File::new()
        .text("general.architecture", name)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", &[])
        .i32s("tokenizer.ggml.token_type", &[1; 64]);
    let file = keys.iter().fold(file, |file, (key, (kind, value))| entry(file, &format!("{name}.{key}"), kind, value));
    tensors.iter().filter(|(tensor, _)| has(tensor)).fold(file, |file, (tensor, shape)| {
        let dims: Vec<u64> = shape.iter().rev().map(|&size| size as u64).collect();
        file.weights(tensor, &dims, |i| number(tensor, shape.len(), i))
    })
}

/// Returns the log-probabilities of all tokens after each prompt.
fn logprobs(file: &File, prompts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, LoadError> {
    let path = file.write();
    let loaded = load(&path);
    std::fs::remove_file(&path).expect("the file is there");
    let mut backend = loaded?;
    Ok(prompts.iter().map(|prompt| last_logprobs(backend.as_mut(), prompt)).collect())
}

fn load(path: &std::path::Path) -> Result<Box<dyn models::Backend>, LoadError> {
    let file = models::open(&Artifacts::load(path)?)?;
    let decoder = models::describe(&file)?;
    CpuDecoder::backend(decoder, &file, Precision::F32, 1)
}

pub(super) fn last_logprobs(backend: &mut dyn models::Backend, tokens: &[u32]) -> Vec<f32> {
    let blocks: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK) as u32).map(BlockId).collect();
    backend.allocate(CacheSize { blocks: blocks.len() as u32, states: 1 }).expect("memory");
    let has_states = backend.shape().state_bytes > 0;
    let chunk = SequenceChunk {
        chosen: None,
        drafted: 0,
        tokens,
        past: 0,
        is_long: backend.long_after().is_some_and(|after| tokens.len() > after),
        blocks: &blocks,
        copy: None,
        states: has_states.then_some(ChunkStates { from: None, to: StateId(0), saves: &[] }),
        logits: LogitsFor::Last,
        images: &[],
        positions: None,
    };
    let logits = models::logits(backend, &[chunk]).expect("computes").pop().expect("a row");
    let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
    logits.iter().map(|logit| (f64::from(*logit) - sum.ln()) as f32).collect()
}

/// Returns the largest difference of a log-probability.
fn distance(found: &[Vec<f32>], expected: &[Vec<f32>], shown: &[usize]) -> f32 {
    let pairs = found.iter().zip(expected);
    let of_row = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        shown.iter().zip(expected).map(|(id, expected)| (found[*id] - expected).abs()).fold(0.0, f32::max)
    };
    pairs.map(of_row).fold(0.0, f32::max)
}

/// Returns the problem of a case, if there is one.
fn problem(goldens: &Goldens, case: &Case) -> Option<String> {
    let model = &goldens.models[&case.model];
    let expected: Option<Vec<Vec<f32>>> = match &case.logprobs {
        Value::Null => None,
        Value::String(_) => Some(model.logprobs.clone()),
        rows => Some(serde_json::from_value(rows.clone()).expect("rows")),
    };
    let names = || case.keys.keys().chain(case.tensors.keys()).map(String::as_str);
    let is_read = names().any(|name| READ.contains(&(&case.model, name)));
    match (logprobs(&file(&case.model, model, Some(case)), &goldens.prompts), expected) {
        (Err(_), None) => None,
        (Ok(_), None) => (!is_read).then(|| "is read, llama.cpp refuses it".to_owned()),
        (Ok(found), Some(expected)) => {
            let distance = distance(&found, &expected, &goldens.shown);
            (distance.is_nan() || distance > tolerance(&case.model)).then(|| format!("differs by {distance}"))
        }
        (Err(error), Some(_)) => {
            let text = error.chain();
            let is_named = names().any(|name| REFUSED.contains(&name) && text.contains(name));
            let is_typed = matches!(error, LoadError::HeaderSetting { .. } | LoadError::TensorUnused { .. });
            (!is_named || !is_typed).then(|| format!("is refused: {text}"))
        }
    }
}

#[test]
fn keys_and_tensors_of_gguf_files_have_the_effect_that_llama_cpp_gives_them() {
    let goldens = goldens();
    for (name, model) in &goldens.models {
        let found =
            logprobs(&file(name, model, None), &goldens.prompts).unwrap_or_else(|e| panic!("{name}: {}", e.chain()));
        let distance = distance(&found, &model.logprobs, &goldens.shown);
        assert!(distance <= tolerance(name), "{name} differs by {distance}");
    }
    let text = |case: &Case| format!("{} {:?} {:?}", case.model, case.keys, case.tensors);
    let problems =
        goldens.cases.iter().filter_map(|case| Some(format!("{}: {}", text(case), problem(&goldens, case)?)));
    let problems: Vec<String> = problems.collect();
    assert!(problems.is_empty(), "{} of {} cases:\n{}", problems.len(), goldens.cases.len(), problems.join("\n"));
}

/// Converters of Qwen3-Coder write that it has no shared expert.
#[test]
fn functions_of_experts_are_refused_only_if_the_model_has_them() {
    let goldens = goldens();
    let model = &goldens.models["qwen3moe"];
    let with = |key: &str, value: u32| file("qwen3moe", model, None).u32(&format!("qwen3moe.{key}"), value);
    for key in ["expert_shared_count", "expert_shared_feed_forward_length", "leading_dense_block_count"] {
        let found =
            logprobs(&with(key, 0), &goldens.prompts).unwrap_or_else(|error| panic!("{key}: {}", error.chain()));
        assert_eq!(distance(&found, &model.logprobs, &goldens.shown).max(tolerance("qwen3moe")), tolerance("qwen3moe"));
        let error = logprobs(&with(key, 1), &goldens.prompts).expect_err("it is refused").chain();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn experts_beyond_those_of_the_header_are_refused() {
    let goldens = goldens();
    let model = &goldens.models["qwen3moe"];
    let tensors: BTreeMap<_, _> =
        model.tensors.iter().filter(|(name, _)| name.ends_with("ffn_up_exps.weight")).collect();
    let (name, shape) = tensors.first_key_value().expect("a tensor of experts");
    let more = [&[shape[0] + 1], &shape[1..]].concat();
    let tensors = BTreeMap::from([((*name).clone(), Some(more))]);
    let case = Case { model: "qwen3moe".to_owned(), keys: BTreeMap::new(), tensors, logprobs: Value::Null };
    let error = logprobs(&file("qwen3moe", model, Some(&case)), &goldens.prompts).expect_err("it is refused").chain();
    assert!(error.contains(name.as_str()), "{error}");
}

#[test]
fn a_model_in_parts_is_loaded_from_any_of_them() {
    let goldens = goldens();
    let model = &goldens.models["llama"];
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = |number: u32| folder.path().join(format!("tiny-{number:05}-of-00003.gguf"));
    let parts = [
        part("llama", model, None, |tensor| tensor.starts_with("blk.0.")),
        part("llama", model, None, |tensor| tensor.starts_with("blk.") && !tensor.starts_with("blk.0.")),
        part("llama", model, None, |tensor| !tensor.starts_with("blk.")),
    ];
    for (part, number) in parts.into_iter().zip(0..) {
        // Parts after the first have only these keys.
        let head = if number == 0 { part } else { File { entries: Vec::new(), entry_count: 0, ..part } };
        let keys = head.u32("split.no", number).u32("split.count", 3);
        keys.u32("split.tensors.count", model.tensors.len() as u32).write_to(&path(number + 1));
    }
    for given in [path(1), path(2), path(3), folder.path().to_owned()] {
        let mut backend = load(&given).unwrap_or_else(|error| panic!("{}: {}", given.display(), error.chain()));
        let found: Vec<_> = goldens.prompts.iter().map(|prompt| last_logprobs(backend.as_mut(), prompt)).collect();
        assert!(distance(&found, &model.logprobs, &goldens.shown) <= tolerance("llama"), "{}", given.display());
    }
    std::fs::remove_file(path(3)).expect("the file is there");
    assert_eq!(load(&path(1)).expect_err("the output is in part 3").reason().name(), "MODEL_UNREADABLE");
}

#[test]
fn a_refused_key_or_tensor_is_named() {
    let goldens = goldens();
    let model = &goldens.models["llama"];
    let keys = ["unknown", "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.scaling.finetuned"];
    let tensors = ["output.bias", "rope_factors_long.weight"];
    let names = |case: &Case, name: &str| case.keys.contains_key(name) || case.tensors.contains_key(name);
    let errors = keys.iter().chain(&tensors).flat_map(|name| {
        let cases = goldens.cases.iter().filter(|case| case.model == "llama" && names(case, name));
        cases.filter_map(|case| logprobs(&file("llama", model, Some(case)), &[]).err())
    });
    let mut texts: Vec<String> = errors.map(|error| format!("{}: {}", error.reason().name(), error.chain())).collect();
    texts.dedup();
    error_texts::check_rows("load/gguf", texts);
}
