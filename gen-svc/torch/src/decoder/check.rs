//! The comparison of both implementations of attention, without a model.

use std::collections::BTreeSet;
use std::ops::Range;

use tandem_core::cache::BlockId;
use tandem_core::models::{LogitsFor, SequenceChunk};
use tch::{Kind, Tensor};

use super::attend::{Attended, PagedAttention, Scores};
use super::bucketed::Buckets;
use super::buckets;
use super::flash::{FLASH_BLOCK, Flash, FlashOperation, FlashRules};
use super::methods;
use super::reach::Reach;
use super::runs;
use super::workspace::{LargestLayer, Workspace};
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::target::TorchTarget;

/// The greatest difference that rounding to 8 bits may cause between sums of numbers within -1..1.
const TOLERANCE: f64 = 0.02;

/// A batch whose attention is computed by both implementations.
#[derive(Debug, Clone)]
pub struct AttentionCase {
    /// The earlier positions and the tokens of each sequence.
    pub sequences: Vec<[usize; 2]>,
    /// The first blocks, which all sequences share.
    pub shared_blocks: usize,
    /// The query heads and the key/value heads.
    pub heads: [usize; 2],
    pub head_size: usize,
    /// The positions that a token sees. None: all.
    pub window: Option<usize>,
    /// The bound of scores. Flash attention has none.
    pub softcap: Option<f32>,
    /// The positions of a block.
    pub block: usize,
}

/// The greatest differences between the results of both implementations.
#[derive(Debug, Clone, Copy)]
pub struct AttentionDifference {
    /// Between the results of tokens, whose values are within -1..1.
    pub rows: f64,
    /// Between the logarithms of sums.
    pub log_sums: f64,
}

impl FlashOperation {
    /// Computes a case with this operation and with buckets.
    ///
    /// # Errors
    /// An operation fails.
    pub fn compare(self, case: &AttentionCase, target: TorchTarget) -> Result<AttentionDifference, Error> {
        let (tables, tokens) = (case.tables(), case.tokens());
        let chunks = case.chunks(&tables, &tokens);
        let [heads, pair_heads] = case.heads;
        let rules = FlashRules { window: case.window, group: heads / pair_heads };
        let mut upload = Upload::default();
        let flash = Flash::plan(&chunks, rules, case.block, self, &mut upload);
        let buckets = case.buckets(&chunks, case.workspace(target), target, &mut upload);
        let sent = upload.send(target.device)?;
        let (flash, buckets) = (flash(&sent)?, buckets(&sent)?);
        let (q, pairs) = case.numbers(&tables, target)?;
        difference(case.attend(&flash, &q, &pairs)?, case.attend(&buckets, &q, &pairs)?)
    }

    /// Returns the operation if it computes small cases correctly on the target, with heads of each of these
    /// sizes that it serves.
    pub(super) fn checked(self, head_sizes: &BTreeSet<usize>, target: TorchTarget) -> Option<Self> {
        if !self.dtypes.contains(&target.dtype) {
            return None;
        }
        let served = head_sizes.iter().filter(|size| methods::serves_head(**size));
        let cases = served.flat_map(|size| CASES.iter().map(|case| case.with_blocks(*size)));
        let differences = cases.map(|case| self.compare(&case, target));
        match differences.collect::<Result<Vec<_>, _>>() {
            Ok(all) if all.iter().all(|it| it.rows <= TOLERANCE && it.log_sums <= TOLERANCE) => Some(self),
            Ok(differences) => {
                tracing::warn!(?differences, "flash attention computes wrong results, and is not used");
                None
            }
            Err(error) => {
                tracing::warn!(error = error.chain(), "flash attention is not available");
                None
            }
        }
    }
}

/// A case for [`FlashOperation::checked`].
struct SmallCase {
    sequences: &'static [[usize; 2]],
    heads: [usize; 2],
    window: Option<usize>,
}

/// Tokens after prompts, one in pieces, prompts, and both.
const CASES: &[SmallCase] = &[
    SmallCase { sequences: &[[1500, 1], [40, 1]], heads: [4, 2], window: None },
    SmallCase { sequences: &[[300, 1], [4, 1], [511, 1]], heads: [6, 2], window: None },
    SmallCase { sequences: &[[300, 1], [4, 1]], heads: [2, 2], window: Some(100) },
    SmallCase { sequences: &[[0, 1], [260, 30], [0, 5]], heads: [4, 2], window: None },
    SmallCase { sequences: &[[270, 20], [0, 9]], heads: [4, 1], window: Some(12) },
];

impl SmallCase {
    fn with_blocks(&self, head_size: usize) -> AttentionCase {
        let Self { sequences, heads, window } = *self;
        let sequences = sequences.to_vec();
        AttentionCase { sequences, shared_blocks: 0, heads, head_size, window, softcap: None, block: FLASH_BLOCK }
    }
}

impl Workspace {
    /// Divides the sequences of a call, given as numbers of tokens and of visible positions: those with one token
    /// first, the longest of each kind first. Returns the sequences of each bucket, and its size: tokens and
    /// positions with padding.
    #[must_use]
    pub fn buckets(self, sizes: &[[usize; 2]]) -> Vec<(Range<usize>, [usize; 2])> {
        buckets::of_any_sizes(sizes, self)
    }
}

impl AttentionCase {
    /// Returns the default bounds of the workspace.
    #[must_use]
    pub fn workspace(&self, target: TorchTarget) -> Workspace {
        let numbers = 2 * self.heads[1] * self.head_size;
        let largest = LargestLayer { heads: self.heads[0], pair_bytes: numbers * target.dtype.elt_size_in_bytes() };
        Workspace::of(largest, target.device.is_cuda() || self.softcap.is_some())
    }

    /// Computes the case in buckets with the default bounds and with others.
    ///
    /// # Errors
    /// An operation fails.
    pub fn compare(&self, workspace: Workspace, target: TorchTarget) -> Result<AttentionDifference, Error> {
        let (tables, tokens) = (self.tables(), self.tokens());
        let chunks = self.chunks(&tables, &tokens);
        let (q, pairs) = self.numbers(&tables, target)?;
        let [found, expected] = [workspace, self.workspace(target)].map(|workspace| {
            let mut upload = Upload::default();
            let buckets = self.buckets(&chunks, workspace, target, &mut upload);
            self.attend(&buckets(&upload.send(target.device)?)?, &q, &pairs)
        });
        difference(found?, expected?)
    }

    fn buckets(
        &self,
        chunks: &[SequenceChunk<'_>],
        workspace: Workspace,
        target: TorchTarget,
        upload: &mut Upload,
    ) -> Later<Buckets> {
        let reach = Reach::with(self.window, self.softcap);
        Buckets::plan(chunks, reach, self.block, (target, workspace), upload)
    }

    /// Returns the tokens of each sequence.
    fn tokens(&self) -> Vec<Vec<u32>> {
        self.sequences.iter().map(|[_, tokens]| vec![0; *tokens]).collect()
    }

    /// Returns the sequences in the order of computation.
    fn chunks<'a>(&self, tables: &'a [Vec<BlockId>], tokens: &'a [Vec<u32>]) -> Vec<SequenceChunk<'a>> {
        let parts = self.sequences.iter().zip(tokens).zip(tables);
        let chunks: Vec<_> = parts.map(|((&[past, _], tokens), blocks)| chunk(past, tokens, blocks)).collect();
        runs::order(&chunks).into_iter().map(|i| chunks[i]).collect()
    }

    /// Returns the blocks of each sequence, in descending order but for the shared ones.
    fn tables(&self) -> Vec<Vec<BlockId>> {
        let shared = self.shared_blocks as u32;
        let mut next = shared;
        let table = |&[past, tokens]: &[usize; 2]| {
            let own = ((past + tokens).div_ceil(self.block) as u32).saturating_sub(shared);
            next += own;
            (0..shared).chain((next - own..next).rev()).map(BlockId).collect()
        };
        self.sequences.iter().map(table).collect()
    }

    /// Returns queries and pairs within -1..1: `[T, H, D]`, `[slots, 2, K, D]`.
    fn numbers(&self, tables: &[Vec<BlockId>], target: TorchTarget) -> Result<(Tensor, Tensor), Error> {
        let [heads, pair_heads] = self.heads.map(|count| count as i64);
        let (size, tokens) = (self.head_size as i64, self.sequences.iter().map(|[_, tokens]| tokens).sum::<usize>());
        let blocks = tables.iter().flatten().map(|block| block.0 as usize + 1).max().unwrap_or(0);
        let q = waves(&[tokens as i64, heads, size], 0.7, target)?;
        Ok((q, waves(&[(blocks * self.block) as i64, 2, pair_heads, size], 1.3, target)?))
    }

    fn attend(&self, attention: &dyn PagedAttention, q: &Tensor, pairs: &Tensor) -> Result<Attended, Error> {
        let scale = 1.0 / (self.head_size as f64).sqrt();
        attention.attend(q, pairs, Scores { scale, with_log_sums: true })
    }
}

fn chunk<'a>(past: usize, tokens: &'a [u32], blocks: &'a [BlockId]) -> SequenceChunk<'a> {
    SequenceChunk {
        tokens,
        chosen: None,
        drafted: 0,
        past,
        is_long: false,
        blocks,
        copy: None,
        states: None,
        logits: LogitsFor::Nothing,
        images: &[],
        positions: None,
    }
}

/// Returns numbers that neither repeat nor follow a pattern of the shape.
fn waves(shape: &[i64], step: f64, target: TorchTarget) -> Result<Tensor, Error> {
    let count: i64 = shape.iter().product();
    let numbers = Tensor::f_arange(count, (Kind::Double, target.device))?;
    let numbers = numbers.f_mul_scalar(step)?.f_add(&numbers.f_square()?.f_mul_scalar(0.013)?)?.f_sin()?;
    Ok(numbers.f_view(shape)?.f_to_kind(target.dtype)?)
}

fn difference(found: Attended, expected: Attended) -> Result<AttentionDifference, Error> {
    let greatest = |found: &Tensor, expected: &Tensor| {
        let difference = found.f_to_kind(Kind::Double)?.f_sub(&expected.f_to_kind(Kind::Double)?)?.f_abs()?;
        // A number that is none is a difference.
        let difference = difference.f_nan_to_num(f64::INFINITY, f64::INFINITY, f64::INFINITY)?;
        Ok::<_, Error>(difference.f_max()?.f_double_value(&[])?)
    };
    let log_sums = match (found.log_sums, expected.log_sums) {
        (Some(found), Some(expected)) => greatest(&found, &expected)?,
        _ => f64::INFINITY,
    };
    Ok(AttentionDifference { rows: greatest(&found.rows, &expected.rows)?, log_sums })
}
