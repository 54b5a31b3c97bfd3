//! Prompts with image tokens, computed by a model without an engine.

use std::ops::Range;

use tandem_core::cache::{BLOCK, BlockId, ChunkStates, StateId};
use tandem_core::models::{self, Backend, ImageRows, LogitsFor, SequenceChunk};

/// A prompt, and the features of its image tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct ImagePrompt {
    pub(super) tokens: Vec<u32>,
    /// The positions of the tokens on three axes.
    pub(super) positions: Option<Vec<[u32; 3]>>,
    /// The runs of image tokens.
    pub(super) runs: Vec<Range<usize>>,
    /// True if a run must not be divided.
    pub(super) whole_runs: bool,
    /// E.
    pub(super) width: usize,
    /// The features of all runs' tokens, E numbers each.
    pub(super) rows: Vec<f32>,
    /// The features to be added after each of the first layers.
    pub(super) deep: Vec<Vec<f32>>,
    /// The recurrent state, if the model has one.
    pub(super) state: Option<StateId>,
}

/// The features of one run's tokens within a chunk.
struct Part {
    start: usize,
    block: Range<usize>,
    rows: Range<usize>,
}

impl ImagePrompt {
    /// Returns the ends of chunks of at least `piece` tokens. A chunk grows to the end of a run that
    /// it must not divide.
    pub(super) fn ends(&self, piece: usize) -> Vec<usize> {
        let mut ends = vec![0];
        while ends[ends.len() - 1] < self.tokens.len() {
            let end = ends[ends.len() - 1].saturating_add(piece).min(self.tokens.len());
            let divided = self.runs.iter().find(|run| self.whole_runs && run.start < end && end < run.end);
            ends.push(divided.map_or(end, |run| run.end));
        }
        ends.split_off(1)
    }

    /// Returns the parts of runs within a range of tokens.
    fn parts(&self, range: &Range<usize>) -> Vec<Part> {
        let (mut parts, mut before) = (Vec::new(), 0);
        for run in &self.runs {
            let within = run.start.max(range.start)..run.end.min(range.end);
            if !within.is_empty() {
                let first = before + within.start - run.start;
                let rows = first * self.width..(first + within.len()) * self.width;
                parts.push(Part { start: within.start - range.start, block: run.clone(), rows });
            }
            before += run.len();
        }
        parts
    }

    /// Calls `then` with the chunk of a range of tokens, whose sequence has `blocks`.
    pub(super) fn with_chunk<T>(
        &self,
        range: Range<usize>,
        blocks: &[BlockId],
        logits: LogitsFor,
        then: impl FnOnce(SequenceChunk<'_>) -> T,
    ) -> T {
        let parts = self.parts(&range);
        let deep = |part: &Part| -> Vec<&[f32]> { self.deep.iter().map(|deep| &deep[part.rows.clone()]).collect() };
        let deep: Vec<Vec<&[f32]>> = parts.iter().map(deep).collect();
        let mut images = Vec::new();
        for (Part { start, block, rows }, deep) in parts.into_iter().zip(deep) {
            images.push(ImageRows { start, rows: &self.rows[rows], deep, block });
        }
        then(SequenceChunk {
            chosen: None,
            drafted: 0,
            tokens: &self.tokens[range.clone()],
            past: range.start,
            is_long: false,
            blocks,
            copy: None,
            states: self.state.map(|to| ChunkStates { from: (range.start > 0).then_some(to), to, saves: &[] }),
            logits,
            images: &images,
            positions: self.positions.as_ref().map(|positions| &positions[range]),
        })
    }

    /// Computes the prompt in chunks of `piece` tokens. Returns the logits after every token.
    pub(super) fn logits(&self, model: &mut dyn Backend, blocks: &[BlockId], piece: usize) -> Vec<Vec<f32>> {
        let (mut start, mut rows) = (0, Vec::new());
        for end in self.ends(piece) {
            let own = self.with_chunk(start..end, blocks, LogitsFor::All, |chunk| models::logits(model, &[chunk]));
            rows.extend(own.expect("computes"));
            start = end;
        }
        rows
    }
}

/// Returns blocks for `count` positions, with descending numbers from `first`.
pub(super) fn blocks(first: u32, count: usize) -> Vec<BlockId> {
    let number = count.div_ceil(BLOCK) as u32;
    (first..first + number).rev().map(BlockId).collect()
}
