//! The bounds of the memory that attention in buckets takes in addition to its inputs and results.

/// The most bytes of keys and values that a bucket gathers, unless one sequence has more.
const GATHERED_BYTES: usize = 1 << 30;
/// The most scores of a head in one call. A mask has a number for each.
const SCORES: usize = 1 << 24;
/// The most scores of all heads in one call, where libtorch keeps them.
const KEPT_SCORES: usize = 1 << 27;
/// The most scores of a head in a bucket of several sequences with more than one token.
const JOINED_SCORES: usize = 1 << 22;
/// Maximum number of mask elements kept for a step, by each kind of layers.
const MASKS: usize = 1 << 24;

/// The bounds of the workspace of attention in buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workspace {
    /// The most positions of a bucket with padding, unless it has one sequence.
    pub positions: usize,
    /// The most scores of a head in one call. A longer bucket is computed in parts.
    pub scores: usize,
    /// The most scores of a head in a bucket of several sequences with more than one token.
    pub joined_scores: usize,
    /// Maximum number of mask elements kept for a step. Other masks are computed in each layer.
    pub masks: usize,
    /// True if libtorch keeps the scores of a call, even without a mask.
    pub keeps_scores: bool,
}

/// The largest layer of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LargestLayer {
    /// The query heads.
    pub(super) heads: usize,
    /// The bytes of the keys and values of a position.
    pub(super) pair_bytes: usize,
}

impl Workspace {
    /// Returns the bounds for layers up to the largest.
    pub(super) fn of(largest: LargestLayer, keeps_scores: bool) -> Self {
        let of_heads = if keeps_scores { KEPT_SCORES / largest.heads.max(1) } else { SCORES };
        let scores = of_heads.clamp(1, SCORES);
        Self {
            positions: GATHERED_BYTES / largest.pair_bytes.max(1),
            scores,
            joined_scores: JOINED_SCORES.min(scores),
            masks: MASKS,
            keeps_scores,
        }
    }

    /// Returns the tokens of each sequence that one call computes, of a bucket of this many sequences, tokens
    /// and positions. At least one. `is_causal`: there is no mask.
    #[must_use]
    pub fn tokens_at_once(&self, [sequences, tokens, positions]: [usize; 3], is_causal: bool) -> usize {
        if is_causal && !self.keeps_scores {
            return tokens;
        }
        (self.scores / (sequences * positions).max(1)).clamp(1, tokens.max(1))
    }
}
