//! The likeliest tokens of rows.
//!
//! Shapes: R rows, V vocabulary, N tokens of a row.

use tch::{Kind, Tensor};

use crate::error::Error;

/// Returns the ids of the largest logits in descending order, of equal ones the smaller id first:
/// `[R, V] -> [R, N]`. libtorch's own order of equal numbers is not defined, so numbers are compared with
/// their ids: a key has the logit's bits, which are made to ascend with it, then the id.
pub(super) fn likeliest(logits: &Tensor, count: i64) -> Result<Tensor, Error> {
    let (_, vocabulary) = logits.size2()?;
    let bits = logits.f_contiguous()?.f_view_dtype(Kind::Int)?;
    // Negative numbers: all bits but the sign are inverted.
    let inverted = bits.f_bitwise_right_shift_tensor_scalar(31_i64)?.f_bitwise_and(i64::from(i32::MAX))?;
    let ascending = bits.f_bitwise_xor_tensor(&inverted)?.f_to_kind(Kind::Int64)?;
    let ids = Tensor::f_arange_start_step(vocabulary - 1, -1, -1, (Kind::Int64, logits.device()))?;
    let keys = ascending.f_mul_scalar(1_i64 << 32)?.f_add(&ids)?;
    let (_, ids) = keys.f_topk(count, 1, true, true)?;
    Ok(ids)
}
