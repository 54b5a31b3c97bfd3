//! Matrices of 8 or 4 bits, and libtorch's products of them.
//!
//! 8 bits: a row is integers from -127 to 127, times a scale. 4 bits: 32 numbers of a row are integers
//! from 0 to 15, less 8, times a scale, plus an offset. Scales and offsets have the model's dtype.
//!
//! Shapes: T tokens of a call, O outputs, I inputs, G = I / 32 groups.

use tch::{Kind, Tensor};

use crate::error::Error;
use crate::target::WeightBits;

/// The numbers of a group of 4 bits.
pub(super) const GROUP: i64 = 32;
/// The most tokens of a product of packed 8-bit numbers. Its operation is made for few; a product of
/// more tokens pays for unpacking the matrix.
const MAX_PACKED_TOKENS: i64 = 16;
/// The rows of the tiles of 4-bit numbers, a multiple of what any device needs.
const INT4_ROWS: i64 = 16;
/// The most numbers of a piece of a matrix that is packed, unless a row has more. A piece takes some times
/// 32 bits of each.
const PIECE: i64 = 1 << 24;
/// The smallest scale. It keeps a row or a group of equal numbers finite.
const MIN_SCALE: f64 = 1e-7;

/// A matrix.
#[derive(Debug)]
pub(super) enum Weight {
    /// Numbers of the model's dtype, `[O, I]`.
    Full(Tensor),
    Int8 {
        /// `[O, I]`
        integers: Tensor,
        /// `[O]`
        scales: Tensor,
    },
    Int4 {
        /// In the order of the device's operation.
        packed: Tensor,
        /// `[G, O, 2]`
        scales_and_offsets: Tensor,
    },
}

impl Weight {
    /// Packs a matrix, `[O, I]`. Where its size does not suit 4 bits, it gets 8.
    pub(super) fn pack(matrix: Tensor, bits: WeightBits) -> Result<Self, Error> {
        let (outputs, inputs) = matrix.size2()?;
        match bits {
            WeightBits::Full => Ok(Self::Full(matrix)),
            WeightBits::Int4 if suits_int4(outputs, inputs) => int4(&matrix),
            WeightBits::Int8 | WeightBits::Int4 => {
                let (integers, scales) = int8(&matrix)?;
                Ok(Self::Int8 { integers, scales })
            }
        }
    }

    /// `[T, I] -> [T, O]`. `bias`: `[O]`
    pub(super) fn product(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
        let product = match self {
            Self::Full(matrix) => return Ok(x.f_linear(matrix, bias)?),
            Self::Int8 { integers, scales } if x.size2()?.0 > MAX_PACKED_TOKENS => {
                let matrix = integers.f_to_kind(scales.f_kind()?)?.f_mul(&scales.f_unsqueeze(1)?)?;
                return Ok(x.f_linear(&matrix, bias)?);
            }
            Self::Int8 { integers, scales } => x.f_internal_weight_int8pack_mm(integers, scales)?,
            Self::Int4 { packed, scales_and_offsets } if x.device().is_cuda() => {
                x.f_internal_weight_int4pack_mm(packed, GROUP, scales_and_offsets)?
            }
            Self::Int4 { packed, scales_and_offsets } => {
                x.f_internal_weight_int4pack_mm_for_cpu(packed, GROUP, scales_and_offsets)?
            }
        };
        match bias {
            Some(bias) => Ok(product.f_add(bias)?),
            None => Ok(product),
        }
    }
}

/// Returns true if the size of a matrix, `[O, I]`, suits 4 bits.
pub(super) fn suits_int4(outputs: i64, inputs: i64) -> bool {
    outputs % INT4_ROWS == 0 && inputs % GROUP == 0
}

/// Computes two results of pieces of a matrix, `[O, I]`, and joins them along the rows. The memory that a
/// piece takes is used again for the next one.
pub(super) fn by_pieces(
    matrix: &Tensor,
    of: impl Fn(&Tensor) -> Result<(Tensor, Tensor), Error>,
) -> Result<(Tensor, Tensor), Error> {
    let rows = PIECE / matrix.size2()?.1.max(1);
    let pieces = matrix.f_split(rows.max(1), 0)?;
    if let [whole] = pieces.as_slice() {
        return of(whole);
    }
    let pieces = pieces.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let (first, second): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
    Ok((Tensor::f_cat(&first, 0)?, Tensor::f_cat(&second, 0)?))
}

/// Returns the integers and the scales of a matrix: `[O, I] -> [O, I], [O]`
pub(super) fn int8(matrix: &Tensor) -> Result<(Tensor, Tensor), Error> {
    by_pieces(matrix, |piece| {
        let numbers = piece.f_to_kind(Kind::Float)?;
        let largest = numbers.f_abs()?.f_amax([1].as_slice(), true)?; // [O, 1]
        let scales = largest.f_div_scalar(127.0)?.f_clamp_min(MIN_SCALE)?.f_to_kind(piece.f_kind()?)?;
        let integers = numbers.f_div(&scales)?.f_round()?.f_clamp(-127.0, 127.0)?.f_to_kind(Kind::Int8)?;
        Ok((integers, scales.f_squeeze_dim(1)?))
    })
}

/// Returns the groups of a matrix in f32, `[O, G, 32]`, their scales and their least numbers, `[O, G, 1]`.
pub(super) fn groups(matrix: &Tensor) -> Result<(Tensor, [Tensor; 2]), Error> {
    let (outputs, inputs) = matrix.size2()?;
    let groups = matrix.f_to_kind(Kind::Float)?.f_view([outputs, inputs / GROUP, GROUP])?;
    let (least, most) = (groups.f_amin([2].as_slice(), true)?, groups.f_amax([2].as_slice(), true)?);
    let scales = most.f_sub(&least)?.f_div_scalar(15.0)?.f_clamp_min(MIN_SCALE)?;
    Ok((groups, [scales, least]))
}

fn int4(matrix: &Tensor) -> Result<Weight, Error> {
    let (dtype, inputs, on_gpu) = (matrix.f_kind()?, matrix.size2()?.1, matrix.device().is_cuda());
    let (integers, ranges) = by_pieces(matrix, |piece| {
        let (groups, [scales, least]) = groups(piece)?;
        let scales = scales.f_to_kind(dtype)?;
        let offsets = scales.f_mul_scalar(8.0)?.f_add(&least)?.f_to_kind(dtype)?;
        let integers = groups.f_sub(&offsets)?.f_div(&scales)?.f_add_scalar(8.0)?.f_round()?.f_clamp(0.0, 15.0)?;
        let integers = integers.f_to_kind(Kind::Int)?.f_view([-1, inputs])?;
        let integers = if on_gpu { pairs(&integers)? } else { integers };
        Ok((integers, Tensor::f_cat(&[scales, offsets], 2)?))
    })?;
    // The most tiles of 16 inputs that an operation may read at once.
    let tiles = [8, 4, 2].into_iter().find(|tiles| inputs % (16 * tiles) == 0).unwrap_or(2);
    let packed = match on_gpu {
        true => integers.f_internal_convert_weight_to_int4pack(tiles)?,
        false => integers.f_internal_convert_weight_to_int4pack_for_cpu(tiles)?,
    };
    Ok(Weight::Int4 { packed, scales_and_offsets: ranges.f_transpose(0, 1)?.f_contiguous()? })
}

/// Joins each two integers from 0 to 15, as a GPU takes them: `[O, I] -> [O, I / 2]`
fn pairs(integers: &Tensor) -> Result<Tensor, Error> {
    let half = |start| integers.f_slice(1, start, None, 2); // every second input
    Ok(half(0)?.f_mul_scalar(16)?.f_add(&half(1)?)?.f_to_kind(Kind::Uint8)?)
}
