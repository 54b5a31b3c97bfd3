//! Attention with libtorch's flash attention over blocks. It runs on CUDA devices.
//!
//! Shapes: T tokens of a call, B sequences, P blocks of the longest sequence, K key/value heads, H query
//! heads, G = H / K query heads per key/value head, D head size.

use tandem_core::models::SequenceChunk;
use tch::{Kind, TchError, Tensor};

use super::attend::{Attended, PagedAttention, Scores};
use super::pieces::{self, Pieces, Span};
use crate::device::upload::{Later, Upload};
use crate::error::Error;

/// The positions of a block: the operation requires a multiple of this.
pub const FLASH_BLOCK: usize = 256;
/// The largest head that the operation computes.
pub(super) const LARGEST_HEAD: usize = 256;
/// The operation requires heads whose size is a multiple of this.
pub(super) const HEAD_UNIT: usize = 8;
/// The parts into which the operation itself divides a sequence. With more than one, that of libtorch 2.13
/// computes wrong results for sequences of several lengths, so that long ones are divided
/// [before](super::pieces).
const SPLITS: i64 = 1;

/// The arguments of `_flash_attention_forward_no_dropout_inplace`, under their names. R is the number of
/// query rows.
#[derive(Debug, Clone, Copy)]
pub struct FlashCall<'a> {
    /// `[R, H, D]`, is written.
    pub out: &'a Tensor,
    /// `[R, H, D]`, the rows of all sequences.
    pub query: &'a Tensor,
    /// `[blocks, positions, K, D]`
    pub key: &'a Tensor,
    /// `[blocks, positions, K, D]`
    pub value: &'a Tensor,
    /// `[B + 1]`, where the rows of each sequence start, and R.
    pub cum_seq_q: &'a Tensor,
    /// `[B + 1]`, the sums of the sequences' positions.
    pub cum_seq_k: &'a Tensor,
    /// The most rows of a sequence.
    pub max_q: i64,
    /// The most positions of a sequence.
    pub max_k: i64,
    /// True if a row sees the positions up to its own. The last row's is the sequence's last.
    pub is_causal: bool,
    /// The factor of scores.
    pub scale: f64,
    /// The number of earlier positions that a row sees. None: all.
    pub window_left: Option<i64>,
    /// `[B]`, the positions of each sequence.
    pub seqused_k: &'a Tensor,
    /// `[B, P]`, the blocks of each sequence.
    pub block_table: &'a Tensor,
}

/// An implementation of the operation.
#[derive(Debug, Clone, Copy)]
pub struct FlashOperation {
    /// The dtypes that it computes.
    pub dtypes: &'static [Kind],
    /// Writes the result, and returns the logarithms of the sums of the exponentials of scores,
    /// `[H, R]` in f32.
    pub call: fn(&FlashCall<'_>) -> Result<Tensor, TchError>,
}

impl FlashOperation {
    /// libtorch's.
    pub const LIBTORCH: Self = Self { dtypes: &[Kind::Half, Kind::BFloat16], call: libtorch };
}

fn libtorch(call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    let (dropout, returns_mask, window_right, no_slopes) = (0.0, false, call.window_left.map(|_| 0), None);
    Tensor::f_internal_flash_attention_forward_no_dropout_inplace(
        call.out,
        call.query,
        call.key,
        call.value,
        Some(call.cum_seq_q),
        Some(call.cum_seq_k),
        call.max_q,
        call.max_k,
        dropout,
        call.is_causal,
        returns_mask,
        call.scale,
        call.window_left,
        window_right,
        Some(call.seqused_k),
        no_slopes,
        Some(call.block_table),
        SPLITS,
    )
}

/// The calls for one step: at most one for the sequences with one token, and one for the others.
#[derive(Debug)]
pub(super) struct Flash {
    parts: Vec<Sequences>,
    /// The positions of a block.
    block: i64,
    operation: FlashOperation,
}

/// The rules of a reach that the operation computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlashRules {
    pub(super) window: Option<usize>,
    /// G.
    pub(super) group: usize,
}

/// The sequences of one call of the operation.
#[derive(Debug)]
struct Sequences {
    /// The first of their rows among all tokens, and the number of rows.
    rows: [i64; 2],
    layout: Layout,
    max_q: i64,
    max_k: i64,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    seqused_k: Tensor,
    block_table: Tensor,
    /// `None`: every sequence has one piece.
    pieces: Option<Pieces>,
}

/// The query rows.
#[derive(Debug, Clone, Copy)]
enum Layout {
    /// One token of each sequence. The G heads of a group are rows of one sequence, so that its keys and
    /// values are read once. The operation itself would pack them too, but then leaves its result in
    /// another tensor.
    Packed {
        /// G.
        group: i64,
    },
    /// A row for each token. Windows start at different positions for different tokens.
    Tokens { is_causal: bool, window_left: Option<i64> },
}

impl Flash {
    /// Plans the calls for sorted chunks, whose blocks have `block` positions.
    pub(super) fn plan(
        chunks: &[SequenceChunk<'_>],
        rules: FlashRules,
        block: usize,
        operation: FlashOperation,
        upload: &mut Upload,
    ) -> Later<Self> {
        let decodes = chunks.partition_point(|chunk| chunk.tokens.len() == 1);
        let (decodes, prefills) = chunks.split_at(decodes);
        let window_left = rules.window.map(|window| window as i64 - 1);
        let decode = match window_left {
            None => Layout::Packed { group: rules.group as i64 },
            Some(_) => Layout::Tokens { is_causal: false, window_left },
        };
        let prefill = Layout::Tokens { is_causal: true, window_left };
        let parts = [(0, decodes, decode), (decodes.len(), prefills, prefill)];
        let parts = parts.into_iter().filter(|(_, chunks, _)| !chunks.is_empty());
        let parts = parts.map(|(first, chunks, layout)| Sequences::plan(first, chunks, layout, block, upload));
        let parts: Vec<_> = parts.collect();
        Box::new(move |sent| {
            let parts = parts.into_iter().map(|part| part(sent)).collect::<Result<_, _>>()?;
            Ok(Self { parts, block: block as i64, operation })
        })
    }
}

impl PagedAttention for Flash {
    fn attend(&self, q: &Tensor, pairs: &Tensor, scores: Scores) -> Result<Attended, Error> {
        let (_, _, heads, size) = pairs.size4()?;
        let pairs = pairs.f_view([-1, self.block, 2, heads, size])?;
        let (key, value) = (pairs.f_select(2, 0)?, pairs.f_select(2, 1)?); // [blocks, positions, K, D]
        let attend = |part: &Sequences| part.attend(self.operation, q, [&key, &value], scores);
        Attended::join(self.parts.iter().map(attend).collect::<Result<_, _>>()?, 0)
    }
}

impl Sequences {
    fn plan(
        first_row: usize,
        chunks: &[SequenceChunk<'_>],
        layout: Layout,
        block: usize,
        upload: &mut Upload,
    ) -> Later<Self> {
        let spans = match layout {
            Layout::Packed { .. } => pieces::divided(chunks, block),
            Layout::Tokens { .. } => pieces::whole(chunks),
        };
        let pieces = Pieces::plan(&spans, chunks.len(), upload);
        let group = layout.group() as usize;
        let queries: Vec<i32> = spans.iter().map(|span| (span.tokens * group) as i32).collect();
        let positions: Vec<i32> = spans.iter().map(|span| span.positions as i32).collect();
        let longest = |numbers: &[i32]| numbers.iter().copied().max().unwrap_or_default();
        let (max_q, max_k) = (longest(&queries), longest(&positions));
        let table = [spans.len() as i64, -1];
        let rows = [first_row as i64, chunks.iter().map(|chunk| chunk.tokens.len() as i64).sum()];
        let blocks = upload.add(blocks(&spans, max_k as usize, block));
        let sums = [&queries, &positions].map(|numbers| upload.add(sums(numbers)));
        let positions = upload.add(positions);
        Box::new(move |sent| {
            Ok(Self {
                rows,
                layout,
                max_q: i64::from(max_q),
                max_k: i64::from(max_k),
                cum_seq_q: sent.get(sums[0])?,
                cum_seq_k: sent.get(sums[1])?,
                seqused_k: sent.get(positions)?,
                block_table: sent.get(blocks)?.f_view(table)?,
                pieces: pieces.map(|pieces| pieces(sent)).transpose()?,
            })
        })
    }

    /// `q [T, H, D]`, `key` and `value [blocks, positions, K, D]`. Returns the results of the sequences'
    /// rows.
    fn attend(
        &self,
        operation: FlashOperation,
        q: &Tensor,
        [key, value]: [&Tensor; 2],
        scores: Scores,
    ) -> Result<Attended, Error> {
        let q = q.f_narrow(0, self.rows[0], self.rows[1])?;
        let q = self.pieces.as_ref().map_or(Ok(q.shallow_clone()), |pieces| pieces.spread(&q))?;
        let (count, heads, size) = q.size3()?;
        let query = self.layout.pack(&q, key.size()[2])?;
        let out = query.f_empty_like()?;
        let (is_causal, window_left) = self.layout.mask();
        let call = FlashCall {
            out: &out,
            query: &query,
            key,
            value,
            cum_seq_q: &self.cum_seq_q,
            cum_seq_k: &self.cum_seq_k,
            max_q: self.max_q,
            max_k: self.max_k,
            is_causal,
            scale: scores.scale,
            window_left,
            seqused_k: &self.seqused_k,
            block_table: &self.block_table,
        };
        let log_sums = (operation.call)(&call)?;
        let rows = self.layout.unpack(&out, count)?;
        let log_sums = || {
            let log_sums = log_sums.f_transpose(0, 1)?.f_unsqueeze(2)?;
            Ok::<_, Error>(self.layout.unpack(&log_sums, count)?.f_squeeze_dim(2)?)
        };
        if let Some(pieces) = &self.pieces {
            return pieces.join(&rows, &log_sums()?, scores.with_log_sums);
        }
        let log_sums = scores.with_log_sums.then(log_sums).transpose()?;
        Ok(Attended { rows: rows.f_reshape([count, heads * size])?, log_sums })
    }
}

impl Layout {
    /// Returns the query rows of a token.
    fn group(self) -> i64 {
        match self {
            Self::Packed { group } => group,
            Self::Tokens { .. } => 1,
        }
    }

    /// Returns whether the rows are causal, and their window. A packed row sees all positions.
    fn mask(self) -> (bool, Option<i64>) {
        match self {
            Self::Packed { .. } => (false, None),
            Self::Tokens { is_causal, window_left } => (is_causal, window_left),
        }
    }

    /// Makes rows of the heads of a group: `[B, K * G, D] -> [B * G, K, D]`
    fn pack(self, q: &Tensor, pair_heads: i64) -> Result<Tensor, Error> {
        let Self::Packed { group } = self else { return Ok(q.shallow_clone()) };
        let (count, _, size) = q.size3()?;
        let grouped = q.f_view([count, pair_heads, group, size])?.f_transpose(1, 2)?;
        Ok(grouped.f_reshape([count * group, pair_heads, size])?)
    }

    /// Makes heads of the rows of a group: `[B * G, K, n] -> [B, K * G, n]`
    fn unpack(self, rows: &Tensor, count: i64) -> Result<Tensor, Error> {
        let Self::Packed { group } = self else { return Ok(rows.shallow_clone()) };
        let (_, pair_heads, size) = rows.size3()?;
        let grouped = rows.f_view([count, group, pair_heads, size])?.f_transpose(1, 2)?;
        Ok(grouped.f_reshape([count, pair_heads * group, size])?)
    }
}

/// Returns the sums of the first 0, 1, .. numbers.
fn sums(numbers: &[i32]) -> Vec<i32> {
    let ends = numbers.iter().scan(0, |sum, number| {
        *sum += number;
        Some(*sum)
    });
    std::iter::once(0).chain(ends).collect()
}

/// Returns the blocks of each sequence for as many positions as the longest has. Missing ones are 0.
fn blocks(spans: &[Span<'_>], longest: usize, block: usize) -> Vec<i32> {
    let count = longest.div_ceil(block);
    let of = |span: &Span<'_>| {
        let used = span.positions.div_ceil(block);
        let blocks: Vec<i32> = span.blocks[..used].iter().map(|block| block.0 as i32).collect();
        blocks.into_iter().chain(std::iter::repeat(0)).take(count)
    };
    spans.iter().flat_map(of).collect()
}
