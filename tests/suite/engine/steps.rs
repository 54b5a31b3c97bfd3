//! The engine: its outputs compared with transformers, the models that it rejects, and requests
//! that share it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gen_svc::load::{self, BackendChoice};
use gen_svc::serve::Server;
use tandem_common::status::Reason;
use tandem_core::cache::{BLOCK, BlockId};
use tandem_core::engine::{Config, DtypeChoice, Engine, Event, FinishReason, Quantize, RuntimeChoice, Summary};
use tandem_core::error::{LoadError, RequestError};
use tandem_core::models::{self, Backend, LogitsFor, SequenceChunk, architectures};
use tandem_core::output::TextSegment;
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::request::{
    GenerateRequest, Input, OutputSpec, PreparedRequest, Returns, SamplingOptions, StopOptions,
};
use tandem_core::weights::quant;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::gguf::GgmlType;
use tandem_tests::{default_model, error_texts, goldens, scramble, wait_until};
use tandem_torch::TorchTarget;
use tch::Kind;
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

/// A block type, the bytes of its block that are the upper halves of floats, and a SHA-256. The
/// digest is of 64 blocks of scrambled bytes, dequantized to f32 with the Python package gguf
/// 0.17.1.
#[rustfmt::skip]
const DEQUANTIZED: &[(GgmlType, &[usize], &str)] = &[
    (GgmlType::F32, &[3], "e2a4344d387bc1015665cc56a58f82cb4b4d6d8d81503ab47b0b5c88c86d00a3"),
    (GgmlType::F16, &[1], "82a8c863b029d6b4167b31fe38de86c7b97211d1f54a9a3d4842cb561a007b30"),
    (GgmlType::BF16, &[1], "15a82ac6de1f9d649ec20601e9939936b2502f12579fae8f8b85c2a36b0bfc3f"),
    (GgmlType::Q4_0, &[1], "0d5162fe6dfc7b3fae984bec0d46e3e19a45804b62ae22aa412d49a1e29bf1b1"),
    (GgmlType::Q4_1, &[1, 3], "fe5c388c200b9cd4dd3213f4d8b80514078afad8694ae4e93074fa1a7622b244"),
    (GgmlType::Q5_0, &[1], "07445a4d3c5b027db0b3c35d64899c7d28c139b8e98e96125177b252bac4047c"),
    (GgmlType::Q5_1, &[1, 3], "1b3eb036b0b2711f45f7f904f693db82e5f839ca416a924ffa850239175a07fb"),
    (GgmlType::Q8_0, &[1], "25053073ff38d0eeaaab0dc69075a3f8d76d3c9f9a2f37a8182bedcdb1876df4"),
    (GgmlType::Q4_K, &[1, 3], "8b3b1a77a7cf67ede1cd142acb8ce0d9de08ba42b8b5013e8353a0716bc4a617"),
    (GgmlType::Q5_K, &[1, 3], "4669020ad0a8b9e0159fcf43e3d97e40bce832db3f5439128a8ec3ee524eba60"),
    (GgmlType::Q6_K, &[209], "0836a98c21c06cdd66eb914b9a8d2db2ac9512f504eedf28798ebb68c241f2a7"),
];

#[test]
fn dequantization_matches_the_reference_bit_for_bit() {
    for (dtype, halves, expected) in DEQUANTIZED {
        let size = dtype.block_bytes() as usize;
        let mut data: Vec<u8> = (0..64 * size as u64).map(|i| scramble(i) as u8).collect();
        for block in data.chunks_exact_mut(size) {
            halves.iter().for_each(|&half| block[half] &= 0xbb); // No infinities, no NaN.
        }
        let values = quant::dequantize(*dtype, &data).expect("a type that is read");
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(hex_sha256(&bytes), *expected, "{dtype}");
    }
}

// ---- a tiny model ----

/// A Llama with E 48, H 4, K 2, D 16, F 80, V 40, two layers and an untied head. Its weights are
/// scrambled numbers in f32.
struct TinyModel {
    strings: BTreeMap<&'static str, String>,
    integers: BTreeMap<&'static str, u32>,
    floats: BTreeMap<&'static str, f32>,
    /// Name, dimensions outermost first, type.
    tensors: Vec<(String, Vec<u64>, u32)>,
}

const F32: u32 = 0;
const I8: u32 = 24;
/// As F32, with the numbers of the embedding table.
const EMBEDDINGS: u32 = 1000;
const VOCABULARY: u64 = 40;

impl TinyModel {
    fn new() -> Self {
        let strings =
            [("general.architecture", "llama"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm")];
        let integers = [
            ("llama.embedding_length", 48),
            ("llama.feed_forward_length", 80),
            ("llama.block_count", 2),
            ("llama.attention.head_count", 4),
            ("llama.attention.head_count_kv", 2),
            ("llama.attention.key_length", 16),
            ("llama.rope.dimension_count", 16),
            ("llama.context_length", 4096),
        ];
        let floats = [("llama.attention.layer_norm_rms_epsilon", 1e-5), ("llama.rope.freq_base", 500.0)];
        let mut tensors = vec![tensor("token_embd", &[VOCABULARY, 48])];
        for layer in 0..2 {
            let parts: [(&str, &[u64]); 9] = [
                ("attn_norm", &[48]),
                ("attn_q", &[64, 48]),
                ("attn_k", &[32, 48]),
                ("attn_v", &[32, 48]),
                ("attn_output", &[48, 64]),
                ("ffn_norm", &[48]),
                ("ffn_gate", &[80, 48]),
                ("ffn_up", &[80, 48]),
                ("ffn_down", &[48, 80]),
            ];
            tensors.extend(parts.map(|(part, dims)| tensor(&format!("blk.{layer}.{part}"), dims)));
        }
        tensors.extend([tensor("output_norm", &[48]), tensor("output", &[VOCABULARY, 48])]);
        Self {
            strings: strings.map(|(key, value)| (key, value.to_owned())).into(),
            integers: integers.into(),
            floats: floats.into(),
            tensors,
        }
    }

    fn integer(mut self, key: &'static str, value: u32) -> Self {
        self.integers.insert(key, value);
        self
    }

    fn string(mut self, key: &'static str, value: &str) -> Self {
        self.strings.insert(key, value.to_owned());
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.integers.remove(key);
        self.tensors.retain(|(name, ..)| name != key);
        self
    }

    fn with(mut self, name: &str, dims: &[u64], dtype: u32) -> Self {
        self.tensors.retain(|(known, ..)| known != name);
        self.tensors.push((name.to_owned(), dims.to_vec(), dtype));
        self
    }

    fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("tiny.gguf");
        std::fs::write(&path, self.bytes()).expect("a file");
        path
    }

    /// Returns the file in the layout of the GGUF specification, version 3.
    fn bytes(&self) -> Vec<u8> {
        let entries = self.strings.len() + self.integers.len() + self.floats.len() + 3;
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((entries as u64).to_le_bytes());
        self.strings.iter().for_each(|(key, value)| entry(&mut out, key, 8, &text(value)));
        self.integers.iter().for_each(|(key, value)| entry(&mut out, key, 4, &value.to_le_bytes()));
        self.floats.iter().for_each(|(key, value)| entry(&mut out, key, 6, &value.to_le_bytes()));
        write_vocabulary(&mut out);
        self.write_tensors(&mut out);
        out
    }

    fn write_tensors(&self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        for (index, (name, dims, dtype)) in self.tensors.iter().enumerate() {
            out.extend(text(name));
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().rev().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(if *dtype == EMBEDDINGS { F32 } else { *dtype }.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            let count = dims.iter().product();
            match *dtype {
                I8 => data.extend(vec![0; count as usize]),
                EMBEDDINGS => data.extend((0..count).flat_map(|i| value(0, i, dims.len()).to_le_bytes())),
                _ => data.extend((0..count).flat_map(|i| value(index, i, dims.len()).to_le_bytes())),
            }
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
    }
}

fn tensor(name: &str, dims: &[u64]) -> (String, Vec<u64>, u32) {
    (format!("{name}.weight"), dims.to_vec(), F32)
}

/// Returns element `i` of the tensor at `index`: from -0.25 to 0.25, and around 1 in a vector.
fn value(index: usize, i: u64, rank: usize) -> f32 {
    let unit = (scramble(((index as u64) << 32) + i) >> 40) as f64 / f64::from(1 << 24);
    ((unit - 0.5) * 0.5 + if rank == 1 { 1.0 } else { 0.0 }) as f32
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn entry(out: &mut Vec<u8>, key: &str, kind: u32, value: &[u8]) {
    out.extend(text(key));
    out.extend(kind.to_le_bytes());
    out.extend(value);
}

/// Writes a vocabulary of one character per token, without merges. Token 39 is a control token, and
/// the eos.
fn write_vocabulary(out: &mut Vec<u8>) {
    let array = |kind: u32, items: Vec<Vec<u8>>| {
        let head = [kind.to_le_bytes().as_slice(), &(items.len() as u64).to_le_bytes()].concat();
        [head, items.concat()].concat()
    };
    let tokens = ('A'..='g').take(39).map(|token| text(&token.to_string())).chain([text("<eos>")]).collect();
    let kinds = (0..VOCABULARY).map(|id| if id == 39 { 3_i32 } else { 1 }.to_le_bytes().to_vec()).collect();
    entry(out, "tokenizer.ggml.tokens", 9, &array(8, tokens));
    entry(out, "tokenizer.ggml.token_type", 9, &array(5, kinds));
    entry(out, "tokenizer.ggml.merges", 9, &array(8, Vec::new()));
}

fn load(path: &Path, dtype: Kind) -> Result<Box<dyn Backend>, LoadError> {
    let artifacts = Artifacts::load(path)?;
    let file = models::open(&artifacts)?;
    let target = TorchTarget { dtype, ..TorchTarget::REFERENCE };
    Ok(load::load(&file, models::describe(&file)?, BackendChoice::Torch(target))?.backend)
}

fn load_tiny(tiny: &TinyModel) -> Result<Box<dyn Backend>, LoadError> {
    let folder = TempDir::new().expect("a temporary folder");
    load(&tiny.write(folder.path()), Kind::Float)
}

/// Returns the logits after every position, V numbers each, computed in chunks of `piece` tokens.
fn logits(model: &mut dyn Backend, ids: &[u32], piece: usize) -> Vec<Vec<f32>> {
    let blocks: Vec<BlockId> = (0..ids.len().div_ceil(BLOCK) as u32).rev().map(BlockId).collect();
    model.allocate(blocks.len() as u32).expect("memory");
    let (mut rows, mut past) = (Vec::new(), 0);
    for tokens in ids.chunks(piece) {
        let run = SequenceChunk {
            chosen: None,
            drafted: 0,
            tokens,
            past,
            blocks: &blocks,
            copy: None,
            logits: LogitsFor::All,
            images: &[],
            positions: None,
        };
        rows.extend(models::logits(model, &[run]).expect("computes"));
        past += tokens.len();
    }
    rows
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert!(found.len() >= expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance, "{what}: logit {i} is {found}, not {expected}");
    }
}

/// A position, and the first logits at it in transformers 5.23 with torch 2.13 in f32. The weights
/// are the same, with the converter's order of q and k undone.
const REFERENCE: [(usize, [f32; 8]); 3] = [
    (0, [1.34693, 0.27433, -0.36219, 0.23145, 0.04176, -0.06351, 0.28136, -1.32543]),
    (11, [-1.09035, 0.4227, -0.88073, 0.31987, -0.23967, -0.11054, 1.09398, 0.52327]),
    (22, [-0.22615, 0.20174, -0.20107, -0.72031, -0.31423, -1.72664, 0.84351, 0.77333]),
];

fn tiny_prompt(length: u32) -> Vec<u32> {
    (0..length).map(|i| (i * 7 + 3) % VOCABULARY as u32).collect()
}

#[test]
fn tiny_llama_logits_match_transformers() {
    let mut model = load_tiny(&TinyModel::new()).expect("loads");
    let rows = logits(model.as_mut(), &tiny_prompt(23), 23);
    for (position, expected) in REFERENCE {
        assert_close(&rows[position], &expected, 2e-5, &format!("position {position}"));
    }
}

/// bf16 has 8 bits: two layers move a logit by a few hundredths.
#[test]
fn bf16_logits_stay_near_f32_logits() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut model = load(&TinyModel::new().write(folder.path()), Kind::BFloat16).expect("loads");
    let rows = logits(model.as_mut(), &tiny_prompt(23), 23);
    for (position, expected) in REFERENCE {
        assert_close(&rows[position], &expected, 0.05, &format!("position {position}"));
    }
}

#[test]
fn chunked_prompt_gives_the_logits_of_the_whole_prompt() {
    let mut model = load_tiny(&TinyModel::new()).expect("loads");
    let prompt = tiny_prompt(600);
    let whole = logits(model.as_mut(), &prompt, 600);
    for piece in [1, 2, 7, 256, 599] {
        for (position, row) in logits(model.as_mut(), &prompt, piece).iter().enumerate() {
            assert_close(row, &whole[position], 1e-4, &format!("pieces of {piece}, position {position}"));
        }
    }
}

#[test]
fn embedding_table_is_the_head_without_an_output_tensor() {
    let mut tied = load_tiny(&TinyModel::new().without("output.weight")).expect("loads");
    let mut untied = load_tiny(&TinyModel::new()).expect("loads");
    let table = TinyModel::new().with("output.weight", &[VOCABULARY, 48], EMBEDDINGS);
    let mut same = load_tiny(&table).expect("loads");
    let prompt = tiny_prompt(3);
    let expected = logits(same.as_mut(), &prompt, 3);
    assert_eq!(logits(tied.as_mut(), &prompt, 3), expected);
    assert_ne!(logits(untied.as_mut(), &prompt, 3), expected);
}

#[test]
fn model_load_is_cancelled_when_the_server_drains() {
    let server = Server::default();
    server.lifecycle().drain();
    let error = server.load(Config::new(default_model()), 1 << 20).expect_err("cancelled");
    assert!(matches!(error, LoadError::Cancelled), "{error}");
    assert_eq!(error.reason(), Reason::Draining);
    error_texts::check("load/cancelled", error);
}

#[test]
fn conflicting_quantize_and_dtype_settings_are_rejected() {
    let mut errors = Vec::new();
    for quantize in [Quantize::Int8, Quantize::Int4, Quantize::Keep] {
        let config = Config { quantize: Some(quantize), dtype: DtypeChoice::Bf16, ..Config::new(default_model()) };
        let error = load::start(config).expect_err("the settings exclude each other");
        assert_eq!(error.reason(), Reason::SettingsConflict, "{error}");
        errors.push(error);
    }
    error_texts::check_rows("load/quantize-dtype", errors);
    let config = Config { quantize: Some(Quantize::None), dtype: DtypeChoice::Bf16, ..Config::new(default_model()) };
    load::start(config).expect("both agree");
}

#[test]
fn unsupported_model_settings_are_rejected_by_name_at_load() {
    let tiny = TinyModel::new;
    let models = [
        tiny().string("llama.rope.scaling.type", "yarn"),
        tiny().with("rope_freqs.weight", &[9], F32),
        tiny().integer("llama.expert_count", 8),
        tiny().integer("llama.rope.dimension_count", 8),
        tiny().integer("llama.attention.head_count_kv", 3),
        tiny().integer("llama.block_count", u32::MAX),
        tiny().integer("llama.attention.head_count", 0),
        tiny().without("llama.embedding_length"),
        tiny().integer("llama.block_count", 3),
        tiny().without("token_embd.weight"),
        tiny().integer("llama.feed_forward_length", 81),
        tiny().with("blk.1.attn_output.weight", &[64, 48], F32),
        tiny().with("blk.1.ffn_up.weight", &[80, 48], I8),
    ];
    let errors = models.iter().map(|tiny| load_tiny(tiny).err().map_or_else(|| "loads".to_owned(), |e| e.chain()));
    error_texts::check_rows("load/unsupported", errors);
}

#[test]
fn unsupported_architecture_error_lists_supported_architectures() {
    let error = load_tiny(&TinyModel::new().string("general.architecture", "mamba")).expect_err("not supported");
    let names: Vec<_> = architectures::names().collect();
    let is_complete = |supported: &String| *supported == names.join(", ");
    assert!(
        matches!(&error, LoadError::UnsupportedArchitecture { supported, .. } if is_complete(supported)),
        "{error}"
    );
    error_texts::check("load/architecture", error.chain().replace(&names.join(", "), "NAMES"));
}

#[test]
fn folder_without_weights_error_names_the_expected_files() {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).expect("a file");
    let error = load(folder.path(), Kind::Float).expect_err("no weights");
    error_texts::check("load/no-weights", error.chain().replace(&folder.path().display().to_string(), "FOLDER"));
}

// ---- the real model ----

/// Returns a greedy request, prepared for an engine.
fn greedy(engine: &Engine, prompt: &[u32], max_new_tokens: u32) -> PreparedRequest {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(max_new_tokens), ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    };
    request.prepare(engine.model()).expect("a valid request")
}

/// An output, joined from its events.
#[derive(Debug)]
struct Answer {
    ids: Vec<u32>,
    reason: FinishReason,
    summary: Summary,
}

/// Reads an output to the end.
fn finish(events: &mut Receiver<Event>) -> Answer {
    let mut outputs = finish_all(events, 1);
    outputs.pop().expect("one")
}

/// Reads `count` outputs to the end.
fn finish_all(events: &mut Receiver<Event>, count: usize) -> Vec<Answer> {
    let mut ids = vec![Vec::new(); count];
    let mut reasons = vec![None; count];
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => ids[delta.output as usize].extend(delta.token_ids),
            Event::Finished(end) => {
                ids[end.last.output as usize].extend(&end.last.token_ids);
                reasons[end.last.output as usize] = Some(end.reason);
            }
            Event::Summary(summary) => {
                let answer = |(ids, reason): (Vec<u32>, Option<FinishReason>)| Answer {
                    ids,
                    reason: reason.expect("each output has ended before the summary"),
                    summary: summary.clone(),
                };
                return ids.into_iter().zip(reasons).map(answer).collect();
            }
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
}

/// Starts the real model with one thread, so that engines of several tests do not compete for
/// cores.
fn real(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config { threads: 1, dtype: DtypeChoice::F32, ..Config::new(default_model()) };
    change(&mut config);
    load::start(config).expect("the model loads").0
}

#[test]
fn batched_token_ids_match_transformers_on_both_backends() {
    for runtime in RuntimeChoice::ALL {
        let engine = real(|config| (config.max_running, config.runtime) = (5, runtime));
        let goldens = goldens();
        let submit = |ids: &[u32]| engine.submit(greedy(&engine, ids, 64), None).expect("room");
        let mut running: Vec<_> = goldens.iter().map(|golden| submit(&golden.prompt_ids)).collect();
        for (golden, events) in goldens.iter().zip(&mut running) {
            let answer = finish(events);
            assert_eq!(answer.ids, golden.greedy_ids, "{}", golden.id);
            assert_eq!(answer.summary.completion_tokens, golden.greedy_ids.len(), "{}", golden.id);
        }
    }
}

#[test]
fn chunked_prompt_token_ids_match_transformers() {
    let engine = real(|config| config.prefill_chunk = 7);
    for golden in goldens().iter().take(4) {
        let mut events = engine.submit(greedy(&engine, &golden.prompt_ids, 64), None).expect("room");
        assert_eq!(finish(&mut events).ids, golden.greedy_ids, "{}", golden.id);
    }
}

#[test]
fn slow_reader_gets_all_segments_of_each_token() {
    let engine = real(|config| config.event_buffer = 3);
    let golden = &goldens()[0];
    let set =
        |letters: &str| MarkerSet { strings: letters.chars().map(String::from).collect(), ..MarkerSet::default() };
    let request = |reasoning| GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(40), ..StopOptions::default() },
        output_spec: OutputSpec { reasoning, ..OutputSpec::default() },
        ..GenerateRequest::new(Input::TokenIds(golden.prompt_ids.clone()))
    };
    let segments = |reasoning: Markers| {
        let work = request(reasoning).prepare(engine.model()).expect("a valid request");
        let mut events = engine.submit(work, None).expect("room");
        std::thread::sleep(Duration::from_millis(500));
        let mut deltas = Vec::new();
        while let Some(event) = events.blocking_recv() {
            match event {
                Event::Delta(delta) => deltas.push(delta.segments),
                Event::Finished(end) => deltas.push(end.last.segments),
                _ => {}
            }
        }
        deltas
    };
    let text =
        |deltas: &[Vec<TextSegment>]| deltas.concat().iter().map(|segment| segment.text.as_str()).collect::<String>();
    let plain = segments(Markers::default());
    let marked = segments(Markers { start: set("rstlnd "), end: set("aeiou") });
    assert_eq!(text(&marked), text(&plain));
    let most = marked.iter().map(Vec::len).max();
    assert!(most >= Some(4), "{most:?} segments at once at most");
}

// ---- requests that share an engine ----

fn tiny(change: impl FnOnce(&mut Config)) -> Engine {
    static FOLDER: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let path = TinyModel::new().write(folder.path());
        (folder, path)
    });
    let mut config = Config { threads: 1, ..Config::new(FOLDER.1.clone()) };
    change(&mut config);
    load::start(config).expect("the tiny model loads").0
}

fn submit(engine: &Engine, tokens: u32, deadline: Option<Instant>) -> Result<Receiver<Event>, RequestError> {
    engine.submit(greedy(engine, &[1, 2, 3], tokens), deadline)
}

fn refusal(events: &mut Receiver<Event>) -> RequestError {
    match events.blocking_recv() {
        Some(Event::Refused(error)) => error,
        other => panic!("{other:?} instead of a refusal"),
    }
}

#[test]
fn slow_reader_delays_no_other_request_and_gets_all_tokens() {
    let engine = tiny(|config| config.event_buffer = 4);
    let mut slow = submit(&engine, 400, None).expect("room");
    let mut quick = submit(&engine, 400, None).expect("room");
    let expected = finish(&mut quick).ids;
    wait_until("only the slow one runs", || engine.gauges().running == 1);
    let answer = finish(&mut slow);
    assert_eq!((answer.ids, answer.reason), (expected, FinishReason::Length));
}

#[test]
fn request_is_cancelled_when_its_reader_stalls() {
    let engine = tiny(|config| {
        config.event_buffer = 4;
        config.reader_patience = Duration::from_millis(100);
    });
    let mut events = submit(&engine, 4000, None).expect("room");
    wait_until("the request is cancelled", || engine.gauges().tokens > 0 && engine.gauges().running == 0);
    let answer = finish(&mut events);
    assert_eq!(answer.reason, FinishReason::Cancelled);
    assert!(answer.ids.len() <= 4, "{} tokens were kept for a stalled reader", answer.ids.len());
}

#[test]
fn dropped_event_receiver_cancels_the_request() {
    let engine = tiny(|_| {});
    let mut events = submit(&engine, 4000, None).expect("room");
    for _ in 0..3 {
        events.blocking_recv().expect("runs");
    }
    drop(events);
    wait_until("nothing runs", || engine.gauges().running == 0);
    let tokens = engine.gauges().tokens;
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(engine.gauges().tokens, tokens);
}

#[test]
fn full_queue_rejects_at_once_and_serves_queued_requests() {
    let engine = tiny(|config| {
        config.max_running = 1;
        config.max_queue = 2;
    });
    let mut running = submit(&engine, 500, None).expect("room");
    wait_until("it runs", || engine.gauges().queued == 0);
    let mut waiting = [submit(&engine, 5, None).expect("room"), submit(&engine, 5, None).expect("room")];
    let refused = submit(&engine, 5, None).expect_err("no room");
    assert!(matches!(refused, RequestError::QueueFull { limit: 2 }), "{refused:?}");
    assert_eq!(finish(&mut running).ids.len(), 500);
    for events in &mut waiting {
        assert_eq!(finish(events).ids.len(), 5);
    }
    assert_eq!(engine.gauges().queued, 0);
}

#[test]
fn deadline_ends_queued_and_running_requests() {
    // A slow engine keeps the first request running.
    let engine = tiny(|config| (config.max_running, config.runtime) = (1, RuntimeChoice::Torch));
    let after = |milliseconds| Some(Instant::now() + Duration::from_millis(milliseconds));
    let mut running = submit(&engine, 4000, after(400)).expect("room");
    let mut waiting = submit(&engine, 5, after(1)).expect("room");
    assert!(matches!(refusal(&mut waiting), RequestError::DeadlineInQueue));
    let answer = finish(&mut running);
    assert!(answer.ids.len() == answer.summary.completion_tokens && answer.ids.len() < 4000);
    assert_eq!(answer.reason, FinishReason::Deadline);
}

#[test]
fn draining_finishes_accepted_requests_and_stopping_cancels_them() {
    let engine = tiny(|config| config.max_running = 1);
    let (mut running, mut waiting) =
        (submit(&engine, 300, None).expect("room"), submit(&engine, 4000, None).expect("room"));
    let mut last = submit(&engine, 5, None).expect("room");
    engine.lifecycle().drain();
    assert!(matches!(submit(&engine, 5, None), Err(RequestError::Draining)));
    assert_eq!(finish(&mut running).reason, FinishReason::Length);
    wait_until("the next one runs", || engine.gauges().queued == 1);
    engine.lifecycle().stop();
    assert_eq!(finish(&mut waiting).reason, FinishReason::Cancelled);
    assert!(matches!(refusal(&mut last), RequestError::Draining));
}

#[test]
fn engine_thread_ends_after_the_last_handle_is_dropped() {
    let folder = TempDir::new().expect("a temporary folder");
    let config = Config { threads: 1, ..Config::new(TinyModel::new().write(folder.path())) };
    let (engine, thread) = load::start(config).expect("loads");
    let mut events = submit(&engine, 20, None).expect("room");
    drop(engine);
    assert_eq!(finish(&mut events).ids.len(), 20, "the running request finishes");
    thread.join().expect("no panic");
}
