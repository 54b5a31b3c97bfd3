//! Models whose layers are divided among devices. All devices are the CPU here, so that the results are those
//! of one device to the bit.

use std::ops::Range;
use std::path::Path;
use std::thread;

use tandem_core::answer::{Event, Token};
use tandem_core::cache::{BLOCK, BlockCopy, BlockId, CacheSize};
use tandem_core::engine::{Config, DtypeChoice, Engine};
use tandem_core::error::LoadError;
use tandem_core::models::{self, Backend, LogitsFor, SequenceChunk};
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tokio::sync::mpsc::Receiver;

use super::{CASES, Case, Setup, TORCH, TORCH_WITH_FLASH, device_list, finish, load, of_torch, start, try_load};

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("a case")
}

// ---- steps ----

/// A sequence's next tokens in a step.
struct Turn<'a> {
    tokens: &'a [u32],
    past: usize,
    blocks: &'a [BlockId],
    copy: Option<BlockCopy>,
}

impl<'a> Turn<'a> {
    fn chunk(&self) -> SequenceChunk<'a> {
        let Self { tokens, past, blocks, copy } = *self;
        SequenceChunk {
            tokens,
            chosen: None,
            drafted: 0,
            past,
            is_long: false,
            blocks,
            copy,
            states: None,
            logits: LogitsFor::All,
            images: &[],
            positions: None,
        }
    }
}

fn turn<'a>(tokens: &'a [u32], past: usize, blocks: &'a [BlockId]) -> Turn<'a> {
    Turn { tokens, past, blocks, copy: None }
}

/// Computes one step. Returns the logits after every token.
fn step(model: &mut dyn Backend, turns: &[Turn<'_>]) -> Vec<Vec<f32>> {
    models::logits(model, &turns.iter().map(Turn::chunk).collect::<Vec<_>>()).expect("computes")
}

/// Computes prompts in chunks beside sequences in decode, and two prompts with the first positions of
/// another one. These are in a shared block if it has no others, and else copied. Returns all logits.
fn mixed(model: &mut dyn Backend, prompts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    model.allocate(CacheSize::of_blocks(16)).expect("memory");
    let blocks = |range: Range<u32>| -> Vec<BlockId> { range.map(BlockId).collect() };
    let (a, b, shared, copied) =
        (blocks(0..4), blocks(4..8), [&[BlockId(4)], &blocks(8..12)[..]].concat(), blocks(12..16));
    let copy = |to: &[BlockId], positions| Some(BlockCopy { from: b[0], to: to[0], positions });
    let [short, other, long] = [&prompts[1], &prompts[2], &prompts[3]];
    let third = match model.shape().block {
        BLOCK => turn(&other[..9], BLOCK, &shared),
        _ => Turn { copy: copy(&shared[1..], BLOCK), ..turn(&other[..9], BLOCK, &shared[1..]) },
    };
    let fourth = Turn { copy: copy(&copied, 5), ..turn(&other[3..14], 5, &copied) };
    let decodes = [(short.len() + 1, &a[..]), (long.len(), &b), (BLOCK + 9, third.blocks), (16, &copied)];
    let decodes = decodes.map(|(past, blocks)| turn(&[11], past, blocks));
    let steps = [
        &[turn(short, 0, &a), turn(&long[..BLOCK], 0, &b)][..],
        &[turn(&long[BLOCK..], BLOCK, &b), turn(&[7], short.len(), &a), third, fourth],
        &decodes,
    ];
    steps.into_iter().flat_map(|turns| step(model, turns)).collect()
}

/// A model whose last layers use the keys of the second divides into two parts only.
#[test]
fn steps_have_the_same_logits_on_several_devices() {
    for case in of_torch() {
        let folder = case.whole(&case.config, "F32");
        for setup in [TORCH, TORCH_WITH_FLASH] {
            let expected = mixed(load(folder.path(), setup).as_mut(), &case.prompts);
            for devices in [2, 3] {
                let what = format!("{}, {devices} devices, {setup:?}", case.name);
                match try_load(folder.path(), Setup { devices, ..setup }) {
                    Ok(mut model) => assert_same(&mixed(model.as_mut(), &case.prompts), &expected, &what),
                    Err(LoadError::TooManyDevices { devices: 3, limit: 2 }) => {
                        assert_eq!(case.name, "gemma4_shared_pairs");
                    }
                    Err(error) => panic!("{what}: {}", error.chain()),
                }
            }
        }
    }
}

#[track_caller]
fn assert_same(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: rows");
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{what}, row {row}");
    }
}

#[test]
fn the_parts_of_a_model_have_its_layers_and_blocks() {
    let case = case("gemma3");
    let folder = case.whole(&case.config, "F32");
    let [whole, divided] = [1, 3].map(|devices| load(folder.path(), Setup { devices, ..TORCH }));
    let parts = divided.device_parts();
    let layers = case.config["num_hidden_layers"].as_u64().expect("a number");
    assert_eq!((whole.device_parts().len(), parts.len()), (1, 3));
    assert_eq!(parts.iter().map(|part| part.layers as u64).sum::<u64>(), layers);
    assert_eq!(parts.iter().map(|part| part.block_bytes).sum::<u64>(), whole.shape().block_bytes);
    assert_eq!(divided.shape(), whole.shape());
}

// ---- through the engine ----

const TWO: &str = "cpu-torch,cpu-torch";

/// Starts an engine that computes with libtorch.
fn torch(path: &Path, devices: &str, change: impl Fn(&mut Config)) -> Engine {
    start(path.to_owned(), |config| {
        (config.devices, config.dtype) = (device_list(devices), DtypeChoice::F32);
        change(config);
    })
}

/// Runs a request alone. Its tokens are drawn, with penalties.
fn sampled(engine: &Engine, prompt: &[u32]) -> Vec<Token> {
    let sampling = SamplingOptions {
        temperature: Some(0.8),
        top_p: Some(0.9),
        repetition_penalty: Some(1.1),
        seed: Some(5),
        ..SamplingOptions::default()
    };
    let request = GenerateRequest {
        sampling,
        stop: StopOptions { max_new_tokens: Some(24), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { logprobs: Some(4), ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    };
    let mut events = engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room");
    let mut tokens = Vec::new();
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Delta(delta) => tokens.extend(delta.tokens),
            Event::Finished(end) => tokens.extend(end.last.tokens),
            Event::Accepted(_) | Event::PromptLogprobs(_) | Event::Summary(_) => {}
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
    tokens
}

/// One request after the other, in chunks, so that all runs have the same steps. The second time, parts of
/// the prompts are cached.
#[test]
fn tokens_and_log_probabilities_are_those_of_one_device() {
    for case in ["llama", "llama3_rope", "qwen3_moe", "gemma3", "gemma4", "gemma4_shared_pairs"].map(case) {
        let folder = case.whole(&case.config, "F32");
        for overlaps in [false, true] {
            let outputs = |devices| {
                let engine = torch(folder.path(), devices, |config| {
                    (config.prefill_chunk, config.overlap_steps) = (16, Some(overlaps));
                });
                let prompts = [&case.prompts[3], &case.prompts[2], &case.prompts[3]];
                prompts.map(|prompt| sampled(&engine, prompt))
            };
            let expected = outputs("cpu-torch");
            assert!(expected.iter().all(|tokens| tokens.len() == 24), "{}", case.name);
            let lists =
                if case.name == "gemma4_shared_pairs" { &[TWO][..] } else { &[TWO, "cpu-torch,cpu-torch,cpu-torch"] };
            for devices in lists {
                assert_eq!(outputs(devices), expected, "{}, {devices}, overlap: {overlaps}", case.name);
            }
        }
    }
}

fn long_request(engine: &Engine, which: u32) -> Receiver<Event> {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(100), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds((0..20 + 4 * which).map(|i| (i * 5 + which) % 64).collect()))
    };
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// There is memory for 16 blocks of 16 positions, and each output needs 8 or more.
#[test]
fn outputs_that_compete_for_memory_are_those_of_one_device() {
    for case in ["llama", "gemma4"].map(case) {
        let folder = case.whole(&case.config, "F32");
        let block_bytes = load(folder.path(), TORCH).shape().block_bytes;
        let outputs = |engine: &Engine| {
            let running = (0..5).map(|which| long_request(engine, which));
            // All are read at the same time: an output that is not read waits, so that it does not compete.
            let readers: Vec<_> = running.map(|events| thread::spawn(|| finish(events).0)).collect();
            readers.into_iter().map(|reader| reader.join().expect("no panic")).collect::<Vec<_>>()
        };
        let expected = outputs(&torch(folder.path(), "cpu-torch", |_| {}));
        for overlaps in [false, true] {
            let engine = torch(folder.path(), TWO, |config| {
                (config.kv_memory, config.overlap_steps) = (Some(16 * block_bytes), Some(overlaps));
            });
            assert_eq!(outputs(&engine), expected, "{}, overlap: {overlaps}", case.name);
            assert!(engine.gauges().preemptions > 0, "{}, overlap {overlaps}: {:?}", case.name, engine.gauges());
        }
    }
}
