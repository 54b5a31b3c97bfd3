//! Long sequences as several pieces, which flash attention computes apart. Their results are joined by
//! the logarithms of their sums.
//!
//! One piece is computed by few parts of a GPU. The pieces of a sequence depend on its own length only, and
//! are joined in order, so that a result does not depend on the other sequences.
//!
//! Shapes: B sequences, P pieces of all sequences, M pieces of the longest, H query heads, D head size.

use tandem_core::cache::BlockId;
use tandem_core::models::SequenceChunk;
use tch::{Kind, Tensor};

use super::attend::Attended;
use crate::device::upload::{Later, Upload};
use crate::error::Error;

/// The fewest positions of a sequence that has several pieces.
const LEAST: usize = 1024;
/// The most pieces of a sequence. It bounds the padding of joined results.
const MOST: usize = 16;

/// Positions in adjacent blocks, and the number of tokens that see them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) tokens: usize,
    pub(super) positions: usize,
    pub(super) blocks: &'a [BlockId],
    /// The index of the sequence.
    owner: usize,
}

/// The pieces of sequences with one token each, on the device.
#[derive(Debug)]
pub(super) struct Pieces {
    /// B and M.
    size: [i64; 2],
    /// `[P]`, the sequence of each.
    owners: Tensor,
    /// `[B * M]`, the pieces of each sequence. Padding repeats a piece.
    of_sequences: Tensor,
    /// `[B, M, 1]`, minus infinity for padding, else zero.
    padding: Tensor,
}

/// Returns sequences as one span each.
pub(super) fn whole<'a>(chunks: &[SequenceChunk<'a>]) -> Vec<Span<'a>> {
    let span = |(owner, chunk): (usize, &SequenceChunk<'a>)| {
        let tokens = chunk.tokens.len();
        Span { tokens, positions: chunk.past + tokens, blocks: chunk.blocks, owner }
    };
    chunks.iter().enumerate().map(span).collect()
}

/// Divides long sequences whose token sees all positions. Blocks have `block` positions.
pub(super) fn divided<'a>(chunks: &[SequenceChunk<'a>], block: usize) -> Vec<Span<'a>> {
    whole(chunks).into_iter().flat_map(|span| pieces(span, block)).collect()
}

fn pieces(whole: Span<'_>, block: usize) -> impl Iterator<Item = Span<'_>> {
    let count = whole.positions.div_ceil(LEAST).min(MOST);
    let length = whole.positions.div_ceil(count.max(1)).next_multiple_of(block);
    (0..whole.positions.div_ceil(length)).map(move |piece| {
        let first = piece * length;
        let positions = length.min(whole.positions - first);
        Span { positions, blocks: &whole.blocks[first / block..], ..whole }
    })
}

impl Pieces {
    /// Plans to join the pieces of `sequences` sequences. Returns None if each has one.
    pub(super) fn plan(spans: &[Span<'_>], sequences: usize, upload: &mut Upload) -> Option<Later<Self>> {
        if spans.len() == sequences {
            return None;
        }
        let own: Vec<Vec<i64>> = spans.chunk_by(|a, b| a.owner == b.owner).scan(0, numbered).collect();
        let most = own.iter().map(Vec::len).max().unwrap_or_default();
        let padded =
            |pieces: &Vec<i64>| pieces.iter().copied().chain(std::iter::repeat(pieces[0])).take(most).collect();
        let padding = |pieces: &Vec<i64>| {
            let is_padding = (0..most).map(|at| at >= pieces.len()).collect::<Vec<_>>();
            is_padding.into_iter().map(|is_padding| if is_padding { f32::NEG_INFINITY } else { 0.0 })
        };
        let owners = upload.add(spans.iter().map(|span| span.owner as i64));
        let of_sequences = upload.add(own.iter().flat_map(|pieces| -> Vec<i64> { padded(pieces) }));
        let padding = upload.add(own.iter().flat_map(padding));
        let size = [sequences as i64, most as i64];
        Some(Box::new(move |sent| {
            let padding = sent.get(padding)?.f_view([size[0], size[1], 1])?;
            Ok(Self { size, owners: sent.get(owners)?, of_sequences: sent.get(of_sequences)?, padding })
        }))
    }

    /// Repeats the queries of each sequence for its pieces: `[B, H, D] -> [P, H, D]`
    pub(super) fn spread(&self, queries: &Tensor) -> Result<Tensor, Error> {
        Ok(queries.f_index_select(0, &self.owners)?)
    }

    /// Joins the results of pieces, `[P, H, D]`, with the logarithms of their sums, `[P, H]`. Joins these too
    /// if they are needed.
    pub(super) fn join(&self, rows: &Tensor, log_sums: &Tensor, with_log_sums: bool) -> Result<Attended, Error> {
        let [sequences, most] = self.size;
        let (_, heads, size) = rows.size3()?;
        let log_sums = log_sums.f_index_select(0, &self.of_sequences)?.f_view([sequences, most, heads])?;
        let log_sums = log_sums.f_add(&self.padding)?;
        let shares = log_sums.f_softmax(1, Kind::Float)?.f_unsqueeze(3)?; // [B, M, H, 1]
        let rows_of = rows.f_index_select(0, &self.of_sequences)?.f_view([sequences, most, heads, size])?;
        let joined = rows_of.f_mul(&shares)?.f_sum_dim_intlist(&[1_i64][..], false, Kind::Float)?;
        Ok(Attended {
            rows: joined.f_to_kind(rows.f_kind()?)?.f_view([sequences, heads * size])?,
            log_sums: with_log_sums.then(|| log_sums.f_logsumexp([1], false)).transpose()?,
        })
    }
}

/// Returns the numbers of some pieces, after `next` others.
fn numbered(next: &mut i64, pieces: &[Span<'_>]) -> Option<Vec<i64>> {
    let first = *next;
    *next += pieces.len() as i64;
    Some((first..*next).collect())
}
