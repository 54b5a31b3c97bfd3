//! A tiny Llama, and the default model, compared with transformers.

use std::path::Path;

use gen_svc::load::{self};
use tandem_core::cache::{BLOCK, BlockId, CacheSize};
use tandem_core::engine::{Config, DeviceChoice, DtypeChoice};
use tandem_core::error::LoadError;
use tandem_core::models::{self, Backend, LogitsFor, SequenceChunk};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::answers::{finish, greedy};
use tandem_tests::tiny_llama::{EMBEDDINGS, TinyLlama, VOCABULARY};
use tandem_tests::{default_model, goldens};
use tandem_tests_full::backend::{self, BackendChoice};
use tandem_torch::{Libtorch, TorchTarget};
use tch::Kind;
use tempfile::TempDir;

fn load(path: &Path, dtype: Kind) -> Result<Box<dyn Backend>, LoadError> {
    let artifacts = Artifacts::load(path)?;
    let file = models::open(&artifacts)?;
    let target = TorchTarget { dtype, ..TorchTarget::REFERENCE };
    Ok(backend::load(&file, models::describe(&file)?, BackendChoice::Torch(target))?.backend)
}

fn load_tiny(tiny: &TinyLlama) -> Result<Box<dyn Backend>, LoadError> {
    let folder = TempDir::new().expect("a temporary folder");
    load(&tiny.write(folder.path()), Kind::Float)
}

/// Returns the logits after every position, V numbers each, computed in chunks of `piece` tokens.
fn logits(model: &mut dyn Backend, ids: &[u32], piece: usize) -> Vec<Vec<f32>> {
    let blocks: Vec<BlockId> = (0..ids.len().div_ceil(BLOCK) as u32).rev().map(BlockId).collect();
    model.allocate(CacheSize::of_blocks(blocks.len() as u32)).expect("memory");
    let (mut rows, mut past) = (Vec::new(), 0);
    for tokens in ids.chunks(piece) {
        let run = SequenceChunk {
            chosen: None,
            drafted: 0,
            tokens,
            past,
            is_long: false,
            blocks: &blocks,
            copy: None,
            states: None,
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
    let mut model = load_tiny(&TinyLlama::new()).expect("loads");
    let rows = logits(model.as_mut(), &tiny_prompt(23), 23);
    for (position, expected) in REFERENCE {
        assert_close(&rows[position], &expected, 2e-5, &format!("position {position}"));
    }
}

/// bf16 has 8 bits: two layers move a logit by a few hundredths.
#[test]
fn bf16_logits_stay_near_f32_logits() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut model = load(&TinyLlama::new().write(folder.path()), Kind::BFloat16).expect("loads");
    let rows = logits(model.as_mut(), &tiny_prompt(23), 23);
    for (position, expected) in REFERENCE {
        assert_close(&rows[position], &expected, 0.05, &format!("position {position}"));
    }
}

#[test]
fn chunked_prompt_gives_the_logits_of_the_whole_prompt() {
    let mut model = load_tiny(&TinyLlama::new()).expect("loads");
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
    let mut tied = load_tiny(&TinyLlama::new().without("output.weight")).expect("loads");
    let mut untied = load_tiny(&TinyLlama::new()).expect("loads");
    let table = TinyLlama::new().with("output.weight", &[VOCABULARY, 48], EMBEDDINGS);
    let mut same = load_tiny(&table).expect("loads");
    let prompt = tiny_prompt(3);
    let expected = logits(same.as_mut(), &prompt, 3);
    assert_eq!(logits(tied.as_mut(), &prompt, 3), expected);
    assert_ne!(logits(untied.as_mut(), &prompt, 3), expected);
}

#[test]
fn batched_token_ids_match_transformers() {
    let config = Config {
        threads: 1,
        dtype: DtypeChoice::F32,
        devices: DeviceChoice::CpuTorch.into(),
        max_running: 5,
        ..Config::new(default_model())
    };
    let engine = load::start(config, &Libtorch).expect("the model loads").0;
    let goldens = goldens();
    let submit = |ids: &[u32]| engine.submit(greedy(&engine, ids, 64), None).expect("room");
    let mut running: Vec<_> = goldens.iter().map(|golden| submit(&golden.prompt_ids)).collect();
    for (golden, events) in goldens.iter().zip(&mut running) {
        assert_eq!(finish(events).ids, golden.greedy_ids, "{}", golden.id);
    }
}
