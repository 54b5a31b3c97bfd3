//! Matrices of 8 or 4 bits, and libtorch's products of them.
//!
//! 8 bits: a row is integers from -127 to 127, times a scale. 4 bits: 32 numbers of a row are integers
//! from 0 to 15, less 8, times a scale, plus an offset. Scales and offsets have the model's dtype.
//!
//! Shapes: T tokens of a call, O outputs, I inputs, G = I / 32 groups.

use tch::{Kind, Tensor};

use crate::error::Error;
use crate::weights::WeightBits;

/// The numbers of a group of 4 bits.
pub(super) const GROUP: i64 = 32;
/// The most tokens of a product of packed 8-bit numbers. Its operation is made for few; a product of
/// more tokens pays for unpacking the matrix.
const MAX_PACKED_TOKENS: i64 = 16;
/// The rows of the tiles of 4-bit numbers, a multiple of what any device needs.
const INT4_ROWS: i64 = 16;
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
            WeightBits::Int4 if suits_int4(outputs, inputs) => int4(&matrix, outputs, inputs),
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

/// Returns the integers and the scales of a matrix: `[O, I] -> [O, I], [O]`
pub(super) fn int8(matrix: &Tensor) -> Result<(Tensor, Tensor), Error> {
    let numbers = matrix.f_to_kind(Kind::Float)?;
    let largest = numbers.f_abs()?.f_amax([1].as_slice(), true)?; // [O, 1]
    let scales = largest.f_div_scalar(127.0)?.f_clamp_min(MIN_SCALE)?.f_to_kind(matrix.f_kind()?)?;
    let integers = numbers.f_div(&scales)?.f_round()?.f_clamp(-127.0, 127.0)?.f_to_kind(Kind::Int8)?;
    Ok((integers, scales.f_squeeze_dim(1)?))
}

/// Returns the groups of a matrix in f32, `[O, G, 32]`, their scales and their least numbers, `[O, G, 1]`.
pub(super) fn groups(matrix: &Tensor) -> Result<(Tensor, [Tensor; 2]), Error> {
    let (outputs, inputs) = matrix.size2()?;
    let groups = matrix.f_to_kind(Kind::Float)?.f_view([outputs, inputs / GROUP, GROUP])?;
    let (least, most) = (groups.f_amin([2].as_slice(), true)?, groups.f_amax([2].as_slice(), true)?);
    let scales = most.f_sub(&least)?.f_div_scalar(15.0)?.f_clamp_min(MIN_SCALE)?;
    Ok((groups, [scales, least]))
}

fn int4(matrix: &Tensor, outputs: i64, inputs: i64) -> Result<Weight, Error> {
    let dtype = matrix.f_kind()?;
    let (groups, [scales, least]) = groups(matrix)?;
    let scales = scales.f_to_kind(dtype)?;
    let offsets = scales.f_mul_scalar(8.0)?.f_add(&least)?.f_to_kind(dtype)?;
    let integers = groups.f_sub(&offsets)?.f_div(&scales)?.f_add_scalar(8.0)?.f_round()?.f_clamp(0.0, 15.0)?;
    let packed = pack_int4(&integers.f_to_kind(Kind::Int)?.f_view([outputs, inputs])?, inputs)?;
    let scales_and_offsets = Tensor::f_cat(&[scales, offsets], 2)?.f_transpose(0, 1)?.f_contiguous()?;
    Ok(Weight::Int4 { packed, scales_and_offsets })
}

/// Orders integers from 0 to 15 for the device's operation: `[O, I]` of 32 bits each.
fn pack_int4(integers: &Tensor, inputs: i64) -> Result<Tensor, Error> {
    // The most tiles of 16 inputs that an operation may read at one time.
    let tiles = [8, 4, 2].into_iter().find(|tiles| inputs % (16 * tiles) == 0).unwrap_or(2);
    if !integers.device().is_cuda() {
        return Ok(integers.f_internal_convert_weight_to_int4pack_for_cpu(tiles)?);
    }
    let half = |start| integers.f_slice(1, start, None, 2); // every second input
    let pairs = half(0)?.f_mul_scalar(16)?.f_add(&half(1)?)?.f_to_kind(Kind::Uint8)?;
    Ok(pairs.f_internal_convert_weight_to_int4pack(tiles)?)
}
