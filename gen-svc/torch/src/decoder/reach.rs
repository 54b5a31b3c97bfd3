//! The positions that the tokens of a chunk see.

use std::ops::Range;

use tandem_core::models::SequenceChunk;
use tandem_core::models::decoder;

/// The rules of a layer's scores: the positions that a token sees, and the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reach {
    window: Option<usize>,
    image_blocks: bool,
    /// The bits of the bound of scores, a 32-bit float.
    softcap: Option<u32>,
}

impl Reach {
    /// Returns the rules of a layer.
    pub(super) fn of(attention: &decoder::Attention) -> Self {
        Self {
            window: attention.window,
            image_blocks: attention.image_blocks,
            softcap: attention.softcap.map(f32::to_bits),
        }
    }

    /// Returns the rules of a layer with this window and this bound of scores.
    pub(super) fn with(window: Option<usize>, softcap: Option<f32>) -> Self {
        Self { window, image_blocks: false, softcap: softcap.map(f32::to_bits) }
    }

    /// Returns the number of positions that a token sees, if there is a limit.
    pub(super) fn window(self) -> Option<usize> {
        self.window
    }

    /// Returns true if the tokens of an image see each other.
    pub(super) fn image_blocks(self) -> bool {
        self.image_blocks
    }

    /// Returns the bound of scores.
    pub(super) fn softcap(self) -> Option<f32> {
        self.softcap.map(f32::from_bits)
    }
}

/// The positions that a chunk's tokens see.
#[derive(Debug)]
pub(super) struct Visible {
    /// All positions that any of them sees, in the sequence.
    pub(super) positions: Range<usize>,
    /// The positions of each token, as indexes in `positions`.
    pub(super) of_tokens: Vec<Range<usize>>,
}

impl Visible {
    /// Each token sees the last `window` positions up to its own, and the later positions of its image.
    pub(super) fn new(chunk: &SequenceChunk<'_>, reach: Reach) -> Self {
        let end = chunk.past + chunk.tokens.len();
        let start = |position: usize| reach.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let first = start(chunk.past);
        let ends: Vec<usize> = match reach.image_blocks && !chunk.images.is_empty() {
            true => chunk.ends().collect(),
            false => (chunk.past + 1..=end).collect(),
        };
        let of_tokens = (chunk.past..).zip(ends).map(|(position, end)| start(position) - first..end - first);
        Self { positions: first..end, of_tokens: of_tokens.collect() }
    }

    /// Returns the number of tokens and of positions.
    pub(super) fn size(&self) -> [usize; 2] {
        [self.of_tokens.len(), self.positions.len()]
    }

    /// Returns true if each token sees the positions up to its own, and there are no others.
    pub(super) fn is_causal(&self) -> bool {
        self.positions.len() == self.of_tokens.len()
            && self.of_tokens.iter().zip(1..).all(|(seen, count)| *seen == (0..count))
    }
}
