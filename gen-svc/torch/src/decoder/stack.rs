//! The matrices of all experts, in the dtype or in fewer bits, and their products.
//!
//! Rows are multiplied with the matrices of their experts in the dtype. Packed ones are unpacked before their
//! product: if there are fewer rows than experts, those of the rows, else all. Both are a fixed number of
//! operations, without a number read by the host.
//!
//! Shapes: X experts, R rows, sorted by their experts, O outputs, I inputs, G = I / 32 groups, N matrices to
//! unpack.

use tandem_core::models::decoder::Matrix;
use tch::{Kind, Tensor};

use super::grouped::Sorted;
use super::load::{Loader, stacked_shape};
use super::packed::{self, GROUP};
use crate::error::Error;
use crate::target::{TorchTarget, WeightBits};

/// A matrix for each expert.
#[derive(Debug)]
pub(super) struct Stack {
    numbers: Numbers,
    /// X.
    experts: i64,
    dtype: Kind,
}

#[derive(Debug)]
enum Numbers {
    /// Of the dtype, `[X, O, I]`.
    Full(Tensor),
    /// Integers from -127 to 127.
    Int8 {
        /// `[X, O, I]`
        integers: Tensor,
        /// `[X, O]`
        scales: Tensor,
    },
    /// Integers from 0 to 15, times a scale, plus the least number of the group.
    Int4 {
        /// `[X, O, I / 2]`: a byte has two integers, the first in its low bits.
        pairs: Tensor,
        /// `[X, O, G, 1]`
        scales: Tensor,
        /// `[X, O, G, 1]`
        least: Tensor,
    },
}

impl Stack {
    /// Loads the stacked matrices of each expert.
    pub(super) fn load(loader: &Loader<'_>, groups: &[Vec<Matrix>]) -> Result<Self, Error> {
        let TorchTarget { dtype, bits, .. } = loader.target();
        let [rows, columns] = groups.first().map_or([0, 0], |parts| stacked_shape(parts).map(|size| size as i64));
        let numbers = match bits {
            WeightBits::Full => Numbers::Full(loader.groups(groups)?),
            WeightBits::Int4 if packed::suits_int4(rows, columns) => Numbers::int4(loader, groups)?,
            WeightBits::Int8 | WeightBits::Int4 => Numbers::int8(loader, groups)?,
        };
        Ok(Self { numbers, experts: groups.len() as i64, dtype })
    }

    /// Returns true if a product of this many rows unpacks a matrix for each row.
    pub(super) fn unpacks_each(&self, rows: i64) -> bool {
        rows < self.experts && !matches!(self.numbers, Numbers::Full(_))
    }

    /// Multiplies each row with the matrix of its expert: `[R, I] -> [R, O]`
    pub(super) fn product(&self, x: &Tensor, sorted: &Sorted) -> Result<Tensor, Error> {
        if let Numbers::Full(matrices) = &self.numbers {
            return sorted.product(x, matrices);
        }
        let product = if self.unpacks_each(x.size2()?.0) {
            let own = |numbers: &Tensor| numbers.f_index_select(0, &sorted.experts);
            let matrices = self.unpacked(own)?; // [R, O, I]
            matrices.f_bmm(&x.f_unsqueeze(2)?)?.f_squeeze_dim(2)?
        } else {
            sorted.product(x, &self.unpacked(|numbers| Ok(numbers.shallow_clone()))?)?
        };
        match &self.numbers {
            Numbers::Int8 { scales, .. } => Ok(product.f_mul(&scales.f_index_select(0, &sorted.experts)?)?),
            Numbers::Full(_) | Numbers::Int4 { .. } => Ok(product),
        }
    }

    /// Returns matrices as numbers of the dtype, `[N, O, I]`; of 8 bits, without their scales. `of` chooses
    /// the experts, `[X, ..] -> [N, ..]`.
    fn unpacked(&self, of: impl Fn(&Tensor) -> Result<Tensor, tch::TchError>) -> Result<Tensor, Error> {
        match &self.numbers {
            Numbers::Full(matrices) => Ok(of(matrices)?),
            Numbers::Int8 { integers, .. } => Ok(of(integers)?.f_to_kind(self.dtype)?),
            Numbers::Int4 { pairs, scales, least } => {
                let pairs = of(pairs)?;
                let (count, outputs, half) = pairs.size3()?;
                let integers = [pairs.f_bitwise_and(15)?, pairs.f_floor_divide_scalar(16)?];
                let integers = Tensor::f_stack(&integers, 3)?.f_to_kind(self.dtype)?; // [N, O, I / 2, 2]
                let groups = integers.f_view([count, outputs, -1, GROUP])?;
                Ok(of(least)?.f_addcmul(&groups, &of(scales)?)?.f_view([count, outputs, 2 * half])?)
            }
        }
    }
}

impl Numbers {
    /// Packs the matrices of one expert after the other.
    fn int8(loader: &Loader<'_>, groups: &[Vec<Matrix>]) -> Result<Self, Error> {
        let packed = groups.iter().map(|parts| packed::int8(&loader.stacked(parts)?));
        let (integers, scales): (Vec<_>, Vec<_>) = packed.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok(Self::Int8 { integers: Tensor::f_stack(&integers, 0)?, scales: Tensor::f_stack(&scales, 0)? })
    }

    /// Packs the matrices of one expert after the other.
    fn int4(loader: &Loader<'_>, groups: &[Vec<Matrix>]) -> Result<Self, Error> {
        let packed = groups.iter().map(|parts| int4(&loader.stacked(parts)?));
        let (pairs, ranges): (Vec<_>, Vec<_>) = packed.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let (scales, least): (Vec<_>, Vec<_>) = ranges.into_iter().unzip();
        let [pairs, scales, least] = [pairs, scales, least].map(|parts| Tensor::f_stack(&parts, 0));
        Ok(Self::Int4 { pairs: pairs?, scales: scales?, least: least? })
    }
}

/// Packs `[O, I]`. Returns the pairs, the scales and the least numbers of one expert.
fn int4(matrix: &Tensor) -> Result<(Tensor, (Tensor, Tensor)), Error> {
    let (outputs, inputs) = matrix.size2()?;
    let (groups, [scales, least]) = packed::groups(matrix)?;
    let dtype = matrix.f_kind()?;
    let (scales, least) = (scales.f_to_kind(dtype)?, least.f_to_kind(dtype)?);
    let integers = groups.f_sub(&least)?.f_div(&scales)?.f_round()?.f_clamp(0.0, 15.0)?;
    let integers = integers.f_view([outputs, inputs])?;
    let half = |start| integers.f_slice(1, start, None, 2); // every second input
    let pairs = half(1)?.f_mul_scalar(16)?.f_add(&half(0)?)?.f_to_kind(Kind::Uint8)?;
    Ok((pairs, (scales, least)))
}
