//! An image and steps of the largest shapes, after which the backend has taken the memory that they need.

use std::iter::repeat_n;

use tandem_images::PreparedImage;

use super::config::EngineLimits;
use super::schedule::MAX_PROMPT_ROWS;
use crate::cache::{BlockId, CacheSize};
use crate::error::{DeviceFault, LoadError, MemoryError, StepError};
use crate::models::{Backend, Drawn, Features, ImageRows, LogitsFor, ModelShape, SequenceChunk, Tower};
use crate::sampling::{Draw, History, RowPlan, Sampling, Slot, TokenPlan};

/// The likeliest tokens of each row, as many as a request may ask for.
const LOGPROBS: usize = 20;

/// The block that has numbers at all of its positions. All earlier positions are in it.
const FILLED: BlockId = BlockId(0);
/// The block that all outputs in decode write.
const DECODED: BlockId = BlockId(1);

/// The largest image of a model.
#[derive(Debug)]
pub struct LargestImage {
    /// The shape of its pixel values.
    shape: Vec<usize>,
    features: Features,
    /// True if its tokens attend to each other, so that a step has all of them.
    is_mutual: bool,
}

impl LargestImage {
    /// Computes an image, then a part of its slices a second time. Until it is stopped, the tower has the
    /// memory that the image takes while a step is computed between two slices.
    ///
    /// # Errors
    /// [`MemoryError::Image`], or another error of the backend.
    pub fn compute(tower: &mut dyn Tower, image: &PreparedImage, is_mutual: bool) -> Result<Self, LoadError> {
        let shape = image.plan.shape.clone();
        let computed = most_held(tower, image);
        let features = computed.map_err(|error| match error.device_fault() {
            Some(DeviceFault::OutOfMemory) => too_large(&shape, error.into()),
            _ => error.into(),
        })?;
        Ok(Self { shape, features, is_mutual })
    }

    /// Returns the error for an image that leaves too little memory.
    pub(super) fn too_large(&self, error: LoadError) -> LoadError {
        too_large(&self.shape, error)
    }

    /// Returns the tokens of a step with the image.
    fn tokens(&self, prefill_chunk: usize) -> usize {
        if self.is_mutual { prefill_chunk.max(self.features.count()) } else { prefill_chunk }
    }

    /// Returns the most rows for log-probabilities of prompts in a step.
    fn prompt_rows(&self) -> usize {
        if self.is_mutual { MAX_PROMPT_ROWS + self.features.count() } else { MAX_PROMPT_ROWS }
    }

    /// Returns the rows of the image at the start of a chunk of `count` tokens after `past` others.
    fn rows(&self, past: usize, count: usize) -> ImageRows<'_> {
        let rows = 0..self.features.count().min(count);
        let block = past..past + rows.end;
        ImageRows { start: 0, rows: self.features.rows(rows.clone()), deep: self.features.deep(rows), block }
    }
}

fn too_large(shape: &[usize], error: LoadError) -> LoadError {
    MemoryError::Image { shape: shape.to_vec(), source: Box::new(error) }.into()
}

/// Computes the features of an image, and then the slices up to the one with the most memory.
fn most_held(tower: &mut dyn Tower, image: &PreparedImage) -> Result<Features, StepError> {
    tower.start(image)?;
    let (mut most, mut slice, mut slices) = (0, 0, 0);
    let features = loop {
        if let Some(features) = tower.advance()? {
            break features;
        }
        slices += 1;
        if tower.held_bytes() > most {
            (most, slice) = (tower.held_bytes(), slices);
        }
    };
    tower.start(image)?;
    for _ in 0..slice {
        tower.advance()?;
    }
    Ok(features)
}

/// Runs a step with the last chunk of the longest prompt, a token of every other sequence that may run, and the
/// rows for log-probabilities of prompts. The chunk starts with the image, if there is one. The sequences share
/// the positions of a KV cache of `room` blocks, which is not allocated: they have the same few blocks again and
/// again. If steps overlap, runs two: the rows of logits of a step are kept while the next one is computed.
///
/// # Errors
/// [`MemoryError::Step`], or another error of the backend.
pub fn run(
    backend: &mut dyn Backend,
    image: Option<&LargestImage>,
    limits: EngineLimits,
    room: u32,
) -> Result<(), LoadError> {
    largest_steps(backend, image, limits, room).map_err(|error| match error.device_fault() {
        Some(DeviceFault::OutOfMemory) => {
            let EngineLimits { prefill_chunk, max_running, .. } = limits;
            MemoryError::Step { prefill_chunk, max_running, has_image: image.is_some(), source: error }.into()
        }
        _ => error.into(),
    })
}

fn largest_steps(
    backend: &mut dyn Backend,
    image: Option<&LargestImage>,
    limits: EngineLimits,
    room: u32,
) -> Result<(), StepError> {
    let ModelShape { vocabulary, context, block, .. } = backend.shape();
    let longest = context.min(room as usize * block).max(1);
    let count = image.map_or(limits.prefill_chunk, |image| image.tokens(limits.prefill_chunk));
    let rows = image.map_or(MAX_PROMPT_ROWS, LargestImage::prompt_rows).min(longest);
    let (tokens, with_rows) = (vec![0; count.min(longest)], vec![0; rows]);
    let own = tokens.len().max(rows).div_ceil(block) as u32;
    let decodes = limits.max_running.min(limits.max_decodes).saturating_sub(1);
    let each = (room as usize / decodes.max(1)).min(context / block).saturating_sub(1);
    let of_decode: Vec<BlockId> = repeat_n(FILLED, each).chain([DECODED]).collect();
    let before = (longest - tokens.len()) / block;
    let of_prompt: Vec<BlockId> = repeat_n(FILLED, before).chain((0..own).map(|i| BlockId(2 + i))).collect();
    let images: Vec<_> = image.iter().map(|image| image.rows(before * block, tokens.len())).collect();
    let mut chunks = vec![chunk(&tokens[..1], each * block, &of_decode); decodes];
    chunks.push(SequenceChunk { images: &images, ..chunk(&tokens, before * block, &of_prompt) });
    chunks.push(SequenceChunk { logits: LogitsFor::All, ..chunk(&with_rows, 0, &of_prompt[before..]) });
    backend.allocate(CacheSize::of_blocks(2 + own))?;
    steps(backend, &[&[chunk(&vec![0; block.min(longest)], 0, &[FILLED])]], vocabulary)?;
    let largest = [chunks.as_slice(); 2];
    steps(backend, &largest[..1 + usize::from(limits.overlaps_steps)], vocabulary)
}

/// Launches steps, each with every filter and with penalties in the rows of last tokens, and with
/// log-probabilities of all rows. Then finishes them.
fn steps(backend: &mut dyn Backend, steps: &[&[SequenceChunk<'_>]], vocabulary: usize) -> Result<(), StepError> {
    let sampling = Sampling {
        top_p: 0.99,
        top_k: u32::try_from(vocabulary / 2).unwrap_or(u32::MAX),
        min_p: 0.01,
        repetition_penalty: 1.1,
        ..Sampling::NEUTRAL
    };
    let mut slots = |chunks: &&[SequenceChunk<'_>]| {
        let drawn = chunks.iter().filter(|chunk| chunk.logits == LogitsFor::Last);
        drawn.map(|_| backend.slot(&sampling)).collect::<Vec<_>>()
    };
    let slots: Vec<Vec<Option<Slot>>> = steps.iter().map(&mut slots).collect();
    let plans: Vec<Vec<RowPlan<'_>>> =
        steps.iter().zip(&slots).map(|(chunks, slots)| plans(chunks, slots, &sampling)).collect();
    for (chunks, plans) in steps.iter().zip(&plans) {
        backend.launch(chunks, Some(plans))?;
    }
    for plans in plans {
        let drawn = backend.finish()?;
        let is_undecided = drawn.iter().map(|drawn| matches!(drawn, Drawn::Undecided)).collect::<Vec<_>>();
        fitting(drawn)?;
        let again: Vec<_> = plans.into_iter().zip(is_undecided).filter_map(|(plan, it)| it.then_some(plan)).collect();
        if !again.is_empty() {
            fitting(backend.draw_again(&again)?)?;
        }
    }
    Ok(())
}

/// Fails if a row had too little memory.
fn fitting(drawn: Vec<Drawn>) -> Result<(), StepError> {
    let failed = drawn.into_iter().find_map(|drawn| match drawn {
        Drawn::Failed(error) if error.device_fault().is_some() => Some(error),
        _ => None,
    });
    failed.map_or(Ok(()), Err)
}

/// Plans the rows of chunks: the first are drawn.
fn plans<'a>(chunks: &[SequenceChunk<'_>], slots: &'a [Option<Slot>], sampling: &'a Sampling) -> Vec<RowPlan<'a>> {
    let rows: usize = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
    let drawn = slots.iter().map(|slot| {
        let history = slot.as_ref().map(|slot| History { slot, prompt: &[], output: &[], awaited: 0 });
        TokenPlan::Drawn(Draw { sampling, random: 0.5, forbidden: &[], allowed: None, history })
    });
    let tokens = drawn.chain((slots.len()..rows).map(|_| TokenPlan::Given(0)));
    tokens.enumerate().map(|(row, token)| RowPlan { row, token, logprobs: Some(LOGPROBS) }).collect()
}

fn chunk<'a>(tokens: &'a [u32], past: usize, blocks: &'a [BlockId]) -> SequenceChunk<'a> {
    SequenceChunk {
        tokens,
        chosen: None,
        drafted: 0,
        past,
        is_long: false,
        blocks,
        logits: LogitsFor::Last,
        images: &[],
        positions: None,
        copy: None,
        states: None,
    }
}
