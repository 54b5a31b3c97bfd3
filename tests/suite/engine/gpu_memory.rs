//! The division of a GPU's memory. The numbers of a GPU are made up here.

use std::sync::{Arc, Mutex};

use clap::{CommandFactory as _, Parser as _};
use gen_svc::args::{Args, Command};
use gen_svc::cache::Usage;
use gen_svc::device::DeviceMemory;
use gen_svc::engine::{Config, EngineLimits, GpuMemory, GpuState, warm_up};
use gen_svc::error::Error;
use gen_svc::models::{LogitsFor, Model, SequenceChunk};
use tandem_common::pb::generate::v1 as pb;
use tandem_tests::{default_model, error_texts};
use tandem_tests_full::faulty_model::{FaultyModel, OUT_OF_MEMORY};
use tandem_tests_full::served_model::served_model;

const GIB: u64 = 1 << 30;

fn gpu(free: u64, total: u64, share: f64) -> GpuMemory {
    GpuMemory { device: "cuda:0".to_owned(), share, memory: DeviceMemory { free: free * GIB, total: total * GIB } }
}

#[test]
fn used_memory_counts_against_the_share() {
    assert_eq!(gpu(80, 80, 0.5).left(), 40 * GIB);
    assert_eq!(gpu(60, 80, 0.5).left(), 20 * GIB);
    assert_eq!(gpu(80, 80, 1.0).left(), 80 * GIB);
    assert_eq!(gpu(30, 80, 0.5).left(), 0, "other processes use more than the share");
}

#[test]
fn a_loaded_model_has_the_card_its_memory_and_its_blocks() {
    let state = GpuState {
        device: "cuda:1".to_owned(),
        name: "A card".to_owned(),
        memory: DeviceMemory { free: 3 * GIB, total: 80 * GIB },
        layers: 14,
        kv_bytes: 50 * GIB,
        kv_blocks: Usage { total: 900, held: 70, kept: 20, positions: 256 },
    };
    let expected = pb::Gpu {
        device: "cuda:1".to_owned(),
        name: "A card".to_owned(),
        free_memory_bytes: 3 * GIB,
        memory_bytes: 80 * GIB,
        layers: 14,
        kv_bytes: 50 * GIB,
        kv_blocks: 900,
        held_kv_blocks: 70,
    };
    assert_eq!(pb::Gpu::from(state), expected);
}

#[test]
fn weights_that_do_not_fit_are_refused_with_the_numbers() {
    let gpu = gpu(70, 80, 0.75);
    gpu.require(50 * GIB).expect("the weights fit");
    let error = gpu.require(50 * GIB + 1).expect_err("the weights do not fit");
    let (expected_needed, expected_available) = (50 * GIB + 1, 50 * GIB);
    assert!(
        matches!(error, Error::GpuMemory { needed, available, .. } if (needed, available) == (expected_needed, expected_available)),
        "{error:?}"
    );
    error_texts::check("load/gpu-memory", error);
}

#[test]
fn the_share_is_above_zero_and_at_most_one() {
    let parse = |share: &str| Args::try_parse_from(["gen-svc", "serve", "--model", "m", "--gpu-memory", share]);
    for share in ["0", "-0.1", "1.01", "NaN", "inf", "many"] {
        assert!(parse(share).is_err(), "{share}");
    }
    let config = |share| match parse(share).expect("a share").command {
        Command::Serve(serve) => Config::from(serve.engine),
        other => panic!("{other:?}"),
    };
    assert_eq!((config("0.35").gpu_memory, config("1").gpu_memory), (0.35, 1.0));
    assert_eq!(Config::new(default_model()).gpu_memory, 0.9);
}

#[test]
fn a_gpu_has_defaults_of_its_own() {
    let sizes = |arguments: &[&str]| {
        let command = ["gen-svc", "serve", "--model", "m"].into_iter().chain(arguments.iter().copied());
        match Args::try_parse_from(command).expect("arguments").command {
            Command::Serve(serve) => {
                let config = Config::from(serve.engine);
                (config.max_running, config.prefill_chunk)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sizes(&[]), (64, 512));
    assert_eq!(sizes(&["--device", "cuda:1"]), (128, 2048));
    assert_eq!(sizes(&["--device", "cuda", "--max-running", "7", "--prefill-chunk", "9"]), (7, 9));
    let help = Args::command().find_subcommand("serve").expect("it exists").clone().render_long_help().to_string();
    let stated: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for default in ["[default: 64, on a GPU 128]", "[default: 512, on a GPU 2048]", "[default: false, on a GPU true]"] {
        assert!(stated.contains(default), "{default}");
    }
}

const LIMITS: EngineLimits = EngineLimits {
    max_queue: 1,
    max_running: 5,
    prefill_chunk: 40,
    max_decodes: usize::MAX,
    max_shared_decodes: usize::MAX,
    max_shared_prompt_tokens: usize::MAX,
    overlaps_steps: false,
    max_priority: 0,
};

#[test]
fn the_memory_is_measured_after_a_step_of_the_largest_shapes() {
    let largest = [1, 1, 1, 1, 40];
    // The rows of an overlapped step are kept while the next one is computed.
    for (overlaps_steps, expected) in [(false, vec![largest]), (true, vec![largest; 2])] {
        let steps = Arc::<Mutex<Vec<Vec<usize>>>>::default();
        let log = Arc::clone(&steps);
        let (mut model, _) = FaultyModel::boxed(&served_model(), move |chunks: &[SequenceChunk<'_>]| {
            assert!(chunks.iter().all(|chunk| chunk.logits == LogitsFor::Last));
            let has_room = |chunk: &SequenceChunk<'_>| chunk.tokens.len() <= chunk.blocks.len() * gen_svc::cache::BLOCK;
            assert!(chunks.iter().all(has_room));
            log.lock().expect("no panic").push(chunks.iter().map(|chunk| chunk.tokens.len()).collect());
            None
        });
        warm_up(model.as_mut(), EngineLimits { overlaps_steps, ..LIMITS }).expect("it computes");
        assert_eq!(*steps.lock().expect("no panic"), expected);
    }
    // The sampler's workspace is part of it.
    let mut on_device: Box<dyn Model> = FaultyModel::sound(&served_model(), true);
    warm_up(on_device.as_mut(), LIMITS).expect("it computes");
}

#[test]
fn a_largest_step_without_memory_is_an_error() {
    let (mut model, _) = FaultyModel::boxed(&served_model(), |_| Some(OUT_OF_MEMORY));
    let error = warm_up(model.as_mut(), LIMITS).expect_err("it does not fit");
    assert!(error.chain().contains("Tried to allocate 2.00 GiB"), "{}", error.chain());
}
