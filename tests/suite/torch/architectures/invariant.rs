//! Models whose results must not depend on the other sequences of a step.

use serde_json::json;
use tandem_core::cache::{BlockId, CacheSize};
use tandem_core::models::{self, Backend, LogitsFor, SequenceChunk};
use tandem_tests::binary;

use super::operations::{case, counter};
use super::{INVARIANT, Setup, TORCH_WITH_FLASH, load, of_torch};

/// The sequences of a large batch.
const MANY: usize = 32;
/// The sequences that are computed alone too: the first, the last, and others.
const ALONE: [usize; 4] = [0, 9, 18, 31];
/// The tokens of a sequence after its prompt, one in a step.
const DECODED: usize = 3;
/// The rows of each product.
const ROWS: &str = "[128]";

/// Returns prompts of many lengths.
fn prompts() -> Vec<Vec<u32>> {
    (0..MANY as u32).map(|i| (0..3 + i * 5 % 47).map(|at| (at * 7 + i * 3) % 64).collect()).collect()
}

/// Computes the prompts in one step, and then some tokens of each. Returns the logits of each sequence.
fn logits(model: &mut dyn Backend, prompts: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    let block = model.shape().block;
    let each = prompts.iter().map(|prompt| prompt.len() + DECODED).max().unwrap_or(0).div_ceil(block);
    model.allocate(CacheSize::of_blocks((prompts.len() * each) as u32)).expect("memory");
    let blocks: Vec<BlockId> = (0..(prompts.len() * each) as u32).map(BlockId).collect();
    let mut found = vec![Vec::new(); prompts.len()];
    for step in 0..=DECODED {
        let decoded = [step as u32 * 11 % 64];
        let pairs = prompts.iter().zip(blocks.chunks(each));
        let chunks: Vec<_> = pairs.map(|(prompt, blocks)| chunk(prompt, step, &decoded, blocks)).collect();
        let rows = models::logits(model, &chunks).expect("computes");
        found.iter_mut().zip(rows).for_each(|(found, row)| found.push(row));
    }
    found
}

fn chunk<'a>(prompt: &'a [u32], step: usize, decoded: &'a [u32], blocks: &'a [BlockId]) -> SequenceChunk<'a> {
    let (tokens, past) = if step == 0 { (prompt, 0) } else { (decoded, prompt.len() + step - 1) };
    SequenceChunk {
        tokens,
        chosen: None,
        drafted: 0,
        past,
        is_long: false,
        blocks,
        copy: None,
        states: None,
        logits: LogitsFor::Last,
        images: &[],
        positions: None,
    }
}

/// Without mixtures: on a CPU, libtorch computes a product for each expert, with as many rows as it has.
#[test]
fn logits_of_a_sequence_alone_and_among_32_are_the_same_bits() {
    let prompts = prompts();
    let with_flash = Setup { backend: INVARIANT.backend, ..TORCH_WITH_FLASH };
    let mut different = Vec::new();
    for case in of_torch().filter(|case| !case.tensors.keys().any(|name| name.contains("experts"))) {
        let folder = case.whole(&case.config, "F32");
        for setup in [INVARIANT, with_flash] {
            let mut model = load(folder.path(), setup);
            let together = logits(model.as_mut(), &prompts);
            for number in ALONE {
                let alone = logits(model.as_mut(), &prompts[number..=number]).remove(0);
                let bits =
                    |logits: &[Vec<f32>]| logits.iter().flatten().map(|logit| logit.to_bits()).collect::<Vec<_>>();
                if bits(&alone) != bits(&together[number]) {
                    different.push(format!("{}, {setup:?}, sequence {number}", case.name));
                }
            }
        }
    }
    assert!(different.is_empty(), "{}: {different:#?}", different.len());
}

/// Steps of prompts have more rows than a product, and steps of one sequence fewer.
#[test]
fn products_have_as_many_rows_in_every_step() {
    let counter = counter();
    for case in ["llama", "gemma4", "qwen3_moe"].map(case) {
        let folder = case.whole(&case.config, "F32");
        let has_inputs = case.config["hidden_size_per_layer_input"].as_u64().is_some_and(|size| size > 0);
        for sequences in [1, 40] {
            let greedy = json!({"temperature": 0});
            let embeddings = 1 + usize::from(has_inputs);
            let arguments = ["--batch-invariant"];
            let steps = counter.steps(&binary("gen-svc"), folder.path(), sequences, embeddings, &greedy, &arguments);
            let steps = steps.unwrap_or_else(|error| panic!("{}, {sequences} sequences: {error:#}", case.name));
            let names = || steps.iter().flat_map(|step| step.keys());
            let products: Vec<_> = names().filter(|name| name.starts_with("aten::linear")).collect();
            assert!(!products.is_empty() && products.iter().all(|name| name.ends_with(ROWS)), "{products:?}");
            let grouped: Vec<_> = names().filter(|name| name.starts_with("aten::_grouped_mm")).collect();
            let experts = case.config["num_experts_per_tok"].as_u64().map(|each| format!("[{}]", 128 * each));
            assert_eq!(grouped.is_empty(), experts.is_none());
            assert!(grouped.iter().all(|name| experts.iter().any(|rows| name.ends_with(rows))), "{grouped:?}");
        }
    }
}
