//! Steps of the largest shapes, after which libtorch has taken the memory that steps need.

use tch::Tensor;

use super::config::EngineLimits;
use crate::cache::BlockId;
use crate::device::upload::Upload;
use crate::error::Error;
use crate::models::{DeviceRows, Logits, LogitsFor, Model, ModelShape, SequenceChunk};
use crate::sampling::Sampling;
use crate::sampling::device::{DeviceSampler, Draw, History, RowPlan, TokenPlan};

/// The likeliest tokens of each row, as many as a request may ask for.
const LOGPROBS: usize = 20;

/// Runs a step with a whole chunk of a prompt and a token of every other sequence that may run. Its KV
/// cache has room for this step only. If steps overlap, runs two: the rows of logits of a step are kept
/// while the next one is computed.
///
/// # Errors
/// The backend's: the step exceeds the device's memory.
pub fn run(model: &mut dyn Model, limits: EngineLimits) -> Result<(), Error> {
    let ModelShape { vocabulary, context, block, .. } = model.shape();
    let tokens = vec![0; limits.prefill_chunk.min(context)];
    let prompt_blocks = tokens.len().div_ceil(block);
    let decodes = limits.max_running.min(limits.max_decodes).saturating_sub(1);
    let blocks: Vec<BlockId> = (0..(prompt_blocks + decodes) as u32).map(BlockId).collect();
    model.allocate(blocks.len() as u32)?;
    let (of_prompt, of_decodes) = blocks.split_at(prompt_blocks);
    let mut chunks: Vec<_> = of_decodes.chunks(1).map(|block| chunk(&tokens[..1], block)).collect();
    chunks.push(chunk(&tokens, of_prompt));
    let _kept = limits.overlaps_steps.then(|| step(model, &chunks, vocabulary)).transpose()?;
    step(model, &chunks, vocabulary).map(drop)
}

/// Computes a step and samples its rows. Returns the rows, if they are on the device.
fn step(model: &mut dyn Model, chunks: &[SequenceChunk<'_>], vocabulary: usize) -> Result<Option<Tensor>, Error> {
    let mut logits = Logits::default();
    logits.stay_with(Upload::default(), None);
    model.forward(chunks, &mut logits)?;
    let Some(DeviceRows { rows, .. }) = logits.take_from_device() else { return Ok(None) };
    sample(&rows, vocabulary)?;
    Ok(Some(rows))
}

fn chunk<'a>(tokens: &'a [u32], blocks: &'a [BlockId]) -> SequenceChunk<'a> {
    SequenceChunk {
        tokens,
        chosen: None,
        past: 0,
        blocks,
        logits: LogitsFor::Last,
        images: &[],
        positions: None,
        copy: None,
    }
}

/// Samples all rows with every filter, with penalties and with log-probabilities.
fn sample(rows: &Tensor, vocabulary: usize) -> Result<(), Error> {
    let sampling = Sampling {
        top_p: 0.99,
        top_k: u32::try_from(vocabulary / 2).unwrap_or(u32::MAX),
        min_p: 0.01,
        repetition_penalty: 1.1,
        ..Sampling::NEUTRAL
    };
    let mut sampler = DeviceSampler::new(vocabulary, rows.device());
    let count = usize::try_from(rows.size()[0]).unwrap_or(0);
    let slots: Vec<_> = (0..count).map(|_| sampler.slot(&sampling)).collect();
    let plans = slots.iter().enumerate().map(|(row, slot)| {
        let history = slot.as_ref().map(|slot| History { slot, prompt: &[], output: &[], awaited: 0 });
        let draw = Draw { sampling: &sampling, random: 0.5, forbidden: &[], allowed: None, history };
        RowPlan { row, token: TokenPlan::Drawn(draw), logprobs: Some(LOGPROBS) }
    });
    sampler.run(rows, &plans.collect::<Vec<_>>()).map(drop)
}
