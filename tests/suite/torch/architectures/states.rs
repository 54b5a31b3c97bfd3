//! Models with recurrent states: a state that was saved after any token continues with the same bits,
//! and outputs that lost theirs have transformers' tokens.

use serde_json::json;
use tandem_core::cache::{BLOCK, BlockId, CacheSize, ChunkStates, StateId, StateSave};
use tandem_core::error::LoadError;
use tandem_core::models::{self, Backend, LogitsFor, SequenceChunk};
use tandem_tests::{error_texts, wait_until};

use super::interrupted::resume;
use super::{CASES, Case, KERNELS, TORCH, finish, load, logits, start, submit, try_load, write};

fn with_states() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.has_states())
}

#[test]
fn libtorch_refuses_a_kind_of_layer_by_name() {
    let refusal = |case: &Case| {
        let folder = case.whole(&case.config, "F32");
        let error = try_load(folder.path(), TORCH).map(drop).expect_err("libtorch computes no states");
        assert!(matches!(error, LoadError::PartOfModel { .. }), "{}", error.chain());
        error.to_string()
    };
    error_texts::check_rows("load/part-of-model", with_states().map(refusal).take(1));
}

/// Published folders have the language model in a section, beside the tower of images and layers that draft tokens.
#[test]
fn a_whole_model_has_the_logits_of_its_language_model() {
    for case in with_states() {
        let model_type = case.config["model_type"].as_str().expect("a name");
        let Some(whole) = model_type.strip_suffix("_text") else { continue };
        let folder = case.whole(&case.config, "F32");
        let expected = logits(load(folder.path(), KERNELS).as_mut(), &case.prompts[3]);
        let mut config = json!({"model_type": whole, "text_config": case.config, "vision_config": {"depth": 1}});
        config["vocab_size"] = case.config["vocab_size"].clone();
        config["tie_word_embeddings"] = case.config["tie_word_embeddings"].clone();
        let folder = case.folder(&config);
        let rename = |name: &str| name.replacen("model.", "model.language_model.", 1);
        write(folder.path(), "model.safetensors", case.file(case.tensors.keys(), "F32", rename));
        assert_eq!(bits(&logits(load(folder.path(), KERNELS).as_mut(), &case.prompts[3])), bits(&expected), "{whole}");
    }
}

/// The blocks of two sequences.
const BLOCKS: u32 = 8;

fn chunk<'a>(tokens: &'a [u32], past: usize, blocks: &'a [BlockId], states: ChunkStates<'a>) -> SequenceChunk<'a> {
    SequenceChunk {
        chosen: None,
        drafted: 0,
        tokens,
        past,
        is_long: false,
        blocks,
        copy: None,
        states: Some(states),
        logits: LogitsFor::All,
        images: &[],
        positions: None,
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|logit| logit.to_bits()).collect()
}

/// A state is saved after each of 40 tokens. Keys and values stay in their blocks.
#[test]
fn a_state_saved_after_any_token_continues_with_the_same_logits() {
    for case in with_states() {
        let folder = case.whole(&case.config, "F32");
        let mut model = load(folder.path(), KERNELS);
        let tokens = &case.prompts[3][..40];
        let states = tokens.len() as u32 + 2;
        model.allocate(CacheSize { blocks: BLOCKS, states }).expect("memory");
        let blocks: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK) as u32).map(BlockId).collect();
        let saves: Vec<_> =
            (1..=tokens.len()).map(|tokens| StateSave { tokens, state: StateId(1 + tokens as u32) }).collect();
        let whole = ChunkStates { from: None, to: StateId(0), saves: &saves };
        let expected = models::logits(model.as_mut(), &[chunk(tokens, 0, &blocks, whole)]).expect("computes");
        for StateSave { tokens: past, state } in saves.iter().copied().filter(|save| save.tokens < tokens.len()) {
            for to in [StateId(1), state] {
                let rest = ChunkStates { from: Some(state), to, saves: &[] };
                let found = models::logits(model.as_mut(), &[chunk(&tokens[past..], past, &blocks, rest)]);
                let found = found.expect("computes");
                assert_eq!(bits(&found), bits(&expected[past..]), "{}, after {past} tokens", case.name);
            }
        }
    }
}

#[test]
fn a_state_of_another_position_is_refused() {
    let case = with_states().next().expect("a case");
    let folder = case.whole(&case.config, "F32");
    let mut model = load(folder.path(), KERNELS);
    model.allocate(CacheSize { blocks: BLOCKS, states: 2 }).expect("memory");
    let blocks: Vec<BlockId> = (0..BLOCKS).map(BlockId).collect();
    let step = |model: &mut dyn Backend, tokens: &[u32], past, from| {
        let states = ChunkStates { from, to: StateId(0), saves: &[] };
        models::logits(model, &[chunk(tokens, past, &blocks, states)]).map(drop)
    };
    step(model.as_mut(), &[1, 2, 3], 0, None).expect("computes");
    let own = Some(StateId(0));
    step(model.as_mut(), &[4], 2, own).expect_err("the state has seen three tokens");
    step(model.as_mut(), &[4], 3, Some(StateId(1))).expect_err("the slot has no state");
    step(model.as_mut(), &[4], 3, own).expect("the refused steps changed nothing");
}

/// Prompts in chunks, and a few positions per step, are computed with the bits of whole ones.
#[test]
fn chunks_of_any_size_have_the_same_logits() {
    for case in with_states() {
        let folder = case.whole(&case.config, "F32");
        let mut model = load(folder.path(), KERNELS);
        let tokens = &case.prompts[3];
        let blocks: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK) as u32).map(BlockId).collect();
        let mut in_chunks = |size: usize| {
            model.allocate(CacheSize { blocks: BLOCKS, states: 1 }).expect("memory");
            let mut rows = Vec::new();
            for (i, part) in tokens.chunks(size).enumerate() {
                let from = (i > 0).then_some(StateId(0));
                let states = ChunkStates { from, to: StateId(0), saves: &[] };
                let part = chunk(part, i * size, &blocks, states);
                rows.extend(models::logits(model.as_mut(), &[part]).expect("computes"));
            }
            bits(&rows)
        };
        let whole = in_chunks(tokens.len());
        for size in [1, 2, 3, 7, 16, 31] {
            assert_eq!(in_chunks(size), whole, "{}, chunks of {size}", case.name);
        }
    }
}

#[test]
fn resumed_outputs_have_transformers_tokens() {
    for case in with_states() {
        let folder = case.whole(&case.config, "F32");
        let engine = start(folder.path().to_owned(), |_| {});
        let outputs = || case.prompts.iter().zip(&case.greedy).zip([1, 15, 16, 17, 63]);
        let running: Vec<_> = outputs().map(|((prompt, ids), cut)| resume(&engine, prompt, &ids[..cut])).collect();
        for (events, ((_, ids), cut)) in running.into_iter().zip(outputs()) {
            assert_eq!(finish(events).0, ids[cut..], "{}, after {cut} tokens", case.name);
        }
    }
}

/// There is memory for 16 blocks, of which each output needs 5 to 8, and for three states.
#[test]
fn preempted_outputs_have_transformers_tokens() {
    for case in with_states() {
        let folder = case.whole(&case.config, "F32");
        let shape = load(folder.path(), KERNELS).shape();
        let memory = 16 * shape.block_bytes + 3 * shape.state_bytes;
        let engine = start(folder.path().to_owned(), |config| {
            (config.kv_memory, config.event_buffer) = (Some(memory), 1000);
        });
        let outputs = || case.prompts.iter().zip(&case.greedy).cycle().take(2 * case.prompts.len());
        let running: Vec<_> = outputs().map(|(prompt, _)| submit(&engine, prompt)).collect();
        for (events, (prompt, ids)) in running.into_iter().zip(outputs()) {
            assert_eq!(&finish(events).0, ids, "{}, {} tokens", case.name, prompt.len());
        }
        wait_until("all states are free again", || engine.gauges().states.held == 0);
    }
}
