//! The engine: its outputs compared with transformers, the models that it rejects, and requests
//! that share it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gen_svc::load::{self, WithoutLibrary};
use gen_svc::serve::Server;
use tandem_common::status::Reason;
use tandem_core::answer::{Event, FinishReason};
use tandem_core::engine::{Config, DtypeChoice, Engine, Quantize};
use tandem_core::error::{LoadError, RequestError};
use tandem_core::models::{self, architectures};
use tandem_core::output::TextSegment;
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::request::{GenerateRequest, Input, OutputSpec, SamplingOptions, StopOptions};
use tandem_core::weights::quant;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::gguf::GgmlType;
use tandem_tests::answers::{finish, greedy};
use tandem_tests::tiny_llama::{F32, I8, TinyLlama};
use tandem_tests::{default_model, error_texts, goldens, repository, scramble, wait_until};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

/// A block type, the bytes of its block that are the upper halves of floats, and a SHA-256. The
/// digest is of 64 blocks of scrambled bytes, dequantized to f32 with the Python package gguf
/// 0.19.0.
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
    (GgmlType::Q3_K, &[109], "b1af84ad4dd6a98ac5b91e07340d6b1ea587c5abc05485b280bf6234ce07e025"),
    (GgmlType::IQ4_NL, &[1], "988355fe9f54b9d1418fb03981ecfc7a218aedd5fde7ce5197c024cebaf5c1fc"),
    (GgmlType::IQ4_XS, &[1], "63144b6282939e7a82226c13645af3905d50cbd9d2a5a2a121d5a26ca31c07bc"),
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

#[test]
fn model_load_is_cancelled_when_the_server_drains() {
    let server = Server::default();
    server.lifecycle().drain();
    let error = server.load(Config::new(default_model()), &WithoutLibrary, 1 << 20).expect_err("cancelled");
    assert!(matches!(error, LoadError::Cancelled), "{error}");
    assert_eq!(error.reason(), Reason::Draining);
    error_texts::check("load/cancelled", error);
}

#[test]
fn conflicting_quantize_and_dtype_settings_are_rejected() {
    let mut errors = Vec::new();
    for quantize in [Quantize::Int8, Quantize::Int4, Quantize::Keep] {
        let config = Config { quantize: Some(quantize), dtype: DtypeChoice::Bf16, ..Config::new(default_model()) };
        let error = load::start(config, &WithoutLibrary).expect_err("the settings exclude each other");
        assert_eq!(error.reason(), Reason::SettingsConflict, "{error}");
        errors.push(error);
    }
    error_texts::check_rows("load/quantize-dtype", errors);
    let config = Config { quantize: Some(Quantize::None), dtype: DtypeChoice::Bf16, ..Config::new(default_model()) };
    load::start(config, &WithoutLibrary).expect("both agree");
}

/// Returns the error of a model that cannot be loaded.
fn refused(path: &Path) -> Option<LoadError> {
    Artifacts::load(path)
        .map_err(LoadError::from)
        .and_then(|artifacts| models::describe(&models::open(&artifacts)?))
        .err()
}

fn refused_tiny(tiny: &TinyLlama) -> Option<LoadError> {
    let folder = TempDir::new().expect("a temporary folder");
    refused(&tiny.write(folder.path()))
}

#[test]
fn unsupported_model_settings_are_rejected_by_name_at_load() {
    let tiny = TinyLlama::new;
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
        tiny().with("blk.0.attn_qkv.weight", &[128, 48], F32),
        tiny().without("blk.1.attn_q.weight").with("blk.1.attn_qkv.weight", &[128, 48], F32),
    ];
    let errors = models.iter().map(|tiny| refused_tiny(tiny).map_or_else(|| "loads".to_owned(), |e| e.chain()));
    error_texts::check_rows("load/unsupported", errors);
}

#[test]
fn unsupported_architecture_error_lists_supported_architectures() {
    let error = refused_tiny(&TinyLlama::new().string("general.architecture", "mamba")).expect("not supported");
    let LoadError::UnsupportedArchitecture { supported, .. } = &error else { panic!("{error}") };
    let listed: Vec<_> = supported.split(", ").collect();
    assert!(listed.is_sorted() && listed.iter().all(|name| architectures::names().any(|known| known == *name)));
    let left_out: Vec<_> = architectures::names().filter(|name| !listed.contains(name)).collect();
    assert_eq!(
        left_out,
        ["qwen3_5_text", "qwen3_5_moe_text", "gemma3_text", "gemma4_text", "qwen2_5_vl_text", "qwen3_vl_text"]
    );
    error_texts::check("load/architecture", error.chain().replace(supported, "NAMES"));
}

/// Returns the error of a folder with these files.
fn refused_folder(files: &[(&str, &str)]) -> String {
    let folder = TempDir::new().expect("a temporary folder");
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).expect("a file"));
    let error = refused(folder.path()).expect("it is refused");
    format!("{}: {}", error.reason().name(), error.chain()).replace(&folder.path().display().to_string(), "FOLDER")
}

#[test]
fn an_unsupported_architecture_is_named_before_other_faults() {
    let config = r#"{"model_type": "mamba2", "hidden_size": Infinity, "quantization_config": {"quant_method": "awq"}}"#;
    let error = refused_folder(&[("config.json", config), ("generation_config.json", r#"{"temperature": -1}"#)]);
    assert!(
        error.starts_with("MODEL_UNSUPPORTED: architecture \"mamba2\" is not supported; these are: gemma2, "),
        "{error}"
    );
}

/// The KV cache is too small, which is known once the weights are loaded.
#[test]
fn a_missing_tokenizer_is_named_before_the_weights_are_loaded() {
    let (model, folder) = (repository().join("tests/contract/model"), TempDir::new().expect("a temporary folder"));
    let copy = |name: &str| std::fs::copy(model.join(name), folder.path().join(name)).expect("a file");
    let error = || {
        let config = Config { kv_memory: Some(1), ..Config::new(folder.path().to_owned()) };
        load::start(config, &WithoutLibrary).expect_err("it is refused").chain()
    };
    copy("config.json");
    copy("model.safetensors");
    assert!(error().contains("tokenizer.json"), "{}", error());
    copy("tokenizer.json");
    assert!(error().contains("kv-memory"), "{}", error());
}

#[test]
fn weights_that_cannot_be_read_are_named_with_a_remedy() {
    let config = r#"{"model_type": "llama"}"#;
    let index = r#"{"weight_map": {"a": "absent.safetensors"}}"#;
    let errors = [
        refused_folder(&[("config.json", config), ("pytorch_model.bin", "")]),
        refused_folder(&[
            ("config.json", config),
            ("pytorch_model-00002-of-00002.bin", ""),
            ("pytorch_model-00001-of-00002.bin", ""),
            ("pytorch_model.bin.index.json", index),
        ]),
    ];
    error_texts::check_rows("load/pickled", errors);
    let error = refused(Path::new("Qwen/Qwen3-0.6B")).expect("it is no path");
    error_texts::check("load/repository", error.chain());
}

#[test]
fn folder_without_weights_error_names_the_expected_files() {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).expect("a file");
    let error = refused(folder.path()).expect("no weights");
    error_texts::check("load/no-weights", error.chain().replace(&folder.path().display().to_string(), "FOLDER"));
}

// ---- the real model ----

/// Starts the real model with one thread, so that engines of several tests do not compete for
/// cores.
fn real(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config { threads: 1, dtype: DtypeChoice::F32, ..Config::new(default_model()) };
    change(&mut config);
    load::start(config, &WithoutLibrary).expect("the model loads").0
}

#[test]
fn batched_token_ids_match_transformers() {
    let engine = real(|config| config.max_running = 5);
    let goldens = goldens();
    let submit = |ids: &[u32]| engine.submit(greedy(&engine, ids, 64), None).expect("room");
    let mut running: Vec<_> = goldens.iter().map(|golden| submit(&golden.prompt_ids)).collect();
    for (golden, events) in goldens.iter().zip(&mut running) {
        let answer = finish(events);
        assert_eq!(answer.ids, golden.greedy_ids, "{}", golden.id);
        assert_eq!(answer.summary.completion_tokens, golden.greedy_ids.len(), "{}", golden.id);
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
        let path = TinyLlama::new().write(folder.path());
        (folder, path)
    });
    let mut config = Config { threads: 1, ..Config::new(FOLDER.1.clone()) };
    change(&mut config);
    load::start(config, &WithoutLibrary).expect("the tiny model loads").0
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
    // A large model keeps the first request running.
    let engine = real(|config| config.max_running = 1);
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
    let config = Config { threads: 1, ..Config::new(TinyLlama::new().write(folder.path())) };
    let (engine, thread) = load::start(config, &WithoutLibrary).expect("loads");
    let mut events = submit(&engine, 20, None).expect("room");
    drop(engine);
    assert_eq!(finish(&mut events).ids.len(), 20, "the running request finishes");
    thread.join().expect("no panic");
}
