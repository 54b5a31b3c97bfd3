//! The operations that a decode step asks of libtorch: as many for 64 sequences as for one.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;

use serde_json::{Value, json};
use tandem_tests::{binary, repository};
use tandem_tests_full::operations::{Counter, Operations};

use super::{CASES, Case, of_torch};

/// The most operations of a layer of Llama's shape.
const LAYER: u32 = 18;

/// Returns the first model of each architecture. Later ones differ in numbers only.
fn architectures() -> impl Iterator<Item = &'static Case> {
    let mut seen = BTreeSet::new();
    of_torch().filter(move |case| seen.insert(case.config["model_type"].to_string()))
}

pub(super) fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no model {name}"))
}

pub(super) fn counter() -> Counter {
    let libtorch = env::var_os("LIBTORCH").map_or_else(|| repository().join(".tandem/libtorch"), PathBuf::from);
    Counter::compile(&libtorch).expect("a counter")
}

/// Packed experts of few sequences are unpacked for their rows alone, and of more sequences for all.
#[test]
fn a_step_with_packed_experts_reads_no_number() {
    let (counter, case) = (counter(), case("qwen3_moe"));
    let folder = case.whole(&case.config, "F32");
    for quantize in ["int8", "int4"] {
        let steps = [1, 3, 7, 12].map(|sequences| {
            let arguments = ["--quantize", quantize];
            let greedy = json!({"temperature": 0});
            let step = counter.step(&binary("gen-svc"), folder.path(), sequences, 1, &greedy, &arguments);
            let step = step.unwrap_or_else(|error| panic!("{quantize}, {sequences} sequences: {error:#}"));
            assert_eq!(step.get("download"), Some(&1), "{quantize}, {sequences} sequences: {step:?}");
            assert!(!step.contains_key("aten::item"), "{quantize}, {sequences} sequences: {step:?}");
            step
        });
        assert_eq!(steps[0], steps[1], "{quantize}, fewer rows than experts");
        assert_eq!(steps[2], steps[3], "{quantize}, more rows than experts");
    }
}

fn decode_step(counter: &Counter, case: &Case, config: &Value, sequences: usize) -> Operations {
    let folder = case.whole(config, "F32");
    // Inputs of each layer have another table of embeddings.
    let has_inputs = config["hidden_size_per_layer_input"].as_u64().is_some_and(|size| size > 0);
    let step = counter.decode_step(&binary("gen-svc"), folder.path(), sequences, 1 + usize::from(has_inputs));
    step.unwrap_or_else(|error| panic!("{}, {sequences} sequences: {error:#}", case.name))
}

#[test]
fn a_step_of_64_sequences_asks_for_as_many_operations_as_a_step_of_one() {
    let counter = counter();
    for case in architectures() {
        let [one, many] = [1, 64].map(|sequences| decode_step(&counter, case, &case.config, sequences));
        assert_eq!(one, many, "{}", case.name);
    }
}

/// Steps of greedy outputs, and of outputs that use every part of the sampler. Their penalties have counts
/// on the device.
#[test]
fn a_step_has_one_upload_and_one_download() {
    let counter = counter();
    let every = json!({
        "temperature": 0.8, "seed": 5, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1,
        "frequency_penalty": 0.2, "logit_bias": {"3": 2.0}, "min_new_tokens": 24,
    });
    for case in ["llama", "gemma2", "gemma4", "qwen3_moe"].map(case) {
        let folder = case.whole(&case.config, "F32");
        let has_inputs = case.config["hidden_size_per_layer_input"].as_u64().is_some_and(|size| size > 0);
        for (settings, overlaps) in
            [(json!({"temperature": 0}), "true"), (every.clone(), "false"), (every.clone(), "true")]
        {
            let arguments = ["--overlap-steps", overlaps];
            let gen_svc = binary("gen-svc");
            let step = counter.step(&gen_svc, folder.path(), 7, 1 + usize::from(has_inputs), &settings, &arguments);
            let step = step.unwrap_or_else(|error| panic!("{}: {error:#}", case.name));
            assert_eq!(copies(&step), [1, 1], "{}, {settings}, overlap: {overlaps}: {step:?}", case.name);
            assert!(!step.contains_key("aten::item"), "{}, a number is read: {step:?}", case.name);
        }
    }
}

/// Returns the uploads and the downloads of a step.
fn copies(step: &Operations) -> [u32; 2] {
    ["upload", "download"].map(|name| step.get(name).copied().unwrap_or(0))
}

/// A copy between devices counts as a download. The hidden states are copied between neighbours, the inputs
/// of layers to each device but the first, and tokens that the host does not know to the first.
#[test]
fn a_step_on_several_devices_has_one_upload_for_each() {
    let counter = counter();
    for (case, devices) in [("llama", 2), ("llama", 3), ("gemma4", 2)] {
        let case = self::case(case);
        let folder = case.whole(&case.config, "F32");
        let inputs = u32::from(case.name == "gemma4");
        for overlaps in [false, true] {
            let list = vec!["cpu-torch"; devices as usize].join(",");
            let overlap = overlaps.to_string();
            let arguments = ["--device", list.as_str(), "--overlap-steps", overlap.as_str()];
            let settings = json!({"temperature": 0});
            let gen_svc = binary("gen-svc");
            let step = counter.step(&gen_svc, folder.path(), 7, 1 + inputs as usize, &settings, &arguments);
            let step = step.unwrap_or_else(|error| panic!("{}: {error:#}", case.name));
            let between = (devices - 1) * (1 + inputs) + u32::from(overlaps);
            assert_eq!(copies(&step), [devices, 1 + between], "{}, {list}, overlap: {overlaps}: {step:?}", case.name);
            assert!(!step.contains_key("aten::item"), "{}, a number is read: {step:?}", case.name);
        }
    }
}

#[test]
fn a_layer_of_llama_asks_for_few_operations() {
    let (counter, case) = (counter(), case("llama"));
    let layers = case.config["num_hidden_layers"].as_u64().expect("a number");
    let count = |layers: u64| {
        let mut config = case.config.clone();
        config["num_hidden_layers"] = layers.into();
        decode_step(&counter, case, &config, 8).values().sum::<u32>()
    };
    let per_layer = count(layers) - count(layers - 1);
    assert!((1..=LAYER).contains(&per_layer), "{per_layer} operations");
}

#[test]
fn a_step_asks_for_as_many_operations_with_fewer_experts() {
    let counter = counter();
    let text = std::fs::read_to_string(repository().join("tests/golden/architectures.json")).expect("the goldens");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    let mut cases: Vec<Case> = serde_json::from_value(file["cases"].take()).expect("cases");
    let case = cases.iter_mut().find(|case| case.name == "qwen3_moe").expect("a case");
    let before = decode_step(&counter, case, &case.config, 8);
    let count = case.config["num_local_experts"].as_u64().expect("a number") / 2;
    case.config["num_local_experts"] = count.into();
    case.tensors
        .iter_mut()
        .filter(|(name, _)| name.ends_with("mlp.gate.weight"))
        .for_each(|(_, shape)| shape[0] = count as usize);
    assert_eq!(decode_step(&counter, case, &case.config, 8), before);
}
