//! Cumulative sums over rows, in the order of ids.
//!
//! A row is summed in parts, and a part is searched only where the sum passes the target: whole rows of
//! 64-bit sums would take eight bytes for each token of the vocabulary.
//!
//! Shapes: R rows, V vocabulary, B parts of a row, P numbers of a part.

use tch::{Kind, Tensor};

use crate::error::Error;

/// P.
const PART: i64 = 512;

/// The sums of rows of numbers that are not negative.
#[derive(Debug)]
pub(super) struct Cumulative {
    /// `[R, B, P]`, with zeros after the V-th number.
    parts: Tensor,
    /// `[R, B]`, the sums up to the end of each part.
    ends: Tensor,
    /// V.
    vocabulary: i64,
}

impl Cumulative {
    /// `[R, V]`, 32-bit floats.
    pub(super) fn new(numbers: &Tensor) -> Result<Self, Error> {
        let (rows, vocabulary) = numbers.size2()?;
        let missing = (PART - vocabulary % PART) % PART;
        let padded = if missing > 0 { numbers.f_constant_pad_nd([0, missing])? } else { numbers.shallow_clone() };
        let parts = padded.f_view([rows, -1, PART])?;
        let ends = parts.f_sum_dim_intlist(&[2_i64][..], false, Kind::Double)?.f_cumsum(1, Kind::Double)?;
        Ok(Self { parts, ends, vocabulary })
    }

    /// Returns the sum of each row, `[R, 1]`.
    pub(super) fn totals(&self) -> Result<Tensor, Error> {
        let (_, parts) = self.ends.size2()?;
        Ok(self.ends.f_narrow(1, parts - 1, 1)?)
    }

    /// Returns the first id of each row at which the sum exceeds the target, `[R, 1]`. It is an id whose
    /// number is above zero, also where rounding lets the target reach the row's sum. Targets are
    /// `[R, 1]`, and not negative.
    pub(super) fn find(&self, targets: &Tensor) -> Result<Tensor, Error> {
        let part = first_above(&self.ends, targets)?;
        let (rows, _) = part.size2()?;
        let before = self.ends.f_constant_pad_nd([1, -1])?.f_gather(1, &part, false)?;
        let chosen = part.f_unsqueeze(2)?.f_expand([rows, 1, PART], false)?;
        let numbers = self.parts.f_gather(1, &chosen, false)?.f_squeeze_dim(1)?;
        let sums = numbers.f_cumsum(1, Kind::Double)?;
        let within = first_above(&sums, &targets.f_sub(&before)?)?;
        // Of rows that have no finite numbers, an id beyond the vocabulary is found.
        Ok(part.f_mul_scalar(PART)?.f_add(&within)?.f_clamp_max(self.vocabulary - 1)?)
    }
}

/// Returns the index of the first sum of each row above the target; at the latest, of the first sum that
/// equals the last: `[R, n], [R, 1] -> [R, 1]`
fn first_above(sums: &Tensor, targets: &Tensor) -> Result<Tensor, Error> {
    let (_, count) = sums.size2()?;
    let last = sums.f_narrow(1, count - 1, 1)?;
    let below_last = last.f_nextafter(&last.f_zeros_like()?)?;
    let targets = targets.f_minimum(&below_last)?;
    let found = targets.f_searchsorted(&sums.f_contiguous()?, false, true, "right", None::<&Tensor>)?;
    Ok(found.f_clamp_max(count - 1)?)
}
