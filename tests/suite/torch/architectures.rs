//! Every architecture compared with transformers. Both sides compute the weights of tiny models
//! from a seed (`golden/make_architectures.py`). The models are loaded as real ones are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gen_svc::load;
use serde::Deserialize;
use serde_json::{Value, json};
use tandem_core::answer::Event;
use tandem_core::cache::{BLOCK, BlockId, CacheSize, ChunkStates, StateId};
use tandem_core::engine::{Config, DeviceChoice, DeviceList, DtypeChoice, Engine};
use tandem_core::error::LoadError;
use tandem_core::models::{self, Backend, LogitsFor, Precision, SequenceChunk, architectures};
use tandem_core::request::{GenerateRequest, Input, Resume, Returns, SamplingOptions, StopOptions};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::{repository, scramble};
use tandem_tests_full::backend::{self, BackendChoice};
use tandem_tests_full::flash::EXACT;
use tandem_torch::{Costs, FlashOperation, Libtorch, Placement, TorchTarget};
use tch::{Device, Kind};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

mod converted;
mod devices;
mod experts;
mod flash;
mod gguf;
mod images;
mod interrupted;
mod invariant;
mod keys;
mod launches;
mod operations;
mod prompts;
mod quantized;
mod states;
mod text_only;

use gguf::GgufFacts;

/// A tiny model with transformers' results.
#[derive(Debug, Clone, Deserialize)]
struct Case {
    name: String,
    seed: u64,
    /// The config as transformers 5 writes it.
    config: Value,
    /// The config as transformers 4 wrote it.
    older_config: Value,
    /// The GGUF file, if GGUF can express the case.
    gguf: Option<GgufFacts>,
    /// The mean of the weights of norms.
    norms_around: f32,
    /// The tensors' shapes, by their names in a checkpoint.
    tensors: BTreeMap<String, Vec<usize>>,
    prompts: Vec<Vec<u32>>,
    /// Positions in the fourth prompt.
    positions: Vec<usize>,
    /// The first logits at each of the positions.
    logits: Vec<Vec<f32>>,
    /// The 64 greedy tokens after each prompt.
    greedy: Vec<Vec<u32>>,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(repository().join("tests/golden/architectures.json")).expect("the goldens");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(file["cases"].take()).expect("cases")
});

/// Returns the models that libtorch computes.
fn of_torch() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| !case.has_states())
}

// ---- weights ----

/// The means of tensors other than norms, by the end of the name.
const MEANS: [(&str, f32); 3] = [("layer_scalar", 1.0), ("linear_attn.norm.weight", 1.0), ("A_log", -3.0)];
/// The steps of some tensors, 1 over this, by the end of the name. Those of others are 1/128.
const STEPS: [(&str, f32); 2] = [("conv1d.weight", 32.0), ("A_log", 64.0)];

/// Returns the 64-bit FNV-1a hash.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Case {
    /// Returns true if the model has recurrent states. libtorch does not compute it then.
    fn has_states(&self) -> bool {
        self.tensors.keys().any(|name| name.contains("linear_attn"))
    }

    /// Returns the setups that compute the model.
    fn setups(&self) -> impl Iterator<Item = Setup> {
        let has_states = self.has_states();
        SETUPS.into_iter().filter(move |setup| !has_states || matches!(setup.backend, BackendChoice::Cpu { .. }))
    }

    /// Returns a tensor's numbers: multiples of a step, which f16 and bf16 represent exactly.
    fn weights(&self, name: &str) -> Vec<f32> {
        let shape = &self.tensors[name];
        let is_norm = shape.len() == 1 && name.ends_with(".weight");
        let around = match MEANS.iter().find(|(end, _)| name.ends_with(end)) {
            Some((_, mean)) => *mean,
            None if is_norm => self.norms_around,
            None => 0.0,
        };
        let step = STEPS.iter().find(|(end, _)| name.ends_with(end)).map_or(128.0, |(_, step)| *step);
        let start = fnv(&format!("{}:{name}", self.seed));
        let count = shape.iter().product::<usize>() as u64;
        let number = |i: u64| ((scramble(start.wrapping_add(i)) >> 58) as f32 - 32.0) / step;
        (0..count).map(|i| around + number(i)).collect()
    }

    /// Returns a safetensors file of some of the tensors, under new names.
    fn file<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
        dtype: &str,
        rename: impl Fn(&str) -> String,
    ) -> Vec<u8> {
        self.file_of(names, dtype, rename, |name| self.weights(name))
    }

    /// As [`file`](Self::file), with other numbers.
    fn file_of<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
        dtype: &str,
        rename: impl Fn(&str) -> String,
        weights: impl Fn(&str) -> Vec<f32>,
    ) -> Vec<u8> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for name in names {
            let begin = data.len();
            weights(name).into_iter().for_each(|value| data.extend(encode(value, dtype)));
            let entry = json!({"dtype": dtype, "shape": self.tensors[name], "data_offsets": [begin, data.len()]});
            header.insert(rename(name), entry);
        }
        let header = Value::Object(header).to_string();
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
    }

    /// Makes a folder with every file of the model except its weights.
    fn folder(&self, config: &Value) -> TempDir {
        let folder = TempDir::new().expect("a temporary folder");
        let vocabulary = config["vocab_size"].as_u64().expect("a size") as u32;
        let token = |id: u32| char::from_u32(0x4e00 + id).expect("a letter").to_string();
        let vocabulary: BTreeMap<String, u32> = (0..vocabulary).map(|id| (token(id), id)).collect();
        let tokenizer = json!({"version": "1.0", "model": {"type": "BPE", "vocab": vocabulary, "merges": []}});
        write(folder.path(), "tokenizer.json", tokenizer.to_string());
        write(folder.path(), "config.json", config.to_string());
        folder
    }

    /// Makes a folder with all weights in one file. A config with fewer layers or experts has fewer weights.
    fn whole(&self, config: &Value, dtype: &str) -> TempDir {
        let folder = self.folder(config);
        let counts = [("layers", "num_hidden_layers"), ("experts", "num_local_experts")];
        let is_kept = |name: &&String| {
            let parts: Vec<_> = name.split('.').collect();
            let is_within = |pair: &[&str], (list, count): (&str, &str)| {
                let index = pair[1].parse::<u64>().ok().filter(|_| pair[0] == list);
                index.zip(config[count].as_u64()).is_none_or(|(index, count)| index < count)
            };
            parts.windows(2).all(|pair| counts.iter().all(|count| is_within(pair, *count)))
        };
        let names = self.tensors.keys().filter(is_kept);
        write(folder.path(), "model.safetensors", self.file(names, dtype, str::to_owned));
        folder
    }

    /// Makes a folder with the weights in three files and an index.
    fn sharded(&self) -> TempDir {
        let folder = self.folder(&self.config);
        let mut files = serde_json::Map::new();
        for part in 0..3 {
            let name = format!("model-0000{}-of-00003.safetensors", part + 1);
            let tensors: Vec<_> = self.tensors.keys().skip(part).step_by(3).collect();
            tensors.iter().for_each(|tensor| drop(files.insert((*tensor).clone(), json!(name))));
            write(folder.path(), &name, self.file(tensors.into_iter(), "F32", str::to_owned));
        }
        let index = json!({"metadata": {"total_size": 0}, "weight_map": files});
        write(folder.path(), "model.safetensors.index.json", index.to_string());
        folder
    }
}

fn encode(value: f32, dtype: &str) -> Vec<u8> {
    match dtype {
        "F32" => value.to_le_bytes().to_vec(),
        "BF16" => value.to_le_bytes()[2..].to_vec(),
        _ => half(value).to_le_bytes().to_vec(),
    }
}

/// Converts a number to f16. The number must be normal and exactly representable.
fn half(value: f32) -> u16 {
    if value == 0.0 {
        return 0;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 255) - 112;
    (bits >> 16 & 0x8000 | exponent << 10 | bits >> 13 & 1023) as u16
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(folder.join(name), bytes).expect("a file");
}

/// Models with images have the golden models of their language models.
#[test]
fn every_architecture_has_a_golden_model() {
    let golden = CASES.iter().map(|case| case.older_config["model_type"].as_str().expect("a name"));
    let golden: Vec<_> = golden.chain(images::MODELS.iter().map(|model| model.name)).collect();
    for name in architectures::names() {
        let text = format!("{name}_text");
        assert!(
            golden.contains(&name) || golden.contains(&&*text),
            "golden/make_architectures.py has no case for {name}"
        );
    }
}

/// Some folders of unquantized weights have the settings of quantized ones.
#[test]
fn plain_weights_load_although_the_config_says_that_they_are_quantized() {
    let case = &CASES[0];
    let mut config = case.config.clone();
    config["quantization_config"] = json!({"quant_method": "awq", "bits": 4});
    let folder = case.whole(&config, "F32");
    let artifacts = Artifacts::load(folder.path()).expect("a model");
    models::describe(&models::open(&artifacts).expect("weights")).expect("every tensor is as the config implies");
}

// ---- logits ----

/// A backend, the flash attention that it may use, and the number of devices that share the layers.
#[derive(Debug, Clone, Copy)]
struct Setup {
    backend: BackendChoice,
    flash: Option<FlashOperation>,
    devices: usize,
}

const TORCH: Setup = Setup { backend: BackendChoice::Torch(TorchTarget::REFERENCE), flash: None, devices: 1 };
const TORCH_WITH_FLASH: Setup = Setup { flash: Some(EXACT), ..TORCH };
const TORCH_DIVIDED: Setup = Setup { devices: 2, ..TORCH };
const KERNELS: Setup = Setup { backend: BackendChoice::Cpu { precision: Precision::F32, threads: 2 }, ..TORCH };

/// Results do not depend on the other sequences of a step.
const INVARIANT: Setup =
    Setup { backend: BackendChoice::Torch(TorchTarget { batch_invariant: true, ..TorchTarget::REFERENCE }), ..TORCH };

/// Those whose results are compared with the goldens.
const SETUPS: [Setup; 5] = [TORCH, TORCH_WITH_FLASH, TORCH_DIVIDED, INVARIANT, KERNELS];

fn load(path: &Path, setup: Setup) -> Box<dyn Backend> {
    try_load(path, setup).unwrap_or_else(|error| panic!("{}: {}", path.display(), error.chain()))
}

/// Loads a model. All of its devices are the CPU.
fn try_load(path: &Path, Setup { backend, flash, devices }: Setup) -> Result<Box<dyn Backend>, LoadError> {
    let artifacts = Artifacts::load(path).expect("artifacts");
    let file = models::open(&artifacts)?;
    let decoder = models::describe(&file)?;
    let costs = Costs::of(&decoder, TorchTarget::REFERENCE);
    let placement = Placement::divide(&costs, &vec![(Device::Cpu, 1 << 40); devices])?;
    match backend {
        BackendChoice::Torch(target) => tandem_torch::load::load(&file, decoder, target, &placement, flash),
        BackendChoice::Cpu { .. } => Ok(backend::load(&file, decoder, backend)?.backend),
    }
}

/// Returns the logits after every position.
fn logits(model: &mut dyn Backend, tokens: &[u32]) -> Vec<Vec<f32>> {
    let blocks: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK) as u32).rev().map(BlockId).collect();
    model.allocate(CacheSize { blocks: blocks.len() as u32, states: 1 }).expect("memory");
    let has_states = model.shape().state_bytes > 0;
    let chunk = SequenceChunk {
        chosen: None,
        drafted: 0,
        tokens,
        past: 0,
        is_long: model.long_after().is_some_and(|after| tokens.len() > after),
        blocks: &blocks,
        copy: None,
        states: has_states.then_some(ChunkStates { from: None, to: StateId(0), saves: &[] }),
        logits: LogitsFor::All,
        images: &[],
        positions: None,
    };
    models::logits(model, &[chunk]).expect("computes")
}

#[track_caller]
fn assert_logits(case: &Case, path: &Path, what: &str) {
    case.setups().for_each(|setup| assert_near(case, path, setup, 3e-5, what));
}

#[track_caller]
fn assert_near(case: &Case, path: &Path, setup: Setup, tolerance: f32, what: &str) {
    let rows = logits(load(path, setup).as_mut(), &case.prompts[3]);
    for (position, expected) in case.positions.iter().zip(&case.logits) {
        for (i, (found, expected)) in rows[*position].iter().zip(expected).enumerate() {
            let place = format!("{}, {setup:?}, {what}, position {position}, logit {i}", case.name);
            assert!((found - expected).abs() <= tolerance, "{place}: {found} instead of {expected}");
        }
    }
}

#[test]
fn logits_match_transformers() {
    for case in CASES.iter() {
        assert_logits(case, case.whole(&case.config, "F32").path(), "config of transformers 5");
        assert_logits(case, case.whole(&case.older_config, "F32").path(), "config of transformers 4");
    }
}

#[test]
fn sharded_and_half_precision_files_give_the_same_logits() {
    for case in CASES.iter() {
        assert_logits(case, case.sharded().path(), "in parts");
        assert_logits(case, case.whole(&case.config, "BF16").path(), "bf16");
        assert_logits(case, case.whole(&case.config, "F16").path(), "f16");
    }
}

/// f16 has 11 bits, and a smaller range.
#[test]
fn f16_logits_stay_near_f32_logits() {
    for case in of_torch() {
        let backend = BackendChoice::Torch(TorchTarget { dtype: Kind::Half, ..TorchTarget::REFERENCE });
        let tolerance = if case.name.starts_with("gemma4") { 0.1 } else { 0.05 };
        let setup = Setup { backend, ..TORCH };
        assert_near(case, case.whole(&case.config, "F32").path(), setup, tolerance, "computed in f16");
    }
}

/// bf16 has 8 bits: some layers move a logit by a few hundredths. Gemma 4 does not scale attention
/// scores: transformers' own bf16 logits of these models differ by up to 0.28 from its f32 logits.
#[test]
fn bf16_logits_stay_near_f32_logits() {
    for case in CASES.iter() {
        let torch = BackendChoice::Torch(TorchTarget { dtype: Kind::BFloat16, ..TorchTarget::REFERENCE });
        let backends = [BackendChoice::Cpu { precision: Precision::Bf16, threads: 2 }, torch];
        for backend in backends.into_iter().take(if case.has_states() { 1 } else { 2 }) {
            let tolerance = if case.name.starts_with("gemma4") { 0.5 } else { 0.25 };
            let setup = Setup { backend, ..TORCH };
            assert_near(case, case.whole(&case.config, "F32").path(), setup, tolerance, "computed in bf16");
        }
    }
}

/// Returns values that are invalid for every setting, or valid only for another setting.
fn strange() -> Vec<Value> {
    let numbers =
        ["-1", "0", "1", "3", "0.5", "1e-40", "1e300", "65536", "16777216", "4294967296", "18446744073709551616"];
    let mut values: Vec<Value> = numbers.iter().map(|number| serde_json::from_str(number).expect("a number")).collect();
    values.extend([
        json!(null),
        json!(true),
        json!("x"),
        json!([]),
        json!([0, -1]),
        json!({}),
        json!({"rope_type": "longrope"}),
    ]);
    values
}

/// Returns every config with one changed value.
fn changed(config: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for (name, value) in config.as_object().expect("an object") {
        let inner = if value.is_object() { changed(value) } else { Vec::new() };
        for new in strange().into_iter().chain(inner) {
            let mut config = config.clone();
            config[name] = new;
            all.push(config);
        }
    }
    all
}

#[test]
fn changed_config_setting_loads_or_returns_a_model_error() {
    for (case, config) in CASES.iter().flat_map(|case| [(case, &case.config), (case, &case.older_config)]) {
        let folder = case.whole(config, "BF16");
        for config in changed(config) {
            write(folder.path(), "config.json", config.to_string());
            let artifacts = Artifacts::load(folder.path()).expect("artifacts");
            if let Err(error) = models::open(&artifacts).and_then(|file| models::describe(&file)) {
                let reasons = ["MODEL_UNSUPPORTED", "MODEL_UNREADABLE", "MODEL_INCOMPLETE"];
                assert!(reasons.contains(&error.reason().name()), "{}, {config}: {}", case.name, error.chain());
            }
        }
    }
}

/// Changes every byte of a header.
#[test]
fn corrupt_gguf_header_loads_or_returns_an_error() {
    let folder = TempDir::new().expect("a temporary folder");
    for name in ["llama_linear_rope_and_biases", "gemma3", "phi3_longrope", "qwen3_moe", "qwen3_5", "qwen3_next"] {
        let case = CASES.iter().find(|case| case.name == name).expect("a case");
        let path = case.write_gguf(folder.path());
        let sound = std::fs::read(&path).expect("the file");
        for (place, change) in (0..2048).zip(0_u64..) {
            let mut bytes = sound.clone();
            bytes[place] = scramble(change) as u8;
            std::fs::write(&path, &bytes).expect("a file");
            let described =
                Artifacts::load(&path).map_err(LoadError::from).and_then(|artifacts| models::open(&artifacts));
            drop(described.and_then(|file| models::describe(&file)));
        }
    }
}

/// A sparse file: its tensors have the size in its header, which is larger than any memory.
#[test]
fn weights_larger_than_memory_are_rejected_before_reading() {
    let case = CASES.iter().find(|case| case.name == "llama3_rope").expect("a case");
    let mut config = case.config.clone();
    (config["vocab_size"], config["hidden_size"], config["head_dim"]) =
        (json!(1 << 24), json!(1 << 16), json!(1 << 14));
    let folder = case.folder(&case.config);
    write(folder.path(), "config.json", config.to_string());
    let enlarged = |dim: &usize| match dim {
        160 => 1 << 24,
        64 => 1 << 16,
        32 => 1 << 15,
        dim => *dim as u64,
    };
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, dims) in &case.tensors {
        let (begin, dims) = (end, dims.iter().map(enlarged).collect::<Vec<u64>>());
        end += 2 * dims.iter().product::<u64>();
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": dims, "data_offsets": [begin, end]}));
    }
    let header = Value::Object(header).to_string();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).expect("a file");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    if file.set_len(8 + header.len() as u64 + end).is_err() {
        return; // The file system does not support files of this size.
    }
    let error = load::start(Config::new(folder.path().to_owned()), &Libtorch).expect_err("too large");
    assert_eq!(error.reason().name(), "MEMORY_TOO_SMALL", "{}", error.chain());
}

// ---- through the engine ----

fn start(path: PathBuf, change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config { threads: 1, kv_memory: Some(8 << 20), ..Config::new(path) };
    change(&mut config);
    load::start(config, &Libtorch).expect("the model loads").0
}

fn greedy_request(prompt: &[u32]) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(64), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    }
}

fn submit(engine: &Engine, prompt: &[u32]) -> Receiver<Event> {
    let request = greedy_request(prompt);
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// Returns the tokens of an output, and the number of its prompt's tokens that were cached.
fn finish(mut events: Receiver<Event>) -> (Vec<u32>, usize) {
    let mut ids = Vec::new();
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => ids.extend(delta.token_ids),
            Event::Finished(end) => ids.extend(end.last.token_ids),
            Event::Summary(summary) => return (ids, summary.cached_tokens),
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
}

/// Runs all prompts at once, twice. The second time, whole blocks of the prompts are cached.
#[track_caller]
fn assert_greedy(case: &Case, path: &Path, change: impl Fn(&mut Config), what: &str) {
    let alone = ["cpu", "cpu-torch"].map(|devices| (devices, None));
    let overlapping = ["cpu-torch", "cpu-torch,cpu-torch"].map(|devices| (devices, Some(true)));
    let all = alone.into_iter().chain(overlapping);
    for (devices, overlaps) in all.filter(|(devices, _)| !case.has_states() || *devices == "cpu") {
        let engine = start(path.to_owned(), |config| {
            (config.dtype, config.overlap_steps) = (DtypeChoice::F32, overlaps);
            config.devices = device_list(devices);
            change(config);
        });
        assert_answers(case, &engine, &format!("{what}, {devices}, overlap: {overlaps:?}"));
    }
}

fn device_list(text: &str) -> DeviceList {
    text.parse().expect("devices")
}

#[track_caller]
fn assert_answers(case: &Case, engine: &Engine, what: &str) {
    for again in [false, true] {
        let running: Vec<_> = case.prompts.iter().map(|prompt| submit(engine, prompt)).collect();
        for ((events, prompt), expected) in running.into_iter().zip(&case.prompts).zip(&case.greedy) {
            let (ids, cached) = finish(events);
            assert_eq!(&ids, expected, "{}, {what}, {} tokens, again: {again}", case.name, prompt.len());
            assert_eq!(cached, if again { (prompt.len() - 1) / BLOCK * BLOCK } else { 0 }, "{}", case.name);
        }
    }
}

#[test]
fn mixed_length_batches_match_transformers_tokens() {
    for case in CASES.iter() {
        let folder = case.whole(&case.config, "F32");
        assert_greedy(case, folder.path(), |_| {}, "whole prompts");
    }
}

#[test]
fn chunked_prompts_match_transformers_tokens() {
    for case in CASES.iter() {
        let folder = case.whole(&case.config, "F32");
        assert_greedy(case, folder.path(), |config| config.prefill_chunk = 7, "chunks of 7");
    }
}

/// The rotations of all tokens change with the 41st.
#[test]
fn an_output_that_becomes_long_is_resumed_with_the_same_tokens() {
    let case = CASES.iter().find(|case| case.name == "phi3_longrope_crossed").expect("a case");
    let folder = case.whole(&case.config, "F32");
    for device in DeviceChoice::PROCESSORS {
        let engine = start(folder.path().to_owned(), |config| {
            (config.devices, config.dtype) = (device.into(), DtypeChoice::F32);
        });
        let (prompt, expected) = (&case.prompts[2], &case.greedy[2]);
        for done in [1, 6, 7, 8, 9, 20] {
            let mut request = greedy_request(&[prompt, &expected[..done]].concat());
            request.resume = Some(Resume { generated_tokens: done as u32, output_index: 0, token_ids: Vec::new() });
            let request = request.prepare(engine.model()).expect("a valid request");
            let (ids, _) = finish(engine.submit(request, None).expect("room"));
            assert_eq!(ids, expected[done..], "{device}, resumed after {done} tokens");
        }
    }
}

/// Writes the files to the folder TANDEM_KEEP, if set: `golden/check_architectures.py` compares
/// them with llama.cpp.
#[test]
fn gguf_models_match_transformers() {
    let temporary = TempDir::new().expect("a temporary folder");
    let kept = std::env::var_os("TANDEM_KEEP").map(PathBuf::from);
    for case in CASES.iter().filter(|case| case.gguf.is_some()) {
        let path = case.write_gguf(kept.as_deref().unwrap_or(temporary.path()));
        assert_logits(case, &path, "GGUF");
        assert_greedy(case, &path, |config| config.prefill_chunk = 16, "GGUF");
    }
}
