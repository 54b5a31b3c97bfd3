//! An image and steps of the largest shapes, after which libtorch has taken the memory that they need.

use std::iter::repeat_n;

use tandem_images::PreparedImage;
use tch::Tensor;

use super::config::EngineLimits;
use crate::cache::BlockId;
use crate::device::upload::Upload;
use crate::error::{DeviceFault, Error};
use crate::models::vision::{TorchTower, TowerRun};
use crate::models::{DeviceRows, Logits, LogitsFor, Model, ModelShape, SequenceChunk};
use crate::sampling::Sampling;
use crate::sampling::device::{DeviceSampler, Draw, History, RowPlan, TokenPlan};

/// The likeliest tokens of each row, as many as a request may ask for.
const LOGPROBS: usize = 20;

/// The block that has numbers at all of its positions. All earlier positions are in it.
const FILLED: BlockId = BlockId(0);
/// The block that all outputs in decode write.
const DECODED: BlockId = BlockId(1);

/// Computes an image, then the first half of its slices a second time. The result has the memory that an
/// image takes while a step is computed between two slices.
///
/// # Errors
/// [`Error::ImageMemory`], or another error of libtorch.
pub fn half_of_image(tower: &TorchTower, image: &PreparedImage) -> Result<TowerRun, Error> {
    compute_half(tower, image).map_err(|error| match error.device_fault() {
        Some(DeviceFault::OutOfMemory) => {
            Error::ImageMemory { shape: image.plan.shape.clone(), source: Box::new(error) }
        }
        _ => error,
    })
}

fn compute_half(tower: &TorchTower, image: &PreparedImage) -> Result<TowerRun, Error> {
    let (mut whole, mut slices) = (tower.start(image)?, 1);
    while whole.advance(tower)?.is_none() {
        slices += 1;
    }
    drop(whole);
    let mut half = tower.start(image)?;
    for _ in 0..slices / 2 {
        half.advance(tower)?;
    }
    Ok(half)
}

/// Runs a step with the last chunk of the longest prompt and a token of every other sequence that may run.
/// These share the positions of a KV cache of `room` blocks, which is not allocated: sequences have the same
/// few blocks again and again. If steps overlap, runs two: the rows of logits of a step are kept while the
/// next one is computed.
///
/// # Errors
/// [`Error::StepMemory`], or another error of the backend.
pub fn run(model: &mut dyn Model, limits: EngineLimits, room: u32) -> Result<(), Error> {
    largest_steps(model, limits, room).map_err(|error| match error.device_fault() {
        Some(DeviceFault::OutOfMemory) => {
            let EngineLimits { prefill_chunk, max_running, .. } = limits;
            Error::StepMemory { prefill_chunk, max_running, source: Box::new(error) }
        }
        _ => error,
    })
}

fn largest_steps(model: &mut dyn Model, limits: EngineLimits, room: u32) -> Result<(), Error> {
    let ModelShape { vocabulary, context, block, .. } = model.shape();
    let longest = context.min(room as usize * block).max(1);
    let tokens = vec![0; limits.prefill_chunk.min(longest)];
    let own = tokens.len().div_ceil(block) as u32;
    let decodes = limits.max_running.min(limits.max_decodes).saturating_sub(1);
    let each = (room as usize / decodes.max(1)).min(context / block).saturating_sub(1);
    let of_decode: Vec<BlockId> = repeat_n(FILLED, each).chain([DECODED]).collect();
    let before = (longest - tokens.len()) / block;
    let of_prompt: Vec<BlockId> = repeat_n(FILLED, before).chain((0..own).map(|i| BlockId(2 + i))).collect();
    let mut chunks = vec![chunk(&tokens[..1], each * block, &of_decode); decodes];
    chunks.push(chunk(&tokens, before * block, &of_prompt));
    model.allocate(2 + own)?;
    step(model, &[chunk(&vec![0; block.min(longest)], 0, &[FILLED])], vocabulary)?;
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

fn chunk<'a>(tokens: &'a [u32], past: usize, blocks: &'a [BlockId]) -> SequenceChunk<'a> {
    SequenceChunk {
        tokens,
        chosen: None,
        past,
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
