//! Models whose attention is flash attention over blocks of 256 positions, emulated.

use std::thread;

use tandem_core::answer::Event;
use tandem_core::cache::BLOCK;
use tandem_core::engine::{Config, DeviceChoice, DtypeChoice, Engine};
use tandem_core::models::ModelShape;
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, ServedModel, StopOptions};
use tandem_tests::served_model::served_model;
use tandem_tests_full::backend::BackendChoice;
use tandem_tests_full::flash::{EXACT, STRICT};
use tandem_torch::{FLASH_BLOCK, FlashCall, FlashOperation, TorchTarget};
use tch::{Kind, TchError, Tensor};
use tokio::sync::mpsc::Receiver;

use super::{CASES, Case, Setup, TORCH, TORCH_WITH_FLASH, assert_answers, finish, load, logits, of_torch};

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("a case")
}

// ---- the choice ----

/// Returns the positions of a block of a model that libtorch computes.
fn block(name: &str, dtype: Kind, flash: FlashOperation) -> usize {
    let case = case(name);
    let backend = BackendChoice::Torch(TorchTarget { dtype, ..TorchTarget::REFERENCE });
    load(case.whole(&case.config, "F32").path(), Setup { backend, flash: Some(flash), ..TORCH }).shape().block
}

/// Computes nothing.
fn idle(call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    Tensor::f_zeros([call.query.size()[1], call.query.size()[0]], (Kind::Float, call.query.device()))
}

fn failing(_call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    Err(TchError::Torch("no kernel for this device".into()))
}

fn without_windows(call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    (EXACT.call)(&FlashCall { window_left: call.window_left.map(|_| call.max_k), ..*call })
}

#[test]
fn an_operation_that_fails_or_computes_wrong_results_is_not_used() {
    assert_eq!(block("llama", Kind::BFloat16, STRICT), FLASH_BLOCK);
    assert_eq!(block("llama", Kind::Float, STRICT), BLOCK, "the dtype is not served");
    assert_eq!(block("gemma2", Kind::BFloat16, STRICT), BLOCK, "scores have a bound");
    for call in [idle, failing, without_windows] {
        assert_eq!(block("llama", Kind::BFloat16, FlashOperation { call, ..STRICT }), BLOCK);
    }
}

// ---- results ----

/// Starts an engine with a model that uses flash attention.
fn start(path: &std::path::Path, change: impl Fn(&mut Config)) -> Engine {
    let mut config = Config { kv_memory: Some(256 << 20), ..Config::new(path.to_owned()) };
    change(&mut config);
    let load = |config: &Config| {
        tch::set_num_threads(1);
        let model = load(&config.model, TORCH_WITH_FLASH);
        let ModelShape { vocabulary: vocabulary_size, context: context_length, .. } = model.shape();
        Ok((ServedModel { vocabulary_size, context_length, ..served_model() }, model))
    };
    Engine::start_with(config, load).expect("starts").0
}

/// Runs all prompts at once, twice. The second time, parts of blocks are copied.
#[test]
fn batches_and_chunks_match_transformers_tokens() {
    for case in of_torch() {
        let folder = case.whole(&case.config, "F32");
        for (chunk, overlaps) in [(512, false), (512, true), (7, false), (7, true)] {
            let engine = start(folder.path(), |config| {
                (config.prefill_chunk, config.overlap_steps) = (chunk, Some(overlaps));
            });
            assert_answers(case, &engine, &format!("chunks of {chunk}, overlap: {overlaps}"));
        }
    }
}

/// Positions in several blocks, with and without windows.
#[test]
fn long_prompts_have_the_logits_of_buckets() {
    for case in ["llama", "qwen2_windows", "gemma3", "smollm3", "gemma4_shared_pairs"].map(case) {
        let folder = case.whole(&case.config, "F32");
        let prompt: Vec<u32> = (0..600).map(|i| (i * 7 + i / 50) % 64).collect();
        let [found, expected] =
            [TORCH_WITH_FLASH, TORCH].map(|setup| logits(load(folder.path(), setup).as_mut(), &prompt));
        for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let distance = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(distance <= 1e-4, "{}, position {position}: {distance}", case.name);
        }
    }
}

fn long_request(engine: &Engine, which: u32) -> Receiver<Event> {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(460), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds((0..20 + 4 * which).map(|i| (i * 5 + which) % 64).collect()))
    };
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// There is memory for five blocks. Three sequences start. Each needs two blocks for its last 200 tokens
/// and more, so that they compete even if the later requests arrive late.
#[test]
fn outputs_that_compete_for_memory_are_those_of_buckets() {
    let case = case("llama");
    let folder = case.whole(&case.config, "F32");
    let block_bytes = load(folder.path(), TORCH_WITH_FLASH).shape().block_bytes;
    let outputs = |engine: &Engine| {
        let running = (0..5).map(|which| long_request(engine, which));
        // All are read at the same time: an output that is not read waits, so that it does not compete.
        let readers: Vec<_> = running.map(|events| thread::spawn(|| finish(events).0)).collect();
        readers.into_iter().map(|reader| reader.join().expect("no panic")).collect::<Vec<_>>()
    };
    let buckets = super::start(folder.path().to_owned(), |config| {
        (config.devices, config.dtype) = (DeviceChoice::CpuTorch.into(), DtypeChoice::F32);
    });
    let expected = outputs(&buckets);
    for overlaps in [false, true] {
        let flash = start(folder.path(), |config| {
            (config.kv_memory, config.overlap_steps) = (Some(5 * block_bytes), Some(overlaps));
        });
        assert_eq!(outputs(&flash), expected, "overlap: {overlaps}");
        assert!(flash.gauges().preemptions > 0, "overlap {overlaps}: {:?}", flash.gauges());
    }
}

/// bf16 has 8 bits: some layers move a logit by a few hundredths.
#[test]
fn bf16_logits_are_as_near_as_those_of_buckets() {
    for case in of_torch().filter(|case| !case.name.starts_with("gemma4")) {
        let folder = case.whole(&case.config, "F32");
        let backend = BackendChoice::Torch(TorchTarget { dtype: Kind::BFloat16, ..TorchTarget::REFERENCE });
        let setup = Setup { backend, flash: Some(STRICT), ..TORCH };
        super::assert_near(case, folder.path(), setup, 0.25, "flash in bf16");
    }
}
